# SPDX-License-Identifier: Apache-2.0
"""Several wrappers around one function: whoever goes first, what was there comes back, wherever it was imported by name."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wrapt
from hypothesis import given, settings
from hypothesis import strategies as st

from genai_processor.places import Place, UnknownPlaceError, Wrapped, find, take_away, version_of, wrap

KINDS = ("guard", "replay", "third")


def around(name: str) -> Any:
    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> list[str]:
        return [name, *wrapped(*args, **kwargs)]

    return wrapper


class Framework:
    """Modules on disk: one has a function and a class with an inherited method, others import the function by name."""

    def __init__(self, folder: Path) -> None:
        package = folder / "a_place"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "one.py").write_text(
            "def call(tool):\n    return []\n"
            "class Base:\n    def call(self, tool):\n        return []\n"
            "class Tool(Base):\n    pass\n"
        )
        (package / "two.py").write_text("from a_place.one import call\n")
        (package / "three.py").write_text("from a_place.one import call\n")
        importlib.invalidate_caches()
        self.one: Any = importlib.import_module("a_place.one")
        self.two: Any = importlib.import_module("a_place.two")

    def late(self) -> Any:
        return importlib.import_module("a_place.three")


@pytest.fixture
def framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Framework]:
    monkeypatch.syspath_prepend(tmp_path)
    yield Framework(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "a_place"]:
        del sys.modules[name]


def put(kind: str, name: str = "call") -> Wrapped:
    found = wrap(find("a_place.one", name, ("tool",)), around(kind), kind)
    assert found is not None
    return found


@pytest.mark.parametrize("first", [0, 1])
def test_whoever_goes_first_the_function_is_as_it_was_everywhere(framework: Framework, first: int) -> None:
    original = framework.one.call
    both = [put("guard"), put("replay")]
    three = framework.late()  # imports what is wrapped
    for module in (framework.one, framework.two, three):
        assert module.call("x") == ["replay", "guard"]
    take_away(both.pop(first))
    for module in (framework.one, framework.two, three):
        assert module.call("x") == (["replay"] if not first else ["guard"])
    take_away(both.pop())
    assert all(vars(module)["call"] is original for module in (framework.one, framework.two, three))


@pytest.mark.parametrize("first", [0, 1])
def test_a_method_that_was_inherited_is_inherited_again(framework: Framework, first: int) -> None:
    both = [put("guard", "Tool.call"), put("replay", "Tool.call")]
    assert framework.one.Tool().call("x") == ["replay", "guard"]
    take_away(both.pop(first))
    assert "call" in vars(framework.one.Tool)
    take_away(both.pop())
    assert "call" not in vars(framework.one.Tool)
    assert framework.one.Tool().call("x") == []


class Place_:
    def call(self, tool: str) -> list[str]:
        return []


@given(st.lists(st.sampled_from(KINDS), max_size=12))
@settings(deadline=None)
def test_coming_and_going_in_any_order_leaves_those_that_are_there_and_nothing_else(steps: list[str]) -> None:
    original, there, place = vars(Place_)["call"], dict[str, Wrapped](), Place(Place_, "call")
    for kind in steps:
        if kind in there:
            take_away(there.pop(kind))
        else:
            found = wrap(place, around(kind), kind)
            assert found is not None
            there[kind] = found
            assert wrap(place, around("again"), kind) is None
        assert Place_().call("x") == list(reversed(there))
    for kind in list(there):
        take_away(there.pop(kind))
    assert vars(Place_)["call"] is original


def test_what_a_stranger_stands_around_stays_and_is_not_put_there_twice(framework: Framework) -> None:
    both = [put("guard", "Base.call"), put("replay", "Base.call")]
    theirs = wrapt.FunctionWrapper(vars(framework.one.Base)["call"], around("theirs"))
    framework.one.Base.call = theirs
    for one in both:
        take_away(one)
    assert inspect.getattr_static(framework.one.Base, "call") is theirs
    assert framework.one.Base().call("x") == ["theirs", "replay", "guard"]
    assert wrap(find("a_place.one", "Base.call", ()), around("guard"), "guard") is None  # it is there, inside of theirs


def test_what_is_not_there_or_takes_other_parameters_is_told(framework: Framework) -> None:
    for name, parameters, told in (
        ("nothing", (), "there is no a_place.one:nothing"),
        ("Tool.nothing", (), "there is no a_place.one:Tool.nothing"),
        ("call", ("tool", "turn"), "a_place.one:call has no turn"),
    ):
        with pytest.raises(UnknownPlaceError, match=told):
            find("a_place.one", name, parameters)
    assert find("a_place.one", "newer|call", ("tool",)) == Place(framework.one, "call")


def test_a_version_is_that_of_the_distribution_or_unknown() -> None:
    assert version_of("wrapt.wrappers") == version_of("anything", "wrapt") == wrapt.__version__
    assert version_of("a_place.one") == "(unknown version)"
