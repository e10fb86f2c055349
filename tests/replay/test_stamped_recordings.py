# SPDX-License-Identifier: Apache-2.0
"""What a recording for replay is good for: frameworks' spans, stamped by the processor, and what collectors do to them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_runs import SAYS_WHAT_IS_MISSING, runs
from support.runs import ask, calls, decided, of, result, says, told, user
from support.spans import agent, tool
from support.stamps import edited, is_inference, stamp_of, stamped, without_inputs

from genai_processor.replay import Choice, Declared, Mode, Operation, OrderEvidence, Plan, Planner, State, plan
from genai_processor.spans.otlp import read_spans
from genai_processor.spans.records import Span
from replay.test_properties import ALL, RANK

DATA = Path(__file__).parent.parent / "data"
FILES = sorted(DATA.glob("*/*/*.jsonl"))
WITH_CONTENT = [path for path in FILES if not path.parent.name.endswith("__nocontent")]
A_FEW = [path for path in WITH_CONTENT if path.parent.parent.name == "corpus"][::9]


def spans_of(path: Path) -> list[Span]:
    return list(read_spans(path, on_error=lambda error: pytest.fail(str(error))))


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def choices(found: Plan) -> dict[str, Choice]:
    return {key: decision.choice for key, decision in found.decisions.items()}


def inferences(found: Plan) -> list[str]:
    return [node.key for node in found.nodes if node.operation is Operation.INFERENCE]


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_stamp_changes_no_plan_of_what_nobody_changed(path: Path) -> None:
    bare = spans_of(path)
    again = stamped(bare)
    found = plan(again)
    without = plan([one._replace(attributes=_unstamped(one)) for one in again])
    assert [node._replace(inputs=node.inputs._replace(stamped=False)) for node in found.nodes] == list(without.nodes)
    assert found.decisions == without.decisions
    assert found.problems == plan(bare).problems
    assert choices(found) == choices(plan(bare))


def _unstamped(span: Span) -> dict[str, object]:
    return {name: value for name, value in span.attributes.items() if not name.startswith("genai.replay.")}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_model_whose_input_is_whole_is_stamped_and_found_again(path: Path) -> None:
    found = plan(stamped(spans_of(path)))
    for key in inferences(found):
        node = found.node(key)
        assert node.inputs.stamped is {State.DELTA, State.COMPACTED, State.HELD_BY_PROVIDER}.issuperset(node.inputs.states)


@pytest.mark.parametrize("path", WITH_CONTENT, ids=named)
def test_of_what_a_collector_dropped_the_order_and_the_digests_are_known(path: Path) -> None:
    again = stamped(spans_of(path))
    whole = plan(again, declared=ALL)
    poor = [without_inputs(one) for one in again]
    bare = plan([one._replace(attributes=_unstamped(one)) for one in poor], declared=ALL)
    found = plan(poor, declared=ALL)
    for key in inferences(found):
        before, after = bare.decisions[key], found.decisions[key]
        assert RANK[before.choice] <= RANK[after.choice] <= RANK[whole.decisions[key].choice]
        node, original = found.node(key), whole.node(key)
        if original.inputs.state is not State.WHOLE or original.inputs.unanswered_results:
            continue
        if node.inputs.order is OrderEvidence.STAMP:
            assert node.inputs.digest == original.inputs.digest
            assert [part.digest for part in node.inputs.parts] == [part.digest for part in original.inputs.parts]
            assert after.choice is not Choice.REFUSE or node.outcome.state is not State.WHOLE
        if node.inputs.state is not State.WHOLE:
            assert Mode.INPUTS not in after.modes


@pytest.mark.parametrize("path", A_FEW, ids=named)
def test_a_changed_message_is_never_taken_for_the_recorded_one(path: Path) -> None:
    again = stamped(spans_of(path))
    whole = plan(again)
    changed = [edited(one, lambda text: text.replace("refund", "rebate").replace("order", "parcel")) for one in again]
    found = plan(changed)
    for key in inferences(found):
        node, original = found.node(key), whole.node(key)
        if original.inputs.state is State.WHOLE and node.inputs.digest:
            assert node.inputs.digest == original.inputs.digest
        if node.inputs.digest != original.inputs.digest:
            assert "input_changed" in found.decisions[key].reasons


@pytest.mark.parametrize("path", A_FEW, ids=named)
def test_keyed_stamps_say_the_same_to_whoever_has_the_key_and_nothing_to_others(path: Path) -> None:
    again = [without_inputs(one) for one in stamped(spans_of(path), secret="s3cret")]
    open_ = plan([without_inputs(one) for one in stamped(spans_of(path))])
    having = plan(again, digest_key="s3cret")
    for key in inferences(having):
        if open_.node(key).inputs.state is State.WHOLE:
            assert having.node(key).inputs == open_.node(key).inputs
    for wrong in (None, "other"):
        found = plan(again, digest_key=wrong)
        assert choices(found) == choices(plan([one._replace(attributes=_unstamped(one)) for one in again]))
        assert {problem.problem for problem in found.problems if "stamp" in problem.problem} <= {
            "its stamp for replay is keyed: set GENAI_PROCESSOR_DIGEST_KEY to what it was when this was recorded"
        }
        assert any("keyed" in problem.problem for problem in found.problems) is any(map(stamp_of, again))


@pytest.mark.parametrize("path", A_FEW, ids=named)
def test_the_order_of_stamped_spans_and_copies_of_them_change_nothing(path: Path) -> None:
    spans = [without_inputs(one) for one in stamped(spans_of(path))]
    first = told(plan(spans))
    rng = random.Random(path.name)
    for _ in range(3):
        again = [*spans, *spans[::2]]
        rng.shuffle(again)
        assert told(plan(again)) == first


@settings(max_examples=60, deadline=None)
@given(runs())
def test_a_stamp_lowers_no_decision_of_any_run(spans: list[Span]) -> None:
    again = stamped(spans)
    assert choices(plan(again, declared=ALL)) == choices(plan(spans, declared=ALL))
    poor = [without_inputs(one) for one in again]
    found, bare = plan(poor, declared=ALL), plan([one._replace(attributes=_unstamped(one)) for one in poor], declared=ALL)
    for key in inferences(found):
        assert RANK[found.decisions[key].choice] >= RANK[bare.decisions[key].choice]


@settings(max_examples=120, deadline=None)
@given(runs(), st.data())
def test_removing_a_value_or_a_piece_of_a_stamp_never_raises_that_nodes_own_decision(
    spans: list[Span], data: st.DataObject
) -> None:
    again = stamped(spans)
    before = choices(plan(again, declared=ALL))
    lossy = [(at, sorted(set(one.attributes) - set(SAYS_WHAT_IS_MISSING))) for at, one in enumerate(again)]
    at, keys = data.draw(st.sampled_from([(at, keys) for at, keys in lossy if keys]))
    one, key = again[at], data.draw(st.sampled_from(keys))
    poorer = one._replace(attributes={name: value for name, value in one.attributes.items() if name != key})
    after = choices(plan([*again[:at], poorer, *again[at + 1 :]], declared=ALL))
    own = f"{one.trace_id}:{one.span_id}"
    if own in before and own in after:
        assert RANK[after[own]] <= RANK[before[own]]


# -- runs by hand --------------------------------------------------------------------------------------------------------


def history(turns: int, size: int = 1) -> list[Span]:
    """An agent that asks a tool in each of many turns."""
    run = agent(at=(0, 10**6))
    spans, read = [run], [user("look" + "!" * size)]
    for turn in range(turns):
        call, value = f"Xk29LmQ8vTz{turn}", "found" + "." * size + str(turn)
        spans.append(ask(read, calls((call, "search", {"q": turn})), parent=run, at=(10 * turn + 1, 10 * turn + 2)))
        spans.append(
            tool("search", id=call, args=f'{{"q":{turn}}}', result=value, parent=run, at=(10 * turn + 3, 10 * turn + 4))
        )
        read = [*read, calls((call, "search", {"q": turn})), result(call, value)]
    spans.append(ask(read, says("done"), parent=run, at=(10 * turns + 1, 10 * turns + 2)))
    return spans


DECLARED = Declared(deterministic=("*",), recompute=("*",))


def test_an_input_that_was_dropped_is_rebuilt_from_its_producers_and_recomputed_as_before() -> None:
    again = stamped(history(3))
    models = [one for one in again if is_inference(one)]
    poor = [without_inputs(one) if one in models[1:] else one for one in again]
    assert decided(plan([one._replace(attributes=_unstamped(one)) for one in poor], declared=DECLARED), models[-1]) == (
        "refuse",
        ["input_not_recorded"],
    )
    found, whole = plan(poor, declared=DECLARED), plan(again, declared=DECLARED)
    node, decision = of(found, models[-1])
    assert (str(decision.choice), decision.order) == ("recompute", OrderEvidence.STAMP)
    assert [part.value for part in node.inputs.parts] == [part.value for part in of(whole, models[-1])[0].inputs.parts]
    assert decision.edges == of(whole, models[-1])[1].edges


def test_an_input_of_which_a_constant_is_nowhere_is_injected_and_compared_by_its_digest() -> None:
    again = stamped(history(2))
    found = plan([without_inputs(one) for one in again], declared=DECLARED)
    last = [one for one in again if is_inference(one)][-1]
    node, decision = of(found, last)
    assert (decision.choice, decision.modes) == (Choice.INJECT, (Mode.OUTPUT,))
    assert node.inputs.digest == of(plan(again), last)[0].inputs.digest
    assert [part.missing for part in node.inputs.parts] == [True, False, False, False, False]


def test_a_message_that_was_changed_on_one_span_is_taken_from_the_others() -> None:
    again = stamped(history(2))
    last = [one for one in again if is_inference(one)][-1]
    changed = [edited(one, lambda text: text.replace("found", "lost!")) if one is last else one for one in again]
    node, decision = of(plan(changed, declared=DECLARED), last)
    assert decision.choice is Choice.RECOMPUTE
    assert "found" in str(node.inputs.parts[-1].value)


def test_a_message_that_was_changed_everywhere_is_refused_to_whoever_would_compute_with_it() -> None:
    again = stamped(history(2))
    last = [one for one in again if is_inference(one)][-1]
    changed = [edited(one, lambda text: text.replace("found", "lost!")) for one in again]
    found = plan(changed, declared=DECLARED)
    _, decision = of(found, last)
    assert decision.choice is Choice.INJECT
    assert decision.modes == (Mode.OUTPUT,)
    assert "input_changed" in decision.reasons


def test_an_answer_that_was_changed_is_taken_from_who_repeats_it_or_not_at_all() -> None:
    again = stamped(history(1))
    first, last = [one for one in again if is_inference(one)]
    changed = [
        one._replace(
            attributes={
                **one.attributes,
                "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"no"}]}]',
            }
        )
        if is_inference(one)
        else one
        for one in again
    ]
    found = plan(changed)
    node, decision = of(found, first)
    assert (node.outcome.state, [part.kind.value for part in node.outcome.parts]) == (State.WHOLE, ["call"])
    node, decision = of(found, last)
    assert decision.modes == (Mode.INPUTS,)
    assert "outcome_changed" in decision.reasons


def test_what_stamps_add_to_a_run_grows_with_its_turns_not_with_their_square() -> None:
    def size(turns: int) -> int:
        return sum(len(str(stamp_of(one))) for one in stamped(history(turns)))

    assert size(200) < 4.6 * size(50)


def test_a_lost_span_costs_the_others_their_beginning_only_until_the_history_has_doubled() -> None:
    again = stamped(history(40))
    models = [one for one in again if is_inference(one)]
    poor = [without_inputs(one) if one is not models[0] else one for one in again if one is not models[1]]
    found = plan(poor)
    orders = [of(found, one)[0].inputs.order for one in models[2:]]
    assert orders[-1] is OrderEvidence.STAMP
    assert orders.count(OrderEvidence.STAMP) > len(orders) * 0.8


def test_more_parts_than_a_stamp_may_have_are_left_out_and_the_digest_still_tells_of_a_change() -> None:
    many = [user(f"u{at}") for at in range(600)]
    (one,) = stamped([ask(many, says("done"))])
    assert stamp_of(one)["genai.replay.left_out"] == "too_many"
    assert "genai.replay.input.slots" not in one.attributes
    assert decided(plan([one]), one)[0] == "inject"
    assert decided(plan([edited(one, lambda text: text.replace("u77", "u78"))]), one) == ("refuse", ["input_changed"])


# -- bad stamps ----------------------------------------------------------------------------------------------------------

BAD = {
    "genai.replay.version": ["2", 1, "", None],
    "genai.replay.key": ["00000000", 3],
    "genai.replay.input.digest": ["00" * 16, "x", 3, ["a"]],
    "genai.replay.input.count": [-1, 3, "3", 10**9, 2.5],
    "genai.replay.input.base": ["00" * 16, "00" * 16 + "+" + "11" * 16, "+", 7],
    "genai.replay.input.slots": [[], ["x"], [3], "user.text", ["user.text " + "00" * 16] * 3, ["nobody.text " + "00" * 16]],
    "genai.replay.input.continues": ["response", "conversation", "other", 3],
    "genai.replay.output.digest": ["00" * 16, True],
    "genai.replay.output.slots": [["assistant.text@x " + "00" * 16], ["assistant.text " + "00" * 16]],
    "genai.replay.system.digest": ["zz", 1],
}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_bad_stamp_is_noted_at_its_span_and_never_lets_a_plan_compute_with_something_else(data: st.DataObject) -> None:
    again = stamped(history(2))
    whole = plan(again)
    models = [one for one in again if is_inference(one)]
    bad = data.draw(st.sampled_from(models))
    name = data.draw(st.sampled_from(sorted(BAD)))
    value = data.draw(st.sampled_from(BAD[name]))
    poor = [without_inputs(one) if data.draw(st.booleans()) else one for one in again]
    poor = [one._replace(attributes={**one.attributes, name: value}) if one.span_id == bad.span_id else one for one in poor]
    found = plan(poor, declared=DECLARED)
    for key in inferences(found):
        node = found.node(key)
        if node.inputs.state is State.WHOLE and name != "genai.replay.system.digest":
            assert node.inputs.digest == whole.node(key).inputs.digest
    assert {problem.place for problem in found.problems} <= {f"{one.trace_id}:{one.span_id}" for one in models}


def test_lists_that_begin_with_each_other_are_put_together_from_nobody() -> None:
    one, other = (one for one in stamped(history(1)) if is_inference(one))
    name = "genai.replay.input.base"
    digests = [found.attributes["genai.replay.input.digest"] for found in (one, other)]
    looped = [
        without_inputs(found)._replace(attributes={**without_inputs(found).attributes, name: digest})
        for found, digest in ((one, digests[1]), (other, digests[0]))
    ]
    assert {decision.choice for decision in plan(looped).decisions.values()} == {Choice.REFUSE}
    itself = without_inputs(one)
    itself = itself._replace(attributes={**itself.attributes, name: digests[0]})
    assert decided(plan([itself]), one)[0] == "refuse"


def test_a_long_chain_of_stamps_is_followed_without_recursion() -> None:
    again = stamped(history(400))
    models = [one for one in again if is_inference(one)]
    found = plan([without_inputs(one) if one is not models[0] else one for one in again])
    assert of(found, models[-1])[0].inputs.state is State.WHOLE


def test_a_copy_from_beside_the_processor_conflicts_with_no_stamped_one() -> None:
    again = stamped(history(1))
    bare = [one._replace(attributes=_unstamped(one)) for one in again]
    for both in ([*again, *bare], [*bare, *again]):
        found = plan(both)
        assert told(found) == told(plan(again))
        assert all(found.node(key).inputs.stamped for key in inferences(found))


def test_a_planner_can_leave_the_stamps_out() -> None:
    planner = Planner()
    planner.add_all([without_inputs(one) for one in stamped(history(1))])
    assert planner.stamped == 2
    assert set(choices(planner.plan(stamps=False)).values()) == {Choice.REFUSE, Choice.INJECT}
    assert set(choices(planner.plan()).values()) == {Choice.INJECT}
