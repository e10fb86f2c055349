# SPDX-License-Identifier: Apache-2.0
"""Recorded traces from OTLP files, as a stream of `Span`.

What a file is, its content tells, not its name: OTLP/JSON lines (what the collector's and the SDKs' file exporters
write), one JSON document, OTLP protobuf, each of them plain, gzip or zstd. Whatever is damaged is reported and left
out, and the rest is read.

https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

import orjson

from genai_processor.spans.files import ZSTD, OnProgress, TraceFile, lines, unzstd
from genai_processor.spans.otlp_doubt import Doubt
from genai_processor.spans.otlp_framing import Framing, framing_of, messages
from genai_processor.spans.otlp_json import JsonSpans
from genai_processor.spans.records import Span

MAX_LINE_BYTES = 64 * 1024 * 1024
"""How long a line, a message or a JSON document may be, unless the caller says otherwise."""

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class ReadError:
    """Something in a file that could not be read.

    Attributes:
        file: The file, as it was given.
        line: The line, from 1. In protobuf, the number of the message. None where the file as a whole is meant.
        error: What is wrong and, where there is one, the remedy.
    """

    file: str
    line: int | None
    error: str


def read_spans(
    path: str | os.PathLike[str],
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    on_error: Callable[[ReadError], None],
    on_progress: OnProgress | None = None,
    on_content: Callable[[int], None] | None = None,
) -> Iterator[Span]:
    """Read the spans of a file in the order in which they stand there, in constant memory.

    The file is opened at once, and closed when the iterator ends.

    Args:
        path: The file; "-" is the standard input.
        max_line_bytes: A longer line (or protobuf message) is left out; of it, no more than this is ever held. A JSON
            document that spans lines is read as a whole, so it must not be longer either.
        on_error: Is called for whatever cannot be read.
        on_progress: Is called now and then with the bytes read so far and the size of the file (None if unknown).
        on_content: Is called with the size of each line, message or document, decompressed, before its spans come.

    Raises:
        TraceFileError: The file cannot be opened, or is zstd and `zstandard` is not installed. Nothing in it raises.
    """
    return chain.from_iterable(
        read_batches(path, max_line_bytes=max_line_bytes, on_error=on_error, on_progress=on_progress, on_content=on_content)
    )


def read_batches(
    path: str | os.PathLike[str],
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    on_error: Callable[[ReadError], None],
    on_progress: OnProgress | None = None,
    on_content: Callable[[int], None] | None = None,
) -> Iterator[list[Span]]:
    """As `read_spans`, but the spans of each line, message or document at once: handing them over one by one costs more."""
    file = TraceFile(path, on_progress)
    return _Reader(file, os.fspath(path), max_line_bytes, on_error, on_content or _nobody).batches()


def _nobody(size: int) -> None:
    """Takes what nobody asked for."""


_MAX_EMPTY = 100


class _Reader:
    """One reading of one file."""

    def __init__(
        self,
        file: TraceFile,
        name: str,
        limit: int,
        on_error: Callable[[ReadError], None],
        on_content: Callable[[int], None],
    ) -> None:
        self._file = file
        self._on_content = on_content
        self._limit = limit
        self._place: int | None = None
        self._doubt = Doubt(lambda place, error: on_error(ReadError(name, place, error)))
        self._json = JsonSpans(self._report)

    def batches(self) -> Iterator[list[Span]]:
        head = self._file.head
        try:
            if head.startswith(_UTF16):
                self._doubt.settle()
                self._report("UTF-16 text; convert it to UTF-8, the only encoding of OTLP/JSON")
            elif framing := framing_of(head):
                self._doubt.settle()
                yield from self._messages(framing)
            else:
                if head.startswith(_BOM):
                    self._file.stream.read(len(_BOM))
                yield from self._json_lines()
                self._doubt.end()
            if self._file.fault:
                self._report(self._file.fault)
        finally:
            self._file.close()

    def _report(self, error: str) -> None:
        self._doubt.report(self._place, error)

    def _messages(self, framing: Framing) -> Iterator[list[Span]]:
        from genai_processor.spans.otlp_protobuf import ProtobufSpans  # imports protobuf, which JSON does without

        protobuf, empty = ProtobufSpans(self._report), 0
        for number, content, fault in messages(self._file.stream, framing, self._limit):
            self._place = number
            self._on_content(len(content))
            empty = 0 if content or fault else empty + 1
            if empty == _MAX_EMPTY:
                self._report(f"{empty} empty messages in a row: zeros, not traces; the rest is not read")
                return
            if fault:
                if not self._file.fault:
                    self._report(fault)
            elif framing is Framing.FIELD:
                yield protobuf.read_resource_spans(content)
            else:
                try:
                    content = unzstd(content, self._limit) if content.startswith(ZSTD) else content
                    document = _parsed(content) if content.startswith(b"{") else None
                except ValueError as error:
                    self._report(f"message {number}: {error}")
                else:
                    yield protobuf.read(content) if document is None else self._json.read(document)

    def _json_lines(self, start: int = 1, *, may_be_document: bool = True) -> Iterator[list[Span]]:
        read, on_content, doubt = self._json.read, self._on_content, self._doubt
        for number, line in enumerate(lines(self._file.stream, self._limit), start):
            self._place = number
            if line is None:
                doubt.settle()  # for all that anybody can tell
                self._report(self._too_long("line", "raise the limit to read it"))
                may_be_document = False
                continue
            if line.isspace():
                continue
            if doubt.is_open:
                doubt.look(line)
            try:
                document = _parsed(line)
            except orjson.JSONDecodeError as error:
                if may_be_document and line.lstrip().startswith((b"{", b"[")):
                    yield from self._document_or_lines(line)
                    return
                if line.endswith(b"\n") or not self._file.fault:
                    self._report(f"not JSON: {error.msg} at column {error.colno}; is the line cut short?")
            else:
                on_content(len(line))
                yield read(document)
            may_be_document = False

    def _document_or_lines(self, first_line: bytes) -> Iterator[list[Span]]:
        """A file whose first line is not JSON: one document over many lines, or lines of which the first is damaged."""
        start = self._place or 1
        ahead = first_line + self._file.stream.read(max(0, self._limit - len(first_line)) + 1)
        try:
            document = _parsed(ahead) if len(ahead) <= self._limit else None
            problem = self._too_long("JSON document", "write one object a line, or raise the limit")
            problem_line = start
        except orjson.JSONDecodeError as error:
            document = None
            problem = f"not JSON: {error.msg} at column {error.colno}"
            problem_line = start + error.lineno - 1
        if document is not None:
            self._doubt.settle()
            self._on_content(len(ahead))
            yield self._json.read(document)
        elif _are_lines(ahead):
            self._file.push_back(ahead)
            del ahead
            yield from self._json_lines(start, may_be_document=False)
        elif not self._file.fault:
            self._doubt.settle()
            self._place = problem_line
            self._report(problem)

    def _too_long(self, what: str, remedy: str) -> str:
        return f"the {what} is longer than {self._limit} bytes; {remedy}"


def _parsed(content: bytes) -> Any:
    """The JSON value of a line, message or document.

    A text cut in the middle of a character may end in half of a surrogate pair, which some exporters write as it is. Only
    Python's parser reads it; without, everything else in the line would be lost.

    Raises:
        orjson.JSONDecodeError: It is no JSON.
    """
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        if _SURROGATE.search(content) is None:
            raise
        try:
            return json.loads(content, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            pass
        raise


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _are_lines(ahead: bytes) -> bool:
    """Whether text that as a whole is not JSON is lines of JSON, damaged or not, rather than one long document."""
    rest = [line for line in io.BytesIO(ahead) if line.strip()]
    return all(line.startswith(b"{") for line in rest) or any(_is_object(line) for line in rest)


def _is_object(line: bytes) -> bool:
    try:
        return line.startswith(b"{") and isinstance(_parsed(line), dict)
    except orjson.JSONDecodeError:
        return False
