# SPDX-License-Identifier: Apache-2.0
"""Ids for turns, where a framework gives its model's responses none that is unique in the world and kept."""

from __future__ import annotations

import hashlib
import json
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final

from genai_processor.forks import guard_with_lock
from genai_processor.ledger.ids import random_id

_LATEST: Final = 1_000


def turn_of(response_id: Any, call_ids: Iterable[Any]) -> str:
    """Return an id that whoever reads the same response again comes to, in another process, too.

    Args:
        response_id: The response's own id, or None.
        call_ids: The ids of its calls, of which some must be unique in the world if the response's own is not.
    """
    named = json.dumps([response_id, list(call_ids)], default=str)
    return hashlib.sha256(named.encode("utf-8", "replace")).hexdigest()[:32]


class Turns:
    """Ids for responses that are known by nothing but their identity. Only the latest ones keep theirs."""

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self._known: OrderedDict[int, tuple[Callable[[], Any], str]] = OrderedDict()

    def of(self, response: Any) -> str:
        """Return the id of a response: always the same for the same object, as long as it is one of the latest."""
        with self._lock:
            known = self._known.get(id(response))
            if known is None or known[0]() is not response:  # else another had its address before
                known = self._known[id(response)] = _reference(response), random_id()
            while len(self._known) > _LATEST:
                self._known.popitem(last=False)
            return known[1]


def _reference(response: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(response)
    except TypeError:  # a dictionary, say; then it is kept, so that nothing else gets its address
        return lambda: response
