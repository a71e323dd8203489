"""What a generator's EXPECTED says of a session, in the form of tests/expected/*.json. What is not said is expected empty."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: Prompt, and how it ended.
Turn = tuple[str, str]


def session(id: str, title: str, cwd: str, *, turns: Iterable[Turn], roles: dict[str, int], **more: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "id": id,
        "title": title,
        "cwd": cwd,
        "turns": [{"prompt": prompt, "state": state} for prompt, state in turns],
        "roles": roles,
        "tool_calls": [],
        "compactions": [],
        "segments": 1,
        "lineage": [],
        "marks": {},
        "unknown": {},
        "odd": 0,
    }
    assert more.keys() <= plain.keys(), f"a name that nobody looks for: {more.keys() - plain.keys()}"
    return plain | more


def completed(*prompts: str) -> list[Turn]:
    return [(prompt, "completed") for prompt in prompts]


def roles(user: int, assistant: int, tool: int = 0, reasoning: int = 0, summary: int = 0, system: int = 0) -> dict[str, int]:
    return {"user": user, "assistant": assistant, "tool": tool, "reasoning": reasoning, "summary": summary, "system": system}


def compaction(reason: str = "") -> dict[str, Any]:
    return {"state": "completed", "reason": reason, "sources": ["transcript"]}
