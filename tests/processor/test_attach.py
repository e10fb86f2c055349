# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import (
    ConcurrentMultiSpanProcessor,
    ReadableSpan,
    SynchronousMultiSpanProcessor,
    TracerProvider,
)
from opentelemetry.trace import Status, StatusCode
from support.live import FAILED, Keeping, fail_tool, tags

from genai_processor.instrumentor import GenAIProcessorInstrumentor
from genai_processor.processor import GenAISpanProcessor
from genai_processor.settings import Settings

Make = Callable[..., TracerProvider]
INIT = TracerProvider.__init__
VERDICT = "genai.retry.verdict"


@pytest.fixture
def instrumentor() -> Iterator[GenAIProcessorInstrumentor]:
    one = GenAIProcessorInstrumentor()
    yield one
    if one.is_instrumented_by_opentelemetry:
        one.uninstrument()
    assert TracerProvider.__init__ is INIT


def verdicts(keeping: Keeping) -> list[Any]:
    return [tags(span).get(VERDICT) for span in keeping.ended]


@pytest.mark.parametrize("multi", [SynchronousMultiSpanProcessor, ConcurrentMultiSpanProcessor])
def test_every_processor_tracer_and_open_span_is_covered(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor, multi: Any
) -> None:
    provider = make_provider(keeping, active_span_processor=multi())
    tracer = provider.get_tracer("from before")
    span = tracer.start_span("execute_tool refund", attributes=FAILED)
    instrumentor.instrument(tracer_provider=provider)
    late = Keeping()
    provider.add_span_processor(late)
    span.set_status(Status(StatusCode.ERROR))
    span.end()
    fail_tool(provider.get_tracer("from after"))
    assert verdicts(keeping) == verdicts(late) == ["quarantined"] * 2
    assert keeping.started == ["execute_tool refund"] * 2


def test_instrument_uninstrument_instrument(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor
) -> None:
    provider = make_provider(keeping)
    multi = provider._active_span_processor
    before = dict(vars(multi))
    tracer = provider.get_tracer("test")
    for expected in ("quarantined", None, "quarantined", None):
        if expected:
            instrumentor.instrument(tracer_provider=provider)
        else:
            instrumentor.uninstrument()
            assert vars(multi) == before
        fail_tool(tracer)
        assert verdicts(keeping)[-1] == expected


def test_providers_made_later_are_covered_until_it_ends(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor
) -> None:
    instrumentor.instrument()

    class Special(TracerProvider):
        def __init__(self) -> None:
            super().__init__(shutdown_on_exit=False)
            self.special = True

    special, plain = Special(), make_provider(keeping)
    special.add_span_processor(keeping)
    fail_tool(special.get_tracer("test"))
    fail_tool(plain.get_tracer("test"))
    instrumentor.uninstrument()
    assert TracerProvider.__init__ is INIT
    fail_tool(plain.get_tracer("test"))
    fail_tool(make_provider(keeping).get_tracer("test"))
    assert verdicts(keeping) == ["quarantined", "quarantined", None, None]


def test_a_provider_that_is_handed_over_is_the_only_one(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor
) -> None:
    instrumentor.instrument(tracer_provider=make_provider())
    fail_tool(make_provider(keeping).get_tracer("test"))
    assert verdicts(keeping) == [None]


def test_twice_is_once(make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor) -> None:
    provider = make_provider(keeping)
    instrumentor.instrument(tracer_provider=provider)
    front = provider._active_span_processor.on_end
    assert instrumentor._coverage is not None
    instrumentor._coverage.cover(provider)
    instrumentor.instrument(tracer_provider=provider)
    assert provider._active_span_processor.on_end is front


def test_an_explicit_processor_behind_it_stamps_no_second_time(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor
) -> None:
    explicit = GenAISpanProcessor(keeping)
    provider = make_provider(explicit)
    instrumentor.instrument(tracer_provider=provider)
    fail_tool(provider.get_tracer("test"))
    assert verdicts(keeping) == ["quarantined"]
    assert explicit.ledger.pending().entries == ()


def test_a_provider_that_stands_for_another(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor
) -> None:
    class Proxy(trace.TracerProvider):
        def __init__(self, provider: Any) -> None:
            self.provider = provider

        def get_tracer(self, *args: Any, **kwargs: Any) -> Any:
            return self.provider.get_tracer(*args, **kwargs)

    proxy = Proxy(Proxy(make_provider(keeping)))
    instrumentor.instrument(tracer_provider=proxy)
    fail_tool(proxy.get_tracer("test"))
    assert verdicts(keeping) == ["quarantined"]


