# SPDX-License-Identifier: Apache-2.0
"""`python -m genai_processor`, and the `genai-processor` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line.

    Raises:
        SystemExit: With the command's exit status; 2 where the `cli` extra is not installed.
    """
    try:
        from genai_processor.cli.app import app
    except ImportError as error:
        sys.exit(f"genai-processor: {error}. Install the command line with: pip install 'otel-genai-processor[cli]'")
    app(prog_name="genai-processor")


if __name__ == "__main__":
    main()
