# SPDX-License-Identifier: Apache-2.0
"""A request as the function in a PostgreSQL database takes it, with the locks that it needs, and what that answers.

Whoever asks about a place holds a lock on it that others may hold as well, and whoever changes an entry holds one on each
of its places that nobody else may hold: so what was asked stays true until the changes are made. In the place of open calls
of one tool with known digests it is the other way round: every claim changes it, and hardly any asks about it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from genai_processor.ledger.entries import Entry
from genai_processor.ledger.questions import Kind, Place, Question, Remembered, is_crowd, is_of_known_digests, places_of
from genai_processor.ledger.rows import document_of, entry_of_document
from genai_processor.ledger.snapshot import Answers, Request, mark_of_tool


def arguments_of(request: Request, tables: str, changed_by: int) -> list[bytes]:
    """Return the arguments of the function: what is asked, and what is changed, as JSON.

    Args:
        request: The request.
        tables: Which tables it is for.
        changed_by: The number of the last transaction that is known to have changed something; 0 for none.
    """
    questions: list[Any] = []
    for question, expected in request.expected.items():
        if question.place is None:
            questions.append(("entry", question.entry_id, 0, expected))
        else:
            kind = question.place.kind
            bound = question.until_ns if kind is Kind.LEASED else question.newest
            questions.append((kind.value, question.place.number, bound, expected))
    for remembered, there in request.marks.items():
        name = "expired" if remembered.expired else "unknown"
        questions.append((name, remembered.marks, 0, "true" if there else "false"))
    locks = [] if request.look else sorted(_locks(request).items())
    asked = {"tables": tables, "changed_by": changed_by, "look": request.look, "locks": locks, "questions": questions}
    changed: dict[str, Any] = {}
    if request.writes:
        changed["writes"] = [_row(new, request.writer) for _, new in request.writes]
    if request.drops:
        changed["drops"] = [entry.entry_id for entry in request.drops]
    if request.expired:
        changed["expired"] = sorted(request.expired)
    if request.unknown:
        marks = {mark_of_tool(scope, tool): (scope, tool) for scope, tool in request.unknown}
        changed["unknown"] = [{"mark": mark, "scope": marks[mark][0], "tool": marks[mark][1]} for mark in sorted(marks)]
    return [orjson.dumps(asked), orjson.dumps(changed)]


def _row(entry: Entry, writer: str) -> dict[str, Any]:
    row = document_of(entry)
    row["writer"] = writer
    for place in places_of(entry):
        row[f"{place.kind.value}_place"] = place.number
    return row


def _locks(request: Request) -> dict[int, bool]:
    """Return the locks, in no order: by number, whether nobody else may hold it."""
    locks: dict[int, bool] = {}

    def lock(number: int, alone: bool) -> None:
        locks[number] = locks.get(number, False) or alone

    for question in request.expected:
        if question.place is None:
            lock(_number(question.entry_id), False)
        elif _is_locked(question.place):
            lock(question.place.number, is_of_known_digests(question.place))
    changed = [entry for pair in request.writes for entry in pair if entry is not None]
    for entry in (*changed, *request.drops):
        lock(_number(entry.entry_id), True)
        for place in places_of(entry):
            if _is_locked(place):
                lock(place.number, not is_of_known_digests(place))
    return locks


def _is_locked(place: Place) -> bool:
    return place.kind is not Kind.LEASED and not is_crowd(place)


def _number(entry_id: str) -> int:
    digest = hashlib.blake2b(entry_id.encode(), digest_size=8, person=b"genai-entry").digest()
    return int.from_bytes(digest, "big", signed=True)


def answers_from(request: Request, answers: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Answers:
    """Return what the function answered."""
    found = Answers()
    for row in rows:
        entry = entry_of_document(row)
        found.entries[entry.entry_id] = entry
        found.writers[entry.entry_id] = row["writer"]
    questions: list[Question | Remembered] = [*request.expected, *request.marks]
    for question, answer in zip(questions, answers, strict=True):
        if isinstance(question, Remembered):
            found.marks[question] = answer == "true"
        else:
            ids = [one.rpartition(":")[0] for one in answer.split(" ")] if answer else []
            found.ids[question] = [entry_id for entry_id in ids if entry_id in found.entries]
    return found
