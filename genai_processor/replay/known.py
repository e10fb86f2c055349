# SPDX-License-Identifier: Apache-2.0
"""What the operations of one world said and did, under the keys by which it is looked for.

Most values are found under an id and a digest. What is found under less is put there only if somebody asks.
"""

from __future__ import annotations

from functools import cached_property

from genai_processor.replay.lookup import Index, Op
from genai_processor.replay.parts import Part, PartKind, PartList
from genai_processor.spans.values import usable_id

_CALL, _RESULT = PartKind.CALL, PartKind.RESULT

Said = tuple[int, Part]
"""A part of an inference's output, with its place there."""


class Known:
    """The indexes of one world.

    Args:
        inferences: Its inferences.
        calls: Its tool calls.

    Attributes:
        full: Inferences that are recorded whole, under the mark of their input and output.
        said: Proposed calls, under id and digest.
        run: Tool calls, under id and digest; they are put there once their proposals are known (`add_calls`).
    """

    def __init__(self, inferences: list[Op], calls: list[Op]) -> None:
        self._inferences = inferences
        self._calls = calls
        self.full: Index[None] = Index()
        self.said: Index[Said] = Index()
        self.run: Index[None] = Index()
        for op in inferences:
            if op.full is not None:
                self.full.add(op.full, op, None)
            for at, part in enumerate(op.outcome.parts):
                if _is_named(part):
                    self.said.add((part.call_id, part.digest), op, (at, part))

    def add_calls(self) -> None:
        """Put the tool calls under the arguments that were proposed, else under their own."""
        for op in self._calls:
            if op.call_id is not None:
                digest = arguments_digest(op)
                if digest is not None:
                    self.run.add((op.call_id, digest), op, None)

    @cached_property
    def said_by_id(self) -> Index[Said]:
        """Proposed calls, under their ids."""
        found: Index[Said] = Index()
        for op in self._inferences:
            for at, part in enumerate(op.outcome.parts):
                if _is_named(part):
                    found.add(part.call_id, op, (at, part))
        return found

    @cached_property
    def said_by_value(self) -> Index[Said]:
        """Everything that inferences said, under digests."""
        found: Index[Said] = Index()
        for op in self._inferences:
            for at, part in enumerate(op.outcome.parts):
                if not part.missing:
                    found.add(part.digest, op, (at, part))
        return found

    @cached_property
    def run_by_id(self) -> Index[None]:
        """Tool calls, under their ids."""
        found: Index[None] = Index()
        for op in self._calls:
            if op.call_id is not None:
                found.add(op.call_id, op, None)
        return found

    @cached_property
    def _read(self) -> dict[str, list[tuple[PartList, int, Part]]]:
        """Calls and results that inferences read, under their ids: in which list, at which place of that."""
        found: dict[str, list[tuple[PartList, int, Part]]] = {}
        seen: set[int] = set()
        for op in self._inferences:
            for one in op.inputs.parts.lists() if op.inputs is not None else ():
                if id(one) in seen:
                    break
                seen.add(id(one))
                at = len(one) - len(one.tail)
                for part in one.tail:
                    if part.call_id is not None:
                        found.setdefault(part.call_id, []).append((one, at, part))
                    at += 1
        return found

    def only_repeats(self, op: Op, call: Part) -> bool:
        """Whether an inference's own input holds a call, or the result of one that it does not show."""
        if op.inputs is None or call.call_id is None:
            return False
        mine = op.inputs.parts
        length = len(mine)
        held = [(at, part) for one, at, part in self._read.get(call.call_id, ()) if at < length and mine.begins_with(one)]
        calls = [(at, part.digest) for at, part in held if part.kind is _CALL]
        if not calls:  # a delta says nothing of its calls, so that another call may have the same id
            return bool(held) and not op.inputs.unanswered
        return max(calls)[1] == call.digest


def _is_named(part: Part) -> bool:
    return part.kind is _CALL and part.call_id is not None and usable_id(part.call_id, part.tool) is not None


def arguments_digest(op: Op) -> bytes | None:
    """The digest of a tool's arguments as they were proposed, else as its span has them; None if neither is recorded."""
    if op.proposer is not None:
        return op.proposer[0].outcome.parts[op.proposer[1]].digest
    inputs = op.inputs
    return inputs.parts[0].digest if inputs is not None and len(inputs.parts) else None
