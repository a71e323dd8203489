"""Hermes' settings: hooks and the MCP server in `config.yaml`. HERMES_HOME moves it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dreamkeep.capture.setup.apply import SetupTarget
from dreamkeep.capture.setup.offer import HOOK_TIMEOUT_S, AgentPlace, Finding
from dreamkeep.capture.setup.plan import Yaml
from dreamkeep.capture.setup.program import Program
from dreamkeep.host import Host

AGENT = "hermes"
EVENTS = (
    "on_session_start",
    "pre_llm_call",
    "post_tool_call",
    "post_llm_call",
    "on_session_end",
    "on_session_finalize",
)
NEXT = "Hermes asks once about each new hook: start `hermes` in a terminal and say yes"
NEXT_AFTER_REMOVAL = ""


def place(home: str, environment: Mapping[str, str]) -> AgentPlace:
    folder = environment.get("HERMES_HOME", "").rstrip("/") or f"{home}/.hermes"
    return AgentPlace((folder,), f"{folder}/config.yaml", (f"{folder}/config.yaml",))


def targets(host: Host, where: AgentPlace, program: Program, *, mcp: bool) -> list[SetupTarget]:
    hooks = {event: {"command": program.hook_command(AGENT, event), "timeout": HOOK_TIMEOUT_S} for event in EVENTS}
    edit = Yaml(program.hook, hooks, "mcp_servers" if mcp else "", program.server_entry() if mcp else None)
    return [SetupTarget(AGENT, where.hooks, edit)]


def has_plugin(host: Host, where: AgentPlace) -> bool:
    return False  # there is no plugin for Hermes


def check(host: Host, where: AgentPlace, hooks: bytes | None, installed: bool) -> Iterable[Finding]:
    return ()
