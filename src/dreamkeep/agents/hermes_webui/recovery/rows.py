"""The WebUI's sessions in `state.db`, and a session file made of their rows. Reads whichever columns there are.

Schema 22 of Hermes 0.19 has `cwd`, `git_branch`, `git_repo_root`; other versions have `workspace` and `worktree_*`, some have no
`active`. Only active rows are the session as it is now: `active=0, compacted=1` was summarised away, `active=0, compacted=0` was
taken back by the user. A row without a `source`, of another surface, or of a subagent (`_delegate_from`) is no WebUI session.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dreamkeep.agents.contract import Source
from dreamkeep.agents.hermes import discovery as hermes
from dreamkeep.agents.hermes_webui.recovery import documents
from dreamkeep.agents.shared import database
from dreamkeep.agents.shared.database import Base, quoted
from dreamkeep.agents.shared.values import text
from dreamkeep.capture import find
from dreamkeep.host import Host

_PACKED = ("\x00json:", "\x01json:")  # in front of content that is no plain text
_KEPT_JSON = ("reasoning_details", "codex_reasoning_items", "codex_message_items")
_KEPT_TEXT = ("reasoning", "reasoning_content", "finish_reason")
_WORKTREE = ("worktree_path", "worktree_branch", "worktree_repo_root", "worktree_created_at")
_TITLE = 64


class WebuiRow(NamedTuple):
    """`live`: the count of its active messages. `worktree`: it has one, so it is a session even without a message."""

    database: str
    live: int
    worktree: bool


def databases(host: Host, home: str, environment: Mapping[str, str]) -> list[str]:
    found = find.everywhere(host, home, environment, [hermes.AGENT])
    return [source.path for source in found if isinstance(source, Source)]


def webui_rows(host: Host, path: str) -> dict[str, WebuiRow]:
    return database.ask(host, path, lambda base: _rows(base, path))


def _rows(base: Base, path: str) -> dict[str, WebuiRow]:
    base.need("Hermes", "sessions", "messages")
    columns = base.columns("sessions")
    if "source" not in columns:
        return {}
    trees = " OR ".join(f"coalesce({quoted(name)}, '') <> ''" for name in columns if name in _WORKTREE) or "0"
    delegate = "coalesce(instr(model_config, '\"_delegate_from\"'), 0)" if "model_config" in columns else "0"
    active = " WHERE active IS NULL OR active" if "active" in base.columns("messages") else ""
    counts = dict(base.ask(f"SELECT session_id, count(*) FROM messages{active} GROUP BY session_id"))
    asked = f"SELECT id, {trees}, {delegate} FROM sessions WHERE source = 'webui'"
    return {
        str(sid): WebuiRow(path, int(counts.get(sid, 0)), bool(tree)) for sid, tree, delegated in base.ask(asked) if not delegated
    }


class DatabaseSession(NamedTuple):
    """A session of the database, as a document and with all its messages."""

    document: documents.Document
    messages: documents.WebuiMessages


def read_database_session(host: Host, path: str, sid: str) -> DatabaseSession | None:
    """None when the database has no such row."""
    return database.ask(host, path, lambda base: _read_session(base, sid))


def _read_session(base: Base, sid: str) -> DatabaseSession | None:
    base.need("Hermes", "sessions", "messages")
    if base.version("sessions", sid) is None:
        return None
    row = _exact(base, "sessions", sid)
    found = [
        _exact(base, "messages", key) for (key,) in base.ask("SELECT id FROM messages WHERE session_id = ? ORDER BY id", sid)
    ]
    live = [message(one) for one in found if _active(one)]
    rewound = [message(one) for one in found if _rewound(one)]
    return DatabaseSession(
        sidecar(row, live), documents.WebuiMessages(rewound, [message(one) for one in found if not _rewound(one)])
    )


def _exact(base: Base, table_: str, key: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base.line(table_, key))["row"]
    return found


def _active(row: Mapping[str, Any]) -> bool:
    active = row.get("active", 1)
    return active is None or bool(active)


def _rewound(row: Mapping[str, Any]) -> bool:
    return not _active(row) and not row.get("compacted")


def message(row: Mapping[str, Any]) -> documents.Message:
    """A row of `messages` in the WebUI's form. Pure."""
    return {"role": _column_text(row.get("role")), "content": _content(row.get("content")), **dict(_members(row))}


def _members(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(row.get("timestamp"), (int, float)):
        yield "timestamp", row["timestamp"]
    if calls := _parsed(row.get("tool_calls")):
        yield "tool_calls", calls
    if called := _column_text(row.get("tool_call_id")):
        yield "tool_call_id", called
    if name := _column_text(row.get("tool_name")):
        yield "name", name
    for column in _KEPT_TEXT:
        if said := _column_text(row.get(column)):
            yield column, said
    for column in _KEPT_JSON:
        if kept := _parsed(row.get(column)):
            yield column, kept


def sidecar(row: Mapping[str, Any], messages: list[documents.Message]) -> documents.Document:
    """A row of `sessions` and its messages as a session file. Pure. Whatever the row lacks is as in a new session."""
    started = _number(row.get("started_at"))
    times = [at for at in map(documents.time_of, messages) if at is not None]
    prompt = next((documents.text_of(one) for one in messages if one.get("role") == "user"), "")
    path = _column_text(row.get("workspace")) or _column_text(row.get("cwd")) or _column_text(row.get("worktree_path"))
    made = documents.empty_document(
        _column_text(row.get("id")),
        title=_column_text(row.get("title")) or prompt.partition("\n")[0][:_TITLE] or "Untitled",
        workspace=path,
        model=_column_text(row.get("model")) or None,
        created_at=started,
        updated_at=max(times, default=started),
        archived=bool(row.get("archived")),
        profile=_column_text(row.get("profile_name")) or _column_text(row.get("profile")) or None,
        input_tokens=_count(row.get("input_tokens")),
        output_tokens=_count(row.get("output_tokens")),
        cache_read_tokens=_count(row.get("cache_read_tokens")),
        cache_write_tokens=_count(row.get("cache_write_tokens")),
        estimated_cost=row.get("estimated_cost_usd"),
        parent_session_id=_column_text(row.get("parent_session_id")) or None,
        message_count=len(messages),
        messages=messages,
        # The active messages are what the model was given.
        context_messages=[dict(one) for one in messages],
    )
    made |= {name: row[name] if name.endswith("_at") else _column_text(row[name]) for name in _WORKTREE if row.get(name)}
    # Not the WebUI's own members, but it keeps them until it saves, and they are nowhere else in the file.
    made |= {name: _column_text(row[name]) for name in ("cwd", "git_branch", "git_repo_root") if row.get(name)}
    return made | {"_recovered_from_state_db": True}


def _content(value: object) -> Any:
    plain = _column_text(value)
    if not plain.startswith(_PACKED):
        return plain
    parsed = _parsed(plain[len(_PACKED[0]) :])
    return plain if parsed is None else parsed


def _column_text(value: object) -> str:
    """A column's text; for what is no UTF-8 or no text, as much as can be read."""
    if isinstance(value, Mapping):
        packed = text(value.get("$text")) or text(value.get("$blob"))
        return base64.b64decode(packed).decode("utf-8", "replace") if packed else ""
    return value if isinstance(value, str) else "" if value is None else str(value)


def _parsed(value: object) -> Any:
    try:
        return json.loads(_column_text(value)) if value else None
    except (ValueError, RecursionError):
        return None


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
