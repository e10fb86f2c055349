# SPDX-License-Identifier: Apache-2.0
"""The configuration files for the telemetry's other end name what the processor really writes."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry, start_http_server
from support.agent_run import AgentRun
from support.live import Keeping, fail_tool

from genai_processor import GenAISpanProcessor, MemoryLedger, RetryVerdict
from genai_processor.attributes import EVENT_QUARANTINED, GENAI_RETRY_ENTRY_ID, GENAI_RETRY_VERDICT
from genai_processor.ledger.entries import PENDING
from genai_processor.telemetry import Fault

FOLDER = Path(__file__).parent.parent.parent / "examples" / "collector"
QUARANTINED = {verdict.value for verdict in RetryVerdict if "quarantined" in verdict.value}


def policies() -> list[dict[str, Any]]:
    parsed = yaml.safe_load((FOLDER / "tail_sampling.yaml").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = parsed["processors"]["tail_sampling"]["policies"]
    return found


def rules() -> list[dict[str, Any]]:
    parsed = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in parsed["groups"] for rule in group["rules"]]


def test_every_policy_has_the_settings_of_its_type() -> None:
    for policy in policies():
        assert set(policy) == {"name", "type", policy["type"]}
    assert {policy["type"] for policy in policies()} == {"string_attribute", "status_code", "probabilistic"}


def test_what_may_have_committed_is_sampled_by_its_verdict_and_nothing_else_is() -> None:
    (policy,) = (policy["string_attribute"] for policy in policies() if policy["type"] == "string_attribute")
    assert policy["key"] == GENAI_RETRY_VERDICT
    assert set(policy["values"]) == QUARANTINED
    run = AgentRun()
    with run.agent():
        run.fail()  # nothing was recorded of its arguments
        run.fail(id="toolu_h2Fq9x", args='{"order": "1042"}')
        run.succeed(id="toolu_9xq2Hf", args="{}", result="done")
    kept = [span for span in run.exported if (span.attributes or {}).get(policy["key"]) in policy["values"]]
    assert [span.status.status_code for span in kept] == [StatusCode.ERROR] * 2
    run.provider.shutdown()


@pytest.fixture(scope="module")
def scraped() -> str:
    """What Prometheus gets to see of a processor that has quarantined a call and could not tell its ledger once."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader()
    registry.register(reader._collector)
    meters = MeterProvider([reader], shutdown_on_exit=False)

    class Away(MemoryLedger):
        def record(self, seen: Any) -> Any:
            raise OSError("away")

    provider = TracerProvider(shutdown_on_exit=False, sampler=ALWAYS_ON)
    provider.add_span_processor(GenAISpanProcessor(Keeping(), ledger=Away(), meter_provider=meters))
    fail_tool(provider.get_tracer("test"))
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
        meters.shutdown()
        provider.shutdown()
    return text


def test_every_name_in_an_alert_is_one_that_is_scraped(scraped: str) -> None:
    samples = [line for line in scraped.splitlines() if line.startswith("genai_")]
    known = {name for line in samples for name in re.findall(r"(?:^|[{,])(genai_\w+)", line)}
    asked = {name for rule in rules() for name in re.findall(r"genai_[a-z_]+", rule["expr"])}
    assert {"genai_retry_verdicts_total", "genai_retry_verdict", "genai_ledger_entries"} <= asked
    assert asked <= known


def test_every_value_in_an_alert_is_one_that_can_be() -> None:
    asked = {
        (label, value) for rule in rules() for label, values in re.findall(r'(\w+)=~"([^"]+)"', rule["expr"])
        for value in values.split("|")
    }  # fmt: skip
    by_label = {label: {value for name, value in asked if name == label} for label, _ in asked}
    assert by_label.pop("genai_retry_verdict") == QUARANTINED
    assert by_label.pop("genai_ledger_state") == {state.value for state in PENDING}
    assert by_label.pop("genai_processor_fault") <= {fault.value for fault in Fault}
    assert not by_label


def test_an_alert_says_where_to_look() -> None:
    (text,) = (rule["annotations"]["description"] for rule in rules() if rule["alert"] == "ToolCallMayHaveCommitted")
    assert EVENT_QUARANTINED in text
    assert GENAI_RETRY_ENTRY_ID in text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is part of Prometheus, which is not installed")
def test_the_alerts_fire_when_they_should() -> None:
    done = subprocess.run(["promtool", "test", "rules", "alerts_test.yaml"], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
