# SPDX-License-Identifier: Apache-2.0
"""Calls inside a call, of which the ledger of that one knows nothing; and results that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from genai_processor import Guard, not_executed
from genai_processor.errors import LedgerUnavailableError
from genai_processor.guard.calls import Call
from genai_processor.guard.running import Manners, arun, run
from genai_processor.ledger import MemoryLedger, State


class Away(MemoryLedger):
    """A ledger that goes away."""

    is_away = False

    def claim(self, *args: Any, **options: Any) -> Any:
        if self.is_away:
            raise LedgerUnavailableError("no connection")
        return super().claim(*args, **options)


def _while_away(mode: str) -> tuple[Guard, Guard]:
    guard = Guard(Away(), mode=mode, scope="c1")
    return guard, guard


def _elsewhere(mode: str) -> tuple[Guard, Guard]:
    return Guard(mode=mode, scope="c1"), Guard(mode=mode, scope="c1")


def _stand(guard: Guard) -> list[str]:
    return [state.value for state, number in guard.ledger.counts().items() if number]


@pytest.mark.parametrize("mode", ["observe", "enforce"])
@pytest.mark.parametrize("guards", [_while_away, _elsewhere])
@pytest.mark.parametrize("deep", [False, True], ids=["", "in one that is read-only"])
@pytest.mark.parametrize(
    ("inner_fails", "outer_rejects", "state"),
    [(False, False, "completed"), (True, False, "quarantined"), (False, True, "quarantined"), (True, True, "quarantined")],
)
def test_a_call_that_the_ledger_knows_nothing_of_bears_on_the_call_around_it(
    guards: Callable[[str], tuple[Guard, Guard]], mode: str, deep: bool, inner_fails: bool, outer_rejects: bool, state: str
) -> None:
    outer, inner = guards(mode)
    done = []

    @inner.tool(effect="idempotent")
    def charge(order: int) -> None:
        done.append(order)
        if inner_fails:
            raise TimeoutError

    @inner.tool(effect="read_only")
    def ask(order: int) -> None:
        charge(order)

    @outer.tool()
    def pay(order: int) -> None:
        if isinstance(outer.ledger, Away):
            outer.ledger.is_away = True
        with suppress(TimeoutError):
            ask(order) if deep else charge(order)
        if isinstance(outer.ledger, Away):
            outer.ledger.is_away = False
        if outer_rejects:
            not_executed()
            raise ValueError

    with suppress(ValueError):
        pay(1)
    assert (done, _stand(outer)) == ([1], [state])


def test_a_read_only_call_makes_no_rejection_unbelievable() -> None:
    guard = Guard(scope="c1")

    @guard.tool(effect="read_only")
    def look(order: int) -> None:
        raise TimeoutError

    @guard.tool(not_started_on=(TimeoutError,))
    def pay(order: int) -> None:
        look(order)

    with pytest.raises(TimeoutError):
        pay(1)
    assert _stand(guard) == [State.NOT_STARTED.value]


# -- results that cannot be read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
@pytest.mark.parametrize("what", ["failure", "pauses"])
def test_a_result_that_cannot_be_read_reaches_its_caller_and_is_in_doubt(tmp_path: Path, url: str, what: str) -> None:
    def read(value: Any) -> Any:
        raise RuntimeError("no session")

    guard = Guard(url if url == "memory:" else f"sqlite:///{tmp_path}/ledger.db", scope="c1", mode="observe")
    manners = Manners(**{what: read})

    async def body() -> str:
        return "paid"

    assert run(guard, Call("pay", None, {"order": 1}), lambda: "paid", manners) == "paid"
    assert asyncio.run(arun(guard, Call("pay", None, {"order": 2}), body, manners)) == "paid"
    assert guard.ledger.counts()[State.QUARANTINED] == 2
