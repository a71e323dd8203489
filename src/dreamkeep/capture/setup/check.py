"""What `doctor` reports about hooks: whether they are installed, whether their files exist, and whether the agent runs them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dreamkeep.capture.setup import jsonedit, tomledit
from dreamkeep.capture.setup.apply import SetupTarget
from dreamkeep.capture.setup.offer import AgentPlace, Setup, agents, is_found, setup_of, uses_our_plugin
from dreamkeep.capture.setup.plan import Json, Toml
from dreamkeep.capture.setup.program import Program
from dreamkeep.capture.setup.text import UnreadableFile, bytes_at, text_of
from dreamkeep.host import Host

#: Events that older versions of an agent don't have.
_MAY_BE_MISSING = ("PostCompact",)

Check = dict[str, Any]


def examine(host: Host, home: str, environment: Mapping[str, str], *, hook: str = "", keep: str = "") -> list[Check]:
    """One entry for each finding: `{check, ok, what, next}`. `keep`: the keep that hooks should write to, if any."""
    checks: list[Check] = []
    for agent in agents():
        place = setup_of(agent).place(home, environment)
        if is_found(host, place):
            checks += _examine_agent(host, agent, place, environment, Program("", hook, keep))
    return checks


def _examine_agent(host: Host, agent: str, place: AgentPlace, environment: Mapping[str, str], program: Program) -> list[Check]:
    """Unreadable settings of one agent are a finding; the other agents are checked all the same."""
    try:
        return list(_checks(host, agent, place, environment, program))
    except UnreadableFile as problem:
        return [_entry(agent, False, f"its settings can't be read ({problem})", "Correct them; dreamkeep won't change them.")]
    except OSError as problem:
        return [_entry(agent, False, f"can't check: {problem}", "Check that this user can read the agent's settings.")]


def _entry(agent: str, ok: bool, what: str, step: str = "") -> Check:
    return {"check": "hooks", "ok": ok, "what": f"{agent}: {what}", "next": step}


def _checks(host: Host, agent: str, place: AgentPlace, environment: Mapping[str, str], program: Program) -> Iterator[Check]:
    setup = setup_of(agent)
    hooks = setup.targets(host, place, program, mcp=False)[0]
    data = bytes_at(host, hooks.file)
    commands = hooks.edit.commands(data) if data is not None else {}
    init = f"dreamkeep init --agent {agent}"
    plugin = uses_our_plugin(host, setup, place)
    if plugin and commands:
        step = f"Remove one of them: run `dreamkeep init --uninstall --agent {agent}`, or remove the plugin."
        yield _entry(agent, False, "has hooks from both `init` and the plugin, so everything is recorded twice", step)
    elif plugin:
        yield _entry(agent, True, "hooks come with the plugin")
    elif not commands:
        yield _entry(agent, True, "no hooks; only `ingest` and `watch` import its sessions", init)
    if commands:
        yield from _check_hooks(host, agent, setup, hooks, commands, program, init)
    if plugin and not _on_path(host, "dreamkeep-hook", environment.get("PATH", "")):
        step = "Install it (`pipx install`, `uv tool install`), or use `dreamkeep init` instead of the plugin."
        yield _entry(agent, False, "has the plugin, which needs `dreamkeep-hook` on the PATH, but it is missing", step)
    yield from _check_switches(agent, hooks, data) if commands else ()
    for finding in setup.check(host, place, data, bool(commands)):
        yield _entry(agent, False, finding.what, finding.step)
    for target in setup.targets(host, place, program, mcp=True):
        yield from _check_server(host, agent, target, init)


def _on_path(host: Host, name: str, path: str) -> bool:
    return any(host.stat(f"{folder}/{name}") is not None for folder in path.split(os.pathsep) if os.path.isabs(folder))


def _check_server(host: Host, agent: str, target: SetupTarget, init: str) -> Iterator[Check]:
    """Whether the program that our MCP server entry starts exists."""
    try:
        servers = _mcp_servers(target, bytes_at(host, target.file) or b"")
    except UnreadableFile as problem:
        yield _entry(agent, False, f"{target.file} can't be read ({problem})", "Correct it; dreamkeep won't change it.")
        return
    entry = servers.get("dreamkeep") if isinstance(servers, dict) else None
    command = entry.get("command") if isinstance(entry, dict) else None
    word = command[0] if isinstance(command, list) and command else command
    if isinstance(word, str) and os.path.isabs(word) and host.stat(word) is None:
        yield _entry(agent, False, f"its MCP server starts {word}, which no longer exists", init)


def _mcp_servers(target: SetupTarget, data: bytes) -> Any:
    if isinstance(target.edit, Toml):
        return tomledit.lookup(tomledit.read(text_of(data).body), (target.edit.holder,))
    return jsonedit.members_of(data).get(target.edit.holder) if isinstance(target.edit, Json) and target.edit.holder else None


def _check_hooks(
    host: Host,
    agent: str,
    setup: Setup,
    hooks: SetupTarget,
    commands: Mapping[str, Sequence[str]],
    program: Program,
    init: str,
) -> Iterator[Check]:
    missing = [event for event in setup.EVENTS if event not in commands and event not in _MAY_BE_MISSING]
    if missing:
        yield _entry(agent, False, f"hooks are missing for {', '.join(missing)}", init)
    # The interpreter and the hook.
    words = {word for command in commands.values() for word in (command[0], command[_index_of_hook(command)])}
    gone = sorted(word for word in words if os.path.isabs(word) and host.stat(word) is None)
    for word in gone:
        yield _entry(agent, False, f"hooks start {word}, which no longer exists", init)
    keeps = {keep for command in commands.values() for keep in command[_index_of_hook(command) + 3 :][:1]}
    others = ", ".join(sorted(keeps - {program.keep}))
    if program.keep and others:
        yield _entry(agent, True, f"hooks write to another keep ({others})", f"{init} --keep {program.keep}")
    if not missing and not gone:
        yield _entry(agent, True, f"{len(commands)} hooks in {hooks.file}")


def _index_of_hook(command: Sequence[str]) -> int:
    """The position of the hook. After it come the agent, the event and the keep."""
    return next((n for n, word in enumerate(command) if word.endswith("hook.py")), 0)


def _check_switches(agent: str, hooks: SetupTarget, data: bytes | None) -> Iterator[Check]:
    """The agent's own settings that stop it from running hooks."""
    if not isinstance(hooks.edit, Json):
        return
    settings = jsonedit.members_of(data)
    for switch in hooks.edit.switches:
        if switch.is_off(settings):
            yield _entry(agent, False, f"`{switch.name}` stops it from running any hook", f"{switch.fix} {hooks.file}.")
