"""What several readers remember in their state: the latest prompts, texts that come twice, values by name. Pure."""

from __future__ import annotations

from typing import Any

from dreamkeep.agents.facts import Fact, MessagesRewound
from dreamkeep.agents.shared.values import digest

_MOST_PROMPTS = 64
_MOST_TEXTS = 32
_MOST_VALUES = 64


def note_prompt(state: dict[str, Any], key: str) -> None:
    """Remember the message that began a turn."""
    state["prompts"] = [*state.get("prompts", ()), key][-_MOST_PROMPTS:]


def rewind_turns(state: dict[str, Any], turns: int, at: str | None) -> list[Fact]:
    """For agents that say how many turns the user took back, and not which."""
    if not turns:
        return []
    prompts = state.get("prompts", [])
    key = prompts[-turns] if turns <= len(prompts) else ""
    state["prompts"] = prompts[:-turns]
    return [MessagesRewound(at, key, turns)]


def is_new_text(state: dict[str, Any], source: str, role: str, text: str) -> bool:
    """For agents that write each text twice, in two kinds of record (`source`) with different ids: False for the second.

    White space does not count. A text waits here for its twin from the other source. So "ok" said twice by both sources stays
    two, and nothing is lost that only one of them has. Only the last few wait: twins stand close together.
    """
    mine = digest(role, "".join(text.split()))
    waiting: list[list[str]] = state.setdefault("twins", [])
    for n, (other, words) in enumerate(waiting):
        if other != source and words == mine:
            del waiting[n]
            return False
    waiting.append([source, mine])
    del waiting[:-_MOST_TEXTS]
    return True


def remember(state: dict[str, Any], what: str, name: str, value: Any) -> None:
    """`state[what][name] = value`, of which only the last few are kept."""
    known: dict[str, Any] = state.setdefault(what, {})
    known.pop(name, None)
    known[name] = value
    while len(known) > _MOST_VALUES:
        del known[next(iter(known))]
