# SPDX-License-Identifier: Apache-2.0
"""The commands and their options."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from genai_processor.cli.output import write_json, write_json_lines
from genai_processor.cli.scan import scan_rows
from genai_processor.retry.policy import Policy
from genai_processor.settings import Settings

app = typer.Typer(add_completion=False, no_args_is_help=True, help="May this agent's tool call be tried again?")


class Format(StrEnum):
    """How a scan prints."""

    table = "table"
    json = "json"
    jsonl = "jsonl"


@app.callback()
def _commands() -> None:
    """May this agent's tool call be tried again?"""


@app.command()
def scan(
    files: Annotated[list[str], typer.Argument(help="OTLP files: JSON lines or protobuf, plain, .gz or .zst; - for stdin.")],
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
    separate: Annotated[bool, typer.Option("--separate", help="Each file is a run of its own.")] = False,
    length_limit: Annotated[int | None, typer.Option(help="The SDK's attribute value length limit, if it had one.")] = None,
) -> None:
    """Judge every tool call of recorded traces. Exit 0: read; 1: some input was damaged; 2: usage."""
    settings = Settings.from_environ(os.environ)
    policy = Policy(settings.read_only_tools, settings.idempotent_tools, settings.known_tools)
    rows = scan_rows(files, policy, separate=separate, length_limit=length_limit or settings.length_limit)
    write = write_json if format is Format.json else write_json_lines
    count = write(rows, sys.stdout.buffer)
    raise typer.Exit(1 if count["error"] else 0)
