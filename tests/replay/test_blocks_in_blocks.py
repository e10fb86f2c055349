# SPDX-License-Identifier: Apache-2.0
"""A replay inside of another's run, with the same ids in both records: each answers its own calls."""

from __future__ import annotations

from support.plans import Making, answered, calls, says, user

from genai_processor.replay.live import Prompt, parts_of
from genai_processor.replay.session import Session


def session(trace: str, found: str) -> Session:
    made = Making(trace * 16)
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    made.tool("02" * 8, call, found)
    made.chat("03" * 8, [user("u"), call, answered(call, found)], [says("end")])
    return Session(made.plan(), "r", models=True)


def ask(one: Session) -> None:
    one.answers(one.asked(Prompt(parts_of([{"role": "user", "parts": [{"type": "text", "content": "u"}]}]))))


def search(one: Session) -> object:
    return one.called("search", "c1", {"query": "q"}).outcome.parts[0].value


def test_each_answers_its_own_calls_wherever_in_the_other_s_run_it_stands() -> None:
    for trace in ("cd", "ab"):  # of another trace, and of one that was recorded twice
        outer, inner = session("ab", "outer"), session(trace, "inner")
        with outer.frame():
            ask(outer)
            ask(inner)
            assert search(inner) == "inner"
            assert search(outer) == "outer"
        outer, inner = session("ab", "outer"), session(trace, "inner")
        with outer.frame():
            ask(outer)
            assert search(outer) == "outer"
            assert search(inner) == "inner"  # its response is in the history
