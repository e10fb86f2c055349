# SPDX-License-Identifier: Apache-2.0
"""Bytes of a recorded file as a stream: opened, counted, decompressed, cut into lines, in constant memory.

Damage never raises: it ends the stream, and `TraceFile.fault` says what happened. Only a file that cannot be opened at
all is an exception.
"""

from __future__ import annotations

import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from genai_processor.errors import TraceFileError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1 << 20
"""Bytes that are read from a file at once."""

HEAD = 4096
"""Bytes of a file that tell its format."""

OnProgress = Callable[[int, "int | None"], None]
"""Called with the bytes read from the file so far (compressed ones, if it is compressed) and its size, if known."""

_GZIP = b"\x1f\x8b"
# One call of a decoder returns all that its input holds: small pieces keep a bomb small (at most 128 MiB).
_GZIP_PIECE, _ZSTD_PIECE = 1 << 14, 1 << 12
ZSTD = b"\x28\xb5\x2f\xfd"
"""How a zstd frame begins (RFC 8878, section 3.1.1)."""


class _Layer(io.RawIOBase):
    """A raw stream over `_more`, of which the beginning can be seen before it is read.

    Attributes:
        fault: Why the stream ended before its time, or None.
    """

    fault: str | None = None

    def __init__(self, ready: bytes = b"") -> None:
        super().__init__()
        self._ready = memoryview(ready)

    def _more(self) -> bytes:
        """The next bytes, at most a few MiB; none at the end."""
        raise NotImplementedError

    def head(self, size: int) -> bytes:
        """Up to `size` first bytes, which stay in the stream. To be called before anything is read."""
        seen = bytes(self._ready)
        while len(seen) < size and (data := self._more()):
            seen += data
        self._ready = memoryview(seen)
        return seen[:size]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if not self._ready:
            self._ready = memoryview(self._more())
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._ready))
        target[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


class _File(_Layer):
    """The bytes of the file itself."""

    def __init__(self, file: IO[bytes], size: int | None, on_progress: OnProgress | None) -> None:
        super().__init__()
        self._file = file
        # What is there is enough: a pipe must not be waited for until it has filled a buffer.
        self._into = getattr(file, "readinto1", None) or getattr(file, "readinto", None)
        self._some = getattr(file, "read1", file.read)
        self._size = size
        self._read = 0
        self._on_progress = on_progress

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._ready or not self._into:
            return super().readinto(buffer)
        return self._counted(self._into, buffer) or 0  # straight into the buffer of whoever reads

    def _more(self) -> bytes:
        return self._counted(self._some, CHUNK) or b""

    def _counted(self, read: Callable[[Any], Any], argument: Any) -> Any:
        """What `read` returns, bytes or their number; None if it fails."""
        try:
            data = read(argument)
        except OSError as error:
            self.fault = f"reading failed: {error.strerror or error}"
            return None
        if data:
            self._read += data if type(data) is int else len(data)
            if self._on_progress:
                self._on_progress(self._read, self._size)
        return data


class _Decompressed(_Layer):
    """The content of a gzip or zstd file, of one member or frame or of many in a row."""

    def __init__(self, raw: _File, new_decoder: Callable[[], Any], piece: int, damage: type[Exception]) -> None:
        super().__init__()
        self._raw = raw
        self._source = io.BufferedReader(raw, CHUNK)
        self._new_decoder = new_decoder
        self._decoder = new_decoder()
        self._piece = piece
        self._damage = damage
        self._left = b""

    def _more(self) -> bytes:
        while not self.fault:
            data = self._left or self._source.read(self._piece)
            if not data:
                cut = None if self._decoder.eof else "the compressed data ends early: the file is truncated"
                self.fault = self._raw.fault or cut
                break
            if self._decoder.eof:
                data = data.lstrip(b"\0")  # gzip files may be padded with zeros
                if not data:
                    self._left = b""
                    continue
                self._decoder = self._new_decoder()
            try:
                content: bytes = self._decoder.decompress(data)
            except self._damage as error:
                self.fault = f"the compressed data is damaged: {error}"
                break
            self._left = self._decoder.unused_data
            if content:
                return content
        return b""


class _Rejoined(_Layer):
    """What was read ahead, and the rest of the stream that it came from."""

    def __init__(self, ahead: bytes, rest: io.BufferedReader[_Layer]) -> None:
        super().__init__(ahead)
        self._rest = rest

    def _more(self) -> bytes:
        return self._rest.read1(CHUNK)


class TraceFile:
    """A file that is being read.

    Attributes:
        head: Its first bytes, decompressed, at most `HEAD`.
        stream: All of its bytes, decompressed, from the beginning.
    """

    def __init__(self, path: str | os.PathLike[str], on_progress: OnProgress | None = None) -> None:
        """Open `path`; "-" is the standard input.

        Raises:
            TraceFileError: It cannot be opened, or is zstd and `zstandard` is not installed.
        """
        self._file, size = _open(os.fspath(path))
        raw = _File(self._file, size, on_progress)
        try:
            self._layer = _decompressed(raw, os.fspath(path))
            self.head = self._layer.head(HEAD)
            if self.head[4:8] == ZSTD:  # messages, each of them compressed
                _zstandard(os.fspath(path))
        except BaseException:
            self.close()
            raise
        self.stream: io.BufferedReader[_Layer] = io.BufferedReader(self._layer, CHUNK)

    @property
    def fault(self) -> str | None:
        """Why the stream ended before its time, or None. Of meaning once the stream has ended."""
        return self._layer.fault

    def push_back(self, ahead: bytes) -> None:
        """Put bytes that were read back in front of the stream."""
        self.stream = io.BufferedReader(_Rejoined(ahead, self.stream), CHUNK)

    def close(self) -> None:
        """Close the file; the standard input stays open."""
        if self._file is not getattr(sys.stdin, "buffer", None):
            self._file.close()


def lines(stream: IO[bytes], limit: int) -> Iterator[bytes | None]:
    """The lines of `stream` with their ends; None for each that is longer than `limit` bytes.

    Of a line that is too long, no more than `limit` bytes are ever held.
    """
    readline = stream.readline
    while line := readline(limit + 1):
        if len(line) > limit:
            while line and not line.endswith(b"\n"):
                line = readline(min(limit, CHUNK))
            yield None
        else:
            yield line


def _open(path: str) -> tuple[IO[bytes], int | None]:
    if path == "-":
        if sys.stdin is None:
            raise TraceFileError(f"{path}: cannot be opened: the standard input is closed")
        return sys.stdin.buffer, None
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by TraceFile.close
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = error.strerror if isinstance(error, OSError) else None
        raise TraceFileError(f"{path}: cannot be opened: {reason or error}") from error
    # Pipes and devices report a size of zero.
    return file, os.fstat(file.fileno()).st_size or None


def _decompressed(raw: _File, path: str) -> _Layer:
    """`raw`, or its content if it is compressed: its first bytes tell, not its name."""
    magic = raw.head(4)
    if magic.startswith(_GZIP):
        return _Decompressed(raw, lambda: zlib.decompressobj(wbits=31), _GZIP_PIECE, zlib.error)
    if magic == ZSTD:
        zstandard = _zstandard(path)
        return _Decompressed(raw, zstandard.ZstdDecompressor().decompressobj, _ZSTD_PIECE, zstandard.ZstdError)
    return raw


def unzstd(content: bytes, limit: int) -> bytes:
    """The content of one zstd frame.

    Raises:
        ValueError: It is damaged, or has more than `limit` bytes.
    """
    zstandard = _zstandard("message")
    decoder = zstandard.ZstdDecompressor().decompressobj()
    whole = bytearray()
    try:
        for at in range(0, len(content), _ZSTD_PIECE):
            whole += decoder.decompress(content[at : at + _ZSTD_PIECE])
            if len(whole) > limit:
                raise ValueError(f"more than {limit} bytes when decompressed; raise the limit to read it")
            if decoder.eof:
                return bytes(whole)
    except zstandard.ZstdError as error:
        raise ValueError(f"the compressed data is damaged: {error}") from error
    raise ValueError("the compressed data ends early")


def _zstandard(what: str) -> Any:
    try:
        import zstandard
    except ImportError as error:
        remedy = "pip install 'otel-genai-processor[cli]', or in a checkout: pip install '.[cli]'"
        raise TraceFileError(f"{what}: zstd needs the package zstandard: {remedy}") from error
    return zstandard
