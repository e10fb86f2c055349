# SPDX-License-Identifier: Apache-2.0
"""The stamp that a recording puts on an inference's span, so that a replay knows what stood there, whatever became of it.

It says, in order, of which parts input and output were made: for each its role, kind, digest, call id and tool, and nothing
of what it said. Histories repeat, so an input names the earlier list that it begins with and has only its new slots.

A digest of a short text that is easy to guess can be found by trying, unless it is keyed. What a stamp says is never
trusted: a list that is put together from stamps counts only if it has the digest that its stamp says.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from genai_processor import attributes as names
from genai_processor.replay.records import Part, PartKind, PartList, Role

VERSION: Final = "1"
"""Of how lists are read and digests made. It goes up when `digests`, `lists` or `messages` come to read a list otherwise."""

REQUEST: Final = "request"
"""The source of a list that a hook saw."""
RESPONSE: Final = "response"
CONVERSATION: Final = "conversation"

MAX_SLOTS: Final = 512
"""More slots than these are not written on one span."""

_MAX_ID: Final = 256
_SIZE: Final = 16
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/|-]+")
_SLOT: Final = re.compile(r"([a-z]+)\.([a-z]+)(?:@(-?[0-9]{1,9}))? ([0-9a-f]{32})(?: (\S+)(?: (\S+))?)?")
_BASE: Final = re.compile(r"([0-9a-f]{32})(?:\+([0-9a-f]{32}))?")
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_ROLES: Final = {role.value: role for role in Role}
_KINDS: Final = {kind.value: kind for kind in PartKind}


class Base(NamedTuple):
    """A list that another one begins with.

    Attributes:
        inputs: The digest of an inference's input.
        output: The digest of the output that follows it, or b"" if none does.
    """

    inputs: bytes
    output: bytes = b""


class StampedList(NamedTuple):
    """What a stamp says of one list. All digests are as written: keyed, if the stamp is.

    Attributes:
        source: Where it was read.
        digest: 16 bytes over all its parts.
        length: How many parts it has.
        base: What it begins with, or None.
        slots: The parts after that, their values missing; None where they were left out.
        changed: The span still has the list at its source, and it is another one.
    """

    source: str
    digest: bytes
    length: int
    base: Base | None
    slots: tuple[Part, ...] | None
    changed: bool = False


class Stamp(NamedTuple):
    """What a recording stamped on a span.

    Attributes:
        inputs: The input, or None if it was not known.
        output: The output, likewise.
        system: Digest of the system instructions, or b"".
        tools: Digest of the tool definitions, or b"".
        key: What its digests are keyed with, or b"".
        continues: `response` or `conversation` if the provider kept what came before; else "".
        problem: Why it cannot be read; it says nothing then. Else "".
    """

    inputs: StampedList | None = None
    output: StampedList | None = None
    system: bytes = b""
    tools: bytes = b""
    key: bytes = b""
    continues: str = ""
    problem: str = ""


def key_of(secret: str | None) -> bytes:
    """The key that a secret makes; b"" for none."""
    return b"" if secret is None else hashlib.sha256(secret.encode(errors="surrogateescape")).digest()


def keyed(digest: bytes, key: bytes) -> bytes:
    """A digest as it is written: the digest itself, unless there is a key."""
    return hmac.digest(key, digest, "sha256")[:_SIZE] if key else digest


def _name_of_key(key: bytes) -> str:
    return hmac.digest(key, b"genai replay key", "sha256")[:4].hex()


# -- writing -------------------------------------------------------------------------------------------------------------


def written_base(inputs: PartList, output: PartList | None, key: bytes) -> str:
    """How a list is named that others begin with."""
    name = keyed(inputs.digest, key).hex()
    return name if output is None else f"{name}+{keyed(output.digest, key).hex()}"


def written(
    inputs: PartList | None,
    output: PartList | None,
    *,
    key: bytes,
    input_source: str = "",
    output_source: str = "",
    base: str | None = None,
    begins: int = 0,
    system: bytes = b"",
    tools: bytes = b"",
    continues: str = "",
) -> dict[str, Any]:
    """The attributes that say what a model was asked and answered.

    Args:
        inputs: The whole input, or None if it is not known.
        output: The whole output, likewise.
        key: What to key digests with, or b"".
        input_source: Where the input was read.
        output_source: Where the output was read.
        base: The name of the list that the input begins with (`written_base`), or None.
        begins: The length of that list.
        system: `digests.content_digest` of the system instructions, or b"".
        tools: That of the tool definitions, or b"".
        continues: What the provider kept, or "".
    """
    found: dict[str, Any] = {names.GENAI_REPLAY_VERSION: VERSION}
    if key:
        found[names.GENAI_REPLAY_KEY] = _name_of_key(key)
    if inputs is not None:
        found[names.GENAI_REPLAY_INPUT_SOURCE] = input_source
        found[names.GENAI_REPLAY_INPUT_DIGEST] = keyed(inputs.digest, key).hex()
        found[names.GENAI_REPLAY_INPUT_COUNT] = len(inputs)
        if base is not None:
            found[names.GENAI_REPLAY_INPUT_BASE] = base
        if len(inputs) - begins > MAX_SLOTS:
            found[names.GENAI_REPLAY_LEFT_OUT] = "too_many"
        else:
            found[names.GENAI_REPLAY_INPUT_SLOTS] = _slots(inputs.since(begins), key)
    if output is not None:
        found[names.GENAI_REPLAY_OUTPUT_SOURCE] = output_source
        found[names.GENAI_REPLAY_OUTPUT_DIGEST] = keyed(output.digest, key).hex()
        if len(output) > MAX_SLOTS:
            found[names.GENAI_REPLAY_LEFT_OUT] = "too_many"
        else:
            found[names.GENAI_REPLAY_OUTPUT_SLOTS] = _slots(output, key)
    if system:
        found[names.GENAI_REPLAY_SYSTEM_DIGEST] = keyed(system, key).hex()
    if tools:
        found[names.GENAI_REPLAY_TOOLS_DIGEST] = keyed(tools, key).hex()
    if continues:
        found[names.GENAI_REPLAY_INPUT_CONTINUES] = continues
    return found


def too_large() -> dict[str, Any]:
    """The attributes of a span whose messages nobody looked at."""
    return {names.GENAI_REPLAY_VERSION: VERSION, names.GENAI_REPLAY_LEFT_OUT: "too_large"}


def _slots(parts: Iterable[Part], key: bytes) -> tuple[str, ...]:
    return tuple([_slot(part, key) for part in parts])


def _slot(part: Part, key: bytes) -> str:
    at = "" if part.position is None else f"@{part.position}"
    text = f"{part.role._value_}.{part.kind._value_}{at} {keyed(part.digest, key).hex()}"
    if part.call_id is not None or part.tool is not None:
        text += f" {_name(part.call_id)}"
        if part.tool is not None:
            text += f" {_name(part.tool)}"
    return text


def _name(text: str | None) -> str:
    """An id or a name as one word. Half an id is none."""
    if text is None or not 0 < len(text) <= _MAX_ID:
        return "-"
    if text != "-" and _PLAIN.fullmatch(text):
        return text
    return quote(text, safe="", errors="replace") if text != "-" else "%2D"


# -- reading -------------------------------------------------------------------------------------------------------------


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
    elif not key or named != _name_of_key(key):
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
