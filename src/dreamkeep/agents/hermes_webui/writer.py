"""A talk as Hermes WebUI's session: `<sid>.json`, metadata first, then `messages` (all of it, for people) and `context_messages`
(what the model sees: from the last summary on). Its entry in `_index.json` is the metadata alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from dreamkeep.agents.hermes import writer as hermes
from dreamkeep.agents.shared import talk as t
from dreamkeep.agents.shared.small_files import bytes_in, parsed
from dreamkeep.agents.shared.talk import INDEX as INDEX_ROLE
from dreamkeep.agents.shared.talk import Conversion, ModelMessage, RestoredFile, Talk, WrittenFile, converted
from dreamkeep.errors import Failed
from dreamkeep.host import Host

AGENT = "hermes-webui"
INDEX, DELETED = "_index.json", "_deleted_webui_sessions.json"
_MODEL = "default"
_ARRAYS = ("messages", "context_messages", "tool_calls")


class WebuiSession(NamedTuple):
    written: WrittenFile
    #: For `_index.json`.
    entry: Mapping[str, Any]


def write(talk: Talk) -> WebuiSession:
    lost: t.Losses = Counter()
    native = t.chance(talk.session, AGENT).hex()[:12]
    messages: list[dict[str, Any]] = []
    context: list[dict[str, Any]] = []
    for step in t.grouped(talk.steps):
        if isinstance(step, ModelMessage):
            lost[hermes.JOINED] += len(step.thoughts) > 1
            lost[t.FAILED] += sum(result.failed and result.text != t.NO_RESULT for _, result in step.calls)
            new = _write_message(step)
        elif step.kind == t.USER:
            new = [_message("user", step.text, step.at)]
        else:
            lost[hermes.BEGUN] += not step.text.startswith(hermes.SUMMARIES)
            new, context = [_message("user", hermes.summary(step), step.at)], []
        messages += new
        context += new
    entry = _about(talk, native, len(messages))
    whole = {**entry, "messages": messages, "tool_calls": [], "context_messages": context}
    data = json.dumps(whole, ensure_ascii=False, indent=2).encode()
    return WebuiSession(WrittenFile(f"{native}.json", data, native, lost), entry)


def convert(host: Host, place: str, talk: Talk) -> Conversion:
    made = converted(place, talk, write(talk).written)
    return made._replace(files=tuple(beside(host, list(made.files), talk.cwd, False)))


def usual_path(native: str, cwd: str, started_at: str) -> str:
    return f"{native}.json"


def beside(host: Host, files: list[RestoredFile], cwd: str, moved: bool) -> list[RestoredFile]:
    """Hermes WebUI lists the sessions in its index. Without an index it makes one of all files by itself."""
    more: list[RestoredFile] = []
    for file in files:
        folder, _, name = file.path.rpartition("/")
        native = name.removesuffix(".json")
        if file.about.get("role") != "main":
            continue
        deleted = parsed(bytes_in(host, f"{folder}/{DELETED}"))
        if isinstance(deleted, dict) and native in (deleted.get("ids") or ()):
            raise Failed(
                "Hermes WebUI was told to delete this session, and would delete it again",
                where=f"{folder}/{DELETED}",
                next="Remove its id from that file, or restore into another folder with --home DIR.",
            )
        path = f"{folder}/{INDEX}"
        there = bytes_in(host, path)
        data = _indexed(parsed(there), parsed(b"".join(file.pieces())))
        if data is not None:
            more.append(RestoredFile(path, partial(iter, [data]), False, file.session, {"role": INDEX_ROLE}, there))
    return [*files, *more]


def _indexed(index: object, session: object) -> bytes | None:
    """The index with this session added; None if it has it already, or if either can't be read."""
    if not isinstance(index, list) or not isinstance(session, dict) or not session.get("session_id"):
        return None
    new = indexed(index, {key: value for key, value in session.items() if key not in _ARRAYS})
    return None if new is None else json.dumps(new, ensure_ascii=False, indent=2).encode()


def indexed(index: list[Any], entry: Mapping[str, Any]) -> list[Any] | None:
    """The list with the entry added; None if it has one for that session."""
    known = any(isinstance(other, Mapping) and other.get("session_id") == entry["session_id"] for other in index)
    return None if known else [*index, entry]


def _about(talk: Talk, native: str, count: int) -> dict[str, Any]:
    last = talk.steps[-1].at if talk.steps else talk.started_at
    return {
        "session_id": native,
        "title": talk.title or talk.heading or "Untitled",
        "workspace": talk.cwd,
        "model": talk.model or _MODEL,
        "message_count": count,
        "created_at": t.seconds(talk.started_at),
        "updated_at": t.seconds(last),
        "pinned": False,
        "archived": False,
        "project_id": None,
        "profile": None,
    }


def _message(role: str, content: str, at: str) -> dict[str, Any]:
    return {"role": role, "content": content, "timestamp": t.seconds(at)}


def _write_message(said: ModelMessage) -> list[dict[str, Any]]:
    message = _message("assistant", said.words.text if said.words else "", said.at)
    if said.thoughts:
        message["reasoning"] = "\n\n".join(step.text for step in said.thoughts)
    if said.calls:
        message["tool_calls"] = [hermes.call(step) for step, _ in said.calls]
    results = [
        {**_message("tool", result.text, result.at), "tool_call_id": step.id, "name": step.name} for step, result in said.calls
    ]
    return [message, *results]
