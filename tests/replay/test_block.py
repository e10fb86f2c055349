# SPDX-License-Identifier: Apache-2.0
"""The `with` block itself: whom it answers, what it leaves behind, and what it refuses to begin."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.plans import Making, answered, calls, retrievals, says, user
from support.traps import Trap

from genai_processor.errors import ReplayDivergence, ReplayRefusedError, TraceFileError
from genai_processor.replay.block import replaying
from genai_processor.replay.hooks import installing
from genai_processor.replay.hooks.base import Hook, Target
from genai_processor.replay.live import Prompt, parts_of
from genai_processor.replay.records import Ending
from genai_processor.replay.session import Session
from genai_processor.replay.stopping import Stop
from genai_processor.replays import REPLAYS

ROOT = Path(__file__).parents[2]


def session(made: Making, **options: Any) -> Session:
    return Session(made.plan(), "r", **{"models": True, "enter": (), "whole": True, "allow_unverified": False, **options})


def asked(one: Session, *messages: Any) -> Any:
    return one.answers(one.asked(Prompt(parts_of(messages))))


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def test_importing_the_package_imports_no_framework() -> None:
    code = (
        "from genai_processor.replay import replay, replaying, resume; import sys;"
        "print(*[name for name in ('pydantic_ai', 'langchain_core', 'langgraph', 'agents') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []


def test_a_framework_that_is_imported_in_the_block_is_answered_too() -> None:
    pytest.importorskip("pydantic_ai")
    code = """
import sys
sys.path.insert(0, "tests")
from support.plans import retrievals
from genai_processor.replay import replaying
assert "pydantic_ai" not in sys.modules
with replaying(retrievals().plan()):
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel
    agent = Agent(TestModel())
    @agent.tool_plain
    def search(query: str) -> str:
        raise SystemExit("search was reached")
    print(agent.run_sync("compare them").output)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split("\n")[0] == "the answer"


