# SPDX-License-Identifier: Apache-2.0
"""What the incidents of all frameworks are told with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from genai_processor.guard.context import idempotency_key

_SECONDS = 20
"""After which a run hangs."""


class World:
    """What tools change: effects that landed cannot be taken back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.effects: list[str] = []
        self.keys: list[str | None] = []

    def commit(self, effect: str) -> str:
        """The effect lands."""
        with self._lock:
            self.effects.append(effect)
            self.keys.append(idempotency_key())
        return f"done: {effect}"

    def commit_then_fail(self, effect: str, error: type[Exception] = ConnectionError) -> str:
        """The effect lands, and its answer is lost."""
        self.commit(effect)
        raise error("502 Bad Gateway")

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """One run of an application that says which conversation it is about, if a guard is there to be told."""
        from genai_processor.guard.hooks import active

        guard = active()
        if guard is None:
            yield
        else:
            with guard.run(name):
                yield


class Story(StrEnum):
    """What happens: the same words for the same story in every framework, so that their tables can be read side by side."""

    NEW_ID = "commit, 502, new id"
    SAME_ID = "commit, 502, same id"
    STREAMED = "commit, 502, streamed"
    HANDLED = "commit, 502, told to the model as a text"
    TRIED_AGAIN = "commit, 502, tried again by the framework"
    RUN_AGAIN = "commit, 502, run again by the application"
    TIMED_OUT = "time-out after the commit, run again"
    CANCELLED = "cancelled after the commit, run again"
    LATE = "commit in a thread of a run given up, run again"
    PARALLEL = "three parallel calls"
    TWINS = "two identical calls in one turn"
    LATER_TURN = "the same action in a later turn, after success"
    DIES = "run dies beside a paid call, run again"
    DELEGATED = "sub-agent asked again in other words"
    APPROVED = "a person approves, then resumed"
    OTHER_PROCESS = "killed after the commit, run again elsewhere"
    KILLED_LATER = "killed before the model saw the result, run again elsewhere"
    LATER_RUN = "the same action in a later run elsewhere, after success"
    BAD_ARGUMENTS = "bad arguments"


@dataclass(frozen=True, slots=True)
class Incident:
    """One story in one framework, and what should come of it.

    Attributes:
        story: Which story.
        variant: Which of several ways in which this framework tells it; may be empty.
        tell: Runs the framework; what it raises is part of the story, and does not matter.
        bare: How many effects land without a guard.
        enforced: How many land with one that enforces.
        elsewhere: It is told by other processes, or not to this ledger alone: what a guard says cannot be read here.
        foretold: A guard that observes says what it would have done.
    """

    story: Story
    variant: str
    tell: Callable[[World], None]
    bare: int
    enforced: int
    elsewhere: bool = False
    foretold: bool = True

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return f"{self.story}: {self.variant}" if self.variant else str(self.story)


Run = Callable[[], Awaitable[Any]]
"""Begins a run of an agent."""


async def given_up(run: Awaitable[Any], grows: Sized) -> Any:
    """Cancel a run as soon as a list has grown, as a time-out would that knew when to strike.

    Raises:
        TimeoutError: It was cancelled, however it took that. Of a run that ends before, the result is returned.
    """
    before = len(grows)
    task = asyncio.ensure_future(run)
    while not task.done() and len(grows) == before:
        await asyncio.sleep(0.002)
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise TimeoutError
    return task.result()


async def run_again(grows: Sized, first: Run, again: Run) -> None:
    """Give a run up as soon as a list has grown, and only then run it again; one that ends by itself is not run again."""
    try:
        await given_up(first(), grows)
    except TimeoutError:
        await again()


def one_by_one(world: World, *runs: Run) -> None:
    """Do runs of one conversation, whether or not the one before has lost its connection."""

    async def main() -> None:
        for run in runs:
            with suppress(ConnectionError):
                await asyncio.wait_for(run(), _SECONDS)

    with world.scope("conversation-1"):
        asyncio.run(main())


def told(story: Callable[[World], Awaitable[object]]) -> Callable[[World], None]:
    """Tell an asynchronous story in an event loop of its own."""

    async def main(world: World) -> None:
        await story(world)

    return lambda world: asyncio.run(main(world))


def count(incident: Incident) -> int:
    """Tell a story; return how many effects have landed."""
    world = World()
    with suppress(Exception):  # how the run ends is not what is counted
        incident.tell(world)
    return len(world.effects)
