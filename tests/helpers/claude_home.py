"""Claude's transcripts in a home folder, and what a keep makes of them."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from pathlib import Path
from typing import Any

from dreamkeep import Keep
from dreamkeep.agents.contract import Source
from dreamkeep.capture.ingest import Ingest
from dreamkeep.capture.sources import source_bytes
from dreamkeep.event import Ids
from dreamkeep.host import RealHost, make_folders
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.writers import JournalWriters
from tests.helpers.faults import FragileHost

SID = "5f0c2d1e-0000-4000-8000-000000000001"


def record(n: int, text: str = "", **more: Any) -> bytes:
    """One of Claude's lines: odd ones are prompts, even ones are answers."""
    role = "user" if n % 2 else "assistant"
    said = text or f"{'question' if n % 2 else 'answer'} {n}"
    message: dict[str, Any] = {"role": role, "content": said if n % 2 else [{"type": "text", "text": said}]}
    if role == "assistant":
        message.update(id=f"msg_{n}", model="m", stop_reason="end_turn")
    line = {
        "parentUuid": f"u{n - 1}" if n > 1 else None,
        "isSidechain": False,
        "type": role,
        "message": message,
        "uuid": f"u{n}",
        "timestamp": f"2026-11-01T10:{n // 60 % 60:02d}:{n % 60:02d}.000Z",
        "sessionId": SID,
        "cwd": "/home/dev/shop",
        "version": "2.1.325",
        **more,
    }
    return json.dumps(line).encode() + b"\n"


def home_with(tmp_path: Path, data: bytes, sid: str = SID) -> tuple[Path, Path]:
    home = tmp_path / "home"
    file = home / ".claude" / "projects" / "-home-dev-shop" / f"{sid}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return home, file


def ingest(keep: Keep, home: Path, **more: Any) -> list[Any]:
    return list(keep.ingest(home=home, agents=["claude"], **more))


def shown_texts(keep: Keep, sid: str = SID) -> list[str]:
    return [m["text"] for m in keep.show(f"claude:{sid}")["messages"]]


def captured_bytes(keep: Keep, sid: str = SID) -> bytes:
    folder = f"{keep.root}/{folder_of(f'claude:{sid}')}"
    [name] = [n for n in source_bytes.sources(RealHost(), folder) if n.startswith("main")]
    return b"".join(source_bytes.lines(RealHost(), folder, name))


CLAUDE_FOLDER = "/h/.claude/projects/-x"


def write_transcript(host: FragileHost, data: bytes) -> None:
    """The agent's file, safely on disk: here only our own writing is in danger."""
    make_folders(host, CLAUDE_FOLDER)
    path = f"{CLAUDE_FOLDER}/{SID}.jsonl"
    handle = host.open_append(path) if host.stat(path) else host.create(path)
    host.write(handle, data[host.end(handle) :])
    host.sync(handle)
    host.close(handle)
    host.sync_folder(CLAUDE_FOLDER)


def capture_transcript(host: FragileHost) -> None:
    ids = Ids(host.now, host.random)
    journals = JournalWriters(host, "/keep", ids)
    found = Ingest(host, "/keep", journals, ids)
    assert [one.problem for one in found.run([Source("claude", f"{CLAUDE_FOLDER}/{SID}.jsonl", session=SID)])] == [None]
    journals.close()


def captured_lines(host: FragileHost) -> list[bytes]:
    folder = f"/keep/{folder_of(f'claude:{SID}')}"
    [name] = source_bytes.sources(host, folder)
    return source_bytes.lines(host, folder, name)


def random_records(count: int, size: int, sid: str = SID, seed: int = 1) -> bytes:
    """Records that hardly get smaller by compression."""
    chance = random.Random(seed)
    said = [b64encode(chance.randbytes(size * 3 // 4)).decode() for _ in range(count)]
    return b"".join(record(n, text, sessionId=sid, uuid=f"{sid[-1]}{n}") for n, text in enumerate(said, 1))


class Transcripts:
    """A home with Claude's transcripts; each `write` is one session."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.count = 0

    def write(self, *places: tuple[str, str], commands: tuple[tuple[str, str], ...] = ()) -> str:
        """A session that says one thing in each (folder, branch), then runs commands in the last one: (command, its output)."""
        self.count += 1
        id = f"5f0c2d1e-0000-4000-8000-{self.count:012d}"
        lines: list[dict[str, Any]] = []

        def say(role: str, content: object, cwd: str, branch: str, **more: Any) -> None:
            n = len(lines)
            about = {"cwd": cwd, "gitBranch": branch, "sessionId": id, "uuid": f"{id}-{n}", "type": role, "version": "2.1.325"}
            at = f"2026-11-01T10:{self.count % 60:02d}:{n:02d}.000Z"
            message = {"role": role, "content": content, **more}
            lines.append({**about, "parentUuid": f"{id}-{n - 1}" if n else None, "timestamp": at, "message": message})

        for cwd, branch in places:
            say("user", f"look at the pelicans in {cwd}", cwd, branch)
        for command, output in commands:
            call = {"type": "tool_use", "id": f"t{len(lines)}", "name": "Bash", "input": {"command": command}}
            say("assistant", [call], *places[-1], id=f"m{len(lines)}", model="m")
            say("user", [{"type": "tool_result", "tool_use_id": call["id"], "content": output}], *places[-1])
        file = self.home / ".claude" / "projects" / f"-p{self.count}" / f"{id}.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return f"claude:{id}"
