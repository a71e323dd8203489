"""Which files of which agents are concerned, on this machine, and the edit for each. Looks, but does not touch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from dreamkeep.capture.setup import plugin, wanted
from dreamkeep.capture.setup.apply import Target
from dreamkeep.capture.setup.jsonedit import Syntax
from dreamkeep.capture.setup.plan import Edit, Json, Own, Toml, Yaml
from dreamkeep.capture.setup.wanted import Program
from dreamkeep.host import Host, read_file


def found(host: Host, agent: str, home: str, environment: Mapping[str, str]) -> bool:
    for sign in wanted.place(agent, home, environment).signs:
        try:
            if host.stat(sign) is not None:
                return True
        except OSError:
            return True  # something is there; what is wrong with it is told when it is opened
    return False


def targets_of(host: Host, agent: str, home: str, environment: Mapping[str, str], program: Program, *, mcp: bool) -> list[Target]:
    where = wanted.place(agent, home, environment)
    server = _there(host, where.server)
    match agent:
        case "claude":
            hooks: Edit = _json(agent, program, events=wanted.events_for(agent, _claude_version(host, server)))
            return [Target(agent, where.hooks, hooks), *_servers(agent, server, program, mcp)]
        case "codex":
            own = [Target(agent, server, Toml("mcp_servers", wanted.server(agent, program)))] if mcp else []
            return [Target(agent, where.hooks, _json(agent, program, comments=False)), *own]
        case "opencode":
            return [
                Target(agent, where.hooks, Own(plugin.SIGN, plugin.text(program), plugin.commands)),
                *_servers(agent, server, program, mcp),
            ]
        case "hermes":
            return [Target(agent, where.hooks, _yaml(program, mcp))]
    return [Target(agent, where.hooks, _json(agent, program, holder="mcpServers" if mcp else ""))]


def _json(agent: str, program: Program, *, holder: str = "", comments: bool = True, events: Sequence[str] = ()) -> Json:
    handlers = {event: wanted.handler(agent, event, program) for event in events or wanted.events_for(agent)}
    return Json(
        agent,
        program.hook,
        Syntax(comments=comments),
        handlers,
        holder,
        wanted.server(agent, program) if holder else None,
        "Claude Code discards a settings file with comments: remove them" if agent == "claude" else "",
    )


def _servers(agent: str, file: str, program: Program, mcp: bool) -> list[Target]:
    """A file that holds only the MCP server."""
    holder = "mcp" if agent == "opencode" else "mcpServers"
    syntax = Syntax(comments=True, last_comma=True) if agent == "opencode" else Syntax()
    entry = Json(agent, program.hook, syntax, None, holder, wanted.server(agent, program))
    return [Target(agent, file, entry)] if mcp else []


def _yaml(program: Program, mcp: bool) -> Yaml:
    hooks = {
        event: {"command": program.hook_command("hermes", event), "timeout": wanted.timeout("hermes", event)}
        for event in wanted.events_for("hermes")
    }
    return Yaml(program.hook, hooks, "mcp_servers" if mcp else "", wanted.server("hermes", program) if mcp else None)


def _there(host: Host, names: Sequence[str]) -> str:
    """The first that is there, else the last: the one to make."""
    for name in names[:-1]:
        try:
            if host.stat(name) is not None:
                return name
        except OSError:
            continue
    return names[-1]


def _claude_version(host: Host, state: str) -> tuple[int, ...]:
    """As its own file tells it; () when it does not."""
    try:
        told = json.loads(read_file(host, state)) if host.stat(state) else {}
    except (OSError, ValueError, RecursionError):
        return ()
    seen = [told.get(key) for key in ("lastReleaseNotesSeen", "lastOnboardingVersion")] if isinstance(told, dict) else []
    known = [tuple(map(int, v.split("."))) for v in seen if isinstance(v, str) and re.fullmatch(r"\d{1,9}\.\d{1,9}\.\d{1,9}", v)]
    return max(known, default=())
