# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.trace import INVALID_SPAN_CONTEXT

from genai_processor.background import BackgroundRecorder
from genai_processor.forks import call_in_child, guard_with_lock
from genai_processor.ledger import MemoryLedger
from genai_processor.processor import GenAISpanProcessor
from genai_processor.telemetry import EMITTING, Events, Faults, Totals

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


class Account:
    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self.given = self.taken = 0
        self.forked = 0

    def in_child(self) -> None:
        self.forked += 1


def exit_code_of_child(check: Callable[[], bool]) -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that hangs on an inherited lock must not hang the tests
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_objects_register_nothing_with_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered there stays for ever."""
    calls: list[object] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: calls.append(hooks))
    GenAISpanProcessor(ledger=MemoryLedger())
    BackgroundRecorder(MemoryLedger(), Faults(Totals()))
    Account()
    assert calls == []


def test_the_package_registers_once() -> None:
    script = """
        import os
        calls, register = [], os.register_at_fork
        def noting(**hooks):
            calls.extend(hook.__module__ for hook in hooks.values() if "genai" in str(getattr(hook, "__module__", "")))
            register(**hooks)
        os.register_at_fork = noting
        import genai_processor.processor, genai_processor.instrumentor
        assert calls == ["genai_processor.forks"] * 3, calls
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_forks_keep_nothing_alive() -> None:
    owner, recorder = Account(), BackgroundRecorder(MemoryLedger(), Faults(Totals()))
    call_in_child(owner.in_child)
    gone = [weakref.ref(owner), weakref.ref(recorder)]
    del owner, recorder
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    assert exit_code_of_child(lambda: True) == 0


def test_a_child_gets_free_locks_and_is_told_the_parent_is_not() -> None:
    owner = Account()
    call_in_child(owner.in_child)
    before = owner._lock
    assert exit_code_of_child(lambda: owner.forked == 1 and owner._lock is not before) == 0
    assert owner.forked == 0
    assert owner._lock is before
    free: list[bool] = []
    other = threading.Thread(target=lambda: free.append(owner._lock.acquire(blocking=False)))
    other.start()
    other.join()
    assert free == [True]


def test_a_child_inherits_no_state_that_a_thread_has_half_changed() -> None:
    owner, stop = Account(), threading.Event()

    def work() -> None:
        while not stop.is_set():
            with owner._lock:
                owner.given += 1
                time.sleep(0.001)
                owner.taken += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            assert exit_code_of_child(lambda: owner.given == owner.taken) == 0
    finally:
        stop.set()
        thread.join()


def test_locks_that_nest_in_either_order_and_objects_made_meanwhile_do_not_stop_a_fork() -> None:
    script = """
        import os, signal, threading, time
        from genai_processor.forks import guard_with_lock

        class Owner:
            def __init__(self):
                guard_with_lock(self)

        signal.alarm(30)
        first, second, running = Owner(), Owner(), True

        def nest(outer, inner, turn):
            while running:
                with turn, outer._lock:
                    time.sleep(0.0005)
                    with inner._lock:
                        Owner()

        turn = threading.Lock()  # of the two orders one at a time, or they would stop each other
        threads = [threading.Thread(target=nest, args=args) for args in ((first, second, turn), (second, first, turn))]
        for thread in threads:
            thread.start()
        for _ in range(30):
            child = os.fork()
            if child == 0:
                with first._lock, second._lock:
                    os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        running = False
        for thread in threads:
            thread.join()
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_child_is_inside_no_event_of_another_thread() -> None:
    """Whoever gets that thread's number in the child would have none of its spans judged."""
    begun, over = threading.Event(), threading.Event()

    class Slow(LogRecordProcessor):
        def on_emit(self, log_record: Any) -> None:
            begun.set()
            over.wait(10)

        def shutdown(self) -> None: ...

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return True

    loggers = LoggerProvider(shutdown_on_exit=False)
    loggers.add_log_record_processor(Slow())
    emitting = threading.Thread(target=lambda: Events(loggers).quarantined(INVALID_SPAN_CONTEXT, {}, 1))
    emitting.start()
    assert begun.wait(10)
    assert len(EMITTING) == 1
    assert exit_code_of_child(lambda: not EMITTING) == 0
    over.set()
    emitting.join()
    assert not EMITTING
