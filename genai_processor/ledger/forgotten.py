# SPDX-License-Identifier: Apache-2.0
"""What is left of an evicted entry, so that forgetting never looks like safety.

Two bounded memories. Of an entry that nobody settled: its (scope, tool), exactly; when there are too many of them,
everything counts as unknown. Of an entry whose end was known: its call id and its action within its turn, in a Bloom
filter, which never denies what it has been told and, as it fills, errs towards "unknown": with the default of 2 MiB for
two calls in a thousand after a million evicted ones.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from typing import Final

import orjson

from genai_processor.ledger.requests import Claim
from genai_processor.spans.values import index_like

_WORD: Final = 8  # bytes of a word of the filter
_MASKS: Final = tuple(
    1 << bit | 1 << (bit + 1 + spread) % 64 | 1 << (bit + 20 + 2 * spread) % 64 for bit in range(64) for spread in range(16)
)
"""Three bits of a word each. A key sets those of two words: two changes of the filter do the work of six."""

_Key = tuple[str | None, ...]


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
        self._words = max(1, filter_bytes // _WORD)
        self._filter: array[int] | None = None
        self.everything = False

    def __len__(self) -> int:
        """Return how many tools are unknown in their scope."""
        return len(self._tools)

    def add_call(self, scope: str, tool: str, call_id: str | None, digest: str | None, turn: str | None) -> None:
        """Remember that the entry of a call whose end is known was evicted."""
        for key in keys_of_call(scope, tool, call_id, digest, turn):
            self._add(key)

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
        if self._filter is None:
            return False
        keys = keys_of_call(claim.scope, claim.tool, claim.call_id, claim.digest, claim.turn, any_digest=True)
        return any(self._may_have(key) for key in keys)

    def _add(self, key: _Key) -> None:
        words = self._filter
        if words is None:
            words = self._filter = array("Q", bytes(_WORD * self._words))
        size, mixed = self._words, hash(key)
        words[mixed % size] |= _MASKS[mixed >> 44 & 1023]
        words[(mixed >> 24) % size] |= _MASKS[mixed >> 54 & 1023]

    def _may_have(self, key: _Key) -> bool:
        assert self._filter is not None
        mixed = hash(key)
        one, other = _MASKS[mixed >> 44 & 1023], _MASKS[mixed >> 54 & 1023]
        return self._filter[mixed % self._words] & one == one and self._filter[(mixed >> 24) % self._words] & other == other


def keys_of_call(
    scope: str, tool: str, call_id: str | None, digest: str | None, turn: str | None, *, any_digest: bool = False
) -> list[_Key]:
    """Return what identifies a call, by its id, and by its action within its turn.

    Args:
        scope: Where the id is unique.
        tool: The tool.
        call_id: The call id, or nothing.
        digest: The digest of its arguments, or nothing.
        turn: The turn that proposed it, or nothing.
        any_digest: Also what identifies it if its digest was never known.
    """
    keys: list[_Key] = []
    id_key = _id_key(scope, tool, call_id, turn) if call_id else None
    if id_key is not None:
        keys.append(id_key)
    if turn:
        keys.append(("turn", scope, turn, tool, digest or None))
        if any_digest and digest:
            keys.append(("turn", scope, turn, tool, None))
    return keys


def digest_of_key(key: _Key) -> str:
    """Return what a database remembers of such a key."""
    try:
        text = orjson.dumps(key)
    except TypeError:  # a text that UTF-8 cannot hold
        text = json.dumps(key).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _id_key(scope: str, tool: str, call_id: str, turn: str | None) -> _Key | None:
    """What identifies a call by its id; one that every turn has again says nothing without the turn."""
    if not index_like(call_id, tool):
        return ("id", scope, call_id)
    return ("id", scope, call_id, turn) if turn else None
