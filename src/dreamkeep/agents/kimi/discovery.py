"""Where Kimi Code keeps its sessions.

    $KIMI_CODE_HOME or ~/.kimi-code
      sessions/wd_<folder>/session_<id>/agents/main/wire.jsonl       the session
                                        agents/<agent>/wire.jsonl    its subagents, each a session of its own
                                        state.json                   title and working folder

`sessions/.index-*` is Kimi's own bookkeeping. The older kimi-cli (~/.kimi, another format) is another program.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from dreamkeep.agents.contract import DOCUMENT, LINES, Source
from dreamkeep.host import Host

AGENT = "kimi"

_SESSIONS, _AGENTS, _MAIN, _WIRE, _STATE = "sessions", "agents", "main", "wire.jsonl", "state.json"


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    found = [environment.get("KIMI_CODE_HOME", ""), os.path.join(home, ".kimi-code")]
    return list(dict.fromkeys(place for place in found if place))


def discover(host: Host, place: str) -> Iterable[Source]:
    problems: list[OSError] = []
    root = os.path.join(place, _SESSIONS)
    for bucket in _names(host, root, problems):
        for session in _names(host, os.path.join(root, bucket), problems):
            yield from _session(host, os.path.join(root, bucket, session), problems)
    if problems:
        raise problems[0]  # after all that can be read


def _session(host: Host, folder: str, problems: list[OSError]) -> Iterable[Source]:
    agents = os.path.join(folder, _AGENTS)
    wires = [os.path.join(agents, agent, _WIRE) for agent in _names(host, agents, problems)]
    state = os.path.join(folder, _STATE)
    for path in [*wires, *([state] if wires else [])]:
        source = claims(path)
        if source and host.stat(path) is not None:
            yield source


def _names(host: Host, folder: str, problems: list[OSError]) -> list[str]:
    try:
        return sorted(name for name in host.names(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        problems.append(problem)
        return []


def claims(path: str) -> Source | None:
    parts = path.split("/")
    if parts[-1] == _WIRE and len(parts) >= 6 and parts[-3] == _AGENTS and parts[-6] == _SESSIONS:
        session, agent = parts[-4], parts[-2]
        if agent == _MAIN:
            return Source(AGENT, path, LINES, session)
        return Source(AGENT, path, LINES, f"{session}/{agent}", "subagent", session)
    if parts[-1] == _STATE and len(parts) >= 4 and parts[-4] == _SESSIONS and parts[-2].startswith("session_"):
        return Source(AGENT, path, DOCUMENT, parts[-2], "state")
    return None


def identify(path: str, head: bytes) -> str:
    """The records do not name their session: only the path does."""
    found = claims(path)
    return found.session if found else ""
