# SPDX-License-Identifier: Apache-2.0
"""Stopping a run: our own error, as one that its framework neither swallows nor tries again."""

from __future__ import annotations

from functools import cache
from typing import Any, NoReturn

from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.refused import Refused


def stop(refused: Refused, *theirs: type[BaseException], **attributes: Any) -> NoReturn:
    """Raise what a refusal is, as an exception of the framework's, too.

    Args:
        refused: The refusal.
        theirs: The classes that the framework lets out; none where it lets ours out as it is.
        attributes: What the framework expects to find on these.

    Raises:
        ToolSpanCommitmentError: Always.
    """
    raise as_theirs(refused.error(), *theirs, **attributes) from refused.cause


def as_theirs(error: ToolSpanCommitmentError, *theirs: Any, **attributes: Any) -> ToolSpanCommitmentError:
    """Return our error as one that is an exception of the framework's, too. See `stop`."""
    if not theirs:
        return error
    made = error_class(*theirs)(
        str(error),
        tool=error.tool,
        call_id=error.call_id,
        reason=error.reason,
        entry_id=error.entry_id,
        recorded=error.recorded,
    )
    vars(made).update(attributes)
    return made


@cache
def error_class(*theirs: Any) -> type[ToolSpanCommitmentError]:
    """Return the class of errors that are ours and the framework's: the framework is imported only when there are any."""
    return type("ToolSpanCommitmentError", (ToolSpanCommitmentError, *theirs), {"__module__": __name__})
