"""A home as Hermes 0.19 leaves it: `state.db` with its real schema (from a real file), filled the way its code fills it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.agents.database import Database
from tests.agents.expected import compaction, completed, roles, session

SCHEMA = """
CREATE TABLE schema_version (
    version INTEGER NOT NULL
);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    user_id TEXT,
    session_key TEXT,
    chat_id TEXT,
    chat_type TEXT,
    thread_id TEXT,
    display_name TEXT,
    origin_json TEXT,
    expiry_finalized INTEGER DEFAULT 0,
    model TEXT,
    model_config TEXT,
    system_prompt TEXT,
    parent_session_id TEXT,
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT,
    message_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0,
    cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0,
    reasoning_tokens INTEGER DEFAULT 0,
    cwd TEXT,
    git_branch TEXT,
    git_repo_root TEXT,
    billing_provider TEXT,
    billing_base_url TEXT,
    billing_mode TEXT,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    cost_status TEXT,
    cost_source TEXT,
    pricing_version TEXT,
    title TEXT,
    api_call_count INTEGER DEFAULT 0,
    handoff_state TEXT,
    handoff_platform TEXT,
    handoff_error TEXT,
    compression_failure_cooldown_until REAL,
    compression_failure_error TEXT,
    compression_fallback_streak INTEGER NOT NULL DEFAULT 0,
    profile_name TEXT,
    rewind_count INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL,
    content TEXT,
    tool_call_id TEXT,
    tool_calls TEXT,
    tool_name TEXT,
    effect_disposition TEXT,
    timestamp REAL NOT NULL,
    token_count INTEGER,
    finish_reason TEXT,
    reasoning TEXT,
    reasoning_content TEXT,
    reasoning_details TEXT,
    codex_reasoning_items TEXT,
    codex_message_items TEXT,
    platform_message_id TEXT,
    observed INTEGER DEFAULT 0,
    active INTEGER NOT NULL DEFAULT 1,
    compacted INTEGER NOT NULL DEFAULT 0,
    api_content TEXT
);
CREATE TABLE state_meta (
    key TEXT PRIMARY KEY,
    value TEXT
);
CREATE TABLE compression_locks (
    session_id TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    acquired_at REAL NOT NULL,
    expires_at REAL NOT NULL
);
CREATE INDEX idx_sessions_source ON sessions(source);
CREATE INDEX idx_sessions_parent ON sessions(parent_session_id);
CREATE INDEX idx_sessions_started ON sessions(started_at DESC);
CREATE INDEX idx_messages_session ON messages(session_id, timestamp);
CREATE INDEX idx_messages_session_active
    ON messages(session_id, active, timestamp);
CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL;
CREATE VIRTUAL TABLE messages_fts USING fts5(
    content
);
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts(rowid, content) VALUES (
        new.id,
        COALESCE(new.content, '') || ' ' || COALESCE(new.tool_name, '') || ' ' || COALESCE(new.tool_calls, '')
    );
END;
CREATE TRIGGER messages_fts_delete AFTER DELETE ON messages BEGIN
    DELETE FROM messages_fts WHERE rowid = old.id;
END;
CREATE TRIGGER messages_fts_update AFTER UPDATE ON messages BEGIN
    DELETE FROM messages_fts WHERE rowid = old.id;
    INSERT INTO messages_fts(rowid, content) VALUES (
        new.id,
        COALESCE(new.content, '') || ' ' || COALESCE(new.tool_name, '') || ' ' || COALESCE(new.tool_calls, '')
    );
