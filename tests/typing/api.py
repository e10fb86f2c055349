# SPDX-License-Identifier: Apache-2.0
"""The public names, used as an application uses them. Checked by mypy, never run."""

from __future__ import annotations

from typing import assert_type

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from genai_processor import (
    CallFacts,
    GenAIProcessorError,
    GenAIProcessorInstrumentor,
    GenAISpanProcessor,
    Ledger,
    MemoryLedger,
    Policy,
    Reason,
    Resolution,
    RetryVerdict,
    Settings,
    ToolSpanCommitmentError,
    Verdict,
    classify,
    is_safe_to_retry,
    open_ledger,
)
from genai_processor.reconcile import Answer, Asked, Memory, Question, Report, reconcile


def set_up() -> TracerProvider:
    provider = TracerProvider()
    policy = Policy(read_only=("get_*",), idempotent=("put_order",), known=("*",))
    ledger = open_ledger("memory:")
    assert_type(ledger, Ledger)
    provider.add_span_processor(GenAISpanProcessor(ConsoleSpanExporter()))
    processor = GenAISpanProcessor(
        BatchSpanProcessor(ConsoleSpanExporter()),
        ledger=ledger,
        policy=policy,
        settings=Settings(read_only_tools=("get_*",), max_calls=100),
    )
    provider.add_span_processor(processor)
    assert_type(processor.ledger, Ledger)
    assert_type(processor.force_flush(1_000), bool)
    GenAIProcessorInstrumentor().instrument(tracer_provider=provider)
    return provider


def decide(call: CallFacts) -> Verdict:
    verdict = classify(call)
    assert_type(verdict, Verdict)
    assert_type(verdict.verdict, RetryVerdict)
    assert_type(verdict.reason, Reason)
    assert_type(verdict.evidence, tuple[str, ...])
    assert_type(verdict.call_id, str | None)
    if verdict.retryable and verdict.verdict is not RetryVerdict.RETRYABLE_SAME_CALL_ID:
        return verdict
    try:
        verdict.raise_if_quarantined()
    except ToolSpanCommitmentError as error:
        assert_type(error.entry_id, str | None)
        raise
    except GenAIProcessorError:
        raise
    return verdict


def retried(error: BaseException) -> bool:
    return is_safe_to_retry(error) or is_safe_to_retry(error, same_call_id=True)


def settle_all(ledger: MemoryLedger) -> None:
    for entry in ledger.pending().entries:
        assert_type(entry.entry_id, str)
        ledger.settle(entry.entry_id, Resolution.NOT_COMMITTED, who="ann", note="asked the bank", version=entry.version)


def from_the_environment() -> Settings:
    settings = Settings.from_environ({"GENAI_PROCESSOR_LEDGER": "memory:"}, on_warning=print, max_calls=5)
    assert_type(settings.read_only_tools, tuple[str, ...])
    assert_type(settings.length_limit, int | None)
    return settings


def ask(question: Question) -> Answer:
    assert_type(question.key, str)
    assert_type(question.call_id, str | None)
    return Answer.UNKNOWN


async def ask_later(question: Question) -> Resolution:
    return Resolution.COMMITTED


def ask_providers(ledger: Ledger) -> Report:
    report = reconcile(ledger, {"refund": ask, "mail_*": ask_later}, settle_after=60, memory=Memory())
    assert_type(report.asked, tuple[Asked, ...])
    assert_type(report.asked[0].answer, Answer | None)
    return report
