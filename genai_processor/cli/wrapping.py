# SPDX-License-Identifier: Apache-2.0
"""Help that is wrapped where the terminal ends, not where the lines of the docstring do."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose help is paragraphs."""

    def __init__(self, *args: Any, help: str | None = None, **options: Any) -> None:
        paragraphs = (help or "").split("\n\n")
        super().__init__(*args, help="\n\n".join(" ".join(text.split()) for text in paragraphs), **options)
