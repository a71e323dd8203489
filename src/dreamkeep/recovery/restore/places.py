"""Where a restored file goes: only ever to a place where its agent keeps sessions.

A path in a journal can't be trusted: somebody else's snapshot, or a file that was named by hand, may contain any path. So a path
counts only if it is below a folder of that agent (in this user's home or, going by the folder's name, in any home) and is named
as the agent names such files. A file from anywhere else goes to where the agent would have put it, or nowhere.

    --home DIR          to the same place in the agent's folders below DIR
    without --home      to where it was, if that is such a place; otherwise into this user's home, with a note
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from dreamkeep.agents import registry
from dreamkeep.agents.registry import discovery
from dreamkeep.errors import Unsupported
from dreamkeep.session.summary import Summary

_STARTED = "1970-01-01T00:00:00.000000Z"


class Home(NamedTuple):
    """`named`: the user named it, so nothing else counts. `environment` may move the agents' folders of the user's own home."""

    path: str
    named: bool
    environment: Mapping[str, str]

    def places(self, agent: str) -> list[str]:
        return [_normalise(folder) for folder in discovery(agent).homes(self.path, {} if self.named else self.environment)]

    def usual(self, agent: str) -> list[tuple[str, str]]:
        """(folder, its path relative to the home folder)."""
        size = len(self.path.rstrip("/"))
        return [(folder, folder[size:]) for folder in map(_normalise, discovery(agent).homes(self.path, {}))]


def _normalise(path: str) -> str:
    return re.sub("/+", "/", path).rstrip("/")


def target_path(path: str, role: str, summary: Summary, home: Home) -> str:
    path = _normalise(path)
    if not home.named and is_agent_path(summary.agent, path, home):
        return path
    target = _move_into_home(summary.agent, path, home)
    if role == "main" and (target is None or not is_agent_path(summary.agent, target, home)):
        target = _usual_path(summary, home)
    if target is None or not is_agent_path(summary.agent, target, home):
        raise Unsupported(
            f"it was in none of the folders where {summary.agent} keeps sessions, so its place is unknown",
            where=path,
            next="Restore it for another agent with --to; `dreamkeep show --raw` prints its bytes.",
        )
    return target


def is_agent_path(agent: str, path: str, home: Home) -> bool:
    """Whether the agent would keep a session's file there."""
    if not path.startswith("/") or "\0" in path or "\ufffd" in path or {"", ".", ".."} & set(path.split("/")[1:]):
        return False
    usual = [folder for folder, _ in home.usual(agent)]
    for place in home.places(agent):
        if path.startswith(f"{place}/"):
            # Check the path as if it were in the usual folder: a folder that was moved may have any name.
            usual_folder = next((folder for folder in usual if os.path.basename(folder) == os.path.basename(place)), usual[0])
            return discovery(agent).claims(usual_folder + path[len(place) :]) is not None
    return _home_of(agent, path, home) is not None and discovery(agent).claims(path) is not None


def other_home(agent: str, path: str, home: Home) -> str:
    """The home folder that the path is in, if it isn't this user's; "" otherwise."""
    if home.named or any(path.startswith(f"{place}/") for place in home.places(agent)):
        return ""
    return _home_of(agent, path, home) or ""


def _home_of(agent: str, path: str, home: Home) -> str | None:
    for _, below in home.usual(agent):
        at = path.rfind(f"{below}/")
        if at >= 0:
            return path[:at] or "/"
    return None


def _move_into_home(agent: str, path: str, home: Home) -> str | None:
    for folder, below in home.usual(agent):
        at = path.rfind(f"{below}/")
        if at >= 0:
            return folder + path[at + len(below) :]
    places = home.places(agent)
    for place in places:
        name = f"/{os.path.basename(place)}/"
        if name in path:
            return place + path[path.rfind(name) + len(name) - 1 :]
    facts = registry.find(agent)
    for anchor in facts.anchors if facts else ():
        if anchor in path:
            return places[0] + path[path.rfind(anchor) :]
    return None


def _usual_path(summary: Summary, home: Home) -> str | None:
    """Where the agent would have put this session's transcript."""
    writer = registry.writer(summary.agent)
    usual = writer.usual_path(summary.native_id, summary.cwd, summary.started_at or _STARTED) if writer else ""
    return f"{home.places(summary.agent)[0]}/{usual}" if usual else None
