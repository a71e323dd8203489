"""A session at a glance: who, where, since when, in which state, how much. A pure fold over its events."""

from __future__ import annotations

from typing import Any, NamedTuple

from dreamkeep.event import Event, Kind, text_in
from dreamkeep.session.messages import messages

ACTIVE = "active"
SUSPENDED = "suspended"
ENDED = "ended"
#: What each lifecycle event makes of the state.
STATE_AFTER = {
    Kind.SESSION_OPENED: ACTIVE,
    Kind.SESSION_RESUMED: ACTIVE,
    Kind.SESSION_SUSPENDED: SUSPENDED,
    Kind.SESSION_ENDED: ENDED,
}
_TITLE_LENGTH = 80


class Summary(NamedTuple):
    id: str
    agent: str
    native_id: str
    project: str = ""
    cwd: str = ""
    title: str = ""
    started_at: str | None = None
    last_at: str | None = None
    ended_at: str | None = None
    state: str = ACTIVE
    turns: int = 0
    messages: int = 0
    bytes: int = 0


def empty(session_id: str) -> Summary:
    agent, _, native_id = session_id.partition(":")
    return Summary(session_id, agent, native_id)


def step(summary: Summary, event: Event) -> Summary:
    kind = event.kind
    body = event.body
    change: dict[str, Any] = {"last_at": event.at, "messages": summary.messages + len(messages(0, event))}
    if summary.started_at is None:
        change["started_at"] = event.at
    if kind in (Kind.TURN_SUBMITTED, Kind.TURN_RECORDED):
        change["turns"] = summary.turns + 1
        change["title"] = summary.title or title_of(body["prompt"])
    elif kind in STATE_AFTER:
        change["state"] = STATE_AFTER[kind]
        change["ended_at"] = event.at if kind == Kind.SESSION_ENDED else None
        for key in ("project", "cwd", "title"):
            change[key] = text_in(body, key, getattr(summary, key))
    elif kind == Kind.SESSION_TITLED:
        change["title"] = text_in(body, "title")
    return summary._replace(**change)


def title_of(prompt: str) -> str:
    """The first line that says something."""
    for line in prompt.split("\n"):
        words = " ".join(line.split())
        if words:
            return words if len(words) <= _TITLE_LENGTH else words[: _TITLE_LENGTH - 1] + "…"
    return ""
