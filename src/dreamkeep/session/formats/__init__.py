"""Readers of the agents' formats: raw records → facts. Pure: no disk, no clock. One small file for each agent.

A reader is made with its state (a dict of JSON data, {} at first), reads one record after the other, and keeps in `state` what it
must remember, so that reading may stop anywhere and go on later, in another process, with the same result. The state stays
small: it must not grow with the session (the fold itself knows which keys were said already). A reader never raises on any input:
what it does not understand is `Unknown`, what is broken is `Odd`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Protocol

from dreamkeep.session.facts import Fact, Record


class Reader(Protocol):
    state: dict[str, Any]

    def read(self, record: Record) -> Iterable[Fact]: ...


#: Agents whose records have a reader of their own: the module here. Each has a class `Reader(state)`.
READERS = {
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


def reader_for(agent: str, channel: str, state: dict[str, Any]) -> Reader:
    """ACP frames and an agent's stderr have the same form whoever the agent is; hooks and transcripts are its own."""
    if channel in ("acp", "stderr"):
        name = "acp"
    elif channel == "hook":
        name = "hooks"
    elif channel == "items":
        name = "openai_agents"
    else:
        name = READERS.get(agent, "plain")
    made: Reader = import_module(f"dreamkeep.session.formats.{name}").Reader(state)
    return made