END;
INSERT INTO schema_version VALUES (22);
"""

COMPACTED = "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below.\n\n"
Message = dict[str, Any]


class Hermes(Database):
    """What Hermes does to its database. Messages in memory carry no time, unless they were loaded from there."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SCHEMA)
        self.now = 1_793_520_000.25
        self.context: dict[str, list[Message]] = {}

    def session(self, key: str, **columns: Any) -> str:
        self.now += 30
        columns = {
            "id": key,
            "source": "cli",
            "model": "claude-sonnet-4",
            "started_at": self.now,
            "cwd": "/home/dev/shop",
        } | columns
        self.insert("sessions", columns)
        self.context[key] = []
        return key

    def update(self, key: str, **columns: Any) -> None:
        self.db.execute(f"UPDATE sessions SET {','.join(f'{c}=?' for c in columns)} WHERE id=?", (*columns.values(), key))

    def _insert(self, key: str, message: Message, at: float) -> None:
        row = {"session_id": key, "timestamp": message.get("timestamp", at)}
        row |= {name: value for name, value in message.items() if name != "timestamp"}
        self.insert("messages", row)

    def say(self, key: str, role: str, content: str = "", after_s: float = 1.37, **columns: Any) -> None:
        self.now += after_s
        message = {"role": role, "content": content} | columns
        self.context[key].append(message)
        with self.db:
            self._insert(key, message, self.now)
            self.db.execute("UPDATE sessions SET message_count = message_count + 1 WHERE id=?", (key,))

    def ask(self, key: str, prompt: str) -> None:
        self.say(key, "user", prompt, after_s=40.5)

    def answer(self, key: str, words: str, **columns: Any) -> None:
        self.say(key, "assistant", words, finish_reason="stop", **columns)

    def call(self, key: str, call: str, name: str, arguments: Message, result: str, **columns: Any) -> None:
        made = [{"id": call, "call_id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]
        self.say(key, "assistant", "", tool_calls=json.dumps(made), finish_reason="tool_calls", **columns)
        self.say(key, "tool", result, tool_call_id=call, tool_name=name)

    def resume(self, key: str) -> None:
        """Another process: what was loaded from the database has its time."""
        self.context[key] = [
            {name: value for name, value in zip([d[0] for d in cursor.get_description()], row, strict=True) if value is not None}
            for cursor in [
                self.db.execute(
                    "SELECT role, content, tool_call_id, tool_calls, tool_name, finish_reason, timestamp FROM messages"
                    " WHERE session_id=? AND active=1 ORDER BY id",
                    (key,),
                )
            ]
            for row in cursor
        ]

    def rewind(self, key: str, count: int) -> None:
        """/undo: the last rows are taken back."""
        with self.db:
            self.db.execute(
                "UPDATE messages SET active=0 WHERE id IN"
                " (SELECT id FROM messages WHERE session_id=? AND active=1 ORDER BY id DESC LIMIT ?)",
                (key, count),
            )
            self.db.execute("UPDATE sessions SET rewind_count = rewind_count + 1 WHERE id=?", (key,))
        del self.context[key][-count:]

    def _kept(self, key: str, summary: str, head: int, tail: int, extra: list[Message]) -> list[Message]:
        context = self.context[key]
        middle = {"role": "user", "content": COMPACTED + summary}
        return [*context[:head], middle, *(context[-tail:] if tail else []), *extra]

    def compact(
        self, key: str, summary: str, head: int, tail: int, *, extra: list[Message] | None = None, newer: bool = False
    ) -> None:
        """In place. `newer`: as later versions do it, who mark what is kept as if it were taken back."""
        self.now += 2.2
        kept = self._kept(key, summary, head, tail, extra or [])
        with self.db:
            if newer and tail:
                self.db.execute(
                    "UPDATE messages SET active=0 WHERE id IN"
                    " (SELECT id FROM messages WHERE session_id=? AND active=1 ORDER BY id DESC LIMIT ?)",
                    (key, tail),
                )
            self.db.execute("UPDATE messages SET active=0, compacted=1 WHERE session_id=? AND active=1", (key,))
            at = self.now
            for message in kept:
                self._insert(key, message, at)
                at = max(at + 1e-6, message.get("timestamp", at) + 1e-6)
            self.update(key, message_count=len(kept))
        self.context[key] = kept

    def split(self, key: str, child: str, summary: str, head: int, tail: int, **columns: Any) -> None:
        """Into a new session."""
        kept = self._kept(key, summary, head, tail, [])
        self.update(key, ended_at=self.now, end_reason="compression")
        self.session(child, parent_session_id=key, **columns)
        for message in kept:
            self.say(child, after_s=0.004, **message)

    def branch(self, key: str, child: str, **columns: Any) -> None:
        self.session(child, parent_session_id=key, model_config=json.dumps({"_branched_from": key}), **columns)
        for message in self.context[key]:
            self.say(child, after_s=0.003, **{k: v for k, v in message.items() if k != "timestamp"})


SHOP, TRIP, TRIP_2 = "20261101_080030_a1b2c3", "20261101_090000_d4e5f6", "20261101_091500_0a1b2c"
BRANCH, HELPER, GHOST = "20261101_100000_b0b1b2", "20261101_100500_c0c1c2", "20261101_110000_e0e1e2"


def _shop(h: Hermes) -> None:
    """Two compactions in one process, so that all is stamped again; "continue" three times; some of it taken back; a crash."""
    s = h.session(SHOP, title="Slow checkout page", system_prompt="You are Hermes.")
    h.ask(s, "Why is the checkout page slow?")
    h.call(
        s,
        "call_7f1c0d2e9a31",
        "terminal",
        {"command": "grep -rn SELECT app"},
        json.dumps({"output": "app/cart.py:12: SELECT …", "exit_code": 0, "error": None}),
        reasoning="Look at the queries first.",
    )
    h.answer(s, "The cart query runs once per item.")
    h.ask(s, "continue")
    failed = json.dumps({"output": "1 failed", "exit_code": 1, "error": None})
    h.call(s, "call_b8e2f4410c77", "terminal", {"command": "pytest -q"}, failed)
    h.answer(s, "A test fails; it expects the old query.")
    h.ask(s, "continue")
    h.answer(s, "Rewrote the query with one join.")
    h.ask(s, "Make the button blue.")
    h.answer(s, "The button is blue.")
    h.rewind(s, 2)
    h.ask(s, "continue")
    h.compact(s, "The cart query was slow; it is one join now.", head=3, tail=3)
    h.answer(s, "All tests pass now.")
    h.ask(s, "Write the changelog.")
    h.answer(s, "Done: CHANGELOG.md.")
    tasks = "[Your active task list was preserved across context compression]\n- [>] changelog. Write it"
    h.compact(s, "Query rewritten, tests pass, changelog written.", head=3, tail=2, extra=[{"role": "user", "content": tasks}])
    h.say(s, "narrator", "an unknown role")
    h.ask(s, "Deploy it.")
    h.call(
        s, "call_3d90aa51be02", "terminal", {"command": "make deploy"}, json.dumps({"output": "…", "exit_code": 0, "error": None})
    )


def _trip(h: Hermes) -> None:
    """A compaction by splitting; ended by the user."""
    s = h.session(TRIP, cwd="/home/dev/trips")
    h.ask(s, "Plan three days in Lisbon.")
    h.answer(s, "Day one: Alfama and the castle.")
    h.ask(s, "Add a museum.")
    h.call(s, "call_55aa66bb77cc", "web_search", {"query": "tile museum Lisbon"}, '{"results": ["Museu do Azulejo"]}')
    h.split(s, TRIP_2, "A trip of three days; day one is Alfama.", head=2, tail=3, cwd="/home/dev/trips", title="Lisbon")
    h.answer(TRIP_2, "Day two: the tile museum.")
    h.update(TRIP_2, ended_at=h.now + 5, end_reason="cli_close")


def _children(h: Hermes) -> None:
    h.branch(SHOP, BRANCH, title="Slow checkout page #2")
    h.ask(BRANCH, "Try an index instead.")
    h.answer(BRANCH, "An index helps less than the join.")
    h.session(HELPER, source="tool", parent_session_id=SHOP, model_config=json.dumps({"_delegate_from": SHOP}))
    h.ask(HELPER, "Count the tests.")
    h.answer(HELPER, "There are 41.")
    h.session(GHOST, source="tui")


def write(home: Path) -> None:
    h = Hermes(home / ".hermes" / "state.db")
    _shop(h)
    _trip(h)
    _children(h)
    h.close()


#: The ghost is in no list: an empty row is reported, not made into a session.
#: The commands that ran, and whether they failed; None where nobody knows.
COMMANDS: list[tuple[str, bool | None]] = [("grep -rn SELECT app", False), ("pytest -q", True), ("make deploy", False)]

EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"hermes:{SHOP}",
            "Slow checkout page",
            "/home/dev/shop",
            turns=[
                *completed("Why is the checkout page slow?", "continue", "continue", "Make the button blue.", "continue"),
                *completed("Write the changelog."),
                ("Deploy it.", "open"),
            ],
            roles=roles(user=8, assistant=9, tool=3, reasoning=1, summary=2),
            tool_calls=[
                {"name": "terminal", "error": False},
                {"name": "terminal", "error": True},
                {"name": "terminal", "error": False},
            ],
            compactions=[compaction(), compaction()],
            segments=3,
            marks={"rewound": 2, "meta": 1},
            unknown={"messages/narrator": 1},
        ),
        session(
            f"hermes:{TRIP}",
            "Lisbon",
            "/home/dev/trips",
            turns=completed("Plan three days in Lisbon.", "Add a museum."),
            roles=roles(user=2, assistant=3, tool=1, summary=1),
            tool_calls=[{"name": "web_search", "error": False}],
            compactions=[compaction()],
            segments=2,
        ),
        session(
            f"hermes:{BRANCH}",
            "Slow checkout page #2",
            "/home/dev/shop",
            turns=completed("Try an index instead."),
            # Copied: head, summary, tail, the list of tasks, the unknown role, the turn that crashed.
            roles=roles(user=5, assistant=4, tool=2, reasoning=1, summary=1),
            tool_calls=[{"name": "terminal", "error": False}, {"name": "terminal", "error": False}],
            lineage=[{"kind": "fork", "session": f"hermes:{SHOP}"}],
            marks={"copied": 11},
            unknown={"messages/narrator": 1},
        ),
        session(
            f"hermes:{HELPER}",
            "Count the tests.",
            "/home/dev/shop",
            turns=completed("Count the tests."),
            roles=roles(user=1, assistant=1),
            lineage=[{"kind": "subagent", "session": f"hermes:{SHOP}"}],
        ),
    ]
}
