"""Requests and answers as files: a folder stands where a model would. For batches, for machines without a network, and for the
agent at hand.

    exchange.json              what this is, and which sessions it is about
    requests/ID.json           one request: kind, system, user, schema
    batch/openai.jsonl         the same requests, in the two vendors' batch forms; `custom_id` is the request's id
    batch/anthropic.jsonl
    answers/ID.json            one answer, by whoever: the JSON object that was asked for, or its text
    answers/ANYTHING.jsonl     or a vendor's file of results, as it came

Only what nobody has answered yet lies in `requests`. A request's id is made of its words (requests.py), so an answer stays good
as long as its question is the same, and what changed is asked again. Each import writes the next requests, until none is left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dreamkeep.dream.given import Usage
from dreamkeep.dream.reading import Reply
from dreamkeep.dream.requests import Request
from dreamkeep.errors import BadUsage, Unanswered, from_os
from dreamkeep.host import Host, make_folders, read_file, replace_file

_NAME = "exchange.json"
_FORMAT = 1
_REQUESTS, _ANSWERS, _BATCH = "requests", "answers", "batch"
_LARGEST = 64 << 20


class Exchange:
    """A folder as a model: `ask` gives the answer that lies there, or remembers what is to be asked."""

    secrets: tuple[str, ...] = ()
    spent = Usage()
    #: Each session by itself: what one waits for holds up no other.
    shares = False

    def __init__(self, host: Host, folder: str) -> None:
        self._host, self._folder = host, folder.rstrip("/")
        self._answers: dict[str, Reply] | None = None
        #: What nobody has answered, by id.
        self.missing: dict[str, Request] = {}
        #: Files that hold no answer, and why.
        self.problems: list[str] = []

    def ask(self, request: Request) -> Reply:
        if self._answers is None:
            self._answers = dict(self._read())
        if request.id in self._answers:
            return self._answers[request.id]
        self.missing[request.id] = request
        where = f"{_REQUESTS}/{request.id}.json"
        raise Unanswered("nobody has answered it yet", where=where, next="Answer it, and import again.")

    @property
    def answered(self) -> int:
        return len(self._answers or ())

    # -- which sessions

    def sessions(self) -> list[str]:
        """Those that it is about, as the export chose them."""
        path = f"{self._folder}/{_NAME}"
        try:
            told = json.loads(read_file(self._host, path))
        except OSError as problem:
            way = "Export one: `dreamkeep dream --export DIR`."
            raise BadUsage("this is no folder of requests", where=path, next=way) from problem
        except ValueError as problem:
            raise BadUsage("this can't be read", where=path, next="Export again, into an empty folder.") from problem
        if not isinstance(told, dict) or told.get("format") != _FORMAT or not isinstance(told.get("sessions"), list):
            way = "Import it with the version that wrote it."
            raise BadUsage("a format that this version does not know", where=path, next=way)
        return [one for one in told["sessions"] if isinstance(one, str)]

    def is_there(self) -> bool:
        return self._host.stat(f"{self._folder}/{_NAME}") is not None

    # -- answers

    def _read(self) -> Iterator[tuple[str, Reply]]:
        folder = f"{self._folder}/{_ANSWERS}"
        names = self._host.names(folder) if self._host.stat(folder) else []
        for name in sorted(names):
            path = f"{folder}/{name}"
            try:
                if name.endswith(".jsonl"):
                    yield from _batch_answers(read_file(self._host, path))
                elif name.endswith(".json"):
                    yield name.removesuffix(".json"), Reply(_answer(read_file(self._host, path)))
            except (OSError, ValueError, RecursionError) as problem:
                self.problems.append(f"{path}: {problem}")  # one bad file never hides the others

    def put_answer(self, id: str, answer: object) -> None:
        """For whoever answers through us. Durable when it returns."""
        try:
            make_folders(self._host, f"{self._folder}/{_ANSWERS}")
            words = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
            replace_file(self._host, f"{self._folder}/{_ANSWERS}/{id}.json", words)
        except OSError as problem:
            raise from_os(problem, "keeping an answer", self._folder) from problem
        self._answers = None

    # -- requests

    def write(self, sessions: Sequence[str]) -> int:
        """What is to be asked now, in place of what was. How many."""
        try:
            for part in (_REQUESTS, _ANSWERS, _BATCH):
                make_folders(self._host, f"{self._folder}/{part}")
            for id, request in self.missing.items():
                replace_file(self._host, f"{self._folder}/{_REQUESTS}/{id}.json", _json(request.as_json()))
            for name in self._host.names(f"{self._folder}/{_REQUESTS}"):
                if name.endswith(".json") and name.removesuffix(".json") not in self.missing:
                    self._host.remove(f"{self._folder}/{_REQUESTS}/{name}")
            forms = {"openai": _openai, "anthropic": _anthropic}
            for vendor, form in forms.items():
                lines = b"".join(_json(form(request)) + b"\n" for request in self.missing.values())
                replace_file(self._host, f"{self._folder}/{_BATCH}/{vendor}.jsonl", lines)
            # Last: what names the folder an exchange is there when all of it is.
            replace_file(self._host, f"{self._folder}/{_NAME}", _json({"format": _FORMAT, "sessions": list(sessions)}))
        except OSError as problem:
            raise from_os(problem, "writing requests", self._folder) from problem
        return len(self.missing)

    def check_target(self) -> None:
        """Somebody else's files are never mixed with ours."""
        found = self._host.stat(self._folder)
        if found is None or self.is_there():
            return
        if not found.is_folder or self._host.names(self._folder):
            raise BadUsage("the folder holds something else", where=self._folder, next="Name an empty folder, or a new one.")


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _answer(data: bytes) -> Any:
    """JSON as it was asked for; else the words, in which it may stand."""
    if len(data) > _LARGEST:
        raise ValueError("it is larger than any answer")
    text = data.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# -- the vendors' batch forms. The model is the user's choice: both want it named, so it is left for him to fill in.


def _openai(request: Request) -> dict[str, Any]:
    body = {
        "model": "MODEL",
        "messages": [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": request.kind, "strict": True, "schema": request.schema},
        },
    }
    return {"custom_id": request.id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def _anthropic(request: Request) -> dict[str, Any]:
    tool = {"name": "answer", "description": "Hands over the answer.", "input_schema": request.schema}
    params = {
        "model": "MODEL",
        "max_tokens": 8192,
        "system": request.system,
        "messages": [{"role": "user", "content": request.user}],
        "tools": [tool],
        "tool_choice": {"type": "tool", "name": "answer"},
    }
    return {"custom_id": request.id, "params": params}


def _batch_answers(data: bytes) -> Iterator[tuple[str, Reply]]:
    for line in data.splitlines():
        if not line.strip():
            continue
        told = json.loads(line)
        found = _batch_answer(told) if isinstance(told, dict) else None
        if found is not None and isinstance(told.get("custom_id"), str):
            yield told["custom_id"], found


def _batch_answer(told: Mapping[str, Any]) -> Reply | None:
    """None for what failed there: it is missing, and told as such."""
    from dreamkeep.dream.http import Anthropic, Got, OpenAI

    openai = (told.get("response") or {}).get("body") if isinstance(told.get("response"), dict) else None
    result = told.get("result") if isinstance(told.get("result"), dict) else None
    if isinstance(openai, dict):
        got = OpenAI("", 0).read(openai)
    elif result is not None and isinstance(result.get("message"), dict):
        got = Anthropic("", 0).read(result["message"])
    else:
        return None
    return Reply(got.found, got.cut) if isinstance(got, Got) else None
