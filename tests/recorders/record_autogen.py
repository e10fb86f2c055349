# SPDX-License-Identifier: Apache-2.0
"""Records AutoGen's own tracing, alone and under OpenInference, the latter with content and without.

AutoGen itself has no content switch. In a virtual environment of its own:

    pip install autogen-agentchat==0.7.5 'autogen-ext[openai]==0.7.5' openai==3.57.0 opentelemetry-sdk==1.45.2 \\
        openinference-instrumentation-autogen-agentchat==0.1.22
    python tests/recorders/record_autogen.py
"""

import asyncio
import os

import _lab


def main(choice: str) -> None:
    package = "openinference-instrumentation-autogen-agentchat"
    if choice == "native":
        lab = _lab.Lab("autogen", "autogen-agentchat", "native", "autogen-core")
    else:
        lab = _lab.Lab("autogen", "autogen-agentchat", "openinference", package, choice == "openinference")
        if not lab.content:
            for hidden in ("INPUTS", "OUTPUTS", "INPUT_MESSAGES", "OUTPUT_MESSAGES"):
                os.environ[f"OPENINFERENCE_HIDE_{hidden}"] = "true"
        from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor

        AutogenAgentChatInstrumentor().instrument(tracer_provider=lab.provider)
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import CancellationToken
    from autogen_core.tools import FunctionTool
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    async def run(scenario, tools):
        model = OpenAIChatCompletionClient(
            model="gpt-4o", api_key="none", base_url="http://model.invalid/v1", http_client=lab.http_client()
        )
        tools = [FunctionTool(tool, description=tool.__doc__) for tool in tools]
        agent = AssistantAgent("refunder", model, tools=tools, system_message="Refund orders.", max_tool_iterations=3)
        token = CancellationToken()
        if scenario is by_token:
            asyncio.get_running_loop().call_later(0.3, token.cancel)
        await agent.run(task=_lab.PROMPT, cancellation_token=token)

    by_token = _lab.Scenario(
        "s09d_cancellation_token",
        does=("commit_hang",),
        timeout=2.0,
        once=True,
        notes="AutoGen's own CancellationToken, after 0.3 s; the run itself then hangs",
    )
    skip = () if choice == "native" else ("s02c", "s04_")  # the native span is there too, and looks the same
    lab.record(run, skip=skip, more=(by_token,), first=choice == "native")


_lab.command(main, ("native", "openinference", "openinference-nocontent"))
