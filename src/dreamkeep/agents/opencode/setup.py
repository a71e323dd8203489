"""OpenCode's settings: our own plugin (plugin.py) instead of hooks; the MCP server in `opencode.jsonc` or `opencode.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dreamkeep.agents.opencode import plugin
from dreamkeep.capture.setup.apply import SetupTarget
from dreamkeep.capture.setup.jsonedit import Syntax
from dreamkeep.capture.setup.offer import AgentPlace, Finding, first_existing
from dreamkeep.capture.setup.plan import Json, OwnFile
from dreamkeep.capture.setup.program import Program
from dreamkeep.host import Host

AGENT = "opencode"
EVENTS = plugin.EVENTS
NEXT = NEXT_AFTER_REMOVAL = ""


def place(home: str, environment: Mapping[str, str]) -> AgentPlace:
    config = f"{environment.get('XDG_CONFIG_HOME', '').rstrip('/') or f'{home}/.config'}/opencode"
    kept = f"{environment.get('XDG_DATA_HOME', '').rstrip('/') or f'{home}/.local/share'}/opencode"
    names = (f"{config}/opencode.jsonc", f"{config}/opencode.json")
    return AgentPlace((config, kept), f"{config}/plugins/dreamkeep.js", names)


def targets(host: Host, where: AgentPlace, program: Program, *, mcp: bool) -> list[SetupTarget]:
    hooks = SetupTarget(AGENT, where.hooks, OwnFile(plugin.SIGN, plugin_text(program), plugin.commands))
    entry = {"type": "local", "command": [program.python, *program.server_words()], "enabled": True}
    server = Json(AGENT, program.hook, Syntax(comments=True, last_comma=True), None, "mcp", entry)
    return [hooks, *([SetupTarget(AGENT, first_existing(host, where.server), server)] if mcp else [])]


def plugin_text(program: Program) -> str:
    *before, _, keep = program.hook_words(AGENT, "EVENT")
    return plugin.text(before, [keep])


def has_plugin(host: Host, where: AgentPlace) -> bool:
    return False  # its only plugin is the one that is installed here


def check(host: Host, where: AgentPlace, hooks: bytes | None, installed: bool) -> Iterable[Finding]:
    return ()
