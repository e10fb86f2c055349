# SPDX-License-Identifier: Apache-2.0
"""`genai-processor replay plan --format html`: what is on the page, and what must never be."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import pytest
from support.runs import ask, calls, result, says, user
from support.spans import agent, span, tool

from genai_processor.cli.page import words
from genai_processor.cli.page.document import page
from genai_processor.replay import (
    Choice,
    Declared,
    EdgeKind,
    Ending,
    Mode,
    OrderEvidence,
    Plan,
    Planner,
    Reason,
    State,
    plan,
)
from genai_processor.spans.records import Event, Link, Span

VOID = {"meta", "br", "input", "path", "rect"}
SCRIPTED = re.compile(r"^on|^style$|^src$|^srcset$|^action$|^formaction$")


class Page(HTMLParser):
    """A page, taken apart as a browser would: elements with their attributes, scripts, styles, and visible text."""

    def __init__(self, content: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.source = content.decode()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag in ("script", "style"):
            (self.scripts if tag == "script" else self.styles).append("")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            self.scripts[-1] += data
        elif inside == "style":
            self.styles[-1] += data
        else:
            self.text += data

    def marked(self, name: str) -> list[dict[str, str]]:
        """The attributes of all elements of a class."""
        return [attributes for _, attributes in self.elements if name in attributes.get("class", "").split()]

    def facts(self) -> Any:
        """What the page's script reads."""
        return json.loads(self.scripts[0])

    def policy(self) -> str:
        """Its Content-Security-Policy."""
        (found,) = [attributes["content"] for _, attributes in self.elements if attributes.get("http-equiv")]
        return found


def run(names: dict[str, str] | None = None, said: str = "plain words") -> list[Span]:
    """A planner that calls a tool with an agent inside, and another tool.

    A model inside recorded nothing, so that the tool stands for it; the other tool's result is nowhere.
    """
    named = names or {}
    boss = agent(attributes={"gen_ai.agent.name": named.get("boss", "boss")})
    inner, outer = named.get("research", "research"), named.get("refund", "refund")
    proposed = calls(("call_r7", inner, {"q": said}), ("call_f9", outer, {"q": said}))
    first = ask([user(said)], proposed, parent=boss)
    research = tool(inner, id="call_r7", args=json.dumps({"q": said}), result=f"found {said}", parent=boss)
    inside = agent(parent=research, attributes={"gen_ai.agent.name": "researcher"})
    hidden = ask(None, None, parent=inside)
    refund = tool(outer, id="call_f9", args=json.dumps({"q": said}), parent=boss, error="ValueError")
    failed = refund._replace(attributes={name: value for name, value in refund.attributes.items() if name != "error.type"})
    unknown = failed._replace(status=span().status)
    read = [user(said), proposed, result("call_r7", f"found {said}")]
    last = ask(read, says(said), parent=boss)
    return [boss, first, research, inside, hidden, unknown, last]


def made(spans: list[Span], **options: Any) -> Page:
    return Page(page(plan(spans, keep_values=options.get("values", False)), "run.jsonl", **options))


def test_every_node_is_a_row_of_the_tree_and_a_box_of_the_graph() -> None:
    found = plan(run())
    shown = Page(page(found, "run.jsonl"))
    rows = [attributes for _, attributes in shown.elements if attributes.get("role") == "treeitem"]
    assert len(rows) == len(found.nodes) + len(found.containers)
    assert sorted(int(row["data-node"]) for row in rows if "data-node" in row) == list(range(len(found.nodes)))
    boxes = shown.marked("node")
    assert [int(box["data-node"]) for box in boxes] == list(range(len(found.nodes)))
    for number, node in enumerate(found.nodes):
        assert str(found.decisions[node.key].choice) in boxes[number]["class"].split()
        assert shown.facts()["nodes"][number]["key"] == node.key


def test_every_kind_of_edge_between_two_nodes_is_an_arrow() -> None:
    found = plan(run())
    number = {node.key: at for at, node in enumerate(found.nodes)}
    expected = {
        (str(edge.kind), number[edge.producer], number[edge.consumer])
        for decision in found.decisions.values()
        for edge in decision.edges
    }
    arrows = [arrow for arrow in Page(page(found, "x")).marked("edge") if "data-from" in arrow]
    assert expected
    drawn = {(arrow["data-kind"].split()[0], int(arrow["data-from"]), int(arrow["data-to"])) for arrow in arrows}
    assert drawn == expected
    assert len(arrows) == len(expected)


