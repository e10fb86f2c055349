# SPDX-License-Identifier: Apache-2.0
"""What ties a resumed run to the run that it resumes, where nothing else does: it reads a proposal of that run again."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import orjson

from genai_processor.spans.arguments import fingerprint, read_arguments
from genai_processor.spans.canonical import written
from genai_processor.spans.records import Proposal
from genai_processor.spans.values import index_like

_SHORT = 1_024  # characters of arguments that are kept as text; of longer ones, the digest
_MAX_MEANINGS = 8

_RECORDED, _WRITTEN, _DIGEST = range(3)
_Kept = tuple[int, str | None]
"""What is kept of arguments: their kind, and text of that kind. No text tells by itself which kind it is."""


class _Proposed:
    """A call as it was proposed.

    Attributes:
        scope: Where; None if in two scopes, which tells nothing.
    """

    __slots__ = ("_digest", "_digested", "_kind", "_text", "_tool", "scope")

    def __init__(self, proposal: Proposal, scope: str | None) -> None:
        self._tool = proposal.tool
        self._kind, self._text = _kept(proposal.arguments)
        self._digested = self._kind == _DIGEST
        self._digest = self._text if self._digested else None
        self.scope = scope

    def same(self, other: _Proposed) -> bool:
        """Whether it is a call of the same tool with the same arguments."""
        if self._tool != other._tool:
            return False
        return (self._kind == other._kind and self._text == other._text) or self.digest() == other.digest()

    def digest(self) -> str | None:
        """The digest of the arguments, computed once it is asked for; None where they are not whole."""
        if not self._digested:
            self._digested = True
            text = self._text
            self._digest = _of(orjson.loads(text) if self._kind == _WRITTEN and text is not None else text)
        return self._digest


class Links:
    """Which scope proposed a call, by its id, tool and arguments. Bounded: the oldest is forgotten first.

    Ids that count the calls of a run are no link: every run has them.
    """

    def __init__(self, limit: int = 20_000) -> None:
        """Remember up to `limit` ids."""
        self._limit = limit
        self._proposed: OrderedDict[str, list[_Proposed]] = OrderedDict()
        self.escaped = False
        """Some id looks different inside of JSON, so that it cannot be searched for."""

    def add(self, proposal: Proposal, scope: str) -> None:
        """Remember in which scope a call was proposed."""
        call_id = proposal.call_id
        if call_id is None or index_like(call_id, proposal.tool):
            return
        known = self._proposed.get(call_id)
        if known is None:
            self.escaped = self.escaped or not _is_plain(call_id)
            self._proposed[call_id] = [_Proposed(proposal, scope)]
            if len(self._proposed) > self._limit:
                self._proposed.popitem(last=False)
            return
        new = _Proposed(proposal, scope)
        for row in known:
            if row.same(new):
                if row.scope != scope:
                    row.scope = None
                return
        if len(known) < _MAX_MEANINGS:
            known.append(new)

    def knows_any(self, call_ids: Iterable[str]) -> bool:
        """Whether a call of one of the ids was proposed."""
        return not self._proposed.keys().isdisjoint(call_ids)

    def scope_of(self, echo: Proposal) -> str | None:
        """The one scope that proposed a call, or None."""
        known = self._proposed.get(echo.call_id or "")
        if known is None:
            return None
        wanted = _Proposed(echo, None)
        for row in known:
            if row.same(wanted):
                return row.scope
        return None


def _is_plain(call_id: str) -> bool:
    """Whether an id looks inside of JSON as it does outside."""
    return (call_id.isascii() and call_id.replace("_", "").isalnum()) or json.dumps(call_id) == f'"{call_id}"'


def _kept(arguments: Any) -> _Kept:
    """Text as recorded (None: withheld), an object as it would be written, of longer ones the digest."""
    if arguments is None or (isinstance(arguments, str) and len(arguments) <= _SHORT):
        return _RECORDED, arguments
    text = written(arguments)
    if text is not None and len(text) <= _SHORT:
        return _WRITTEN, text  # which is mostly equal at once: then nobody needs a digest
    return _DIGEST, _of(arguments)


def _of(arguments: Any) -> str | None:
    return fingerprint(read_arguments(arguments))
