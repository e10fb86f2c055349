# SPDX-License-Identifier: Apache-2.0
"""Records agno under the official GenAI instrumentation, OpenInference and OpenLLMetry, each with content and without.

In a virtual environment of its own:

    pip install agno==3.1.10 openai==3.57.0 opentelemetry-sdk==1.45.2 opentelemetry-instrumentation-genai-agno==1.3b0 \\
        openinference-instrumentation-agno==1.0.15 opentelemetry-instrumentation-agno==0.62.4
    python tests/recorders/record_agno.py
"""

import os

import _lab

PACKAGES = {
    "genai": "opentelemetry-instrumentation-genai-agno",
    "openinference": "openinference-instrumentation-agno",
    "traceloop": "opentelemetry-instrumentation-agno",
}


def instrument(name: str, content: bool) -> type:
    """Sets the content switch, and says which instrumentor it belongs to."""
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY" if content else "NO_CONTENT"
    os.environ["TRACELOOP_TRACE_CONTENT"] = str(content).lower()
    for hidden in ("INPUTS", "OUTPUTS", "INPUT_MESSAGES", "OUTPUT_MESSAGES"):
        os.environ[f"OPENINFERENCE_HIDE_{hidden}"] = str(not content).lower()
    if name == "genai":
        from opentelemetry.instrumentation.genai.agno import AgnoInstrumentor
    elif name == "openinference":
        from openinference.instrumentation.agno import AgnoInstrumentor
    else:
        from opentelemetry.instrumentation.agno import AgnoInstrumentor
    return AgnoInstrumentor


def main(choice: str) -> None:
    name, _, nocontent = choice.partition("-")
    lab = _lab.Lab("agno", "agno", name, PACKAGES[name], content=not nocontent)
    instrument(name, lab.content)().instrument(tracer_provider=lab.provider)
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat

    async def run(scenario, tools):
        model = OpenAIChat(id="gpt-4o", async_client=lab.openai_client())
        agent = Agent(name="refunder", model=model, tools=tools, telemetry=False)
        await agent.arun(_lab.PROMPT)

    lab.record(run, first=name == "genai")


_lab.command(main, [name + suffix for name in PACKAGES for suffix in ("", "-nocontent")])