def test_a_framework_that_is_laid_out_otherwise_is_refused_before_anything_runs(
    trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    strange = Hook("strange", (Target("json", "dumps", ("obj", "no_such_parameter"), lambda *_: trap.spring("json")),))
    monkeypatch.setitem(sys.modules, "strange_hook", type("M", (), {"HOOK": strange}))
    monkeypatch.setattr(installing, "HOOKS", {"json": ("strange_hook",)})
    before = json.dumps
    with pytest.raises(ReplayRefusedError, match="no_such_parameter"), replaying(retrievals().plan()):
        trap.spring("the block")
    assert json.dumps is before
    assert REPLAYS.here() is None
    assert installing._installation._blocks == []


def test_a_framework_whose_hook_cannot_be_loaded_is_refused_before_anything_runs(
    trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json  # noqa: F401 - it is there

    monkeypatch.setattr(installing, "HOOKS", {"json": ("no_such_hook",)})
    with pytest.raises(ReplayRefusedError, match="no_such_hook could not be set up"), replaying(retrievals().plan()):
        trap.spring("the block")
    assert installing._installation._blocks == []


def test_a_thread_that_was_there_before_is_let_pass() -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    found: list[str] = []
    begun = threading.Event()

    def run() -> None:
        begun.wait(30)
        found.append(Agent(TestModel()).run_sync("hello").output)

    other = threading.Thread(target=run)
    other.start()
    with replaying(retrievals().plan(), whole=False):
        begun.set()
        other.join()
    assert found == ["success (no tool calls)"]


def test_the_same_call_id_in_two_agents_is_two_calls(trap: Trap) -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    made = Making()
    for n, result in enumerate(("one", "two")):
        call = calls("search", {"query": "same"}, "call_1")
        history = [user(f"question {n}"), call, answered(call, result)]
        other = Making()
        other.chat(f"{n + 1:02x}" * 8, history[:1], [call])
        other.tool(f"{n + 3:02x}" * 8, call, result)
        other.chat(f"{n + 5:02x}" * 8, history, [says(f"end {n}")])
        made.nodes += other.nodes
        made.decisions |= other.decisions

    agent = Agent(TestModel())

    @agent.tool_plain
    async def search(query: str) -> str:
        trap.spring("search")

    async def both() -> list[str]:
        return [run.output for run in await asyncio.gather(agent.run("question 0"), agent.run("question 1"))]

    with replaying(made.plan()):
        assert asyncio.run(both()) == ["end 0", "end 1"]


def test_what_the_application_raises_passes() -> None:
    with pytest.raises(KeyError, match="mine"), replaying(retrievals().plan()):
        raise KeyError("mine")
    with pytest.raises(KeyboardInterrupt), replaying(retrievals().plan()):
        raise KeyboardInterrupt


def test_a_stop_is_raised_by_whatever_is_asked_next() -> None:
    one = session(retrievals())
    with pytest.raises(Stop):
        asked(one, said("user", "something else"))
    with pytest.raises(Stop):
        asked(one, said("user", "compare them"))
    with pytest.raises(Stop):
        one.called("search", "call_0", {"query": "q0"})
    assert isinstance(one.stopped, ReplayDivergence)
    assert one.answered == {}


def test_a_call_that_no_response_proposed_is_not_answered() -> None:
    one = session(retrievals())
    asked(one, said("user", "compare them"))
    with pytest.raises(Stop):
        one.called("search", "call_9", {"query": "q0"})
    assert "no recorded response proposed" in str(one.stopped)


def test_other_arguments_are_another_call() -> None:
    made = retrievals()
    one = session(made)
    asked(one, said("user", "compare them"))
    assert one.called("search", "call_1", '{"query": "q1"}')[0] is made.nodes[2]
    with pytest.raises(Stop):
        one.called("search", "call_0", {"query": "q0", "limit": 10})
    assert isinstance(one.stopped, ReplayDivergence)
    assert one.stopped.node == made.nodes[1].key
    assert '\'{"query": "q0", "limit": 10}\'' in one.stopped.difference


def test_a_call_is_answered_as_often_as_it_was_recorded() -> None:
    one = session(retrievals())
    asked(one, said("user", "compare them"))
    one.called("search", "call_0", {"query": "q0"})
    with pytest.raises(Stop):
        one.called("search", "call_0", {"query": "q0"})
    assert "once more than in the record" in str(one.stopped)


def test_attempts_that_came_to_nothing_come_first_and_what_was_delivered_last() -> None:
    from support.plans import failure

    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    well = made.tool("02" * 8, call, "found")
    bad = made.tool("03" * 8, call, failure("TimeoutError", "slow"), attempts=(well.key,))
    made.nodes[1] = well._replace(attempts=(bad.key,))
    made.chat("04" * 8, [user("u"), call, answered(call, "found")], [says("end")])
    one = session(made)
    asked(one, said("user", "u"))
    assert one.called("search", "c1", {"query": "q"})[1].ending is Ending.FAILURE
    assert one.called("search", "c1", {"query": "q"})[1].parts[0].value == "found"


def test_system_instructions_are_compared_in_whatever_shape_they_were_recorded() -> None:
    from genai_processor.replay.digests import content_digest

    made = Making()
    node = made.chat("01" * 8, [user("u")], [says("a")])
    shape = [{"type": "text", "content": "be brief"}]
    made.nodes[0] = node._replace(inputs=node.inputs._replace(system=content_digest(shape)))
    prompt = parts_of([said("user", "u")])
    assert session(made).asked(Prompt(prompt, ("be brief",))).key == node.key
    assert session(made).asked(Prompt(parts_of([said("system", "be brief"), said("user", "u")]))).key == node.key
    one = session(made)
    with pytest.raises(Stop):
        one.asked(Prompt(prompt, ("be long",)))
    assert "system instructions" in str(one.stopped)


def test_a_result_whose_execution_nobody_recorded_is_taken_from_the_prompt_that_holds_it() -> None:
    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    made.chat("04" * 8, [user("u"), call, answered(call, "found")], [says("end")])
    one = session(made)
    asked(one, said("user", "u"))
    node, outcome = one.called("search", "c1", {"query": "q"})
    assert (node, outcome.parts[0].value) == (None, "found")
    assert asked(one, said("user", "u"), *echoed(call, "found")).parts[0].value == "end"
    one.at_end()
    with pytest.raises(Stop):
        one.called("search", "c1", {"query": "q"})


def echoed(call: Any, result: str) -> list[dict[str, Any]]:
    proposal = {"type": "tool_call", "id": call.call_id, "name": call.tool, "arguments": call.value}
    answer = {"type": "tool_call_response", "id": call.call_id, "result": result}
    return [{"role": "assistant", "parts": [proposal]}, {"role": "tool", "parts": [answer]}]


def test_a_file_is_replayed_and_what_of_it_cannot_be_read_is_told_where_nothing_is_left(tmp_path: Path, trap: Trap) -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    recorded = ROOT / "tests/data/corpus/pydantic-ai__native-v5/s01_ok.jsonl"
    agent = Agent(TestModel())

    @agent.tool_plain
    async def create_refund(order_id: str, amount_cents: int) -> str:
        trap.spring("create_refund")

    for given in (recorded, str(recorded)):
        with replaying(given):
            assert agent.run_sync("refund A-1").output == "done"
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{nothing\n")
    with pytest.raises(ReplayRefusedError, match="nothing is recorded"), replaying(broken):
        trap.spring("the block")
    with pytest.raises(TraceFileError), replaying(tmp_path / "missing.jsonl"):
        trap.spring("the block")


def test_one_name_to_enter_need_be_no_list() -> None:
    assert session(retrievals(), enter=("a", "b"))._enter == ("a", "b")
    with replaying(retrievals().plan(), enter="search", whole=False):
        assert installing._here.get().session._enter == ("search",)  # type: ignore[union-attr]
