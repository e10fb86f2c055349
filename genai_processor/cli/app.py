# SPDX-License-Identifier: Apache-2.0
"""The commands and their options."""

from __future__ import annotations

import gc
import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from genai_processor.cli.answer import answering
from genai_processor.cli.console import console, warn
from genai_processor.cli.output import write_json, write_json_lines
from genai_processor.cli.progress import ScanProgress
from genai_processor.cli.queue import export, queue, release, settle, show
from genai_processor.cli.reconcile import reconcile
from genai_processor.cli.replay import replay as replay_commands
from genai_processor.cli.scan import scan_rows
from genai_processor.cli.table import Table
from genai_processor.cli.wrapping import Command
from genai_processor.settings import SETTINGS, Settings, settings_table
from genai_processor.spans.otlp import MAX_LINE_BYTES

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_READ, _DAMAGED = 0, 1


class Format(StrEnum):
    """How a scan prints."""

    table = "table"
    json = "json"
    jsonl = "jsonl"


@app.callback()
def _commands() -> None:
    """May this agent's tool call be tried again?"""


@app.command(cls=Command, no_args_is_help=False)
def scan(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="OTLP traces: JSON lines, one JSON document or protobuf; plain, gzip or zstd. - is the standard input.",
        ),
    ],
    format: Annotated[
        Format,
        typer.Option(help="table for people; json is one object; jsonl is one object a line, written as it is found."),
    ] = Format.table,
    separate: Annotated[
        bool, typer.Option("--separate", help="Take each file as a run of its own. Otherwise all files are one run.")
    ] = False,
    all_calls: Annotated[
        bool, typer.Option("--all", help="In the table, show every call, also those that ended well.")
    ] = False,
    read_only: Annotated[
        str | None,
        typer.Option(metavar="GLOBS", help="Tools that change nothing. Beats GENAI_PROCESSOR_READ_ONLY_TOOLS."),
    ] = None,
    idempotent: Annotated[
        str | None,
        typer.Option(
            metavar="GLOBS",
            help="Tools that may be tried again under the same call id. Beats GENAI_PROCESSOR_IDEMPOTENT_TOOLS.",
        ),
    ] = None,
    known: Annotated[
        str | None,
        typer.Option(metavar="GLOBS", help="Every tool that there is. Beats GENAI_PROCESSOR_KNOWN_TOOLS."),
    ] = None,
    length_limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="The attribute value length limit of the SDK that recorded the traces; 0 if it had none. Beats "
            "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT and OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT. If nothing tells, it is "
            "guessed.",
        ),
    ] = None,
    replay: Annotated[
        bool | None,
        typer.Option(
            "--replay/--no-replay",
            help="Also say what a replay would do with every span: recompute, inject or refuse, and why. Without either, "
            "json does.",
        ),
    ] = None,
    max_line_bytes: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Leave out lines, protobuf messages and JSON documents that are longer."),
    ] = MAX_LINE_BYTES,
) -> None:
    """Judge every tool call of recorded traces: may it be tried again?

    GLOBS are comma-separated patterns of tool names, as in 'get_*,search'.

    Exit status: 0 if everything was read, 1 if some input was damaged or could not be opened (the rest is judged all the
    same), 2 if the command line is wrong, 3 if the answer cannot be written, 141 if whoever reads it left early. Nothing is
    written but the answer.
    """
    settings = Settings.from_environ(
        os.environ,
        warn,
        read_only_tools=read_only,
        idempotent_tools=idempotent,
        known_tools=known,
        length_limit=length_limit,
    )
    # There are hardly any cycles to find, and looking for them after every few spans costs time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    plans = format is not Format.table and (replay if replay is not None else format is Format.json)
    with answering(), ScanProgress(wanted=format is Format.table or not sys.stdout.isatty()) as progress:
        rows = scan_rows(
            files,
            settings.policy(),
            separate=separate,
            length_limit=settings.length_limit,
            replay=plans,
            max_line_bytes=max_line_bytes,
            on_progress=progress.update,
        )
        if format is Format.jsonl:
            count = write_json_lines(rows, sys.stdout.buffer, eager=not all(map(os.path.isfile, files)))
        elif format is Format.json:
            count = write_json(rows, sys.stdout.buffer, replay=plans)
        else:
            count = Table(console(), every_call=all_calls, before_print=progress.stop).print(rows)
    raise typer.Exit(_DAMAGED if count["error"] else _READ)


@app.command(cls=Command)
def settings(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a Markdown table.")] = False,
) -> None:
    """Print every environment variable that is read: what it takes, what holds without it, what it does."""
    if markdown:
        with answering():
            typer.echo(settings_table())
        return
    with answering():
        out = console()
        for row in SETTINGS:
            out.print(row.name, style="bold", highlight=False)
            out.print(f"{row.type}; default: {row.default}. {row.meaning}", highlight=False, markup=False)
            out.print()


for _command in (queue, show, settle, release, export, reconcile):
    app.command(cls=Command, no_args_is_help=False)(_command)
app.add_typer(replay_commands, name="replay")
