"""Qwen Code's settings: hooks and the MCP server in `settings.json`.

Our plugin, if the user has it: a folder `extensions/dreamkeep` beside that file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from dreamkeep.agents.claude.setup import DISABLED as CLAUDE_SWITCH
from dreamkeep.agents.claude.setup import EVENTS
from dreamkeep.agents.gemini.setup import DISABLED as GEMINI_SWITCH
from dreamkeep.capture.setup.apply import SetupTarget
from dreamkeep.capture.setup.offer import HOOK_TIMEOUT_S, PLUGIN, AgentPlace, Finding, json_hooks
from dreamkeep.capture.setup.program import Program
from dreamkeep.host import Host

AGENT = "qwen"
NEXT = NEXT_AFTER_REMOVAL = ""
SWITCHES = (CLAUDE_SWITCH, GEMINI_SWITCH)


def place(home: str, environment: Mapping[str, str]) -> AgentPlace:
    folder = f"{home}/.qwen"
    return AgentPlace((folder,), f"{folder}/settings.json", (f"{folder}/settings.json",))


def targets(host: Host, where: AgentPlace, program: Program, *, mcp: bool) -> list[SetupTarget]:
    holder = "mcpServers" if mcp else ""
    return [SetupTarget(AGENT, where.hooks, json_hooks(AGENT, program, EVENTS, timeout, mcp_holder=holder, switches=SWITCHES))]


def timeout(event: str) -> int:
    return HOOK_TIMEOUT_S * 1000  # Qwen once counted in milliseconds, and still reads numbers from a thousand on so


def has_plugin(host: Host, where: AgentPlace) -> bool:
    return host.stat(f"{os.path.dirname(where.hooks)}/extensions/{PLUGIN}") is not None


def check(host: Host, where: AgentPlace, hooks: bytes | None, installed: bool) -> Iterable[Finding]:
    return ()
