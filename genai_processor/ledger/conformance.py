# SPDX-License-Identifier: Apache-2.0
"""What every ledger has to do, as checks that anybody can run against their own.

    from genai_processor.ledger import conformance
    conformance.run(lambda: MyLedger("..."))

Each check asks for a ledger and uses a scope of its own, so that they may all be of one store, and nothing has to be
emptied in between; but nobody else may write to the store meanwhile, since entries are counted. The rules are those of
`genai_processor.ledger.protocol` and `genai_processor.ledger.claims`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from genai_processor.errors import ConformanceError
from genai_processor.ledger import (
    conformance_attempts,
    conformance_claims,
    conformance_nested,
    conformance_people,
    conformance_queue,
    conformance_races,
    conformance_transitions,
    conformance_witnesses,
)
from genai_processor.ledger.conformance_bench import Bench
from genai_processor.ledger.protocol import Ledger

CHECKS: Final = (
    *conformance_claims.CHECKS,
    *conformance_attempts.CHECKS,
    *conformance_nested.CHECKS,
    *conformance_transitions.CHECKS,
    *conformance_witnesses.CHECKS,
    *conformance_people.CHECKS,
    *conformance_queue.CHECKS,
    *conformance_races.CHECKS,
)
"""What every ledger has to do."""

SHARED_CHECKS: Final = conformance_races.SHARED_CHECKS
"""And one that several connections share."""


def run(make: Callable[[], Ledger], *, shared: bool = False) -> tuple[str, ...]:
    """Run every check.

    Args:
        make: Opens the ledger. Called at least once for each check, and more often for those that need several connections;
            each of them is closed when its check is over.
        shared: All connections that it opens are to one store, as of a database; not so of a ledger in memory.

    Returns:
        The names of the checks, all of which passed.

    Raises:
        ConformanceError: Some did not. It names each of them, and what was wrong; the first is its `__cause__`.
    """
    done: list[str] = []
    wrong: list[tuple[str, Exception]] = []
    for check in CHECKS if not shared else (*CHECKS, *SHARED_CHECKS):
        name = check.__name__.removeprefix("_")
        try:
            with Bench(make) as bench:
                check(bench)
        except Exception as error:  # noqa: BLE001 - whatever a ledger raises, the others are to be told as well
            wrong.append((name, error))
        else:
            done.append(name)
    if wrong:
        lines = "\n".join(f"  {name}: {type(error).__name__}: {error}" for name, error in wrong)
        raise ConformanceError(f"{len(wrong)} of {len(wrong) + len(done)} checks failed:\n{lines}") from wrong[0][1]
    return tuple(done)