def test_the_tree_is_as_deep_as_the_spans_and_says_so_to_a_screen_reader() -> None:
    rows = [attributes for _, attributes in made(run()).elements if attributes.get("role") == "treeitem"]
    assert [int(row["aria-level"]) for row in rows] == [1, 2, 2, 3, 4, 2, 2]
    assert [row["aria-posinset"] + "/" + row["aria-setsize"] for row in rows if row["aria-level"] == "2"] == [
        "1/4",
        "2/4",
        "3/4",
        "4/4",
    ]
    assert [row.get("aria-expanded") for row in rows] == ["true", None, "true", "true", None, None, None]


def test_a_boundary_says_what_it_covers_and_where_it_comes_from() -> None:
    shown = made(run())
    assert (
        "Boundary. Its recorded outcome stands for the 1 node inside. Moved up from chat demo-model, refused." in shown.text
    )
    assert "Boundary. It stands alone; what depends on it is unverified." in shown.text
    assert len(shown.marked("boundary")) == 3  # the row, the frame in the graph, and what is written on that
    assert [row["class"].split()[-1] for row in shown.marked("covered") if row.get("role") == "treeitem"] == ["k1"]


def test_a_container_reports_the_worst_inside() -> None:
    shown = made(run())
    boss, researcher = shown.facts()["containers"].values()
    assert (boss["worst"], boss["inside"]) == ("refuse", {"inject": 3, "refuse": 2})
    assert (researcher["worst"], researcher["inside"]) == ("refuse", {"refuse": 1})
    assert shown.text.count("worst refuse") == 2


def test_the_slots_of_an_input_stand_at_its_box_in_recorded_order() -> None:
    ids = ["call_a1", "call_b2", "call_c3"]
    proposed = calls(*[(one, "search", {"q": one}) for one in ids])
    answers = [result(ids[at], f"r{at}") for at in (2, 0, 1)]
    spans = [ask([user("u")], proposed), ask([user("u"), proposed, *answers], says("done"))]
    spans += [tool("search", id=one, args=json.dumps({"q": one}), result=f"r{at}") for at, one in enumerate(ids)]
    found = plan(spans)
    shown = Page(page(found, "x"))
    last = next(at for at, node in enumerate(found.nodes) if node.key.endswith(spans[1].span_id))
    box = shown.source[shown.source.index(f'id="node{last}"') :].partition("</g>")[0]
    assert re.findall(r'class="slot"[^>]*>([^<]+)<', box) == ["1–3", "4", "5", "6"]
    into = [edge for edge in shown.facts()["edges"] if edge[2] == last and edge[0] == "result"]
    assert [found.nodes[edge[1]].call_id for edge in into] == ["call_c3", "call_a1", "call_b2"]


def test_of_many_slots_the_arrows_still_come_in_recorded_order() -> None:
    ids = [f"call_a{at}" for at in range(12)]
    proposed = calls(*[(one, "search", {"q": one}) for one in ids])
    spans = [ask([user("u")], proposed), ask([user("u"), proposed, *[result(one, one) for one in ids[::-1]]], says("done"))]
    spans += [tool("search", id=one, args=json.dumps({"q": one}), result=one) for one in ids]
    found = plan(spans)
    shown = Page(page(found, "x"))
    last = next(at for at, node in enumerate(found.nodes) if node.key.endswith(spans[1].span_id))
    into = [arrow for arrow in shown.marked("result") if arrow.get("data-to") == str(last)]
    assert [found.nodes[int(arrow["data-from"])].call_id for arrow in into] == ids[::-1]
    ends = [float(arrow["d"].replace("V", " ").split()[-2]) for arrow in into]
    assert ends == sorted(ends)


HOSTILE = {
    "boss": "</script><script>alert(1)</script>",
    "research": "a\"b'c<img src=x onerror=alert(2)> --> ]]></style> {{facts}} {{script}}",
    "refund": "\u202egnp.exe\u2066\u0000\u001b[31m\ud800\u2028",
}


@pytest.mark.parametrize("values", [False, True])
def test_hostile_names_and_values_are_text_and_nothing_else(values: bool) -> None:
    said = "".join(HOSTILE.values())
    shown = made(run(HOSTILE, said), values=values)
    plain = made(run(), values=values)
    assert Counter(tag for tag, _ in shown.elements) == Counter(tag for tag, _ in plain.elements)
    assert len(shown.scripts) == 2
    assert set(shown.scripts[0]) & set("<>&") == set()
    for _, attributes in shown.elements:
        assert [name for name in attributes if SCRIPTED.search(name)] == []
    assert "</script><script>alert(1)</script>" in shown.text
    assert [char for char in shown.source if not char.isprintable() and char != "\n"] == []
    names = {node["subject"] for node in shown.facts()["nodes"] if "subject" in node}
    assert any("{{facts}} {{script}}" in name for name in names)
    assert any("\\u202egnp.exe\\u2066\\x00\\x1b[31m\\ud800\\u2028" in name for name in names)


