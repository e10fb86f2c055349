# SPDX-License-Identifier: Apache-2.0
"""Records how agents get at what was said before: whole histories, deltas, filters, summaries, lists of their own.

One folder of `tests/data/histories/` for each framework and instrumentation. No tool has an effect: there is no truth.json.
In a virtual environment of its own:

    pip install openai-agents==0.24.0 openai==3.57.0 langchain==1.5.2 langgraph==1.2.24 opentelemetry-sdk==1.45.2 \\
        opentelemetry-instrumentation-genai-openai-agents==1.3b0 opentelemetry-instrumentation-genai-openai==1.3b0 \\
        opentelemetry-instrumentation-genai-langchain==1.3b0 openinference-instrumentation-openai-agents==2.6.0
    python tests/recorders/record_histories.py
"""

import asyncio
import json
import os
import pathlib
import subprocess
import sys

import _lab
import httpx2 as httpx
import openai

os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
DATA = pathlib.Path(__file__).parent.parent / "data" / "histories"
GROUP = "conv-9"


def look(name: str) -> tuple[str, dict[str, str]]:
    return "search", {"query": name}


class Script:
    """What the model answers, turn by turn: a text, or a call `(tool, arguments)`."""

    def __init__(self) -> None:
        self.turns: list = []
        self.count = 0

    def next(self):
        self.count += 1
        return self.count, self.turns.pop(0)

    def respond(self, request):
        """Stands in for the responses API, which says which response or conversation a request went on from."""
        body = json.loads(request.content)
        number, turn = self.next()
        output = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        if isinstance(turn, str):
            output["content"] = [{"type": "output_text", "text": turn, "annotations": []}]
        else:
            call = {"call_id": f"call_Xq{number}9zR", "name": turn[0], "arguments": json.dumps(turn[1])}
            output = {"type": "function_call", "id": f"fc_{number}", "status": "completed", **call}
        conversation = body.get("conversation")
        answer = {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1,
            "model": "gpt-4o",
            "output": [output],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "status": "completed",
            "previous_response_id": body.get("previous_response_id"),
            "conversation": {"id": conversation} if conversation else None,
        }
        return httpx.Response(200, json=answer)


def openai_agents(lab: Script) -> dict:
    from agents import Agent, RunConfig, Runner, function_tool, handoff, trace
    from agents.extensions.handoff_filters import remove_all_tools
    from agents.models.openai_responses import OpenAIResponsesModel

    client = httpx.AsyncClient(transport=httpx.MockTransport(lab.respond))
    model = OpenAIResponsesModel(
        "gpt-4o", openai.AsyncOpenAI(api_key="none", base_url="http://model.invalid/v1", http_client=client)
    )

    @function_tool
    def search(query: str) -> str:
        """Search."""
        return f"found {query}"

    async def said(agent, text, **more):
        with trace("chat", group_id=GROUP):
            return await Runner.run(agent, text, **more)

    def shop(**more):
        return Agent(name="shop", model=model, tools=[search], instructions="help", **more)

    async def previous_response():
        lab.turns = [look("o1"), "it is late", "sorry", look("o2"), "it is here"]
        done = await said(shop(), "where is o1?", auto_previous_response_id=True)
        for text in ("that is bad", "where is o2?"):
            last = done.last_response_id
            done = await said(shop(), text, previous_response_id=last, auto_previous_response_id=True)

    async def previous_response_text_only():
        lab.turns = ["it is late", "sorry"]
        done = await said(shop(), "where is o1?")
        await said(shop(), "that is bad", previous_response_id=done.last_response_id)

    async def server_conversation():
        lab.turns = [look("o1"), "it is late", "sorry"]
        with trace("chat", group_id=GROUP):
            await Runner.run(shop(), "where is o1?", conversation_id="conv_1")
            await Runner.run(shop(), "that is bad", conversation_id="conv_1")

    async def whole_history():
        lab.turns = [look("o1"), "it is late", "sorry", look("o2"), "it is here"]
        done = await said(shop(), "where is o1?")
        for text in ("that is bad", "where is o2?"):
            done = await said(shop(), [*done.to_input_list(), {"role": "user", "content": text}])

    async def handed_off(**more):
        lab.turns = [look("o1"), ("transfer_to_refunds", {}), look("o1"), "done", "you are welcome"]
        refunds = Agent(name="refunds", model=model, tools=[search], instructions="refund")
        config = RunConfig(nest_handoff_history=more.pop("nested", False))
        done = await said(shop(handoffs=[handoff(refunds, **more)]), "refund o1", run_config=config)
        await said(done.last_agent, [*done.to_input_list(), {"role": "user", "content": "thanks"}], run_config=config)

    async def parallel_runs():
        lab.turns = ["one", "two", "three"]
        with trace("map", group_id=GROUP):
            await asyncio.gather(*[Runner.run(shop(), f"task {number}") for number in range(3)])

    async def agents_as_tools():
        asked = [("ask_shop", {"input": f"find {name}"}) for name in ("a", "b")]
        lab.turns = [asked[0], look("a"), "a is 1", asked[1], look("b"), "b is 2", "both found"]
        boss = Agent(name="boss", model=model, tools=[shop().as_tool("ask_shop", "asks")], instructions="lead")
        await said(boss, "find a and b")

    return {
        "previous_response": previous_response,
        "previous_response_text_only": previous_response_text_only,
        "server_conversation": server_conversation,
        "whole_history": whole_history,
        "handoff": handed_off,
        "handoff_filtered": lambda: handed_off(input_filter=remove_all_tools),
        "handoff_nested": lambda: handed_off(nested=True),
        "parallel_runs": parallel_runs,
        "agents_as_tools": agents_as_tools,
    }


