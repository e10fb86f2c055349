# SPDX-License-Identifier: Apache-2.0
"""Running a real agent on the record.

with replaying(plan):
agent.run_sync("…")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

from genai_processor.errors import ReplayDivergence, ReplayError
from genai_processor.replay.decisions import Plan
from genai_processor.replay.hooks.installing import installed
from genai_processor.replay.plan import plan
from genai_processor.replay.results import ReplayBoundary
from genai_processor.replay.session import Session
from genai_processor.replay.stopping import Stop
from genai_processor.replays import REPLAYS
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
        """Keys of the nodes that nothing has asked for, in the plan's order; those that another node covers are not here."""
        plan, answered = self._session.plan, self._session.answered
        return tuple(
            node.key for node in plan.nodes if node.key not in answered and plan.decisions[node.key].covered_by is None
        )

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
    recorded: Plan | Iterable[Span | ReadableSpan],
    *,
    models: Literal["answered", "live"] = "answered",
    enter: Iterable[str] = (),
    whole: bool = True,
    allow_unverified: bool = False,
    raise_on_divergence: bool = True,
    run_id: str | None = None,
) -> Iterator[Replaying]:
    """Answer the tool calls, and the model calls, of agents that run in the block from the record.

    pydantic-ai, LangChain with LangGraph, and the OpenAI Agents SDK. Answered is what runs in this context, and in tasks
    and threads that have been made with a copy of it, as all three make them; other threads go on as ever. Nothing is
    claimed in a ledger, and spans that are made are marked as this replay's.

    A model call is matched by what it is asked; a tool call by the proposal that it answers, its tool and its arguments as
    the model gave them. What is not in the record stops the run for good, whatever the framework does about it.

    Args:
        recorded: A plan, made with `keep_values`, which is the default; or the recorded spans.
        models: `live` runs the models that the agents have, and compares what they say; only tools are answered then.
        enter: Globs over the names of tools that do nothing but run an agent: their bodies run, and what they call is
            answered. All other tools are answered whole.
        whole: A run that ends before the record of it did has diverged. Not checked where `models` is `live`.
        allow_unverified: Start though some recorded nodes could not be answered.
        raise_on_divergence: Raise what stopped it; else only keep it in `stopped`.
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
        recorded if isinstance(recorded, Plan) else plan(recorded),
        run_id or uuid4().hex,
        models=models == _ANSWERED,
        enter=tuple(enter),
        whole=whole,
        allow_unverified=allow_unverified,
    )
    found = Replaying(session)
    raised: BaseException | None = None
    with REPLAYS.entered(session.run_id), installed(session):
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
