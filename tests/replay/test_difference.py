# SPDX-License-Identifier: Apache-2.0
"""Where two recorded runs part."""

from __future__ import annotations

from support.plans import Making, answered, calls, retrievals, says, user

from genai_processor.replay.decisions import Plan
from genai_processor.replay.difference import Parting, differences

OTHER = "cd" * 16


def run(
    results: tuple[str, ...] = ("a", "b"), order: tuple[int, ...] = (0, 1), end: str = "end", trace: str = OTHER
) -> Plan:
    """Two calls in one turn, then an answer; ids are minted anew in each run."""
    made = Making(trace)
    proposed = [calls("look", {"n": n}, f"{trace[:2]}_{n}") for n in range(len(results))]
    made.chat("01" * 8, [user("u")], proposed)
    for n, result in enumerate(results):
        made.tool(f"{n + 16:016x}", proposed[n], result)
    made.chat("0f" * 8, [user("u"), *proposed, *(answered(proposed[n], results[n]) for n in order)], [says(end)])
    return made.plan()


def test_two_recordings_of_one_run_are_the_same() -> None:
    assert differences(run(), run(trace="ef" * 16)) == ()
    assert differences(retrievals().plan(), retrievals().plan()) == ()


def test_a_tool_that_answered_otherwise_is_named_and_nothing_that_follows_from_it() -> None:
    (found,) = differences(run(), run(("a", "c"), end="another", trace="ef" * 16))
    assert (found.parting, found.first and found.first.inputs.parts[0].value) == (Parting.OUTPUT, {"n": 1})
    assert "'b'" in found.difference
    assert "'c'" in found.difference


def test_the_same_results_in_another_order_are_another_input() -> None:
    (found,) = differences(run(), run(order=(1, 0), trace="ef" * 16))
    assert found.parting is Parting.INPUT
    assert found.first is not None
    assert found.first.span_ids == ("0f" * 8,)
    assert found.difference.startswith("the same parts in another order")


def test_the_same_input_may_have_another_output() -> None:
    (found,) = differences(run(), run(end="another"))
    assert found.parting is Parting.OUTPUT
    assert "'another'" in found.difference


def test_another_question_is_another_input() -> None:
    one, two = Making(), Making(OTHER)
    one.chat("01" * 8, [user("u")], [says("a")])
    two.chat("02" * 8, [user("v")], [says("a")])
    (found,) = differences(one.plan(), two.plan())
    assert (found.parting, "'v'" in found.difference) == (Parting.INPUT, True)


def test_a_node_that_only_one_run_has_is_said_to_be_there_only() -> None:
    one, two = Making(), Making(OTHER)
    one.chat("01" * 8, [user("u")], [says("a")])
    for made in (one, two):
        made.chat("02" * 8, [user("w")], [says("b")])
    assert [found.parting for found in differences(one.plan(), two.plan())] == [Parting.ONLY_IN_FIRST]
    assert [found.parting for found in differences(two.plan(), one.plan())] == [Parting.ONLY_IN_SECOND]
