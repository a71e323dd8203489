"""A talk as Gemini CLI's chat: `<project>/chats/session-<minute>-<id8>.jsonl`, a header and a line for each message.

* A call lies in the model's message together with its result: resume makes of it what the model sees.
* A compaction is the list anew, `{"$set":{"messages":[…]}}`, with the summary and the client's own answer to it: resume begins
  there, and the lines before it stay in the file.
* A prompt that begins with `/` or `?` is taken for a command by the client, and not sent again.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

from dreamkeep.agents.shared import talk as t
from dreamkeep.agents.shared.small_files import bytes_in, parsed
from dreamkeep.agents.shared.talk import (
    MARKER,
    Conversion,
    ModelMessage,
    RestoredFile,
    Talk,
    TalkStep,
    WrittenFile,
    clean,
    converted,
)
from dreamkeep.host import Host, read_file

#: A file that says whose a project's folder is. The client reads it when its own list (`projects.json`) lacks the folder.
OWNER = ".project_root"
_PROJECTS = "projects.json"
_LONGEST = 200
_ACKNOWLEDGED = "Got it. Thanks for the additional context!"

#: What this format can't hold.
COMMANDS = "prompts that begin with / or ?: kept in the file, but Gemini doesn't resend them to the model"


def write(talk: Talk, project: str) -> WrittenFile:
    return _GeminiLines(talk).written(project)


def project(cwd: str, registered: Mapping[str, Any], owners: Mapping[str, str | None], wanted: str = "") -> str:
    """The name of a project's folder: the registered one, one with a marker of its own, `wanted`, or a new one.

    `owners`: every existing folder, and whose it is (None without a marker)."""
    known = registered.get(cwd)
    if isinstance(known, str) and known and owners.get(known, cwd) in (cwd, None):
        return known
    for name, owner in owners.items():
        if owner == cwd:
            return name
    taken = {value for value in registered.values() if isinstance(value, str)}
    slug = re.sub("-+", "-", re.sub("[^a-z0-9]", "-", cwd.rpartition("/")[2].lower())).strip("-")[:_LONGEST]
    base = wanted or slug or "project"
    name, n = base, 0
    while not _free(name, taken, owners, marked_only=bool(wanted)):
        n += 1
        name = f"{base}-{n}"
    return name


def _free(name: str, taken: Collection[str], owners: Mapping[str, str | None], *, marked_only: bool) -> bool:
    if name in taken:
        return False
    return name not in owners or (marked_only and owners[name] is None)


# -- what the agent needs besides: markers that say whose a project's folder is. Nothing in them is removed.


def convert(host: Host, place: str, talk: Talk) -> Conversion:
    made = converted(place, talk, write(talk, project_name(host, place, talk.cwd)))
    return made._replace(files=(*marks(host, made.files[0].path, talk.cwd, talk.session), *made.files))


def usual_path(native: str, cwd: str, started_at: str) -> str:
    return ""  # only Gemini's own lists say which folder is the project's


def project_name(host: Host, place: str, cwd: str, wanted: str = "") -> str:
    """Gemini's name for a folder: by its list, else by the markers in its folders."""
    listed = parsed(bytes_in(host, f"{os.path.dirname(place)}/{_PROJECTS}"))
    known = listed.get("projects") if isinstance(listed, dict) else None
    owners: dict[str, str | None] = {}
    for name in sorted(host.names(place)) if host.stat(place) else ():
        owners[name] = _owner(host, f"{place}/{name}/{OWNER}")
    return project(cwd, known if isinstance(known, dict) else {}, owners, wanted)


def _owner(host: Host, path: str) -> str | None:
    """Whose a folder is; None without a marker. A marker that can't be read belongs to nobody that we know."""
    try:
        return read_file(host, path).decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return ""


