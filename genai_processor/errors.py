# SPDX-License-Identifier: Apache-2.0
"""Every exception that this package raises, in one tree.

Catch `GenAIProcessorError` to catch them all. Where an error stands for another one (a driver's, the operating
system's), that one is kept as ``__cause__``. Messages say where, and what to do about it; of a tool's effect they only
ever say that it "may have committed".
"""

from __future__ import annotations

from typing import Any


class GenAIProcessorError(Exception):
    """Base of every error that this package raises."""


class ToolSpanCommitmentError(GenAIProcessorError, RuntimeError):
    """A tool call must not be tried again by machine: its effect may have committed.

    A `RuntimeError`, so that frameworks which retry "any exception that is not a programming error" leave it alone,
    and never a bare `BaseException`, which some runtimes lose or hang on.

    Attributes:
        tool: Name of the tool, if known.
        call_id: The call id, if one was found.
        reason: Short reason, one of the documented values of ``genai.retry.reason`` or of a refusal.
        entry_id: The ledger entry to settle, if there is one.
        recorded: What the very same call returned before, in its attribute `value`; None if that is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        tool: str | None = None,
        call_id: str | None = None,
        reason: str | None = None,
        entry_id: str | None = None,
        recorded: Any = None,
    ) -> None:
        """Keep the message and, where known, what it is about."""
        super().__init__(message)
        self.tool = tool
        self.call_id = call_id
        self.reason = reason
        self.entry_id = entry_id
        self.recorded = recorded


class LedgerError(GenAIProcessorError):
    """Base of what can go wrong with a ledger."""


class LedgerURLError(LedgerError, ValueError):
    """A ledger URL names no known ledger, or an option that it does not have."""


class LedgerUnavailableError(LedgerError):
    """The ledger cannot be asked right now; nothing may be concluded about the call."""


class LedgerConflictError(LedgerError):
    """Somebody else changed the entry since it was read; read it again before deciding.

    Attributes:
        entry_id: The entry in question.
        expected: The version that the caller had read.
        found: The version that the ledger holds.
    """

    def __init__(self, message: str, *, entry_id: str = "", expected: int = 0, found: int = 0) -> None:
        """Keep the message and the two versions."""
        super().__init__(message)
        self.entry_id = entry_id
        self.expected = expected
        self.found = found


class UnknownEntryError(LedgerError, LookupError):
    """The ledger holds no entry of that id: never made, or evicted. Absence is never proof that nothing ran."""


class InvalidTransitionError(LedgerError):
    """The entry's state does not allow what was asked, such as settling a call that is still running."""


class InvalidSettlementError(LedgerError, ValueError):
    """A settlement lacks what it needs: who settles it, and a note that says on what ground."""


class ConformanceError(GenAIProcessorError, AssertionError):
    """A ledger does not do what every ledger has to; the message names each check that failed, and in what."""


class TraceFileError(GenAIProcessorError):
    """A recorded trace cannot be read; the message names file and line."""


class ReplayError(GenAIProcessorError):
    """Base of what can go wrong with a replay."""


class ReplayRefusedError(ReplayError, ValueError):
    """What was asked for cannot be replayed soundly; nothing has run.

    Attributes:
        nodes: Keys of the nodes that stand in the way.
    """

    def __init__(self, message: str, *, nodes: tuple[str, ...] = ()) -> None:
        """Keep the message and the nodes."""
        super().__init__(message)
        self.nodes = nodes


class ReplayDivergence(ReplayError):
    """A replay went another way than the record. It has stopped there, and must not be patched forward.

    Attributes:
        node: Key of the recorded node, or None if the replay asked for something that no recorded node is.
        where: `input`: what the node was to get is not what it got then; `output`: what it made is not what it made then;
            `call`: it asked for what is not in the record; `end`: it ended before the record did.
        expected: Digest of the recorded value in hex, "" if there is none.
        got: Digest of the replayed value in hex, "" if there is none.
        difference: What differs, in a few lines.
        last_valid_boundary: Where `resume` can start again: keys of the nodes whose inputs and outputs were as recorded,
            with all that they depend on, and what they returned.
    """

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        where: str = "input",
        expected: str = "",
        got: str = "",
        difference: str = "",
        last_valid_boundary: Any = None,
    ) -> None:
        """Keep the message and what it is about."""
        super().__init__(message)
        self.node = node
        self.where = where
        self.expected = expected
        self.got = got
        self.difference = difference
        self.last_valid_boundary = last_valid_boundary


class RecordedFailure(ReplayError):
    """A failure that was recorded, handed back where its own class is not to be had; its class bears the recorded name."""
