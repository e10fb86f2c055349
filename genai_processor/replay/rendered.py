# SPDX-License-Identifier: Apache-2.0
"""LlamaIndex' messages as Python renders them."""

from __future__ import annotations

import re

from genai_processor.replay.items import Item, Unreadable, role_of
from genai_processor.replay.parts import PartKind, Role
from genai_processor.spans.values import literal, text

_ASSISTANT, _TOOL = Role.ASSISTANT, Role.TOOL
_TEXT, _CALL, _RESULT, _OTHER = PartKind.TEXT, PartKind.CALL, PartKind.RESULT, PartKind.OTHER
_ROLE = re.compile(r"ChatMessage\(role=<MessageRole\.(\w+): ")
_ANSWERED = re.compile(r"additional_kwargs=\{'tool_call_id': '([^']*)'")
_BLOCK = re.compile(
    r"TextBlock\(block_type='text', text=(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\)"
    r"|ToolCallBlock\(block_type='tool_call', tool_call_id='(?P<id>[^']*)', tool_name='(?P<tool>[^']*)', "
    r"tool_kwargs=(?P<kwargs>\{.*?\}|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\)(?=, \w+Block\(|\]\)$)",
    re.DOTALL,
)


def add_rendered(message: str, found: list[Item]) -> None:
    """LlamaIndex' ChatMessage as Python renders it. What the pattern does not cover is a slot as it stands."""
    match = _ROLE.match(message)
    if match is None:
        raise Unreadable("a rendered message without a role")
    role = role_of(match[1])
    answered = _ANSWERED.search(message)
    _, _, blocks = message.partition("blocks=[")
    covered = len("])")
    added: list[Item] = []
    for block in _BLOCK.finditer(blocks):
        covered += block.end() - block.start() + (len(", ") if added else 0)
        if block["tool"] is not None:
            kwargs = block["kwargs"]
            value = literal(kwargs) if kwargs[0] == "{" else _unquoted(kwargs)
            added.append(Item(_ASSISTANT, _CALL, block["tool"], text(block["id"]), value, value is None))
            continue
        value = _unquoted(block["text"])
        if role is _TOOL:
            added.append(Item(_TOOL, _RESULT, None, answered[1] if answered else None, value, False))
        else:
            added.append(Item(role, _TEXT, None, None, value, False))
    if covered != len(blocks):
        kind = _RESULT if role is _TOOL else _OTHER
        added = [Item(role, kind, None, answered[1] if answered else None, blocks, False)]
    found.extend(item for item in added if item.kind is not _TEXT or item.value)


def _unquoted(rendered: str) -> str:
    value = literal(f"[{rendered}]")
    return value[0] if isinstance(value, list) and isinstance(value[0], str) else rendered
