# SPDX-License-Identifier: Apache-2.0
"""Whatever providers answer: nobody is asked too early or too often, and nothing is settled that is not proven."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from reconcile_helpers import SECOND, SETTLE_AFTER, World

from genai_processor.ledger import Entry, MemoryLedger, Outcome, Resolution, Sighting, State
from genai_processor.reconcile import Answer, Question
from genai_processor.reconcile.plan import LONGEST_DELAY_NS, SHORTEST_DELAY_NS, Trouble, delay_ns, trouble_after
from genai_processor.reconcile.records import Moment

SETTLE_AFTER_NS = int(SETTLE_AFTER * SECOND)
KEYS_LIVE_NS = 12 * 3600 * SECOND
ANSWERS = [*Answer, Answer.NOT_COMMITTED, Answer.NOT_COMMITTED, "error", "garbage"]


class Reconciling(RuleBasedStateMachine):
    """Calls of one tool come, change and wait; passes go over them."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(lambda clock: MemoryLedger(clock=clock))
        self.asked: dict[str, list[tuple[int, int, Any]]] = defaultdict(list)  # when, at which version, with what answer
        self.ids: list[str] = []
        self.checked: set[str] = set()

    @rule(kind=st.sampled_from(["guarded", "guarded", "unguarded", "undelivered", "nested", "running"]))
    def call(self, kind: str) -> None:
        world = self.world
        if kind == "unguarded":
            entry = world.unguarded()
        else:
            entry = world.claimed()
            if kind == "undelivered":
                world.ledger.undeliver(world.ledger.finish(entry, Outcome.RETURNED))
            elif kind == "nested":
                world.quarantined("mail", parent=entry.entry_id)
            elif kind == "guarded":
                world.ledger.finish(entry, Outcome.FAILED)
        self.ids.append(entry.entry_id)

    @rule(seconds=st.sampled_from([0.5, 14, 31, 150, 299, 301, 1_000, 4_000]))
    def time_passes(self, seconds: float) -> None:
        self.world.later(seconds)

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), change=st.sampled_from(["span", "end", "person"]))
    def somebody_changes_one(self, data: st.DataObject, change: str) -> None:
        entry = self.world.ledger.get(data.draw(st.sampled_from(self.ids)))
        assert entry is not None
        ledger = self.world.ledger
        if change == "span":
            ledger.record(Sighting(entry.scope, entry.tool, State.QUARANTINED, entry_id=entry.entry_id, trace_id="ab" * 16))
        elif change == "end" and entry.attempt:
            ledger.finish(entry, Outcome.FAILED)
        elif entry.pending:
            ledger.settle(entry.entry_id, Resolution.COMPENSATED, who="ann", note="undone", version=entry.version)

    @rule(
        wait=st.sampled_from([0, 0, 31, 301, 301, 4_000]),
        answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=8),
        dry_run=st.sampled_from([False, False, True]),
        jitter=st.floats(0, 1),
    )
    def a_pass(self, wait: float, answers: list[Any], dry_run: bool, jitter: float) -> None:
        self.world.later(wait)
        questions: list[tuple[Question, Entry | None, int]] = []

        def ask(question: Question) -> object:  # what fails in here would only be an error of the reconciler
            questions.append((question, self.world.ledger.get(question.entry_id), self.world.now))
            answer = answers[len(questions) % len(answers)]
            if answer == "error":
                raise OSError(answer)
            return answer

        self.world.run({"refund": ask}, dry_run=dry_run, jitter=lambda: jitter)
        for number, (question, entry, now) in enumerate(questions, 1):
            assert entry is not None
            # Only what is in doubt, known to the guard, and left in peace for long enough.
            assert entry.state is State.QUARANTINED
            assert entry.guarded
            assert not entry.child_uncertain
            assert question.key == entry.intent != ""
            assert now - entry.updated_ns >= SETTLE_AFTER_NS
            self.is_not_too_often(entry.entry_id, now)
            self.asked[entry.entry_id].append((now, entry.version, answers[number % len(answers)]))
            after = self.world.entry(entry)
            assert not dry_run or after == entry
        assert len(questions) == len({question.entry_id for question, _, _ in questions})

    def is_not_too_often(self, entry_id: str, now: int) -> None:
        fruitless, denied = 0, None
        for _, version, answer in self.asked[entry_id]:
            if answer == Answer.NOT_COMMITTED and denied != version:
                fruitless, denied = 0, version
                continue
            fruitless += 1
            denied = denied if answer not in (Answer.UNKNOWN, Answer.COMMITTED) else None
        if self.asked[entry_id]:
            rest = min(1800, 15 * 2 ** (fruitless - 1)) if fruitless else 0
            assert now - self.asked[entry_id][-1][0] >= rest * SECOND

    @invariant()
    def what_was_settled_was_proven(self) -> None:
        for entry_id in set(self.ids) - self.checked:
            entry = self.world.ledger.get(entry_id)
            assert entry is not None
            if entry.settlement is None or entry.settlement.who == "ann":
                continue
            self.checked.add(entry_id)
            *before, (when, version, answer) = self.asked[entry_id]
            assert answer == entry.settlement.resolution
            assert entry.version == version + 1
            assert entry.settlement.resolution in (Resolution.COMMITTED, Resolution.NOT_COMMITTED)
            if answer == Answer.COMMITTED:
                continue
            assert when - entry.created_ns <= KEYS_LIVE_NS
            unbroken: list[int] = []
            for earlier, earlier_version, said in before:
                if said in (Answer.UNKNOWN, Answer.COMMITTED) or earlier_version != version:
                    unbroken.clear()
                elif said == Answer.NOT_COMMITTED:
                    unbroken.append(earlier)
            assert unbroken
            assert when - unbroken[0] >= SETTLE_AFTER_NS


TestReconciling = Reconciling.TestCase
TestReconciling.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_the_rest_grows_up_to_a_bound_and_jitter_takes_at_most_half_of_it(times: int, jitter: float) -> None:
    longest = min(LONGEST_DELAY_NS, SHORTEST_DELAY_NS * 2 ** min(times - 1, 20))
    assert longest / 2 <= delay_ns(times, jitter) <= longest
    assert delay_ns(times, jitter) <= delay_ns(times + 1, jitter)


def test_a_reconciler_rests_after_the_third_error_in_a_row_and_after_the_first_time_out() -> None:
    at = Moment(0, 0)
    trouble: Trouble | None = None
    rests = []
    for _ in range(5):
        trouble = trouble_after(trouble, at, 1.0, timed_out=False)
        rests.append(trouble.not_before_ns)
    assert rests == [0, 0, SHORTEST_DELAY_NS, 2 * SHORTEST_DELAY_NS, 4 * SHORTEST_DELAY_NS]
    assert trouble_after(None, at, 1.0, timed_out=True).not_before_ns == SHORTEST_DELAY_NS
