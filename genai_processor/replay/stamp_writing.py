# SPDX-License-Identifier: Apache-2.0
"""A stamp as attributes of a span: names, numbers and digests, short, and no content."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

import genai_processor.attributes as names
from genai_processor.replay.parts import Part, PartList
from genai_processor.replay.stamps import MAX_SLOTS, VERSION, keyed, name_of_key

_MAX_ID: Final = 256
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/|-]+")


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
        found[names.GENAI_REPLAY_KEY] = name_of_key(key)
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
