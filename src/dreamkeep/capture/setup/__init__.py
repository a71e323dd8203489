"""`init` and `init --uninstall`: add hooks and the MCP server to agents' settings files, and remove them.

    offer.py    what an agent's `setup.py` offers: its events, files and edits
    program.py  the commands to start, and how to recognise them
    plan.py     bytes of a file → bytes with or without ours
    jsonedit.py, tomledit.py, yamledit.py, text.py               edits that keep every other byte
    apply.py    backup, all-or-nothing write, undo               check.py    what `doctor` reports

Some agents ask the user about new hooks. That is left to the user, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dreamkeep.capture.setup.apply import FOLDER, Change, FileChanger, SetupTarget
from dreamkeep.capture.setup.check import examine
from dreamkeep.capture.setup.offer import agents as known_agents
from dreamkeep.capture.setup.offer import is_found, setup_of, uses_our_plugin
from dreamkeep.capture.setup.program import Program
from dreamkeep.errors import BadUsage
from dreamkeep.host import Host, exclusive_lock, make_folders

__all__ = ["Change", "examine", "init", "known_agents"]

_WAIT_S = 30.0
_HAS_PLUGIN = "its plugin already does this; with both, everything would be recorded twice"


def init(
    host: Host,
    home: str,
    environment: Mapping[str, str],
    *,
    agents: Sequence[str] = (),
    keep: str,
    python: str,
    hook: str,
    dry_run: bool = False,
    uninstall: bool = False,
    mcp: bool = True,
) -> list[Change]:
    """`agents`: these, found or not; none: all that are found. `environment` must be empty when the user named a home."""
    _check_names(agents)
    places = {agent: setup_of(agent).place(home, environment) for agent in known_agents()}
    chosen = [agent for agent in places if (agent in agents if agents else is_found(host, places[agent]))]
    plugins = [agent for agent in chosen if not uninstall and uses_our_plugin(host, setup_of(agent), places[agent])]
    skipped = [Change(agent, places[agent].hooks, "skipped", _HAS_PLUGIN) for agent in plugins]
    program = Program(python, hook, keep)
    targets = [
        target
        for agent in chosen
        if agent not in plugins
        for target in setup_of(agent).targets(host, places[agent], program, mcp=mcp or uninstall)
    ]
    if uninstall:
        # If two agents share a file by a link, the one set up first has the older original.
        targets.reverse()
    hooks = {agent: place.hooks for agent, place in places.items()}
    changes = _change_all(FileChanger(host, keep, dry=True), targets, hooks, uninstall)
    idle = all(change.action not in ("install", "update", "remove") for change in changes)
    if dry_run or (idle and host.stat(f"{keep}/{FOLDER}") is None):
        return [*skipped, *changes]  # nothing to write, not even a keep
    make_folders(host, f"{keep}/{FOLDER}")
    with exclusive_lock(host, f"{keep}/state/init.lock", wait_s=_WAIT_S):
        return [*skipped, *_change_all(FileChanger(host, keep, dry=False), targets, hooks, uninstall)]


def _check_names(agents: Sequence[str]) -> None:
    known = known_agents()
    for agent in agents:
        if agent not in known:
            raise BadUsage(
                f"`{agent}` can't be set up",
                where="--agent",
                next=f"Use one of {', '.join(known)}; `ingest` finds the others.",
            )


def _change_all(changer: FileChanger, targets: Sequence[SetupTarget], hooks: Mapping[str, str], uninstall: bool) -> list[Change]:
    changes = [changer.remove(target) if uninstall else changer.install(target) for target in targets]
    return [_with_next_step(change, uninstall) if change.file == hooks[change.agent] else change for change in changes]


def _with_next_step(change: Change, uninstall: bool) -> Change:
    """For a file with hooks: what the user must do."""
    step = ""
    if change.action in ("install", "update"):
        step = setup_of(change.agent).NEXT
    elif uninstall and change.backup:
        # Others have written to the file, so their hooks may have moved up.
        step = setup_of(change.agent).NEXT_AFTER_REMOVAL
    return change._replace(reason="; ".join(filter(None, (change.reason, step)))) if step else change
