# SPDX-License-Identifier: Apache-2.0
"""Making the stamps of inferences, span by span, as they end.

It reads what a span holds with the same code as a plan does, so a plan that reads the span later and finds another list
knows that something changed it. Of each run it keeps the last histories, to read of the next one only what is new, and of
the lists of a run that it has stamped a number each, to name the longest that a list begins with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from genai_processor.attributes import GENAI_REPLAY_VERSION
from genai_processor.replay.digests import content_digest
from genai_processor.replay.lists import ListReader
from genai_processor.replay.parts import PartList, Role, part_list
from genai_processor.replay.recording.requests import Request, began, request_of
from genai_processor.replay.records import State
from genai_processor.replay.sources import best_source
from genai_processor.replay.stamp_writing import too_large, written, written_base
from genai_processor.replay.stamps import MAX_SLOTS, REQUEST, key_of
from genai_processor.spans.live import from_readable
from genai_processor.spans.read import CONVERSATION_KEYS, MARKER_KEYS, conversation_of, operation_of
from genai_processor.spans.records import Operation, Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace import Span as SDKSpan

    from genai_processor.spans.dialects import Dialect

MAX_CHARACTERS: Final = 1024 * 1024
"""A span with more text than this is not looked at: its end must not take long."""

_RUNS: Final = 256
_LISTS: Final = 64
_HISTORIES: Final = 4
_NO_RUN: Final[Mapping[str, Any]] = {}


class _Stamped(NamedTuple):
    """A list that others may begin with: how it is named, its length, and that of the last one of its line written whole."""

    name: str
    length: int
    whole: int


class _Run:
    """What is kept of one conversation, or of one trace."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.inputs = ListReader(keep_values=False, length_limit=limit)
        self.outputs = ListReader(keep_values=False, length_limit=limit)
        self.stamped: dict[int, _Stamped] = {}
        self.sizes: deque[int] = deque(maxlen=_HISTORIES)

    def remember(self, mark: int, stamped: _Stamped) -> None:
        """Keep a list, and forget the oldest."""
        self.stamped.pop(mark, None)
        self.stamped[mark] = stamped
        if len(self.stamped) > _LISTS:
            del self.stamped[next(iter(self.stamped))]

    def longest(self, parts: PartList) -> _Stamped | None:
        """The longest list that is kept and that a list begins with."""
        if not self.stamped:
            return None
        for found in parts.lists():
            for mark in reversed(found.marks):
                if (known := self.stamped.get(mark)) is not None:
                    return known
        return None


