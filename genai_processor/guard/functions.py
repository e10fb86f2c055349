# SPDX-License-Identifier: Apache-2.0
"""Functions as tools: claiming the calls of one, sync or async."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from genai_processor.guard import bindings
from genai_processor.guard.attempt import NOT_KEPT, Attempt
from genai_processor.guard.bindings import Bound
from genai_processor.guard.calls import Call, Key
from genai_processor.guard.late import runs_later, until_it_has_run
from genai_processor.guard.modes import GuardMode
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import hand_out, never_began, tell_end
from genai_processor.guard.threads import ask, tell
from genai_processor.ledger.requests import RefusalReason
from genai_processor.retry.verdict import Effect

if TYPE_CHECKING:
    from genai_processor.guard.guard import Guard

_log = logging.getLogger(__name__)


class Body:
    """The body of a call that a hook has claimed already: it marks what the hook cannot see. Stands in for an `Attempt`."""

    def __init__(self, bound: Bound, not_started_on: tuple[type[BaseException], ...]) -> None:
        self._bound = bound
        self._not_started_on = not_started_on
        bound.joined = True
        bound.begins()

    def inside(self) -> AbstractContextManager[None]:
        """It is inside already."""
        return nullcontext()

    def start(self) -> None:
        """It has begun."""

    def runs_once_more(self) -> None:
        """The hook has claimed whatever its framework does."""

    def returned(self, value: Any = NOT_KEPT) -> None:
        """The hook will see it."""

    def not_delivered(self) -> None:
        """The hook will see to it."""

    def raised(self, error: BaseException, *, awaits_start: bool = False) -> None:
        """Tell what the hook may not get to see."""
        if isinstance(error, self._not_started_on):
            self._bound.rejected = True
        self._bound.body_failed = not self._bound.rejected


class Guarded:
    """Claims the calls of one function.

    Args:
        around: The function is a decorated one itself, which is the body of a call that is claimed here.
    """

    def __init__(
        self,
        guard: Guard,
        name: str,
        signature: inspect.Signature,
        effect: Effect | None,
        key: Key | None,
        call_id: Callable[[Mapping[str, Any]], str | None] | None,
        not_started_on: tuple[type[BaseException], ...],
        *,
        around: bool,
    ) -> None:
        self.guard = guard
        self._name = name
        self._signature = signature
        self._effect = effect
        self._key = key
        self._call_id = call_id
        self._not_started_on = not_started_on
        self._around = around

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Attempt | Body | Refused:
        """Claim a call, or take part in one that is claimed.

        Raises:
            TypeError: The arguments do not fit the function, as it would say itself.
        """
        given = self._signature.bind(*args, **kwargs)
        given.apply_defaults()
        arguments = {key: value for key, value in given.arguments.items() if key not in ("self", "cls")}
        outer = bindings.current()
        if outer is not None and outer.tool == self._name and not outer.over and self._trusts(outer):
            if not outer.joined:
                return Body(outer, self._not_started_on)
            if outer.body_failed and self.guard.refuses(self._effect, self._name):
                return self.guard.refuse(outer, RefusalReason.NESTED_UNCERTAIN)
        begun = self.guard.begin(
            Call(
                self._name,
                self._id_of(arguments),
                arguments,
                effect=self._effect,
            ),
            key=self._key,
            not_started_on=self._not_started_on,
        )
        if isinstance(begun, Attempt):
            # Its body joins, which comes next: a call of its name in there is another one.
            begun.bound.joined = not self._around
        return begun

    def _id_of(self, arguments: Mapping[str, Any]) -> str | None:
        """Ask the user's function for the call's id; who refuses nothing does not fail with it either."""
        if self._call_id is None:
            return None
        try:
            return self._call_id(arguments)
        except Exception:
            if self.guard.mode is GuardMode.ENFORCE:
                raise
            _log.warning(
                "The function that tells the call id of %s has failed; the call has none", self._name, exc_info=True
            )
            return None

    def _trusts(self, outer: Bound) -> bool:
        """Whether whoever stands around the call goes as far as this guard, which otherwise has to claim it itself."""
        return outer.mode == GuardMode.ENFORCE.value or self.guard.mode is not GuardMode.ENFORCE


def value_or_error(refused: Refused) -> Any:
    """Return the recorded result.

    Raises:
        ToolSpanCommitmentError: There is none.
    """
    if refused.recorded is None:
        raise refused.error() from refused.cause
    return refused.recorded.value


def plain_function(guarded: Guarded, function: Callable[..., Any]) -> Callable[..., Any]:
    """Guard a function."""

    def call(*args: Any, **kwargs: Any) -> Any:
        begun = guarded.begin(args, kwargs)
        if isinstance(begun, Refused):
            hand_out(begun)
            return value_or_error(begun)
        with begun.inside():
            begun.start()
            try:
                value = function(*args, **kwargs)
            except BaseException as error:
                begun.raised(error)
                raise
        if runs_later(value):
            return until_it_has_run(begun, value, guarded.guard.threads)
        begun.returned(value)
        return value

    return call


def coroutine_function(guarded: Guarded, function: Callable[..., Any]) -> Callable[..., Any]:
    """Guard a function that is to be awaited."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        threads = guarded.guard.threads
        begun = await ask(threads, partial(guarded.begin, args, kwargs), never_began)
        if isinstance(begun, Refused):
            hand_out(begun, threads)
            return value_or_error(begun)
        with begun.inside():
            begun.start()
            try:
                value = await function(*args, **kwargs)
            except BaseException as error:
                await tell(threads, partial(begun.raised, error))
                raise
        if runs_later(value):
            return until_it_has_run(begun, value, threads)
        await tell_end(threads, begun, partial(begun.returned, value))
        return value

    return call
