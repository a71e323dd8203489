"""Requests and answers as files: a folder stands where a model would. For batches, for machines without a network, and for the
agent at hand.

    exchange.json              what this is, by what its leases are known wherever it is moved, and which sessions it is about
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

from dreamkeep.dream.backends.api import Usage
from dreamkeep.dream.backends.model.reading import ModelReply
from dreamkeep.dream.backends.model.requests import Request
from dreamkeep.errors import BadUsage, Unanswered, from_os
from dreamkeep.host import Host, make_folders, read_file, replace_file

_NAME = "exchange.json"
_FORMAT = 1
_REQUESTS, _ANSWERS, _BATCH = "requests", "answers", "batch"
#: In bytes: one answer, and a vendor's file of them.
_LARGEST, _LARGEST_BATCH = 4 << 20, 1 << 30
_AGAIN = "Answer it again, then import again."


class Exchange:
    """A folder as a model: `ask` gives the answer that lies there, or remembers what is to be asked."""

    secrets: tuple[str, ...] = ()
    spent = Usage()
    #: Each session by itself: what one waits for holds up no other.
    shares = False

    def __init__(self, host: Host, folder: str, *, batches: bool = True) -> None:
        """`batches`: also in the vendors' forms."""
        self._host, self._folder, self._batches = host, folder.rstrip("/"), batches
        self._answers: dict[str, ModelReply] | None = None
        self._used: set[str] = set()
        self._holder = ""
        #: What nobody has answered, by id.
        self.missing: dict[str, Request] = {}
        #: Files and lines that hold no answer, and why.
        self.problems: list[str] = []

    def ask(self, request: Request) -> ModelReply:
        if self._answers is None:
            self._answers = dict(self._read())
        if request.id in self._answers:
            self._used.add(request.id)
            return self._answers[request.id]
        self.missing[request.id] = request
        where = f"{_REQUESTS}/{request.id}.json"
        raise Unanswered("it is not answered yet", where=where, next="Answer it, then import again.")

    def unreadable(self, request: Request, why: str) -> Unanswered:
        """The answer is none: that is told, and the request stays."""
        self._used.discard(request.id)
        self.missing[request.id] = request
        self.problems.append(f"the answer to {request.id} can't be used: {why}. {_AGAIN}")
        return Unanswered(why, where=f"{_ANSWERS}/{request.id}.json", next=_AGAIN)

    @property
    def answered(self) -> int:
        """So many requests were answered."""
        return len(self._used)

    # -- which sessions

    def sessions(self) -> list[str]:
        """Those that it is about, as the export chose them."""
        return [one for one in self._signed()["sessions"] if isinstance(one, str)]

    @property
    def holder(self) -> str:
        """Who holds the leases: the folder, also when it was moved or copied."""
        if not self._holder:
            self._holder = str(self._signed()["id"]) if self.is_there() else self._host.random(16).hex()
        return self._holder

    def _signed(self) -> dict[str, Any]:
        path = f"{self._folder}/{_NAME}"
        try:
            told = json.loads(read_file(self._host, path))
        except OSError as problem:
            way = "Export one: `dreamkeep dream --export DIR`."
            raise BadUsage("this is not a folder of requests", where=path, next=way) from problem
        except ValueError as problem:
            raise BadUsage("this can't be read", where=path, next="Export again, into an empty folder.") from problem
        kinds = {"format": int, "id": str, "sessions": list}
        known = isinstance(told, dict) and all(isinstance(told.get(key), kind) for key, kind in kinds.items())
        if not known or told["format"] != _FORMAT:
            way = "Import it with the version that wrote it."
            raise BadUsage("this version doesn't know the format", where=path, next=way)
        return dict(told)

    @property
    def name(self) -> str:
        return self._folder.rpartition("/")[2]

    def is_there(self) -> bool:
        return self._host.stat(f"{self._folder}/{_NAME}") is not None

    def asks(self, id: str) -> bool:
        return self._host.stat(f"{self._folder}/{_REQUESTS}/{id}.json") is not None

    # -- answers

    def _read(self) -> Iterator[tuple[str, ModelReply]]:
        """Of several answers to one request the last one counts: a vendor's files in the order of their times, then single
        files, which somebody wrote on purpose."""
        for path in self._answer_files():
            try:
                if path.endswith(".jsonl"):
                    yield from self._batch_answers(path, self._bytes(path, _LARGEST_BATCH))
                else:
                    yield path.rpartition("/")[2].removesuffix(".json"), ModelReply(_answer(self._bytes(path, _LARGEST)))
            except (OSError, ValueError) as problem:
                self.problems.append(f"{path}: {problem}")  # one bad file never hides the others

    def _answer_files(self) -> list[str]:
        folder = f"{self._folder}/{_ANSWERS}"
        names = sorted(self._host.names(folder)) if self._host.stat(folder) else []
        batches = [f"{folder}/{name}" for name in names if name.endswith(".jsonl")]
        found = {path: self._host.stat(path) for path in batches}
        batches.sort(key=lambda path: at.mtime_ns if (at := found[path]) else 0)
        return [*batches, *(f"{folder}/{name}" for name in names if name.endswith(".json"))]

    def _bytes(self, path: str, most: int) -> bytes:
        found = self._host.stat(path)
        if found is not None and found.size > most:
            raise ValueError("it is too large for an answer")
        return read_file(self._host, path)

    def _batch_answers(self, path: str, data: bytes) -> Iterator[tuple[str, ModelReply]]:
        """One bad line never hides the others."""
        for n, line in enumerate(data.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                yield _batch_answer(json.loads(line))
            except (ValueError, RecursionError) as problem:
                self.problems.append(f"{path}:{n}: {problem}")

    def put_answer(self, id: str, answer: object) -> None:
        """For whoever answers through us. Durable when it returns."""
        try:
            make_folders(self._host, f"{self._folder}/{_ANSWERS}")
            words = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
            replace_file(self._host, f"{self._folder}/{_ANSWERS}/{id}.json", words)
        except OSError as problem:
            raise from_os(problem, "storing an answer", self._folder) from problem
        self._answers = None

    # -- requests

    @property
    def from_beginning(self) -> bool:
        """Whether its sessions were read before, and are to be read from their beginning."""
        return self.is_there() and self._signed().get("again") is True

    def write(self, sessions: Sequence[str], *, again: bool = False) -> int:
        """What is to be asked now, in place of what was. How many."""
        try:
            make_folders(self._host, self._folder)
            if not self.is_there():
                self._sign(())  # first: from now on the folder is known as ours, also if we die
            for part in (_REQUESTS, _ANSWERS):
                make_folders(self._host, f"{self._folder}/{part}")
            for id, request in self.missing.items():
                replace_file(self._host, f"{self._folder}/{_REQUESTS}/{id}.json", _json(request.as_json()))
            self._remove_others()
            if self._batches:
                self._write_batches()
            self._sign(sessions, again)  # last: it names the sessions when all of it is there
        except OSError as problem:
            raise from_os(problem, "writing requests", self._folder) from problem
        return len(self.missing)

    def _sign(self, sessions: Sequence[str], again: bool = False) -> None:
        told = {"format": _FORMAT, "id": self.holder, "sessions": list(sessions), **({"again": True} if again else {})}
        replace_file(self._host, f"{self._folder}/{_NAME}", _json(told))

    def _remove_others(self) -> None:
        """Requests that nobody wants any more, and what somebody who died left behind."""
        folder = f"{self._folder}/{_REQUESTS}"
        for name in self._host.names(folder):
            if name.endswith((".json", ".tmp")) and name.removesuffix(".json") not in self.missing:
                self._host.remove(f"{folder}/{name}")

    def _write_batches(self) -> None:
        make_folders(self._host, f"{self._folder}/{_BATCH}")
        for vendor, form in (("openai", _openai), ("anthropic", _anthropic)):
            lines = b"".join(_json(form(request)) + b"\n" for request in self.missing.values())
            replace_file(self._host, f"{self._folder}/{_BATCH}/{vendor}.jsonl", lines)

    def check_target(self) -> None:
        """Somebody else's files are never mixed with ours."""
        found = self._host.stat(self._folder)
        if found is None:
            return
        if self.is_there():
            self.sessions()  # raises where the file is another's
            return
        if not found.is_folder or not all(map(_is_left, self._host.names(self._folder))):
            raise BadUsage("the folder is not empty", where=self._folder, next="Name an empty folder, or a new one.")


def _is_left(name: str) -> bool:
    """What is left of an export that died at once."""
    return name.startswith(f"{_NAME}.") and name.endswith(".tmp")


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _answer(data: bytes) -> Any:
    """JSON as it was asked for; else the words, in which it may stand."""
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


def _batch_answer(told: Any) -> tuple[str, ModelReply]:
    """The request's id, and its answer. ValueError for a line that holds none: its request stays."""
    from dreamkeep.dream.backends.model.http import Anthropic, Got, OpenAI

    if not isinstance(told, dict) or not isinstance(told.get("custom_id"), str):
        raise ValueError("not a line of a batch: it has no custom_id")
    response, result = told.get("response"), told.get("result")
    body = response.get("body") if isinstance(response, dict) else None
    message = result.get("message") if isinstance(result, dict) else None
    got = OpenAI("", 0).read(body) if isinstance(body, dict) else None
    got = Anthropic("", 0).read(message) if isinstance(message, dict) else got
    if not isinstance(got, Got):
        raise ValueError(f"the vendor did not answer {told['custom_id'][:64]}")
    return told["custom_id"], ModelReply(got.found, got.cut)