def beside(host: Host, files: list[RestoredFile], cwd: str, moved: bool) -> list[RestoredFile]:
    """Gemini finds a session only in its project's folder, which may have another name in another home."""
    if not cwd:
        return files
    found_files: list[RestoredFile] = []
    for file in files:
        place, found, rest = file.path.rpartition("/chats/")
        if found and moved:
            above, _, name = place.rpartition("/")
            place = f"{above}/{project_name(host, above, cwd, name)}"
        path = f"{place}/chats/{rest}" if found else file.path
        known = {entry.path for entry in found_files}
        found_files += [entry for entry in marks(host, path, cwd, file.session) if found and entry.path not in known]
        found_files.append(file._replace(path=path))
    return found_files


def marks(host: Host, chat: str, cwd: str, session: str) -> list[RestoredFile]:
    """Write whose a chat's folder is, in the folder and in Gemini's list, if they do not say yet."""
    place = chat.rpartition("/chats/")[0]
    above, _, name = place.rpartition("/")
    registry = json.dumps({"projects": {clean(cwd): name}}, indent=2, ensure_ascii=False)
    wanted = {f"{place}/{OWNER}": clean(cwd), f"{os.path.dirname(above)}/{_PROJECTS}": registry}
    return [
        RestoredFile(path, partial(iter, [data.encode()]), False, session, {"role": MARKER})
        for path, data in wanted.items()
        if host.stat(path) is None
    ]


# -- the lines


class _GeminiLines:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._native = t.uuid4(talk.session, "gemini")
        self._lines: list[Mapping[str, Any]] = []
        self._lost: t.Losses = Counter()

    def written(self, project: str) -> WrittenFile:
        talk = self._talk
        last = talk.steps[-1].at if talk.steps else talk.started_at
        header: dict[str, Any] = {
            "sessionId": self._native,
            "projectHash": sha256(talk.cwd.encode("utf-8", "replace")).hexdigest(),
            "startTime": t.to_ms(talk.started_at),
            "lastUpdated": t.to_ms(last),
            "kind": "main",
        }
        if talk.cwd:
            header["directories"] = [talk.cwd]
        if talk.title:
            header["summary"] = talk.title
        self._lines.append(header)
        for entry in t.grouped(talk.steps):
            if isinstance(entry, ModelMessage):
                self._write_message(entry)
            elif entry.kind == t.USER:
                self._lost[COMMANDS] += entry.text.lstrip()[:1] in ("/", "?")
                self._lines.append(self._message(entry.at, "user", [{"text": entry.text}]))
            else:
                self._compacted(entry)
        minute = f"{talk.started_at[:13]}-{talk.started_at[14:16]}"
        data = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in self._lines)
        place = f"{project}/chats/session-{minute}-{self._native[:8]}.jsonl"
        return WrittenFile(place, data.encode(), self._native, self._lost)

    def _message(self, at: str, kind: str, content: object, name: str = "") -> dict[str, Any]:
        own = t.uuid4(self._talk.session, "message", len(self._lines), name)
        return {"id": own, "timestamp": t.to_ms(at), "type": kind, "content": content}

    def _write_message(self, said: ModelMessage) -> None:
        message = self._message(said.at, "gemini", said.words.text if said.words else "")
        message["thoughts"] = [
            {"subject": "", "description": entry.text, "timestamp": t.to_ms(entry.at)} for entry in said.thoughts
        ]
        if self._talk.model:
            message["model"] = self._talk.model
        if said.calls:
            message["toolCalls"] = [_called(call, result) for call, result in said.calls]
        self._lines.append(message)

    def _compacted(self, step: TalkStep) -> None:
        summary = self._message(step.at, "user", [{"text": step.text}])
        answer = self._message(step.at, "gemini", [{"text": _ACKNOWLEDGED}], "answer")
        self._lines.append({"$set": {"messages": [summary, answer], "lastUpdated": t.to_ms(step.at)}})


def _called(call: TalkStep, result: TalkStep) -> dict[str, Any]:
    response = {"error" if result.failed else "output": result.text}
    given = {"functionResponse": {"id": call.id, "name": call.name, "response": response}}
    return {
        "id": call.id,
        "name": call.name,
        "args": call.input,
        "result": [given],
        "status": "error" if result.failed else "success",
        "timestamp": t.to_ms(result.at),
        "resultDisplay": result.text,
    }
