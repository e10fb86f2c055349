# SPDX-License-Identifier: Apache-2.0
"""Lists that do not begin where their conversation does: deltas and compacted histories, of which no attribute speaks.

A list that repeats what a model answered has to hold, before that, what the model had read. If it does not, it is not all
that was read now: the provider holds the rest (a delta), or something took its place (a compaction). What an inference read
is compared with what its own agent read before, never with other agents' lists: a sub-agent starts a list of its own, and
after a handoff a history may be filtered. That one list is earlier than another is told by its answer standing in the other
one, never by times.

Four things count against a list:

1. It repeats an answer without all that was read for it. Values that were edited in place are no loss, as long as the
   model's own words are there; neither are system parts and reasoning, which many leave out.
2. It begins with a call that nobody here has said: to what was it an answer?
3. It holds no history, and its agent has been seen to leave histories to the provider: another list of it begins with a
   result, and none extends an earlier one. Nothing says whether this one is the first of its conversation.
4. In a conversation that is named, one agent reads several lists, one in each trace or several in one run, and no list of
   the whole conversation holds any history. (Without that name, under several instructions, or in agents side by side, that
   is what one expects.)

What begins with such a list lacks the same. Results without their calls are counted where lists are read (`lists`).
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Sequence

from genai_processor.replay.lookup import Op
from genai_processor.replay.parts import Part, PartKind, PartList, Role
from genai_processor.replay.records import EdgeKind, Operation, State
from genai_processor.replay.roots import Agents, Conversation, is_marked
from genai_processor.replay.tree import Draft

_ECHO = EdgeKind.ECHO
_INFERENCE, _TOOL = Operation.INFERENCE, Operation.TOOL
_SYSTEM, _USER, _ASSISTANT = Role.SYSTEM, Role.USER, Role.ASSISTANT
_TEXT, _REASONING, _RESULT = PartKind.TEXT, PartKind.REASONING, PartKind.RESULT
_DELTA, _COMPACTED = State.DELTA, State.COMPACTED

_Line = tuple[int | None, int, int]
"""The composite tool around, how deep agents are nested in it, and which steps lead from the agent to the inference."""


def mark_beginnings(ops: Sequence[Op]) -> None:
    """Set `lacks` of every inference whose list does not begin where its conversation does.

    Args:
        ops: The operations of one conversation, producers before consumers, their edges found.
    """
    read = [op for op in ops if op.operation is _INFERENCE and op.inputs is not None and op.inputs.is_known]
    if all(op.extends is not None for op in read):
        return
    search = _Search()
    for op in read:
        if op.extends is None and not op.cycle and not _is_delta(op):
            search.compare(op)
    search.doubt_roots(read)
    if search.found:
        search.pass_on(read)


def _is_delta(op: Op) -> bool:
    return op.lacks is _DELTA or (op.inputs is not None and op.inputs.unanswered > 0)


class _Search:
    """One conversation's lists."""

    def __init__(self) -> None:
        self.found = False
        self._before: dict[int, Op] = {}
        self._lost_of: dict[int, Op] = {}
        self._lines = _Lines()
        self._facts = _Facts()

    def compare(self, op: Op) -> None:
        """Hold a list that extends no other one against the inference whose answer it repeats last."""
        first, _ = self._facts.of(_parts(op))
        producer, slot = self._repeated(op)
        if producer is not None:
            self._before[id(op)] = producer
            lacks = _lacks(_parts(op), slot, _parts(producer))
            if lacks is not None:
                self._mark(op, lacks)
                self._lost_of[id(op)] = producer
        elif first is not None and first.role is not _USER and first.kind is not _TEXT and not _is_produced(op, first):
            self._mark(op, _DELTA)

    def _mark(self, op: Op, lacks: State) -> None:
        op.lacks = lacks
        self.found = True

    def _repeated(self, op: Op) -> tuple[Op | None, int]:
        """The inference of the same agent whose answer stands last in a list, and where it begins there."""
        last: Op | None = None
        first = at = -1
        for kind, producer, slot, _, _, _ in op.found:
            if kind is not _ECHO or producer is op:
                continue
            if producer is last:
                first, at = min(first, slot), max(at, slot)
            elif slot > at and producer.inputs is not None and producer.inputs.is_known and self._one_agent(op, producer):
                last, first, at = producer, slot, slot
        return last, first

    def _one_agent(self, one: Op, other: Op) -> bool:
        name, second = one.draft.agent_name, other.draft.agent_name
        if name is not None and second is not None and name != second:
            return False
        return self._lines.of(one.draft) == self._lines.of(other.draft)

    # -- lists without any history ---------------------------------------------------------------------------------

    def doubt_roots(self, read: Iterable[Op]) -> None:
        """Mark the lists of which nothing tells whether a conversation begins with them."""
        places: dict[_Line, Agents] = {}
        conversation = Conversation()
        for op in read:
            line = self._lines.of(op.draft)
            if is_marked(op):
                conversation.add_other()
            elif op.extends is not None or self._facts.of(_parts(op))[1]:
                conversation.add_other()
                places.setdefault(line, Agents()).add_history(op, begins=self._begins_with_result(op))
            elif op.lacks is None:
                places.setdefault(line, Agents()).add_root(op)
                told = tuple([part.digest for part in _counted(_parts(op))])
                conversation.add_root(op, line, told, _parts(op))
        for agents in places.values():
            for op in agents.doubtful():
                self._mark(op, _DELTA)
        for op in conversation.doubtful():
            self._mark(op, _DELTA)

    def _begins_with_result(self, op: Op) -> bool:
        first, _ = self._facts.of(_parts(op))
        return first is not None and first.kind is _RESULT

    # -- what follows ----------------------------------------------------------------------------------------------

    def pass_on(self, read: Iterable[Op]) -> None:
        """Mark the lists that begin as one which lacks something does."""
        for op in read:
            if op.lacks is not None:
                continue
            if op.extends is not None:
                before = op.extends
            elif (found := self._before.get(id(op))) is not None:
                before = found
            else:
                continue
            if before.lacks is None:
                continue
            lost_of = self._lost_of.get(id(before))
            if op.extends is None and lost_of is not None and not _missing(_counted(_parts(op)), _counted(_parts(lost_of))):
                continue  # it has again what the other one lacks
            op.lacks = before.lacks
            if lost_of is not None:
                self._lost_of[id(op)] = lost_of


