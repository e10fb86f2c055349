# SPDX-License-Identifier: Apache-2.0
"""What a scan says of replay: for every span of a node its decision, for every container that it is one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from genai_processor.cli.report import Row
from genai_processor.replay import Node, Part, Plan, Planner
from genai_processor.settings import PREFIX
from genai_processor.spans.records import Span

_HELD = 20_000
"""Of how many spans a scan knows at once for replay. Conversations that are wider apart are planned in pieces."""


class Decisions:
    """Plans the traces of one run, a bounded number of them together.

    Args:
        length_limit: The SDK's attribute value length limit, 0 if it had none, None if that is not known.
    """

    def __init__(self, length_limit: int | None) -> None:
        self._length_limit = length_limit
        self._begin()

    def _begin(self) -> None:
        key = os.environ.get(f"{PREFIX}DIGEST_KEY", "").strip() or None
        self._planner = Planner(keep_values=False, length_limit=self._length_limit, digest_key=key)
        self._files: dict[str, str] = {}
        self._count = 0

    def add(self, spans: Iterable[Span], file_of: Callable[[str], str]) -> Iterator[tuple[str, Row]]:
        """Take the spans of a trace; rows come when enough are there."""
        for span in spans:
            self._planner.add(span)
            self._files[f"{span.trace_id}:{span.span_id}"] = file_of(span.span_id)
            self._count += 1
        if self._count >= _HELD:
            yield from self.rows()

    def rows(self) -> Iterator[tuple[str, Row]]:
        """The rows of all that is there; afterwards, nothing is."""
        if self._count:
            plan = self._planner.plan()
            files = self._files
            self._begin()
            for key, row in decision_rows(plan):
                yield "replay", {"file": files[key], "span_id": key.partition(":")[2], **row}


def decision_rows(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each span's key, and what the plan says of it."""
    for node in plan.nodes:
        decision = plan.decisions[node.key]
        row: dict[str, Any] = {
            "decision": str(decision.choice),
            "reasons": list(map(str, decision.reasons)),
            "modes": list(map(str, decision.modes)),
            "order": str(decision.order),
        }
        order = input_order(node)
        if order:
            row["input_order"] = order
        if decision.structure_allows_recompute:
            row["structure_allows_recompute"] = True
        if decision.covered_by is not None:
            row["covered_by"] = decision.covered_by.partition(":")[2]
        if decision.unverified_upstream:
            row["unverified_upstream"] = True
        if decision.remedy:
            row["remedy"] = decision.remedy
        for span_id in node.span_ids:
            yield f"{node.trace_id}:{span_id}", row
    for key, container in plan.containers.items():
        row = {"container": True}
        if container.worst is not None:
            row["worst"] = str(container.worst)
        if container.injected:
            row["injected"] = True
        yield key, row


def input_order(node: Node) -> list[str]:
    """The call ids of the results that are new in a node's list, in the order in which it was recorded."""
    parts: Iterable[Part] = node.inputs.parts.since(node.structure.begins)
    return [part.call_id for part in parts if part.kind == "result" and part.call_id is not None]
