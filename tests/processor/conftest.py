# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from support.live import Keeping


@pytest.fixture
def keeping() -> Keeping:
    return Keeping()


@pytest.fixture
def make_provider() -> Iterator[Callable[..., TracerProvider]]:
    made: list[TracerProvider] = []

    def make(*processors: SpanProcessor, **options: Any) -> TracerProvider:
        options.setdefault("sampler", ALWAYS_ON)
        provider = TracerProvider(shutdown_on_exit=False, **options)
        for processor in processors:
            provider.add_span_processor(processor)
        made.append(provider)
        return provider

    yield make
    for provider in made:
        provider.shutdown()
