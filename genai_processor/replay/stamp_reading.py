# SPDX-License-Identifier: Apache-2.0
"""A stamp from the attributes of a span, which anybody may have written: what does not parse is no stamp, and says so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import genai_processor.attributes as names
from genai_processor.replay.parts import Part, PartKind, Role
from genai_processor.replay.stamps import CONVERSATION, RESPONSE, VERSION, Base, Stamp, StampedList, name_of_key

_SLOT: Final = re.compile(r"([a-z]+)\.([a-z]+)(?:@(-?[0-9]{1,9}))? ([0-9a-f]{32})(?: (\S+)(?: (\S+))?)?")
_BASE: Final = re.compile(r"([0-9a-f]{32})(?:\+([0-9a-f]{32}))?")
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_ROLES: Final = {role.value: role for role in Role}
_KINDS: Final = {kind.value: kind for kind in PartKind}


def read_stamp(attributes: Mapping[str, Any], key: bytes = b"") -> Stamp | None:
    """The stamp on a span, or None if it has none.

    Args:
        attributes: The span's.
        key: What keyed stamps are keyed with, or b"" if nobody knows. One that is not is read all the same.
    """
    version = attributes.get(names.GENAI_REPLAY_VERSION)
    if version is None:
        return None
    if version != VERSION:
        return Stamp(problem=f"its stamp for replay is of version {str(version)[:20]!r}, and this is version {VERSION}")
    named = attributes.get(names.GENAI_REPLAY_KEY)
    if named is None:
        key = b""
    elif not key or named != name_of_key(key):
        return Stamp(
            problem="its stamp for replay is keyed: set GENAI_PROCESSOR_DIGEST_KEY to what it was when this was recorded"
        )
    try:
        continues = attributes.get(names.GENAI_REPLAY_INPUT_CONTINUES, "")
        if continues not in ("", RESPONSE, CONVERSATION):
            raise _Bad
        return Stamp(
            _input(attributes),
            _output(attributes),
            _optional(attributes, names.GENAI_REPLAY_SYSTEM_DIGEST),
            _optional(attributes, names.GENAI_REPLAY_TOOLS_DIGEST),
            key,
            continues,
        )
    except (_Bad, ValueError):
        return Stamp(problem="its stamp for replay does not parse, and is ignored")


class _Bad(Exception):
    pass


def _input(attributes: Mapping[str, Any]) -> StampedList | None:
    digest = _optional(attributes, names.GENAI_REPLAY_INPUT_DIGEST)
    if not digest:
        return None
    count = attributes.get(names.GENAI_REPLAY_INPUT_COUNT)
    if type(count) is not int or count < 0:
        raise _Bad
    text = attributes.get(names.GENAI_REPLAY_INPUT_BASE)
    base = None
    if text is not None:
        match = _BASE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise _Bad
        base = Base(bytes.fromhex(match[1]), bytes.fromhex(match[2] or ""))
    slots = _read_slots(attributes.get(names.GENAI_REPLAY_INPUT_SLOTS))
    if slots is not None and (len(slots) > count or (base is None and len(slots) != count)):
        raise _Bad
    return StampedList(_text(attributes, names.GENAI_REPLAY_INPUT_SOURCE), digest, count, base, slots)


def _output(attributes: Mapping[str, Any]) -> StampedList | None:
    digest = _optional(attributes, names.GENAI_REPLAY_OUTPUT_DIGEST)
    if not digest:
        return None
    slots = _read_slots(attributes.get(names.GENAI_REPLAY_OUTPUT_SLOTS))
    count = len(slots) if slots is not None else 0
    return StampedList(_text(attributes, names.GENAI_REPLAY_OUTPUT_SOURCE), digest, count, None, slots)


def _text(attributes: Mapping[str, Any], name: str) -> str:
    value = attributes.get(name, "")
    if not isinstance(value, str):
        raise _Bad
    return value


def _optional(attributes: Mapping[str, Any], name: str) -> bytes:
    value = attributes.get(name)
    if value is None:
        return b""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise _Bad
    return bytes.fromhex(value)


def _read_slots(slots: Any) -> tuple[Part, ...] | None:
    if slots is None:
        return None
    if not isinstance(slots, (list, tuple)):
        raise _Bad
    return tuple([_read_slot(slot) for slot in slots])


def _read_slot(slot: Any) -> Part:
    match = _SLOT.fullmatch(slot) if isinstance(slot, str) else None
    if match is None or match[1] not in _ROLES or match[2] not in _KINDS:
        raise _Bad
    position = int(match[3]) if match[3] is not None else None
    call_id, tool = (None if word in (None, "-") else unquote(word) for word in (match[5], match[6]))
    return Part(_ROLES[match[1]], _KINDS[match[2]], tool, bytes.fromhex(match[4]), position, call_id, None, True)
