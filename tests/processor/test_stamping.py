# SPDX-License-Identifier: Apache-2.0
"""Recording for replay, live: what the processor writes on the spans of models, and what it never does."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Tracer
from support.live import Keeping, fail_tool, tags
from support.stamps import read_back

from genai_processor import GenAIProcessorInstrumentor
from genai_processor.attributes import METRIC_FAULTS
from genai_processor.processor import GenAISpanProcessor
from genai_processor.replay import State, plan
from genai_processor.settings import Settings
from genai_processor.telemetry import Fault, Totals

Make = Callable[..., TracerProvider]
ON = Settings(record_for_replay=True)


@pytest.fixture(autouse=True)
def own_totals(monkeypatch: pytest.MonkeyPatch) -> Totals:
    """Totals of this test alone."""
    totals = Totals()
    monkeypatch.setattr("genai_processor.stamper.totals_of", lambda *_, **__: totals)
    return totals


def chat(tracer: Tracer, *texts: str, answer: str = "done", **more: Any) -> None:
    """Make the span of a model that read texts of a user and gave an answer."""
    read = [{"role": "user", "parts": [{"type": "text", "content": text}]} for text in texts]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": answer}]}]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(read),
        "gen_ai.output.messages": json.dumps(said),
    }
    with tracer.start_as_current_span("chat m", attributes={**attributes, **more}):
        pass


def stamps(keeping: Keeping) -> list[dict[str, Any]]:
    return [tags(span) for span in keeping.ended]


def test_nothing_is_stamped_unless_asked_for(make_provider: Make, keeping: Keeping) -> None:
    chat(make_provider(GenAISpanProcessor(keeping)).get_tracer("test"), "hi")
    assert stamps(keeping) == [{}]


def test_what_makes_stamps_is_not_imported_unless_asked_for() -> None:
    code = (
        "import sys; from genai_processor import GenAISpanProcessor, Settings; name = 'genai_processor.replay.stamping'; "
        "GenAISpanProcessor(); print(name in sys.modules); "
        "GenAISpanProcessor(settings=Settings(record_for_replay=True)); print(name in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_models_span_is_stamped_with_exactly_these_attributes(make_provider: Make, keeping: Keeping) -> None:
    beside = Keeping()
    tracer = make_provider(GenAISpanProcessor(keeping, settings=ON), beside).get_tracer("test")
    definitions = '[{"name":"search"}]'
    chat(tracer, "hi", "there", **{"gen_ai.tool.definitions": definitions, "gen_ai.system_instructions": '["be brief"]'})
    (found,) = stamps(keeping)
    types = {name: type(value) for name, value in found.items()}
    assert types == {
        "genai.replay.version": str,
        "genai.replay.input.source": str,
        "genai.replay.input.digest": str,
        "genai.replay.input.count": int,
        "genai.replay.input.slots": tuple,
        "genai.replay.system.digest": str,
        "genai.replay.tools.digest": str,
        "genai.replay.output.source": str,
        "genai.replay.output.digest": str,
        "genai.replay.output.slots": tuple,
    }
    assert found["genai.replay.input.source"] == "gen_ai.input.messages"
    assert [slot.split()[0] for slot in found["genai.replay.input.slots"]] == ["user.text", "user.text"]
    assert stamps(beside) == [{}]


def test_a_history_is_named_by_its_digest_and_only_what_is_new_is_written(make_provider: Make, keeping: Keeping) -> None:
    tracer = make_provider(GenAISpanProcessor(keeping, settings=ON)).get_tracer("test")
    with tracer.start_as_current_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}):
        chat(tracer, *"abcd")
        chat(tracer, *"abcde")
    first, second, _ = stamps(keeping)
    assert second["genai.replay.input.base"] == first["genai.replay.input.digest"]
    assert len(second["genai.replay.input.slots"]) == 1
    assert second["genai.replay.input.count"] == 5


def test_the_runs_of_two_traces_do_not_name_each_others_lists(make_provider: Make, keeping: Keeping) -> None:
    tracer = make_provider(GenAISpanProcessor(keeping, settings=ON)).get_tracer("test")
    chat(tracer, *"abcd")
    chat(tracer, *"abcde")
    assert "genai.replay.input.base" not in stamps(keeping)[1]


def test_the_instrumentor_stamps_too(make_provider: Make, keeping: Keeping) -> None:
    provider = make_provider(keeping)
    GenAIProcessorInstrumentor().instrument(tracer_provider=provider, record_for_replay=True, guard="off")
    try:
        chat(provider.get_tracer("test"), "hi")
    finally:
        GenAIProcessorInstrumentor().uninstrument()
    assert stamps(keeping)[0]["genai.replay.version"] == "1"


def test_a_span_is_stamped_once(make_provider: Make, keeping: Keeping) -> None:
    first = Settings(record_for_replay=True, digest_key="k")
    inner = GenAISpanProcessor(keeping, settings=ON)
    chat(make_provider(GenAISpanProcessor(inner, settings=first)).get_tracer("test"), "hi")
    assert "genai.replay.key" in stamps(keeping)[0]


def test_a_tool_call_is_judged_as_ever_and_not_stamped(make_provider: Make, keeping: Keeping) -> None:
    fail_tool(make_provider(GenAISpanProcessor(keeping, settings=ON)).get_tracer("test"))
    assert not any(name.startswith("genai.replay.") for name in tags(keeping.one()))
    assert tags(keeping.one())["genai.retry.verdict"] == "quarantined"


def test_an_unkeyed_digest_can_be_tried_and_a_keyed_one_cannot(make_provider: Make) -> None:
    def slot(**setting: Any) -> str:
        keeping = Keeping()
        chat(
            make_provider(GenAISpanProcessor(keeping, settings=Settings(record_for_replay=True, **setting))).get_tracer("t"),
            "4",
        )
        return str(stamps(keeping)[0]["genai.replay.input.slots"])

    assert slot() == slot()
    assert len({slot(), slot(digest_key="one"), slot(digest_key="two")}) == 3


@pytest.mark.parametrize(
    "content", ['[{"role":"user","parts":[{"type":"text","content":"' + "x" * 200_000_000, "x" * 2_000_000]
)
def test_messages_beyond_what_is_looked_at_cost_nothing_and_are_said_to_be(
    make_provider: Make, keeping: Keeping, content: str
) -> None:
    tracer = make_provider(GenAISpanProcessor(keeping, settings=ON)).get_tracer("test")
    with tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat"}) as span:
        span.set_attribute("gen_ai.input.messages", content)
        begin = time.thread_time()
    taken = time.thread_time() - begin
    assert stamps(keeping) == [{"genai.replay.version": "1", "genai.replay.left_out": "too_large"}]
    assert taken < 1


def test_what_the_sdk_cut_is_not_stamped_as_if_it_were_whole(make_provider: Make, keeping: Keeping) -> None:
    limits = SpanLimits(max_span_attribute_length=60)
    tracer = make_provider(GenAISpanProcessor(keeping, settings=ON), span_limits=limits).get_tracer("test")
    chat(tracer, "a long text that is cut", answer="and another one that is cut, too")
    assert stamps(keeping) == [{}]


class RecordOnly(Sampler):
    def should_sample(
        self, parent_context: Any, trace_id: int, name: str, kind: Any = None, attributes: Any = None, *_: Any, **__: Any
    ) -> SamplingResult:
        return SamplingResult(Decision.RECORD_ONLY, attributes)

    def get_description(self) -> str:
        return "record only"


def test_a_span_that_is_not_exported_goes_on_as_it_came(make_provider: Make, keeping: Keeping) -> None:
    chat(make_provider(GenAISpanProcessor(keeping, settings=ON), sampler=RecordOnly()).get_tracer("test"), "hi")
    assert stamps(keeping) == [{}]


class Unlucky(Sampler):
    """Only records the first span of a model."""

    def __init__(self) -> None:
        self.seen = 0

    def should_sample(
        self, parent_context: Any, trace_id: int, name: str, kind: Any = None, attributes: Any = None, *_: Any, **__: Any
    ) -> SamplingResult:
        self.seen += name == "chat m"
        only = name == "chat m" and self.seen == 1
        return SamplingResult(Decision.RECORD_ONLY if only else Decision.RECORD_AND_SAMPLE, attributes)

    def get_description(self) -> str:
        return "unlucky"


def test_no_list_is_said_to_begin_with_one_that_is_not_exported(make_provider: Make, keeping: Keeping) -> None:
    tracer = make_provider(GenAISpanProcessor(keeping, settings=ON), sampler=Unlucky()).get_tracer("test")
    with tracer.start_as_current_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}):
        for texts in ("abcd", "abcde", "abcdef"):
            chat(tracer, *texts)
    _, second, third, _ = stamps(keeping)
    assert "genai.replay.input.base" not in second
    assert third["genai.replay.input.base"] == second["genai.replay.input.digest"]


def test_a_fault_costs_the_stamp_and_neither_the_span_nor_the_application(
    make_provider: Make, keeping: Keeping, own_totals: Totals, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = GenAISpanProcessor(keeping, settings=ON)

    def of(span: ReadableSpan) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(processor._stamper.stamps, "of", of)
    chat(make_provider(processor).get_tracer("test"), "hi")
    assert stamps(keeping) == [{}]
    assert {labels[0][1]: count for labels, count in own_totals.read(METRIC_FAULTS).items()} == {Fault.REPLAY: 1}


@pytest.mark.parametrize(
    "value", [3, True, 2.5, [1, 2], ["x"], "", "[", '{"a":', "[[[[", '[{"role":"x"}]', '[{"role":"user","parts":3}]', b"x"]
)
def test_whatever_stands_where_messages_should_is_no_fault(
    make_provider: Make, keeping: Keeping, own_totals: Totals, value: Any
) -> None:
    tracer = make_provider(GenAISpanProcessor(keeping, settings=ON)).get_tracer("test")
    with tracer.start_as_current_span(
        "chat m", attributes={"gen_ai.operation.name": "chat", "gen_ai.input.messages": value}
    ):
        pass
    assert len(keeping.ended) == 1
    assert not own_totals.read(METRIC_FAULTS)


def test_many_threads_that_end_spans_of_one_run_get_stamps_that_hold(make_provider: Make, keeping: Keeping) -> None:
    tracer = make_provider(GenAISpanProcessor(keeping, settings=ON)).get_tracer("test")
    from opentelemetry.context import attach, detach, get_current

    with tracer.start_as_current_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}):
        context = get_current()

        def run(name: str) -> None:
            token = attach(context)
            for turns in range(1, 40):
                chat(tracer, *[f"{name}{turn}" for turn in range(turns)])
            detach(token)

        threads = [threading.Thread(target=run, args=[name]) for name in "abcdef"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    spans = read_back(keeping.ended)
    found = plan(spans)
    assert found.problems == ()
    assert all(node.inputs.stamped and node.inputs.state is State.WHOLE for node in found.nodes)
    assert len(found.nodes) == 6 * 39


def test_what_is_kept_of_runs_is_bounded(make_provider: Make, keeping: Keeping) -> None:
    processor = GenAISpanProcessor(keeping, settings=Settings(record_for_replay=True, max_bytes=400_000))
    tracer = make_provider(processor).get_tracer("test")
    stamping: Any = processor._stamper.stamps
    for at in range(300):
        chat(tracer, f"{at}")
    assert len(stamping._runs) == 256
    for at in range(20):
        chat(tracer, f"{at}" + "x" * 20_000)
    assert sum(sum(run.sizes) for run in stamping._runs.values()) <= 100_000 + 21_000
