# SPDX-License-Identifier: Apache-2.0
"""The way in without code, in processes of their own, from nothing but variables."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.instrumentation.auto_instrumentation import _load
from support.receiver import Receiver, attributes_of, receiving

_WILDCARD = "SKIPPED_INSTRUMENTATIONS_WILDCARD"
INSTRUMENT = Path(sys.executable).with_name("opentelemetry-instrument")

pytestmark = pytest.mark.skipif(
    not INSTRUMENT.exists() or not entry_points(group="opentelemetry_instrumentor", name="genai_processor"),
    reason="needs this package, and opentelemetry-instrument, installed",
)

TOOL = """
    from opentelemetry import trace
    from opentelemetry.trace import Status, StatusCode

    def fail_tool(tracer, name="execute_tool refund"):
        with tracer.start_as_current_span(name, attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "refund",
            "gen_ai.tool.call.id": "toolu_01AbCdEfGh",
            "gen_ai.tool.call.arguments": '{"order": "A-7", "cents": 5000}',
        }) as span:
            span.set_status(Status(StatusCode.ERROR, "502"))
"""
APPLICATION = "fail_tool(trace.get_tracer('application'))"


@pytest.fixture(scope="module")
def running() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def receiver(running: Receiver) -> Receiver:
    running.requests.clear()
    return running


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(receiver: Receiver, tmp_path: Path) -> Run:
    """Run an application under `opentelemetry-instrument`, exporting to the receiver."""

    def start(application: str = APPLICATION, **variables: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "application.py"
        script.write_text(textwrap.dedent(TOOL) + textwrap.dedent(application), encoding="utf-8")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "GENAI_PROCESSOR_"))}
        environ |= {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.http,
            **variables,
        }
        return subprocess.run(
            [str(INSTRUMENT), sys.executable, str(script)],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return start


def verdicts(receiver: Receiver) -> dict[str, Any]:
    return {span.name: attributes_of(span).get("genai.retry.verdict") for span in receiver.spans()}


def test_over_http_with_events_and_metrics(run: Run, receiver: Receiver) -> None:
    done = run(OTEL_METRICS_EXPORTER="otlp", OTEL_LOGS_EXPORTER="otlp")
    assert done.returncode == 0, done.stderr
    assert verdicts(receiver) == {"execute_tool refund": "quarantined"}
    (span,) = receiver.spans()
    keys = [pair.key for pair in span.attributes]
    assert len(keys) == len(set(keys))
    events = [record for record in receiver.logs() if record.event_name == "genai.retry.quarantined"]
    assert [(record.trace_id, record.span_id) for record in events] == [(span.trace_id, span.span_id)]
    assert "genai.retry.verdicts" in receiver.metrics()


def test_over_grpc(run: Run, receiver: Receiver) -> None:
    done = run(
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.grpc,
        OTEL_EXPORTER_OTLP_INSECURE="true",
    )
    assert done.returncode == 0, done.stderr
    assert verdicts(receiver) == {"execute_tool refund": "quarantined"}


def test_to_the_console(run: Run) -> None:
    done = run(OTEL_TRACES_EXPORTER="console")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["attributes"]["genai.retry.verdict"] == "quarantined"


@pytest.mark.parametrize(
    "disabled",
    [
        "genai_processor",
        pytest.param("*", marks=pytest.mark.skipif(not hasattr(_load, _WILDCARD), reason="an older loader has none")),
    ],
)
def test_switched_off(run: Run, receiver: Receiver, disabled: str) -> None:
    done = run(OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=disabled)
    assert done.returncode == 0, done.stderr
    assert verdicts(receiver) == {"execute_tool refund": None}


def test_a_disabled_sdk(run: Run, receiver: Receiver) -> None:
    done = run(
        APPLICATION
        + """
multi = trace.get_tracer_provider()._active_span_processor
print(sorted(vars(multi).keys() & {"on_start", "on_end"}))
""",
        OTEL_SDK_DISABLED="true",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    assert receiver.spans() == []


@pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry.configuration") is None, reason="needs opentelemetry-configuration"
)
def test_a_configuration_file(run: Run, receiver: Receiver, tmp_path: Path) -> None:
    file = tmp_path / "otel.yaml"
    file.write_text(
        f"""
file_format: "1.0"
tracer_provider:
  processors:
    - simple:
        exporter:
          otlp_http:
            endpoint: {receiver.http}/v1/traces
instrumentation/development:
  python:
    genai_processor:
      read_only_tools: [refund]
""",
        encoding="utf-8",
    )
    done = run(OTEL_CONFIG_FILE=str(file))
    assert done.returncode == 0, done.stderr
    assert verdicts(receiver) == {"execute_tool refund": "retryable_read_only"}


def test_a_provider_that_the_application_makes_afterwards(run: Run, receiver: Receiver) -> None:
    done = run(
        """
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        own = TracerProvider()
        own.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
        fail_tool(own.get_tracer("application"), "own")
        fail_tool(trace.get_tracer("application"), "global")
        """
    )
    assert done.returncode == 0, done.stderr
    assert verdicts(receiver) == {"own": "quarantined", "global": "quarantined"}


def test_with_an_explicit_processor_too(run: Run, receiver: Receiver) -> None:
    done = run(
        """
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from genai_processor.processor import GenAISpanProcessor

        explicit = GenAISpanProcessor(OTLPSpanExporter())
        trace.get_tracer_provider().add_span_processor(explicit)
        fail_tool(trace.get_tracer("application"))
        print(len(explicit.ledger.pending().entries))
        """
    )
    assert done.returncode == 0, done.stderr
    spans = receiver.spans()
    assert len(spans) == 2
    assert len({attributes_of(span)["genai.retry.entry_id"] for span in spans}) == 1
    assert done.stdout.strip() == "0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_in_the_middle(run: Run, receiver: Receiver) -> None:
    done = run(
        """
        import os, sys

        tracer = trace.get_tracer("application")
        fail_tool(tracer, "before")
        trace.get_tracer_provider().force_flush()
        child = os.fork()
        fail_tool(tracer, "parent" if child else "child")
        trace.get_tracer_provider().force_flush()
        if child == 0:
            os._exit(0)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert done.returncode == 0, done.stderr
    assert verdicts(receiver) == dict.fromkeys(("before", "parent", "child"), "quarantined")


def test_a_ledger_that_cannot_be_opened_is_one_line_with_the_remedy(run: Run, receiver: Receiver, tmp_path: Path) -> None:
    done = run(GENAI_PROCESSOR_LEDGER=f"sqlite:///{tmp_path}/none/x.db")
    assert done.returncode == 0
    assert verdicts(receiver) == {"execute_tool refund": "quarantined"}
    assert "Traceback" not in done.stderr
    (said,) = [line for line in done.stderr.splitlines() if "ledger" in line]
    assert "there is no directory" in said
    assert "make it first" in said


def test_a_bad_setting_is_a_warning_and_the_application_runs(run: Run, receiver: Receiver) -> None:
    done = run(GENAI_PROCESSOR_MAX_CALLS="many", GENAI_PROCESSOR_LEDGER="nowhere://x")
    assert done.returncode == 0, done.stderr
    assert "GENAI_PROCESSOR_MAX_CALLS must be integer above 0, but is 'many'; using 10000 instead" in done.stderr
    assert done.stderr.count("GENAI_PROCESSOR_MAX_CALLS") == 1
    assert "GENAI_PROCESSOR_LEDGER cannot be used, using 'memory:' instead" in done.stderr
    assert verdicts(receiver) == {"execute_tool refund": "quarantined"}
