# SPDX-License-Identifier: Apache-2.0
"""Replay without guessing: what may be recomputed, what is taken from the record, and what cannot be replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genai_processor.errors import RecordedFailure, ReplayDivergence, ReplayError, ReplayRefusedError
from genai_processor.replay.boundary import decide
from genai_processor.replay.decisions import Boundary, Choice, Container, Decision, Declared, Mode, Plan, Problem, Reason
from genai_processor.replay.parts import Part, PartKind, PartList, Role
from genai_processor.replay.plan import Planner, plan
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
)

if TYPE_CHECKING:
    from genai_processor.replay.asked import NodeRun
    from genai_processor.replay.block import Replaying, replaying
    from genai_processor.replay.difference import Difference, Parting, differences
    from genai_processor.replay.replayer import areplay, aresume, replay, resume
    from genai_processor.replay.results import Done, ReplayBoundary, ReplayResult
    from genai_processor.replay.values import call_part, result_part, text_part

_HOMES = {
    "Difference": "genai_processor.replay.difference",
    "Done": "genai_processor.replay.results",
    "NodeRun": "genai_processor.replay.asked",
    "Parting": "genai_processor.replay.difference",
    "ReplayBoundary": "genai_processor.replay.results",
    "ReplayResult": "genai_processor.replay.results",
    "Replaying": "genai_processor.replay.block",
    "areplay": "genai_processor.replay.replayer",
    "aresume": "genai_processor.replay.replayer",
    "call_part": "genai_processor.replay.values",
    "differences": "genai_processor.replay.difference",
    "replay": "genai_processor.replay.replayer",
    "replaying": "genai_processor.replay.block",
    "result_part": "genai_processor.replay.values",
    "resume": "genai_processor.replay.replayer",
    "text_part": "genai_processor.replay.values",
}
"""What runs something is loaded when it is first used: to plan takes less."""

__all__ = [
    "Boundary",
    "Choice",
    "Container",
    "Decision",
    "Declared",
    "Difference",
    "Done",
    "Edge",
    "EdgeKind",
    "Ending",
    "Inputs",
    "Mode",
    "Node",
    "NodeRun",
    "Operation",
    "OrderEvidence",
    "Outcome",
    "Part",
    "PartKind",
    "PartList",
    "Parting",
    "Plan",
    "Planner",
    "Problem",
    "Reason",
    "RecordedFailure",
    "ReplayBoundary",
    "ReplayDivergence",
    "ReplayError",
    "ReplayRefusedError",
    "ReplayResult",
    "Replaying",
    "Role",
    "State",
    "Structure",
    "areplay",
    "aresume",
    "call_part",
    "decide",
    "differences",
    "plan",
    "replay",
    "replaying",
    "result_part",
    "resume",
    "text_part",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
