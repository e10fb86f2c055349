# SPDX-License-Identifier: Apache-2.0
"""Positive proof that a body began (docs/verdict.md), and what a proof is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from genai_processor.retry.nodes import BODY_RAN, Below, Node, body_evidence
from genai_processor.retry.verdict import Execution, Reason


class Proof(NamedTuple):
    """What is proven of a call's execution.

    Attributes:
        execution: Started, not started, or unknown.
        rejection: Why it did not start, for `NOT_STARTED`.
        outside: Something below reached the outside.
        evidence: What it rests on.
    """

    execution: Execution
    rejection: Reason | None = None
    outside: bool = False
    evidence: tuple[str, ...] = ()


NOTHING_PROVEN = Proof(Execution.UNKNOWN)
REFUSED = Proof(Execution.NOT_STARTED, Reason.REFUSED_BY_GUARD, evidence=("the guard refused it",))


def started(call: Node, execution_of: Callable[[Node], Execution], paused: Callable[[Node], bool]) -> Proof:
    """What the spans below a call prove, over all its views.

    Args:
        call: The outermost span of the call.
        execution_of: What is proven of a nested call.
        paused: Whether a nested call is one that paused before anything.
    """
    if not call.inner and not call.below and not call.tools:
        return NOTHING_PROVEN
    views = call.views()
    shown = set(map(id, views))
    evidence: list[str] = []
    began = outside = other = False
    for view in views:
        below, latest = body_evidence(view)
        if below & Below.OUTSIDE:
            outside = began = True
            evidence.append("a CLIENT or PRODUCER span below it")
        if below & Below.MODEL:
            began = True
            evidence.append("an inference or agent below it")
        if below & Below.NESTED:
            outside = began = True
            evidence.append("a nested tool call")
        end = view.span.end_ns
        if below and end is not None and latest > end:
            began = True
            evidence.append("a span below it ended later or is open")
        other = other or below & ~BODY_RAN != 0
        for nested, crossed in view.tools:
            if id(nested) in shown:
                continue
            other = True
            if execution_of(nested) is not Execution.NOT_STARTED and not (not crossed and paused(nested)):
                began = True
                evidence.append("a nested tool call")
                outside = outside or not paused(nested)
    if began:
        return Proof(Execution.STARTED, outside=outside, evidence=tuple(dict.fromkeys(evidence)))
    return Proof(Execution.UNKNOWN, evidence=("some span below it",) if other else ())
