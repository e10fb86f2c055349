# SPDX-License-Identifier: Apache-2.0
"""Runs the three scenes, prints what happened, and fails if it is not what this project promises."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

import httpx
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai import Agent, InstrumentationSettings

from examples.demo import agent as application
from examples.demo.receiver import ReceivedSpan, Receiver
from examples.demo.service import PaymentService
from genai_processor import GenAISpanProcessor
from genai_processor.ledger import Entry, MemoryLedger

COLOUR = "FORCE_COLOR" in os.environ or (sys.stdout.isatty() and "NO_COLOR" not in os.environ)
RED, GREEN, BOLD, DIM = "31", "32", "1", "2"


class Unexpected(Exception):
    """The demo did not show what it is there to show."""


def paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if COLOUR else text


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise Unexpected(f"{what}: expected {wanted!r}, got {got!r}")


def traced(processor: SpanProcessor, run: Callable[[], str]) -> str:
    """Runs the agent with its spans sent to `processor`, and says how the run ended."""
    provider = TracerProvider()
    provider.add_span_processor(processor)
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    HTTPXClientInstrumentor().instrument(tracer_provider=provider)
    try:
        return f'the run ended well: "{run()}"'
    except httpx.HTTPStatusError as error:
        return f"the run stopped at its HTTP {error.response.status_code}"
    finally:
        HTTPXClientInstrumentor().uninstrument()
        provider.shutdown()


def without() -> tuple[Sequence[object], str, list[ReceivedSpan]]:
    """The agent and its loop as they are."""
    with PaymentService() as service, Receiver() as receiver:
        agent = application.support_agent(service.url)
        export = BatchSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
        end = traced(export, lambda: application.naive_loop(agent))
        return service.paid, end, receiver.tool_spans()


def with_processor() -> tuple[Sequence[object], str, list[ReceivedSpan], Sequence[Entry]]:
    """The same agent, with the processor in front of the exporter, in a loop that asks it."""
    with PaymentService() as service, Receiver() as receiver:
        agent = application.support_agent(service.url)
        ledger = MemoryLedger()
        export = BatchSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces"))
        end = traced(GenAISpanProcessor(export, ledger=ledger), lambda: application.careful_loop(agent))
        return service.paid, end, receiver.tool_spans(), ledger.pending().entries


def without_code() -> tuple[Sequence[object], str, list[ReceivedSpan]]:
    """The application as a program of its own, started by `opentelemetry-instrument`."""
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
        }
        command = [launcher, sys.executable, "-m", "examples.demo.agent"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise Unexpected(f"the application under opentelemetry-instrument failed:\n{done.stderr}")
        return service.paid, f'the run ended well: "{done.stdout.strip()}"', receiver.tool_spans()


def main() -> None:
    print("An agent refunds 25.00 EUR. The payment service pays, but its answer is lost: HTTP 502.\n")

    print(paint("1  Today: the loop around the agent tries again whatever failed", BOLD))
    paid, end, spans = without()
    expect("refunds paid without the processor", len(paid), 2)
    show_run(paid, end, spans)

    print(paint("2  One line more in that loop: `if not is_safe_to_retry(error): raise`", BOLD))
    paid, end, spans, pending = with_processor()
    expect("refunds paid with the processor", len(paid), 1)
    expect("tool spans that reached the OTLP receiver", len(spans), 1)
    expect("genai.retry.verdict", spans[0].attributes.get("genai.retry.verdict"), "quarantined")
    expect("entries in the queue", [entry.tool for entry in pending], ["create_refund"])
    show_run(paid, end, spans)
    print("   What the OTLP receiver got on that span, beside what the agent wrote:")
    for name in sorted(spans[0].attributes):
        if name.startswith("genai."):
            value = spans[0].attributes[name]
            print(f"     {name:<28}{', '.join(value) if isinstance(value, list) else value}")
    print("   What waits for a person, who can look at the payments (`ledger.pending()`):")
    for entry in pending:
        print(f"     {entry.tool}  {entry.call_id}  {entry.state.value} ({entry.reason})")
    print()

    print(paint("3  Not a line of code: `opentelemetry-instrument python -m examples.demo.agent`", BOLD))
    paid, end, spans = without_code()
    expect("refunds paid by the naive loop", len(paid), 2)
    expect("tool spans that reached the OTLP receiver", len(spans), 2)
    first, second = spans
    expect("the first call's verdict", first.attributes.get("genai.retry.verdict"), "quarantined")
    expect("what the second call repeats", second.attributes.get("genai.retry.duplicate_of"), first.span_id)
    show_run(paid, end, spans)
    print("   Nobody asked, so nobody was stopped. But both spans say what happened:")
    for span in spans:
        tags = {name.removeprefix("genai.retry."): value for name, value in span.attributes.items()}
        says = "  ".join(f"{name}={tags[name]}" for name in ("verdict", "reason", "duplicate_of") if name in tags)
        print(f"     {span.span_id}  {says}")


def show_run(paid: Sequence[object], end: str, spans: Sequence[ReceivedSpan]) -> None:
    for span in spans:
        print(f"   {span.name}  {span.attributes['gen_ai.tool.call.id']}  {'ERROR' if span.failed else 'ok'}")
    money = paint(f"{len(paid)} x 25.00 EUR paid", GREEN if len(paid) == 1 else RED)
    print(f"   {money}, {end}\n")


if __name__ == "__main__":
    try:
        main()
    except Unexpected as error:
        sys.exit(f"demo: {error}")
