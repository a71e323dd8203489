"""A talk as rows of Hermes' `state.db`: one of `sessions`, one of `messages` for each message.

After a compaction in place the rows before the summary are set aside (`active=0, compacted=1`): resume sees the summary and what
follows. A summary is known by how it begins. Rows are in the order of their time, so times only grow (talk.py sees to that).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from dreamkeep.agents.shared import talk as t
from dreamkeep.agents.shared.talk import Conversion, ModelMessage, RestoredFile, Row, Talk, TalkStep
from dreamkeep.host import Host

_SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY]"
#: Hermes and our reader recognise a summary by these beginnings.
SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")

#: What this format can't hold.
JOINED = "consecutive thoughts, joined into one"
BEGUN = "summaries that got the prefix by which Hermes recognizes one"

_COLUMNS = {
    "sessions": """
        id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, session_key TEXT, chat_id TEXT, chat_type TEXT, thread_id TEXT,
        display_name TEXT, origin_json TEXT, expiry_finalized INTEGER DEFAULT 0, model TEXT, model_config TEXT,
        system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT,
        message_count INTEGER DEFAULT 0, tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0,
        output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0,
        reasoning_tokens INTEGER DEFAULT 0, cwd TEXT, git_branch TEXT, git_repo_root TEXT, billing_provider TEXT,
        billing_base_url TEXT, billing_mode TEXT, estimated_cost_usd REAL, actual_cost_usd REAL, cost_status TEXT,
        cost_source TEXT, pricing_version TEXT, title TEXT, api_call_count INTEGER DEFAULT 0, handoff_state TEXT,
        handoff_platform TEXT, handoff_error TEXT, compression_failure_cooldown_until REAL, compression_failure_error TEXT,
        compression_fallback_streak INTEGER NOT NULL DEFAULT 0, profile_name TEXT, rewind_count INTEGER NOT NULL DEFAULT 0,
        archived INTEGER NOT NULL DEFAULT 0, FOREIGN KEY (parent_session_id) REFERENCES sessions(id)""",
    "messages": """
        id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL, content TEXT,
        tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, effect_disposition TEXT, timestamp REAL NOT NULL,
        token_count INTEGER, finish_reason TEXT, reasoning TEXT, reasoning_content TEXT, reasoning_details TEXT,
        codex_reasoning_items TEXT, codex_message_items TEXT, platform_message_id TEXT, observed INTEGER DEFAULT 0,
        active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0, api_content TEXT""",
}
_SEARCHED = "coalesce(new.content, '') || ' ' || coalesce(new.tool_name, '') || ' ' || coalesce(new.tool_calls, '')"


def schema() -> str:
    """The tables with sessions, as of version 22, with their search index. Hermes makes the others when it opens the file."""
    parts = ["CREATE TABLE schema_version(version INTEGER NOT NULL); INSERT INTO schema_version VALUES (22);"]
    parts += [f"CREATE TABLE {name}({columns});" for name, columns in _COLUMNS.items()]
    parts += [
        "CREATE INDEX idx_messages_session ON messages(session_id, timestamp);",
        "CREATE INDEX idx_messages_session_active ON messages(session_id, active, timestamp);",
        "CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL;",
    ]
    for name, how in (("messages_fts", ""), ("messages_fts_trigram", ", tokenize='trigram'")):
        add = f"INSERT INTO {name}(rowid, content) VALUES (new.id, {_SEARCHED});"
        drop = f"DELETE FROM {name} WHERE rowid = old.id;"
        parts += [
            f"CREATE VIRTUAL TABLE {name} USING fts5(content{how});",
            f"CREATE TRIGGER {name}_insert AFTER INSERT ON messages BEGIN {add} END;",
            f"CREATE TRIGGER {name}_delete AFTER DELETE ON messages BEGIN {drop} END;",
            f"CREATE TRIGGER {name}_update AFTER UPDATE ON messages BEGIN {drop} {add} END;",
        ]
    return "\n".join(parts)


class HermesRows(NamedTuple):
    """`messages` without ids: the database assigns them."""

    native: str
    session: Row
    messages: tuple[Row, ...]
    lost: t.Losses


def write(talk: Talk) -> HermesRows:
    lost: t.Losses = Counter()
    native = named(talk)
    rows: list[dict[str, Any]] = []
    for step in t.grouped(talk.steps):
        if isinstance(step, ModelMessage):
            lost[JOINED] += len(step.thoughts) > 1
            lost[t.FAILED] += sum(result.failed and result.text != t.NO_RESULT for _, result in step.calls)
            rows += _write_message(step)
        elif step.kind == t.USER:
            rows.append(_row("user", step.text, step.at))
        else:
            lost[BEGUN] += not step.text.startswith(SUMMARIES)
            rows = [{**row, "active": 0, "compacted": 1} for row in rows]
            rows.append(_row("user", summary(step), step.at))
    live = [row for row in rows if row["active"]]
    session = {
        "id": native,
        "source": "cli",
        "model": talk.model or None,
        "started_at": t.seconds(talk.started_at),
        "message_count": len(live),
        "tool_call_count": sum(row["role"] == "tool" for row in live),
        "cwd": talk.cwd or None,
        "git_branch": talk.branch or None,
        "title": talk.title or None,
    }
    return HermesRows(native, session, tuple({"session_id": native, **row} for row in rows), lost)


def convert(host: Host, place: str, talk: Talk) -> Conversion:
    made = write(talk)
    rows: Mapping[str, tuple[Row, ...]] = {"sessions": (made.session,), "messages": made.messages}
    return Conversion(made.native, made.lost, (), f"{place}/state.db", rows)


def beside(host: Host, files: list[RestoredFile], cwd: str, moved: bool) -> list[RestoredFile]:
    return files  # the agent needs nothing else


def usual_path(native: str, cwd: str, started_at: str) -> str:
    return ""  # a session has no file of its own


def named(talk: Talk) -> str:
    """`YYYYMMDD_HHMMSS_xxxxxx`, as Hermes names sessions."""
    at = talk.started_at
    return f"{at[:10].replace('-', '')}_{at[11:19].replace(':', '')}_{t.chance(talk.session, 'hermes').hex()[:6]}"


def summary(step: TalkStep) -> str:
    return step.text if step.text.startswith(SUMMARIES) else f"{_SUMMARY} {step.text}"


def call(step: TalkStep) -> dict[str, Any]:
    given = json.dumps(step.input, ensure_ascii=False)
    return {"id": step.id, "call_id": step.id, "type": "function", "function": {"name": step.name, "arguments": given}}


def _row(role: str, content: str, at: str) -> dict[str, Any]:
    return {"role": role, "content": content, "timestamp": t.seconds(at), "active": 1, "compacted": 0}


def _write_message(said: ModelMessage) -> list[dict[str, Any]]:
    row = _row("assistant", said.words.text if said.words else "", said.at)
    if said.thoughts:
        row["reasoning"] = "\n\n".join(step.text for step in said.thoughts)
    if said.calls:
        row["tool_calls"] = json.dumps([call(step) for step, _ in said.calls], ensure_ascii=False)
        row["finish_reason"] = "tool_calls"
    elif said.last and said.words:
        row["finish_reason"] = "stop"
    results = [
        {**_row("tool", result.text, result.at), "tool_call_id": step.id, "tool_name": step.name} for step, result in said.calls
    ]
    return [row, *results]
