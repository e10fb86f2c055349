# SPDX-License-Identifier: Apache-2.0
"""A live model that answers, or fails, while the record has something else; and an application that makes do with either."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from genai_processor.errors import ReplayDivergence, ReplayRefusedError
from genai_processor.replay import replaying
from support.plans import Making, failure, says, user


class SlowDown(Exception):
    """A provider says that it is too much."""


OTHER = [
    (failure("provider.SlowDown", "request 1"), None),
    ([says("hello")], SlowDown("request 2")),
    (failure("provider.Overloaded", "request 1"), SlowDown("request 1")),
]
"""What is recorded, and what the live model, which else says hello, fails with."""

SAME = [
    ([says("hello")], None),
    (failure("provider.SlowDown", "request 1"), SlowDown("request 2")),
    (failure("Error getting response", "request 1"), SlowDown("request 2")),
]


def check(ask: Callable[[Exception | None], object], recorded: Any, error: Exception | None, *, is_other: bool) -> None:
    """Ask a live model, and catch what it fails with: the block stops all the same if that is not what is recorded."""
    made = Making()
    made.chat("01" * 8, [user("u")], recorded)
    plan = made.plan()
    if not is_other:
        with replaying(plan, models="live") as run, contextlib.suppress(Exception):
            ask(error)
        assert run.answered == {plan.nodes[0].key}
        return
    with pytest.raises(ReplayDivergence) as caught, replaying(plan, models="live"), contextlib.suppress(Exception):
        ask(error)
    found = caught.value
    assert (found.node, found.where) == (plan.nodes[0].key, "output")
    assert found.expected != found.got
    assert found.difference
    assert dict(found.last_valid_boundary.outcomes) == {}


def check_left(begin: Callable[[], object]) -> None:
    """Begin to read what a live model says, and leave it: nobody knows whether that is what is recorded."""
    made = Making()
    made.chat("01" * 8, [user("u")], [says("hello")])
    plan = made.plan()
    with pytest.raises(ReplayRefusedError, match="to its end") as caught, replaying(plan, models="live"):
        begin()
    assert caught.value.nodes == (plan.nodes[0].key,)
    with replaying(plan, models="live", whole=False) as run:
        begin()
    assert dict(run.boundary.outcomes) == {}
