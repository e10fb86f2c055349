# SPDX-License-Identifier: Apache-2.0
"""The way in without code: the entry point that ``opentelemetry-instrument`` loads, and ``instrument()``.

    GenAIProcessorInstrumentor().instrument()

covers the global tracer provider and every one made afterwards. A provider that exists already and is not the global
one cannot be found: hand it over with ``instrument(tracer_provider=...)``.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import weakref
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.sdk.environment_variables import OTEL_SDK_DISABLED
from opentelemetry.sdk.trace import TracerProvider

from genai_processor.assembly import make_stamper
from genai_processor.attach import Beside, Front, attach
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks import active, install, uninstall
from genai_processor.guard.modes import GuardMode
from genai_processor.guarding import StamperNotes, make_guard
from genai_processor.ledger.missing import MissingLedger
from genai_processor.settings import PREFIX, Settings
from genai_processor.stamper import Stamper
from genai_processor.telemetry import Fault

if TYPE_CHECKING:
    from genai_processor.ledger.protocol import Ledger

_log = logging.getLogger(__name__)

_PARTS: Final = ("policy", "meter_provider", "logger_provider")
_NESTED: Final = 5
_RECORDING: Final = "genai_processor.replay.recording.installing"


class GenAIProcessorInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Puts the verdict on the tool spans of tracer providers, in front of whatever they export to.

    `instrument` takes `tracer_provider`, `meter_provider` and `logger_provider` (by default the global ones; only the
    tracer provider that is handed over is then covered), `ledger` (a ledger or its URL), `policy`, `guard` (a mode, or
    a `Guard` of your own), `settings`, and every field of `Settings` by its name. It opens no file, starts no thread and
    raises nothing: the interpreter runs it before the application, and would not survive it. `uninstrument` puts back
    what was there.

    It also lets a guard stand in front of the tools of agent frameworks, those that are imported later included; under
    ``OTEL_SDK_DISABLED``, too, which is about telemetry.
    """

    _coverage: _Coverage | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: what is instrumented is the SDK itself."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        try:
            provider = kwargs.pop("tracer_provider", None)
            stamper, guard = _parts_from(kwargs)
            disabled = os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true"
            if guard.mode is not GuardMode.OFF or not disabled:
                install(guard)
            if disabled:
                return
            self._coverage = _Coverage(stamper)
            if stamper.stamps is not None:
                _look_at_requests()
            if provider is None:
                self._coverage.watch()
                provider = trace.get_tracer_provider()
            self._coverage.cover(provider)
        except (Exception, SystemExit) as error:  # noqa: BLE001
            _log.exception("genai_processor could not be set up; spans are exported as they are")
            _fail_closed(kwargs, error)

    def _uninstrument(self, **kwargs: Any) -> None:
        coverage, self._coverage = self._coverage, None
        try:
            uninstall()
            if coverage is not None:
                coverage.leave()
            if (recording := sys.modules.get(_RECORDING)) is not None:
                recording.uninstall()
        except (Exception, SystemExit):  # noqa: BLE001
            _log.exception("genai_processor could not be taken away entirely")


def _look_at_requests() -> None:
    """Have hooks look at what models are asked. Imported late, like all that only a recording for replay needs."""
    import importlib

    importlib.import_module(_RECORDING).install()


def _fail_closed(options: dict[str, Any], error: BaseException) -> None:
    """Where the guard was to enforce and could not be made, put one there that refuses whatever is not safe anyhow."""
    try:
        wanted = str(options.get("guard") or os.environ.get(PREFIX + "GUARD", "")).strip().lower()
        if active() is None and wanted not in ("", GuardMode.OFF, GuardMode.OBSERVE):
            install(
                Guard(
                    cast("Ledger", MissingLedger(f"genai_processor could not be set up: {error!r}")), mode=GuardMode.ENFORCE
                )
            )
    except (Exception, SystemExit):  # noqa: BLE001
        _log.exception("The guard could not be put in place either: NOTHING IS GUARDED")


def _parts_from(options: dict[str, Any]) -> tuple[Stamper, Guard]:
    """Build stamper and guard from the keywords of `instrument`; those that are none of ours are named in a warning."""
    parts = {name: options.pop(name, None) for name in _PARTS}
    settings = options.pop("settings", None)
    ledger = options.pop("ledger", None)
    guard = options.pop("guard") if isinstance(options.get("guard"), Guard) else None
    if guard is not None and ledger is None:
        ledger, parts["policy"] = guard.ledger, parts["policy"] or guard.policy
    if isinstance(ledger, str):
        options["ledger"], ledger = ledger, None
    if settings is None:
        settings = Settings.from_environ(**options)
    elif options:
        known = {field.name for field in fields(Settings)}
        for name in options:
            what = "is part of the settings that are given" if name in known else "is no setting of genai_processor"
            _log.warning("%s %s; it is ignored", name, what)
    stamper = make_stamper(ledger=ledger, settings=settings, **parts)
    if guard is None:
        return stamper, make_guard(settings, parts["policy"] or settings.policy(), stamper)
    guard.report_to(StamperNotes(stamper))
    return stamper, guard


class _Coverage:
    """The providers whose spans are judged by one stamper."""

    def __init__(self, stamper: Stamper) -> None:
        self._stamper = stamper
        # Providers come and go, and take with them what stands in front of them.
        self._attached: weakref.WeakSet[Front | Beside] = weakref.WeakSet()
        self._hook: _InitHook | None = None

    def watch(self) -> None:
        """Cover every provider that is made from now on."""
        self._hook = _InitHook(self.cover)

    def cover(self, provider: Any) -> None:
        """Cover a provider. Raises no `Exception`."""
        try:
            provider = _innermost(provider)
            if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
                return  # makes no spans of its own; the SDK's is still to come, or never will
            attached = attach(provider, self._stamper)
            if attached is not None:
                self._attached.add(attached)
        except Exception as error:  # noqa: BLE001 - an application that makes a provider must get it
            self._stamper.faults.count(Fault.ATTACH, "A tracer provider could not be covered", error)

    def leave(self) -> None:
        """Leave every provider, and the class, as they were."""
        if self._hook is not None:
            self._hook.leave()
        for attached in list(self._attached):
            attached.leave()


class _InitHook:
    """Calls back for every `TracerProvider` that is made."""

    def __init__(self, callback: Callable[[TracerProvider], None]) -> None:
        self._callback: Callable[[TracerProvider], None] | None = callback
        self._original: Callable[..., None] = TracerProvider.__init__
        original = self._original

        @functools.wraps(original)
        def init(provider: TracerProvider, *args: Any, **kwargs: Any) -> None:
            original(provider, *args, **kwargs)
            if (call := self._callback) is not None:
                call(provider)

        self._init = init
        TracerProvider.__init__ = init  # type: ignore[assignment,method-assign]

    def leave(self) -> None:
        """Put the original back; under somebody else's wrapper only call back no more."""
        self._callback = None
        if TracerProvider.__init__ is self._init:
            TracerProvider.__init__ = self._original  # type: ignore[method-assign]


def _innermost(provider: Any) -> Any:
    """Follow the providers that only stand for another one, as logfire's does."""
    for _ in range(_NESTED):
        inner = None if isinstance(provider, TracerProvider) else getattr(provider, "provider", None)
        if inner is None:
            break
        provider = inner
    return provider
