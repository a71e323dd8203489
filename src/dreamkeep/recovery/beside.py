"""What an agent keeps beside its sessions, without which it would not find one: Gemini's marks of whose a folder is, the index
of Hermes WebUI. Nothing in them is taken away; what can't be read is left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from dreamkeep.agents.gemini import writer as gemini
from dreamkeep.agents.hermes_webui import writer as hermes_webui
from dreamkeep.agents.shared.talk import clean
from dreamkeep.errors import Failed
from dreamkeep.host import Host, read_file
from dreamkeep.recovery import put

MARKER, INDEX = "marker", "index"
_PROJECTS = "projects.json"
_ARRAYS = ("messages", "context_messages", "tool_calls")


class File(NamedTuple):
    """A file that is to be there. `about`: its role, and what else is to be told of it."""

    path: str
    pieces: put.Pieces
    exact: bool
    session: str
    about: Mapping[str, Any]
    #: What it was made from, and may replace.
    made_from: bytes | None = None


def project(host: Host, place: str, cwd: str, wanted: str = "") -> str:
    """Gemini's name for a folder: by its list, else by the marks in its folders."""
    listed = _parsed(_bytes(host, f"{os.path.dirname(place)}/{_PROJECTS}"))
    known = listed.get("projects") if isinstance(listed, dict) else None
    owners: dict[str, str | None] = {}
    for name in sorted(host.names(place)) if host.stat(place) else ():
        owners[name] = _owner(host, f"{place}/{name}/{gemini.OWNER}")
    return gemini.project(cwd, known if isinstance(known, dict) else {}, owners, wanted)


def _owner(host: Host, path: str) -> str | None:
    """Whose a folder is; None when it is not marked. Of a mark that can't be read nobody knows: then it is nobody's we know."""
    try:
        return read_file(host, path).decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return ""


def owned(host: Host, files: list[File], cwd: str, named: bool) -> list[File]:
    """Gemini finds a session only in the folder that it holds for its project: of another home that may be another one."""
    if not cwd:
        return files
    moved: list[File] = []
    for file in files:
        place, found, rest = file.path.rpartition("/chats/")
        if found and named:
            above, _, name = place.rpartition("/")
            place = f"{above}/{project(host, above, cwd, name)}"
        path = f"{place}/chats/{rest}" if found else file.path
        known = {one.path for one in moved}
        moved += [one for one in marks(host, path, cwd, file.session) if found and one.path not in known]
        moved.append(file._replace(path=path))
    return moved


def marks(host: Host, chat: str, cwd: str, session: str) -> list[File]:
    """Whose the folder of a chat is: in the folder itself, and in Gemini's list of all, where there is none yet."""
    place = chat.rpartition("/chats/")[0]
    above, _, name = place.rpartition("/")
    registry = json.dumps({"projects": {clean(cwd): name}}, indent=2, ensure_ascii=False)
    wanted = {f"{place}/{gemini.OWNER}": clean(cwd), f"{os.path.dirname(above)}/{_PROJECTS}": registry}
    return [
        File(path, partial(iter, [data.encode()]), False, session, {"role": MARKER})
        for path, data in wanted.items()
        if host.stat(path) is None
    ]


def listed(host: Host, files: list[File]) -> list[File]:
    """Hermes WebUI lists what stands in its index. Where there is none it makes one of all files by itself."""
    more: list[File] = []
    for file in files:
        folder, _, name = file.path.rpartition("/")
        native = name.removesuffix(".json")
        if file.about.get("role") != "main":
            continue
        deleted = _parsed(_bytes(host, f"{folder}/{hermes_webui.DELETED}"))
        if isinstance(deleted, dict) and native in (deleted.get("ids") or ()):
            raise Failed(
                "Hermes WebUI was told to delete this session, and would delete it again",
                where=f"{folder}/{hermes_webui.DELETED}",
                next="Remove its id from that file, or restore into another folder with --home DIR.",
            )
        path = f"{folder}/{hermes_webui.INDEX}"
        there = _bytes(host, path)
        data = _indexed(_parsed(there), _parsed(b"".join(file.pieces())))
        if data is not None:
            more.append(File(path, partial(iter, [data]), False, file.session, {"role": INDEX}, there))
    return [*files, *more]


def _indexed(index: object, session: object) -> bytes | None:
    """The index with this session in it; None when it is there, or when either can't be read."""
    if not isinstance(index, list) or not isinstance(session, dict) or not session.get("session_id"):
        return None
    new = hermes_webui.indexed(index, {key: value for key, value in session.items() if key not in _ARRAYS})
    return None if new is None else json.dumps(new, ensure_ascii=False, indent=2).encode()


def _bytes(host: Host, path: str) -> bytes:
    try:
        return read_file(host, path)
    except OSError:
        return b""


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
