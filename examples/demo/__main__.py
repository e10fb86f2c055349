# SPDX-License-Identifier: Apache-2.0
"""Runs the four scenes, prints what happened, and fails if it is not what this project promises."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import httpx
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai import Agent, InstrumentationSettings

from examples.demo import agent as application
from examples.demo.receiver import ReceivedSpan, Receiver
from examples.demo.service import PaymentService
from genai_processor import GenAISpanProcessor, MemoryLedger, is_safe_to_retry
from genai_processor.ledger import Entry

COLOUR = "FORCE_COLOR" in os.environ or (sys.stdout.isatty() and "NO_COLOR" not in os.environ)
RED, GREEN, BOLD = "31", "32", "1"
COLUMN = 46
WIDTH = 100


class Unexpected(Exception):
    """The demo did not show what it is there to show."""


class Scene(NamedTuple):
    """What came of one run.

    Attributes:
        paid: The refunds that the payment service paid.
        end: How the application's loop ended.
        calls: The tool spans that the OTLP receiver got.
        pending: What waits for a person, where the scene has a ledger at hand.
    """

    paid: Sequence[object]
    end: str
    calls: Sequence[ReceivedSpan]
    pending: Sequence[Entry] = ()


def careful_loop(agent: Agent) -> str:
    """The application's loop, with one line more."""
    for _ in range(3):
        try:
            return agent.run_sync(application.REQUEST, conversation_id=application.TICKET).output
        except httpx.HTTPError as error:
            if not is_safe_to_retry(error):
                raise
    raise RuntimeError("three attempts have failed")


def traced(processor: SpanProcessor, run: Callable[[], str]) -> str:
    """Runs the agent with its spans sent to `processor`, and says how the run ended."""
    provider = TracerProvider()
    provider.add_span_processor(processor)
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    HTTPXClientInstrumentor().instrument(tracer_provider=provider)
    try:
        return f'"{run()}"'
    except httpx.HTTPStatusError as error:
        return f"HTTP {error.response.status_code} goes to whoever called"
    finally:
        HTTPXClientInstrumentor().uninstrument()
        provider.shutdown()


def without() -> Scene:
    """The agent and its loop as they are."""
    with PaymentService() as service, Receiver() as receiver:
        agent = application.support_agent(service.url)
        export = BatchSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
        end = traced(export, lambda: application.naive_loop(agent))
        return Scene(service.paid, end, receiver.tool_spans())


def with_processor() -> Scene:
    """The same agent, with the processor in front of the exporter, in a loop that asks it."""
    with PaymentService() as service, Receiver() as receiver:
        agent = application.support_agent(service.url)
        ledger = MemoryLedger()
        export = BatchSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
        end = traced(GenAISpanProcessor(export, ledger=ledger), lambda: careful_loop(agent))
        return Scene(service.paid, end, receiver.tool_spans(), ledger.pending().entries)


