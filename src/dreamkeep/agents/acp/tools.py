"""Tool calls in ACP frames: each agent fills other members, some only a title. Pure; takes any input."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from dreamkeep.agents.shared.values import items, table, text

FINAL = ("completed", "failed")
_NAME = 200
_WORD = re.compile(r"[A-Za-z_][\w.-]*")
#: Gemini's ids begin with the tool's name.
_NAMED_ID = re.compile(r"([A-Za-z]\w*?)(?:__fc_|-\d{10,})")
#: Hermes' titles do.
_NAMED_TITLE = re.compile(r"([A-Za-z_]\w*): ")
_OUTPUTS = ("output", "aggregated_output", "formatted_output", "stdout")


def blocks(value: object) -> str:
    """The text of content blocks: a list, one block, or plain text. Anything but text is named in brackets."""
    if isinstance(value, str):
        return value
    found = last = ""
    for block in value if isinstance(value, list) else [value]:
        kind = text(table(block).get("type"))
        # A link is part of a sentence; two texts are two paragraphs.
        found += ("\n" if found and kind == last == "text" else "") + _block(table(block))
        last = kind
    return found


def _block(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return text(block.get("text"))
    if kind == "resource_link":
        return text(block.get("uri")) or text(block.get("name"))
    if kind == "resource":
        resource = table(block.get("resource"))
        return text(resource.get("text")) or f"[{text(resource.get('uri')) or 'resource'}]"
    return f"[{kind[:40]}]" if isinstance(kind, str) else ""


def name_of(update: Mapping[str, Any]) -> tuple[str, bool]:
    """The tool's name, and whether the agent gave one. If not, the name comes from title and kind."""
    given = text(table(table(update.get("_meta")).get("claudeCode")).get("toolName")) or text(update.get("name"))
    raw = table(update.get("rawInput"))
    if not given and text(raw.get("server")) and text(raw.get("tool")):
        given = f"mcp__{raw['server']}__{raw['tool']}"
    if given:
        return given[:_NAME], True
    title, kind = text(update.get("title")), text(update.get("kind"))
    found = _WORD.fullmatch(title) or _NAMED_ID.match(text(update.get("toolCallId"))) or _NAMED_TITLE.match(title)
    if found:
        return (found[1] if found.re.groups else found[0])[:_NAME], False
    return (kind or title)[:_NAME], False


def input_of(update: Mapping[str, Any]) -> Any:
    """The tool's input; if the agent does not send it, what it shows of it."""
    raw = update.get("rawInput")
    if raw is not None:
        return raw
    shown = {"title": text(update.get("title")), "text": content(update.get("content"))}
    return {key: value for key, value in shown.items() if value}


def content(value: object) -> str:
    """The text of a tool call's content."""
    found = []
    for part in items(value):
        part = table(part)
        if part.get("type") == "content":
            found.append(blocks(part.get("content")))
        elif part.get("type") == "diff":
            found.append(f"{text(part.get('path'))}\n{text(part.get('newText'))}")
        elif part.get("type") == "terminal":
            found.append(f"[terminal {text(part.get('terminalId'))}]")
    return "\n".join(one for one in found if one)


def output_of(update: Mapping[str, Any]) -> str:
    """The tool's own output if the agent sends it (as in its transcript), else what it shows to people."""
    raw = update.get("rawOutput")
    if isinstance(raw, str):
        return raw
    for key in _OUTPUTS:
        if isinstance(table(raw).get(key), str):
            return str(table(raw)[key])
    shown = content(update.get("content"))
    if shown or raw is None:
        return shown
    try:
        return json.dumps(raw, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return ""


def outcome_of(update: Mapping[str, Any]) -> dict[str, Any]:
    raw = table(update.get("rawOutput"))
    found: dict[str, Any] = {}
    if update.get("status") == "failed" or raw.get("isError") is True:
        found["error"] = True
    code = raw.get("exit_code", table(raw.get("metadata")).get("exit"))
    if isinstance(code, int) and not isinstance(code, bool):
        found["exit_code"] = code
    return found
