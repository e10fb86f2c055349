# SPDX-License-Identifier: Apache-2.0
"""Hooks come when their framework is imported, whatever thread imports what; no import breaks, and nothing stays behind."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import wrapt

from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks import installing
from genai_processor.guard.hooks.base import Hook, Target
from genai_processor.replays import REPLAYS

SECONDS = 30
CALL = "def call(tool):\n    return 'bare'\n"


def guarding(guard: Guard, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> str:
    return "guarded"


def target(module: str, name: str = "call", **options: Any) -> Target:
    return Target(f"a_framework.{module}", name, ("tool",), guarding, **options)


class Framework:
    """A framework on disk, and the hook in front of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "a_framework"
        self.folder.mkdir()
        self.module("__init__", "")
        self.gates = ModuleType("a_gate")
        self._hook = ModuleType("a_hook")
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setitem(sys.modules, "a_hook", self._hook)
        monkeypatch.setitem(sys.modules, "a_gate", self.gates)
        monkeypatch.setitem(installing.HOOKS, "a_framework", ("a_hook",))

    def module(self, name: str, code: str = CALL) -> None:
        (self.folder / f"{name}.py").write_text(code)
        importlib.invalidate_caches()

    def hook(self, *targets: Target, optional: tuple[Target, ...] = ()) -> None:
        self._hook.HOOK = Hook("a framework", targets, optional)

    def load(self, name: str) -> Any:
        return importlib.import_module(f"a_framework.{name}")


@pytest.fixture
def framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Framework]:
    yield Framework(tmp_path, monkeypatch)
    installing.uninstall()
    for name in [name for name in sys.modules if name.partition(".")[0] == "a_framework"]:
        del sys.modules[name]


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def becomes(wanted: Callable[[], bool]) -> bool:
    """Wait for what another thread is about to do."""
    never = threading.Event()
    return any(wanted() or never.wait(0.01) for _ in range(100 * SECONDS))


# -- when ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_targets_in_modules_that_are_imported_later_are_wrapped(framework: Framework, order: tuple[str, str]) -> None:
    framework.module("one")
    framework.module("two")
    framework.hook(target("one"), target("two"))
    installing.install(Guard())
    modules = [framework.load(name) for name in order]
    assert [module.call("x") for module in modules] == ["guarded", "guarded"]


def test_what_is_imported_already_is_wrapped_at_once(framework: Framework) -> None:
    framework.module("one")
    framework.hook(target("one"))
    one = framework.load("one")
    installing.install(Guard())
    assert one.call("x") == "guarded"


def test_a_guard_may_come_in_the_middle_of_the_import_of_what_it_guards(framework: Framework) -> None:
    framework.module("one", "import a_gate\na_gate.install()\n" + CALL)
    framework.gates.install = lambda: installing.install(Guard())
    framework.hook(target("one"))
    one = framework.load("one")
    assert becomes(lambda: one.call("x") == "guarded")


def test_a_guard_may_come_while_another_thread_imports_what_it_guards(framework: Framework) -> None:
    inside, go_on = threading.Event(), threading.Event()
    framework.gates.wait = lambda: (inside.set(), go_on.wait(SECONDS))
    framework.module("one", "import a_gate\na_gate.wait()\n" + CALL)
    framework.module("two")
    framework.hook(target("one"), target("two"))
    framework.load("two")
    importing = in_thread(lambda: framework.load("one"))
    assert inside.wait(SECONDS)
    installing.install(Guard())
    go_on.set()
    importing.join(SECONDS)
    assert becomes(lambda: framework.load("one").call("x") == "guarded")
    assert becomes(lambda: framework.load("two").call("x") == "guarded")


def test_two_imports_may_end_at_the_same_time(framework: Framework) -> None:
    """Each is told to us before the import system counts it as over."""
    framework.module("one")
    framework.module("two")
    framework.hook(target("one"), target("two"))
    installing.install(Guard())
    importlib.import_module("a_framework")
    told, go_on = threading.Event(), threading.Event()
    wrapt.register_post_import_hook(lambda _: (told.set(), go_on.wait(SECONDS)), "a_framework.one")
    importing = in_thread(lambda: framework.load("one"))
    assert told.wait(SECONDS)
    two = framework.load("two")
    go_on.set()
    importing.join(SECONDS)
    assert (two.call("x"), framework.load("one").call("x")) == ("guarded", "guarded")


def test_threads_that_import_and_install_at_once_do_not_wait_for_each_other_for_ever(framework: Framework) -> None:
    names = [f"part{number}" for number in range(20)]
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        framework.module(name, f"import a_framework.{other}\n{CALL}")
    framework.hook(*map(target, names))
    ready = threading.Barrier(6)

    def importing(order: list[str]) -> None:
        ready.wait(SECONDS)
        for name in order:
            framework.load(name)

    def installs() -> None:
        ready.wait(SECONDS)
        for _ in range(50):
            installing.install(Guard())

    orders = names, names[::-1], names[7:] + names[:7], names[13:] + names[:13]
    threads = [in_thread(lambda order=order: importing(order)) for order in orders]
    threads += [in_thread(installs), in_thread(installs)]
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    installing.install(Guard())  # one that was asked for while wrapt looked elsewhere is found by the next
    assert becomes(lambda: {framework.load(name).call("x") for name in names} == {"guarded"})