def without_code(guard: str) -> Scene:
    """The application as a program of its own, started by `opentelemetry-instrument`, with the guard in some mode."""
    launcher = shutil.which("opentelemetry-instrument", path=os.path.dirname(sys.executable))
    if launcher is None:
        raise Unexpected("opentelemetry-instrument is not installed beside this Python")
    with PaymentService() as service, Receiver() as receiver:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "GENAI_"))}
        environment |= {
            "PAYMENTS_URL": service.url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "GENAI_PROCESSOR_GUARD": guard,
        }
        command = [launcher, sys.executable, "-m", "examples.demo.agent"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise Unexpected(f"the application under opentelemetry-instrument failed:\n{done.stderr}")
        return Scene(service.paid, f'"{done.stdout.strip()}"', receiver.tool_spans())


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise Unexpected(f"{what}: expected {wanted!r}, got {got!r}")


def check(today: Scene, asking: Scene, tagged: Scene, guarded: Scene) -> None:
    """Compare what happened with what this project promises."""
    expect("refunds paid by the naive loop", len(today.paid), 2)

    expect("refunds paid by the loop that asks", len(asking.paid), 1)
    expect("tool calls that the OTLP receiver got from the loop that asks", len(asking.calls), 1)
    expect("their verdict", asking.calls[0].attributes.get("genai.retry.verdict"), "quarantined")
    expect("tools in the queue", [entry.tool for entry in asking.pending], ["create_refund"])

    expect("refunds paid under opentelemetry-instrument", len(tagged.paid), 2)
    expect("tool calls that the OTLP receiver got from opentelemetry-instrument", len(tagged.calls), 2)
    first, second = tagged.calls
    expect("the first one's verdict", first.attributes.get("genai.retry.verdict"), "quarantined")
    expect("what the second one repeats", second.attributes.get("genai.retry.duplicate_of"), first.span_id)

    expect("refunds paid with the guard", len(guarded.paid), 1)
    outcomes = [span.attributes.get("genai.guard.outcome") for span in guarded.calls]
    expect("what the guard did", outcomes, ["granted", "refused"])


def paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if COLOUR else text


def call_line(span: ReceivedSpan) -> str:
    call_id = span.attributes["gen_ai.tool.call.id"]
    return f"{span.attributes['gen_ai.tool.name']}  {call_id[:15]}..  {'ERROR' if span.failed else 'ok'}"


def paid_line(scene: Scene, width: int = 0) -> str:
    return paint(f"{len(scene.paid)} x 25.00 EUR paid".ljust(width), GREEN if len(scene.paid) == 1 else RED)


def side_by_side(today: Scene, asking: Scene) -> None:
    left = ["except httpx.HTTPError:", "    continue", "", *map(call_line, today.calls), today.end]
    right = ["except httpx.HTTPError as error:", "    if not is_safe_to_retry(error): raise", ""]
    right += [*map(call_line, asking.calls), asking.end]
    print(paint(f"  {'TODAY':<{COLUMN}} | ONE LINE MORE", BOLD))
    for one, other in itertools.zip_longest(left, right, fillvalue=""):
        print(f"  {one:<{COLUMN}} | {other}".rstrip())
    print(f"  {paid_line(today, COLUMN)} | {paid_line(asking)}\n")


def tags(span: ReceivedSpan) -> None:
    names = sorted(name for name in span.attributes if name.startswith("genai."))
    first = ["genai.retry.verdict", "genai.retry.reason", "genai.retry.evidence"]
    for name in sorted(names, key=lambda name: first.index(name) if name in first else len(first)):
        value = span.attributes[name]
        for piece in value if isinstance(value, list) else [value]:
            print(f"    {name:<28} {piece}"[:WIDTH])
            name = ""


def told(scene: Scene, other: str) -> None:
    for span in scene.calls:
        says = [f"{name}={span.attributes.get(f'genai.{name}')}" for name in ("retry.verdict", other)]
        print(f"    span {span.span_id}  {'  '.join(say for say in says if not say.endswith('=None'))}")


def main() -> None:
    today, asking, tagged, guarded = without(), with_processor(), without_code("observe"), without_code("enforce")
    check(today, asking, tagged, guarded)

    print("An agent refunds 25.00 EUR. The payment service pays, but its answer is lost: HTTP 502.")
    print("The loop around the agent runs it again, and the model asks under a new call id.\n")
    side_by_side(today, asking)

    print(paint("  ON THE SPAN, as an OTLP receiver got it, beside what the agent wrote", BOLD))
    tags(asking.calls[0])
    print()
    print(paint("  IN THE QUEUE, for somebody who can look at the payments: ledger.pending()", BOLD))
    for entry in asking.pending:
        print(f"    {entry.tool}  {entry.call_id}  {entry.state} ({entry.reason})")
    print()
    print(paint("  NOT A LINE OF CODE: opentelemetry-instrument python -m examples.demo.agent", BOLD))
    told(tagged, "retry.duplicate_of")
    print(f"    {paid_line(tagged)}: the guard only observes, so nobody was stopped. But the second span says so.")
    print(paint("  THE SAME, with GENAI_PROCESSOR_GUARD=enforce", BOLD))
    told(guarded, "guard.outcome")
    print(f"    {paid_line(guarded)}")


if __name__ == "__main__":
    try:
        main()
    except Unexpected as error:
        sys.exit(f"demo: {error}")
