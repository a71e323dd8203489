"""A home as OpenCode 1.18 leaves it: `opencode.db` with its real schema (from a real file), filled the way its code fills it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.agents.database import Database
from tests.agents.expected import compaction, completed, roles, session

SCHEMA = """
CREATE TABLE `project` (
          `id` text PRIMARY KEY,
          `worktree` text NOT NULL,
          `vcs` text,
          `name` text,
          `icon_url` text,
          `icon_url_override` text,
          `icon_color` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_initialized` integer,
          `sandboxes` text NOT NULL,
          `commands` text
        );
CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
CREATE TABLE `session_message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `type` text NOT NULL,
          `seq` integer NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_session_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
CREATE TABLE `event_sequence` (
          `aggregate_id` text PRIMARY KEY,
          `seq` integer NOT NULL,
          `owner_id` text
        );
CREATE TABLE `event` (
          `id` text PRIMARY KEY,
          `aggregate_id` text NOT NULL,
          `seq` integer NOT NULL,
          `type` text NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_event_aggregate_id_event_sequence_aggregate_id_fk` FOREIGN KEY (`aggregate_id`) REFERENCES `event_sequence`(`aggregate_id`) ON DELETE CASCADE
        );
CREATE TABLE `account` (
          `id` text PRIMARY KEY,
          `email` text NOT NULL,
          `url` text NOT NULL,
          `access_token` text NOT NULL,
          `refresh_token` text NOT NULL,
          `token_expiry` integer,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL
        );
CREATE UNIQUE INDEX `event_aggregate_seq_idx` ON `event` (`aggregate_id`,`seq`);
CREATE INDEX `message_session_time_created_id_idx` ON `message` (`session_id`,`time_created`,`id`);
CREATE INDEX `part_message_id_id_idx` ON `part` (`message_id`,`id`);
CREATE INDEX `part_session_idx` ON `part` (`session_id`);
CREATE INDEX `session_parent_idx` ON `session` (`parent_id`);
"""  # noqa: E501

Data = dict[str, Any]


class OpenCode(Database):
    """What OpenCode does to its database. Ids are ascending; every write is also an event."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SCHEMA)
        self.now = 1_793_520_000_000
        if self.fresh:
            self.db.execute(
                "INSERT INTO project(id, worktree, time_created, time_updated, sandboxes) VALUES ('global', '/', ?, ?, '[]')",
                (self.now, self.now),
            )

    def _id(self, kind: str) -> str:
        self.now += 7
        return f"{kind}_{self.now:x}001KfZ"

    def _event(self, session: str, kind: str, data: Data) -> None:
        self.db.execute(
            "INSERT INTO event_sequence VALUES (?, 0, NULL) ON CONFLICT(aggregate_id) DO UPDATE SET seq = seq + 1", (session,)
        )
        [[seq]] = self.db.execute("SELECT seq FROM event_sequence WHERE aggregate_id=?", (session,))
        self.db.execute("INSERT INTO event VALUES (?,?,?,?,?)", (self._id("evt"), session, seq, kind, json.dumps(data)))

    def session(self, key: str, title: str = "", parent: str | None = None, directory: str = "/home/dev/shop") -> str:
        self.now += 60_000
        self.db.execute(
            "INSERT INTO session"
            "(id, project_id, parent_id, slug, directory, path, title, version, model, time_created, time_updated)"
            " VALUES (?, 'global', ?, 'calm-otter', ?, '', ?, '1.18.33', ?, ?, ?)",
            (
                key,
                parent,
                directory,
                title or "New session - 2026-11-01T08:00:00.000Z",
                json.dumps({"id": "claude-sonnet-4", "providerID": "anthropic"}),
                self.now,
                self.now,
            ),
        )
        self._event(key, "session.created.1", {"sessionID": key})
        return key

    def update(self, session: str, **columns: Any) -> None:
        self.now += 5
        sets = ",".join(f"{name}=?" for name in (*columns, "time_updated"))
        self.db.execute(f"UPDATE session SET {sets} WHERE id=?", (*columns.values(), self.now, session))
        self._event(session, "session.updated.1", {"sessionID": session})

    def message(self, session: str, data: Data, key: str = "") -> str:
        key = key or self._id("msg")
        data = {"time": {"created": self.now}} | data
        self.db.execute(
            "INSERT INTO message VALUES (?,?,?,?,?) ON CONFLICT(id)"
            " DO UPDATE SET data=excluded.data, time_updated=excluded.time_updated",
            (key, session, self.now, self.now, json.dumps(data)),
        )
        self._event(session, "message.updated.1", {"sessionID": session, "info": {"id": key, **data}})
        return key

    def part(self, session: str, message: str, data: Data, key: str = "") -> str:
        key = key or self._id("prt")
        self.db.execute(
            "INSERT INTO part VALUES (?,?,?,?,?,?) ON CONFLICT(id)"
            " DO UPDATE SET data=excluded.data, time_updated=excluded.time_updated",
            (key, message, session, self.now, self.now, json.dumps(data)),
        )
        self._event(session, "message.part.updated.1", {"sessionID": session, "part": {"id": key, **data}})
        return key

    def ask(self, session: str, prompt: str, **extra: Any) -> str:
        self.now += 20_000
        message = self.message(session, {"role": "user", "agent": "build"})
        self.part(session, message, {"type": "text", "text": prompt} | extra)
        return message

    def answer(self, session: str, prompt: str, parts: list[Data], finish: str = "stop", **extra: Any) -> str:
        """As it happens: the message, its parts, then the message once more when it is done."""
        self.now += 1_500
        data: Data = {"role": "assistant", "parentID": prompt, "mode": "build"} | extra
        message = self.message(session, data)
        self.part(session, message, {"type": "step-start", "snapshot": "5dadd131"})
        for one in parts:
            self.part(session, message, one)
        if finish:
            self.part(session, message, {"type": "step-finish", "reason": finish, "cost": 0})
            time = {"created": self.now - 900, "completed": self.now}
            self.message(session, data | {"finish": finish, "time": time}, message)
        return message


def text(words: str) -> Data:
    return {"type": "text", "text": words, "time": {"start": 1, "end": 2}}


def tool(name: str, given: Data, output: str, code: int | None = None, error: str = "") -> Data:
    state: Data = {"status": "completed", "input": given, "output": output, "title": name, "time": {"start": 1_793_520_000_000}}
    state["metadata"] = {"exit": code} if code is not None else {}
    if error:
        state = {"status": "error", "input": given, "error": error, "time": {"start": 1_793_520_000_000}}
    return {"type": "tool", "tool": name, "callID": f"call_{name}_{len(output)}{len(error)}", "state": state}


SHOP, HELPER, TAKEN_BACK, EMPTY = "ses_e1f7shop", "ses_e1f6helper", "ses_e1f5back", "ses_e1f4empty"


def _shop(o: OpenCode) -> None:
    s = o.session(SHOP, "Slow checkout page")
    p = o.ask(s, "Why is the checkout page slow?")
    reasoning = {"type": "reasoning", "text": "Queries first.", "time": {"start": 1}}
    o.answer(s, p, [reasoning, tool("bash", {"command": "grep -rn SELECT app"}, "app/cart.py:12", 0)], "tool-calls")
    o.answer(s, p, [text("The cart query runs once per item.")])
    p = o.ask(s, "continue")
    o.answer(s, p, [text("Running the tests."), tool("bash", {"command": "pytest -q"}, "1 failed", 1)], "tool-calls")
    o.answer(s, p, [tool("edit", {"filePath": "cart.py"}, "", error="oldString not found")], "tool-calls")
    compaction = o.message(s, {"role": "user", "agent": "build"})
    o.part(s, compaction, {"type": "compaction", "auto": True, "overflow": False})
    o.answer(s, compaction, [text("The cart query is slow; a test fails.")], summary=True, mode="compaction")
    again = o.message(s, {"role": "user", "agent": "build"})
    o.part(s, again, text("Continue if you have next steps.") | {"synthetic": True, "metadata": {"compaction_continue": True}})
    o.answer(s, again, [text("The query is one join now.")])
    p = o.ask(s, "continue")
    o.part(s, p, {"type": "file", "mime": "image/png", "filename": "page.png", "url": "data:image/png;base64,AAAA"})
    aborted = {"name": "MessageAbortedError", "data": {"message": "The operation was aborted."}}
    o.answer(s, p, [text("Let me look at the")], "", error=aborted, time={"created": o.now, "completed": o.now + 80})
    p = o.ask(s, "Deploy it.")
    o.answer(s, p, [tool("task", {"description": "count the tests"}, "41"), {"type": "hologram", "depth": 3}], "tool-calls")
    o.answer(s, p, [text("")], "")  # killed here


def _helper(o: OpenCode) -> None:
    s = o.session(HELPER, "Count the tests (@general subagent)", SHOP)
    o.answer(s, o.ask(s, "Count the tests."), [text("41")])


def _taken_back(o: OpenCode) -> None:
    """A revert that is not yet final: the rows are still there."""
    s = o.session(TAKEN_BACK, directory="/home/dev/trips")
    o.answer(s, o.ask(s, "Plan three days in Lisbon."), [text("Day one: Alfama.")])
    p = o.ask(s, "Make it Porto.")
    o.answer(s, p, [text("Day one: Ribeira.")])
    o.update(s, revert=json.dumps({"messageID": p, "snapshot": "1377f0a3"}))


def write(home: Path) -> None:
    o = OpenCode(home / ".local" / "share" / "opencode" / "opencode.db")
    _shop(o)
    _helper(o)
    _taken_back(o)
    o.session(EMPTY)
    o.close()


#: The empty one is in no list: it is reported, not made into a session.
#: The commands that ran, and whether they failed; None where nobody knows.
COMMANDS: list[tuple[str, bool | None]] = [("grep -rn SELECT app", False), ("pytest -q", True)]

EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"opencode:{SHOP}",
            "Slow checkout page",
            "/home/dev/shop",
            turns=[
                *completed("Why is the checkout page slow?", "continue"),
                ("continue", "cancelled"),
                ("Deploy it.", "open"),
            ],
            roles=roles(user=6, assistant=8, tool=4, reasoning=1, summary=1),
            tool_calls=[
                {"name": "bash", "error": False},
                {"name": "bash", "error": True},
                {"name": "edit", "error": True},
                {"name": "task", "error": False},
            ],
            compactions=[compaction("auto")],
            segments=2,
            marks={"synthetic": 1},
            unknown={"part/hologram": 1},
        ),
        session(
            f"opencode:{HELPER}",
            "Count the tests (@general subagent)",
            "/home/dev/shop",
            turns=completed("Count the tests."),
            roles=roles(user=1, assistant=1),
            lineage=[{"kind": "subagent", "session": f"opencode:{SHOP}"}],
        ),
        session(
            f"opencode:{TAKEN_BACK}",
            "Plan three days in Lisbon.",
            "/home/dev/trips",
            turns=completed("Plan three days in Lisbon.", "Make it Porto."),
            roles=roles(user=2, assistant=2),
            marks={"rewound": 2},
        ),
    ]
}
