# SPDX-License-Identifier: Apache-2.0
"""The calls that are running now, as far as their spans were seen to begin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from genai_processor.retry.around import Surroundings
from genai_processor.retry.evidence import Evidence
from genai_processor.retry.nodes import Node
from genai_processor.retry.policy import Policy, same_tool
from genai_processor.retry.recent import RecentRuns
from genai_processor.retry.verdict import Effect

_NO_VALUES: Final[Mapping[str, Any]] = {}
_READ_ONLY: Final = Effect.READ_ONLY


class OpenCalls:
    """What is asked of the tool spans that are open, and how they leave.

    Args:
        evidence: Keeps them.
        around: Keeps what surrounds each.
        recent: Is told what is given up.
        policy: What the user declared of tools.
    """

    def __init__(self, evidence: Evidence, around: Surroundings, recent: RecentRuns, policy: Policy) -> None:
        self._spans = evidence.open_tools
        self._around = around
        self._recent = recent
        self._policy = policy

    def running(self) -> Iterator[tuple[int, str]]:
        """The trace and the tool of each call that may change something."""
        for span in list(self._spans.values()):
            tool = _tool_of(span)
            name = tool if isinstance(tool, str) else ""
            if self._policy.effect(name or None) is not _READ_ONLY:
                yield span._context.trace_id, name

    def is_alone(self, node: Node, above: tuple[int, ...]) -> bool:
        """Whether no call of the same tool is open in the same trace, but for those that the call stands in."""
        assert node.call is not None
        tool, trace_id = node.call.tool, int(node.span.trace_id, 16)
        return not any(
            span._context.trace_id == trace_id and same_tool(_tool_of(span), tool)
            for span_id, span in list(self._spans.items())
            if span_id not in above
        )

    def ended(self, span: Any) -> None:
        """Last of all: whoever asks for the run's calls meanwhile finds this one open, or its verdict."""
        if self._spans and span._context is not None:
            own = span._context[1]
            if self._spans.pop(own, None) is not None:
                self._around.forget(own)

    def give_up_oldest(self) -> None:
        """Come back within the bound: of a call whose span never ends, nobody says so."""
        with contextlib.suppress(KeyError, StopIteration, RuntimeError):  # another thread was faster
            dropped = self._spans.pop(next(iter(self._spans)))
            self._around.forget(dropped._context[1])
            self._recent.lost(dropped._context[0])


def _tool_of(span: Any) -> Any:
    return (span._attributes or _NO_VALUES).get("gen_ai.tool.name")
