"""A home folder as Hermes WebUI leaves it: tools, an error, a crash with a pending prompt, compactions in place and by split, an
undo with its backup, a fork, and the files beside that are no sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.agents.expected import compaction, completed, roles, session

MAIN = "20260512_081500_a1b2c3"
CRASHED = "4f6d8a0b2c1e"
SPLIT_FROM = "20260512_090000_d4e5f6"
SPLIT_TO = "20260512_093000_0a1b2c"
UNDONE = "7c9e1f3a5b2d"
FORK = "fork-of-label"
FOLDER = "/home/mira/bakery"
_MARKER = "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier: the dough was too wet; 65 % water works."


def said(role: str, content: Any, at: float, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "timestamp": at, **more}


def document(session: str, messages: list[dict[str, Any]], context: Any = None, **more: Any) -> str:
    """Metadata first, then the arrays, as the WebUI saves it."""
    members: dict[str, Any] = {
        "session_id": session,
        "title": "Untitled",
        "workspace": FOLDER,
        "model": "hermes-4-70b",
        "created_at": 1778573700.25,
        "updated_at": 1778573900.5,
        "pinned": False,
        "archived": False,
        "project_id": None,
        "profile": "default",
        "active_stream_id": None,
        "pending_user_message": None,
        "pending_attachments": [],
        "pending_started_at": None,
        "compression_anchor_visible_idx": None,
        "compression_anchor_message_key": None,
        "compression_anchor_summary": None,
        "pre_compression_snapshot": False,
        "truncation_watermark": None,
        "truncation_boundary": None,
        "clear_generation": None,
        "intentional_shrink_generation": None,
        "parent_session_id": None,
        "worktree_path": None,
        "worktree_branch": None,
    }
    members |= more
    members |= {"message_count": len(messages), "messages": messages, "tool_calls": []}
    members["context_messages"] = messages if context is None else context
    return json.dumps(members, ensure_ascii=False, indent=2)


def main_messages() -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls flour"}'}}
    return [
        said("user", "How much rye is left?", 1778573700.5),
        said("assistant", "", 1778573701.0, tool_calls=[call], reasoning="I look into the store."),
        said(
            "tool", '{"output": "rye.txt", "exit_code": 0, "error": null}', 1778573702.0, tool_call_id="call_1", name="terminal"
        ),
        said("assistant", "Two sacks.", 1778573703.0),
        said("user", "Order more.", 1778573710.0),
        said("assistant", "**Error:** the provider refused the request.", 1778573711.0, _error=True),
        said(
            "user", [{"type": "text", "text": "Order more."}, {"type": "image_url", "image_url": {"url": "data:,"}}], 1778573720.0
        ),
        said("assistant", "I have ordered", 1778573721.0, _partial=True),
        said("user", "Go on.", 1778573730.0),
        said("assistant", "Ordered: three sacks.", 1778573731.0),
    ]


def undone_messages() -> list[dict[str, Any]]:
    return [
        said("user", "Write the label.", 1778573800.0),
        said("assistant", "Rye bread, 1 kg.", 1778573801.0),
        said("user", "In Latin.", 1778573802.0),
        said("assistant", "Panis secalinus.", 1778573803.0),
    ]


def _turn(event: str, turn: str, at: float, **more: Any) -> str:
    record = {
        "version": 1,
        "event": event,
        "session_id": CRASHED,
        "turn_id": turn,
        "created_at": at,
        "stream_id": f"s{turn}",
        **more,
    }
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def turn_lines() -> list[str]:
    done, cut = "20260512T081000Z-0000aaaa0001", "20260512T081100Z-0000aaaa0002"
    return [
        _turn("submitted", done, 1778573400.0, role="user", content="Is the oven on?", attachments=[], workspace=FOLDER),
        _turn("worker_started", done, 1778573400.1),
        _turn("assistant_started", done, 1778573400.5),
        _turn("completed", done, 1778573402.0, terminal=True),
        _turn("submitted", cut, 1778573460.0, role="user", content="Bake forty rolls.", attachments=[], workspace=FOLDER),
        _turn("worker_started", cut, 1778573460.1),
        _turn("interrupted", cut, 1778573590.0, terminal=True, reason="server_restart"),
        _turn("napped", cut, 1778573591.0),
    ]


def _split() -> dict[str, str]:
    old = [said("user", "The dough is too wet.", 1778573600.0), said("assistant", "Use 65 % water.", 1778573601.0)]
    new = [
        said("assistant", _MARKER, 1778573610.0),
        said("user", "And the salt?", 1778573611.0),
        said("assistant", "Two per cent.", 1778573612.0),
    ]
    return {
        f"{SPLIT_FROM}.json": document(SPLIT_FROM, old, pre_compression_snapshot=True, title="Wet dough"),
        f"{SPLIT_TO}.json": document(SPLIT_TO, new, parent_session_id=SPLIT_FROM, title="Wet dough"),
    }


def write(home: Path) -> None:
    sessions = home / ".hermes" / "webui" / "sessions"
    (sessions / "_turn_journal").mkdir(parents=True)
    (sessions / "_run_journal" / CRASHED).mkdir(parents=True)
    messages = main_messages()
    anchor = {"role": "assistant", "ts": 1778573703.0, "text": "Two sacks.", "attachments": 0}
    compacted = {
        "compression_anchor_message_key": anchor,
        "compression_anchor_visible_idx": 3,
        "compression_anchor_summary": "Compressed: 4 → 1 messages",
        "compression_anchor_mode": "manual",
    }
    crashed = [said("user", "Is the oven on?", 1778573400.0), said("assistant", "Yes, 230 degrees.", 1778573402.0)]
    pending = {"pending_user_message": "Bake forty rolls.", "pending_started_at": 1778573460.0, "active_stream_id": "s-2"}
    undone = undone_messages()
    shrunk = {
        "truncation_watermark": 1778573801.0,
        "truncation_boundary": 1778573801.0,
        "intentional_shrink_generation": "f" * 32,
    }
    context = [said("user", _MARKER, 1778573704.0), *messages[4:]]
    files = {
        f"{MAIN}.json": document(MAIN, messages, context, title="Rye for the bakery", **compacted),
        f"{CRASHED}.json": document(CRASHED, crashed, **pending),
        f"_turn_journal/{CRASHED}~4711.jsonl": "\n".join(turn_lines()) + "\n",
        f"_run_journal/{CRASHED}/s-2.jsonl": _run(),
        **_split(),
        f"{UNDONE}.json": document(UNDONE, undone[:2], **shrunk),
        f"{UNDONE}.json.bak": document(UNDONE, undone),
        f"{FORK}.json": document(FORK, undone[:1], parent_session_id=UNDONE, session_source="fork"),
        "_index.json": json.dumps([{"session_id": MAIN, "title": "Rye for the bakery"}]),
        "_deleted_webui_sessions.json": '{"version": 1, "ids": ["gone"',
        f"{MAIN}.json.tmp.4711.139": "half a docu",
    }
    for name, text in files.items():
        (sessions / name).write_text(text, encoding="utf-8")


def _run() -> str:
    about = {"version": 1, "run_id": "s-2", "session_id": CRASHED}
    events = [("token", {"text": "Heating "}), ("token", {"text": "up"}), ("interrupted", {})]
    records = [
        {
            **about,
            "event_id": f"s-2:{n}",
            "seq": n,
            "event": event,
            "type": event,
            "created_at": 1778573461.0 + n,
            "payload": payload,
        }
        for n, (event, payload) in enumerate(events)
    ]
    return "".join(json.dumps(one) + "\n" for one in records)


#: The commands that ran, and whether they failed; None where nobody knows.
COMMANDS: list[tuple[str, bool | None]] = [("ls flour", False)]

EXPECTED: dict[str, Any] = {
    "sessions": [
        session(
            f"hermes-webui:{MAIN}",
            "Rye for the bakery",
            FOLDER,
            turns=[
                ("How much rye is left?", "completed"),
                ("Order more.", "failed"),
                ("Order more.\n[image]", "interrupted"),
                ("Go on.", "completed"),
            ],
            roles=roles(user=4, assistant=5, tool=1, reasoning=1),
            tool_calls=[{"name": "terminal", "error": False}],
            compactions=[compaction("manual")],
            segments=2,
            marks={"synthetic": 1, "partial": 1},
        ),
        # The journal of turns and the document tell of the same two turns; the second's prompt is only in the journal's words.
        session(
            f"hermes-webui:{CRASHED}",
            "Is the oven on?",
            FOLDER,
            turns=[("Is the oven on?", "completed"), ("Bake forty rolls.", "interrupted")],
            roles=roles(user=2, assistant=1),
            unknown={"turn/napped": 1},
        ),
        session(
            f"hermes-webui:{SPLIT_FROM}",
            "Wet dough",
            FOLDER,
            turns=completed("The dough is too wet."),
            roles=roles(user=1, assistant=1),
        ),
        session(
            f"hermes-webui:{SPLIT_TO}",
            "Wet dough",
            FOLDER,
            turns=completed("And the salt?"),
            roles=roles(user=1, assistant=1, summary=1),
            compactions=[compaction()],
            segments=2,
            lineage=[{"kind": "continuation", "session": f"hermes-webui:{SPLIT_FROM}"}],
        ),
        # What was taken back before anybody looked is only in the backup: words, no turn.
        session(
            f"hermes-webui:{UNDONE}",
            "Write the label.",
            FOLDER,
            turns=completed("Write the label."),
            roles=roles(user=2, assistant=2),
        ),
        session(
            f"hermes-webui:{FORK}",
            "Write the label.",
            FOLDER,
            turns=[("Write the label.", "open")],
            roles=roles(user=1, assistant=0),
            lineage=[{"kind": "fork", "session": f"hermes-webui:{UNDONE}"}],
        ),
    ]
}
