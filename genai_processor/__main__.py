# SPDX-License-Identifier: Apache-2.0
"""`python -m genai_processor`, and the `genai-processor` command."""

from __future__ import annotations

import sys

_EXTRA = frozenset({"typer", "rich", "click"})


def main() -> None:
    """Run the command line.

    Raises:
        SystemExit: With the command's exit status; 2 where the `cli` extra is not installed.
    """
    try:
        from genai_processor.cli.answer import answering
        from genai_processor.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(
            f"genai-processor: the package {error.name} is not installed. "
            "Install the command line with: pip install 'otel-genai-processor[cli]', "
            "or in a checkout: pip install '.[cli]'\n"
        )
        sys.exit(2)
    with answering():  # help, which no command of ours writes
        app(prog_name="genai-processor")


if __name__ == "__main__":
    main()