def test_only_what_the_page_itself_brings_may_run_and_nothing_may_be_fetched() -> None:
    shown = made(run(HOSTILE))
    policy = dict(part.split(" ", 1) for part in shown.policy().split("; "))

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert policy == {
        "default-src": "'none'",
        "script-src": digest(shown.scripts[1]),
        "style-src": digest(shown.styles[0]),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert [value for _, attributes in shown.elements for name, value in attributes.items() if name.endswith("href")] == []
    assert "url(" not in shown.styles[0].replace("url(#tip)", "").replace("url(#tip-on)", "")
    assert "@import" not in shown.styles[0]
    addresses = re.findall(r"https?://[^\s\"']+", shown.source)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}  # a namespace, which nobody fetches


def test_no_recorded_value_is_on_the_page_unless_it_is_asked_for() -> None:
    secret = "swordfish 4711"
    spans = run(said=secret)
    raised = Event("exception", {"exception.type": "ValueError", "exception.message": f"no {secret} here"})
    spans.append(tool("pay", id="call_p3", args="{}", error="ValueError", events=[raised], trace="9" * 32))
    kept = plan(spans, keep_values=True)
    assert secret not in page(kept, "x").decode()
    assert "swordfish" not in page(kept, "x").decode()
    with_values = page(kept, "x", values=True).decode()
    assert with_values.count(secret) > 5
    assert f"no {secret} here" in with_values
    assert "This page holds recorded messages, arguments and results." in with_values


def test_a_value_on_the_page_is_cut_where_nobody_would_read_on() -> None:
    found = plan([ask([user("x" * 2_000_000)], says("y"))])
    assert len(page(found, "x", values=True)) < 200_000


def test_a_name_of_a_megabyte_does_not_make_the_page_large() -> None:
    huge = {"boss": "b" * 1_000_000, "research": "r" * 1_000_000, "refund": "é" * 1_000_000}
    content = page(plan(run({**huge, **{"refund": "\u202e" * 1_000_000}})), "f" * 1_000_000).decode()
    written = re.findall(r'class="(?:subject|operation)" x="12"[^>]*>([^<]*)<', content)
    assert written
    assert max(map(len, written)) <= 26  # what a box has room for
    content = page(plan(run(huge)), "f" * 1_000_000)
    assert len(content) < len(page(plan(run()), "x")) + 20_000
    assert "(1,000,000 characters)" in content.decode()


def many(count: int, *, refused_at: int | None = None) -> list[Span]:
    """Traces of one agent each with four nodes; in one of them a model's input is not recorded."""
    spans: list[Span] = []
    for at in range(count):
        trace = f"{at + 1:032x}"
        boss = agent(trace=trace)
        asked = [user(f"u{at}")]
        proposed = calls((f"call_{at}a", "search", {"q": at}), (f"call_{at}b", "search", {"q": -at}))
        spans += [boss, ask(None if at == refused_at else asked, proposed, parent=boss)]
        spans += [tool("search", id=f"call_{at}{one}", args="{}", result="r", parent=boss) for one in "ab"]
        answers = [result(f"call_{at}a", "r"), result(f"call_{at}b", "r")]
        spans.append(ask([*asked, proposed, *answers], says(f"done {at}"), parent=boss))
    return spans


def test_a_plan_that_is_too_large_is_shown_in_part_and_the_page_says_what_it_leaves_out() -> None:
    found = plan(many(30, refused_at=25))
    shown = Page(page(found, "x", most=20))
    assert "This page draws 20 of 120 nodes; 100 are left out. No node of 25 traces is drawn." in shown.text
    assert "25 containers are left out." in shown.text
    assert "Counts and reasons are of the whole plan." in shown.text
    assert "120 nodes" in shown.text
    assert len(shown.marked("node")) == 20
    traces = {fact["key"].partition(":")[0] for fact in shown.facts()["nodes"]}
    assert f"{26:032x}" in traces  # what is refused comes first
    assert len(traces) == 5


def test_of_a_trace_that_is_too_large_the_refused_nodes_come_first() -> None:
    trace = f"{7:032x}"
    spans = [one._replace(trace_id=trace) for one in many(30, refused_at=25)]
    found = plan(spans)
    (refused,) = [key for key, decision in found.decisions.items() if decision.choice is Choice.REFUSE]
    shown = Page(page(found, "x", most=10))
    assert refused in {fact["key"] for fact in shown.facts()["nodes"]}
    assert len(shown.marked("node")) == 10
    assert "Of one trace a part is drawn" in shown.text


