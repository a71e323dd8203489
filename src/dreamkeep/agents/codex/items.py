"""Pieces of Codex's records: texts, marks, results, lineage. Pure; nothing here raises on any input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.agents.shared.values import from_json, items, table, text

_SUMMARY = "Another language model started to solve this problem"
_META = re.compile(
    r"""\s*(?:<(?:environment_context|user_instructions|INSTRUCTIONS|permissions\ instructions|skills?_instructions|skill
    |turn_aborted|user_shell_command|subagent_notification|collaboration_mode|model_switch|personality_spec|apps_instructions
    |plugins_instructions|goal_context|realtime_conversation|token_budget)\b
    |\#\ AGENTS\.md\ instructions|You\ are\ performing\ a\ CONTEXT\ CHECKPOINT\ COMPACTION)""",
    re.VERBOSE,
)
_IMAGE_TAG = re.compile(r"\s*</?(?:image|local_image)\b[^>]*>\s*$")
_EXITED = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)\s*$", re.MULTILINE)
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-")


def is_meta(words: str) -> bool:
    """Whether the client said this in the user's name. Older files do not say so; it shows by how the text begins."""
    return _META.match(words) is not None


def lineage(payload: Mapping[str, Any], own: str, at: str | None) -> f.Edge | None:
    source = table(payload.get("source")).get("subagent")
    spawned = table(table(source).get("thread_spawn"))
    parent = text(payload.get("parent_thread_id")) or text(spawned.get("parent_thread_id"))
    if parent and parent != own:
        return f.Edge("subagent", parent, "session_meta.parent_thread_id", at)
    forked = text(payload.get("forked_from_id"))
    if forked and forked != own:
        return f.Edge("fork", forked, "session_meta.forked_from_id", at)
    return None  # `history_base` names a rollout, which may be the thread's own earlier file


def turn_named(payload: Mapping[str, Any]) -> str:
    inside = table(payload.get("internal_chat_message_metadata_passthrough"))
    return text(payload.get("turn_id")) or text(inside.get("turn_id"))


def moment(name: str) -> str:
    """The time in a UUIDv7, in a form that can be compared; "" for any other id."""
    return name[:13] if _UUID7.match(name) else ""


def seconds(before: str | None, after: str | None) -> float:
    if not before or not after:
        return 0.0
    return (datetime.fromisoformat(after) - datetime.fromisoformat(before)).total_seconds()


def call_id(done: Mapping[str, Any]) -> str:
    return text(done.get("id")) or text(done.get("call_id"))


def message_of(problem: object) -> str:
    return text(problem) or text(table(problem).get("message"))


def tool_name(namespace: object, name: object) -> str:
    space, own = text(namespace), text(name)
    if not space or not own or space == "functions":
        return own
    return f"{space}{own}" if space.endswith("__") else f"{space}__{own}"


def words_in(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(words for words in map(_block, items(content)) if words)


def _block(block: object) -> str:
    held = table(block)
    kind = text(held.get("type")).lower()
    if "image" in kind:
        return "[image]"
    words = text(held.get("text")) or text(held.get("refusal"))
    # The tags around an image add nothing to "[image]".
    return "" if words and _IMAGE_TAG.match(words) else words


def marked(payload: Mapping[str, Any], role: str) -> list[tuple[str, str]]:
    """(mark, words) for the pieces of a message, with neighbours of one mark joined."""
    inside = table(payload.get("internal_chat_message_metadata_passthrough"))
    kinds, more = items(inside.get("content_item_kinds")), items(inside.get("content_item_metadata"))
    content = payload.get("content")
    found: list[tuple[str, str]] = []
    for n, block in enumerate([{"text": content}] if isinstance(content, str) else items(content)):
        words = _block(block)
        if not words:
            continue
        kind = text(kinds[n]) if n < len(kinds) else ""
        hook = table(table(more[n]).get("provenance")).get("hook") is True if n < len(more) else False
        mark = _mark(role, kind, hook, words)
        if found and found[-1][0] == mark:
            found[-1] = (mark, f"{found[-1][1]}\n{words}")
        else:
            found.append((mark, words))
    return found


def _mark(role: str, kind: str, hook: bool, words: str) -> str:
    if kind == "compaction.summary" or words.startswith(_SUMMARY):
        return f.COMPACTED
    if kind.startswith("user."):
        return ""
    if f.PACK in words:
        return f.INJECTED
    if hook or kind.startswith("hooks.") or words.startswith("<hook_prompt"):
        return f.HOOK
    return f.META if role != "user" or kind not in ("", "unknown") or is_meta(words) else ""


def is_prompt(payload: Mapping[str, Any]) -> bool:
    return payload.get("role") == "user" and any(not mark for mark, _ in marked(payload, "user"))


def summary_in(payload: Mapping[str, Any]) -> str:
    message = text(payload.get("message"))
    if message:
        return message
    for kept in reversed(items(payload.get("replacement_history"))):
        for mark, words in marked(table(kept), "user"):
            if mark == f.COMPACTED:
                return words
    return ""


def result_in(output: object) -> tuple[str, int | None, bool | None]:
    """(text, exit code, whether it succeeded) of a tool's output."""
    if isinstance(output, Mapping):
        words, code, _ = result_in(output.get("content"))
        succeeded = output.get("success")
        return words, code, succeeded if isinstance(succeeded, bool) else None
    if not isinstance(output, str):
        return words_in(output), None, None
    inside = table(from_json(output)) if output.startswith('{"output"') else {}
    if isinstance(inside.get("output"), str) and "metadata" in inside:
        code = table(inside["metadata"]).get("exit_code")
        return inside["output"], code if isinstance(code, int) else None, None
    # The client's own lines stand before the output, which may hold anything.
    exited = _EXITED.search(output.partition("\nOutput:\n")[0])
    return output, int(exited[1]) if exited and len(exited[1]) < 12 else None, None
