# SPDX-License-Identifier: Apache-2.0
"""From settings to a working whole: which judge, which ledger, which policy."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from genai_processor.attributes import GENAI_RETRY_VERDICT
from genai_processor.errors import LedgerError
from genai_processor.guard.bindings import BOUND, tool_span_began
from genai_processor.judges import Stamps
from genai_processor.ledger import MemoryLedger, open_ledger
from genai_processor.ledger.missing import MissingLedger
from genai_processor.retry.policy import Policy
from genai_processor.retry.witness import Limits, Witness
from genai_processor.settings import PREFIX, Settings
from genai_processor.stamper import Stamper

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider

    from genai_processor.ledger.protocol import Ledger

_log = logging.getLogger(__name__)


def make_stamper(
    *,
    ledger: Ledger | str | None = None,
    policy: Policy | None = None,
    settings: Settings | None = None,
    meter_provider: MeterProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> Stamper:
    """Build what judges spans. Opens nothing and starts nothing.

    Args:
        ledger: Where to record verdicts, or the URL of that; by default what `settings` names.
        policy: What the user declares about tools; by default what `settings` says.
        settings: By default those of the environment.
        meter_provider: For metrics; by default the global one.
        logger_provider: For log events; by default the global one.

    Raises:
        LedgerURLError: The ledger is given as a URL that names none.
    """
    settings = Settings.from_environ() if settings is None else settings
    limits = Limits(max_calls=settings.max_calls, max_bytes=settings.max_bytes, max_age=settings.max_age)
    judge = Witness(
        policy=settings.policy() if policy is None else policy,
        limits=limits,
        length_limit=settings.length_limit,
        judged=GENAI_RETRY_VERDICT,
        guarded=BOUND,
        began=tool_span_began,
    )
    return Stamper(
        judge,
        ledger=ledger_of(settings) if ledger is None else open_ledger(ledger) if isinstance(ledger, str) else ledger,
        settings=settings,
        meter_provider=meter_provider,
        logger_provider=logger_provider,
        stamps=_stamps_of(settings) if settings.record_for_replay else None,
    )


def _stamps_of(settings: Settings) -> Stamps | None:
    """What stamps the spans of models for a replay. Imported late: hardly anybody needs it, and it takes time."""
    try:
        from genai_processor.replay.stamping import Stamping
    except Exception:  # noqa: BLE001
        _log.exception("%sRECORD_FOR_REPLAY is set, and cannot be done; spans go on without", PREFIX)
        return None
    return Stamping(
        secret=settings.digest_key, length_limit=settings.length_limit, max_bytes=max(1, settings.max_bytes // 4)
    )


def ledger_of(settings: Settings) -> Ledger:
    """Return the ledger that the settings name.

    Where there is none, the answer is one in memory, with a warning; or, if the guard is to enforce, one that is never
    there: then no call runs of which nobody can know whether it was made before.
    """
    try:
        return open_ledger(settings.ledger)
    except Exception as error:  # noqa: BLE001 - a client library may raise anything
        scheme = settings.ledger.partition(":")[0]
        why = (
            str(error)
            if isinstance(error, LedgerError)
            else f"the ledger {scheme}:… cannot be opened ({type(error).__name__})"
        )
        if settings.guard == "enforce":
            _log.error("%sLEDGER cannot be used, so the guard refuses every call that is not safe: %s", PREFIX, why)
            return cast("Ledger", MissingLedger(why))
        _log.warning("%sLEDGER cannot be used, using 'memory:' instead: %s", PREFIX, why)
        return MemoryLedger()
