# SPDX-License-Identifier: Apache-2.0
"""Checks of `genai_processor.ledger.conformance`: many threads, and many connections, at one time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from genai_processor.errors import InvalidTransitionError, LedgerConflictError
from genai_processor.ledger.conformance_bench import Bench, expect
from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.protocol import Ledger
from genai_processor.ledger.requests import Granted, Refusal, RefusalReason

_AT_ONCE: Final = 8
_ROUNDS: Final = 4


def _threads(at: Bench) -> list[Ledger]:
    return [at.ledger] * _AT_ONCE


def _connections(at: Bench) -> list[Ledger]:
    return [at.connect() for _ in range(_AT_ONCE)]


def _of_many_claims_at_once_one_is_granted(at: Bench) -> None:
    _race_for_a_call(at, _threads(at))


def _of_many_turns_at_once_one_is_granted(at: Bench) -> None:
    _race_for_an_action(at, _threads(at))


def _of_many_people_at_once_one_settles(at: Bench) -> None:
    _race_to_settle(at, _threads(at))


def _of_many_connections_one_is_granted(at: Bench) -> None:
    _race_for_a_call(at, _connections(at))


def _of_many_turns_of_many_connections_one_is_granted(at: Bench) -> None:
    _race_for_an_action(at, _connections(at))


def _of_many_people_at_many_connections_one_settles(at: Bench) -> None:
    _race_to_settle(at, _connections(at))


def _race_for_a_call(at: Bench, ledgers: Sequence[Ledger]) -> None:
    for number in range(_ROUNDS):
        wish = at.wish(f"toolu_{number}x", digest=f"d{number}")
        _one_is_granted(_at_once([partial(ledger.claim, wish) for ledger in ledgers]), RefusalReason.CALL_REPEATED)


def _race_for_an_action(at: Bench, ledgers: Sequence[Ledger]) -> None:
    for number in range(_ROUNDS):
        wishes = [at.wish(f"toolu_{number}x{turn}", digest=f"d{number}", turn=f"t{turn}") for turn in range(len(ledgers))]
        asked = [partial(ledger.claim, wish) for ledger, wish in zip(ledgers, wishes, strict=True)]
        _one_is_granted(_at_once(asked), RefusalReason.ACTION_IN_FLIGHT)


def _one_is_granted(answers: Sequence[object], otherwise: RefusalReason) -> None:
    granted = sum(isinstance(answer, Granted) for answer in answers)
    expect(granted == 1, f"{granted} of {len(answers)} were granted")
    odd = [answer for answer in answers if isinstance(answer, Refusal) and answer.reason is not otherwise]
    expect(not odd, f"the others are refused as {otherwise}, and there was {odd}")


def _race_to_settle(at: Bench, ledgers: Sequence[Ledger]) -> None:
    for number in range(_ROUNDS):
        entry = at.failed(f"toolu_{number}x", digest=f"d{number}")
        answers = _at_once(
            [
                partial(ledger.settle, entry.entry_id, resolution, who=f"p{who}", note="seen", version=entry.version)
                for who, ledger in enumerate(ledgers)
                for resolution in [Resolution.COMMITTED if who % 2 else Resolution.NOT_COMMITTED]
            ],
            allowed=(LedgerConflictError, InvalidTransitionError),
        )
        settled = [answer for answer in answers if isinstance(answer, Entry)]
        expect(len(settled) == 1, f"{len(settled)} of {len(answers)} people settled one entry")
        expect(at.now(entry).settlement == settled[0].settlement, "the settlement is not that of who was told so")


def _at_once(asked: Sequence[Callable[[], object]], allowed: tuple[type[Exception], ...] = ()) -> list[object]:
    """Ask everything in a thread of its own, all at one time; returns the answers and the errors that are allowed."""
    barrier = threading.Barrier(len(asked))
    answers: list[object] = []

    def ask(question: Callable[[], object]) -> None:
        try:
            barrier.wait(30)
            answers.append(question())
        except Exception as error:  # noqa: BLE001 - shown below
            answers.append(error)

    threads = [threading.Thread(target=ask, args=[question], daemon=True) for question in asked]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that threads of one process interrupt each other within an operation
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    odd = [answer for answer in answers if isinstance(answer, Exception) and not isinstance(answer, allowed)]
    expect(not odd, f"raised {odd}")
    expect(len(answers) == len(asked), f"{len(answers)} of {len(asked)} were answered within a minute")
    return answers


def _what_one_notes_the_other_knows(at: Bench) -> None:
    entry = at.failed()
    other = at.connect()
    found = other.get(entry.entry_id)
    expect(found is not None and found.state is State.QUARANTINED, f"found {found}")
    answer = other.claim(at.wish("toolu_new1", turn="t2"))
    expect(isinstance(answer, Refusal), "what is quarantined here is refused there")


CHECKS: Final = (
    _of_many_claims_at_once_one_is_granted,
    _of_many_turns_at_once_one_is_granted,
    _of_many_people_at_once_one_settles,
)

SHARED_CHECKS: Final = (
    _of_many_connections_one_is_granted,
    _of_many_turns_of_many_connections_one_is_granted,
    _of_many_people_at_many_connections_one_settles,
    _what_one_notes_the_other_knows,
)
"""Of a store that several connections share."""
