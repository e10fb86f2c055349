# SPDX-License-Identifier: Apache-2.0
"""Being told of modules once they are imported whole, without ever standing in the way of an import.

What is told runs inside the import, while the import system holds the module's lock. It must wait for nobody who may be
waiting for an import: so no lock is held here, and none may be held there over anything that can import.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import wrapt

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.01


def when_imported(name: str, tell: Callable[[str], None]) -> None:
    """Tell of a module when it is imported whole: right now if it is; else once.

    A module that is being imported now, by another thread or further up in this one, will not be announced by anybody. A
    thread looks after it then, for as long as that takes.

    Args:
        name: Name of the module, of which nothing is imported here but the packages around it, if somebody imports it.
        tell: Gets the name. What it raises is logged, for whoever imports must get the module.
    """
    registering, here = True, threading.get_ident()

    def imported(module: Any) -> None:
        if registering and threading.get_ident() == here and _is_being_imported(module):
            _look_after(name, tell)
        else:
            _tell(name, tell)

    try:
        wrapt.register_post_import_hook(imported, name)
    finally:
        registering = False


def is_whole(name: str) -> bool:
    """Whether a module has been imported, and its import is over."""
    module = sys.modules.get(name)
    return module is not None and not _is_being_imported(module)


def _is_being_imported(module: Any) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _tell(name: str, tell: Callable[[str], None]) -> None:
    try:
        tell(name)
    except Exception:  # noqa: BLE001 - the application must get its import
        _log.exception("genai_processor could not look at %s", name)


def _look_after(name: str, tell: Callable[[str], None]) -> None:
    def wait() -> None:
        while _is_being_imported(sys.modules.get(name)):
            time.sleep(_POLL_SECONDS)
        when_imported(name, tell)  # the import may have failed, and be tried again

    try:
        threading.Thread(target=wait, name="GenAIProcessorImports", daemon=True).start()
    except RuntimeError:  # the interpreter is shutting down
        _log.debug("Nobody waits for %s any more", name)
