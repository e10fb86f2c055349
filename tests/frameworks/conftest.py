# SPDX-License-Identifier: Apache-2.0
"""Every test begins and ends without hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from genai_processor.guard import hooks
from genai_processor.guard.guard import Guard


@pytest.fixture
def guarded() -> Iterator[Callable[..., Guard]]:
    """Install a guard, whose arguments are those of `Guard`; the hooks are taken away after the test."""

    def install(*args: Any, **kwargs: Any) -> Guard:
        guard = Guard(*args, **kwargs)
        hooks.install(guard)
        return guard

    yield install
    hooks.uninstall()
