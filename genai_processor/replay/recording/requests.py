# SPDX-License-Identifier: Apache-2.0
"""What a model is asked and what it answers, as a hook sees it, until the span that shows it has ended.

Of what was said only digests are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from genai_processor.replay.digests import content_digest
from genai_processor.replay.lists import ListReader, ReadList
from genai_processor.replay.messages import items_of
from genai_processor.replay.parts import PartList
from genai_processor.replay.records import OrderEvidence, State

MAX_CHARACTERS: Final = 1024 * 1024
"""A list with more text than this is not looked at."""

_MOST: Final = 1_024
_READER: Final = ListReader(keep_values=False, length_limit=0)


class Request:
    """One request.

    Attributes:
        inputs: The whole list that the model is asked to go on from, or None if it is not known.
        output: What it answered, or None; or what finds it out, once it has been streamed.
        system: Digest of the instructions that stand beside the messages, or b"".
        continues: What the provider kept (`stamps.RESPONSE`, `stamps.CONVERSATION`), or "".
        begun: The ids of spans that have begun while it was made.
    """

    __slots__ = ("begun", "continues", "inputs", "output", "system")

    def __init__(self, inputs: PartList | None = None, *, system: bytes = b"", continues: str = "") -> None:
        self.inputs = inputs
        self.output: PartList | Callable[[], PartList | None] | None = None
        self.system = system
        self.continues = continues
        self.begun: set[int] = set()

    def answer(self) -> PartList | None:
        """What the model answered, as far as it is known."""
        output = self.output
        return output() if callable(output) else output


_here: Final[ContextVar[Request | None]] = ContextVar("genai_processor_recorded_request", default=None)
_shown: Final[dict[int, Request]] = {}


@contextmanager
def asking(request: Request | None) -> Iterator[None]:
    """Inside, a model is asked: of the spans that begin there, it is shown by those that stand in no other of them."""
    token = _here.set(request)
    try:
        yield
    finally:
        _here.reset(token)


def asked_here() -> Request | None:
    """The request that is being made in this context, or None."""
    return _here.get()


def shows(span_id: int, request: Request) -> None:
    """Say that a span shows a request. Of spans that never end, the oldest are forgotten."""
    _shown[span_id] = request
    try:
        while len(_shown) > _MOST:
            del _shown[next(iter(_shown))]
    except (KeyError, StopIteration, RuntimeError):  # another thread was faster
        return


def began(span_id: int, parent_id: int | None) -> None:
    """Note that a span has begun: what a model does to answer, such as asking another one, is no view of its request."""
    request = _here.get()
    if request is None:
        return
    if parent_id not in request.begun:
        shows(span_id, request)
    if len(request.begun) < _MOST:
        request.begun.add(span_id)


def request_of(span_id: int) -> Request | None:
    """The request that an ending span shows, or None; it is forgotten then."""
    return _shown.pop(span_id, None) if _shown else None


def list_of(messages: Iterable[Any], before: PartList | None = None) -> PartList | None:
    """The parts of messages as the conventions write them, without what they say; None if they are not whole.

    Args:
        messages: The messages.
        before: The list that they go on from.
    """
    items = items_of(list(messages))
    if sum([len(item.value) for item in items if isinstance(item.value, str)]) > MAX_CHARACTERS:
        return None
    begins = ReadList(State.WHOLE, before, OrderEvidence.ARRAY, results=0) if before is not None else None
    found = _READER.of_items(items, OrderEvidence.ARRAY, begins)
    return found.parts if found.state is State.WHOLE else None


def system_of(text: str | None) -> bytes:
    """The digest of instructions, which is that of the attribute in which the conventions have them."""
    return content_digest([{"type": "text", "content": text}]) if text else b""
