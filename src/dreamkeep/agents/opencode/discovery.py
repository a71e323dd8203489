"""OpenCode keeps all in one SQLite file: `$XDG_DATA_HOME/opencode/opencode.db`, `opencode-<channel>.db`, or as OPENCODE_DB
says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from dreamkeep.agents.contract import ROWS, Source
from dreamkeep.agents.shared.database import GONE, SAYS, Base, Fingerprint, Place, mark, quoted
from dreamkeep.agents.shared.folders import databases
from dreamkeep.host import Host

AGENT = "opencode"
_NAME = re.compile(r"opencode(-[\w.+-]+)?\.db")


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    share = environment.get("XDG_DATA_HOME") or f"{home}/.local/share"
    folder = f"{share}/opencode"
    found = [folder]
    named = environment.get("OPENCODE_DB", "")
    if named and named != ":memory:":
        found.insert(0, os.path.join(folder, named))  # absolute stays absolute
    if share != f"{home}/.local/share":
        found.append(f"{home}/.local/share/opencode")
    return found


def discover(host: Host, place: str) -> Iterable[Source]:
    return databases(host, AGENT, place, lambda: _below(host, place))


def _below(host: Host, place: str) -> Iterator[str]:
    return (f"{place}/{entry.name}" for entry in host.entries(place) if entry.at and _NAME.fullmatch(entry.name))


def claims(path: str) -> Source | None:
    return Source(AGENT, path, ROWS) if _NAME.fullmatch(os.path.basename(path)) else None


def identify(path: str, head: bytes) -> str:
    return ""


# Every change of a message or part is also an event, and `event_sequence` counts those for each session: one number says it all
# that OpenCode does. A row that goes otherwise shows in how many there are, which an index tells.
# Sessions from before events (imported from older versions) have no such number; for them rows, their times of update and their
# lengths are added up. The session's own row is looked at in any case.


def fingerprints(base: Base) -> dict[str, Fingerprint]:
    base.need("OpenCode", "session", "message", "part")
    counted = {str(key): seq for key, seq in _sequences(base)}
    sums, numbers = _sums(base), _numbers(base)
    spoken = {
        str(key) for (key,) in base.ask("SELECT id FROM session s WHERE EXISTS (SELECT 1 FROM message WHERE session_id = s.id)")
    }
    if base.columns("session_message"):
        spoken |= {str(key) for (key,) in base.ask("SELECT DISTINCT session_id FROM session_message")}
    return {
        key: Fingerprint(mark(version, counted.get(key), sums.get(key), numbers.get(key)), key not in spoken)
        for key, version in base.glimpses("session")
    }


def _sequences(base: Base) -> Iterable[tuple[object, ...]]:
    if not {"aggregate_id", "seq"} <= set(base.columns("event_sequence")):
        return []
    return base.ask("SELECT aggregate_id, seq FROM event_sequence")


def _sums(base: Base) -> dict[str, list[tuple[object, ...]]]:
    events = "WHERE session_id NOT IN (SELECT aggregate_id FROM event_sequence)" if base.columns("event_sequence") else ""
    found: dict[str, list[tuple[object, ...]]] = {}
    for table in ("message", "part", "session_message"):
        columns = base.columns(table)
        if "session_id" not in columns:
            continue
        wanted = ["count(*)", "max(rowid)"]
        # Modulo, because a sum of milliseconds may be more than an integer holds.
        wanted += [f"sum({name} % 4294967291)" for name in ("time_created", "time_updated") if name in columns]
        wanted += ["sum(octet_length(data))"] if "data" in columns else []
        for key, *values in base.ask(f"SELECT session_id, {', '.join(wanted)} FROM {table} {events} GROUP BY 1"):
            found.setdefault(str(key), []).append((table, *values))
    return found


def _numbers(base: Base) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for table in ("message", "part"):
        if "session_id" in base.columns(table):
            for key, number in base.ask(f"SELECT session_id, count(*) FROM {table} GROUP BY 1"):
                found.setdefault(str(key), []).append((table, number))
    return found


def silent(base: Base) -> Iterator[str]:
    base.need("OpenCode", "session", "message", "part")
    words = SAYS.format("json_extract(data, '$.text')")
    blank = f"json_extract(data, '$.type') IN ('text', 'reasoning') AND NOT {words}"
    for table, also in (("message", "0"), ("part", blank)):
        if {"session_id", "data"} <= set(base.columns(table)):
            asked = f"CASE WHEN NOT ({SAYS.format('data')} AND json_valid(data)) THEN 1 ELSE {also} END"
            yield from (str(key) for (key,) in base.ask(f"SELECT DISTINCT session_id FROM {table} WHERE {asked}"))


def places(base: Base, session: str, known: Mapping[str, str]) -> Iterator[Place]:
    base.need("OpenCode", "session", "message", "part")
    if base.version("session", session) is None:
        raise base.no_session(session)
    if base.columns("project") and "project_id" in base.columns("session"):
        for (project,) in base.ask("SELECT project_id FROM session WHERE id = ?", session):
            yield "project", project
    gone, origin = _gone(base, session, known), _fork_of(base, session)
    beside: dict[str, object] = {**({"gone": gone} if gone else {}), **({"fork_of": origin} if origin else {})}
    yield ("session", session, beside) if beside else ("session", session)
    for (message,) in base.ask(f"SELECT id FROM message WHERE session_id = ? ORDER BY {_order(base, 'message')}", session):
        yield "message", message
        for (part,) in base.ask("SELECT id FROM part WHERE message_id = ? ORDER BY id", message):
            yield "part", part
    if "session_id" in base.columns("session_message"):
        order = _order(base, "session_message")
        for (row,) in base.ask(f"SELECT id FROM session_message WHERE session_id = ? ORDER BY {order}", session):
            yield "session_message", row
    yield from _events(base, session, known)


def _fork_of(base: Base, session: str) -> str:
    """The session whose messages this one begins with: copied at the same times, from before it was itself created."""
    if not all("time_created" in base.columns(table) for table in ("session", "message")):
        return ""
    found = base.ask(
        "SELECT o.session_id FROM session s JOIN message m ON m.session_id = s.id AND m.time_created < s.time_created"
        " JOIN message o ON o.time_created = m.time_created AND o.session_id != s.id"
        " JOIN session p ON p.id = o.session_id AND p.time_created < s.time_created"
        " WHERE s.id = ? GROUP BY o.session_id ORDER BY count(*) DESC, p.time_created DESC LIMIT 1",
        session,
    )
    return next((str(key) for (key,) in found), "")


def _gone(base: Base, session: str, known: Mapping[str, str]) -> list[str]:
    """What the user took back is deleted when the next prompt comes: noted beside the session's row, which changes then."""
    tables = [table for table in ("message", "part", "session_message") if "session_id" in base.columns(table)]
    there = {f"{table}/{key}" for table in tables for (key,) in base.ask(f"SELECT id FROM {table} WHERE session_id = ?", session)}
    mine = (key for key, version in known.items() if version != GONE and key.partition("/")[0] in tables)
    return sorted(key for key in mine if key not in there)


def _events(base: Base, session: str, known: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    """Events are only ever added, and taken in their order: all before one that is known are known."""
    if not {"aggregate_id", "seq"} <= set(base.columns("event")):
        return
    last = -1
    for row, seq in base.ask("SELECT id, seq FROM event WHERE aggregate_id = ? ORDER BY seq DESC", session):
        if f"event/{row}" in known:
            last = seq
            break
    for (row,) in base.ask("SELECT id FROM event WHERE aggregate_id = ? AND seq > ? ORDER BY seq", session, last):
        yield "event", row


def _order(base: Base, table: str) -> str:
    columns = base.columns(table)
    return ", ".join(quoted(name) for name in ("seq", "time_created", "id") if name in columns)
