# SPDX-License-Identifier: Apache-2.0
"""What is left of an evicted entry, so that forgetting never looks like safety.

Two bounded memories. Of an entry that nobody settled: its (scope, tool), exactly; when there are too many of them,
everything counts as unknown. Of an entry whose end was known: its call id and its action within its turn, in a Bloom
filter, which never denies what it has been told and, as it fills, errs towards "unknown": with the default of 2 MiB for
two calls in a thousand after a million evicted ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from genai_processor.ledger.claims import is_index_like
from genai_processor.ledger.entries import OPEN, Entry
from genai_processor.ledger.requests import Claim

_PROBES: Final = 4
_MASK: Final = (1 << 64) - 1


class Forgotten:
    """The bounded memory of what was evicted. Not thread-safe: the ledger's lock stands around it."""

    def __init__(self, *, max_tools: int, filter_bytes: int) -> None:
        """Make an empty one.

        Args:
            max_tools: How many (scope, tool) are kept apart before everything is unknown.
            filter_bytes: Size of the Bloom filter; it is allocated with the first eviction.
        """
        self._max_tools = max_tools
        self._tools: set[int] = set()  # hashes: small whatever the names, and a collision errs towards unknown
        self._bits = filter_bytes * 8
        self._filter: bytearray | None = None
        self.everything = False

    def __len__(self) -> int:
        """Return how many tools are unknown in their scope."""
        return len(self._tools)

    def add(self, entry: Entry) -> None:
        """Remember that an entry was evicted."""
        if entry.state in OPEN:
            self.add_tool(entry.scope, entry.tool)
            return
        for key in _keys(entry):
            if self._filter is None:
                self._filter = bytearray(self._bits // 8)
            for bit in self._positions(key):
                self._filter[bit >> 3] |= 1 << (bit & 7)

    def add_tool(self, scope: str, tool: str | None) -> None:
        """Make a tool unknown in a scope, or with None every tool there."""
        if self.everything:
            return
        self._tools.add(hash((scope, tool)))
        if len(self._tools) > self._max_tools:
            self.everything = True
            self._tools.clear()

    def tool(self, scope: str, tool: str) -> bool:
        """Whether an unsettled entry of the tool may have been evicted."""
        if not self._tools:
            return self.everything
        return hash((scope, tool)) in self._tools or hash((scope, None)) in self._tools

    def call(self, claim: Claim) -> bool:
        """Whether an earlier attempt at this very call may have been evicted."""
        return self._filter is not None and any(
            all(self._filter[bit >> 3] >> (bit & 7) & 1 for bit in self._positions(key)) for key in _keys(claim)
        )

    def _positions(self, key: tuple[str | None, ...]) -> Iterator[int]:
        mixed = hash(key) * 0x9E3779B97F4A7C15 & _MASK
        low, step = mixed & 0xFFFFFFFF, mixed >> 32 | 1
        return ((low + i * step) % self._bits for i in range(_PROBES))


def _keys(call: Entry | Claim) -> Iterator[tuple[str | None, ...]]:
    """What could identify the call to a later claim: its id, and its action (digest known or not) in its turn."""
    if call.call_id is not None:
        if not is_index_like(call.call_id, call.tool):
            yield ("id", call.scope, call.call_id)
        elif call.turn is not None:
            yield ("id", call.scope, call.call_id, call.turn)
    if call.turn is not None:
        yield ("turn", call.scope, call.turn, call.tool, call.digest)
        if isinstance(call, Claim) and call.digest is not None:
            yield ("turn", call.scope, call.turn, call.tool, None)
