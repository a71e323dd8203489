"""Talking to our MCP server as it is: another process, its stdin and stdout, or its address."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dreamkeep import Keep

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
TOOLS = (
    *("search", "pack", "timeline", "note_add", "note_pin", "note_retract"),
    *("why", "insight_add", "review", "dream_status", "dream_run", "dream_next", "dream_submit"),
)


def ask(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(id: Any, name: str, **arguments: Any) -> dict[str, Any]:
    return ask(id, "tools/call", name=name, arguments=arguments)


def named(message: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """In the way of 2026-07-28."""
    return {**message, "params": {**message["params"], "_meta": {**META, **meta}}}


def greet(id: Any = 0, version: str = "2025-11-25") -> dict[str, Any]:
    return ask(id, "initialize", protocolVersion=version, capabilities={}, clientInfo={"name": "test", "version": "1"})


def found(answer: dict[str, Any]) -> dict[str, Any]:
    """What a tool found; its text says the same."""
    result = answer["result"]
    assert not result["isError"], result["content"][0]["text"]
    assert result["content"][0]["type"] == "text"
    got: dict[str, Any] = result["structuredContent"]
    text = result["content"][0]["text"]
    assert text == got.get("text") or json.loads(text) == got
    return got


def refused(answer: dict[str, Any]) -> str:
    """What a model reads when a tool could not do it."""
    assert answer["result"]["isError"] is True, answer
    text: str = answer["result"]["content"][0]["text"]
    return text


def words(keep: Path | str, *more: str) -> list[str]:
    return [sys.executable, "-P", "-m", "dreamkeep", "mcp", "--keep", str(keep), *more]


class Wire:
    """One server on pipes. Answers may come in any order: `get` waits for the one with that id."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._early: list[Any] = []

    def send(self, *messages: Any) -> None:
        assert self.process.stdin
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def next(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), "the server ended"
        return json.loads(line)

    def get(self, id: Any) -> dict[str, Any]:
        for one in self._early:
            if one["id"] == id:
                self._early.remove(one)
                return dict(one)
        while (one := self.next())["id"] != id:
            self._early.append(one)
        return dict(one)

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self.send(message)
        return self.get(message["id"])

    def close(self) -> tuple[list[Any], str]:
        """What else it said, and its stderr, once its stdin is closed."""
        out, err = self.process.communicate(timeout=60)
        return self._early + [json.loads(line) for line in out.splitlines()], err.decode()


@contextmanager
def wire(keep: Path | str, *more: str) -> Iterator[Wire]:
    made = Wire(words(keep, *more))
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.communicate()


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Address:
    """One server over HTTP."""

    def __init__(self, url: str, process: Any, token: str) -> None:
        self.url, self.process, self.token = url, process, token
        self.port = int(url.rpartition(":")[2].partition("/")[0])

    def request(self, method: str, body: Any = None, *, path: str = "/mcp", **headers: str) -> Got:
        """Headers by keyword: `Mcp_Session_Id=…`; an empty one is left out. The token is sent unless `Authorization` is given."""
        given = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **self.bearer}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, data, {name: value for name, value in given.items() if value})
            answer = connection.getresponse()
            return Got(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def post(self, body: Any, **headers: str) -> Got:
        return self.request("POST", body, **headers)

    def session(self, version: str = "2025-11-25") -> str:
        return self.post(greet(version=version)).headers["mcp-session-id"]


@contextmanager
def address(keep: Path | str, *more: str, environment: dict[str, str] | None = None) -> Iterator[Address]:
    command = words(keep, "--http", "--port", "0", "--json", *more)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout and process.stderr
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read().decode()
            told = json.loads(line)
            token = Path(told["token_file"]).read_text().strip() if told["token_file"] else (environment or {})["DREAMKEEP_TOKEN"]
            yield Address(told["url"], process, token)
        finally:
            process.terminate()
            process.communicate(timeout=60)


def talked(root: Path | str, *turns: tuple[str, str], id: str = "chat", end: bool = False) -> None:
    """A session with these prompts and answers."""
    with Keep.open(root) as keep:
        session = keep.session(id, cwd=str(root))
        for prompt, answer in turns:
            session.record(prompt, ("assistant", answer))
        if end:
            session.end()


def slow_keep(root: Path | str, go: Path) -> None:
    """A keep whose dream takes until the file `go` is there: its model is a command that waits for it."""
    talked(root, ("We always use tabs here, never spaces.", "Understood."), id="old", end=True)
    waits = f"while not os.path.exists({str(go)!r}): time.sleep(0.02)"
    answers = json.dumps({"items": []})
    program = f"import sys, os, time\nsys.stdin.read()\n{waits}\nprint({answers!r})"
    model = f'[dream]\nbackend = "command"\n[dream.model]\ncommand = {json.dumps([sys.executable, "-c", program])}\n'
    Path(root, "keep.toml").write_text(model)
