"""Check and look up what a caller names. An error says what would be right."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dreamkeep.errors import BadUsage, NotFound

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.host import Host
    from dreamkeep.index.store import Store


def check_positive(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadUsage(f"{name} must be at least 1, not {value!r}", where=name, next="Give a positive integer.")


def parse_moment(text: str | None, name: str, *, end: bool = False) -> str | None:
    """A time as records have it, so that they compare as texts. A day begins at midnight or, with `end`, is included as a
    whole."""
    if text is None:
        return None
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, AttributeError, OverflowError):
        raise BadUsage(
            f"{name} must be a date or a time, not {text!r}", where=name, next="Write 2026-05-31 or 2026-05-31T12:00:00Z."
        ) from None
    if end and len(text.strip()) == 10:
        moment += timedelta(days=1, seconds=-1)
    # Records have fractions of a second or not, and a point sorts before a Z.
    return moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + ("Z" if end else "")


def check_folder_exists(host: Host, path: str) -> None:
    """Refuse a path in a missing folder: it is more likely a typing error than a wish for a new folder."""
    folder = os.path.dirname(host.real_path(path))
    at = host.stat(folder)
    if at is None or not at.is_folder:
        raise BadUsage("no such folder", where=folder, next="Create it first, or name another file. Nothing was written.")


def pick_one(matches: Sequence[str], text: str, what: str) -> str:
    """The only match; an error where there is none, or more than one."""
    if not text:
        raise BadUsage(f"the {what} id is empty", next="`dreamkeep sessions` lists them.")
    if not matches:
        raise NotFound(f"no {what} {text!r}", next="`dreamkeep sessions` lists them.")
    if len(matches) > 1:
        some = ", ".join(matches[:5]) + (", …" if len(matches) > 5 else "")
        raise NotFound(f"{text!r} matches {len(matches)} {what}s", where=some, next="Give more of the id.")
    return matches[0]


def find_session(store: Store, text: str, *, for_good: bool = False, half: Sequence[str] = ()) -> str:
    """A session's full id, from that id, the agent's own id, or a unique prefix. The full name of a deleted session never
    matches another one that begins with it. `for_good`: the caller can't undo what it does, so a prefix must not match a deleted
    session either: the same command given twice would take another session. `half`: sessions of that name that count although
    their journal may be gone: unfinished deletions, and lost sessions of which words are left."""
    from shlex import quote

    if text in half:
        return text
    matches = store.matching(text)
    if half:
        matches = [*half, *(one for one in matches if text in _names(one) and one not in half)]
    elif text and not any(text in _names(one) for one in matches):
        dead = store.tombstones()
        if gone := [one for one in dead if text in _names(one)]:
            step = f"`dreamkeep undelete {quote(gone[0])}` allows it to be captured again; what was deleted stays deleted."
            raise NotFound("that session was deleted", where=", ".join(gone), next=step)
        begun = [one for one in dead if any(name.startswith(text) for name in _names(one))] if for_good else []
        if matches and begun:
            step = f"To delete {' or '.join(matches[:2])}, give the full id."
            raise NotFound(f"a deleted session also begins with {text!r}", where=begun[0], next=step)
    return pick_one(matches, text, "session")


def resolve_session(context: KeepContext, text: str) -> str:
    return context.ask(lambda store: find_session(store, text))


def find_sessions_named(store: Store, text: str, gone: Iterable[str] = ()) -> list[str]:
    """Sessions with that id, or else with that native id. They are looked up in the index as it is, or else in insights and
    tasks, which may have words of a session whose journal is gone. `gone`: sessions whose journals are. Never a deleted one."""
    from dreamkeep.memory.memory import Memory
    from dreamkeep.memory.tables import INSIGHTS, TASKS

    dead = store.tombstones()
    known = [one for one in store.matching(text) if text in _names(one) and one not in dead]
    if known or not text:
        return known
    memory = Memory.load((table, *row) for table in (INSIGHTS, TASKS) for row in store.memory_table(table))
    sources = {quote.session for one in memory.insights.values() for quote in one.evidence}
    sources.update(session for one in memory.tasks.values() for session in one.sessions)
    sources.update(gone)
    called = sorted(one for one in sources if text in _names(one) and one.partition(":")[2] and one not in dead)
    return [one for one in called if one == text] or called


def _names(session: str) -> tuple[str, str]:
    return session, session.partition(":")[2]


def find_project(context: KeepContext, text: str) -> str:
    name = find_folder_project(context, text)
    return context.ask_memory(lambda memory: memory.current_project(name)) if name and context.exists() else name


def find_folder_project(context: KeepContext, text: str) -> str:
    """The project of a folder, as its files say. Other names are returned unchanged."""
    if not text.startswith(("/", "~", ".")):
        return text
    from dreamkeep.capture.projects.project import project_of

    return project_of(context.host, os.path.abspath(os.path.expanduser(text)), os.uname().nodename)
