"""`init` and `init --uninstall`: hooks and the MCP server for the agents found, into their own settings files, and out again.

    wanted.py   which events, commands, files                    targets.py  which of them are on this machine
    plan.py     bytes of a file → bytes with or without ours     plugin.py   OpenCode's own file
    jsonedit.py, tomledit.py, yamledit.py, text.py               edits that keep every other byte
    apply.py    backup, all-or-nothing write, the way back       check.py    what `doctor` says about it
    plugged.py  has the agent our plugin, which does the same?

Nothing is trusted on the user's behalf: Codex and Hermes ask him about new hooks, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dreamkeep.capture.setup import wanted
from dreamkeep.capture.setup.apply import FOLDER, Change, Hand, Target
from dreamkeep.capture.setup.check import codex_trust, examine
from dreamkeep.capture.setup.plugged import plugged
from dreamkeep.capture.setup.targets import found, targets_of
from dreamkeep.capture.setup.wanted import AGENTS, Program
from dreamkeep.errors import BadUsage
from dreamkeep.host import Host, alone, make_folders

__all__ = ["AGENTS", "Change", "codex_trust", "examine", "init"]

_WAIT_S = 30.0
_PLUGGED = "its plugin already does this; with both, everything would be recorded twice"
_NEXT = {
    "codex": "Codex runs only trusted hooks: start `codex` once, type /hooks and trust them",
    "hermes": "Hermes asks once about each new hook: start `hermes` in a terminal and say yes",
}


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
    unknown = [agent for agent in agents if agent not in AGENTS]
    if unknown:
        raise BadUsage(
            f"`{unknown[0]}` can't be set up",
            where="--agent",
            next=f"Use one of {', '.join(AGENTS)}; `ingest` finds the others.",
        )
    program = Program(python, hook, keep)
    chosen = [agent for agent in AGENTS if (agent in agents if agents else found(host, agent, home, environment))]
    plugins = [agent for agent in chosen if not uninstall and plugged(host, agent, home, environment)]
    left = [Change(agent, wanted.place(agent, home, environment).hooks, "skipped", _PLUGGED) for agent in plugins]
    chosen = [agent for agent in chosen if agent not in plugins]
    targets = [t for agent in chosen for t in targets_of(host, agent, home, environment, program, mcp=mcp or uninstall)]
    if uninstall:
        # Where two agents share a file by a link, the original of the one that came first is the older.
        targets.reverse()
    changes = _all(Hand(host, keep, dry=True), targets, uninstall)
    idle = all(change.action not in ("install", "update", "remove") for change in changes)
    if dry_run or (idle and host.stat(f"{keep}/{FOLDER}") is None):
        return [*left, *changes]  # nothing to write, not even a keep
    make_folders(host, f"{keep}/{FOLDER}")
    with alone(host, f"{keep}/state/init.lock", wait_s=_WAIT_S):
        return [*left, *_all(Hand(host, keep, dry=False), targets, uninstall)]


def _all(hand: Hand, targets: Sequence[Target], uninstall: bool) -> list[Change]:
    return [_told(hand.remove(target) if uninstall else hand.install(target), uninstall) for target in targets]


def _told(change: Change, uninstall: bool) -> Change:
    """What the user has to do himself."""
    step = ""
    if change.action in ("install", "update") and change.file.endswith(("hooks.json", "config.yaml")):
        step = _NEXT.get(change.agent, "")
    elif uninstall and change.agent == "codex" and change.backup and change.file.endswith("hooks.json"):
        # Others had written to the file, so their hooks may have moved up.
        step = "Codex identifies trusted hooks by their position: check /hooks once"
    return change._replace(reason="; ".join(filter(None, (change.reason, step)))) if step else change