def test_an_unexpected_layout_is_judged_and_not_tagged_and_said_once(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor, caplog: pytest.LogCaptureFixture
) -> None:
    class Other:
        """Has a multi-processor that its tracers do not use."""

        def __init__(self, inner: TracerProvider) -> None:
            self.inner = inner
            self._active_span_processor = SynchronousMultiSpanProcessor()

        def add_span_processor(self, processor: Any) -> None:
            self.inner.add_span_processor(processor)

    provider = make_provider(keeping)
    instrumentor.instrument(tracer_provider=Other(provider))
    fail_tool(provider.get_tracer("test"))
    assert verdicts(keeping) == [None]
    assert instrumentor._coverage is not None
    assert len(instrumentor._coverage._stamper.ledger.pending().entries) == 1
    assert len([r for r in caplog.records if "not laid out as expected" in r.message]) == 1
    instrumentor.uninstrument()
    fail_tool(provider.get_tracer("test"))


def test_a_multi_processor_that_refuses_works_on_untouched(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor
) -> None:
    class Stubborn(SynchronousMultiSpanProcessor):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "on_end":
                raise AttributeError(name)
            super().__setattr__(name, value)

    provider = make_provider(keeping, active_span_processor=Stubborn())
    before = set(vars(provider._active_span_processor))
    instrumentor.instrument(tracer_provider=provider)
    assert set(vars(provider._active_span_processor)) == before
    fail_tool(provider.get_tracer("test"))
    assert verdicts(keeping) == [None]


@pytest.mark.parametrize("provider", [object(), 7, "provider", trace.NoOpTracerProvider(), trace.ProxyTracerProvider()])
def test_what_is_no_provider_does_no_harm(
    make_provider: Make,
    keeping: Keeping,
    instrumentor: GenAIProcessorInstrumentor,
    caplog: pytest.LogCaptureFixture,
    provider: Any,
) -> None:
    instrumentor.instrument(tracer_provider=provider)
    takes_no_spans_yet = isinstance(provider, (trace.NoOpTracerProvider, trace.ProxyTracerProvider))
    said = [record.message for record in caplog.records if "takes no span processors" in record.message]
    assert [message.split()[0] for message in said] == ([] if takes_no_spans_yet else [type(provider).__name__])
    assert instrumentor._coverage is not None
    assert list(instrumentor._coverage._attached) == []
    fail_tool(make_provider(keeping).get_tracer("another"))
    assert verdicts(keeping) == [None]
    instrumentor.uninstrument()
    assert instrumentor._coverage is None


def test_under_a_foreign_wrapper_everything_passes_and_it_can_come_back(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor
) -> None:
    provider = make_provider(keeping)
    tracer, multi = provider.get_tracer("test"), provider._active_span_processor
    instrumentor.instrument(tracer_provider=provider)
    ours, seen = multi.on_end, []

    def foreign(span: ReadableSpan) -> None:
        seen.append(span.name)
        ours(span)

    multi.on_end = foreign  # type: ignore[method-assign]
    fail_tool(tracer)
    instrumentor.uninstrument()
    assert multi.on_end is foreign
    fail_tool(tracer)
    instrumentor.instrument(tracer_provider=provider)
    fail_tool(tracer)
    assert verdicts(keeping) == ["quarantined", None, "quarantined"]
    assert len(seen) == 3


def test_what_was_shadowed_before_is_put_back(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor
) -> None:
    provider = make_provider(keeping)
    multi, seen = provider._active_span_processor, []
    original = multi.on_end

    def foreign(span: ReadableSpan) -> None:
        seen.append(tags(span).get(VERDICT))
        original(span)

    multi.on_end = foreign  # type: ignore[method-assign]
    instrumentor.instrument(tracer_provider=provider)
    fail_tool(provider.get_tracer("test"))
    instrumentor.uninstrument()
    assert multi.on_end is foreign
    assert seen == ["quarantined"]


