# SPDX-License-Identifier: Apache-2.0
"""What a pass settles, and all that it leaves alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from reconcile_helpers import SETTLE_AFTER, Provider, World, only

from genai_processor.errors import LedgerUnavailableError
from genai_processor.ledger import Bounds, Claim, Entry, Granted, MemoryLedger, Outcome, Refusal, Resolution, Sighting, State
from genai_processor.ledger.keys import idempotency_key_of
from genai_processor.reconcile import Answer, Asked, NotAsked, Question, Report, reconcile
from genai_processor.reconcile import Outcome as Came

# -- what is proven --------------------------------------------------------------------------------------------------


def test_committed_settles_and_says_who_asked_what(world: World) -> None:
    entry = world.quarantined()
    world.later(SETTLE_AFTER)
    report = world.run({"refund": Provider(Answer.COMMITTED)})
    assert only(report) == Asked(entry.entry_id, "refund", "refund", Answer.COMMITTED, Came.SETTLED)
    settled = world.entry(entry).settlement
    assert settled is not None
    assert settled.resolution is Resolution.COMMITTED
    assert settled.who == "reconciler refund"
    assert settled.note == f"asked by idempotency key {entry.intent} at 1970-01-12 13:51:40Z: answered committed"


def test_the_question_has_the_key_of_the_intent_and_what_is_known_of_the_call(world: World) -> None:
    entry = world.quarantined(trace_id="ab" * 16, span_id="cd" * 8)
    world.later(SETTLE_AFTER)
    provider = Provider(Answer.UNKNOWN)
    world.run({"refund": provider})
    assert provider.asked == [
        Question(
            entry_id=entry.entry_id,
            tool="refund",
            key=entry.intent,
            scope="conversation-1",
            call_id="toolu_1x",
            created_ns=entry.created_ns,
            updated_ns=entry.updated_ns,
            attempt=1,
            trace_id="ab" * 16,
            span_id="cd" * 8,
        )
    ]


def denied_twice(world: World, provider: Provider) -> Report:
    world.later(SETTLE_AFTER)
    first = world.run({"refund": provider})
    assert {one.outcome for one in first.asked} == {Came.TO_CONFIRM}
    assert first.confirm_in_seconds == SETTLE_AFTER
    world.later(SETTLE_AFTER)
    return world.run({"refund": provider})


def test_not_committed_twice_releases_exactly_one_attempt_under_the_same_key(world: World) -> None:
    entry = world.quarantined(digest="d", turn="t1")
    report = denied_twice(world, Provider(Answer.NOT_COMMITTED))
    assert only(report).outcome is Came.SETTLED
    assert world.entry(entry).resolution is Resolution.NOT_COMMITTED
    again = world.claimed(digest="d", turn="t2")
    assert again.released_by == entry.entry_id
    assert idempotency_key_of(again) == idempotency_key_of(entry)
    refused = world.ledger.claim(Claim("conversation-1", "refund", "toolu_3x", "d", "t3"))
    assert isinstance(refused, Refusal)


def test_the_note_of_a_release_says_that_it_was_answered_twice(world: World) -> None:
    entry = world.quarantined()
    denied_twice(world, Provider(Answer.NOT_COMMITTED))
    settled = world.entry(entry).settlement
    assert settled is not None
    assert "answered not_committed, twice, at least 300 s apart" in settled.note


def test_not_committed_is_not_asked_again_before_the_settling_time_is_over(world: World) -> None:
    entry = world.quarantined()
    provider = Provider(Answer.NOT_COMMITTED)
    world.later(SETTLE_AFTER)
    for _ in range(3):
        world.run({"refund": provider})
        world.later(SETTLE_AFTER / 4)
    assert len(provider.asked) == 1
    assert world.entry(entry).state is State.QUARANTINED


def test_a_process_that_begins_anew_has_to_hear_it_twice_again(world: World) -> None:
    entry = world.quarantined()
    world.later(SETTLE_AFTER)
    for _ in range(4):
        report = reconcile(world.ledger, {"refund": Provider(Answer.NOT_COMMITTED)}, clock=world.moment)
        assert only(report).outcome is Came.TO_CONFIRM
        world.later(SETTLE_AFTER)
    assert world.entry(entry).state is State.QUARANTINED


@pytest.mark.parametrize("between", [Answer.UNKNOWN, Answer.COMMITTED], ids=str)
def test_a_provider_that_contradicts_itself_has_to_begin_again(world: World, between: Answer) -> None:
    entry = world.quarantined()
    provider = Provider(Answer.NOT_COMMITTED)
    world.later(SETTLE_AFTER)
    for answer in (Answer.NOT_COMMITTED, between, Answer.NOT_COMMITTED):
        provider.answer = answer
        report = world.run({"refund": provider}, dry_run=True)
        world.later(2 * SETTLE_AFTER)
    assert only(report).outcome is Came.TO_CONFIRM
    assert world.entry(entry).state is State.QUARANTINED


def test_an_error_between_two_denials_neither_counts_nor_spoils_them(world: World) -> None:
    entry = world.quarantined()
    provider = Provider(Answer.NOT_COMMITTED)
    world.later(SETTLE_AFTER)
    for answer in (Answer.NOT_COMMITTED, OSError("down"), Answer.NOT_COMMITTED):
        provider.answer = answer
        world.run({"refund": provider})
        world.later(SETTLE_AFTER)
    assert world.entry(entry).resolution is Resolution.NOT_COMMITTED


def test_a_call_that_changed_between_two_denials_has_to_be_denied_twice_again(world: World) -> None:
    entry = world.quarantined(digest=None)
    provider = Provider(Answer.NOT_COMMITTED)
    world.later(SETTLE_AFTER)
    world.run({"refund": provider})
    world.ledger.set_digest(entry.entry_id, "d")
    world.later(SETTLE_AFTER)
    assert only(world.run({"refund": provider})).outcome is Came.TO_CONFIRM
    world.later(SETTLE_AFTER)
    assert only(world.run({"refund": provider})).outcome is Came.SETTLED


def test_without_a_settling_time_two_passes_still_have_to_deny_it(world: World) -> None:
    world.quarantined()
    outcomes = [only(world.run({"refund": Provider("not_committed")}, settle_after=0)).outcome for _ in range(2)]
    assert outcomes == [Came.TO_CONFIRM, Came.SETTLED]


# -- a denial that proves nothing ------------------------------------------------------------------------------------


def test_a_call_older_than_the_keys_of_the_provider_is_never_released_but_may_be_found_committed(world: World) -> None:
    entry = world.quarantined()
    world.later(12 * 3600 + 1)
    provider = Provider(Answer.NOT_COMMITTED)
    for _ in range(3):
        one = only(world.run({"refund": provider}))
        assert one.outcome is Came.LEFT
        assert one.detail is not None
        assert "forgotten its key" in one.detail
        world.later(3600)
    provider.answer = Answer.COMMITTED
    world.run({"refund": provider})
    assert world.entry(entry).resolution is Resolution.COMMITTED


def test_a_call_whose_key_may_have_been_forgotten_between_two_denials_is_not_released(world: World) -> None:
    entry = world.quarantined()
    world.later(12 * 3600 - SETTLE_AFTER + 1)
    provider = Provider(Answer.NOT_COMMITTED)
    outcomes = []
    for _ in range(2):
        outcomes.append(only(world.run({"refund": provider})).outcome)
        world.later(SETTLE_AFTER)
    assert outcomes == [Came.TO_CONFIRM, Came.LEFT]
    assert world.entry(entry).state is State.QUARANTINED


@pytest.mark.parametrize("end", [None, Outcome.RETURNED, Outcome.FAILED])
def test_an_intent_with_another_attempt_that_was_only_observed_is_not_released(world: World, end: Outcome | None) -> None:
    first = world.quarantined(digest="d")
    second = world.claimed(digest="d", observe=True)
    assert idempotency_key_of(first) == idempotency_key_of(second)
    if end is not None:
        world.ledger.finish(second, end)
    report = denied_twice(world, Provider(Answer.NOT_COMMITTED))
    assert {one.outcome for one in report.asked} == {Came.LEFT}
    assert world.ledger.counts()[State.SETTLED] == 0


def test_a_second_attempt_after_a_release_can_be_released_in_its_turn(world: World) -> None:
    world.quarantined(digest="d")
    denied_twice(world, Provider(Answer.NOT_COMMITTED))
    world.quarantined(digest="d")
    assert only(denied_twice(world, Provider(Answer.NOT_COMMITTED))).outcome is Came.SETTLED


def test_a_call_whose_arguments_are_unknown_is_not_released(world: World) -> None:
    world.quarantined(digest=None)
    assert only(denied_twice(world, Provider(Answer.NOT_COMMITTED))).outcome is Came.LEFT


def test_where_the_ledger_had_to_forget_calls_of_the_tool_nothing_is_released() -> None:
    world = World(lambda clock: MemoryLedger(Bounds(max_entries=1), clock=clock))
    world.quarantined()
    world.quarantined()
    one = only(denied_twice(world, Provider(Answer.NOT_COMMITTED)))
    assert one.outcome is Came.LEFT
    assert one.detail is not None
    assert "forget" in one.detail


@pytest.mark.parametrize("agents_between", [0, 1])
def test_of_two_calls_inside_each_other_whose_key_was_sent_is_not_known(world: World, agents_between: int) -> None:
    around = world.claimed("refund")
    for _ in range(agents_between):
        around = world.claimed("billing_agent", parent=around.entry_id)
    entry = world.quarantined("refund", parent=around.entry_id)
    one = only(denied_twice(world, Provider(Answer.NOT_COMMITTED)))
    assert (one.entry_id, one.outcome) == (entry.entry_id, Came.LEFT)


def test_a_call_inside_an_agent_that_no_reconciler_answers_for_is_released(world: World) -> None:
    world.quarantined(parent=world.claimed("billing_agent").entry_id)
    assert only(denied_twice(world, Provider(Answer.NOT_COMMITTED))).outcome is Came.SETTLED


# -- what settles nothing --------------------------------------------------------------------------------------------


def test_unknown_is_left_for_a_person(world: World) -> None:
    entry = world.quarantined()
    world.later(SETTLE_AFTER)
    assert only(world.run({"refund": Provider(Answer.UNKNOWN)})).outcome is Came.LEFT
    assert world.entry(entry) == entry


class Written:
    """Looks like an answer where it is printed."""

    def __str__(self) -> str:
        return "committed"

    def __repr__(self) -> str:
        return "Written()"


ODD = [
    True,
    None,
    1,
    "",
    "COMMITTED",
    b"committed",
    Resolution.COMPENSATED,
    {"status": "committed"},
    ["committed"],
    Written(),
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_what_is_no_answer_settles_nothing(world: World, odd: object) -> None:
    entry = world.quarantined()
    world.later(SETTLE_AFTER)
    one = only(world.run({"refund": Provider(odd)}))
    assert (one.answer, one.outcome) == (None, Came.FAILED)
    assert world.entry(entry) == entry


@pytest.mark.parametrize("error", [OSError("token=s3cret"), SystemExit(0), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_an_exception_settles_nothing_and_its_text_is_not_repeated(world: World, error: BaseException) -> None:
    entry = world.quarantined()
    world.later(SETTLE_AFTER)
    one = only(world.run({"refund": Provider(error)}))
    assert one.outcome is Came.FAILED
    assert one.detail is not None
    assert one.detail.startswith(f"raised {type(error).__name__} at reconcile_helpers.py:")
    assert "s3cret" not in repr(one)
    assert world.entry(entry) == entry


def test_a_resolution_of_the_same_name_and_its_plain_text_are_answers(world: World) -> None:
    for answer in (Resolution.COMMITTED, "committed"):
        entry = world.quarantined()
        world.later(SETTLE_AFTER)
        world.run({"refund": Provider(answer)})
        assert world.entry(entry).resolution is Resolution.COMMITTED


def test_a_dry_run_asks_and_changes_nothing(world: World) -> None:
    entry = world.quarantined()
    orphan = world.claimed(lease_ns=1)
    world.later(SETTLE_AFTER)
    report = world.run({"refund": Provider(Answer.COMMITTED)}, dry_run=True)
    assert only(report).outcome is Came.WOULD_SETTLE
    assert [world.entry(entry), world.entry(orphan)] == [entry, orphan]


# -- who is not asked about ------------------------------------------------------------------------------------------


def undelivered(world: World) -> Entry:
    return world.ledger.undeliver(world.ledger.finish(world.claimed(), Outcome.RETURNED))


def nested(world: World) -> Entry:
    around = world.claimed("refund")
    world.quarantined("mail", parent=around.entry_id)
    return world.entry(around)


def running(world: World) -> Entry:
    """An idempotent call that failed, and that the guard let begin once more under its id."""
    facts = {"call_id": "toolu_own", "digest": "d", "effect": "idempotent"}
    world.quarantined(**facts)
    return world.claimed(**facts, lease_ns=10**15)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (World.unguarded, NotAsked.UNGUARDED),
        (World.read_only, NotAsked.READ_ONLY),
        (undelivered, NotAsked.UNDELIVERED),
        (nested, NotAsked.NESTED),
        (running, NotAsked.RUNNING),
    ],
)
def test_a_key_that_says_nothing_is_not_asked_by(world: World, make: Callable[[World], Entry], why: NotAsked) -> None:
    entry = make(world)
    world.later(SETTLE_AFTER)
    provider = Provider(Answer.COMMITTED)
    report = world.run({"refund": provider})
    assert provider.asked == []
    assert report.not_asked[why] == 1
    assert world.entry(entry) == entry


def test_a_further_attempt_that_goes_on_is_not_asked_about_however_long_it_takes(world: World) -> None:
    facts = {"call_id": "toolu_own", "digest": "d", "effect": "idempotent"}
    world.quarantined(**facts)
    entry = world.claimed(**facts, lease_ns=2 * int(SETTLE_AFTER) * 10**9)
    for _ in range(5):
        world.later(SETTLE_AFTER)
        entry = world.ledger.renew(entry, lease_ns=2 * int(SETTLE_AFTER) * 10**9)
    world.later(SETTLE_AFTER)
    provider = Provider(Answer.NOT_COMMITTED)
    assert world.run({"refund": provider}).not_asked[NotAsked.RUNNING] == 1
    assert provider.asked == []


def test_a_call_is_asked_about_only_after_the_settling_time(world: World) -> None:
    world.quarantined()
    provider = Provider(Answer.COMMITTED)
    world.later(SETTLE_AFTER - 0.001)
    assert world.run({"refund": provider}).not_asked == {NotAsked.YOUNG: 1}
    world.later(0.001)
    assert len(world.run({"refund": provider}).asked) == 1


def test_a_call_that_a_faster_clock_has_changed_in_the_future_is_young(world: World) -> None:
    world.quarantined()
    world.later(-3600)
    assert world.run({"refund": Provider(Answer.COMMITTED)}).not_asked == {NotAsked.YOUNG: 1}


def test_a_claim_whose_process_is_gone_is_quarantined_and_asked_about_after_the_settling_time(world: World) -> None:
    orphan = world.claimed(lease_ns=1)
    world.later(SETTLE_AFTER)
    report = world.run({"refund": Provider(Answer.COMMITTED)})
    assert (report.orphaned, report.asked) == (1, ())
    world.later(SETTLE_AFTER)
    world.run({"refund": Provider(Answer.COMMITTED)})
    assert world.entry(orphan).resolution is Resolution.COMMITTED


def test_the_name_of_a_tool_goes_before_a_glob_and_the_first_glob_before_the_second(world: World) -> None:
    for tool in ("refund", "refund_all", "mail", "Refund"):
        world.quarantined(tool)
    world.later(SETTLE_AFTER)
    globs = {"refund_*": Provider("unknown"), "ref*": Provider("unknown"), "refund": Provider("unknown")}
    report = world.run(globs)
    assert [(one.tool, one.reconciler) for one in report.asked] == [("refund", "refund"), ("refund_all", "refund_*")]
    assert report.not_asked == {NotAsked.NO_RECONCILER: 2}


@pytest.mark.parametrize("name", ["refund", "ref*"])
def test_few_calls_with_a_reconciler_are_found_among_many_without(name: str) -> None:
    world = World(lambda clock: MemoryLedger(clock=clock))
    for number in range(10_000):
        world.quarantined("refund" if number % 2_500 == 1_250 else "mail", scope=f"conversation-{number}")
    world.later(SETTLE_AFTER)
    report = world.run({name: Provider(Answer.COMMITTED)})
    assert report.count(Came.SETTLED) == 4
    assert report.not_asked == {NotAsked.NO_RECONCILER: 9_996}


def test_more_calls_than_a_page_holds_are_all_settled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genai_processor.reconcile.run._PAGE", 4)
    entries = [world.quarantined() for _ in range(15)]
    world.later(SETTLE_AFTER)
    report = world.run({"refund": Provider(Answer.COMMITTED)})
    assert [one.entry_id for one in report.asked] == [entry.entry_id for entry in entries]
    assert world.ledger.pending().entries == ()


# -- somebody else ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["a person", "the body", "a span"])
def test_whoever_was_faster_is_not_overruled(world: World, end: str) -> None:
    entry = world.claimed()
    lost = world.ledger.finish(entry, Outcome.FAILED)
    world.later(SETTLE_AFTER)

    def ask(question: Question) -> Answer:
        if end == "a person":
            world.ledger.settle(lost.entry_id, Resolution.COMPENSATED, who="ann", note="undone", version=lost.version)
        elif end == "the body":
            world.ledger.finish(entry, Outcome.RETURNED)
        else:
            world.ledger.record(Sighting("conversation-1", "refund", State.QUARANTINED, lost.call_id, trace_id="ab" * 16))
        return Answer.COMMITTED

    assert only(world.run({"refund": ask})).outcome is Came.OVERTAKEN
    settlement = world.entry(entry).settlement
    assert settlement is None or settlement.who == "ann"


def test_a_pass_that_is_told_to_stop_ends_after_its_question(world: World) -> None:
    for _ in range(3):
        world.quarantined()
    world.later(SETTLE_AFTER)
    provider = Provider(Answer.COMMITTED)
    report = world.run({"refund": provider}, stop=lambda: len(provider.asked) == 2)
    assert (len(report.asked), report.complete) == (2, False)


# -- time-outs and threads -------------------------------------------------------------------------------------------


def test_a_slow_reconciler_holds_others_up_for_its_time_out_once_and_settles_nothing_later(world: World) -> None:
    slow = [world.quarantined("refund") for _ in range(5)]
    quick = [world.quarantined("mail") for _ in range(5)]
    world.later(SETTLE_AFTER)
    release = threading.Event()
    answered = threading.Event()

    def hangs(question: Question) -> Answer:
        release.wait()
        answered.set()
        return Answer.COMMITTED

    reconcilers = {"refund": hangs, "mail": Provider(Answer.COMMITTED)}
    began = time.monotonic()
    report = world.run(reconcilers, timeout=0.3)
    assert time.monotonic() - began < 5 * 0.3
    assert report.count(Came.SETTLED) == len(quick)
    assert report.count(Came.FAILED) == 1
    assert report.not_asked == {NotAsked.RECONCILER_BUSY: 4}
    world.later(24 * 3600)  # as long as its thread runs, no second one is begun
    assert world.run(reconcilers, timeout=0.3).not_asked == {NotAsked.RECONCILER_BUSY: 5}
    release.set()
    assert answered.wait(30)
    assert [world.entry(entry).state for entry in slow] == [State.QUARANTINED] * 5


def test_a_reconciler_may_be_a_coroutine_function(world: World) -> None:
    entry = world.quarantined()
    world.later(SETTLE_AFTER)

    async def ask(question: Question) -> Answer:
        await asyncio.sleep(0)
        return Answer.COMMITTED

    world.run({"refund": ask})
    assert world.entry(entry).resolution is Resolution.COMMITTED


def test_a_coroutine_that_is_late_is_cancelled_and_settles_nothing(world: World) -> None:
    entry = world.quarantined()
    world.later(SETTLE_AFTER)
    cancelled = threading.Event()

    async def ask(question: Question) -> Answer:
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()
        return Answer.COMMITTED

    one = only(world.run({"refund": ask}, timeout=0.2))
    assert (one.outcome, one.detail) == (Came.FAILED, "no answer within 0.2 s")
    assert cancelled.wait(30)
    assert world.entry(entry) == entry


def test_a_time_out_of_the_reconciler_itself_is_an_error_like_others(world: World) -> None:
    world.quarantined()
    world.later(SETTLE_AFTER)

    async def ask(question: Question) -> Answer:
        raise TimeoutError

    detail = only(world.run({"refund": ask})).detail
    assert detail is not None
    assert detail.startswith("raised TimeoutError at test_reconcile.py:")


# -- what is passed to it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([("refund", print)], "must be a mapping"),
        ({"refund": "ask"}, "must be a function, but is a str"),
        ({" ": print}, "under the name or a glob"),
        ({None: print}, "under the name or a glob"),
    ],
)
def test_what_is_no_mapping_of_functions_is_refused(given: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        reconcile(MemoryLedger(), given)


@pytest.mark.parametrize("name", ["settle_after", "keys_live", "timeout"])
@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_what_is_no_number_of_seconds_is_refused(name: str, seconds: float) -> None:
    options: dict[str, Any] = {name: seconds}
    with pytest.raises(ValueError, match=f"{name} must be a number of seconds"):
        reconcile(MemoryLedger(), {}, **options)


def test_a_ledger_that_cannot_be_asked_is_the_callers_to_see(world: World) -> None:
    class Gone(MemoryLedger):
        def pending(self, *args: Any, **options: Any) -> Any:
            raise LedgerUnavailableError("no connection")

    with pytest.raises(LedgerUnavailableError):
        reconcile(Gone(), {"refund": Provider(Answer.COMMITTED)})


def test_the_key_is_the_intent_of_the_entry(world: World) -> None:
    granted = world.ledger.claim(Claim("conversation-1", "refund", "toolu_1x", "d1", "t1"))
    assert isinstance(granted, Granted)
    assert idempotency_key_of(granted.entry) == granted.entry.intent != ""


# -- a provider that is down -----------------------------------------------------------------------------------------


def test_a_provider_that_is_down_is_not_asked_about_every_call(world: World) -> None:
    for _ in range(20):
        world.quarantined()
    world.later(SETTLE_AFTER)
    provider = Provider(OSError("down"))
    report = world.run({"refund": provider})
    assert (len(provider.asked), report.not_asked) == (3, {NotAsked.RECONCILER_BACKING_OFF: 17})
    world.later(30)
    world.run({"refund": provider})
    assert len(provider.asked) == 4  # one tries whether it is back
    provider.answer = Answer.COMMITTED
    world.later(3600)
    world.run({"refund": provider})
    assert world.ledger.counts()[State.SETTLED] == 20


def test_errors_with_answers_between_them_are_no_outage(world: World) -> None:
    for _ in range(9):
        world.quarantined()
    world.later(SETTLE_AFTER)
    asked: list[Question] = []

    def ask(question: Question) -> Answer:
        asked.append(question)
        if len(asked) % 3:
            raise OSError("no such order")
        return Answer.UNKNOWN

    world.run({"refund": ask})
    assert len(asked) == 9


def test_one_call_that_always_fails_does_not_keep_others_from_being_settled(world: World) -> None:
    entries = [world.quarantined() for _ in range(10)]
    world.later(SETTLE_AFTER)

    def ask(question: Question) -> Answer:
        if question.entry_id == entries[0].entry_id:
            raise OSError("no such order")
        return Answer.COMMITTED

    for _ in range(5):
        world.run({"refund": ask})
    assert world.ledger.counts()[State.SETTLED] == 9


def test_what_is_remembered_is_no_more_than_what_waits(world: World) -> None:
    entries = [world.quarantined() for _ in range(3)]
    world.later(SETTLE_AFTER)
    world.run({"refund": Provider(Answer.UNKNOWN)})
    assert len(world.memory._tried) == 3
    for entry in entries:
        world.ledger.settle(entry.entry_id, Resolution.COMMITTED, who="ann", note="seen", version=entry.version)
    world.run({"refund": Provider(Answer.UNKNOWN)})
    assert world.memory._tried == {}


def test_a_call_of_which_nothing_is_known_is_asked_about_less_and_less_often(world: World) -> None:
    world.quarantined()
    world.later(SETTLE_AFTER)
    asked = []
    for second in range(0, 300, 10):
        if world.run({"refund": Provider(Answer.UNKNOWN)}).asked:
            asked.append(second)
        world.later(10)
    assert asked == [0, 30, 90, 210]
