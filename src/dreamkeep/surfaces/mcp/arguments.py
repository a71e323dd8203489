"""Checks a call's arguments against the tool's schema. It knows the keywords of JSON Schema that tools.py uses, and no others.

A model reads the refusal and tries again, so it names each argument, what it should be and what it was. `null` means "left out",
because many clients send it so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dreamkeep.errors import BadUsage

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_WORDS = {"string": "a text", "integer": "a whole number", "boolean": "true or false", "array": "a list", "object": "an object"}


def check_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with defaults added. BadUsage names everything that is wrong at once."""
    known = schema["properties"]
    present = {key: value for key, value in arguments.items() if value is not None}
    wrong = [f"`{key}` is missing" for key in schema.get("required", ()) if key not in present]
    wrong += [f"unknown argument {_quote(key)}" for key in present if key not in known]
    for key, value in present.items():
        if key in known and (problem := _find_problem(known[key], value)):
            wrong.append(f"`{key}` must be {problem}, not {_quote(value)}")
    if wrong:
        names = ", ".join(f"{key}{' (required)' if key in schema.get('required', ()) else ''}" for key in known)
        raise BadUsage("; ".join(wrong), where="arguments", next=f"The arguments are: {names}.")
    defaults = {key: argument["default"] for key, argument in known.items() if "default" in argument}
    return {**defaults, **present}


def _find_problem(schema: Mapping[str, Any], value: Any) -> str:
    """What the value must be instead; "" if it is valid."""
    kinds = [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
    if not any(_has_type(kind, value) for kind in kinds):
        return " or ".join(_WORDS[kind] for kind in kinds)
    if "enum" in schema and value not in schema["enum"]:
        return f"one of {', '.join(schema['enum'])}"
    if isinstance(value, str):
        return _check_length(schema, value)
    if isinstance(value, list):
        return _check_entries(schema, value)
    low, high = schema.get("minimum"), schema.get("maximum")
    if not isinstance(value, bool) and low is not None and high is not None and not low <= value <= high:
        return f"from {low} to {high}"
    return ""


def _has_type(kind: str, value: Any) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _check_length(schema: Mapping[str, Any], value: str) -> str:
    if schema.get("minLength") and not value.strip():
        return "a non-empty text"
    most = schema.get("maxLength")
    return f"a text of at most {most} characters" if most is not None and len(value) > most else ""


def _check_entries(schema: Mapping[str, Any], value: list[Any]) -> str:
    if len(value) > schema["maxItems"]:
        return f"a list of at most {schema['maxItems']}"
    for entry in value:
        if problem := _find_problem(schema["items"], entry):
            return f"a list in which each item is {problem}"
    return ""


def _quote(value: Any) -> str:
    if isinstance(value, str) and len(value) > 60:
        return f"a text of {len(value)} characters"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
