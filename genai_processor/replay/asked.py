# SPDX-License-Identifier: Apache-2.0
"""What the caller of a replay asks for: which function stands for which node, and in which mode it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, overload

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.decisions import Choice, Mode, Plan
from genai_processor.replay.parts import Part
from genai_processor.replay.records import Node
from genai_processor.replay.values import own_value
from genai_processor.spans.values import quick_loads


class Copies(Sequence[Part]):
    """Parts that whoever gets them may change, without changing the record."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, at: int) -> Part: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Part]: ...
    def __getitem__(self, at: int | slice) -> Part | Sequence[Part]:
        found = self._parts[at]
        return _own(found) if isinstance(found, Part) else [_own(part) for part in found]

    def __iter__(self) -> Iterator[Part]:
        return map(_own, self._parts)


def _own(part: Part) -> Part:
    return part._replace(value=own_value(part.value)) if isinstance(part.value, (dict, list)) else part


class NodeRun(NamedTuple):
    """What a recompute function gets.

    Attributes:
        node: The recorded node that it stands for: the record itself, of which nothing may be changed.
        parts: The input: what came from upstream, or the recorded one in mode `inputs`. Both were found equal. They may be
            changed: the record stays as it is.
        run_id: The replay's id.
    """

    node: Node
    parts: Sequence[Part]
    run_id: str

    @property
    def arguments(self) -> Any:
        """A tool's arguments or a retrieval's query: what JSON text says, other text as it is; None for no part."""
        if not len(self.parts):
            return None
        value = self.parts[0].value
        parsed = quick_loads(value) if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") else None
        return value if parsed is None else parsed


Recompute = Callable[[NodeRun], Any]
"""Returns what `values.outcome_of` understands, or an awaitable of that (`areplay` only). What it raises is an outcome."""

Arrange = Callable[[Node, tuple[Part, ...]], Sequence[Part]]
"""Puts what came from upstream in the order in which the application puts it."""


class Way(NamedTuple):
    """How one node is replayed.

    Attributes:
        runs: The function that runs, or None.
        on_record: It runs on the recorded input, not on what came from upstream.
        inside: What is inside of it is replayed in its place.
        value: Its recorded outcome is its value; else, and where nothing runs, it has none.
        unverified: Its decision was to refuse.
    """

    runs: Recompute | None = None
    on_record: bool = False
    inside: bool = False
    value: bool = False
    unverified: bool = False


_T = TypeVar("_T")


def by_name(given: Mapping[str, _T] | None, node: Node) -> _T | None:
    """What is given for a node: by its key, its tool, the name of its operation (`chat`), its kind, or `*`."""
    if not given:
        return None
    for name in (node.key, node.tool, node.name, node.operation.value, "*"):
        if name is not None and name in given:
            return given[name]
    return None


def ways(
    plan: Plan,
    recompute: Mapping[str, Recompute],
    modes: Mapping[str, Mode],
    allow_unverified: bool,
    returned: frozenset[str],
) -> dict[str, Way]:
    """Say how each node that is not covered is replayed.

    Args:
        plan: The plan.
        recompute: Functions, by the names of `by_name`.
        modes: Modes that are asked for, by the same names.
        allow_unverified: Inject the recorded outcome of refused nodes, too.
        returned: Keys of the nodes whose value something inside them makes.

    Raises:
        ReplayRefusedError: A mode is asked for that is not sound, or that nothing can run. Nothing has run.
    """
    found: dict[str, Way] = {}
    unsound: list[tuple[str, str]] = []
    for node in plan.nodes:
        decision = plan.decisions[node.key]
        if decision.covered_by is not None:
            continue
        function, asked = by_name(recompute, node), by_name(modes, node)
        if decision.choice is Choice.REFUSE:
            if asked is not None and not (allow_unverified and asked in decision.modes):
                unsound.append((node.key, f"{asked.value}, but it is refused ({_why(plan, node)})"))
            if allow_unverified and Mode.OUTPUT in decision.modes:
                found[node.key] = Way(value=True, unverified=True)
            else:
                found[node.key] = Way()
        elif asked is not None and asked not in decision.modes:
            unsound.append(
                (node.key, f"{asked.value}, but sound is {', '.join(decision.modes) or 'none'} ({_why(plan, node)})")
            )
        elif asked is Mode.INPUTS and function is None:
            unsound.append((node.key, "inputs, but no function is given that would run it"))
        elif asked is Mode.OUTPUT:
            found[node.key] = Way(value=True)
        elif decision.choice is Choice.RECOMPUTE and asked is None and (node.key in returned or function is not None):
            found[node.key] = Way(inside=True) if node.key in returned else Way(function)
        elif function is not None and Mode.INPUTS in decision.modes:
            found[node.key] = Way(function, on_record=True)
        else:
            found[node.key] = Way(value=Mode.OUTPUT in decision.modes)
    if unsound:
        listed = "; ".join(f"{key}: {why}" for key, why in unsound[:5])
        more = f"; and {len(unsound) - 5} more" if len(unsound) > 5 else ""
        raise ReplayRefusedError(
            f"Not replayed, and nothing has run: asked for {listed}{more}", nodes=tuple(key for key, _ in unsound)
        )
    return found


def _why(plan: Plan, node: Node) -> str:
    return ", ".join(plan.decisions[node.key].reasons)
