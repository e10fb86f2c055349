# SPDX-License-Identifier: Apache-2.0
"""Replay without guessing: what may be recomputed, what is taken from the record, and what cannot be replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genai_processor.errors import RecordedFailure, ReplayDivergence, ReplayError, ReplayRefusedError
    from genai_processor.replay.asked import NodeRun
    from genai_processor.replay.block import Replaying, replaying
    from genai_processor.replay.difference import Difference, Parting, differences
    from genai_processor.replay.records import (
        Choice,
        Decision,
        Declared,
        Mode,
        Node,
        Outcome,
        Part,
        PartKind,
        Plan,
        Reason,
        Role,
    )
    from genai_processor.replay.replayer import areplay, aresume, replay, resume
    from genai_processor.replay.results import Done, ReplayBoundary, ReplayResult
    from genai_processor.replay.values import call_part, result_part, text_part

_HOMES = {
    "Choice": "genai_processor.replay.records",
    "Decision": "genai_processor.replay.records",
    "Declared": "genai_processor.replay.records",
    "Difference": "genai_processor.replay.difference",
    "Done": "genai_processor.replay.results",
    "Mode": "genai_processor.replay.records",
    "Node": "genai_processor.replay.records",
    "NodeRun": "genai_processor.replay.asked",
    "Outcome": "genai_processor.replay.records",
    "Part": "genai_processor.replay.records",
    "PartKind": "genai_processor.replay.records",
    "Parting": "genai_processor.replay.difference",
    "Plan": "genai_processor.replay.records",
    "Reason": "genai_processor.replay.records",
    "RecordedFailure": "genai_processor.errors",
    "ReplayBoundary": "genai_processor.replay.results",
    "ReplayDivergence": "genai_processor.errors",
    "ReplayError": "genai_processor.errors",
    "ReplayRefusedError": "genai_processor.errors",
    "ReplayResult": "genai_processor.replay.results",
    "Replaying": "genai_processor.replay.block",
    "Role": "genai_processor.replay.records",
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

__all__ = [
    "Choice",
    "Decision",
    "Declared",
    "Difference",
    "Done",
    "Mode",
    "Node",
    "NodeRun",
    "Outcome",
    "Part",
    "PartKind",
    "Parting",
    "Plan",
    "Reason",
    "RecordedFailure",
    "ReplayBoundary",
    "ReplayDivergence",
    "ReplayError",
    "ReplayRefusedError",
    "ReplayResult",
    "Replaying",
    "Role",
    "areplay",
    "aresume",
    "call_part",
    "differences",
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
