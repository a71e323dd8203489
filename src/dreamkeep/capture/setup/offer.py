"""What `setup.py` of an agent's folder offers, and helpers for these modules. Reads only.

These modules are above this layer, so they are loaded by the agent's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dreamkeep.agents import registry
from dreamkeep.capture.setup.apply import SetupTarget
from dreamkeep.capture.setup.jsonedit import Syntax
from dreamkeep.capture.setup.plan import Json, Switch
from dreamkeep.capture.setup.program import Program
from dreamkeep.capture.setup.text import UnreadableFile
from dreamkeep.host import Host

#: How long an agent waits for a hook, if its settings can say so.
HOOK_TIMEOUT_S = 10
#: The name of our plugin in agents' lists.
PLUGIN = "dreamkeep"


class AgentPlace(NamedTuple):
    """An agent's folders and files. `signs`: if one of them exists, the agent is installed.

    `hooks`, `server`: the files for hooks and for the MCP server. `server` has several names where the agent reads the first that
    exists."""

    signs: Sequence[str]
    hooks: str
    server: Sequence[str]


class Finding(NamedTuple):
    """Something that stops hooks from working or deletes sessions, and what to do about it."""

    what: str
    step: str


class Setup(Protocol):
    #: The events that hooks are wanted for, as the agent calls them.
    EVENTS: Sequence[str]
    #: What the user must do after an install, and after a removal (other hooks may have moved up). "" for nothing.
    NEXT: str
    NEXT_AFTER_REMOVAL: str

    def place(self, home: str, environment: Mapping[str, str]) -> AgentPlace:
        """`environment` is empty when the user named a home."""

    def targets(self, host: Host, where: AgentPlace, program: Program, *, mcp: bool) -> list[SetupTarget]:
        """Which file gets which edit; the one with the hooks first. `mcp`: also the MCP server."""

    def has_plugin(self, host: Host, where: AgentPlace) -> bool:
        """Whether our plugin (plugins/ of the repository) is installed. With both, everything would be recorded twice."""

    def check(self, host: Host, where: AgentPlace, hooks: bytes | None, installed: bool) -> Iterable[Finding]:
        """What else `doctor` should report. `hooks`: the bytes of that file. `installed`: our hooks are in it."""


def agents() -> tuple[str, ...]:
    """The agents that can be set up, in the order of setting them up."""
    return tuple(agent.name for agent in registry.agents() if agent.setup)


def setup_of(name: str) -> Setup:
    agent = registry.find(name)
    assert agent is not None and agent.setup, "the caller asks for one of `agents`"
    found: Setup = registry.load(agent, "setup")
    return found


def is_found(host: Host, where: AgentPlace) -> bool:
    for sign in where.signs:
        try:
            if host.stat(sign) is not None:
                return True
        except OSError:
            return True  # it exists; opening it will report the problem
    return False


def uses_our_plugin(host: Host, setup: Setup, where: AgentPlace) -> bool:
    """An unreadable file counts as no; editing it will report the problem."""
    try:
        return setup.has_plugin(host, where)
    except (OSError, UnreadableFile):
        return False


# -- for the agents' modules


def first_existing(host: Host, names: Sequence[str]) -> str:
    """The first file that exists; else the last, which is the one to create."""
    for name in names[:-1]:
        try:
            if host.stat(name) is not None:
                return name
        except OSError:
            continue
    return names[-1]


def handler(agent: str, event: str, program: Program, timeout: int) -> dict[str, Any]:
    """One hook, in the form that Claude Code introduced and others adopted."""
    return {"type": "command", "command": program.hook_command(agent, event), "timeout": timeout}


def json_hooks(
    agent: str,
    program: Program,
    events: Sequence[str],
    timeout: Callable[[str], int],
    *,
    mcp_holder: str = "",
    comments: bool = True,
    comment_note: str = "",
    switches: Sequence[Switch] = (),
) -> Json:
    """Hooks in that form, in a JSON file; with `mcp_holder` also the MCP server, under that key."""
    handlers = {event: handler(agent, event, program, timeout(event)) for event in events}
    server = program.server_entry() if mcp_holder else None
    return Json(agent, program.hook, Syntax(comments=comments), handlers, mcp_holder, server, comment_note, tuple(switches))


def our_plugins(plugins: Any) -> list[Any]:
    """The settings of our plugin, in an agent's table `name@marketplace` → settings."""
    entries = plugins.items() if isinstance(plugins, dict) else ()
    return [settings for name, settings in entries if isinstance(name, str) and name.partition("@")[0] == PLUGIN]
