# SPDX-License-Identifier: Apache-2.0
"""Replaying a plan: what is recorded is taken from the record, what may be recomputed is, and every node is compared.

result = replay(plan(spans, recompute=("chat",)), {"chat": ask_the_model})
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from typing import Any, NamedTuple
from uuid import uuid4

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.asked import Arrange, NodeRun, Recompute, ways
from genai_processor.replay.decisions import Mode, Plan
from genai_processor.replay.records import EdgeKind, Outcome
from genai_processor.replay.results import ReplayBoundary, ReplayResult
from genai_processor.replay.values import failed, outcome_of
from genai_processor.replay.walk import Job, Walk
from genai_processor.replays import REPLAYS


def replay(
    plan: Plan,
    recompute: Mapping[str, Recompute] | Recompute | None = None,
    *,
    modes: Mapping[str, Mode | str] | Mode | str | None = None,
    arrange: Mapping[str, Arrange] | Arrange | None = None,
    allow_unverified: bool = False,
    raise_on_divergence: bool = True,
    workers: int | None = None,
    run_id: str | None = None,
) -> ReplayResult:
    """Replay a recorded run. Independent branches run in parallel; the result does not depend on how.

    Before a node gets its input, that is compared with the recorded one by digest, also where the node is then injected;
    after a recompute, the output is. Nothing is run but the functions that are given, and nothing is written to a ledger.

    Args:
        plan: What to do with each node.
        recompute: The function that runs in place of nodes, or several by name: a node's key, a tool's name, the name of an
            operation (`chat`), its kind (`inference`), or `*`. It runs nodes that the plan recomputes, on what came from
            upstream; and those injected nodes whose inputs may be injected, on their recorded input. Without a function a
            node's recorded outcome is its value.
        modes: How nodes are to be injected, by the same names, or all: `output` or `inputs`.
        arrange: How the application puts in order what a node gets from upstream, by the same names; by default as recorded.
        allow_unverified: Take the recorded outcome of refused nodes, too, though nobody can tell whether it belongs there.
        raise_on_divergence: Raise the first divergence; else go on beside it and return them all.
        workers: How many functions run at once; by default what a thread pool takes.
        run_id: An id of this replay, which the spans that it makes bear; by default a new one.

    Returns:
        What became of each node.

    What a function raises is its node's outcome, and is compared as such; also a cancellation of its own. Only what ends
    the program (`KeyboardInterrupt`, `SystemExit`), and a refusal, pass, when the functions that run beside are back.

    Raises:
        ReplayDivergence: The first, in the plan's order, with the boundary to `resume` from.
        ReplayRefusedError: What is asked for is not sound; nothing has run. Or a function called something that may have an
            effect, and is guarded.
        TypeError: A function returns an awaitable; `areplay` takes those.
    """
    walk, run_id = _walk(plan, recompute, modes, arrange, allow_unverified, not raise_on_divergence, run_id, None)
    return _finish(_run(walk, run_id, workers), raise_on_divergence)


async def areplay(
    plan: Plan,
    recompute: Mapping[str, Recompute] | Recompute | None = None,
    *,
    modes: Mapping[str, Mode | str] | Mode | str | None = None,
    arrange: Mapping[str, Arrange] | Arrange | None = None,
    allow_unverified: bool = False,
    raise_on_divergence: bool = True,
    workers: int | None = None,
    run_id: str | None = None,
) -> ReplayResult:
    """As `replay`, in tasks of the running loop: coroutine functions are awaited there, others run in threads.

    If it is cancelled, so are the functions that run; those in threads, which nobody can cancel, are waited for.
    """
    walk, run_id = _walk(plan, recompute, modes, arrange, allow_unverified, not raise_on_divergence, run_id, None)
    return _finish(await _arun(walk, run_id, workers), raise_on_divergence)


def resume(
    boundary: ReplayBoundary,
    recompute: Mapping[str, Recompute] | Recompute | None = None,
    *,
    modes: Mapping[str, Mode | str] | Mode | str | None = None,
    arrange: Mapping[str, Arrange] | Arrange | None = None,
    allow_unverified: bool = False,
    raise_on_divergence: bool = True,
    workers: int | None = None,
    run_id: str | None = None,
) -> ReplayResult:
    """As `replay`, from a boundary on: what is within keeps its values, the rest runs.

    Args:
        boundary: `last_valid_boundary` of a divergence, or `boundary` of a result.
        recompute: See `replay`, also for the others.
        modes: See there.
        arrange: See there.
        allow_unverified: See there.
        raise_on_divergence: See there.
        workers: See there.
        run_id: See there.
    """
    collect = not raise_on_divergence
    walk, run_id = _walk(boundary.plan, recompute, modes, arrange, allow_unverified, collect, run_id, boundary)
    return _finish(_run(walk, run_id, workers), raise_on_divergence)


async def aresume(
    boundary: ReplayBoundary,
    recompute: Mapping[str, Recompute] | Recompute | None = None,
    *,
    modes: Mapping[str, Mode | str] | Mode | str | None = None,
    arrange: Mapping[str, Arrange] | Arrange | None = None,
    allow_unverified: bool = False,
    raise_on_divergence: bool = True,
    workers: int | None = None,
    run_id: str | None = None,
) -> ReplayResult:
    """As `resume`, in tasks of the running loop."""
    collect = not raise_on_divergence
    walk, run_id = _walk(boundary.plan, recompute, modes, arrange, allow_unverified, collect, run_id, boundary)
    return _finish(await _arun(walk, run_id, workers), raise_on_divergence)


def _walk(
    plan: Plan,
    recompute: Mapping[str, Recompute] | Recompute | None,
    modes: Mapping[str, Mode | str] | Mode | str | None,
    arrange: Mapping[str, Arrange] | Arrange | None,
    allow_unverified: bool,
    collect: bool,
    run_id: str | None,
    boundary: ReplayBoundary | None,
) -> tuple[Walk, str]:
    run_id = run_id or uuid4().hex
    functions = recompute if isinstance(recompute, Mapping) else {} if recompute is None else {"*": recompute}
    given = modes if isinstance(modes, Mapping) else {} if modes is None else {"*": modes}
    asked = {name: Mode(mode) for name, mode in given.items()}
    arranged = arrange if isinstance(arrange, Mapping) else {} if arrange is None else {"*": arrange}
    returned = frozenset(
        node.key
        for node in plan.nodes
        if node.composite and any(edge.kind is EdgeKind.RETURN for edge in plan.decisions[node.key].edges)
    )
    how = ways(plan, functions, asked, allow_unverified, returned)
    return Walk(plan, how, run_id, arrange=arranged, boundary=boundary, collect=collect), run_id


def _finish(result: ReplayResult, raise_on_divergence: bool) -> ReplayResult:
    if result.divergences and raise_on_divergence:
        raise result.divergences[0]
    return result


# -- threads -------------------------------------------------------------------------------------------------------------


def _run(walk: Walk, run_id: str, workers: int | None) -> ReplayResult:
    pool: ThreadPoolExecutor | None = None
    running: dict[Future[Outcome], Job] = {}
    with REPLAYS.entered(run_id):
        try:
            jobs = walk.ready()
            while jobs and workers == 1:
                walk.came_back(jobs[0], copy_context().run(_outcome, jobs[0]))
                jobs = sorted(jobs[1:] + walk.ready(), key=lambda job: job.rank)
            while jobs or running:
                if pool is None:
                    pool = ThreadPoolExecutor(workers, thread_name_prefix="genai-replay")
                running.update((pool.submit(copy_context().run, _outcome, job), job) for job in jobs)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    walk.came_back(running.pop(future), future.result())
                jobs = walk.ready()
        finally:
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)
    return walk.result()


def _outcome(job: Job) -> Outcome:
    try:
        made = job.function(job.run)
    except ReplayRefusedError:
        raise
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a failure is an outcome
        return failed(error)
    if inspect.isawaitable(made):
        if inspect.iscoroutine(made):
            made.close()
        raise TypeError(f"The function for {job.run.node.name} returns an awaitable; use areplay")
    return _made(job, made)


def _made(job: Job, made: Any) -> Outcome:
    try:
        return outcome_of(job.run.node, made)
    except Exception as error:  # noqa: BLE001 - what has no canonical form cannot have been recorded
        return failed(error)


# -- tasks ---------------------------------------------------------------------------------------------------------------


class _Loop(NamedTuple):
    """What the tasks of one replay share.

    Attributes:
        limit: So many functions run at once.
        pool: The threads for those that are no coroutines. The loop's own may be fewer, and are the application's.
        over: Set when the replay ends, and cancels what runs.
    """

    limit: asyncio.Semaphore
    pool: ThreadPoolExecutor
    over: asyncio.Event


async def _arun(walk: Walk, run_id: str, workers: int | None) -> ReplayResult:
    workers = workers or min(32, (os.cpu_count() or 1) + 4)
    loop = _Loop(asyncio.Semaphore(workers), ThreadPoolExecutor(workers, "genai-replay"), asyncio.Event())
    running: dict[asyncio.Task[Outcome], Job] = {}
    with REPLAYS.entered(run_id):
        try:
            jobs = walk.ready()
            while jobs or running:
                running.update((asyncio.create_task(_aoutcome(job, loop)), job) for job in jobs)
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    walk.came_back(running.pop(task), task.result())
                jobs = walk.ready()
        finally:
            loop.over.set()
            for task in running:
                task.cancel()
            await _over(running)
            loop.pool.shutdown(wait=False)
    return walk.result()


async def _aoutcome(job: Job, loop: _Loop) -> Outcome:
    async with loop.limit:
        try:
            made: Any = (
                job.function(job.run)
                if inspect.iscoroutinefunction(job.function)
                else await _in_thread(job.function, job.run, loop.pool)
            )
            if inspect.isawaitable(made):
                made = await made
        except ReplayRefusedError:
            raise
        except Exception as error:  # noqa: BLE001 - a failure is an outcome
            return failed(error)
        except asyncio.CancelledError as error:
            if loop.over.is_set():
                raise  # it is the replay that is cancelled
            return failed(error)
    return _made(job, made)


async def _in_thread(function: Recompute, run: NodeRun, pool: ThreadPoolExecutor) -> Any:
    """Call a function in a thread, which nobody can cancel, and which is part of the replay: so it is waited for."""

    def call() -> Any:
        try:
            return function(run)
        except ReplayRefusedError:
            raise
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - of which a future does not take all
            return failed(error)

    running = asyncio.get_running_loop().run_in_executor(pool, copy_context().run, call)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _over((running,))
        if running.cancelled() or (error := running.exception()) is None or isinstance(error, Exception):
            raise
        raise error from None


async def _over(running: Collection[asyncio.Future[Any]]) -> None:
    """Wait until all are done, however often this is cancelled meanwhile."""
    while left := [one for one in running if not one.done()]:
        with suppress(asyncio.CancelledError):
            await asyncio.wait(left)
