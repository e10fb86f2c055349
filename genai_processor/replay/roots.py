# SPDX-License-Identifier: Apache-2.0
"""Lists without any history: which of them may be all that was read, and of which nobody can know.

Whoever's name is not recorded may be any agent, and instructions that are not recorded may be any: less on record never
makes a list more trusted.
"""

from __future__ import annotations

from collections.abc import Iterator

from genai_processor.replay.lookup import Op
from genai_processor.replay.parts import PartList, Role
from genai_processor.replay.records import State

_SYSTEM = Role.SYSTEM

Told = tuple[bytes, ...]
"""What a list says, by the digests of its parts, system parts left out."""


class Agents:
    """The lists of the agents in one place, by the agents' names. For rule 3 of `beginnings`."""

    def __init__(self) -> None:
        self._roots: dict[str | None, list[Op]] = {}
        self._histories: set[str | None] = set()
        self._deltas: set[str | None] = set()

    def add_root(self, op: Op) -> None:
        """Add a list without any history."""
        self._roots.setdefault(op.draft.agent_name, []).append(op)

    def add_history(self, op: Op, *, begins: bool) -> None:
        """Add another one: one that begins with a result, or what may be a history."""
        if begins:
            self._deltas.add(op.draft.agent_name)
        elif op.extends is not None:
            self._histories.add(op.draft.agent_name)

    def doubtful(self) -> Iterator[Op]:
        """The lists without a history of agents that send deltas, and never a history."""
        sends = self._deltas - self._histories
        for name, ops in self._roots.items():
            if sends if name is None else name in sends or None in sends:
                yield from ops


class Conversation:
    """The lists of one conversation. For rule 4 of `beginnings`."""

    def __init__(self) -> None:
        self._roots: list[Op] = []
        self._lists: set[Told] = set()
        self._lines: set[object] = set()
        self._names: set[str] = set()
        self._instructions: dict[str, set[bytes]] = {}
        self._prompts: dict[str, Told] = {}
        self._first: dict[str, tuple[int | None, Told]] = {}
        self.is_another = False
        """Something shows that it is none of the kind that rule 4 is about."""

    def add_root(self, op: Op, line: object, told: Told, parts: PartList) -> None:
        """Add a list without any history."""
        shown = op.draft.shown
        self._roots.append(op)
        self._lists.add(told)
        self._lines.add(line)
        if op.draft.agent_name is not None:
            self._names.add(op.draft.agent_name)
        if op.draft.conversation is None or len(self._lines) > 1 or len(self._names) > 1:
            self.is_another = True
        run = id(op.draft.scope) if op.draft.scope is not None else None
        first_run, first_told = self._first.setdefault(shown.trace_id, (run, told))
        if told != first_told and (run is None or run != first_run):
            self.is_another = True
        prompt = tuple([part.digest for part in parts if part.role is _SYSTEM])
        if self._prompts.setdefault(shown.trace_id, prompt) != prompt:
            self.is_another = True
        if shown.system:
            instructions = self._instructions.setdefault(shown.trace_id, set())
            instructions.add(shown.system)
            if len(instructions) > 1:
                self.is_another = True

    def add_other(self) -> None:
        """Add a list with a history, or one of which a mark says that the provider has the rest."""
        self.is_another = True

    def doubtful(self) -> list[Op]:
        """All lists, if several are read by one agent, one in each trace or several in one run, and never a history."""
        return self._roots if len(self._lists) > 1 and not self.is_another else []


def is_marked(op: Op) -> bool:
    """Whether the span itself says that the provider has the rest; where it does not say so, it has none."""
    return State.HELD_BY_PROVIDER in op.draft.shown.held
