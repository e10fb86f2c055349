# SPDX-License-Identifier: Apache-2.0
"""What one span says that a replay needs, read once; the span itself need not be kept."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

from genai_processor.replay.lists import ReadList
from genai_processor.replay.records import Operation, Outcome, State
from genai_processor.replay.stamps import Stamp
from genai_processor.spans.records import View


class Stands(enum.Enum):
    """What a span stands for in a replay."""

    NODE = "node"
    AGENT = "agent"
    """A container that is an agent or a workflow: call ids are looked up in it first."""
    STEP = "step"
    """A container of another kind."""
    NOTHING = "nothing"
    """Transport, a phantom, or a span of somebody else."""


class Link(NamedTuple):
    """A span link that may say that content went along it."""

    trace_id: str
    span_id: str


class Shown(NamedTuple):
    """What one span says.

    Attributes:
        key: Its key.
        trace_id: Its trace.
        span_id: Its id.
        parent_id: Its parent's id, or None.
        stands: What it stands for.
        operation: The operation of a node, or None.
        name: The recorded operation's name; of a container, its span's name.
        dialect: Its dialect's name ("" for a span of nobody's).
        tool: A tool's name, or a retrieval's source.
        model: A model's name.
        agent_name: The name of the agent that it is, or that it says it belongs to.
        conversation: The conversation that it names.
        call_id: The call id that a tool span, or the step around one, names.
        view: From where a tool span shows its call.
        inputs: The list that went in; for a tool its arguments, a list of one.
        output: What came out.
        system: `content_digest` of the system instructions, or b"".
        tools: `content_digest` of the tool definitions, or b"".
        held: The states that marks on the span give its input (a previous response, a compaction, dropped attributes).
        links: Its links.
        texts: For a container: the texts of its own input and output, not read yet.
        delegated: For a tool: the digests that a user's part has which says its arguments, or the only one of them.
        answer: For an inference that ended with one text: the digest of a tool's result that says the same; else b"".
        documents: For a retrieval or a reranking: the digests that messages' parts have which say one of its documents, each
            with that one's rank.
        stamp: For an inference: what its recording says that it read and said, or None.
        failed: For a step: it ended in an error.
        unnamed: For a tool: it was written without a call id, so that none can have been lost.
    """

    key: str
    trace_id: str
    span_id: str
    parent_id: str | None
    stands: Stands
    operation: Operation | None = None
    name: str = ""
    dialect: str = ""
    tool: str | None = None
    model: str | None = None
    agent_name: str | None = None
    conversation: str | None = None
    call_id: str | None = None
    view: View | None = None
    inputs: ReadList | None = None
    output: Outcome | None = None
    system: bytes = b""
    tools: bytes = b""
    held: tuple[State, ...] = ()
    links: tuple[Link, ...] = ()
    texts: Mapping[str, Any] | None = None
    delegated: tuple[bytes, ...] = ()
    answer: bytes = b""
    documents: tuple[tuple[bytes, int], ...] = ()
    stamp: Stamp | None = None
    failed: bool = False
    unnamed: bool = False
