"""Goose keeps its sessions in `goose/sessions/sessions.db` of the user's data folder; GOOSE_PATH_ROOT moves it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from dreamkeep.agents.contract import ROWS, Source
from dreamkeep.agents.shared.database import SAYS, Base, Fingerprint, Place, gone_from, mark, placed
from dreamkeep.agents.shared.folders import databases
from dreamkeep.host import Host

AGENT = "goose"
FILE = "sessions.db"


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    found = []
    if root := environment.get("GOOSE_PATH_ROOT"):
        found.append(f"{root}/data/sessions")
    if share := environment.get("XDG_DATA_HOME"):
        found.append(f"{share}/goose/sessions")
    usual = f"{home}/.local/share/goose/sessions"
    return found if usual in found else [*found, usual]


def discover(host: Host, place: str) -> Iterable[Source]:
    return databases(host, AGENT, place, lambda: [f"{place}/{FILE}"])


def claims(path: str) -> Source | None:
    return Source(AGENT, path, ROWS) if os.path.basename(path) == FILE else None


def identify(path: str, head: bytes) -> str:
    return ""


# Only the metadata of rows is ever edited; a compaction deletes all rows and inserts them again under new ids. So the sums of ids
# and lengths change with every change.


def fingerprints(base: Base) -> dict[str, Fingerprint]:
    base.need("Goose", "sessions", "messages")
    columns = base.columns("messages")
    lengths = "".join(f", sum(octet_length({name}))" for name in ("content_json", "metadata_json") if name in columns)
    counts = {
        str(key): values
        for key, *values in base.ask(
            f"SELECT session_id, count(*), min(id), max(id), sum(id){lengths} FROM messages GROUP BY session_id"
        )
    }
    return {key: Fingerprint(mark(version, counts.get(key)), key not in counts) for key, version in base.glimpses("sessions")}


def silent(base: Base) -> Iterator[str]:
    base.need("Goose", "sessions", "messages")
    if "content_json" in base.columns("messages"):
        says = f"{SAYS.format('content_json')} AND json_valid(content_json)"
        yield from (str(key) for (key,) in base.ask(f"SELECT DISTINCT session_id FROM messages WHERE NOT ({says})"))


def places(base: Base, session: str, known: Mapping[str, str]) -> Iterator[Place]:
    base.need("Goose", "sessions", "messages")
    version = base.version("sessions", session)
    if version is None:
        raise base.no_session(session)
    rows = [row for (row,) in base.ask("SELECT id FROM messages WHERE session_id = ? ORDER BY +id", session)]
    gone = gone_from("messages", rows, known)
    if known.get(f"sessions/{session}") != version:
        yield "sessions", session, {"gone": gone}  # also an empty list: then all known rows still exist
        gone = []
    else:
        yield "sessions", session
    yield from placed("messages", rows, gone, known)
