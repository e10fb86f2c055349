# SPDX-License-Identifier: Apache-2.0
"""A ledger on a server says the same as the one in memory, to all who ask it at once; on real servers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from shared_helpers import Shared
from test_ledger_properties import call_ids, claims, digests, outcomes, scopes, tools
from test_noted import sightings

from genai_processor.errors import LedgerError
from genai_processor.ledger import Claim, Entry, Granted, MemoryLedger, Outcome, Resolution, Sighting, State, conformance
from genai_processor.ledger.shared_store import Reply
from genai_processor.ledger.snapshot import Request


def test_it_conforms(shared: Shared) -> None:
    assert len(conformance.run(shared.open, shared=True)) == len(conformance.CHECKS) + len(conformance.SHARED_CHECKS)


class SharedAgainstMemory(RuleBasedStateMachine):
    """Whatever is done to the two, they say the same. Two clients take turns at the shared one, each with its own memory."""

    shared: Shared

    @initialize()
    def begin(self) -> None:
        self.now = 0
        self.steps = 0
        self.minted: str | None = None
        numbers = itertools.count(1)

        def mint() -> str:
            self.minted = f"e{next(numbers):06d}"
            return self.minted

        self.memory = MemoryLedger(clock=lambda: self.now, new_id=mint)
        empty = self.shared.emptied()
        # On a wrong guess it makes an id of which nothing comes, so it gets those that the one in memory used.
        self.opened = [empty.make(clock=lambda: self.now, new_id=lambda: self.minted or "unused") for _ in range(2)]
        self.clients = itertools.cycle(self.opened)

    def teardown(self) -> None:
        for client in getattr(self, "opened", ()):
            client.close()

    def both(self, what: Callable[[Any], Any]) -> None:
        answers: list[Any] = []
        self.minted = None
        for ledger in (self.memory, next(self.clients)):
            try:
                answers.append(what(ledger))
            except LedgerError as error:
                answers.append((type(error), str(error)))
        assert answers[0] == answers[1]
        self.now += 1

    @rule(seen=sightings)
    def record(self, seen: Sighting) -> None:
        self.both(lambda ledger: ledger.record(seen))

    @rule(claim=claims, parent=st.sampled_from([None, "e000001", "e000002"]), observe=st.booleans(), lease=st.integers(1, 9))
    def claim(self, claim: Claim, parent: str | None, observe: bool, lease: int) -> None:
        wish = replace(claim, parent=parent, lease_ns=None if lease > 7 else lease)
        self.both(lambda ledger: ledger.claim(wish, observe=observe))

    @rule(number=st.integers(1, 12), outcome=outcomes, attempt=st.integers(0, 2))
    def finish(self, number: int, outcome: Outcome, attempt: int) -> None:
        entry = self.memory.get(f"e{number:06d}")
        if entry is not None:
            held = entry if attempt else entry.changed(attempt=entry.attempt - 1)
            self.both(lambda ledger: ledger.finish(held, outcome, reason="why"))

    @rule(number=st.integers(1, 12), lease=st.integers(1, 9))
    def start_and_renew(self, number: int, lease: int) -> None:
        entry = self.memory.get(f"e{number:06d}")
        if entry is not None:
            self.both(lambda ledger: ledger.start(entry))
            self.both(lambda ledger: ledger.renew(entry, lease_ns=lease))

    @rule(number=st.integers(1, 12))
    def undeliver(self, number: int) -> None:
        entry = self.memory.get(f"e{number:06d}")
        if entry is not None:
            self.both(lambda ledger: ledger.undeliver(entry))

    @rule(number=st.integers(1, 14), resolution=st.sampled_from(Resolution), version=st.integers(0, 9))
    def settle(self, number: int, resolution: Resolution, version: int) -> None:
        entry = self.memory.get(f"e{number:06d}")
        version = version if version < 2 or entry is None else entry.version
        self.both(lambda ledger: ledger.settle(f"e{number:06d}", resolution, who="ann", note="n", version=version))

    @rule(number=st.integers(1, 12), digest=digests)
    def set_digest(self, number: int, digest: Any) -> None:
        self.both(lambda ledger: ledger.set_digest(f"e{number:06d}", digest))

    @rule()
    def expire(self) -> None:
        self.both(lambda ledger: set(ledger.expire()))

    @rule(scope=scopes, tool=tools, digest=digests, call_id=call_ids)
    def look(self, scope: str, tool: str, digest: str | None, call_id: str | None) -> None:
        self.both(lambda ledger: set(ledger.by_action(scope, tool, digest)))
        self.both(lambda ledger: set(ledger.by_call(scope, call_id or "")))
        self.both(lambda ledger: ledger.is_unknown(scope, tool))

    @invariant()
    def the_two_agree(self) -> None:
        if hasattr(self, "memory"):
            self.both(lambda ledger: ledger.counts())
            self.both(lambda ledger: ledger.pending(limit=2))
            self.steps += 1
            if self.steps % 7:
                return
            for held in self.memory._shelf.everything():
                entry_id = held[0] if isinstance(held, tuple) else held.entry_id
                self.both(lambda ledger, entry_id=entry_id: ledger.get(entry_id))


def test_it_says_the_same_as_the_one_in_memory(shared: Shared) -> None:
    machine = type("Machine", (SharedAgainstMemory,), {"shared": shared})
    examples = settings(
        max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    run_state_machine_as_test(machine, settings=examples)


def test_a_claim_leaves_a_lease_that_ran_out_alone_that_is_of_another_action(shared: Shared) -> None:
    now = [1_000]
    ledger = shared.make(clock=lambda: now[0])
    for digest in ("d1", "d2"):
        assert isinstance(ledger.claim(Claim("s", "pay", digest=digest, lease_ns=1)), Granted)
        now[0] += 10
    assert ledger.counts()[State.CLAIMED] == 2


def test_what_is_lost_is_found_whatever_else_has_had_a_lease(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further attempts of idempotent tools have leases, too; these end, with the attempt or in time."""
    monkeypatch.setattr("genai_processor.ledger.shared._AT_ONCE", 4)
    now, asked = [1_000], itertools.count()

    def clock() -> int:
        assert next(asked) < 200, "it looks at the same entries for ever"
        return now[0]

    ledger = shared.make(clock=clock)

    def claim(call_id: str, effect: str) -> Entry:
        answer = ledger.claim(Claim("s", "pay", call_id, digest=call_id, effect=effect, lease_ns=1))
        assert isinstance(answer, Granted)
        return answer.entry

    for number in range(12):
        ledger.finish(claim(f"toolu_{number}again", "idempotent"), Outcome.RETURNED)
        again = claim(f"toolu_{number}again", "idempotent")
        if number % 2:
            ledger.finish(again, Outcome.RETURNED)
    now[0] += 10
    lost = claim("toolu_lost", "non_idempotent")
    now[0] += 10
    assert [entry.entry_id for entry in ledger.expire()] == [lost.entry_id]
    assert ledger.expire() == ()


def test_no_operation_looks_after_many_claims_at_once(shared: Shared) -> None:
    """PostgreSQL with 20 connections has 1,280 locks for all its sessions, and six are taken for each entry."""
    now = [1_000]
    ledger, at_once = shared.make(clock=lambda: now[0]), list[int]()
    for number in range(150):
        assert isinstance(ledger.claim(Claim("s", "pay", f"toolu_{number}", digest=f"{number}", lease_ns=1)), Granted)
    now[0] += 10
    ask = ledger._store.ask

    def counted(request: Request, deadline: float) -> Reply:
        at_once.append(len(request.writes))
        return ask(request, deadline)

    ledger._store.ask = counted  # type: ignore[method-assign]
    assert len(ledger.expire()) == 150
    assert max(at_once) <= 100
