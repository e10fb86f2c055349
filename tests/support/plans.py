# SPDX-License-Identifier: Apache-2.0
"""Plans made by hand, one node after the other; edges follow from call ids and from what was said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from genai_processor.replay.decisions import Choice, Container, Decision, Declared, Mode, Plan, Reason
from genai_processor.replay.parts import EMPTY, Part, PartKind, Role, part_list
from genai_processor.replay.records import (
    Edge,
    EdgeKind,
    Ending,
    Inputs,
    Node,
    Operation,
    OrderEvidence,
    Outcome,
    State,
    Structure,
    key_of,
)
from genai_processor.replay.values import call_part, outcome_of, placed, result_part, text_part

TRACE = "ab" * 16


def user(text: str) -> Part:
    return text_part(text, Role.USER)


def says(text: str) -> Part:
    return text_part(text)


def calls(tool: str, arguments: Any, call_id: str | None = None) -> Part:
    return call_part(tool, arguments, call_id)


def positioned(parts: Iterable[Part]) -> list[Part]:
    """The calls of a list counted through, and each result at the position of the call that it answers."""
    found = placed(parts)
    at = {part.call_id: part.position for part in found if part.kind is PartKind.CALL and part.call_id}
    return [part._replace(position=at.get(part.call_id, -1)) if part.kind is PartKind.RESULT else part for part in found]


class Making:
    """A plan in the making. Nodes are recomputed unless another choice is given; tools are injected."""

    def __init__(self, trace: str = TRACE) -> None:
        self.trace = trace
        self.nodes: list[Node] = []
        self.decisions: dict[str, Decision] = {}

    def _add(
        self,
        node: Node,
        edges: Iterable[Edge],
        choice: Choice,
        modes: tuple[Mode, ...],
        reasons: tuple[Reason, ...],
        **more: Any,
    ) -> Node:
        self.nodes.append(node)
        self.decisions[node.key] = Decision(choice, reasons, modes, "", node.inputs.order, True, tuple(edges), **more)
        return node

    def chat(
        self,
        span_id: str,
        inputs: Sequence[Part],
        outputs: Sequence[Part] | Outcome,
        *,
        choice: Choice = Choice.RECOMPUTE,
        modes: tuple[Mode, ...] = (Mode.OUTPUT, Mode.INPUTS),
        reasons: tuple[Reason, ...] = (Reason.SINGLE_CHAIN,),
        agent: str | None = None,
        **more: Any,
    ) -> Node:
        parts = part_list(positioned(inputs))
        key = key_of(self.trace, span_id)
        given = Inputs(State.WHOLE, parts, OrderEvidence.ARRAY)
        if isinstance(outputs, Outcome):
            outcome = outputs
        else:
            said = part_list(placed(outputs))
            outcome = Outcome(Ending.VALUE, State.WHOLE, said)
        node = self._node(key, span_id, Operation.INFERENCE, "chat", None, given, outcome, agent=agent)
        return self._add(node, self._edges_into(key, parts), choice, modes, reasons, **more)

    def tool(
        self,
        span_id: str,
        call: Part,
        result: Any,
        *,
        choice: Choice = Choice.INJECT,
        modes: tuple[Mode, ...] = (Mode.OUTPUT,),
        reasons: tuple[Reason, ...] = (Reason.EFFECT_NOT_DECLARED,),
        operation: Operation = Operation.TOOL,
        composite: bool = False,
        agent: str | None = None,
        attempts: tuple[str, ...] = (),
        **more: Any,
    ) -> Node:
        key = key_of(self.trace, span_id)
        parts = part_list([call._replace(position=0)])
        given = Inputs(State.WHOLE, parts, OrderEvidence.NO_LIST)
        edges = [
            Edge(EdgeKind.PROPOSAL, node.key, key, 0, slot)
            for node in self.nodes
            for slot, part in enumerate(node.outcome.parts)
            if part.kind is PartKind.CALL and part.call_id == call.call_id
        ]
        position = next((self.of(edge.producer).outcome.parts[edge.producer_slot].position for edge in edges), None)
        node = self._node(
            key, span_id, operation, "execute_tool", call.tool, given, Outcome(Ending.UNKNOWN, State.WHOLE, EMPTY)
        )
        node = node._replace(
            call_id=call.call_id, call_position=position, composite=composite, agent=agent, attempts=attempts
        )
        node = node._replace(outcome=outcome_of(node, result))
        return self._add(node, edges, choice, modes, reasons, **more)

    def of(self, key: str) -> Node:
        return next(node for node in self.nodes if node.key == key)

    def edge(self, kind: EdgeKind, producer: Node, consumer: Node, slot: int, producer_slot: int = 0) -> None:
        old = self.decisions[consumer.key]
        equal = kind in (EdgeKind.ECHO, EdgeKind.RESULT, EdgeKind.PROPOSAL)
        added = Edge(kind, producer.key, consumer.key, slot, producer_slot, equal)
        self.decisions[consumer.key] = old._replace(edges=(*old.edges, added))

    def plan(self, declared: Declared | None = None, containers: dict[str, Container] | None = None) -> Plan:
        return Plan(tuple(self.nodes), self.decisions, containers or {}, (), (), declared or Declared())

    def _edges_into(self, key: str, parts: Sequence[Part]) -> list[Edge]:
        edges = []
        for slot, part in enumerate(parts):
            for node in self.nodes:
                for at, made in enumerate(node.outcome.parts):
                    if part.kind is PartKind.RESULT and node.call_id == part.call_id and made.kind is PartKind.RESULT:
                        edges.append(Edge(EdgeKind.RESULT, node.key, key, slot, at, made.digest == part.digest))
                    elif part.role is Role.ASSISTANT and made.digest == part.digest and made.call_id == part.call_id:
                        edges.append(Edge(EdgeKind.ECHO, node.key, key, slot, at))
        return edges

    def _node(
        self,
        key: str,
        span_id: str,
        operation: Operation,
        name: str,
        tool: str | None,
        inputs: Inputs,
        outcome: Outcome,
        agent: str | None = None,
    ) -> Node:
        return Node(
            key, operation, name, tool, None, self.trace, (span_id,), agent, None, None, "test", None, None, inputs, outcome,
            False, Structure(),
        )  # fmt: skip


def failure(error_type: str, message: str, ending: Ending = Ending.FAILURE) -> Outcome:
    return Outcome(ending, State.WHOLE, EMPTY, None, error_type, message)


def answered(call: Part, value: Any) -> Part:
    """A tool's result as a prompt holds it."""
    return result_part(call.tool, value, call.call_id)


def retrievals(count: int = 3, **of_synthesis: Any) -> Making:
    """The memo's run: a planner, parallel retrievals, a synthesis that reads all of them."""
    made = Making()
    proposed = [calls("search", {"query": f"q{n}"}, f"call_{n}") for n in range(count)]
    question = user("compare them")
    made.chat("01" * 8, [question], proposed, reasons=(Reason.CONSTANT_INPUTS,))
    for n, call in enumerate(proposed):
        made.tool(f"{16 + n:016x}", call, f"found {n}")
    history = [question, *proposed, *(answered(call, f"found {n}") for n, call in enumerate(proposed))]
    more = {"choice": Choice.INJECT, "reasons": (Reason.FAN_IN,), **of_synthesis}
    made.chat("ff" * 8, history, [says("the answer")], **more)
    return made


def one_call(question: str, result: Any, prompt: Any) -> Making:
    """A model asks `search` once, and says `end` when it has read the prompt that came of the result."""
    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user(question)], [call])
    made.tool("02" * 8, call, result)
    made.chat("03" * 8, [user(question), call, answered(call, prompt)], [says("end")])
    return made
