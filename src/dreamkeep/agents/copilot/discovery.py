"""Where Copilot CLI keeps its sessions.

    $COPILOT_HOME or ~/.copilot (older versions: $XDG_CONFIG_HOME/.copilot, $XDG_STATE_HOME/.copilot)
      session-state/<session id>/events.jsonl     observed
                                /workspace.yaml   beside it, rewritten whole: name, folder, branch
      session-state/<session id>.jsonl            first versions (assumed)

`session-store.db` beside it is a cache across sessions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from dreamkeep.agents.contract import DOCUMENT, WORKSPACE, Source
from dreamkeep.agents.shared.folders import first_line
from dreamkeep.agents.shared.values import table, text
from dreamkeep.host import Host

AGENT = "copilot"

_STATE, _EVENTS, _WORKSPACE = "session-state", "events.jsonl", "workspace.yaml"


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    bases = [environment.get(name, "") for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME")]
    older = [os.path.join(base, ".copilot") for base in bases if base]
    found = [environment.get("COPILOT_HOME", ""), os.path.join(home, ".copilot"), *older]
    return list(dict.fromkeys(place for place in found if place))


def discover(host: Host, place: str) -> Iterable[Source]:
    folder = os.path.join(place, _STATE)
    try:
        entries = host.entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        path = os.path.join(folder, entry.name)
        if entry.at is None or entry.name.startswith("."):
            continue
        if entry.at.is_folder:
            path = os.path.join(path, _EVENTS)
            if host.stat(path) is None:
                continue
        source = claims(path)
        if source:
            yield source
            yield from beside(host, source)


def beside(host: Host, source: Source) -> Iterable[Source]:
    found = claims(os.path.join(os.path.dirname(source.path), _WORKSPACE))
    at = host.stat(found.path) if found else None
    return [found] if found and at and not at.is_folder else []


def claims(path: str) -> Source | None:
    folder, name = os.path.split(path)
    above, session = os.path.split(folder)
    if name == _EVENTS and os.path.basename(above) == _STATE and session:
        return Source(AGENT, path, session=session)
    if name == _WORKSPACE and os.path.basename(above) == _STATE and session:
        return Source(AGENT, path, DOCUMENT, session, WORKSPACE)
    if session == _STATE and name.endswith(".jsonl") and name != _EVENTS:
        return Source(AGENT, path, session=name.removesuffix(".jsonl"))
    return None


def identify(path: str, head: bytes) -> str:
    found = claims(path)
    if found:
        return found.session
    first = first_line(head)
    return text(table(first.get("data")).get("sessionId")) if first.get("type") == "session.start" else ""