def test_edges_to_what_is_not_drawn_are_counted_and_named() -> None:
    proposed = calls(*[(f"call_x{at}", "search", {"q": at}) for at in range(200)])
    answers = [result(f"call_x{at}", str(at)) for at in range(200)]
    spans = [ask([user("u")], proposed), ask([user("u"), proposed, *answers], says("done"))]
    spans += [tool("search", id=f"call_x{at}", args=json.dumps({"q": at}), result=str(at)) for at in range(200)]
    shown = Page(page(plan(spans), "x", most=50))
    facts = shown.facts()
    away = [edge for edge in facts["edges"] if isinstance(edge[1], str) or isinstance(edge[2], str)]
    assert away
    assert sum(facts["left"].values()) > 0
    assert re.search(r"[\d,]+ content edges are left out", shown.text)


def test_agents_inside_of_agents_without_end_are_rows_and_not_nested_elements() -> None:
    trace = f"{3:032x}"
    spans = [agent(trace=trace)]
    for _ in range(1_200):
        spans.append(agent(trace=trace, parent=spans[-1]))
    spans.append(ask([user("u")], says("a"), trace=trace, parent=spans[-1]))
    shown = made(spans)
    rows = [attributes for _, attributes in shown.elements if attributes.get("role") == "treeitem"]
    assert max(int(row["aria-level"]) for row in rows) == 1_202
    depth = most = 0
    for opened in re.findall(r"<(/?)(?:div|section|main|span)\b", shown.source.partition("<script")[0]):
        depth += -1 if opened else 1
        most = max(most, depth)
    assert most < 20


def test_a_circle_and_a_run_without_any_node_make_a_page() -> None:
    trace = f"{4:032x}"
    one, other = (
        tool("a", id="c1", args="{}", result="1", trace=trace),
        tool("b", id="c2", args="{}", result="2", trace=trace),
    )
    spans = [one._replace(links=(Link(trace, other.span_id, {}),)), other._replace(links=(Link(trace, one.span_id, {}),))]
    assert [box["class"].split()[1] for box in made(spans).marked("node")] == ["refuse", "refuse"]
    empty = made([span("GET /")])
    assert "0 nodes" in empty.text
    assert "nothing is to be replayed" in empty.text


def test_what_could_not_be_read_is_on_the_page() -> None:
    planner = Planner()
    planner.add(ask([user("u")], says("a")))
    for line in (10, 9):
        planner.note(f"runs.jsonl:{line}", "not JSON <b>")
    shown = Page(page(planner.plan(), "runs.jsonl"))
    assert shown.facts()["problems"] == [["runs.jsonl:9", "not JSON <b>"], ["runs.jsonl:10", "not JSON <b>"]]
    assert shown.text.index("runs.jsonl:9") < shown.text.index("runs.jsonl:10")


def test_equal_plans_make_equal_pages_whatever_the_order_and_number_of_spans() -> None:
    spans = [*run(), *many(3, refused_at=1)]
    first = page(plan(spans), "x")
    assert page(plan([*reversed(spans), *spans[:5]]), "x") == first
    assert page(plan(spans), "y") != first


def test_what_decisions_rest_on_is_said() -> None:
    declared = Declared(deterministic=("get_*",), models=("<m>",), recompute=("chat",))
    shown = Page(page(plan(run(), declared=declared), "x"))
    for said in ("get_*", "<m>", "chat"):
        assert said in shown.text


def test_every_word_of_a_plan_is_explained() -> None:
    tables: list[tuple[Any, dict[Any, str]]] = [
        (Choice, words.CHOICES),
        (Reason, words.REASONS),
        (Mode, words.MODES),
        (OrderEvidence, words.ORDERS),
        (EdgeKind, words.EDGES),
        (State, words.STATES),
        (Ending, words.ENDINGS),
    ]
    for kind, table in tables:
        assert set(kind) == set(table)
    for mode in Choice:
        assert f".says.{mode}::before" in made(run()).styles[0]


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_lines_have_the_contrast_that_wcag_aa_asks_for(scheme: int) -> None:
    block = re.findall(r":root \{([^}]*)\}", made(run()).styles[0])[scheme]
    colour = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
    for ground in ("paper", "raised", "chosen", "near", "recompute-fill", "inject-fill", "refuse-fill"):
        for ink in ("ink", "muted"):
            assert _contrast(colour[ink], colour[ground]) >= 4.5, (ink, ground)
    for choice in map(str, Choice):
        for ground in ("paper", "chosen", "near", f"{choice}-fill"):
            assert _contrast(colour[choice], colour[ground]) >= 4.5, (choice, ground)
    assert _contrast(colour["edge"], colour["paper"]) >= 3


def test_a_plan_of_no_values_needs_none_of_them() -> None:
    spans = run()
    bare: Plan = plan(spans, keep_values=False)
    assert page(bare, "x") == page(plan(spans, keep_values=True), "x")
