"""Where Hermes WebUI keeps its sessions: `$HERMES_WEBUI_STATE_DIR/sessions`, else `~/.hermes/webui/sessions`.

    <sid>.json                         the session, one document rewritten whole
    <sid>.json.bak                     the document before it shrank
    _turn_journal/<sid>~<pid>.jsonl    its turns, one file for each process; older: <sid>.jsonl
    _run_journal/<sid>/<run>.jsonl     what was streamed

Anything else is no session and is not opened: `_index.json` (a list), `_deleted_webui_sessions.json`, `_drafts/`, and
leftovers of atomic writes (`*.tmp.*`). Turn journals come first: they have a prompt before the document does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from dreamkeep.agents.contract import DOCUMENT, LINES, Source
from dreamkeep.agents.shared.folders import claimed, inside
from dreamkeep.host import Host

AGENT = "hermes-webui"
_TURNS, _RUNS = "_turn_journal", "_run_journal"
_DOCUMENT = re.compile(r"([0-9A-Za-z-][0-9A-Za-z_-]*)\.json(\.bak)?")
# In journals an id may hold dots; `~` is in no id.
_TURN_FILE = re.compile(r"([0-9A-Za-z_.-]+?)(?:~[^/~]*)?\.jsonl")
_RUN_FILE = re.compile(r"[^/]+\.jsonl")
_ID = re.compile(r"[0-9A-Za-z_.-]+")
#: A file's name has 255 bytes; beside it lie its backup and, while it is written, temporary ones.
_LONGEST = 200
#: Ids as Hermes and the WebUI make them: they identify a session's file in a folder of any name.
_MADE = re.compile(r"\d{8}_\d{6}_[0-9a-f]{4,12}|[0-9a-f]{12}")
_HEAD = re.compile(rb'^\s*\{\s*"session_id"\s*:\s*"([0-9A-Za-z_.-]{1,200})"')


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    state, hermes = environment.get("HERMES_WEBUI_STATE_DIR", ""), environment.get("HERMES_HOME", "")
    folders = [state, hermes and f"{hermes.rstrip('/')}/webui", f"{home}/.hermes/webui"]
    found = [f"{home}/{folder[2:]}" if folder.startswith("~/") else folder for folder in folders if folder]
    return list(dict.fromkeys(f"{folder.rstrip('/')}/sessions" for folder in found))


def discover(host: Host, place: str) -> Iterable[Source]:
    """First all that can be read; then the first problem is raised, if there was one."""
    problems: list[OSError] = []
    top = inside(host, place, problems)
    yield from claimed(inside(host, f"{place}/{_TURNS}", problems), _source)
    yield from claimed(top, _source)
    for path, is_folder in inside(host, f"{place}/{_RUNS}", problems):
        if is_folder:
            yield from claimed(inside(host, path, problems), _source)
    if problems:
        raise problems[0]


def _source(path: str) -> Source | None:
    """By its name and the folders right above it. The caller must know whether that folder is the WebUI's."""
    above, _, name = path.rpartition("/")
    folder, _, parent = above.rpartition("/")
    if parent == _TURNS:
        turns = _TURN_FILE.fullmatch(name)
        return Source(AGENT, path, LINES, turns[1], "turns") if turns else None
    if folder.endswith(f"/{_RUNS}"):
        return Source(AGENT, path, LINES, parent, "run") if _RUN_FILE.fullmatch(name) and _ID.fullmatch(parent) else None
    document = _DOCUMENT.fullmatch(name)
    if document and not parent.startswith("_"):
        return Source(AGENT, path, DOCUMENT, document[1], "backup" if document[2] else "main")
    return None


def names_a_file(session: str) -> bool:
    """Whether a file with this id as its name would be found. Ids come from a database, too, and may be anything."""
    found = _DOCUMENT.fullmatch(f"{session}.json")
    return found is not None and found[1] == session and len(session) <= _LONGEST


def claims(path: str) -> Source | None:
    found = _source(path)
    folders = path.split("/")[-5:-1]
    if found is None or found.role in ("turns", "run"):
        return found
    if folders[-2:] == ["webui", "sessions"] or (folders[-1:] == ["sessions"] and _MADE.fullmatch(found.session)):
        return found
    return None


def identify(path: str, head: bytes) -> str:
    """By the name; else by the document's first member."""
    named = claims(path)
    if named:
        return named.session
    found = _HEAD.match(head)
    return found[1].decode() if found and b'"messages"' in head else ""