def test_what_is_wrapped_if_it_is_there_keeps_nothing_else_out(framework: Framework) -> None:
    framework.module("one")
    framework.module("extra")
    framework.hook(target("one"), optional=(target("extra"),))
    installing.install(Guard())
    extra = framework.load("extra")
    assert extra.call("x") == "bare"  # it comes with the others
    assert framework.load("one").call("x") == "guarded"
    assert extra.call("x") == "guarded"


# -- an import never breaks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "",
        "call = 1\n",
        "def call(other):\n    return 'bare'\n",
        "def __getattr__(name):\n    raise OSError(name)\n",
        "class call:\n    __signature__ = property(lambda self: 1 / 0)\n",
    ],
)
def test_what_is_not_as_expected_is_left_alone_with_one_warning(
    framework: Framework, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    framework.module("one")
    framework.module("two", code)
    framework.hook(target("one"), target("two"))
    installing.install(Guard())
    framework.load("two")
    assert framework.load("one").call("x") == "bare"
    installing.install(Guard())
    assert caplog.text.count("is not laid out as the guard knows it") == 1


def test_what_does_not_let_itself_be_wrapped_is_left_alone_as_a_whole(
    framework: Framework, caplog: pytest.LogCaptureFixture
) -> None:
    frozen = (
        "class Frozen(type):\n    def __setattr__(cls, name, value):\n        raise TypeError(name)\n"
        "class Tool(metaclass=Frozen):\n    def call(self, tool):\n        return 'bare'\n"
    )
    framework.module("one")
    framework.module("two", frozen)
    framework.hook(target("one"), target("two", "Tool.call"))
    installing.install(Guard())
    one, two = framework.load("one"), framework.load("two")
    assert (one.call("x"), two.Tool().call("x")) == ("bare", "bare")
    assert "could not look at a_framework.two" in caplog.text


def test_a_hook_that_cannot_be_loaded_breaks_no_import(framework: Framework, caplog: pytest.LogCaptureFixture) -> None:
    framework.module("one")  # and there is no HOOK
    installing.install(Guard())
    assert framework.load("one").call("x") == "bare"
    assert "a_hook could not be set up" in caplog.text


# -- nothing stays behind ------------------------------------------------------------------------------------------------


def test_what_was_there_is_there_again(framework: Framework) -> None:
    framework.module("one", "class Base:\n    def call(self, tool): ...\nclass Tool(Base):\n    pass\n")
    framework.module("two")
    framework.module("three", "from a_framework.two import call\n")
    framework.module("four", "from a_framework.two import call\n")
    framework.hook(target("one", "Tool.call"), target("two"))
    one, two, three = framework.load("one"), framework.load("two"), framework.load("three")
    original = two.call
    installing.install(Guard())
    four = framework.load("four")  # imports what is wrapped
    assert (one.Tool().call("x"), three.call("x"), four.call("x")) == ("guarded", "guarded", "guarded")
    installing.uninstall()
    assert "call" not in vars(one.Tool)
    assert all(vars(module)["call"] is original for module in (two, three, four))


def test_a_wrapper_of_somebody_else_stays_and_ours_lets_pass(framework: Framework) -> None:
    framework.module("one")
    framework.hook(target("one"))
    one = framework.load("one")
    installing.install(Guard())
    theirs = wrapt.FunctionWrapper(one.call, lambda wrapped, _, args, kwargs: wrapped(*args, **kwargs))
    one.call = theirs
    installing.uninstall()
    assert inspect.getattr_static(one, "call") is theirs
    assert one.call("x") == "bare"
    installing.install(Guard())
    assert inspect.getattr_static(one, "call") is theirs
    assert one.call("x") == "guarded"


def test_coming_and_going_asks_for_an_import_once(framework: Framework) -> None:
    framework.module("one")
    framework.hook(target("one"))
    importlib.import_module("a_framework")
    for _ in range(5):
        installing.install(Guard())
        installing.uninstall()
    waiting = wrapt.importer._post_import_hooks
    assert len(waiting["a_framework.one"]) == 1
    installing.install(Guard())
    assert framework.load("one").call("x") == "guarded"


def test_without_a_guard_an_import_changes_nothing_and_the_next_guard_finds_it(framework: Framework) -> None:
    framework.module("one")
    framework.hook(target("one"))
    installing.install(Guard())
    installing.uninstall()
    one = framework.load("one")
    assert one.call("x") == "bare"
    assert not hasattr(one.call, "__wrapped__")
    installing.install(Guard())
    assert one.call("x") == "guarded"


def test_a_guard_that_is_off_wraps_nothing_until_another_comes(framework: Framework) -> None:
    framework.module("one")
    framework.hook(target("one"))
    one = framework.load("one")
    original = one.call
    installing.install(Guard(mode="off"))
    assert one.call is original
    assert installing.active() is None
    installing.install(Guard())
    assert one.call("x") == "guarded"
    installing.install(Guard(mode="off"))
    assert one.call("x") == "bare"


def test_a_name_that_is_no_module_is_passed_over(framework: Framework, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "a_framework.odd", SimpleNamespace(call=1))
    monkeypatch.setitem(sys.modules, "a_framework.none", None)
    framework.module("one")
    framework.hook(target("one"))
    installing.install(Guard())
    assert framework.load("one").call("x") == "guarded"


def test_a_replay_keeps_the_guard_out_of_the_frameworks_that_it_answers_and_of_no_other(framework: Framework) -> None:
    framework.module("one")
    framework.hook(target("one"))
    installing.install(Guard())
    one = framework.load("one")
    with REPLAYS.entered("r", ("a_framework",)):
        assert one.call("x") == "bare"
    with REPLAYS.entered("r", ("another",)):
        assert one.call("x") == "guarded"