class _Facts:
    """What is known of lists, each read once; of one that goes on from another one, only what is new."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Part | None, bool]] = {}

    def of(self, parts: PartList) -> tuple[Part | None, bool]:
        """The first part that counts, and whether the list holds a history."""
        path: list[PartList] = []
        first, history = None, False
        for one in parts.lists():
            if id(one) in self._found:
                first, history = self._found[id(one)]
                break
            path.append(one)
        for one in reversed(path):
            for part in one.tail:
                if first is None and _counts(part):
                    first = part
                if part.role is not _SYSTEM and part.role is not _USER:
                    history = True
            self._found[id(one)] = first, history
        return first, history


class _Lines:
    """Where inferences stand, so that those of one agent can be told from those of agents inside of it."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[int | None, int]] = {}
        self._paths: dict[int, int] = {}

    def of(self, draft: Draft) -> _Line:
        """Where a node stands."""
        return (*self._place(draft.scope), self._path(draft.above, draft.scope))

    def _place(self, scope: Draft | None) -> tuple[int | None, int]:
        path: list[Draft] = []
        found: tuple[int | None, int] = (None, 0)
        while scope is not None:
            if id(scope) in self._places:
                found = self._places[id(scope)]
                break
            path.append(scope)
            scope = scope.scope
        for one in reversed(path):
            found = (id(one), 0) if one.shown.operation is _TOOL else (found[0], found[1] + 1)
            self._places[id(one)] = found
        return found

    def _path(self, step: Draft | None, scope: Draft | None) -> int:
        path: list[Draft] = []
        found = 0
        while step is not None and step is not scope:
            if id(step) in self._paths:
                found = self._paths[id(step)]
                break
            path.append(step)
            step = step.above
        for one in reversed(path):
            found = self._paths[id(one)] = hash((found, _NUMBERS.sub("", one.shown.name)))
        return found


_NUMBERS = re.compile(r"\d+")


def _parts(op: Op) -> PartList:
    assert op.inputs is not None
    return op.inputs.parts


def _counts(part: Part) -> bool:
    return part.role is not _SYSTEM and part.kind is not _REASONING


def _counted(parts: Iterable[Part]) -> list[Part]:
    return [part for part in parts if _counts(part)]


def _is_produced(op: Op, part: Part) -> bool:
    """Whether it is known who said a list's first part: then another agent, whose history need not be here."""
    slot = next(at for at, one in enumerate(_parts(op)) if one is part)
    return any(found.kind is _ECHO and found.slot == slot for found in op.found)


def _lacks(parts: PartList, slot: int, before: PartList) -> State | None:
    """What the slots before an answer lack of the list that was read for it, or None."""
    if _begins_with(parts, before, slot):
        return None
    here, there = _counted(parts[:slot]), _counted(before)
    missing = _missing(here, there)
    if not missing:
        return None
    if not any(part.role is _ASSISTANT for part in missing) and _has_shape(here, there):
        return None
    return _COMPACTED if _missing(there, here) else _DELTA


def _begins_with(parts: PartList, before: PartList, slot: int) -> bool:
    length = len(before)
    if not 0 < length <= slot:
        return False
    for found in parts.lists():
        begin = len(found) - len(found.tail)
        if length > begin:
            return found.marks[length - begin - 1] == before.mark
    return False


def _missing(here: list[Part], there: list[Part]) -> list[Part]:
    """The parts of `there` that are not here, each as often as it is."""
    left = collections.Counter([part.digest for part in here])
    found = []
    for part in there:
        left[part.digest] -= 1
        if left[part.digest] < 0:
            found.append(part)
    return found


def _has_shape(here: list[Part], there: list[Part]) -> bool:
    """Whether a list has, in order, a part of the same role and kind for each of another one's."""
    shapes = iter([(part.role, part.kind, part.tool) for part in here])
    return all((part.role, part.kind, part.tool) in shapes for part in there)
