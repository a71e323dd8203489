"""A home as Goose leaves it: `sessions.db` with the schema that its source makes, filled the way its source fills it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.agents.database import Database
from tests.agents.expected import compaction, completed, roles, session

SCHEMA = """
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER PRIMARY KEY,
    applied_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL DEFAULT '',
    description TEXT NOT NULL DEFAULT '',
    user_set_name BOOLEAN DEFAULT FALSE,
    session_type TEXT NOT NULL DEFAULT 'user',
    working_dir TEXT NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    extension_data TEXT DEFAULT '{}',
    total_tokens INTEGER,
    input_tokens INTEGER,
    output_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    accumulated_total_tokens INTEGER,
    accumulated_input_tokens INTEGER,
    accumulated_output_tokens INTEGER,
    accumulated_cache_read_tokens INTEGER,
    accumulated_cache_write_tokens INTEGER,
    accumulated_cost REAL,
    schedule_id TEXT,
    recipe_json TEXT,
    user_recipe_values_json TEXT,
    provider_name TEXT,
    model_config_json TEXT,
    goose_mode TEXT NOT NULL DEFAULT 'auto',
    archived_at TIMESTAMP,
    project_id TEXT,
    parent_session_id TEXT,
    parent_delegation TEXT
);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT,
    session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL,
    content_json TEXT NOT NULL,
    created_timestamp INTEGER NOT NULL,
    timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    tokens INTEGER,
    metadata_json TEXT
);
CREATE TABLE IF NOT EXISTS usage_ledger (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    created_timestamp INTEGER NOT NULL,
    model TEXT
);
CREATE INDEX IF NOT EXISTS idx_messages_session ON messages(session_id);
CREATE INDEX IF NOT EXISTS idx_messages_message_id ON messages(message_id);
"""

#: Before messages had ids of their own.
OLDER = SCHEMA.replace("    message_id TEXT,\n", "").replace(
    "CREATE INDEX IF NOT EXISTS idx_messages_message_id ON messages(message_id);\n", ""
)

AUTO = "The previous message is a structured summary of an earlier portion of this session. Continue the session."
MANUAL = (
    "The previous message is a structured summary of the session so far, produced at the user's request. Continue the session."
)
Block = dict[str, Any]
BOTH, USER_ALONE, MODEL_ALONE, NOBODY = (True, True), (True, False), (False, True), (False, False)


class Goose(Database):
    """What Goose does to its database: rows are added; a compaction replaces them all."""

    def __init__(self, path: Path, schema: str = SCHEMA) -> None:
        super().__init__(path, schema)
        self.ids = schema is SCHEMA
        self.now = 1_793_520_000
        self.made = 0
        self.talk: dict[str, list[dict[str, Any]]] = {}

    def session(self, key: str, **columns: Any) -> str:
        at = "2026-11-01 08:00:00"
        columns = {
            "id": key,
            "working_dir": "/home/dev/shop",
            "name": "New session",
            "created_at": at,
            "updated_at": at,
        } | columns
        self.insert("sessions", columns)
        self.talk[key] = []
        return key

    def _new(self, session: str, role: str, *blocks: Block, seen: tuple[bool, bool] = BOTH) -> dict[str, Any]:
        self.made += 1
        return {"id": f"msg_{session}_{self.made:04x}", "role": role, "content": list(blocks), "created": self.now, "seen": seen}

    def _insert(self, session: str, message: dict[str, Any]) -> None:
        row = {
            "session_id": session,
            "role": message["role"],
            "content_json": json.dumps(message["content"]),
            "created_timestamp": message["created"],
            "timestamp": str(self.now),
            "metadata_json": json.dumps({"userVisible": message["seen"][0], "agentVisible": message["seen"][1]}),
        }
        if self.ids:
            row["message_id"] = message["id"]
        self.insert("messages", row)

    def say(self, session: str, role: str, *blocks: Block) -> None:
        self.now += 3
        message = self._new(session, role, *blocks)
        self.talk[session].append(message)
        with self.db:
            self._insert(session, message)
            self.db.execute("UPDATE sessions SET updated_at = ? WHERE id = ?", (str(self.now), session))

    def ask(self, session: str, prompt: str) -> None:
        self.now += 30
        self.say(session, "user", text(prompt))

    def answer(self, session: str, words: str) -> None:
        self.say(session, "assistant", text(words))

    def call(
        self, session: str, call: str, name: str, arguments: Block, output: str, *before: Block, error: bool = False
    ) -> None:
        made = {
            "type": "toolRequest",
            "id": call,
            "toolCall": {"status": "success", "value": {"name": name, "arguments": arguments}},
        }
        self.say(session, "assistant", *before, made)
        value = {"content": [{"type": "text", "text": output}], "isError": error}
        self.say(session, "user", {"type": "toolResponse", "id": call, "toolResult": {"status": "success", "value": value}})

    def compact(self, session: str, summary: str, *, manual: bool = False) -> None:
        """All rows out, all rows in again; unless the user asked for it the last prompt is put in once more."""
        self.now += 2
        old = self.talk[session]
        prompts = [m for m in old if m["role"] == "user" and m["seen"][1] and all(b["type"] == "text" for b in m["content"])]
        kept = None if manual else prompts[-1]
        for message in old:
            message["seen"] = NOBODY if message is kept and message is old[-1] else (message["seen"][0], False)
        new = [
            *old,
            self._new(session, "user", text(summary), seen=MODEL_ALONE),
            self._new(session, "assistant", text(MANUAL if manual else AUTO), seen=MODEL_ALONE),
        ]
        if kept:
            new.append(self._new(session, "user", text("\n".join(b["text"] for b in kept["content"]))))
        with self.db:
            self.db.execute("DELETE FROM messages WHERE session_id = ?", (session,))
            for message in new:
                self._insert(session, message)
        self.talk[session] = new


def text(words: str) -> Block:
    return {"type": "text", "text": words}


SHOP, HELPER, EMPTY = "20261101_1", "20261101_2", "20261101_3"


def _shop(g: Goose) -> None:
    s = g.session(SHOP, name="Slow checkout page", model_config_json=json.dumps({"model_name": "claude-sonnet-4"}))
    g.ask(s, "Why is the checkout page slow?")
    thought = {"type": "thinking", "thinking": "Queries first.", "signature": ""}
    g.call(s, "call_1", "developer__shell", {"command": "grep -rn SELECT app"}, "app/cart.py:12", thought)
    g.answer(s, "The cart query runs once per item.")
    g.ask(s, "continue")
    g.call(s, "call_2", "developer__shell", {"command": "pytest -q"}, "1 failed", error=True)
    g.answer(s, "A test fails.")
    g.ask(s, "continue")
    g.compact(s, "The cart query is slow; a test fails.")
    g.answer(s, "The query is one join now.")
    g.compact(s, "One join now.", manual=True)
    g.ask(s, "continue")
    g.say(s, "assistant", {"type": "hologram"}, text("Changelog written."))
    g.ask(s, "Deploy it.")
    g.call(s, "call_3", "developer__shell", {"command": "make deploy"}, "…")


def write(home: Path) -> None:
    g = Goose(home / ".local" / "share" / "goose" / "sessions" / "sessions.db")
    _shop(g)
    g.session(HELPER, session_type="sub_agent", parent_session_id=SHOP, name="Subagent task", user_set_name=True)
    g.ask(HELPER, "Count the tests.")
    g.answer(HELPER, "41")
    g.session(EMPTY)
    g.close()


#: The empty one is in no list: it is reported, not made into a session.
#: The commands that ran, and whether they failed; None where nobody knows.
COMMANDS: list[tuple[str, bool | None]] = [("grep -rn SELECT app", False), ("pytest -q", True), ("make deploy", False)]

EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"goose:{SHOP}",
            "Slow checkout page",
            "/home/dev/shop",
            turns=[*completed("Why is the checkout page slow?", "continue", "continue", "continue"), ("Deploy it.", "open")],
            roles=roles(user=5, assistant=9, tool=3, reasoning=1, summary=2),
            tool_calls=[
                {"name": "developer__shell", "error": False},
                {"name": "developer__shell", "error": True},
                {"name": "developer__shell", "error": False},
            ],
            compactions=[compaction("auto"), compaction("manual")],
            segments=3,
            marks={"meta": 2},
            unknown={"content/hologram": 1},
        ),
        session(
            f"goose:{HELPER}",
            "Subagent task",
            "/home/dev/shop",
            turns=completed("Count the tests."),
            roles=roles(user=1, assistant=1),
            lineage=[{"kind": "subagent", "session": f"goose:{SHOP}"}],
        ),
    ]
}
