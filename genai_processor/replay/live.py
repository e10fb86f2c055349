# SPDX-License-Identifier: Apache-2.0
"""What a running agent says, in the terms of the record: messages as ordered parts, system instructions as digests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from genai_processor.replay.digests import content_digest, folded
from genai_processor.replay.lists import ListReader
from genai_processor.replay.messages import items_of
from genai_processor.replay.parts import Part, PartKind, PartList, Role
from genai_processor.replay.records import Node, OrderEvidence

Message = dict[str, Any]
"""One message as the conventions write it: `{"role": …, "parts": […]}`."""


class Prompt(NamedTuple):
    """What a model is asked.

    Attributes:
        parts: The messages' parts in order.
        instructions: System instructions that stand beside the messages, each text.
        agent: The name of the agent that asks, or None where nobody knows.
        tools: The names of what the model may call, or None where nobody knows. With `agent` it tells equal prompts apart.
    """

    parts: PartList
    instructions: tuple[str, ...] = ()
    agent: str | None = None
    tools: frozenset[str] | None = None


def parts_of(messages: Iterable[Message]) -> PartList:
    """The parts of messages, as a plan has those of recorded ones."""
    reader = ListReader(keep_values=True, length_limit=0)
    return reader.of_items(items_of(list(messages)), OrderEvidence.ARRAY).parts


class Keys:
    """Digests by which a prompt finds the recorded node that was asked the same: over all parts that every record has.

    System parts are compared apart, since some records have them beside the messages; reasoning is not compared, since few
    frameworks record it as they send it back.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[PartList, bytes]] = {}

    def of(self, parts: PartList) -> bytes:
        """The digest of a list; what lists share is digested once."""
        todo: list[PartList] = []
        found: PartList | None = parts
        while found is not None and id(found) not in self._known:
            todo.append(found)
            found = found.prefix
        digest = self._known[id(found)][1] if found is not None else b""
        for one in reversed(todo):
            for part in one.tail:
                if part.role is not Role.SYSTEM and part.kind is not PartKind.REASONING:
                    digest = folded(digest, part)
            self._known[id(one)] = one, digest  # kept with its id, which is good only as long as the list lives
        return digest


def key_of_prompt(parts: Sequence[Part]) -> bytes:
    """As `Keys.of`, for a list that is asked for once."""
    digest = b""
    for part in parts:
        if part.role is not Role.SYSTEM and part.kind is not PartKind.REASONING:
            digest = folded(digest, part)
    return digest


def without_places(parts: Sequence[Part]) -> list[Part]:
    """Parts without the places of results among the calls, for a record that does not say which call each answers."""
    return [part._replace(position=-1) if part.kind is PartKind.RESULT else part for part in parts]


def same_places(parts: Sequence[Part], recorded: Sequence[Part]) -> bool:
    """Whether each result answers the call that the record says it does, where the record says so."""
    now, known = ([part.position for part in one if part.kind is PartKind.RESULT] for one in (parts, recorded))
    return all(there in (-1, here) for here, there in zip(now, known, strict=True))


def instructions_of(prompt: Prompt) -> list[str]:
    """Every text that a model is instructed with, beside its messages or among them."""
    texts = [part.value for part in prompt.parts if part.role is Role.SYSTEM and isinstance(part.value, str)]
    return [*prompt.instructions, *texts]


def same_system(node: Node, prompt: Prompt) -> bool:
    """Whether what the record has of system instructions is what is said now, in whatever shape it was recorded."""
    texts = [part.value for part in prompt.parts if part.role is Role.SYSTEM and isinstance(part.value, str)]
    said = instructions_of(prompt)
    recorded = [part for part in node.inputs.parts if part.role is Role.SYSTEM]
    if recorded:
        now = {part.value.strip() for part in prompt.parts if part.role is Role.SYSTEM and isinstance(part.value, str)}
        now |= {text.strip() for text in said} | {joined.strip() for joined in _joined(said)}
        if any(isinstance(part.value, str) and part.value.strip() not in now for part in recorded):
            return False
    if not node.inputs.system:
        return True
    return node.inputs.system in {
        content_digest(shape) for one in (said, prompt.instructions, texts) for shape in _shapes(one)
    }


def leaves_instructions_out(node: Node, prompt: Prompt) -> bool:
    """Whether a model is instructed with something that the record does not have, so that it was not compared."""
    texts = [part.value for part in prompt.parts if part.role is Role.SYSTEM and isinstance(part.value, str)]
    said = instructions_of(prompt)
    left = [said, prompt.instructions, texts] if node.inputs.system else []
    digested = next((one for one in left if node.inputs.system in map(content_digest, _shapes(one))), ())
    recorded = {
        part.value.strip() if isinstance(part.value, str) else None for part in node.inputs.parts if part.role is Role.SYSTEM
    }
    if None in recorded or any(joined.strip() in recorded for joined in _joined(said)):
        return False
    return any(text.strip() not in recorded and text not in digested for text in said if text.strip())


def _joined(texts: Sequence[str]) -> list[str]:
    return ["\n\n".join(texts), "\n".join(texts), "".join(texts)]


def _shapes(texts: Sequence[str]) -> Iterable[Any]:
    for some in (list(texts), *([joined] for joined in _joined(texts))):
        yield [{"type": "text", "content": text} for text in some]
        yield [{"type": "text", "text": text} for text in some]
        yield some
        if len(some) == 1:
            yield some[0]
            yield {"type": "text", "content": some[0]}
