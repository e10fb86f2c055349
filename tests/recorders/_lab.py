# SPDX-License-Identifier: Apache-2.0
"""What the recorders share: a scripted model, tools that write down what they really did, spans as OTLP/JSON lines.

A recorder makes a `Lab`, instruments its framework on the global tracer provider, and calls `lab.record(run)`, where
`run(scenario, tools)` is a coroutine function that lets the framework's agent answer one prompt. The model is the
framework's own OpenAI client, over a transport that never leaves the process (`lab.http_client()`). Needs
opentelemetry-sdk, and openai 3 (for its httpx2).
"""

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import itertools
import json
import pathlib
import re
import subprocess
import sys
import time

import httpx2 as httpx
import openai
import pydantic
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

DATA = pathlib.Path(__file__).parent.parent / "data" / "recorded"
PROMPT = "refund order o1"
REFUND = ("create_refund", {"order_id": "o1", "amount_cents": 500})
DOCS = ("search_docs", {"query": "refund policy"})
RATE = ("get_rate", {"currency": "EUR"})


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One prompt: the calls of each turn of the model, and what the body of `create_refund` does each time it runs."""

    name: str
    turns: tuple = ((REFUND,),)
    does: tuple[str, ...] = ("ok",)
    timeout: float = 10.0
    threaded: bool = False  # the refund is a plain function, which the framework may run in a thread
    bare: bool = True  # also worth recording without content
    once: bool = False  # tells of the framework, not of who traces it: recorded under its first instrumentation alone
    notes: str = ""


SCENARIOS = (
    Scenario("s01_ok"),
    Scenario("s01b_returns_nothing", does=("nothing",), once=True),
    Scenario("s02_commit_then_502", does=("commit_raise",)),
    Scenario(
        "s02c_commit_then_validation_error",
        does=("validation",),
        bare=False,
        notes="the body's own ValidationError, after the commit",
    ),
    Scenario("s03_bad_json_args", ((("create_refund", '{"order_id": "o1", "amount_ce'),),), once=True),
    Scenario("s04_schema_invalid", ((("create_refund", {"order_id": "o1"}),),), bare=False, notes="missing field"),
    Scenario("s04b_wrong_type", ((("create_refund", {"order_id": "o1", "amount_cents": "lots"}),),), notes="wrong type"),
    Scenario("s05_unknown_tool", ((("delete_everything", {"x": 1}),),), bare=False),
    Scenario("s06_retry_new_id", ((REFUND,), (REFUND,)), ("commit_raise", "ok")),
    Scenario("s08_fanout", ((REFUND, DOCS, RATE),), bare=False),
    Scenario("s09_timeout", does=("commit_hang",), timeout=0.3, notes="asyncio.wait_for around the run, async tool"),
    Scenario(
        "s09b_timeout_thread_commits_later",
        does=("hang_commit",),
        timeout=0.3,
        threaded=True,
        once=True,
        notes="plain function in a thread: it commits after the run was cancelled",
    ),
    Scenario("s10d_tool_returns_error_string", does=("error_text",), once=True),
)


class Lab(SpanExporter):
    """Records one folder: FRAMEWORK__INSTRUMENTATION[__nocontent]."""

    def __init__(self, framework, package, instrumentation, instrumentation_package, content=True, rename=str):
        self.head = {
            "framework": framework,
            "framework_version": importlib.metadata.version(package),
            "instrumentation": instrumentation,
            "instrumentation_version": importlib.metadata.version(instrumentation_package),
            "sdk_version": importlib.metadata.version("opentelemetry-sdk"),
            "content_capture": content,
        }
        self.folder = DATA / f"{framework}__{instrumentation}{'' if content else '__nocontent'}"
        self.content, self.rename = content, rename
        self.provider = TracerProvider(resource=Resource({"service.name": "recorder"}))
        self.provider.add_span_processor(SimpleSpanProcessor(self))
        trace.set_tracer_provider(self.provider)

    # spans

    def export(self, spans):
        self.spans.extend(spans)
        return SpanExportResult.SUCCESS

    # the model

    def http_client(self):
        """Stands in for the chat-completions API: it plays the scenario's turns, then says "done"."""
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    def openai_client(self):
        return openai.AsyncOpenAI(api_key="none", base_url="http://model.invalid/v1", http_client=self.http_client())

    def _answer(self, request):
        message = {"role": "assistant", "content": "done"}
        if self.turns:
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [self._propose(*call) for call in self.turns.pop(0)],
            }
        reason = "tool_calls" if "tool_calls" in message else "stop"
        return httpx.Response(
            200,
            json={
                "id": f"chatcmpl-lab-{next(self.answers)}",
                "object": "chat.completion",
                "created": 1,
                "model": "gpt-4o",
                "choices": [{"index": 0, "finish_reason": reason, "message": message}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
            },
        )

    def _propose(self, tool, args):
        call_id = f"call_lab_c{len(self.requested) + 1}"
        self.requested.append({"tool": tool, "id": call_id, "args": args})
        text = args if isinstance(args, str) else json.dumps(args)
        return {"id": call_id, "type": "function", "function": {"name": self.rename(tool), "arguments": text}}

    # the tools

    @contextlib.contextmanager
    def _body(self, tool, **args):
        entry = {
            "tool": tool,
            "args": args,
            "call_id_seen_by_tool_or_null": None,
            "side_effect_committed": False,
            "executed": True,
            "outcome": "process died / not finished",
            "start_unix_nano": time.time_ns(),
            "commit_unix_nano": None,
            "end_unix_nano": None,
        }
        self.executed.append(entry)
        try:
            yield entry
            entry["outcome"] = "ok"
        except BaseException as exc:
            entry["outcome"] = "raised" if isinstance(exc, Exception) else "cancelled"
            raise
        finally:
            entry["end_unix_nano"] = time.time_ns()

    def _commit(self, entry):
        entry["side_effect_committed"], entry["commit_unix_nano"] = True, time.time_ns()

    def _refund(self, entry, does):
        self._commit(entry)
        if does == "commit_raise":
            raise RuntimeError("502 Bad Gateway on response leg")
        if does == "validation":
            pydantic.TypeAdapter(int).validate_python("not a number")
        if does == "nothing":
            return None
        if does == "error_text":
            return "ERROR: 502 Bad Gateway, the refund may have failed"
        return f"refunded {entry['args']['order_id']}"

    def tools(self, scenario):
        does = itertools.chain(scenario.does, itertools.repeat("ok"))

        async def create_refund(order_id: str, amount_cents: int) -> str:
            """Refund an order."""
            with self._body("create_refund", order_id=order_id, amount_cents=amount_cents) as entry:
                act = next(does)
                answer = self._refund(entry, act)
                if act == "commit_hang":
                    await asyncio.sleep(30)
                return answer

        def create_refund_in_thread(order_id: str, amount_cents: int) -> str:
            """Refund an order."""
            with self._body("create_refund", order_id=order_id, amount_cents=amount_cents) as entry:
                time.sleep(0.8)
                return self._refund(entry, next(does))

        async def search_docs(query: str) -> str:
            """Search the documents."""
            with self._body("search_docs", query=query):
                await asyncio.sleep(0.02)
                return "refunds within 30 days"

        async def get_rate(currency: str) -> str:
            """The exchange rate of a currency."""
            with self._body("get_rate", currency=currency):
                await asyncio.sleep(0.01)
                return "1.08"

        create_refund_in_thread.__name__ = "create_refund"
        refund = create_refund_in_thread if scenario.threaded else create_refund
        return [refund, search_docs, get_rate] if "fanout" in scenario.name else [refund]

    # one folder

    def record(self, run, skip=(), more=(), first=True):
        self.folder.mkdir(parents=True, exist_ok=True)
        chosen = [s for s in (*SCENARIOS, *more) if not s.name.startswith(tuple(skip))]
        chosen = [s for s in chosen if (self.content or (s.bare and not s.once)) and (first or not s.once)]
        truth = [asyncio.run(self._one(scenario, run)) for scenario in chosen]
        (self.folder / "truth.json").write_text("[\n" + ",\n".join(map(compact, truth)) + "\n]\n")

    async def _one(self, scenario, run):
        self.turns, self.requested, self.executed, self.spans, escaped = list(scenario.turns), [], [], [], None
        self.answers = itertools.count(1)
        try:
            await asyncio.wait_for(run(scenario, self.tools(scenario)), scenario.timeout)
        except Exception as exc:  # noqa: BLE001 - whatever escapes is what happened
            escaped = f"{type(exc).__name__}: {exc}"[:200]
        returned = time.time_ns()
        await asyncio.sleep(1.0 if scenario.threaded else 0.05)
        left = asyncio.all_tasks() - {
            asyncio.current_task()
        }  # what the framework left running ends as asyncio.run would end it
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self.provider.force_flush()
        lines = otlp_lines(self.spans)
        (self.folder / f"{scenario.name}.jsonl").write_text("".join(line + "\n" for line in lines))
        calls = self._match()
        assert calls, "the scripted model was not reached"
        print(
            f"{self.folder.name}/{scenario.name}: {len(self.spans)} spans, "
            f"{[(c['tool'], c['outcome']) for c in calls]}, {escaped}"
        )
        return {
            "scenario": scenario.name,
            "file": f"{scenario.name}.jsonl",
            **self.head,
            "tool_calls": calls,
            "total_commits": sum(c["side_effect_committed"] for c in calls),
            "model_requested": self.requested,
            "http_received": [],
            "escaped_exception": escaped,
            "caller_returned_unix_nano": returned,
            "spans": len(self.spans),
            "notes": scenario.notes,
        }

    def _match(self):
        """The calls that the model asked for, each with its execution: same tool, same arguments, in order."""
        left, calls = list(self.executed), []
        for ask in self.requested:
            same_tool = [e for e in left if e["tool"] == ask["tool"]]
            entry = next((e for e in same_tool if e["args"] == ask["args"]), same_tool[0] if same_tool else None)
            if entry:
                left.remove(entry)
            else:
                entry = {
                    "tool": ask["tool"],
                    "args": ask["args"],
                    "call_id_seen_by_tool_or_null": None,
                    "side_effect_committed": False,
                    "executed": False,
                    "outcome": "never_executed",
                }
            calls.append({**entry, "model_call_id": ask["id"]})
        return calls + [{**entry, "model_call_id": None} for entry in left]


# OTLP/JSON


def compact(data):
    return json.dumps(data, separators=(",", ":"))


def otlp_lines(spans):
    """One line per run of spans of the same scope, in the order in which they ended."""
    for _, group in itertools.groupby(spans, key=lambda span: (span.instrumentation_scope.name, span.resource)):
        group = list(group)
        scope = {"name": group[0].instrumentation_scope.name, "version": group[0].instrumentation_scope.version}
        yield compact(
            {
                "resourceSpans": [
                    {
                        "resource": {"attributes": _attributes(group[0].resource.attributes)},
                        "scopeSpans": [
                            {"scope": {k: v for k, v in scope.items() if v}, "spans": [_span(span) for span in group]}
                        ],
                    }
                ]
            }
        )


def _span(span):
    flags = 0x100 | (0x200 if span.parent and span.parent.is_remote else 0)
    data = {
        "traceId": f"{span.context.trace_id:032x}",
        "spanId": f"{span.context.span_id:016x}",
        "parentSpanId": span.parent and f"{span.parent.span_id:016x}",
        "name": span.name,
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _attributes(span.attributes),
        "events": [
            {"timeUnixNano": str(e.timestamp), "name": e.name, "attributes": _attributes(e.attributes)} for e in span.events
        ],
        "links": [{"traceId": f"{k.context.trace_id:032x}", "spanId": f"{k.context.span_id:016x}"} for k in span.links],
        "droppedAttributesCount": span.dropped_attributes,
        "status": {
            k: v
            for k, v in (("message", short(span.status.description or "")), ("code", span.status.status_code.value))
            if v
        },
        "flags": flags,
    }
    return {key: value for key, value in data.items() if value or key == "status"}


def _attributes(attributes):
    return [{"key": key, "value": _value(value)} for key, value in (attributes or {}).items()]


def _value(value):
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": short(value)}


def short(text):
    """Without this machine's folders, and of a stack trace only its first line and its last."""
    text = re.sub(r'/[^\s"\',]*?/(site-packages|python3\.\d+|tests/recorders)/', r"\1/", text)
    lines = text.splitlines()
    if text.startswith("Traceback (most recent call last)") and len(lines) > 3:
        text = "\n".join([lines[0], "  ...", lines[-1]]) + "\n"
    return text


def command(main, choices):
    """`python record_X.py CHOICE`: each choice in a process of its own, since instrumentation is global."""
    if len(sys.argv) > 1:
        return main(sys.argv[1])
    for choice in choices:
        subprocess.run([sys.executable, sys.argv[0], choice], check=True)
