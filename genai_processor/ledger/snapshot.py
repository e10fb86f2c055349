# SPDX-License-Identifier: Apache-2.0
"""What a shared store is believed to hold, on which an operation is tried before the store is told.

It keeps which questions the operation asked and what they were answered with, and what it changed. The store then does
the changes if the answers are right, and otherwise says what would have been right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from genai_processor.ledger.entries import Entry
from genai_processor.ledger.forgotten import digest_of_key, keys_of_call
from genai_processor.ledger.noted import Held, entry_of
from genai_processor.ledger.questions import (
    Question,
    Remembered,
    by_action,
    by_call,
    by_id,
    by_turn,
    by_twin,
    in_order,
    live_of,
    open_of,
    overdue_in,
)
from genai_processor.ledger.requests import Claim, Returned, Sighting
from genai_processor.ledger.sightings import LOOKED_AT
from genai_processor.spans.values import index_like


@dataclass(slots=True)
class Answers:
    """What a store said, at one moment, to the questions that it was asked.

    Attributes:
        ids: By question, the ids of the entries that it asks for, oldest first.
        entries: Those entries.
        writers: By entry id, who wrote the entry's present version; see `Request.writer`.
        marks: Whether one of the marks has been left.
    """

    ids: dict[Question, Sequence[str]] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    writers: dict[str, str] = field(default_factory=dict)
    marks: dict[Remembered, bool] = field(default_factory=dict)

    def know(self, question: Question | Remembered) -> bool:
        """Whether they answer a question."""
        if isinstance(question, Remembered):
            return question in self.marks
        return question in self.ids or (question.place is None and question.entry_id in self.entries)


@dataclass(frozen=True, slots=True)
class Request:
    """Asks a store to change something, if some questions have the answers that are expected.

    Attributes:
        writer: Random: tells afterwards whose a version of an entry is.
        expected: By question, the entries' ids and versions, as in ``id:1 id:7``, oldest first.
        marks: Whether one of the marks is expected.
        writes: Entries to be put in the place of their former version, which is None for new ones.
        drops: Entries to be removed.
        expired: Marks to be left of calls that expire.
        unknown: Marks to be left of tools of which all is unknown: scope and tool, which is None for every tool.
        look: Only answer the questions, whatever was expected.
    """

    writer: str
    expired: tuple[str, ...] = ()
    expected: Mapping[Question, str] = field(default_factory=dict)
    marks: Mapping[Remembered, bool] = field(default_factory=dict)
    writes: Sequence[tuple[Entry | None, Entry]] = ()
    drops: Sequence[Entry] = ()
    unknown: Sequence[tuple[str, str | None]] = ()
    look: bool = False

    @property
    def changes(self) -> bool:
        """Whether it changes anything."""
        return bool(self.writes or self.drops or self.unknown or self.expired)


@lru_cache(1024)
def mark_of_tool(scope: str, tool: str | None) -> str:
    """Return the mark that makes a tool unknown in a scope, or with None every tool there."""
    return digest_of_key(("tool", scope, tool))


def versions(entries: Iterable[Entry]) -> str:
    """Return how entries are written in `Request.expected`."""
    return " ".join([f"{entry.entry_id}:{entry.version}" for entry in entries])


class Snapshot:
    """Entries as they are believed to be, and the same with the changes of one operation.

    Args:
        answers: What the store said last.
        guess: An entry as it was last seen, for what was not asked.
        now_ns: The time of the operation.
    """

    def __init__(self, answers: Answers, guess: Callable[[str], Entry | None], now_ns: int, due: Sequence[str] = ()) -> None:
        self._answers = answers
        self._guess = guess
        self._now_ns = now_ns
        self._due = due
        self._expected: dict[Question, str] = {}
        self._marks: dict[Remembered, bool] = {}
        self._written: dict[str, tuple[Entry | None, Entry]] = {}
        self._unknown: list[tuple[str, str | None]] = []

    @property
    def forgotten(self) -> Snapshot:
        """What is remembered of entries that are gone: see `tool`, `call` and `add_tool`."""
        return self

    def was_asked_nothing_new(self) -> bool:
        """Whether the store's last answers are all that was needed."""
        return all(map(self._answers.know, self._expected)) and all(map(self._answers.know, self._marks))

    def request(self, writer: str) -> Request:
        """Return what the store has to check and to change."""
        for entry_id, (old, _) in self._written.items():
            self._expected.setdefault(by_id(entry_id), versions([] if old is None else [old]))
        return Request(
            writer, expected=self._expected, marks=self._marks, writes=list(self._written.values()), unknown=self._unknown
        )

    # -- questions -------------------------------------------------------------------------------------------------

    def _ask(self, question: Question) -> list[Entry]:
        answers = self._answers
        ids = answers.ids.get(question)
        if ids is not None:
            base = [answers.entries[entry_id] for entry_id in ids]
        elif question.place is None:
            guessed = answers.entries.get(question.entry_id) or self._guess(question.entry_id)
            base = [] if guessed is None else [guessed]
        else:
            base = []
        self._expected.setdefault(question, versions(base))
        if not self._written:
            return [entry for entry in base if question.fits(entry)]
        found = {entry.entry_id: entry for entry in base} | {new.entry_id: new for _, new in self._written.values()}
        return in_order([entry for entry in found.values() if question.fits(entry)])

    def _remembers(self, question: Remembered) -> bool:
        return self._marks.setdefault(question, self._answers.marks.get(question, False))

    def get(self, entry_id: str | None) -> Entry | None:
        """Return an entry, or None."""
        if entry_id is None:
            return None
        if entry_id in self._written:
            return self._written[entry_id][1]
        found = self._ask(by_id(entry_id))
        return found[0] if found else None

    def held_by_call(self, scope: str, call_id: str, newest: int | None = None) -> list[Held]:
        """Return the entries of a call id, oldest first."""
        return list(self._ask(by_call(scope, call_id, newest or 0)))

    def held_by_action(self, scope: str, tool: str, digest: str, newest: int | None = None) -> list[Held]:
        """Return the entries of an action, oldest first."""
        return list(self._ask(by_action(scope, tool, digest, newest or 0)))

    def bearing_on(self, claim: Claim) -> Iterable[Entry]:
        """Return the entries that bear on a claim, and no open ones of the tool that certainly are another action.

        They would be of no account, but change all the time; so would those of an id that other turns have as well.
        """
        scope, tool, call_id, digest = claim.scope, claim.tool, claim.call_id, claim.digest
        questions = [open_of(scope, tool, digest_known=False)]
        if digest is None:
            questions.append(open_of(scope, tool, digest_known=True))
        elif digest:
            questions.append(live_of(scope, tool, digest))
            if claim.turn:
                questions.append(by_twin(scope, tool, digest, claim.turn))
        if call_id and not index_like(call_id, tool):
            questions.append(by_call(scope, call_id))
        elif call_id and claim.turn:
            questions.append(by_turn(scope, call_id, claim.turn, tool))
        found = {entry.entry_id: entry for question in questions for entry in self._ask(question)}
        for entry in self._ask(overdue_in(scope, self._now_ns)):
            may_be_it = not digest or not entry.digest or entry.digest == digest
            if (entry.tool == tool and may_be_it) or (call_id and entry.call_id == call_id):
                found[entry.entry_id] = entry
        outer = self.get(claim.parent)
        enclosing: set[str] = set()
        while outer is not None and outer.entry_id not in enclosing:
            enclosing.add(outer.entry_id)
            found[outer.entry_id] = outer
            outer = self.get(outer.parent)
        return found.values()

    def leased(self) -> Iterable[Entry]:
        """Return those whose lease had run out when the store was asked."""
        return [entry for entry_id in self._due if (entry := self.get(entry_id)) is not None]

    def tool(self, scope: str, tool: str) -> bool:
        """Whether an unsettled entry of the tool may be missing."""
        return self._remembers(Remembered(False, (mark_of_tool(scope, tool), mark_of_tool(scope, None))))

    def call(self, claim: Claim) -> bool:
        """Whether an earlier attempt at this very call may be missing."""
        keys = keys_of_call(claim.scope, claim.tool, claim.call_id, claim.digest, claim.turn, any_digest=True)
        return bool(keys) and self._remembers(Remembered(True, tuple(map(digest_of_key, keys))))

    # -- changes ---------------------------------------------------------------------------------------------------

    def add_tool(self, scope: str, tool: str | None) -> None:
        """Make a tool unknown in a scope, or with None every tool there."""
        self._unknown.append((scope, tool))

    def note(self, seen: Sighting, now_ns: int, new_id: Callable[[], str], *, anyhow: bool = False) -> Held | None:
        """Make the entry of a sighting; None, and nothing is done, if it shares a key with another, unless `anyhow`."""
        if not anyhow and (seen.entry_id is not None or self._has(seen)):
            return None
        entry = entry_of((new_id(), now_ns, 0, seen))
        self.add(entry)
        return entry

    def _has(self, seen: Sighting) -> bool:
        by_its_id = bool(seen.call_id) and self.held_by_call(seen.scope, seen.call_id or "", LOOKED_AT)
        by_its_action = bool(seen.digest) and self.held_by_action(seen.scope, seen.tool, seen.digest or "", LOOKED_AT)
        return bool(by_its_id or by_its_action)

    def note_return(self, returned: Returned, now_ns: int, new_id: Callable[[], str]) -> bool:
        """Make the entry of a call that came back; False, and nothing is done, if its call id is known."""
        return self.note(returned.sighting(), now_ns, new_id) is not None

    def add(self, entry: Entry) -> None:
        """Add an entry of a new id."""
        self._written[entry.entry_id] = (None, entry)

    def replace(self, old: Entry, new: Entry) -> None:
        """Put an entry in the place of its former version."""
        first, _ = self._written.get(old.entry_id, (old, old))
        self._written[old.entry_id] = (first, new)

    def evict(self, now_ns: int) -> None:
        """Do nothing: what has expired is removed apart from what is done now."""
