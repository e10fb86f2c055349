# SPDX-License-Identifier: Apache-2.0
"""Between what functions return and what a node's outcome is, and what differs between two lists of parts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import zip_longest
from typing import Any

from genai_processor.replay.digests import part_digest
from genai_processor.replay.parts import EMPTY, Part, PartKind, PartList, Role, part_list
from genai_processor.replay.records import Ending, Node, Operation, Outcome, State

_SHOWN = 160
_MOST = 5


def text_part(text: str, role: Role = Role.ASSISTANT) -> Part:
    """What somebody says."""
    return Part(role, PartKind.TEXT, None, part_digest(role, PartKind.TEXT, None, text), value=text)


def call_part(tool: str, arguments: Any, call_id: str | None = None, position: int = 0) -> Part:
    """A proposed call."""
    digest = part_digest(Role.ASSISTANT, PartKind.CALL, tool, arguments)
    return Part(Role.ASSISTANT, PartKind.CALL, tool, digest, position, call_id, arguments)


def result_part(tool: str | None, value: Any, call_id: str | None = None, position: int = 0) -> Part:
    """A tool's result."""
    digest = part_digest(Role.TOOL, PartKind.RESULT, tool, value)
    return Part(Role.TOOL, PartKind.RESULT, tool, digest, position, call_id, value)


def outcome_of(node: Node, made: Any) -> Outcome:
    """What a recompute function returned, as the outcome of a node.

    Args:
        node: The recorded node. What a function cannot say (roles, the class of the finish reason, the place of a call in
            its turn) is taken from its outcome.
        made: An `Outcome`; a part or several, in order; or a value: a model's text, a tool's result, a list of documents.
            Whoever made it may change it afterwards.
    """
    if isinstance(made, Outcome):
        return made._replace(parts=part_list(own_parts(made.parts, node.outcome.parts)))
    parts = _parts_of(node, made)
    return Outcome(Ending.VALUE, State.WHOLE, parts, node.outcome.finish)


def failed(error: BaseException) -> Outcome:
    """What a recompute function raised, as an outcome."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - one that cannot say what it is failed all the same
        message = ""
    return Outcome(Ending.FAILURE, State.WHOLE, EMPTY, None, type(error).__qualname__, message)


def _parts_of(node: Node, made: Any) -> PartList:
    recorded = node.outcome.parts
    first = recorded[0] if len(recorded) else None
    if isinstance(made, Part):
        return part_list(placed(own_parts([made], recorded)))
    if isinstance(made, PartList):
        return part_list(own_parts(made, recorded))
    if isinstance(made, (list, tuple)) and made and all(isinstance(one, Part) for one in made):
        return part_list(placed(own_parts(made, recorded)))
    if node.operation is Operation.INFERENCE:
        return part_list([text_part(made if isinstance(made, str) else json.dumps(made, default=str))])
    made = own_value(made)
    if node.operation in (Operation.RETRIEVAL, Operation.RERANKING) and isinstance(made, (list, tuple)):
        role = first.role if first is not None else Role.TOOL
        digests = (part_digest(role, PartKind.DOCUMENT, None, one) for one in made)
        return part_list(
            [Part(role, PartKind.DOCUMENT, None, found, value=one) for found, one in zip(digests, made, strict=True)]
        )
    if first is not None:
        return part_list([with_value(first, made)])
    return part_list([result_part(node.tool, made, node.call_id)])


def own_value(value: Any) -> Any:
    """A value that nobody else can change."""
    return deepcopy(value) if isinstance(value, (dict, list)) else value


def own_parts(parts: Iterable[Part], known: Iterable[Part]) -> list[Part]:
    """Parts that somebody made, each with the digest of what it says now: one made of another may still have that one's.

    Args:
        parts: The parts.
        known: Parts whose digests are right unless somebody has changed the value in its place. It may not have been kept.
    """
    right = {id(part) for part in known if part.missing or not isinstance(part.value, (dict, list))}
    return [
        part if id(part) in right or _is_digest_only(part) else with_value(part, own_value(part.value)) for part in parts
    ]


def _is_digest_only(part: Part) -> bool:
    return part.missing and part.value is None


def placed(parts: Iterable[Part]) -> list[Part]:
    """Parts of a response, its calls counted through."""
    found: list[Part] = []
    calls = 0
    for part in parts:
        if part.kind is PartKind.CALL:
            part, calls = part._replace(position=calls), calls + 1
        found.append(part)
    return found


def with_value(part: Part, value: Any) -> Part:
    """A slot that holds another value."""
    return part._replace(value=value, digest=part_digest(part.role, part.kind, part.tool, value), missing=False)


def difference(expected: Sequence[Part], got: Sequence[Part]) -> str:
    """The first slots that differ, one a line."""
    lines: list[str] = []
    left, right = list(expected), list(got)
    for at, (one, other) in enumerate(zip_longest(left, right)):
        if one is not None and other is not None and (one.digest, one.position) == (other.digest, other.position):
            continue
        if len(lines) == _MOST:
            lines.append("…")
            break
        lines.append(f"[{at}] recorded {_shown(one)}, now {_shown(other)}")
    if len(left) == len(right) and sorted(part.digest for part in left) == sorted(part.digest for part in right) and lines:
        lines.insert(0, "the same parts in another order")
    return "\n".join(lines)


def outcome_difference(expected: Outcome, got: Outcome) -> str:
    """What differs between two outcomes."""
    lines: list[str] = []
    if expected.ending is not got.ending or expected.digest != got.digest:
        for name, outcome in (("recorded", expected), ("now", got)):
            if outcome.ending is not Ending.VALUE:
                lines.append(
                    f"{name} {outcome.ending.value}: {outcome.error_type or ''} {outcome.error_message or ''}".rstrip()
                )
        if expected.finish != got.finish:
            lines.append(f"finish reason recorded {expected.finish}, now {got.finish}")
    found = difference(expected.parts, got.parts)
    return "\n".join([*lines, found] if found else lines)


def _shown(part: Part | None) -> str:
    if part is None:
        return "nothing"
    value = part.value if isinstance(part.value, str) else _as_text(part.value)
    value = value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
    named = f" {part.tool}" if part.tool else ""
    at = "" if part.position is None else f" #{part.position}"
    return f"{part.role.value} {part.kind.value}{named}{at} {value!r}"


def _as_text(value: Any) -> str:
    if value is None:
        return "(value not kept)"
    try:
        return json.dumps(value, default=str, ensure_ascii=False)
    except Exception:  # noqa: BLE001 - what a function made may be anything
        return f"(a {type(value).__name__} that cannot be shown)"
