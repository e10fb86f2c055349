# SPDX-License-Identifier: Apache-2.0
"""What ties a resumed run to the run that it resumes, where nothing else does: it reads a proposal of that run again."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from genai_processor.spans.arguments import fingerprint, read_arguments
from genai_processor.spans.canonical import written
from genai_processor.spans.records import Proposal
from genai_processor.spans.values import index_like

_SHORT = 1_024
_MAX_MEANINGS = 8


class _Proposed(NamedTuple):
    tool: str | None
    arguments: str | None  # text as recorded, or as it would be written, while it is short; else its digest
    scope: str | None  # None: proposed in two scopes, which tells nothing


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
            self._proposed[call_id] = [_Proposed(proposal.tool, _short(proposal.arguments), scope)]
            if len(self._proposed) > self._limit:
                self._proposed.popitem(last=False)
            return
        for index, row in enumerate(known):
            if _same(row, proposal):
                if row.scope != scope:
                    known[index] = row._replace(scope=None)
                return
        if len(known) < _MAX_MEANINGS:
            known.append(_Proposed(proposal.tool, _short(proposal.arguments), scope))

    def knows_any(self, call_ids: Iterable[str]) -> bool:
        """Whether a call of one of the ids was proposed."""
        return not self._proposed.keys().isdisjoint(call_ids)

    def scope_of(self, echo: Proposal) -> str | None:
        """The one scope that proposed a call, or None."""
        for row in self._proposed.get(echo.call_id or "", ()):
            if _same(row, echo):
                return row.scope
        return None


def _is_plain(call_id: str) -> bool:
    """Whether an id looks inside of JSON as it does outside."""
    return (call_id.isascii() and call_id.replace("_", "").isalnum()) or json.dumps(call_id) == f'"{call_id}"'


def _same(row: _Proposed, proposal: Proposal) -> bool:
    if row.tool != proposal.tool:
        return False
    other = _short(proposal.arguments)
    return row.arguments == other or _digest(row.arguments) == _digest(other)


def _short(arguments: Any) -> str | None:
    if arguments is None or (isinstance(arguments, str) and len(arguments) <= _SHORT):
        return arguments
    text = written(arguments)
    if text is not None and len(text) <= _SHORT:
        return _WRITTEN + text  # which is mostly equal at once: then nobody needs a digest
    return _DIGESTED + (_of(arguments) or "")


_DIGESTED = "\0sha256:"
_WRITTEN = "\0json:"


def _digest(arguments: str | None) -> str | None:
    if arguments is not None and arguments.startswith(_DIGESTED):
        return arguments.removeprefix(_DIGESTED) or None
    if arguments is not None and arguments.startswith(_WRITTEN):
        return _of(orjson.loads(arguments.removeprefix(_WRITTEN)))
    return _of(arguments)


def _of(arguments: Any) -> str | None:
    return fingerprint(read_arguments(arguments))
