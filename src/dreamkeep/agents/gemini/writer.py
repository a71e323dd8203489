"""A talk as Gemini CLI's chat: `<project>/chats/session-<minute>-<id8>.jsonl`, a header and a line for each message.

* A call lies in the model's message together with its result: resume makes of it what the model sees.
* A compaction is the list anew, `{"$set":{"messages":[…]}}`, with the summary and the client's own answer to it: resume begins
  there, and the lines before it stay in the file.
* A prompt that begins with `/` or `?` is taken for a command by the client, and not sent again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any

from dreamkeep.agents.shared import talk as t
from dreamkeep.agents.shared.talk import Said, Step, Talk, Written

#: In a project's folder: whose it is. The client looks for it when its own list (`projects.json`) does not know.
OWNER = ".project_root"
_LONGEST = 200
_ACKNOWLEDGED = "Got it. Thanks for the additional context!"

#: What this format can't hold.
COMMANDS = "prompts that begin with / or ?: kept in the file, but Gemini doesn't resend them to the model"


def write(talk: Talk, project: str) -> Written:
    return _Lines(talk).written(project)


def resume(native: str, cwd: str) -> list[str]:
    return ["gemini", "--resume", native]


def project(cwd: str, registered: Mapping[str, Any], owners: Mapping[str, str | None], wanted: str = "") -> str:
    """The name of a project's folder: the registered one, one that is marked as its own, `wanted`, or a new one.

    `owners`: every folder that is there, and whose it is (None: not marked)."""
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


class _Lines:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._native = t.uuid4(talk.session, "gemini")
        self._lines: list[Mapping[str, Any]] = []
        self._lost: t.Losses = Counter()

    def written(self, project: str) -> Written:
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
        for one in t.grouped(talk.steps):
            if isinstance(one, Said):
                self._said(one)
            elif one.kind == t.USER:
                self._lost[COMMANDS] += one.text.lstrip()[:1] in ("/", "?")
                self._lines.append(self._message(one.at, "user", [{"text": one.text}]))
            else:
                self._compacted(one)
        minute = f"{talk.started_at[:13]}-{talk.started_at[14:16]}"
        data = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in self._lines)
        place = f"{project}/chats/session-{minute}-{self._native[:8]}.jsonl"
        return Written(place, data.encode(), self._native, self._lost)

    def _message(self, at: str, kind: str, content: object, name: str = "") -> dict[str, Any]:
        own = t.uuid4(self._talk.session, "message", len(self._lines), name)
        return {"id": own, "timestamp": t.to_ms(at), "type": kind, "content": content}

    def _said(self, said: Said) -> None:
        message = self._message(said.at, "gemini", said.words.text if said.words else "")
        message["thoughts"] = [{"subject": "", "description": one.text, "timestamp": t.to_ms(one.at)} for one in said.thoughts]
        if self._talk.model:
            message["model"] = self._talk.model
        if said.calls:
            message["toolCalls"] = [_called(call, result) for call, result in said.calls]
        self._lines.append(message)

    def _compacted(self, step: Step) -> None:
        summary = self._message(step.at, "user", [{"text": step.text}])
        answer = self._message(step.at, "gemini", [{"text": _ACKNOWLEDGED}], "answer")
        self._lines.append({"$set": {"messages": [summary, answer], "lastUpdated": t.to_ms(step.at)}})


def _called(call: Step, result: Step) -> dict[str, Any]:
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
