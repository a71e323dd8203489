"""Where pi keeps its sessions: `agent/sessions/--<cwd>--/<time>_<session>.jsonl`; without the cwd in a folder of the user's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dreamkeep.agents.contract import Source
from dreamkeep.agents.pi.reader import session_of
from dreamkeep.agents.shared.folders import first_line
from dreamkeep.agents.shared.values import text
from dreamkeep.host import FolderEntry, Host

AGENT = "pi"
_ENDING = ".jsonl"


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    sessions = environment.get("PI_CODING_AGENT_SESSION_DIR", "")
    agent = environment.get("PI_CODING_AGENT_DIR", "")
    folders = [sessions, f"{agent.rstrip('/')}/sessions" if agent else "", f"{home}/.pi/agent/sessions"]
    full = (f"{home}/{folder[2:]}" if folder.startswith("~/") else folder for folder in folders)
    return list(dict.fromkeys(folder.rstrip("/") for folder in full if folder))


def discover(host: Host, place: str) -> Iterable[Source]:
    """First all that can be read; then the first problem is raised, if there was one."""
    problem: OSError | None = None
    try:
        found = host.entries(place)
    except FileNotFoundError:
        return
    for entry in found:
        path = f"{place}/{entry.name}"
        if _is_file(entry):
            yield _source(path)
        elif entry.at and entry.at.is_folder:
            try:
                yield from (_source(f"{path}/{one.name}") for one in host.entries(path) if _is_file(one))
            except OSError as wrong:
                problem = problem or wrong
    if problem:
        raise problem


def _is_file(entry: FolderEntry) -> bool:
    return entry.at is not None and not entry.at.is_folder and entry.name.endswith(_ENDING)


def _source(path: str) -> Source:
    """A file with a name of the user's own (`--session`) is identified by its header."""
    name = path.rpartition("/")[2]
    return Source(AGENT, path, session=session_of(name) if "_" in name else "")


def claims(path: str) -> Source | None:
    parts = path.split("/")
    under_pi = ".pi" in parts[:-1] and "sessions" in parts[:-1]
    in_project = len(parts) > 1 and parts[-2].startswith("--") and parts[-2].endswith("--") and len(parts[-2]) > 4
    return _source(path) if parts[-1].endswith(_ENDING) and (under_pi or in_project) else None


def identify(path: str, head: bytes) -> str:
    """The header's id; if it can't be read, the name of a file in pi's own place."""
    found = first_line(head)
    if found.get("type") == "session" and text(found.get("id")):
        return text(found.get("id"))
    claimed = claims(path)
    return claimed.session if claimed else ""
