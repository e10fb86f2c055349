# SPDX-License-Identifier: Apache-2.0
"""Running a real agent on the record: what is asked for inside of `with replaying(…)` is answered from it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

from genai_processor.errors import ReplayDivergence, ReplayError
from genai_processor.replay.decisions import Plan
from genai_processor.replay.hooks.installing import HOOKS, installed
from genai_processor.replay.plan import Planner, plan
from genai_processor.replay.records import Operation
from genai_processor.replay.results import ReplayBoundary
from genai_processor.replay.session import Session
from genai_processor.replay.stopping import Stop
from genai_processor.replays import REPLAYS
from genai_processor.spans.otlp import ReadError, read_spans
from genai_processor.spans.records import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_ANSWERED: Final = "answered"


class Replaying:
    """A running `with replaying(...)` block, and what has come of it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def run_id(self) -> str:
        """The replay's id, which the spans that are made in it bear."""
        return self._session.run_id

    @property
    def answered(self) -> frozenset[str]:
        """Keys of the nodes that were answered from the record."""
        return frozenset(self._session.answered)

    @property
    def not_reached(self) -> tuple[str, ...]:
        """Keys of the nodes that nothing has asked for, in the plan's order.

        Those that another node covers are not here, nor handoffs, which frameworks make themselves.
        """
        plan, answered = self._session.plan, self._session.answered
        return tuple(
            node.key
            for node in plan.nodes
            if node.key not in answered
            and node.operation is not Operation.HANDOFF
            and plan.decisions[node.key].covered_by is None
        )

    @property
    def instructions_not_compared(self) -> frozenset[str]:
        """Keys of the models that were instructed with what the record does not have: instructions were not compared."""
        return frozenset(self._session.uninstructed)

    @property
    def stopped(self) -> ReplayError | None:
        """Why it was stopped, or None."""
        return self._session.stopped

    @property
    def boundary(self) -> ReplayBoundary:
        """How far it is valid."""
        return self._session.boundary()


@contextmanager
def replaying(
    recorded: Plan | Iterable[Span | ReadableSpan] | str | os.PathLike[str],
    *,
    models: Literal["answered", "live"] = "answered",
    enter: Iterable[str] = (),
    whole: bool = True,
    allow_unverified: bool = False,
    raise_on_divergence: bool = True,
    patience: float | None = 60.0,
    run_id: str | None = None,
) -> Iterator[Replaying]:
    """Answer the tool calls, and the model calls, of agents that run in the block from the record.

    pydantic-ai, LangChain with LangGraph, and the OpenAI Agents SDK. Answered is what runs in this context, and in tasks
    and threads that have been made with a copy of it, as all three make them; other threads go on as ever. Nothing is
    claimed in a ledger, and spans that are made are marked as this replay's.

    A model call is matched by what it is asked; a tool call by the proposal that it answers, its tool and its arguments as
    the model gave them. What is not in the record stops the run for good, whatever the framework does about it.

    Args:
        recorded: A plan, made with `keep_values`, which is the default; or the recorded spans; or the name of a file with
            them (OTLP as JSON or protobuf). What of a file cannot be read is among the plan's problems.
        models: `live` runs the models that the agents have, and compares what they say; only tools are answered then.
        enter: Names of tools that do nothing but run an agent: their bodies run, and what they call is answered. All other
            tools are answered whole. Globs, too, which fit only tools in which the record shows an agent.
        whole: A run that ends before the record of it did, by a response or a call of a tool, has diverged, and so has a
            block in which nothing asks for anything that is recorded. Where `models` is `live`, only the latter is checked,
            and that each model was listened to until it had answered.
        allow_unverified: Start though some recorded nodes could not be answered.
        raise_on_divergence: Raise what stopped it; else only keep it in `stopped`.
        patience: A call that was cancelled in the record, or never returned, waits until it is cancelled again; after that
            many seconds the run is stopped instead. None waits for as long as it takes.
        run_id: An id of this replay; by default a new one.

    Yields:
        What has come of it so far.

    Raises:
        ReplayDivergence: The run went another way than the record. Whatever the framework raised is its context.
        ReplayRefusedError: The record does not hold what is needed; raised before anything runs where that can be told.
    """
    if models not in (_ANSWERED, "live"):
        raise ValueError(f"models must be 'answered' or 'live', but is {models!r}")
    session = Session(
        _planned(recorded),
        run_id or uuid4().hex,
        models=models == _ANSWERED,
        enter=(enter,) if isinstance(enter, str) else tuple(enter),
        whole=whole,
        allow_unverified=allow_unverified,
        patience=patience,
    )
    found = Replaying(session)
    raised: BaseException | None = None
    with REPLAYS.entered(session.run_id, HOOKS), installed(session):
        try:
            yield found
        except BaseException as error:  # noqa: BLE001 - raised again below, unless it only says that the run was stopped
            raised = error
        if raised is None and session.stopped is None:
            with suppress(Stop):
                session.at_end()
    stopped = session.stopped
    if stopped is not None and not isinstance(raised, (KeyboardInterrupt, SystemExit, GeneratorExit)):
        if raise_on_divergence or not isinstance(stopped, ReplayDivergence):
            raise stopped from (None if isinstance(raised, Stop) else raised)
        return
    if raised is not None:
        raise raised


def _planned(recorded: Plan | Iterable[Span | ReadableSpan] | str | os.PathLike[str]) -> Plan:
    if isinstance(recorded, Plan):
        return recorded
    if not isinstance(recorded, (str, os.PathLike)):
        return plan(recorded)
    planner = Planner()

    def note(error: ReadError) -> None:
        planner.note(error.file if error.line is None else f"{error.file}:{error.line}", error.error)

    planner.add_all(read_spans(recorded, on_error=note))
    return planner.plan()
