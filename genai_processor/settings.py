# SPDX-License-Identifier: Apache-2.0
"""Every setting, in one table: what a variable is called, what it takes, what holds without it.

What the code says beats the environment, which beats the default. A value that makes no sense is never an exception,
because telemetry must not stop an application: it is a warning that names the variable, the value and what is used
instead.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from genai_processor.retry.policy import Policy, parse_globs

_log = logging.getLogger(__name__)

PREFIX: Final = "GENAI_PROCESSOR_"

OTEL_SPAN_LENGTH_LIMIT: Final = "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"
OTEL_LENGTH_LIMIT: Final = "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"

_BAD: Final = object()
_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    Attributes:
        name: The environment variable.
        field: The attribute of `Settings`, which is also the keyword that `GenAIProcessorInstrumentor` takes.
        type: What a value looks like, for people.
        default: What holds where the variable is unset or empty, for people.
        meaning: What it does.
    """

    name: str
    field: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class _Kind:
    type: str
    parse: Callable[[str], Any]
    check: Callable[[Any], bool]
    show: Callable[[Any], str]
    secret: bool = False


def _parse_flag(text: str) -> bool:
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(text)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_globs(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(glob, str) for glob in value)


_URL: Final = _Kind("URL", str, lambda value: isinstance(value, str) and bool(value.strip()), str)
_FLAG: Final = _Kind("true or false", _parse_flag, lambda value: isinstance(value, bool), lambda value: str(value).lower())
_GLOBS: Final = _Kind("comma-separated globs", parse_globs, _is_globs, lambda value: ",".join(value) or "none")
_COUNT: Final = _Kind("integer above 0", int, _is_count, str)
_TEXT: Final = _Kind(
    "text", str, lambda value: value is None or (isinstance(value, str) and bool(value.strip())), lambda _: "none"
)
_SECRET: Final = _Kind("text", str, lambda value: isinstance(value, str) and value != "", lambda _: "none", secret=True)


def _choice(*words: str) -> _Kind:
    """One of a few words; what is given as an enumeration is taken as its word."""
    return _Kind(" or ".join(words), lambda text: str(text).strip().lower(), lambda value: value in words, str)


