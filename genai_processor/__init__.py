# SPDX-License-Identifier: Apache-2.0
"""May this agent's tool call be tried again? An OpenTelemetry span processor that answers from the spans you already have.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genai_processor.errors import GenAIProcessorError, ToolSpanCommitmentError
    from genai_processor.guard.context import idempotency_key, not_executed
    from genai_processor.guard.guard import Guard
    from genai_processor.guard.predicates import is_safe_to_retry
    from genai_processor.instrumentor import GenAIProcessorInstrumentor
    from genai_processor.ledger import Ledger, MemoryLedger, Resolution, open_ledger
    from genai_processor.processor import GenAISpanProcessor
    from genai_processor.retry.policy import Policy
    from genai_processor.retry.verdict import CallFacts, Reason, RetryVerdict, Verdict, classify
    from genai_processor.settings import Settings

_HOMES = {
    "CallFacts": "genai_processor.retry.verdict",
    "Guard": "genai_processor.guard.guard",
    "GenAIProcessorError": "genai_processor.errors",
    "GenAIProcessorInstrumentor": "genai_processor.instrumentor",
    "GenAISpanProcessor": "genai_processor.processor",
    "Ledger": "genai_processor.ledger",
    "MemoryLedger": "genai_processor.ledger",
    "Policy": "genai_processor.retry.policy",
    "Reason": "genai_processor.retry.verdict",
    "Resolution": "genai_processor.ledger",
    "RetryVerdict": "genai_processor.retry.verdict",
    "Settings": "genai_processor.settings",
    "ToolSpanCommitmentError": "genai_processor.errors",
    "Verdict": "genai_processor.retry.verdict",
    "classify": "genai_processor.retry.verdict",
    "idempotency_key": "genai_processor.guard.context",
    "is_safe_to_retry": "genai_processor.guard.predicates",
    "not_executed": "genai_processor.guard.context",
    "open_ledger": "genai_processor.ledger",
}

__all__ = [
    "CallFacts",
    "GenAIProcessorError",
    "GenAIProcessorInstrumentor",
    "GenAISpanProcessor",
    "Guard",
    "Ledger",
    "MemoryLedger",
    "Policy",
    "Reason",
    "Resolution",
    "RetryVerdict",
    "Settings",
    "ToolSpanCommitmentError",
    "Verdict",
    "classify",
    "idempotency_key",
    "is_safe_to_retry",
    "not_executed",
    "open_ledger",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
