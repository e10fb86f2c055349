# SPDX-License-Identifier: Apache-2.0
"""Which proposal of which turn a call executes: what its own span leaves out, the turn's message may hold."""

from __future__ import annotations

import bisect
import functools
from collections import Counter
from typing import Any, Final, NamedTuple, cast

from genai_processor.retry.nodes import Node
from genai_processor.retry.policy import same_tool
from genai_processor.retry.trace import Trace
from genai_processor.spans.arguments import ArgumentsState, fingerprint, read_arguments
from genai_processor.spans.records import Operation, Proposal
from genai_processor.spans.said import named_call


class Joined(NamedTuple):
    """The proposal behind a call.

    Attributes:
        turn: The inference that proposed it, or None where only a step names the call.
        proposal: What was proposed.
        exact: No other proposal fits as well.
    """

    turn: Node | None
    proposal: Proposal
    exact: bool


class Turns:
    """The turns of a trace and which of their proposals have been executed. Parses messages on the first question."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._rows: list[tuple[Node, int, Proposal]] | None = None
        self._used: set[tuple[int, int]] = set()
        self._spent: dict[tuple[str | None, str], list[tuple[Node, int, Proposal]]] = {}
        self._guessed: set[tuple[int, str]] = set()
        self._joined: dict[int, Joined | None] = {}
        self._by_id: dict[str, list[tuple[Node, int, Proposal]]] = {}
        self._by_tool: dict[str, list[tuple[Node, int, Proposal]]] | None = None
        self._by_form: dict[str, dict[str | None, list[tuple[Node, int, Proposal]]]] = {}
        self._alike: dict[int, Counter[tuple[str | None, str | None]]] = {}
        self._forms: dict[int, str | None] = {}

    def rows(self) -> list[tuple[Node, int, Proposal]]:
        """Every proposal as `(turn, position, proposal)`, by start of its turn; two reports of one response are one."""
        if self._rows is None:
            self._rows = []
            for turn in self._trace.turns():
                proposals = turn.proposals()
                if not proposals:
                    continue
                inner = _inference_above(turn)
                reported = {p.call_id for p in inner.proposals()} if inner is not None else set()
                for position, proposal in enumerate(proposals):
                    if inner is None or proposal.call_id not in reported:
                        self._rows.append((turn, position, proposal))
            for row in self._rows:
                if row[2].call_id is not None:
                    self._by_id.setdefault(row[2].call_id, []).append(row)
        return self._rows

    def unused(self) -> list[tuple[Node, Proposal]]:
        """The proposals that no call on the trace executes."""
        return [(turn, proposal) for turn, position, proposal in self.rows() if (id(turn), position) not in self._used]

    def join(self, call: Node) -> Joined | None:
        """The proposal that a call executes: by id, by the step that names it, by tool and arguments, or none."""
        if len(self._trace.nodes) == 1:
            return None
        found = self._joined.get(id(call), _UNKNOWN)
        if found is _UNKNOWN:
            found = self._by_call_id(call) or self._by_step(call) or self._by_arguments(call)
            self._joined[id(call)] = found
        return cast(Joined | None, found)

    def propose_differently(self, call_id: str) -> bool:
        """Whether turns proposed two actions under one id."""
        rows = self._by_id.get(call_id, ()) if self.rows() else ()
        if len(rows) < 2:
            return False
        return len({(row[2].tool, form) for row in rows if (form := self._form(row[2])) is not None}) > 1

    def _take(self, row: tuple[Node, int, Proposal], *, exact: bool) -> Joined:
        self._used.add((id(row[0]), row[1]))
        return Joined(row[0], row[2], exact)

    def _by_call_id(self, call: Node, wanted: str | None = None, exact: bool = True) -> Joined | None:
        ids = [wanted] if wanted else [view.call.call_id for view in call.views() if view.call and view.call.call_id]
        if not ids or not self.rows():
            return None
        tool = call.tool()
        for call_id in ids:
            rows = self._by_id.get(call_id or "")
            if rows is None:
                continue
            until = bisect.bisect_right(rows, call.when, key=_turn_began) if len(rows) > 1 else 0
            for row in (*reversed(rows[:until]), *rows[until:]) if len(rows) > 1 else rows:
                if tool is None or same_tool(tool, row[2].tool):
                    return self._take(row, exact=exact)
        return None

    def _by_step(self, call: Node) -> Joined | None:
        for node in call.ancestors():
            if node.operation in _BOUNDARIES:
                return None
            if node.operation is Operation.STEP and node.dialect is not None:
                named = named_call(node.span, node.dialect)
                if named is not None:
                    tool = call.call.tool if call.call else None
                    if tool is not None and not same_tool(tool, named.tool):
                        return None
                    if named.call_id is not None:
                        found = self._by_call_id(call, named.call_id)
                        if found is not None:
                            return found
                        return Joined(None, named, True)
                    return None
        return None

    def _by_arguments(self, call: Node) -> Joined | None:
        """By tool and equal canonical arguments: the oldest unused proposal of the latest turn that fits."""
        if call.call is None or call.call.tool is None or not self.rows():
            return None
        if not self._rows_for(_last_part(call.call.tool)):
            return None
        own = self._form_of(call.call.arguments, rendered=call.call.arguments_rendered)
        if own is None:
            return None
        rows = self._with_form(_last_part(call.call.tool)).get(own, [])
        fitting: list[tuple[Node, int, Proposal]] = []
        for index in range(bisect.bisect_right(rows, call.when, key=_turn_began) - 1, -1, -1):
            row = rows[index]
            if (id(row[0]), row[1]) in self._used:
                self._spent.setdefault((row[2].tool, own), []).append(rows.pop(index))
            elif same_tool(call.call.tool, row[2].tool):
                if fitting and row[0] is not fitting[0][0]:
                    return self._guess(fitting[-1], own)
                fitting.append(row)
        if not fitting:
            return self._once_more(call, own)
        if len(fitting) > 1 or (id(fitting[-1][0]), own) in self._guessed:
            return self._guess(fitting[-1], own)
        return self._take(fitting[-1], exact=True)

    def _guess(self, row: tuple[Node, int, Proposal], form: str) -> Joined:
        """Take one of several that fit; which of them is left for the others is then a guess, too."""
        self._guessed.add((id(row[0]), form))
        return self._take(row, exact=False)

    def _once_more(self, call: Node, form: str) -> Joined | None:
        """The turn that proposed the action less often than it has been executed, if no model has spoken since."""
        spent = [
            row
            for (tool, own), rows in self._spent.items()
            if own == form and call.call is not None and same_tool(call.call.tool, tool)
            for row in rows
            if row[0].when <= call.when
        ]
        if not spent:
            return None
        turn, _, proposal = max(spent, key=_turn_began)
        if any(turn.when < other.when <= call.when and not _same_response(turn, other) for other in self._trace.turns()):
            return None  # what that one proposed may not be recorded
        return Joined(turn, proposal._replace(call_id=None), exact=False)

    def _rows_for(self, last_part: str) -> list[tuple[Node, int, Proposal]]:
        """The proposals of the tools whose names end alike."""
        if self._by_tool is None:
            self._by_tool = {}
            for row in self.rows():
                self._by_tool.setdefault(_last_part(row[2].tool), []).append(row)
        return self._by_tool.get(last_part, [])

    def _with_form(self, last_part: str) -> dict[str | None, list[tuple[Node, int, Proposal]]]:
        """The same, by the canonical form of their arguments."""
        found = self._by_form.get(last_part)
        if found is None:
            found = self._by_form[last_part] = {}
            for row in self._rows_for(last_part):
                found.setdefault(self._form(row[2]), []).append(row)
        return found

    def _form(self, proposal: Proposal) -> str | None:
        key = id(proposal)
        if key not in self._forms:
            self._forms[key] = self._form_of(proposal.arguments)
        return self._forms[key]

    def _form_of(self, arguments: Any, *, rendered: bool = False) -> str | None:
        """By what arguments are compared: their digest, or where the model broke them, the text as it is."""
        found = read_arguments(arguments, rendered=rendered, is_cut=self._trace.is_cut)
        broken = found.state is ArgumentsState.MALFORMED and isinstance(arguments, str)
        return f"broken {arguments}" if broken else fingerprint(found)

    def proposing(self, tool: str | None, call_id: str | None, start_ns: int, action: str | None) -> Joined | None:
        """The latest proposal before a time that has the id, or without an id the tool and the digest of arguments."""
        if call_id is not None:
            self.rows()
            fitting = [row for row in self._by_id.get(call_id, ()) if same_tool(tool, row[2].tool)]
        else:
            fitting = [
                row
                for row in self.rows()
                if same_tool(tool, row[2].tool) and action is not None and self._form(row[2]) == action
            ]
        before = [row for row in fitting if (row[0].span.start_ns or 0) <= start_ns]
        return Joined(before[-1][0], before[-1][2], True) if before else None

    def proposed_with(self, joined: Joined) -> int:
        """How many calls with the same tool and arguments the turn of a joined proposal proposed."""
        if joined.turn is None:
            return 1
        proposals = joined.turn.proposals()
        if len(proposals) < 2:
            return 1
        alike = self._alike.get(id(joined.turn))
        if alike is None:
            alike = Counter((proposal.tool, self._form(proposal)) for proposal in proposals)
            alike.update(Counter((proposal.tool, _ANY) for proposal in proposals))
            self._alike[id(joined.turn)] = alike
        form = self._form(joined.proposal)
        return max(1, alike[joined.proposal.tool, _ANY if form is None else form])


_ANY = "any"  # no fingerprint is this


def _turn_began(row: tuple[Node, int, Proposal]) -> tuple[int, int]:
    return row[0].when


@functools.lru_cache(maxsize=1024)
def _last_part(name: Any) -> str:
    """What two names of one tool share at the least."""
    text = str(name)
    cut = len(text)
    while cut and text[cut - 1].isalnum():
        cut -= 1
    return text[cut:]


def _same_response(turn: Node, other: Node) -> bool:
    return _inference_above(turn) is other or _inference_above(other) is turn


def _inference_above(turn: Node) -> Node | None:
    """An inference span inside another: both report one response."""
    for node in turn.ancestors():
        if node.operation is _INFERENCE:
            return node
    return None


_UNKNOWN: Final = object()
_INFERENCE: Final = Operation.INFERENCE  # reading a member of an enum class costs more than reading a global
_BOUNDARIES: Final = (Operation.INFERENCE, Operation.AGENT, Operation.TOOL)  # a set would hash members, in Python
