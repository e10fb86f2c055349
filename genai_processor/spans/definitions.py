# SPDX-License-Identifier: Apache-2.0
"""Which tools a model was given: names, schemas, and whether the recorded list is whole."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from genai_processor.spans.messages import nested
from genai_processor.spans.values import nested_beyond, quick_loads

_SCHEMAS = ("parameters", "parameters_json_schema", "inputSchema", "input_schema", "json_schema")


class ToolList(NamedTuple):
    """The tools that a span says were on offer.

    Attributes:
        schemas: Each tool's name and the JSON schema of its parameters (None where it is not recorded).
        whole: Nothing suggests that a name is missing: every attribute parsed, none was dropped or cut.
    """

    schemas: Mapping[str, Any]
    whole: bool


def tool_list(
    attributes: Mapping[str, Any], keys: Iterable[str], *, dropped: bool, is_cut: Callable[[str], bool]
) -> ToolList | None:
    """The tool list under the given keys of a span, or None if it records none.

    Args:
        attributes: The span's attributes.
        keys: Attribute keys; a trailing "." asks for flattened ones.
        dropped: The span lost attributes.
        is_cut: Tells whether telemetry shortened a text; JSON that parses is whole, so only bare names are asked about.
    """
    values: list[tuple[str, Any]] = []
    names = None
    for key in keys:
        if key[-1] == ".":
            if names is None:
                names = "\n".join(attributes)  # one search in it instead of one for each attribute
            folded = nested(attributes, key[:-1]) if key in names else None
            if folded:
                values.append((key, list(folded.values())))
        elif (value := attributes.get(key)) is not None:
            values.append((key, value))
    if not values:
        return None
    if len(values) == 1 and not dropped and type(text := values[0][1]) is str and text[:1] in ("{", "["):
        return _from_text(text)
    schemas: dict[str, Any] = {}
    whole = not dropped
    for key, value in values:
        if key[-1] == ".":
            whole = whole and not any(is_cut(name) for name in _bare_names(value))
        for item in value if isinstance(value, (list, tuple)) else [value]:
            parsed = quick_loads(item) if isinstance(item, str) and item[:1] in ("{", "[") else item
            if parsed is None or (isinstance(parsed, str) and is_cut(parsed)):
                whole = False
            else:
                whole = _collect(parsed, schemas) and whole
    return ToolList(schemas, whole and bool(schemas))


@functools.lru_cache(maxsize=64)
def _from_text(text: str) -> ToolList:
    """The tools in one JSON text: an agent's spans repeat it word for word, so it is read once."""
    schemas: dict[str, Any] = {}
    parsed = quick_loads(text)
    whole = parsed is not None and _collect(parsed, schemas)
    return ToolList(schemas, whole and bool(schemas))


def _bare_names(tools: Iterable[Any]) -> Iterable[str]:
    for tool in tools:
        inner = tool.get("tool", tool) if isinstance(tool, Mapping) else None
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if isinstance(name, str):
            yield name


_MAX_NESTED_LISTS = 16
_MAX_SCHEMA_DEPTH = 100


def _collect(node: Any, schemas: dict[str, Any], depth: int = 0) -> bool:
    """Add the tools of one parsed attribute; False if something in it is not understood."""
    if depth > _MAX_NESTED_LISTS:
        return False
    if isinstance(node, str):
        names = [name.strip() for name in node.split(",") if name.strip()]
        for name in names:
            schemas.setdefault(name, None)
        return len(names) == 1  # whether a comma-separated list was cut cannot be seen
    if isinstance(node, (list, tuple)):
        return all([_collect(item, schemas, depth + 1) for item in node])  # noqa: C419 - all are collected
    if not isinstance(node, Mapping):
        return False
    for holder in ("function_tools", "tools", "output_tools", "native_tools", "builtin_tools"):
        if isinstance(node.get(holder), (list, tuple)):
            parts = [node[name] for name in node if name.endswith("_tools") or name == "tools"]
            more = node.get("nextCursor") is not None  # the list goes on in another answer
            lists = [part for part in parts if isinstance(part, (list, tuple))]
            return not more and all([_collect(part, schemas, depth + 1) for part in lists])  # noqa: C419 - all are collected
    if isinstance(node.get("tool"), Mapping):
        return _collect_flat(node["tool"], schemas, depth)
    function = node.get("function")
    return _declare(function if isinstance(function, Mapping) else node, schemas)


def _collect_flat(tool: Mapping[str, Any], schemas: dict[str, Any], depth: int) -> bool:
    """OpenInference: `llm.tools.N.tool.name` and `llm.tools.N.tool.json_schema`, either or both."""
    schema = quick_loads(tool.get("json_schema"))
    name = tool.get("name")
    if isinstance(name, str):
        inner = schema.get("parameters", schema) if isinstance(schema, Mapping) else None
        if schemas.get(name) is None:
            schemas[name] = _usable(inner)
        return True
    return schema is not None and _collect(schema, schemas, depth + 1)


def _usable(schema: Any) -> Any:
    """The schema, or None if it is nested so deep that nobody can compare it with another."""
    return None if nested_beyond(schema, _MAX_SCHEMA_DEPTH) else schema


def _declare(node: Mapping[str, Any], schemas: dict[str, Any]) -> bool:
    name = node.get("name")
    if not isinstance(name, str):
        # A provider's built-in tool has a type and no name: the list stays whole, the tool cannot be named by it.
        return isinstance(node.get("type"), str) and node.get("type") != "function"
    schema = next((node[key] for key in _SCHEMAS if node.get(key) is not None), None)
    if schemas.get(name) is None:
        schemas[name] = _usable(quick_loads(schema)) if schema is not None else None
    return True
