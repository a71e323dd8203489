"""A home in which Hermes and its WebUI have worked: session files, their list, turn journals, a state.db with a row for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.agents.hermes import Hermes
from tests.agents.hermes_webui import FOLDER, document, said

T0 = 1_778_573_700.0


def talk(turns: int, about: str = "bread") -> list[dict[str, Any]]:
    """Questions and answers; the second answer calls a tool first."""
    found = []
    for n in range(turns):
        at = T0 + n * 60
        found.append(said("user", f"question {n} about {about}", at))
        if n == 1:
            call = {"id": f"call_{about}_000001", "type": "function", "function": {"name": "terminal", "arguments": '{"a": 1}'}}
            found.append(said("assistant", "", at + 1, tool_calls=[call], reasoning=f"I look for {about}."))
            found.append(said("tool", '{"output": "ok", "exit_code": 0}', at + 2, tool_call_id=call["id"], name="terminal"))
        found.append(said("assistant", f"answer {n} about {about}", at + 3))
    return found


class Web:
    def __init__(self, home: Path, *, database: bool = True) -> None:
        self.home = home
        self.folder = home / ".hermes" / "webui" / "sessions"
        (self.folder / "_turn_journal").mkdir(parents=True)
        self.database = home / ".hermes" / "state.db"
        self.hermes = Hermes(self.database) if database else None

    def file(self, sid: str) -> Path:
        return self.folder / f"{sid}.json"

    def backup(self, sid: str) -> Path:
        return self.folder / f"{sid}.json.bak"

    def save(self, sid: str, messages: list[dict[str, Any]], *, row: bool = True, listed: bool = True, **more: Any) -> None:
        """As the WebUI saves it; before fewer messages than there were, a copy of what was there."""
        file = self.file(sid)
        if file.exists() and len(json.loads(file.read_bytes())["messages"]) > len(messages):
            self.backup(sid).write_bytes(file.read_bytes())
        file.write_text(document(sid, messages, **more), encoding="utf-8")
        if row:
            self.row(sid, messages)
        if listed:
            self.enlist(sid, message_count=len(messages))

    def row(self, sid: str, messages: list[dict[str, Any]], **columns: Any) -> None:
        """A session of the database with these messages, if it is not there yet."""
        if self.hermes is None or list(self.hermes.db.execute("SELECT 1 FROM sessions WHERE id=?", (sid,))):
            return
        self.hermes.session(sid, **{"source": "webui", "cwd": FOLDER, "title": f"About {sid}", **columns})
        for one in messages:
            kept: dict[str, Any] = {
                name: one[name] for name in ("role", "content", "timestamp", "tool_call_id", "reasoning") if name in one
            }
            if one.get("tool_calls"):
                kept["tool_calls"] = json.dumps(one["tool_calls"])
            if one.get("name"):
                kept["tool_name"] = one["name"]
            self.hermes._insert(sid, kept, T0)
        self.hermes.update(sid, message_count=len(messages))

    def enlist(self, sid: str, **more: Any) -> None:
        path = self.folder / "_index.json"
        entries = json.loads(path.read_bytes()) if path.exists() else []
        entries = [one for one in entries if one["session_id"] != sid]
        path.write_text(json.dumps([{"session_id": sid, "title": f"About {sid}", "updated_at": T0, **more}, *entries], indent=2))

    def delete(self, sid: str) -> None:
        """By the user: the file goes, the backup may stay."""
        self.file(sid).unlink()
        path = self.folder / "_deleted_webui_sessions.json"
        ids = json.loads(path.read_bytes())["ids"] if path.exists() else []
        path.write_text(json.dumps({"version": 1, "ids": [*ids, sid]}))
        index = self.folder / "_index.json"
        index.write_text(json.dumps([one for one in json.loads(index.read_bytes()) if one["session_id"] != sid]))

    def turn(self, sid: str, turn: str, *events: str, content: str = "", at: float = T0 + 3600, pid: int = 4711) -> None:
        with (self.folder / "_turn_journal" / f"{sid}~{pid}.jsonl").open("a", encoding="utf-8") as file:
            for n, event in enumerate(events):
                about = {
                    "version": 1,
                    "event": event,
                    "session_id": sid,
                    "turn_id": turn,
                    "created_at": at + n,
                    "stream_id": turn,
                }
                more = {"role": "user", "content": content, "attachments": []} if event == "submitted" else {}
                file.write(json.dumps({**about, **more}, separators=(",", ":")) + "\n")

    def messages(self, sid: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.file(sid).read_bytes())["messages"]
        return found

    def listed(self) -> dict[str, dict[str, Any]]:
        return {one["session_id"]: one for one in json.loads((self.folder / "_index.json").read_bytes())}

    def close(self) -> None:
        """The agent is gone, and has tidied up: no -wal is left."""
        if self.hermes is not None:
            self.hermes.close()
            self.hermes = None
