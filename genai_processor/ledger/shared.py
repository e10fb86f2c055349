# SPDX-License-Identifier: Apache-2.0
"""A ledger on a server that many hosts share: each operation is tried here and carried out there, in one round trip.

An operation runs on what the store is believed to hold. What it asked and what it changes then goes to the store, which
does the changes if the answers were right, and else says what is right, so that the second try is exact. So the rules stay
in one place, and the store knows none. The guess is: nothing bears on a claim, and an entry is as it was last seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from genai_processor.errors import LedgerError, LedgerUnavailableError
from genai_processor.ledger.bookkeeper import Bookkeeper
from genai_processor.ledger.entries import EXPIRING, Entry, Resolution, State
from genai_processor.ledger.forgotten import digest_of_key, keys_of_call
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.noted import entry_of
from genai_processor.ledger.paging import next_page, place_of
from genai_processor.ledger.protocol import DEFAULT_PAGE, Page, Query, Stats
from genai_processor.ledger.questions import Question, Remembered, by_action, by_call, by_id, in_order
from genai_processor.ledger.requests import Claim, Granted, Outcome, Refusal, Sighting
from genai_processor.ledger.shared_store import Reply, SharedStore
from genai_processor.ledger.snapshot import Answers, Request, Snapshot, mark_of_tool, versions
from genai_processor.ledger.texts import storable, storable_call

_T = TypeVar("_T")
_DAY_NS: Final = 24 * 3600 * 10**9
_SEEN: Final = 4096  # entries remembered as they were last seen
_AT_ONCE: Final = 100  # in one operation: a database may have locks for few
_EXPIRED_AT_ONCE: Final = 100
_EVICT_EVERY_NS: Final = 60 * 10**9
_LONGEST_PAGE: Final = 100_000


class SharedLedger:
    """A `Ledger` on a server: many threads, processes and hosts. Time is the server's.

    Quarantined, undelivered, running and settled calls stay for good; others expire after `max_age_days`, and then count
    as unknown, never as new.

    Every method raises `LedgerUnavailableError` if the server cannot be asked in time; it may then have done what was
    asked. A claim of which nobody heard is quarantined when its lease runs out.
    """

    def __init__(
        self,
        store: SharedStore,
        *,
        max_age_days: float = 30,
        clock: Callable[[], int] | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """Use a store; it is connected to with the first operation.

        Args:
            store: The server's side.
            max_age_days: After how long untouched an entry whose end is known expires.
            clock: The time, in nanoseconds since the Unix epoch; by default the server's.
            new_id: Makes entry ids: random, never the same twice.
        """
        self._store = store
        self._max_age_ns = int(min(max_age_days * _DAY_NS, 2**62))
        self._clock = clock
        self._new_id = new_id
        self._seen: dict[str, Entry] = {}  # never what a caller holds: that may be another one of the same version
        self._rejected = 0
        self._evict_again = 0

    # -- one round trip --------------------------------------------------------------------------------------------

    def _run(self, operation: Callable[[Bookkeeper], _T], due: Mapping[str, Entry] | None = None) -> _T:
        """Run an operation: on a guess, and if the store knows better on what it says, until nobody comes in between.

        Raises:
            LedgerUnavailableError: The store cannot be asked, or others always came in between.
        """
        deadline = time.monotonic() + self._store.timeout_seconds
        now_ns = self._now(deadline)
        answers = Answers(entries=dict(due or {}))
        ids = _SameIds(self._new_id)
        while True:
            snapshot = Snapshot(answers, self._seen.get, now_ns, tuple(due or ()))
            books = Bookkeeper(snapshot, lambda: now_ns, ids.again())
            done: _T | None = None
            error: LedgerError | None = None
            try:
                done = operation(books)
            except LedgerError as raised:
                error = raised
            request = snapshot.request(random_id())
            if request.changes or not snapshot.was_asked_nothing_new():
                reply = self._store.ask(request, deadline)
                if not (reply.done or _was_done_before(request, reply)):
                    self._remember(reply.answers.entries)
                    answers = reply.answers
                    if time.monotonic() > deadline:
                        raise LedgerUnavailableError(
                            f"the ledger {self._store.name} was changed by others all the time, for "
                            f"{self._store.timeout_seconds:g} s; nothing was changed by this operation"
                        )
                    continue
                self._remember({new.entry_id: new for _, new in request.writes})
            self._rejected += books.rejected
            self._evict(now_ns)
            if error is not None:
                raise error
            return done  # type: ignore[return-value]

    def _now(self, deadline: float) -> int:
        if self._clock is not None:
            return self._clock()
        if not self._store.clock.is_known:
            self._store.open(deadline)
        return self._store.clock()

    def _remember(self, entries: Mapping[str, Entry]) -> None:
        """Keep entries as they were seen, for the next guess. Other threads may do the same at this moment."""
        seen = self._seen
        for entry_id, entry in entries.items():
            seen.pop(entry_id, None)
            seen[entry_id] = entry
        with suppress(RuntimeError, StopIteration):
            while len(seen) > _SEEN:
                seen.pop(next(iter(seen)), None)

    def _look(self, question: Question | Remembered) -> Answers:
        """Ask something that changes nothing."""
        if isinstance(question, Remembered):
            request = Request("", marks={question: False}, look=True)
        else:
            request = Request("", expected={question: ""}, look=True)
        return self._store.ask(request, time.monotonic() + self._store.timeout_seconds).answers

    def _find(self, question: Question) -> tuple[Entry, ...]:
        answers = self._look(question)
        found = [answers.entries[entry_id] for entry_id in answers.ids[question]]
        return tuple(in_order([entry for entry in found if question.fits(entry)]))

    def _evict(self, now_ns: int) -> None:
        """Now and then, let some entries expire that are old enough, and whose end is known; that it was stays known."""
        if now_ns < self._evict_again:
            return
        self._evict_again = now_ns + min(_EVICT_EVERY_NS, self._max_age_ns // 100)
        with suppress(LedgerUnavailableError):  # what was asked for is done; the next one tries again
            expired = [
                entry
                for entry in self._store.expirable(now_ns - self._max_age_ns, _EXPIRED_AT_ONCE)
                if entry.state in EXPIRING
            ]
            if not expired:
                return
            keys = [key for e in expired for key in keys_of_call(e.scope, e.tool, e.call_id, e.digest, e.turn)]
            expected = {by_id(entry.entry_id): versions([entry]) for entry in expired}
            marks = tuple(dict.fromkeys(map(digest_of_key, keys)))
            request = Request(random_id(), expected=expected, drops=expired, expired=marks)
            self._store.ask(request, time.monotonic() + self._store.timeout_seconds)
            for entry in expired:
                self._seen.pop(entry.entry_id, None)
            if len(expired) == _EXPIRED_AT_ONCE:
                self._evict_again = now_ns

    # -- a witness ---------------------------------------------------------------------------------------------------

    def record(self, sighting: Sighting) -> Entry | None:
        """See `Ledger.record`."""
        seen = storable_call(sighting) if isinstance(sighting, Sighting) else sighting
        held = self._run(lambda books: books.record(seen))
        return None if held is None else entry_of(held)

    def set_digest(self, entry_id: str, digest: str) -> Entry | None:
        """See `Ledger.set_digest`."""
        return self._run(lambda books: books.set_digest(_text(entry_id), _text(digest)))

    # -- the guard ---------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim, *, observe: bool = False) -> Granted | Refusal:
        """See `Ledger.claim`."""
        wish = storable_call(claim)
        return self._run(lambda books: books.claim(wish, observe))

    def start(self, entry: Entry) -> Entry:
        """See `Ledger.start`."""
        return self._run(lambda books: books.start(entry))

    def renew(self, entry: Entry, *, lease_ns: int) -> Entry:
        """See `Ledger.renew`."""
        return self._run(lambda books: books.renew(entry, lease_ns))

    def finish(self, entry: Entry, outcome: Outcome, *, reason: str | None = None) -> Entry:
        """See `Ledger.finish`."""
        why = _text(reason)
        return self._run(lambda books: books.finish(entry, outcome, why))

    def undeliver(self, entry: Entry) -> Entry:
        """See `Ledger.undeliver`."""
        return self._run(lambda books: books.undeliver(entry))

    def deliver(self, entry: Entry) -> Entry:
        """See `Ledger.deliver`."""
        return self._run(lambda books: books.deliver(entry))

    def expire(self) -> tuple[Entry, ...]:
        """See `Ledger.expire`."""
        lost: list[Entry] = []
        while True:
            deadline = time.monotonic() + self._store.timeout_seconds
            due = {entry.entry_id: entry for entry in self._store.overdue(self._now(deadline), _AT_ONCE)}
            if due:
                lost += self._run(Bookkeeper.expire, due)
            if len(due) < _AT_ONCE:
                return tuple(lost)

    # -- a person ----------------------------------------------------------------------------------------------------

    def pending(self, query: Query | None = None, *, limit: int = DEFAULT_PAGE, cursor: str | None = None) -> Page:
        """See `Ledger.pending`."""
        after = None if cursor is None else place_of(cursor)
        limit = max(1, min(limit, _LONGEST_PAGE))
        query = Query() if query is None else replace(query, tool=_text(query.tool), scope=_text(query.scope))
        return next_page(self._store.pending(query, after, limit + 1), limit)

    def settle(self, entry_id: str, resolution: Resolution, *, who: str, note: str, version: int) -> Entry:
        """See `Ledger.settle`."""
        return self._run(lambda books: books.settle(_text(entry_id), resolution, _text(who), _text(note), version))

    # -- everybody ---------------------------------------------------------------------------------------------------

    def get(self, entry_id: str) -> Entry | None:
        """See `Ledger.get`."""
        found = self._find(by_id(_text(entry_id)))
        return found[0] if found else None

    def by_call(self, scope: str, call_id: str) -> tuple[Entry, ...]:
        """See `Ledger.by_call`."""
        return self._find(by_call(_text(scope), _text(call_id)))

    def by_action(self, scope: str, tool: str, digest: str | None) -> tuple[Entry, ...]:
        """See `Ledger.by_action`."""
        return () if digest == "" else self._find(by_action(_text(scope), _text(tool), _text(digest)))

    def is_unknown(self, scope: str, tool: str) -> bool:
        """See `Ledger.is_unknown`."""
        scope, tool = _text(scope), _text(tool)
        question = Remembered(False, (mark_of_tool(scope, tool), mark_of_tool(scope, None)))
        return self._look(question).marks[question]

    def counts(self) -> Mapping[State, int]:
        """See `Ledger.counts`."""
        return self._store.counts()

    def stats(self) -> Stats:
        """See `Ledger.stats`."""
        expired, unknown = self._store.sizes()
        entries = sum(self._store.counts().values())
        return Stats(entries=entries, evicted=expired, unknown_tools=unknown, rejected=self._rejected)

    def close(self) -> None:
        """Close all connections. The next operation connects again."""
        self._store.close()


def _text(value: _T) -> _T:
    return storable(value) if isinstance(value, str) else value  # type: ignore[return-value]


def _was_done_before(request: Request, reply: Reply) -> bool:
    """Whether a request that was sent twice had been carried out the first time, before the connection broke."""
    if not reply.again:
        return False
    writers, entries = reply.answers.writers, reply.answers.entries
    return any(
        writers.get(new.entry_id) == request.writer or (old is None and new.entry_id in entries)
        for old, new in request.writes
    )


class _SameIds:
    """Makes ids, and the same again for a second try of one operation."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._made: list[str] = []

    def again(self) -> Callable[[], str]:
        """Return what makes the ids from the first one on."""
        position = 0

        def make() -> str:
            nonlocal position
            if position == len(self._made):
                self._made.append(self._new_id())
            position += 1
            return self._made[position - 1]

        return make
