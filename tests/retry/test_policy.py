# SPDX-License-Identifier: Apache-2.0
"""What a user declares of tools, and when two recorded names mean one."""

from __future__ import annotations

import pytest

from genai_processor import Policy
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