class Stamping:
    """Makes stamps. Thread-safe without a lock: whoever works on a run has taken it away from the others.

    Args:
        secret: What digests are keyed with, or None.
        length_limit: The attribute value length limit of the SDK, where a span does not carry its own: a text as long as
            that is not all there.
        max_bytes: About how many bytes of histories to keep.
    """

    def __init__(self, *, secret: str | None = None, length_limit: int | None = None, max_bytes: int = 16 * 2**20) -> None:
        self._key = key_of(secret)
        self._limit = length_limit or 0
        self._max_bytes = max_bytes
        self._runs: dict[str, _Run] = {}

    def began(self, span: SDKSpan) -> None:
        """Note that a span has begun: it may show what a model is being asked."""
        if span._context is not None:
            began(span._context[1], span._parent[1] if span._parent is not None else None)

    def of(self, readable: ReadableSpan) -> dict[str, Any] | None:
        """The stamp of an ended span, as attributes; None if it shows no model's response, or has a stamp."""
        request = request_of(readable._context[1]) if readable._context is not None else None
        attributes: Any = readable._attributes
        values: Mapping[str, Any] = getattr(attributes, "_dict", attributes) or _NO_RUN
        if MARKER_KEYS.isdisjoint(values) or GENAI_REPLAY_VERSION in values:
            return None
        span = from_readable(readable)
        kind, dialect = operation_of(span)
        if kind is not Operation.INFERENCE or dialect is None or "_prepare_chat_with_tools" in span.name:
            return None
        size = _size(span)
        if size > MAX_CHARACTERS:
            return too_large()
        key = span.trace_id
        if not CONVERSATION_KEYS.isdisjoint(values):
            key = conversation_of(span, dialect) or key
        limit = getattr(attributes, "max_value_len", None) or self._limit
        run = self._runs.pop(key, None)
        if run is None or run.limit != limit:
            run = _Run(limit)
        try:
            return self._stamp(span, dialect, run, request)
        finally:
            run.sizes.append(size)
            self._put_back(key, run)

    def _stamp(self, span: Span, dialect: Dialect, run: _Run, request: Request | None) -> dict[str, Any] | None:
        # One history after the other: of which trace of a conversation, does not matter.
        read, source = best_source(run.inputs, span._replace(trace_id=""), dialect.inputs, outputs=False)
        said, said_in = best_source(run.outputs, span, dialect.outputs, outputs=True)
        inputs = read.parts if read is not None and read.state is State.WHOLE else None
        output = said.parts if said is not None and said.state is State.WHOLE else None
        instructions = span.attributes.get("gen_ai.system_instructions")
        definitions = span.attributes.get("gen_ai.tool.definitions")
        system = _digest(instructions) if instructions is not None else b""
        tools = _digest(definitions) if definitions is not None else b""
        continues = ""
        if request is not None:  # the span goes before, for that is what can be compared with it later
            if inputs is None or request.continues:
                inputs, source, continues = request.inputs, REQUEST, request.continues
                if system and inputs is not None and any(part.role is Role.SYSTEM for part in inputs):
                    inputs = part_list([part for part in inputs if part.role is not Role.SYSTEM])  # they stand apart here
                system = system or request.system
            if output is None:
                output, said_in = request.answer(), REQUEST
        if inputs is None and output is None and not continues:
            return None
        base = self._base(run, inputs, output) if inputs is not None else None
        return written(
            inputs,
            output,
            key=self._key,
            input_source=source,
            output_source=said_in,
            base=base.name if base is not None else None,
            begins=base.length if base is not None else 0,
            system=system,
            tools=tools,
            continues=continues,
        )

    def _base(self, run: _Run, inputs: PartList, output: PartList | None) -> _Stamped | None:
        """The list that a list is said to begin with; None where it is written whole. Remembers it for those that follow.

        It is written whole when it has doubled since that was done last: then all stamps of a run take no more than twice
        the room of its longest list, and a span that is lost costs the spans behind it their beginning only until then.
        """
        length = len(inputs)
        base = run.longest(inputs)
        if base is not None and 2 * base.whole <= length <= MAX_SLOTS:
            base = None
        whole = base.whole if base is not None else length
        run.remember(inputs.mark, _Stamped(written_base(inputs, None, self._key), length, whole))
        if output is not None and len(output):
            name = written_base(inputs, output, self._key)
            run.remember(inputs.mark_after(output), _Stamped(name, length + len(output), whole))
        return base

    def _put_back(self, key: str, run: _Run) -> None:
        runs = self._runs
        runs[key] = run
        try:
            while len(runs) > _RUNS or (len(runs) > 1 and sum(map(_bytes, list(runs.values()))) > self._max_bytes):
                del runs[next(iter(runs))]
        except (KeyError, StopIteration, RuntimeError):  # another thread was faster
            return


def _bytes(run: _Run) -> int:
    return sum(list(run.sizes))


def _size(span: Span) -> int:
    """How many characters of text a span holds, about."""
    size = 0
    for value in span.attributes.values():
        if type(value) is str:
            size += len(value)
        elif isinstance(value, (list, tuple)):
            size += sum([len(item) for item in value if isinstance(item, str)])
    for event in span.events:
        size += sum([len(value) for value in event.attributes.values() if isinstance(value, str)])
    return size


def _digest(value: Any) -> bytes:
    """Of instructions or definitions, which spans repeat word for word."""
    return _text_digest(value) if isinstance(value, str) and len(value) <= 65_536 else content_digest(value)


_text_digest = lru_cache(maxsize=64)(content_digest)
