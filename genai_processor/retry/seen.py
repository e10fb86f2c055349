# SPDX-License-Identifier: Apache-2.0
"""A set of names in fixed memory that never denies one it was told, and errs the other way as it fills."""

from __future__ import annotations

from typing import Final

_PROBES: Final = 4
_MASK: Final = (1 << 64) - 1
_SPREAD: Final = 0x9E3779B97F4A7C15


class SeenNames:
    """A Bloom filter. Its memory is allocated with the first name.

    With the default of 4 MiB, two names in ten thousand are taken for known after a million others.
    """

    __slots__ = ("_bits", "_filter")

    def __init__(self, size: int = 4 * 1024 * 1024) -> None:
        """Make an empty one of `size` bytes."""
        self._bits = size * 8
        self._filter: bytearray | None = None

    def add(self, name: str) -> None:
        """Remember a name."""
        if self._filter is None:
            self._filter = bytearray(self._bits // 8)
        at, step = self._first(name)
        for _ in range(_PROBES):
            self._filter[at >> 3] |= 1 << (at & 7)
            at = (at + step) % self._bits

    def __contains__(self, name: str) -> bool:
        """Whether a name may have been told."""
        if self._filter is None:
            return False
        at, step = self._first(name)
        for _ in range(_PROBES):
            if not self._filter[at >> 3] >> (at & 7) & 1:
                return False
            at = (at + step) % self._bits
        return True

    def _first(self, name: str) -> tuple[int, int]:
        mixed = hash(name) * _SPREAD & _MASK
        return (mixed & 0xFFFFFFFF) % self._bits, mixed >> 32 | 1
