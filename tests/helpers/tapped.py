"""A client behind a tap, as real processes, and what the tap journaled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from dreamkeep.event import Kind
from dreamkeep.host import RealHost
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.scan import read_events
from dreamkeep.session.raw import contents
from tests.paths import ROOT

HOST = RealHost()

HERE = str(ROOT)

AGENT = [sys.executable, "-m", "tests.agents.acp_agent"]


class JournaledFrame(NamedTuple):
    """A frame out of the journal."""

    n: int
    side: str
    flag: str
    line: bytes
    lost: int = 0


def tap_command(root: str, *agent: str, **options: object) -> list[str]:
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [*AGENT, "tap", root, *given, "--", *(agent or (*AGENT, "agent"))]


class Tapped:
    """A client's end of a tap."""

    def __init__(self, root: str, *agent: str, environment: dict[str, str] | None = None, **options: object) -> None:
        self.root = root
        self.process = subprocess.Popen(
            tap_command(root, *agent, **options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{HERE}/src:{HERE}", **(environment or {})},
            cwd=HERE,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr
        self.asked = 0

    def __enter__(self) -> Tapped:
        return self

    def __exit__(self, *problem: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass  # what was not written before it died

    def send(self, method: str, **params: Any) -> int:
        self.asked += 1
        self.stdin.write(json.dumps({"jsonrpc": "2.0", "id": self.asked, "method": method, "params": params}).encode() + b"\n")
        self.stdin.flush()
        return self.asked

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = self.send(method, **params)
        while line := self.stdout.readline():
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == number:
                return message
        raise EOFError

    def greet(self) -> str:
        self.ask("initialize", protocolVersion=1)
        return str(self.ask("session/new", cwd="/somewhere", mcpServers=[])["result"]["sessionId"])

    def prompt(self, session: str, text: str) -> dict[str, Any]:
        return self.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def end(self) -> tuple[bytes, bytes, int]:
        out, err = self.process.communicate(timeout=60)
        return out, err, self.process.returncode


def journaled(root: str, session: str | None = None) -> list[JournaledFrame]:
    """Of one session, of the keep ("") or of all, by their numbers. Of all, what waited for its session counts once."""
    found = []
    for folder in folders(root) if session is None else [folder_of(session) if session else KEEP]:
        for _, event in read_events(HOST, f"{root}/{folder}"):
            if event.kind == Kind.TAP_FRAMES:
                for place, content in zip(event.body["frames"], contents(event.body), strict=True):
                    line = content if isinstance(content, bytes) else json.dumps(content).encode()
                    found.append(JournaledFrame(place[0], place[1], (place[3:] or [""])[0], line, (place[4:] or [0])[0]))
    return sorted(found if session is not None else set(found))


def folders(root: str) -> list[str]:
    return [str(path.parent.relative_to(root)) for path in Path(root).glob("journal/**/000001.jsonl")]


def wait_for(act: Any, wait_s: float = 20) -> Any:
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        try:
            if found := act():
                return found
        except OSError:
            pass  # not there yet
        time.sleep(0.02)
    raise TimeoutError
