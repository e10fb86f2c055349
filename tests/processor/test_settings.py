# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_processor.settings import SETTINGS, Settings, settings_table

NAMES = [row.name for row in SETTINGS]


def read(environ: dict[str, str], **given: Any) -> tuple[Settings, list[str]]:
    warnings: list[str] = []
    return Settings.from_environ(environ, warnings.append, **given), warnings


def test_nothing_set_is_the_defaults() -> None:
    assert read({}) == (Settings(), [])
    assert read(dict.fromkeys(NAMES, "")) == (Settings(), [])
    assert read(dict.fromkeys(NAMES[:-2], "  ")) == (Settings(), [])


def test_every_variable_is_read() -> None:
    settings, warnings = read(
        {
            "GENAI_PROCESSOR_LEDGER": "memory:?max_entries=5",
            "GENAI_PROCESSOR_READ_ONLY_TOOLS": " get_*, list_* ,,",
            "GENAI_PROCESSOR_IDEMPOTENT_TOOLS": "put_*",
            "GENAI_PROCESSOR_KNOWN_TOOLS": "get_*,list_*,put_*,refund",
            "GENAI_PROCESSOR_STAMP_DIGESTS": "YES",
            "GENAI_PROCESSOR_DIGEST_KEY": "s3cret",
            "GENAI_PROCESSOR_MAX_CALLS": "7",
            "GENAI_PROCESSOR_MAX_BYTES": "8",
            "GENAI_PROCESSOR_MAX_AGE": "9",
            "GENAI_PROCESSOR_EVENTS": "off",
            "GENAI_PROCESSOR_METRICS": "0",
            "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "100",
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "50",
        }
    )
    assert warnings == []
    assert settings == Settings(
        ledger="memory:?max_entries=5",
        read_only_tools=("get_*", "list_*"),
        idempotent_tools=("put_*",),
        known_tools=("get_*", "list_*", "put_*", "refund"),
        stamp_digests=True,
        digest_key="s3cret",
        max_calls=7,
        max_bytes=8,
        max_age=9,
        events=False,
        metrics=False,
        length_limit=100,
    )


def test_the_table_and_the_settings_agree() -> None:
    assert {row.field for row in SETTINGS} == {field.name for field in dataclasses.fields(Settings)}
    assert len(set(NAMES)) == len(NAMES)
    table = settings_table()
    for row in SETTINGS:
        assert f"| `{row.name}` | {row.type} | `{row.default}` | {row.meaning} |" in table


@pytest.mark.parametrize(
    ("name", "value", "used"),
    [
        ("STAMP_DIGESTS", "maybe", "false"),
        ("EVENTS", "2", "true"),
        ("METRICS", "nein", "true"),
        ("MAX_CALLS", "many", "10000"),
        ("MAX_CALLS", "0", "10000"),
        ("MAX_BYTES", "-1", "67108864"),
        ("MAX_AGE", "1.5", "3600"),
    ],
)
def test_a_bad_value_is_a_warning_that_names_variable_value_and_what_is_used(name: str, value: str, used: str) -> None:
    settings, warnings = read({f"GENAI_PROCESSOR_{name}": value})
    assert settings == Settings()
    (warning,) = warnings
    assert f"GENAI_PROCESSOR_{name}" in warning
    assert repr(value) in warning
    assert f"using {used} instead" in warning


def test_what_the_code_says_beats_the_variable_beats_the_default() -> None:
    environ = {"GENAI_PROCESSOR_MAX_CALLS": "7", "GENAI_PROCESSOR_EVENTS": "off"}
    settings, warnings = read(environ, max_calls=8, read_only_tools=["a", "b"], events=None, metrics="false")
    assert warnings == []
    assert settings == Settings(max_calls=8, read_only_tools=("a", "b"), events=False, metrics=False)


def test_a_bad_value_in_code_gives_way_to_the_variable() -> None:
    settings, warnings = read({"GENAI_PROCESSOR_MAX_CALLS": "7"}, max_calls=True, nonsense=1)
    assert settings.max_calls == 7
    assert len(warnings) == 2
    assert "max_calls" in warnings[0]
    assert "using 7 instead" in warnings[0]
    assert "nonsense" in warnings[1]


def test_a_string_of_globs_is_not_a_sequence_of_letters() -> None:
    assert Settings(read_only_tools="get_*,list_*").read_only_tools == ("get_*", "list_*")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_calls must be integer above 0, but is 0"):
        Settings(max_calls=0)


def test_a_secret_is_never_shown() -> None:
    assert "s3cret" not in repr(Settings(digest_key="s3cret"))
    _, warnings = read({}, digest_key=b"s3cret")
    assert len(warnings) == 1
    assert "s3cret" not in warnings[0]


@pytest.mark.parametrize(
    ("own", "general", "limit"),
    [(None, None, None), (None, "50", 50), ("9", "50", 9), ("", "50", None), ("0", None, 0), (None, "", None)],
)
def test_length_limits_are_read_as_the_sdk_reads_them(own: str | None, general: str | None, limit: int | None) -> None:
    environ = {"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": own, "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": general}
    settings, warnings = read({name: value for name, value in environ.items() if value is not None})
    assert settings.length_limit == limit
    assert warnings == []


@pytest.mark.parametrize("value", ["x", "-1"])
def test_a_bad_length_limit(value: str) -> None:
    settings, warnings = read({"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": value})
    assert settings.length_limit is None
    assert repr(value) in warnings[0]


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=8)))
def test_whatever_the_environment_says_nothing_is_raised(environ: dict[str, str]) -> None:
    settings, warnings = read(environ)
    assert Settings(**{field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}) == settings
    assert len(warnings) <= len(environ)
