"""For agents that say how many turns were taken back, and not which: the latest prompts are remembered. Pure."""

from __future__ import annotations

from typing import Any

from dreamkeep.agents.facts import Fact, MessagesRewound

_REMEMBERED = 64


def prompted(state: dict[str, Any], key: str) -> None:
    """`key`: of the message that began a turn."""
    state["prompts"] = [*state.get("prompts", ()), key][-_REMEMBERED:]


def taken_back(state: dict[str, Any], turns: int, at: str | None) -> list[Fact]:
    if not turns:
        return []
    prompts = state.get("prompts", [])
    key = prompts[-turns] if turns <= len(prompts) else ""
    state["prompts"] = prompts[:-turns]
    return [MessagesRewound(at, key, turns)]