def langchain(lab: Script) -> dict:
    from langchain.agents import create_agent
    from langchain.agents.middleware import (
        ClearToolUsesEdit,
        ContextEditingMiddleware,
        SummarizationMiddleware,
        before_model,
    )
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.graph.message import REMOVE_ALL_MESSAGES

    class Model(BaseChatModel):
        @property
        def _llm_type(self):
            return "openai-chat"

        @property
        def _identifying_params(self):
            return {"model_name": "gpt-4o", "model": "gpt-4o"}

        def _get_ls_params(self, stop=None, **_):
            return {"ls_provider": "openai", "ls_model_name": "gpt-4o", "ls_model_type": "chat"}

        def bind_tools(self, tools, **_):
            return self

        def _generate(self, messages, stop=None, run_manager=None, **_):
            number, turn = lab.next()
            message = AIMessage(turn if isinstance(turn, str) else "", id=f"m{number}")
            if not isinstance(turn, str):
                message.tool_calls = [{"name": turn[0], "args": turn[1], "id": f"call_Zq{number}8w", "type": "tool_call"}]
            return ChatResult(generations=[ChatGeneration(message=message)], llm_output={"model_name": "gpt-4o"})

    model = Model()
    thread = {"configurable": {"thread_id": GROUP}, "metadata": {"thread_id": GROUP}}

    @tool
    def search(query: str) -> str:
        """Search."""
        return f"found {query} " + "x" * 40

    @before_model
    def last_three(state, runtime):
        messages = state["messages"]
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *messages[-3:]]} if len(messages) > 4 else None

    def talk(turns, texts, *middleware):
        async def run():
            lab.turns = list(turns)
            agent = create_agent(
                model, [search], system_prompt="help", name="shop", checkpointer=InMemorySaver(), middleware=middleware
            )
            for text in texts:
                agent.invoke({"messages": [("user", text)]}, thread)

        return run

    async def supervisor():
        lab.turns = ["ask research", look("a"), "a is 1", "ask again", look("b"), "b is 2", "all done"]
        worker = create_agent(model, [search], system_prompt="research")

        def lead(state):
            return {"messages": [model.invoke([SystemMessage("you lead"), *state["messages"]])]}

        def research(state):
            return {"messages": worker.invoke({"messages": state["messages"][:1]})["messages"][-1:]}

        graph = StateGraph(MessagesState).add_node("lead", lead).add_node("research", research)
        graph.add_edge(START, "lead").add_edge("research", "lead")
        graph.add_conditional_edges("lead", lambda state: "research" if len(state["messages"]) < 5 else END)
        graph.compile(name="team").invoke({"messages": [("user", "write about a")]}, thread)

    async def graders():
        lab.turns = ["fees", "yes", "no", "3 %", "costs", "no", "yes", "4 %"]

        def answer(state):
            query = model.invoke(f"rewrite: {state['messages'][-1].content}").content
            for document in ("one", "two"):
                model.invoke([SystemMessage("grade"), HumanMessage(f"is {document} about {query}?")])
            return {"messages": [model.invoke(f"answer {query}")]}

        graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile(name="rag")
        for text in ("fees?", "costs?"):
            graph.invoke({"messages": [("user", text)]}, thread)

    looked = [look("a"), "a is 1"]
    summary = SummarizationMiddleware(model=model, trigger=("messages", 6), keep=("messages", 3))
    cleared = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=10, keep=1)])
    return {
        "summarised": talk([*looked, look("b"), "a is 1", "b is 2"], ["find a", "find b"], summary),
        "trimmed": talk([*looked, "two", "three", "four"], ["find a", "b?", "c?", "d?"], last_three),
        "results_cleared": talk([look("a"), look("b"), look("c"), "done"], ["find all"], cleared),
        "supervisor": supervisor,
        "graders": graders,
    }


def main(choice: str) -> None:
    framework, _, instrumentation = choice.partition("__")
    of = {
        "openai-agents__genai": "opentelemetry-instrumentation-genai-openai-agents",
        "openai-agents__openinference": "openinference-instrumentation-openai-agents",
        "langchain__genai": "opentelemetry-instrumentation-genai-langchain",
    }
    lab = _lab.Lab(framework, framework, instrumentation, of[choice])
    if choice == "openai-agents__genai":
        from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
        from opentelemetry.instrumentation.genai.openai_agents import OpenAIAgentsInstrumentor as Instrumentor

        OpenAIInstrumentor().instrument(tracer_provider=lab.provider)
    elif choice == "openai-agents__openinference":
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor as Instrumentor
    else:
        from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor as Instrumentor
    if framework == "openai-agents":
        from agents import set_trace_processors

        set_trace_processors([])  # its own would send them away
    Instrumentor().instrument(tracer_provider=lab.provider)
    script = Script()
    stories = openai_agents(script) if framework == "openai-agents" else langchain(script)
    folder = DATA / choice
    folder.mkdir(parents=True, exist_ok=True)
    for name, story in stories.items():
        lab.spans = []
        script.count = 0
        asyncio.run(story())
        lab.provider.force_flush()
        (folder / f"{name}.jsonl").write_text("".join(line + "\n" for line in _lab.otlp_lines(lab.spans)))
        print(f"{choice}/{name}: {len(lab.spans)} spans, {len(script.turns)} answers left")


if len(sys.argv) > 1:
    main(sys.argv[1])
else:
    for one in ("openai-agents__genai", "openai-agents__openinference", "langchain__genai"):
        subprocess.run([sys.executable, __file__, one], check=True)
