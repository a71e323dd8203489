"""Requests and answers as files: a folder takes the place of a model. This serves batches, machines without a network, and the
agent that the user is working with.

    exchange.json              the manifest: the format, the id that holds the leases, and the sessions
    requests/ID.json           one request: kind, system, user, schema
    batch/openai.jsonl         the same requests, in the two vendors' batch forms; `custom_id` is the request's id
    batch/anthropic.jsonl
    answers/ID.json            one answer: the JSON object that was asked for, or its text
    answers/ANYTHING.jsonl     a vendor's file of results, unchanged

`requests` holds only what is not answered yet. A request's id is a digest of its text (requests.py), so an answer is valid for as
long as its request is the same, and a changed request is asked anew. Each import writes the next requests, until none is left.
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

_MANIFEST = "exchange.json"
_FORMAT = 1
_REQUESTS, _ANSWERS, _BATCH = "requests", "answers", "batch"
#: In bytes: one answer, and a vendor's file of them.
_LARGEST, _LARGEST_BATCH = 4 << 20, 1 << 30
_ANSWER_AGAIN = "Answer it again, then import again."


class Exchange:
    """A folder as a model: `ask` returns the answer in the folder, or notes the request as missing."""

    secrets: tuple[str, ...] = ()
    spent = Usage()
    #: No shared requests: a session that waits for an answer delays no other.
    shares = False

    def __init__(self, host: Host, folder: str, *, batches: bool = True) -> None:
        """`batches`: also write the requests in the vendors' batch forms."""
        self._host, self._folder, self._batches = host, folder.rstrip("/"), batches
        self._answers: dict[str, ModelReply] | None = None
        self._answered_ids: set[str] = set()
        self._holder = ""
        #: Requests without an answer, by id.
        self.missing: dict[str, Request] = {}
        #: Files and lines without a usable answer, and why.
        self.problems: list[str] = []

    def ask(self, request: Request) -> ModelReply:
        if self._answers is None:
            self._answers = dict(self._read_answers())
        if request.id in self._answers:
            self._answered_ids.add(request.id)
            return self._answers[request.id]
        self.missing[request.id] = request
        where = f"{_REQUESTS}/{request.id}.json"
        raise Unanswered("it is not answered yet", where=where, next="Answer it, then import again.")

    def unreadable(self, request: Request, why: str) -> Unanswered:
        """Reports an answer that can't be used; its request stays."""
        self._answered_ids.discard(request.id)
        self.missing[request.id] = request
        self.problems.append(f"the answer to {request.id} can't be used: {why}. {_ANSWER_AGAIN}")
        return Unanswered(why, where=f"{_ANSWERS}/{request.id}.json", next=_ANSWER_AGAIN)

    @property
    def answered(self) -> int:
        """How many requests were answered."""
        return len(self._answered_ids)

    # -- which sessions

    def sessions(self) -> list[str]:
        """The sessions that the export chose."""
        return [one for one in self._read_manifest()["sessions"] if isinstance(one, str)]

    @property
    def holder(self) -> str:
        """The id under which this folder holds leases; it stays the same when the folder is moved or copied."""
        if not self._holder:
            self._holder = str(self._read_manifest()["id"]) if self.is_there() else self._host.random(16).hex()
        return self._holder

    def _read_manifest(self) -> dict[str, Any]:
        path = f"{self._folder}/{_MANIFEST}"
        try:
            manifest = json.loads(read_file(self._host, path))
        except OSError as problem:
            way = "Export one: `dreamkeep dream --export DIR`."
            raise BadUsage("this is not a folder of requests", where=path, next=way) from problem
        except ValueError as problem:
            raise BadUsage("this can't be read", where=path, next="Export again, into an empty folder.") from problem
        kinds = {"format": int, "id": str, "sessions": list}
        known = isinstance(manifest, dict) and all(isinstance(manifest.get(key), kind) for key, kind in kinds.items())
        if not known or manifest["format"] != _FORMAT:
            way = "Import it with the version that wrote it."
            raise BadUsage("this version doesn't know the format", where=path, next=way)
        return dict(manifest)

    @property
    def name(self) -> str:
        return self._folder.rpartition("/")[2]

    def is_there(self) -> bool:
        return self._host.stat(f"{self._folder}/{_MANIFEST}") is not None

    def asks(self, id: str) -> bool:
        return self._host.stat(f"{self._folder}/{_REQUESTS}/{id}.json") is not None

    # -- answers

    def _read_answers(self) -> Iterator[tuple[str, ModelReply]]:
        """Of several answers to one request the last one counts: a vendor's files in the order of their times, then single
        files, which somebody wrote on purpose."""
        for path in self._answer_files():
            try:
                if path.endswith(".jsonl"):
                    yield from self._read_batch_lines(path, self._read_limited(path, _LARGEST_BATCH))
                else:
                    yield (
                        path.rpartition("/")[2].removesuffix(".json"),
                        ModelReply(_parse_answer(self._read_limited(path, _LARGEST))),
                    )
            except (OSError, ValueError) as problem:
                self.problems.append(f"{path}: {problem}")  # one bad file never hides the others

    def _answer_files(self) -> list[str]:
        folder = f"{self._folder}/{_ANSWERS}"
        names = sorted(self._host.names(folder)) if self._host.stat(folder) else []
        batches = [f"{folder}/{name}" for name in names if name.endswith(".jsonl")]
        found = {path: self._host.stat(path) for path in batches}
        batches.sort(key=lambda path: at.mtime_ns if (at := found[path]) else 0)
        return [*batches, *(f"{folder}/{name}" for name in names if name.endswith(".json"))]

    def _read_limited(self, path: str, most: int) -> bytes:
        found = self._host.stat(path)
        if found is not None and found.size > most:
            raise ValueError("it is too large for an answer")
        return read_file(self._host, path)

    def _read_batch_lines(self, path: str, data: bytes) -> Iterator[tuple[str, ModelReply]]:
        """One bad line never hides the others."""
        for n, line in enumerate(data.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                yield _read_batch_line(json.loads(line))
            except (ValueError, RecursionError) as problem:
                self.problems.append(f"{path}:{n}: {problem}")

    def put_answer(self, id: str, answer: object) -> None:
        """Stores an answer that came through dreamkeep. It is durable when this returns."""
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
        """Whether the export asked for its sessions to be read again, from their beginning."""
        return self.is_there() and self._read_manifest().get("again") is True

    def write(self, sessions: Sequence[str], *, again: bool = False) -> int:
        """Replaces the requests by those that are missing now. Returns their number."""
        try:
            make_folders(self._host, self._folder)
            if not self.is_there():
                self._write_manifest(())  # first: so the folder is recognised as ours, even after a crash
            for part in (_REQUESTS, _ANSWERS):
                make_folders(self._host, f"{self._folder}/{part}")
            for id, request in self.missing.items():
                replace_file(self._host, f"{self._folder}/{_REQUESTS}/{id}.json", _to_json(request.as_json()))
            self._remove_old_requests()
            if self._batches:
                self._write_batches()
            self._write_manifest(sessions, again)  # last: it names the sessions once everything else is there
        except OSError as problem:
            raise from_os(problem, "writing requests", self._folder) from problem
        return len(self.missing)

    def _write_manifest(self, sessions: Sequence[str], again: bool = False) -> None:
        manifest = {"format": _FORMAT, "id": self.holder, "sessions": list(sessions), **({"again": True} if again else {})}
        replace_file(self._host, f"{self._folder}/{_MANIFEST}", _to_json(manifest))

    def _remove_old_requests(self) -> None:
        """Removes requests that are not needed any more, and what a crash left behind."""
        folder = f"{self._folder}/{_REQUESTS}"
        for name in self._host.names(folder):
            if name.endswith((".json", ".tmp")) and name.removesuffix(".json") not in self.missing:
                self._host.remove(f"{folder}/{name}")

    def _write_batches(self) -> None:
        make_folders(self._host, f"{self._folder}/{_BATCH}")
        for vendor, form in (("openai", _make_openai_line), ("anthropic", _make_anthropic_line)):
            lines = b"".join(_to_json(form(request)) + b"\n" for request in self.missing.values())
            replace_file(self._host, f"{self._folder}/{_BATCH}/{vendor}.jsonl", lines)

    def check_target(self) -> None:
        """Raises unless the folder is new, empty or an exchange: our files are never mixed with somebody else's."""
        found = self._host.stat(self._folder)
        if found is None:
            return
        if self.is_there():
            self.sessions()  # raises where the file is another's
            return
        if not found.is_folder or not all(map(_is_leftover, self._host.names(self._folder))):
            raise BadUsage("the folder is not empty", where=self._folder, next="Name an empty folder, or a new one.")


def _is_leftover(name: str) -> bool:
    """What an export leaves if it crashes at once."""
    return name.startswith(f"{_MANIFEST}.") and name.endswith(".tmp")


def _to_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _parse_answer(data: bytes) -> Any:
    """The JSON that was asked for; else the text, which may contain it."""
    text = data.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# -- the vendors' batch forms. Both need the model's name, which is for the user to fill in.


def _make_openai_line(request: Request) -> dict[str, Any]:
    body = {
        "model": "MODEL",
        "messages": [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": request.kind, "strict": True, "schema": request.schema},
        },
    }
    return {"custom_id": request.id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def _make_anthropic_line(request: Request) -> dict[str, Any]:
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


def _read_batch_line(line: Any) -> tuple[str, ModelReply]:
    """The request's id and its answer. Raises ValueError for a line without an answer: its request stays."""
    from dreamkeep.dream.backends.model.http import Anthropic, Got, OpenAI

    if not isinstance(line, dict) or not isinstance(line.get("custom_id"), str):
        raise ValueError("not a line of a batch: it has no custom_id")
    response, result = line.get("response"), line.get("result")
    body = response.get("body") if isinstance(response, dict) else None
    message = result.get("message") if isinstance(result, dict) else None
    got = OpenAI("", 0).read(body) if isinstance(body, dict) else None
    got = Anthropic("", 0).read(message) if isinstance(message, dict) else got
    if not isinstance(got, Got):
        raise ValueError(f"the vendor did not answer {line['custom_id'][:64]}")
    return line["custom_id"], ModelReply(got.found, got.cut)
