# SPDX-License-Identifier: Apache-2.0
"""`replay plan`, `replay audit`, `replay diff`: what could be replayed, what is missing for the rest, where two runs part.

Exit status: 0, or 1 if some input was damaged or could not be opened (the rest is planned all the same), 2 if the command
line is wrong, 3 if the answer cannot be written, 4 if two runs differ.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.console import Console

from genai_processor.cli.answer import answering
from genai_processor.cli.audit import Audit, audit_json, print_audit
from genai_processor.cli.console import PIPED_WIDTH, console, usage_error, warn
from genai_processor.cli.output import dumped_line
from genai_processor.cli.page.document import page
from genai_processor.cli.parting import differences_json, print_differences
from genai_processor.cli.plans import mermaid, plan_json, print_plan
from genai_processor.cli.saving import save, spare_inputs
from genai_processor.cli.wrapping import Command
from genai_processor.errors import TraceFileError
from genai_processor.replay import Declared, Plan, Planner, differences
from genai_processor.settings import Settings
from genai_processor.spans.otlp import MAX_LINE_BYTES, ReadError, read_spans

_READ: Final = 0
_DAMAGED: Final = 1
_DIFFERENT: Final = 4

replay = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="What of a recorded run may be recomputed, what is taken from the record, what cannot be replayed and why.",
)


class PlanFormat(StrEnum):
    """How a plan prints."""

    tree = "tree"
    json = "json"
    mermaid = "mermaid"
    html = "html"


class AuditFormat(StrEnum):
    """How an audit prints."""

    table = "table"
    json = "json"


FilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="OTLP traces: JSON lines, one JSON document or protobuf; plain, gzip or zstd. - is the standard input.",
    ),
]
DeterministicOption = Annotated[
    str | None,
    typer.Option(
        metavar="GLOBS",
        help="Tools that change nothing and answer the same every time; also retrieval, reranking, embeddings, and names of "
        "data sources.",
    ),
]
ModelsOption = Annotated[str | None, typer.Option(metavar="GLOBS", help="Models that answer the same to the same.")]
RecomputeOption = Annotated[
    str | None,
    typer.Option(
        metavar="OPERATIONS", help="Operations for which there will be a function to recompute with: chat; * is every model."
    ),
]
LengthOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="The attribute value length limit of the SDK that recorded the traces; 0 if it had none. Beats "
        "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT and OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT.",
    ),
]
LineOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="Leave out lines, protobuf messages and JSON documents that are longer.")
]


@replay.command(cls=Command, name="plan", no_args_is_help=False)
def plan_command(
    files: FilesArgument,
    format: Annotated[
        PlanFormat,
        typer.Option(
            help="tree for people; json is one object; mermaid draws the content graph; html is a page for a browser, with "
            "span tree and content graph side by side."
        ),
    ] = PlanFormat.tree,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the answer to this file.")
    ] = None,
    values: Annotated[
        bool,
        typer.Option(
            "--values",
            help="Put recorded messages, arguments and results on the html page, which has none of them without this.",
        ),
    ] = False,
    deterministic: DeterministicOption = None,
    models: ModelsOption = None,
    recompute: RecomputeOption = None,
    length_limit: LengthOption = None,
    max_line_bytes: LineOption = MAX_LINE_BYTES,
) -> None:
    """Plan the replay of recorded runs, node by node. All files are one record.

    GLOBS are comma-separated patterns, as in 'get_*,search'. Nothing is run, and nothing is written but the answer. What is
    shown of a plan is names, ids and digests; values only if --values asks for them.
    """
    if values and format is not PlanFormat.html:
        raise usage_error("--values", "only the html page can have values; add --format html")
    spare_inputs(output, files)
    declared = _declared(deterministic, models, recompute)
    settings = _settings(length_limit)
    planner = Planner(declared, keep_values=values, length_limit=settings.length_limit, digest_key=settings.digest_key)
    with answering():
        damaged = _read(planner, files, max_line_bytes)
        plan = planner.plan()
        if format is PlanFormat.tree and output is None:
            print_plan(plan, console())
        else:
            answer = _plan_answer(plan, format, files, values=values)
            if output is not None:
                save(output, answer)
            else:
                sys.stdout.buffer.write(answer)
    raise typer.Exit(_DAMAGED if damaged else _READ)


def _plan_answer(plan: Plan, format: PlanFormat, files: list[str], *, values: bool) -> bytes:
    if format is PlanFormat.json:
        return dumped_line(plan_json(plan))
    if format is PlanFormat.mermaid:
        return mermaid(plan).encode(errors="backslashreplace")
    if format is PlanFormat.html:
        names = ["standard input" if file == "-" else os.path.basename(file) or file for file in files]
        return page(plan, names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else ""), values=values)
    out = io.StringIO()
    print_plan(plan, Console(file=out, width=PIPED_WIDTH, color_system=None))
    return out.getvalue().encode(errors="backslashreplace")


@replay.command(cls=Command, name="audit", no_args_is_help=False)
def audit_command(
    files: FilesArgument,
    format: Annotated[AuditFormat, typer.Option(help="table for people; json is one object.")] = AuditFormat.table,
    deterministic: DeterministicOption = None,
    models: ModelsOption = None,
    recompute: RecomputeOption = None,
    length_limit: LengthOption = None,
    max_line_bytes: LineOption = MAX_LINE_BYTES,
) -> None:
    """Say which of these traces could be replayed, and what must be recorded to make the rest so, by instrumentation.

    Each file is a record of its own.
    """
    declared = _declared(deterministic, models, recompute)
    settings = _settings(length_limit)
    found = Audit()
    with answering():
        damaged = False
        for file in files:
            planner = Planner(
                declared, keep_values=False, length_limit=settings.length_limit, digest_key=settings.digest_key
            )
            damaged = _read(planner, [file], max_line_bytes) or damaged
            found.add(planner.plan(), planner.plan(stamps=False) if planner.stamped else None)
        if format is AuditFormat.json:
            sys.stdout.buffer.write(dumped_line(audit_json(found)))
        else:
            print_audit(found, console())
    raise typer.Exit(_DAMAGED if damaged else _READ)


class DiffFormat(StrEnum):
    """How differences print."""

    text = "text"
    json = "json"


@replay.command(cls=Command, name="diff", no_args_is_help=False)
def diff_command(
    first: Annotated[str, typer.Argument(metavar="A", help="OTLP traces of one run, as of `plan`.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Those of another.")],
    format: Annotated[DiffFormat, typer.Option(help="text for people; json is one object.")] = DiffFormat.text,
    length_limit: LengthOption = None,
    max_line_bytes: LineOption = MAX_LINE_BYTES,
) -> None:
    """Say where two recorded runs part: the first differences along the content graph, and nothing that follows from them.

    The exit status is 4 if they do. It is 1, and nothing is compared, if one of the files is missing or holds no trace.
    """
    settings = _settings(length_limit)
    with answering():
        damaged, plans = False, []
        for file in (first, second):
            planner = Planner(Declared(), length_limit=settings.length_limit, digest_key=settings.digest_key)
            damaged = _read(planner, [file], max_line_bytes) or damaged
            plans.append(planner.plan())
            if damaged and not plans[-1].nodes:
                warn("there is nothing to compare")
                raise typer.Exit(_DAMAGED)
        found = differences(*plans)
        if format is DiffFormat.json:
            sys.stdout.buffer.write(dumped_line(differences_json(found)))
        else:
            print_differences(found, len(plans[0].nodes), console())
    raise typer.Exit(_DAMAGED if damaged else _DIFFERENT if found else _READ)


def _declared(deterministic: str | None, models: str | None, recompute: str | None) -> Declared:
    return Declared(_globs(deterministic), _globs(models), _globs(recompute))


def _globs(text: str | None) -> tuple[str, ...]:
    return tuple([glob.strip() for glob in (text or "").split(",") if glob.strip()])


def _settings(length_limit: int | None) -> Settings:
    return Settings.from_environ(os.environ, warn, length_limit=length_limit)


def _read(planner: Planner, files: Iterable[str], max_line_bytes: int) -> bool:
    """Feed files to a planner; whether some of it was damaged."""
    damaged = False

    def note(error: ReadError) -> None:
        nonlocal damaged
        damaged = True
        place = error.file if error.line is None else f"{error.file}:{error.line}"
        warn(f"{place}: {error.error}")
        planner.note(place, error.error)

    for file in files:
        try:
            planner.add_all(read_spans(file, max_line_bytes=max_line_bytes, on_error=note))
        except TraceFileError as error:
            note(ReadError(file, None, str(error).removeprefix(f"{file}: ")))
    return damaged