def _setting(default: Any, kind: _Kind, meaning: str, *, if_bad: Any = None) -> Any:
    """One field; `if_bad` is used in place of a value that makes no sense, where the default would be less careful."""
    metadata = {"kind": kind, "meaning": meaning, "if_bad": default if if_bad is None else if_bad}
    return field(default=default, repr=not kind.secret, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can be set. `SETTINGS` has the meaning of each; `Settings()` is the defaults, whatever the environment says.

    `length_limit` is the SDK's own limit on the length of attribute values, None where there is none: a value as long
    as the limit counts as cut, and proves nothing.
    """

    ledger: str = _setting(
        "memory:",
        _URL,
        "Where to keep what was claimed, what ended how and what is quarantined. `memory:` is this process, "
        "`sqlite:///PATH` a file for all processes of one host, which outlives them; `redis://…` or `postgresql://…` is a "
        "server for many hosts.",
    )
    guard: str = _setting(
        "observe",
        _choice("off", "observe", "enforce"),
        "What the guard in front of the tools of agent frameworks does with a call that must not run: nothing at all, say "
        "so, or refuse it. Only `GenAIProcessorInstrumentor`, and so the entry point, installs it. A value that is none of "
        "these enforces.",
        if_bad="enforce",
    )
    guard_refusal: str = _setting(
        "tell",
        _choice("tell", "raise"),
        "How a refused call ends: the model is told, and the other calls of its turn finish; or the run ends.",
    )
    scope: str | None = _setting(
        None,
        _TEXT,
        "Where call ids and arguments are unique for the guard, such as the id of this job, in place of the conversation "
        "that a framework knows. `guard.run(scope=...)` in the code goes before it.",
    )
    lease: int = _setting(
        60,
        _COUNT,
        "After how many seconds without a sign of life a running call in a shared ledger is quarantined. Signs are given "
        "three times as often, for as long as the tool runs.",
    )
    trusted_mcp_servers: tuple[str, ...] = _setting(
        (), _GLOBS, "MCP servers whose annotations of tools are believed, such as that one changes nothing."
    )
    read_only_tools: tuple[str, ...] = _setting(
        (), _GLOBS, "Tools that change nothing: a failed call may always be tried again."
    )
    idempotent_tools: tuple[str, ...] = _setting(
        (), _GLOBS, "Tools that may be tried again under the same call id, and only under it."
    )
    known_tools: tuple[str, ...] = _setting(
        (),
        _GLOBS,
        "Every tool that there is, without exception: a failed call of any other name never started. A name left out makes "
        "failed calls of that tool safe to retry though they ran, so generate the list from the code that registers them.",
    )
    stamp_digests: bool = _setting(
        False,
        _FLAG,
        "Write a digest of tool and arguments on tool spans. Arguments that are easy to guess can be "
        "recovered from it, unless it is keyed.",
    )
    digest_key: str | None = _setting(None, _SECRET, "Secret that keys (HMAC-SHA256) the digests that are written.")
    record_for_replay: bool = _setting(
        False,
        _FLAG,
        "Write on the spans of models what a replay has to know of them: of which parts input and output were made, in "
        "order, each with a digest and no content. Short texts that are easy to guess can be recovered from their digests, "
        "unless they are keyed; who plans a replay then needs the key.",
    )
    max_calls: int = _setting(
        10_000, _COUNT, "How many tool calls to remember in this process, to recognise their repetitions."
    )
    max_bytes: int = _setting(
        64 * 1024 * 1024,
        _COUNT,
        "About how many bytes of messages of traces that have not ended to hold, and half as many again of arguments that "
        "may have to be compared. The ledger has a bound of its own (`memory:?max_bytes=…`, 64 MiB by default).",
    )
    max_age: int = _setting(
        3600,
        _COUNT,
        "After how many seconds to let go of the messages of a trace that has not ended. The ledger has an age of its own "
        "(`memory:?max_age_ns=…`, seven days by default).",
    )
    events: bool = _setting(True, _FLAG, "Emit a log event for each quarantined call.")
    metrics: bool = _setting(True, _FLAG, "Offer the metrics of this package to the meter provider.")
    length_limit: int | None = None

    def __post_init__(self) -> None:
        """Read text as a variable would be: a bare string of globs must not count as a sequence of letters.

        Raises:
            ValueError: A value makes no sense.
        """
        for row in fields(self):
            kind, value = row.metadata.get("kind"), getattr(self, row.name)
            if kind is None or value == row.default:
                continue
            read = _read(value, kind)
            if read is _BAD:
                raise ValueError(_complaint(row.name, value, kind))
            object.__setattr__(self, row.name, read)

    def policy(self) -> Policy:
        """Return what is declared of tools."""
        return Policy(read_only=self.read_only_tools, idempotent=self.idempotent_tools, known=self.known_tools)

    @classmethod
    def from_environ(
        cls,
        environ: Mapping[str, str] | None = None,
        on_warning: Callable[[str], None] | None = None,
        **given: Any,
    ) -> Settings:
        """Read the settings.

        Args:
            environ: Where to read variables from; by default the environment of the process.
            on_warning: Takes one sentence for each value that makes no sense; by default it is logged.
            **given: Settings by field name, which beat the environment. Text is read as a variable would be, and None
                counts as not given.

        Returns:
            The settings. Never raises.
        """
        environ = os.environ if environ is None else environ
        warn = _log.warning if on_warning is None else on_warning
        values: dict[str, Any] = {}
        for row in fields(cls):
            sources = [(row.name, given.pop(row.name, None))]
            if "kind" in row.metadata:
                kind = row.metadata["kind"]
                sources.append((PREFIX + row.name.upper(), environ.get(PREFIX + row.name.upper(), "").strip() or None))
                values[row.name] = _first(sources, kind, row.default, row.metadata["if_bad"], warn)
            else:
                limit = sources[0][1]
                values[row.name] = limit if _is_limit(limit) else _length_limit(environ, warn)
        for name in given:
            warn(f"{name} is no setting of genai_processor; it is ignored")
        return cls(**values)


def _first(sources: list[tuple[str, Any]], kind: _Kind, default: Any, if_bad: Any, warn: Callable[[str], None]) -> Any:
    """Return the first value that is set and makes sense, else the default; warn of those that make none."""
    complaints: list[str] = []
    found = default
    for name, value in sources:
        if value is None:
            continue
        read = _read(value, kind)
        if read is not _BAD:
            found = read
            break
        complaints.append(_complaint(name, value, kind))
        found = if_bad
    for complaint in complaints:
        used = repr(found) if isinstance(found, str) and not kind.secret else kind.show(found)
        warn(f"{complaint}; using {used} instead")
    return found


def _read(value: Any, kind: _Kind) -> Any:
    """Return the value that was meant, or `_BAD`."""
    try:
        read = kind.parse(value) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
    except ValueError:
        return _BAD
    return read if kind.check(read) else _BAD


def _complaint(name: str, value: Any, kind: _Kind) -> str:
    return f"{name} must be {kind.type}, but is {'not' if kind.secret else repr(value)}"


def _is_limit(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _length_limit(environ: Mapping[str, str], warn: Callable[[str], None]) -> int | None:
    """Read the limit as the SDK reads it: the span's own wins even where it is empty, which means no limit."""
    for name in (OTEL_SPAN_LENGTH_LIMIT, OTEL_LENGTH_LIMIT):
        text = environ.get(name)
        if text is None:
            continue
        try:
            limit = int(text) if text.strip() else None
        except ValueError:
            limit = -1
        if limit is None or limit >= 0:
            return limit
        warn(f"{name} must be an integer from 0, but is {text!r}; using no limit instead")
        return None
    return None


def _rows() -> tuple[Setting, ...]:
    own = [
        Setting(
            name=PREFIX + row.name.upper(),
            field=row.name,
            type=row.metadata["kind"].type,
            default=row.metadata["kind"].show(row.default),
            meaning=row.metadata["meaning"],
        )
        for row in fields(Settings)
        if "kind" in row.metadata
    ]
    length = "OpenTelemetry's limit on the length of {} values. A value as long as it counts as cut."
    limits = [
        Setting(name, "length_limit", "integer from 0", "no limit", length.format(what))
        for name, what in ((OTEL_SPAN_LENGTH_LIMIT, "span attribute"), (OTEL_LENGTH_LIMIT, "attribute"))
    ]
    return (*own, *limits)


SETTINGS: Final[tuple[Setting, ...]] = _rows()
"""The table: one row for each variable that is read."""


def settings_table() -> str:
    """Render the table in Markdown, as the README shows it.

    Returns:
        A Markdown table with a header and one line for each variable, without a newline at its end.
    """
    lines = ["| Variable | Takes | Default | Meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{row.name}` | {row.type} | `{row.default}` | {row.meaning} |" for row in SETTINGS]
    return "\n".join(lines)