def test_a_wrapper_on_the_class_from_afterwards_is_still_called(
    make_provider: Make,
    keeping: Keeping,
    instrumentor: GenAIProcessorInstrumentor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider = make_provider(keeping)
    instrumentor.instrument(tracer_provider=provider)
    original, seen = SynchronousMultiSpanProcessor.on_end, []

    def patched(self: Any, span: ReadableSpan) -> None:
        seen.append(span.name)
        original(self, span)

    monkeypatch.setattr(SynchronousMultiSpanProcessor, "on_end", patched)
    fail_tool(provider.get_tracer("test"))
    assert seen == ["execute_tool refund"]


def test_a_wrapper_around_init_stays(make_provider: Make, instrumentor: GenAIProcessorInstrumentor) -> None:
    instrumentor.instrument()
    ours = TracerProvider.__init__

    def foreign(self: TracerProvider, *args: Any, **kwargs: Any) -> None:
        ours(self, *args, **kwargs)

    TracerProvider.__init__ = foreign  # type: ignore[method-assign]
    try:
        instrumentor.uninstrument()
        assert TracerProvider.__init__ is foreign
        keeping = Keeping()
        fail_tool(make_provider(keeping).get_tracer("test"))
        assert verdicts(keeping) == [None]
    finally:
        TracerProvider.__init__ = INIT  # type: ignore[method-assign]


def test_shutdown_twice_and_flush_stay_the_providers_own(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor
) -> None:
    provider = make_provider(keeping)
    instrumentor.instrument(tracer_provider=provider)
    assert provider.force_flush()
    provider.shutdown()
    provider.shutdown()
    fail_tool(provider.get_tracer("test"))
    assert verdicts(keeping) == ["quarantined"]


def test_what_the_providers_own_processors_raise_is_not_hidden(
    make_provider: Make, instrumentor: GenAIProcessorInstrumentor
) -> None:
    class Raising(Keeping):
        def on_end(self, span: ReadableSpan) -> None:
            raise LookupError("as without us")

    provider = make_provider(Raising())
    instrumentor.instrument(tracer_provider=provider)
    with pytest.raises(LookupError):
        fail_tool(provider.get_tracer("test"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_the_judge_loses_no_span(
    make_provider: Make,
    keeping: Keeping,
    instrumentor: GenAIProcessorInstrumentor,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    provider = make_provider(keeping)
    instrumentor.instrument(tracer_provider=provider)

    def interrupted(*_: Any) -> None:
        raise error

    assert instrumentor._coverage is not None
    monkeypatch.setattr(instrumentor._coverage._stamper.judge, "on_end", interrupted)
    with pytest.raises(error):
        fail_tool(provider.get_tracer("test"))
    assert verdicts(keeping) == [None]


@pytest.mark.parametrize("error", [SystemExit, ValueError, RecursionError])
def test_it_raises_nothing(
    make_provider: Make,
    keeping: Keeping,
    instrumentor: GenAIProcessorInstrumentor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[BaseException],
) -> None:
    def broken(**_: Any) -> None:
        raise error("broken")

    monkeypatch.setattr("genai_processor.instrumentor.make_stamper", broken)
    provider = make_provider(keeping)
    instrumentor.instrument(tracer_provider=provider)
    (said,) = [record for record in caplog.records if record.name == "genai_processor.instrumentor"]
    assert "could not be set up; spans are exported as they are" in said.message
    assert said.exc_info is not None
    assert said.exc_info[0] is error
    fail_tool(provider.get_tracer("test"))
    assert verdicts(keeping) == [None]
    instrumentor.uninstrument()
    assert TracerProvider.__init__ is INIT


def test_a_disabled_sdk_gets_no_processor(
    make_provider: Make, instrumentor: GenAIProcessorInstrumentor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", " True ")
    provider = make_provider()
    before = dict(vars(provider._active_span_processor))
    instrumentor.instrument(tracer_provider=provider)
    assert TracerProvider.__init__ is INIT
    assert vars(provider._active_span_processor) == before


def test_options_are_settings(
    make_provider: Make, keeping: Keeping, instrumentor: GenAIProcessorInstrumentor, caplog: pytest.LogCaptureFixture
) -> None:
    provider = make_provider(keeping)
    instrumentor.instrument(tracer_provider=provider, read_only_tools=["refund"], ledger="memory:?max_entries=5", nonsense=1)
    fail_tool(provider.get_tracer("test"))
    assert tags(keeping.one())["genai.retry.effect"] == "read_only"
    assert verdicts(keeping) == ["retryable_read_only"]
    assert "nonsense is no setting of genai_processor" in caplog.text


def test_settings_and_options_together(
    make_provider: Make, instrumentor: GenAIProcessorInstrumentor, caplog: pytest.LogCaptureFixture
) -> None:
    instrumentor.instrument(tracer_provider=make_provider(), settings=Settings(events=False), events=True, nonsense=1)
    assert "events is part of the settings that are given" in caplog.text
    assert "nonsense is no setting" in caplog.text


def test_providers_are_not_kept_alive(instrumentor: GenAIProcessorInstrumentor) -> None:
    instrumentor.instrument()
    provider = TracerProvider(shutdown_on_exit=False)
    gone = weakref.ref(provider)
    del provider
    gc.collect()
    assert gone() is None
    assert instrumentor._coverage is not None
    assert len(instrumentor._coverage._attached) == 0
