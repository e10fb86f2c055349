# SPDX-License-Identifier: Apache-2.0
"""A run that ends before its record: in a model that is not asked, or in a call that is not made."""

from __future__ import annotations

from typing import Any

import pytest
from support.plans import Making, calls, failure, user

from genai_processor.errors import ReplayDivergence
from genai_processor.replay.live import Prompt, parts_of
from genai_processor.replay.records import EdgeKind, Ending
from genai_processor.replay.session import Session
from genai_processor.replay.stopping import Stop


def turn(*outcomes: Any) -> Making:
    """A model that makes as many calls, and is asked no more."""
    made = Making()
    proposed = [calls("refund", {"order": n}, f"c{n}") for n in range(len(outcomes))]
    made.chat("01" * 8, [user("u")], proposed)
    for n, outcome in enumerate(outcomes):
        made.tool(f"{n + 2:016x}", proposed[n], outcome)
    return made


def ended(made: Making, *called: int, **options: Any) -> Session:
    """A session in which the model was asked, and some of its calls were made."""
    one = Session(made.plan(), "r", models=True, **options)
    one.answers(one.asked(Prompt(parts_of([{"role": "user", "parts": [{"type": "text", "content": "u"}]}]))))
    for n in called:
        one.called("refund", f"c{n}", {"order": n})
    return one


def test_a_recorded_call_that_is_not_made_is_found_at_the_end() -> None:
    made = turn("paid", "paid")
    with pytest.raises(Stop):
        (one := ended(made, 0)).at_end()
    found = one.stopped
    assert isinstance(found, ReplayDivergence)
    assert (found.node, found.where) == (made.nodes[2].key, "end")
    ended(made, 0, 1).at_end()
    ended(made, 0, whole=False).at_end()


@pytest.mark.parametrize("ending", [Ending.FAILURE, Ending.PAUSED, Ending.WAITS])
def test_calls_beside_one_that_did_not_end_well_may_have_been_cancelled(ending: Ending) -> None:
    ended(turn(failure("ValueError", "no", ending), "paid"), 0).at_end()


def test_what_goes_on_in_another_trace_is_another_run() -> None:
    made, later = turn("paid"), Making("cd" * 16)
    tool = later.tool("02" * 8, calls("refund", {"order": 0}, "c0"), "paid")
    made.nodes[1:] = [tool]
    made.decisions[tool.key] = later.decisions[tool.key]
    made.edge(EdgeKind.PROPOSAL, made.nodes[0], tool, 0)
    ended(made).at_end()
