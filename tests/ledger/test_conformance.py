# SPDX-License-Identifier: Apache-2.0
"""Every ledger of the package passes the suite that ships with it, and one that breaks a rule does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from genai_processor.errors import ConformanceError, GenAIProcessorError
from genai_processor.ledger import (
    Claim,
    Entry,
    Event,
    Granted,
    Ledger,
    MemoryLedger,
    Page,
    Query,
    Refusal,
    Resolution,
    State,
    conformance,
    conformance_attempts,
    conformance_queue,
    conformance_transitions,
    transitions,
)
from genai_processor.ledger.sqlite import SQLiteLedger


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken ledgers are not waited for."""
    for module in (conformance_attempts, conformance_queue):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.2)


def test_the_ledger_in_memory_conforms() -> None:
    assert len(conformance.run(MemoryLedger)) == len(conformance.CHECKS)


def test_a_sqlite_file_conforms(tmp_path: Path) -> None:
    done = conformance.run(lambda: SQLiteLedger(str(tmp_path / "ledger.db")), shared=True)
    assert len(done) == len(conformance.CHECKS) + len(conformance.SHARED_CHECKS)


class Generous(MemoryLedger):
    """Grants what was refused."""

    def claim(self, claim: Claim, *, observe: bool = False) -> Granted | Refusal:
        return super().claim(claim, observe=True)


class Hasty(MemoryLedger):
    """Settles whatever the version."""

    def settle(self, entry_id: str, *args: Any, version: int, **more: Any) -> Entry:
        entry = self.get(entry_id)
        return super().settle(entry_id, *args, version=version if entry is None else entry.version, **more)


class Deaf(MemoryLedger):
    """Never expires a lease."""

    def expire(self) -> tuple[Entry, ...]:
        return ()


