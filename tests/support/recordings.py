# SPDX-License-Identifier: Apache-2.0
"""Recorded runs of real agents, for building the same agents again and replaying them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from genai_processor.replay import Operation, Plan, plan
from genai_processor.spans.otlp import read_spans

DATA = Path(__file__).parent.parent / "data"


class Recorded(NamedTuple):
    """A recorded run.

    Attributes:
        folder: Framework and instrumentation.
        scenario: What happens in it.
        end: What the run came to: the final text, or what of an exception's text.
    """

    folder: str
    scenario: str
    end: str

    @property
    def plan(self) -> Plan:
        (path,) = DATA.glob(f"*/{self.folder}/{self.scenario}.jsonl")
        return plan(read_spans(path, on_error=lambda error: pytest.fail(str(error))))

    @property
    def question(self) -> str:
        """What the user said first."""
        asked = [node for node in self.plan.nodes if node.operation is Operation.INFERENCE]
        shortest = min(asked, key=lambda node: len(node.inputs.parts))
        return str(next(part.value for part in shortest.inputs.parts if part.role == "user"))


def each(*recorded: tuple[str, str, str]) -> pytest.MarkDecorator:
    """Run a test with each of these."""
    return pytest.mark.parametrize(
        "recorded", [Recorded(*one) for one in recorded], ids=[f"{folder}-{scenario}" for folder, scenario, _ in recorded]
    )
