"""A session at a glance: who, where, since when, in which state, how much. A pure fold over its events."""

from __future__ import annotations

from typing import Any, NamedTuple

from dreamkeep.event import RAW, Event, Kind, text_in
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
#: Why `hygiene` ends a session: nothing came for long.
STALE = "stale"
#: Why somebody ends or suspends a session from outside, perhaps long after its last message.
BY_HAND = "by hand"
_TITLE_LENGTH = 80
_QUIET = (Kind.SESSION_ENDED, Kind.SESSION_SUSPENDED)
_SILENT = (STALE, BY_HAND)
_ABOUT_SOURCES = frozenset((Kind.SOURCE_OPENED, Kind.SOURCE_CHANGED, Kind.LINEAGE_FOUND))


class Summary(NamedTuple):
    id: str
    agent: str
    native_id: str
    project: str = ""
    cwd: str = ""
    title: str = ""
    #: Times are RFC 3339 in UTC with a fixed width, so they compare as text. None: nothing in the session has a time.
    started_at: str | None = None
    last_at: str | None = None
    ended_at: str | None = None
    state: str = ACTIVE
    turns: int = 0
    messages: int = 0
    bytes: int = 0
    segments: int = 1
    compactions: int = 0
    #: (kind, session) of each.
    lineage: tuple[tuple[str, str], ...] = ()


def empty(session_id: str) -> Summary:
    agent, _, native_id = session_id.partition(":")
    return Summary(session_id, agent, native_id)


def step(summary: Summary, event: Event) -> Summary:
    kind = event.kind
    body = event.body
    if kind in RAW or kind in _ABOUT_SOURCES:
        return summary  # their facts say it
    change: dict[str, Any] = {"messages": summary.messages + len(messages(0, event))}
    quiet = kind in _QUIET and body.get("reason") in _SILENT
    if kind != Kind.SESSION_PLACED and not body.get("captured") and not body.get("recovered") and not quiet:
        # Captured records have their own times; ours may be much later. Nor is it news of the session that nothing came for long.
        change["last_at"] = max(summary.last_at or "", event.at)  # a late event does not make it older
        change["started_at"] = summary.started_at or event.at
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
    elif kind == Kind.SESSION_PLACED:
        change["cwd"] = summary.cwd or text_in(body, "cwd", "")
        change["project"] = summary.project or text_in(body, "project", "")
    return summary._replace(**change)


def title_of(prompt: str) -> str:
    """The first line with words."""
    for line in prompt.split("\n"):
        words = " ".join(line.split())
        if words:
            return words if len(words) <= _TITLE_LENGTH else words[: _TITLE_LENGTH - 1] + "…"
    return ""