class NewestFirst(MemoryLedger):
    """Lists the newest first."""

    def pending(self, query: Query | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
        found = super().pending(query, limit=10_000).entries[::-1]
        if cursor is not None and not cursor.isdecimal():
            super().pending(cursor=cursor)  # raises
        begin = int(cursor or 0)
        return Page(found[begin : begin + limit], str(begin + limit) if begin + limit < len(found) else None)


class Endless(MemoryLedger):
    """Lists everything, whatever the limit."""

    def pending(self, query: Query | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
        return super().pending(query, limit=10_000, cursor=cursor)


class Circular(MemoryLedger):
    """Never comes to the last page."""

    def pending(self, query: Query | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
        page = super().pending(query, limit=limit, cursor=cursor)
        return replace(page, cursor=page.cursor or cursor or "0:")


def leaving_out(name: str) -> type[MemoryLedger]:
    """A ledger that does not apply a filter."""

    class Unfiltered(MemoryLedger):
        def pending(self, query: Query | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
            return super().pending(replace(query or Query(), **{name: None}), limit=limit, cursor=cursor)

    return Unfiltered


def finding_nothing_by(name: str) -> type[MemoryLedger]:
    """A ledger that finds nothing where a filter is used."""

    class Filtered(MemoryLedger):
        def pending(self, query: Query | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
            page = super().pending(query, limit=limit, cursor=cursor)
            return page if getattr(query or Query(), name) is None else Page(())

    return Filtered


class Uncounted(MemoryLedger):
    """Counts nothing."""

    def counts(self) -> Mapping[State, int]:
        return dict.fromkeys(State, 0)


class Overwriting(MemoryLedger):
    """Takes a new digest for a known one."""

    def set_digest(self, entry_id: str, digest: str) -> Entry | None:
        entry = self.get(entry_id)
        if entry is None or entry.digest is None:
            return super().set_digest(entry_id, digest)
        changed = entry.changed(digest=digest, version=entry.version + 1)
        self._shelf.replace(entry, changed)
        return changed


class CheckThenSettle(MemoryLedger):
    """Looks at the version, and some time later settles."""

    def settle(self, entry_id: str, resolution: Resolution, *, who: str, note: str, version: int) -> Entry:
        entry = self.get(entry_id)
        if entry is None or not entry.pending or entry.version != version:
            return super().settle(entry_id, resolution, who=who, note=note, version=version)
        time.sleep(0.02)
        now = self.get(entry_id)
        assert now is not None
        if now.pending:
            return super().settle(entry_id, resolution, who=who, note=note, version=now.version)
        return now


class CheckThenClaim(MemoryLedger):
    """Looks whether an action is new, and some time later grants it."""

    def claim(self, claim: Claim, *, observe: bool = False) -> Granted | Refusal:
        if claim.digest is None or list(self._shelf.bearing_on(claim)) or self.is_unknown(claim.scope, claim.tool):
            return super().claim(claim, observe=observe)
        time.sleep(0.02)
        answer = super().claim(claim, observe=True)
        return replace(answer, overruled=None) if isinstance(answer, Granted) else answer


class ClosedForGood(MemoryLedger):
    """Cannot be closed twice."""

    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


FILTERS = ("tool", "scope", "state", "created_before_ns", "created_after_ns")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("make", "check"),
    [
        (Generous, "one_id_is_claimed_once"),
        (Hasty, "two_people_cannot_both_settle"),
        (Deaf, "a_lease_that_ran_out_quarantines"),
        (NewestFirst, "the_queue_is_walked_page_by_page"),
        (Endless, "the_queue_is_walked_page_by_page"),
        (Circular, "the_queue_is_walked_page_by_page"),
        *((leaving_out(name), "the_queue_is_filtered") for name in FILTERS),
        *((finding_nothing_by(name), "the_queue_is_filtered") for name in FILTERS),
        (Uncounted, "entries_are_counted_by_state"),
        (Overwriting, "a_known_digest_stays"),
        (CheckThenSettle, "of_many_people_at_once_one_settles"),
        (CheckThenClaim, "of_many_claims_at_once_one_is_granted"),
        (CheckThenClaim, "of_many_turns_at_once_one_is_granted"),
        (ClosedForGood, "closing_twice_is_harmless"),
    ],
)
def test_who_breaks_a_rule_is_told_which(make: Callable[[], Ledger], check: str) -> None:
    with pytest.raises(ConformanceError, match=f"  {check}: ") as caught:
        conformance.run(make)
    assert caught.value.__cause__ is not None


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("make", "check"),
    [
        (NewestFirst, "the_queue_is_walked_page_by_page"),
        (Uncounted, "entries_are_counted_by_state"),
        (Overwriting, "a_known_digest_stays"),
        (CheckThenSettle, "of_many_people_at_once_one_settles"),
        (ClosedForGood, "closing_twice_is_harmless"),
        (finding_nothing_by("tool"), "the_queue_is_filtered"),
    ],
)
def test_who_breaks_one_rule_is_told_no_other(make: Callable[[], Ledger], check: str) -> None:
    with pytest.raises(ConformanceError, match=rf"^1 of \d+ checks failed:\n  {check}: .*$"):
        conformance.run(make)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "move", sorted(move for move, state in transitions._MOVES.items() if state is not move[0]), ids="-".join
)
def test_each_move_of_the_state_machine_is_noticed_if_it_is_missing(
    move: tuple[State, Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(transitions._MOVES, move)
    monkeypatch.setattr(conformance, "CHECKS", (*conformance_transitions.CHECKS, *conformance_attempts.CHECKS))
    with pytest.raises(ConformanceError):
        conformance.run(MemoryLedger)


def test_a_ledger_with_a_coarse_clock_conforms() -> None:
    tick = 10**8
    conformance.run(lambda: MemoryLedger(clock=lambda: time.time_ns() // tick * tick))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("make", [MemoryLedger, Generous])
def test_every_ledger_that_was_opened_is_closed(make: type[MemoryLedger]) -> None:
    ledgers: list[Any] = []

    def opened() -> Ledger:
        class Closing(make):  # type: ignore[misc, valid-type]
            closed = False

            def close(self) -> None:
                self.closed = True

        ledgers.append(Closing())
        return ledgers[-1]  # type: ignore[no-any-return]

    with pytest.raises(ConformanceError):
        conformance.run(opened, shared=True)
    assert len(ledgers) > len(conformance.CHECKS)
    assert all(ledger.closed for ledger in ledgers)


def test_two_stores_are_not_shared() -> None:
    with pytest.raises(ConformanceError, match=rf"{len(conformance.SHARED_CHECKS)} of .* checks failed"):
        conformance.run(MemoryLedger, shared=True)


def test_the_error_is_of_the_tree_and_of_what_test_runners_know() -> None:
    assert issubclass(ConformanceError, GenAIProcessorError)
    assert issubclass(ConformanceError, AssertionError)
