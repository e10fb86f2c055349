# SPDX-License-Identifier: Apache-2.0
"""What the checks of `genai_processor.ledger.conformance` work with."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from genai_processor.errors import ConformanceError
from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.protocol import Ledger
from genai_processor.ledger.requests import Claim, Granted, Outcome, Refusal, RefusalReason, Sighting

PATIENCE_SECONDS: Final = 5.0
"""How long to wait for what only the ledger's own clock brings about."""


class Bench:
    """A ledger, a scope that nobody else has, and the usual requests. Closes every ledger that it opened.

    Attributes:
        ledger: The first connection.
        scope: Of one check alone.
    """

    def __init__(self, make: Callable[[], Ledger]) -> None:
        """Open the ledger."""
        self._make = make
        self._opened: list[Ledger] = []
        self.ledger = self.connect()
        self.scope = f"conformance-{uuid.uuid4()}"

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        failed: list[Exception] = []
        for ledger in self._opened:
            try:
                ledger.close()
            except Exception as wrong:  # noqa: BLE001 - the others are to be closed as well
                failed.append(wrong)
        if failed and error is None:
            raise failed[0]

    def connect(self) -> Ledger:
        """Open one more connection."""
        ledger = self._make()
        self._opened.append(ledger)
        return ledger

    def wish(self, call_id: str | None = "toolu_1a2b", **more: Any) -> Claim:
        """A claim, by default of one certain call."""
        return Claim(self.scope, **{"tool": "pay", "call_id": call_id, "digest": "d1", "turn": "t1", **more})

    def granted(self, call_id: str | None = "toolu_1a2b", **more: Any) -> Entry:
        """Claim, and expect it to be granted."""
        answer = self.ledger.claim(self.wish(call_id, **more))
        expect(isinstance(answer, Granted), f"the claim was refused: {answer}")
        assert isinstance(answer, Granted)
        return answer.entry

    def refused(self, reason: RefusalReason, call_id: str | None = "toolu_1a2b", **more: Any) -> Refusal:
        """Claim, and expect it to be refused."""
        answer = self.ledger.claim(self.wish(call_id, **more))
        expect(isinstance(answer, Refusal), "the claim was granted")
        assert isinstance(answer, Refusal)
        expect(answer.reason is reason, f"refused as {answer.reason}, not as {reason}")
        return answer

    def failed(self, call_id: str | None = "toolu_1a2b", **more: Any) -> Entry:
        """Claim, and fail."""
        return self.ledger.finish(self.granted(call_id, **more), Outcome.FAILED, reason="boom")

    def watched(self, call_id: str | None = "toolu_1a2b", **more: Any) -> Granted:
        """Claim as one who only observes, and expect to be told of a refusal."""
        answer = self.ledger.claim(self.wish(call_id, **more), observe=True)
        expect(isinstance(answer, Granted) and answer.overruled is not None, f"answered {answer}")
        assert isinstance(answer, Granted)
        return answer

    def seen(self, state: State, call_id: str | None = "toolu_1a2b", **more: Any) -> Entry:
        """Record what a span showed, by default of the call that is claimed by default."""
        seen = Sighting(
            self.scope, **{"tool": "pay", "state": state, "call_id": call_id, "digest": "d1", "turn": "t1", **more}
        )
        entry = self.ledger.record(seen)
        expect(entry is not None, f"{seen} was not recorded")
        assert entry is not None
        return entry

    def now(self, entry: Entry) -> Entry:
        """The entry as it stands."""
        found = self.ledger.get(entry.entry_id)
        expect(found is not None, f"entry {entry.entry_id} is gone")
        assert found is not None
        return found

    def is_in(self, entry: Entry, state: State) -> Entry:
        """Expect an entry to be in a state."""
        found = self.now(entry)
        expect(found.state is state, f"it is {found.state}, not {state}")
        return found

    def settle(self, entry: Entry, resolution: Resolution) -> Entry:
        """Settle an entry, as it was read."""
        return self.ledger.settle(entry.entry_id, resolution, who="ann", note="asked the provider", version=entry.version)


def expect(condition: object, otherwise: str) -> None:
    """Fail the check, with a sentence that says in what, unless the condition holds."""
    if not condition:
        raise ConformanceError(otherwise)


@contextmanager
def raising(kind: type[Exception]) -> Iterator[None]:
    """Fail the check unless what is inside raises such an error."""
    try:
        yield
    except kind:
        return
    raise ConformanceError(f"{kind.__name__} was not raised")
