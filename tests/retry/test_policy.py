# SPDX-License-Identifier: Apache-2.0
"""What a user declares of tools, and when two recorded names mean one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import text

from genai_processor import Policy, Settings
from genai_processor.retry.policy import same_tool


@pytest.mark.parametrize(
    ("tool", "effect"),
    [
        ("get_rate", "read_only"),
        ("search", "read_only"),
        ("put_order", "idempotent"),
        ("both", "read_only"),
        ("create_refund", "non_idempotent"),
        ("GET_rate", "non_idempotent"),
        ("my_get_rate", "non_idempotent"),
        ("search2", "non_idempotent"),
        ("get_rate\n", "read_only"),
        (None, "non_idempotent"),
        ("", "non_idempotent"),
    ],
)
def test_an_effect_is_what_was_declared_by_exact_globs(tool: str | None, effect: str) -> None:
    policy = Policy(read_only=("get_*", "search", "both"), idempotent=("put_*", "both"))
    assert policy.effect(tool) == effect


def test_nothing_declared_is_the_worst() -> None:
    assert Policy().effect("get_rate") == "non_idempotent"
    assert Policy().exists("get_rate") is None


def test_whether_a_tool_exists_is_known_only_if_it_was_declared() -> None:
    policy = Policy(known=("get_*", "pay"))
    assert [policy.exists(name) for name in ("pay", "get_rate", "refund")] == [True, True, False]


@pytest.mark.parametrize("field", ["read_only", "idempotent", "known"])
@pytest.mark.parametrize(
    "declared",
    [
        "get_*, search",
        " get_*,,search ,",
        ("get_*", "search"),
        ["get_*", "search"],
        {"search", "get_*"},
        frozenset({"get_*", "search"}),
    ],
    ids=repr,
)
def test_globs_are_read_however_they_come(field: str, declared: Any) -> None:
    policy = Policy(**{field: declared})
    assert getattr(policy, field) == ("get_*", "search")
    hash(policy)
    if field == "known":
        assert [policy.exists(name) for name in ("get_rate", "search", "pay")] == [True, True, False]
    else:
        assert [policy.effect(name) for name in ("get_rate", "search", "pay")] == [field, field, "non_idempotent"]


@pytest.mark.parametrize("field", ["read_only", "idempotent", "known"])
@pytest.mark.parametrize("declared", [None, 3, b"get_*", (b"get_*",), ["get_*", None], {"get_*": True}, object()], ids=repr)
def test_what_is_no_globs_is_refused_by_name(field: str, declared: Any) -> None:
    with pytest.raises(TypeError, match=f"^{field} must be .*{field}="):
        Policy(**{field: declared})


@given(text())
def test_text_declares_what_the_variable_would(declared: str) -> None:
    found = Settings.from_environ({"GENAI_PROCESSOR_READ_ONLY_TOOLS": declared}).read_only_tools
    assert Policy(read_only=declared).read_only == found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("pay", "pay", True),
        ("shop-pay", "pay", True),
        ("pay", "shop.pay", True),
        ("mcp__shop__pay", "pay", True),
        ("mcp__shop__pay", "shop__pay", True),
        ("repay", "pay", False),
        ("pay2", "pay", False),
        ("pay-shop", "pay", False),
        ("Pay", "pay", False),
        (None, "pay", False),
        (None, None, False),
    ],
)
def test_servers_and_plugins_prefix_names(one: str | None, other: str | None, same: bool) -> None:
    assert same_tool(one, other) is same
    assert same_tool(other, one) is same
