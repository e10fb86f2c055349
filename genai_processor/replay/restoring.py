# SPDX-License-Identifier: Apache-2.0
"""What stamps say of the nodes of one world: which lists were changed since, and what those were that are not there.

A list is put together again from its stamp: the list that it begins with, then its slots, each with the value that some
other span of the world has under the slot's digest. It counts only if it has the digest that its stamp says. A slot whose
value nobody has stays missing, but its digest is known, and so is that of the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from genai_processor.replay.decisions import Problem
from genai_processor.replay.lists import ReadList, answered_too_early, best
from genai_processor.replay.lookup import Op
from genai_processor.replay.parts import Part, PartKind, PartList, part_list
from genai_processor.replay.records import Ending, Operation, OrderEvidence, Outcome, State
from genai_processor.replay.shown import Shown
from genai_processor.replay.stamped_values import Values
from genai_processor.replay.stamps import REQUEST, RESPONSE, Base, Stamp, keyed, whole_list
from genai_processor.replay.tree import Draft

_CALL, _RESULT = PartKind.CALL, PartKind.RESULT
_WHOLE = State.WHOLE


def restore(ops: Sequence[Op], holders: Sequence[Draft]) -> list[Problem]:
    """Compare inferences with their stamps, and put together again what is not whole. The operations are changed in place.

    Args:
        ops: The operations of a world, by key, before they are joined.
        holders: Its containers and composite tools.

    Returns:
        What is wrong with stamps.
    """
    stamped: list[tuple[Op, Stamp]] = []
    problems: list[Problem] = []
    for op in ops:
        if op.operation is Operation.INFERENCE and (found := _stamp_of(op)) is not None:
            if found.problem:
                problems.append(Problem(op.key, found.problem))
            else:
                stamped.append((op, found))
    if not stamped:
        return problems
    for op, stamp in stamped:
        _compare(op, stamp)
    _Restoring(ops, holders, stamped, problems).run()
    return problems


def _shown(op: Op) -> Iterator[Shown]:
    yield op.draft.shown
    yield from op.draft.witnesses


def _stamp_of(op: Op) -> Stamp | None:
    """The stamp of the outermost span that has one which can be read."""
    stamps = [shown.stamp for shown in _shown(op) if shown.stamp is not None]
    return next((stamp for stamp in stamps if not stamp.problem), stamps[0] if stamps else None)


def _compare(op: Op, stamp: Stamp) -> None:
    """Mark lists that are not as stamped, and take from the stamp what was lost of instructions and definitions."""
    lists: list[ReadList] = []
    for shown in _shown(op):
        mine = shown.stamp
        if shown.inputs is not None:
            changed = mine is not None and mine.inputs is not None and mine.inputs.changed
            lists.append(shown.inputs._replace(state=State.CHANGED) if changed else shown.inputs)
        if mine is not None and mine.output is not None and mine.output.changed and shown.output is op.outcome:
            op.outcome = Outcome(Ending.UNKNOWN, State.CHANGED, op.outcome.parts, op.outcome.finish)
    op.inputs = best(lists)
    shown = op.draft.shown
    held = shown.held
    if stamp.key:
        lost = [(shown.system, stamp.system), (shown.tools, stamp.tools)]
        if any(now and then and keyed(now, stamp.key) != then for now, then in lost):
            held = (*held, State.CHANGED)
        system, tools = shown.system, shown.tools
    else:
        system, tools = stamp.system or shown.system, stamp.tools or shown.tools
    if stamp.continues:
        held = (*[state for state in held if state is not State.HELD_BY_PROVIDER], State.HELD_BY_PROVIDER)
    if (held, system, tools) != (shown.held, shown.system, shown.tools):
        op.draft.shown = shown._replace(held=held, system=system, tools=tools)
    op.stamped = (
        op.inputs is not None
        and op.inputs.state is _WHOLE
        and stamp.inputs is not None
        and keyed(op.inputs.parts.digest, stamp.key) == stamp.inputs.digest
    )


class _Restoring:
    """The lists of one world, by their digests as stamps have them."""

    def __init__(
        self, ops: Sequence[Op], holders: Sequence[Draft], stamped: list[tuple[Op, Stamp]], problems: list[Problem]
    ) -> None:
        self._ops = ops
        self._stamped = stamped
        self._problems = problems
        self._stamps = {id(op): stamp for op, stamp in stamped}
        self._values = Values(ops, holders)
        self._lists: dict[tuple[bytes, bytes], ReadList] = {}
        self._sayers: dict[tuple[bytes, bytes], list[Op]] = {}
        self._outputs: dict[tuple[bytes, bytes], PartList] = {}
        self._done: dict[int, ReadList | None] = {}

    def run(self) -> None:
        """Put together every list that is not whole."""
        inputs = [op for op, stamp in self._stamped if self._wants_input(op, stamp)]
        outputs = [(op, stamp) for op, stamp in self._stamped if op.outcome.ending is Ending.UNKNOWN and stamp.output]
        if not inputs and not outputs:
            return
        for op, stamp in outputs:
            self._restore_output(op, stamp)
        if inputs:
            self._index()
            for op in inputs:
                self._resolve(op)
            for op in inputs:
                if (found := self._done[id(op)]) is not None:
                    self._take(op, found)
        for op, _ in self._stamped:
            op.complete()

    @staticmethod
    def _wants_input(op: Op, stamp: Stamp) -> bool:
        if stamp.inputs is None:
            return False
        return op.inputs is None or op.inputs.state is not _WHOLE or bool(stamp.continues) or bool(op.draft.shown.held)

    # -- outputs -------------------------------------------------------------------------------------------------------

    def _restore_output(self, op: Op, stamp: Stamp) -> None:
        said = stamp.output
        if said is None or said.slots is None:
            return
        slots, missing = self._values.slots(said.slots, stamp.key)
        if missing and stamp.key:
            return
        parts = part_list(slots)
        if keyed(parts.digest, stamp.key) != said.digest:
            self._bad(op, "its output is not what its slots say")
            return
        outcome = op.outcome
        if missing:
            state = outcome.state if outcome.state is not State.NOT_RECORDED else State.WITHHELD
            op.outcome = outcome._replace(state=state, parts=parts, stamped=True)
        else:
            op.outcome = Outcome(Ending.VALUE, _WHOLE, parts, outcome.finish, witnesses=(op.key,))

    # -- inputs --------------------------------------------------------------------------------------------------------

    def _index(self) -> None:
        """Put every list that others may begin with where its digest is found."""
        keys = {stamp.key for _, stamp in self._stamped}
        for op in self._ops:
            if op.operation is not Operation.INFERENCE:
                continue
            for key in keys:
                if op.inputs is not None and op.inputs.state is _WHOLE:
                    self._lists.setdefault((key, keyed(op.inputs.parts.digest, key)), op.inputs)
                if op.outcome.state is _WHOLE or op.outcome.stamped:
                    self._outputs.setdefault((key, keyed(op.outcome.parts.digest, key)), op.outcome.parts)
        for op, stamp in self._stamped:
            if stamp.inputs is not None:
                self._sayers.setdefault((stamp.key, stamp.inputs.digest), []).append(op)

    def _resolve(self, op: Op) -> None:
        """Put a list together, after those that it begins with. Without recursion."""
        stack = [op]
        waiting: set[int] = set()
        while stack:
            at = stack[-1]
            if id(at) in self._done:
                stack.pop()
                continue
            stamp = self._stamps[id(at)]
            before = self._before(stamp)
            if before and id(at) not in waiting:
                waiting.add(id(at))
                more = [one for one in before if id(one) not in self._done and id(one) not in waiting]
                if more:
                    stack.extend(more)
                    continue
            stack.pop()
            self._done[id(at)] = self._built(at, stamp)

    def _before(self, stamp: Stamp) -> list[Op]:
        """Whose stamped inputs may be what a list begins with; nobody's, if that is recorded."""
        base = stamp.inputs.base if stamp.inputs is not None else None
        if base is None or (stamp.key, base.inputs) in self._lists:
            return []
        return self._sayers.get((stamp.key, base.inputs), [])

    def _built(self, op: Op, stamp: Stamp) -> ReadList | None:
        said = stamp.inputs
        if said is None:
            return None
        begins: ReadList | None = None
        if said.base is not None:
            begins = self._base(said.base, stamp.key)
            if begins is None:
                return None
        prefix = begins.parts if begins is not None else None
        slots: list[Part] = []
        missing = begins is not None and begins.state is not _WHOLE
        if said.slots is None:
            if prefix is None or len(prefix) != said.length:
                return None
        else:
            slots, any_missing = self._values.slots(said.slots, stamp.key)
            missing = missing or any_missing
        if missing and stamp.key:
            return None
        made = part_list(slots, prefix)
        if len(made) != said.length or keyed(made.digest, stamp.key) != said.digest:
            self._bad(op, "its input is not what its slots say")
            return None
        state = op.inputs.state if op.inputs is not None else State.NOT_RECORDED
        if state is _WHOLE:  # what is there is not all that was sent
            state = State.WITHHELD
        return _counted(ReadList(state if missing else _WHOLE, made, OrderEvidence.STAMP), begins, slots)

    def _base(self, base: Base, key: bytes) -> ReadList | None:
        """The list that a list begins with."""
        found = self._lists.get((key, base.inputs))
        if found is None:
            built = (self._done.get(id(op)) for op in self._sayers.get((key, base.inputs), ()))
            found = next((one for one in built if one is not None), None)
            if found is not None:
                self._lists[key, base.inputs] = found
        if found is None or not base.output:
            return found
        output = self._outputs.get((key, base.output))
        if output is None:
            return None
        missing = any(part.missing for part in output)
        state = found.state if found.state is not _WHOLE else State.WITHHELD if missing else _WHOLE
        return _counted(found._replace(state=state, parts=whole_list(found.parts, output)), found, output)

    def _take(self, op: Op, found: ReadList) -> None:
        stamp = self._stamps[id(op)]
        assert stamp.inputs is not None
        shown = op.draft.shown
        lifted = {State.CHANGED} if not stamp.key else set()
        if stamp.inputs.source == REQUEST:  # a hook saw what was sent, before any span could lose it
            lifted |= {State.CUT, State.COMPACTED}
        if stamp.continues == RESPONSE:
            lifted.add(State.HELD_BY_PROVIDER)
        if lifted.issuperset(shown.held):  # else the stamp is of what was left, and nobody knows of what
            op.inputs = found
            op.stamped = True
            op.draft.shown = shown._replace(held=())

    def _bad(self, op: Op, what: str) -> None:
        self._problems.append(Problem(op.key, f"its stamp for replay is ignored: {what}"))


def _counted(read: ReadList, before: ReadList | None, parts: Sequence[Part]) -> ReadList:
    """A list with what `ListReader` would say of its results."""
    loose, unanswered, results = (before.loose, before.unanswered, before.results) if before is not None else (False, 0, 0)
    calls = before.parts.calls if before is not None else 0
    for part in parts:
        if part.kind is _CALL:
            calls += 1
        elif part.kind is _RESULT:
            results += 1
            unanswered = max(unanswered, results - calls)
            loose = loose or part.position == -1
    if loose:
        unanswered += answered_too_early(read.parts)
    return read._replace(loose=loose, unanswered=unanswered, results=results)
