# SPDX-License-Identifier: Apache-2.0
"""What the model of a story answers, turn by turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

Call = tuple[str, str, dict[str, Any]]
"""What a model proposes: id, tool and arguments."""

Turn = str | Exception | list[Call] | Callable[[], NoReturn]
"""What a model answers: a text, calls, or the error that its user gets; or what ends the process that asks it."""

Script = tuple[Turn, ...]

FIRST, SECOND, THIRD = "toolu_a1", "toolu_b2", "toolu_c3"
"""Ids as services make them: none comes twice, and they do not count."""


ORDER = {"order": "o1"}
"""The arguments of most calls."""


def refund(call_id: str, order: str = ORDER["order"]) -> Call:
    """A call of the tool `refund`."""
    return call_id, "refund", {"order": order}


def next_turn(script: list[Any]) -> str | list[Call]:
    """Take the next answer off a script, or raise it."""
    turn: Turn = script.pop(0)
    if callable(turn):
        turn()
    if isinstance(turn, Exception):
        raise turn
    return turn


def once(call_id: str = FIRST) -> Script:
    """The model asks for one refund."""
    return [refund(call_id)], "done"


AGAIN: Script = ([refund(FIRST)], [refund(SECOND)], "done")
"""The model asks for the same again, having heard of a failure or not."""

SAME_ID: Script = ([refund(FIRST)], [refund(FIRST)], "done")
TWINS: Script = ([refund(FIRST), refund(SECOND)], "done")
THREE_ORDERS: Script = ([refund(FIRST, "o1"), refund(SECOND, "o2"), refund(THIRD, "o3")], "done")
BAD_ARGUMENTS: Script = ([(FIRST, "refund", {"ordr": "o1"})], [(SECOND, "refund", {"ordr": "o1"})], "done")
BAD_CENTS: Script = ([(FIRST, "refund", {"cents": "many"})], [(SECOND, "refund", {"cents": "many"})], "done")
"""Where the tool is `bodies.pays_cents`."""


def both(run: str) -> list[Call]:
    """Two orders in one turn, under ids of their own in each run."""
    return [refund(f"toolu_9{run}", "o9"), refund(f"toolu_x{run}", "oX")]


def dies() -> tuple[Script, Script]:
    """Two runs that ask for both orders; in the first one the model is away when it should hear what came of it."""
    return (both("a1"), ConnectionError("the model is down")), (both("b2"), "done")


INNER: Script = ([refund("toolu_i1")], "it failed", [refund("toolu_i2")], "it failed again")
"""An agent that is asked twice, and asks for the same twice."""


def delegations(tool: str, parameter: str, **more: Any) -> Script:
    """One agent asks another, `INNER`, for the same thing in other words, as the first answer was that it failed."""
    words = "refund o1", "please do refund o1"
    first, second = ({parameter: text, **more} for text in words)
    return [(FIRST, tool, first)], [(SECOND, tool, second)], "done"


Ask = tuple[str, dict[str, Any]]
"""A call to which the model of a story gives an id of its own: tool and arguments."""

WRONG: list[Ask] = [("refund", {"ordr": "o9"})]
"""Arguments that do not fit."""


def ask(order: str = "o9", tool: str = "refund") -> Ask:
    """A call of a tool that takes an order."""
    return tool, {"order": order}


Asks = list[Ask] | Callable[[], NoReturn]
"""What such a model answers; or what ends the process that asks it."""


def next_asks(script: list[Any]) -> list[Ask]:
    """Take the next answer off a script; past its end there are no calls any more."""
    turn: Asks = script.pop(0) if script else []
    return turn() if callable(turn) else turn
