"""Which agents there are. Their modules are imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dreamkeep.agents.contract import BESIDE, Discovery, Neighbours, Reader, Sharing, Source
from dreamkeep.host import Host

#: Every agent that keeps sessions on disk: its folder here.
AGENTS = {
    "claude": "claude",
    "codex": "codex",
    "gemini": "gemini",
    "qwen": "qwen",
    "opencode": "opencode",
    "hermes": "hermes",
    "hermes-webui": "hermes_webui",
    "copilot": "copilot",
    "kimi": "kimi",
    "goose": "goose",
    "pi": "pi",
}
_NEIGHBOURS = frozenset(("claude", "codex", "copilot"))
_SHARING = frozenset(("codex",))


def reader_for(agent: str, channel: str, state: dict[str, Any]) -> Reader:
    """ACP frames and an agent's stderr have the same form whoever the agent is; hooks and transcripts are its own."""
    if channel in ("acp", "stderr"):
        name = "acp.reader"
    elif channel == "hook":
        name = "shared.hooks"
    elif channel == "items":
        name = "shared.openai_items"
    else:
        name = f"{AGENTS[agent]}.reader" if agent in AGENTS else "shared.unknown"
    made: Reader = import_module(f"dreamkeep.agents.{name}").Reader(state)
    return made


def discovery(agent: str) -> Discovery:
    found: Discovery = import_module(f"dreamkeep.agents.{AGENTS[agent]}.discovery")
    return found


def beside(host: Host, source: Source) -> list[Source]:
    if source.agent not in _NEIGHBOURS or source.role in BESIDE:
        return []
    found: Neighbours = import_module(f"dreamkeep.agents.{AGENTS[source.agent]}.discovery")
    return list(found.beside(host, source))


def sharing(agent: str) -> Sharing | None:
    if agent not in _SHARING:
        return None
    found: Sharing = import_module(f"dreamkeep.agents.{AGENTS[agent]}.discovery")
    return found
