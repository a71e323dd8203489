"""Hermes keeps its sessions in `state.db` of its home (`$HERMES_HOME`, `~/.hermes`), and of each profile below it.

A compaction by splitting continues a session under a new id: the old row's `end_reason` is "compression", and the new row's
`parent_session_id` is the old one. Such a chain is one session here, named by its root. Branches and delegates are sessions of
their own. A branch of an older version has no marker, except its parent's `end_reason` ("branched"), which is noted beside its
row.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dreamkeep.agents.contract import ROWS, Source
from dreamkeep.agents.shared.database import SAYS, Base, Fingerprint, Place, gone_from, mark, placed, quoted
from dreamkeep.agents.shared.folders import databases
from dreamkeep.host import Host

AGENT = "hermes"
FILE = "state.db"

#: The columns with words, as row_loss.py compares them.
_WORDS = ("content", "tool_calls", "reasoning", "reasoning_content")
_BRANCHED = "branched"
#: End reasons of a row that continues under another id.
_GOES_ON = ("compression", "turn_boundary_rollover", "turn_boundary_rollover_recovered")


def homes(home: str, environment: Mapping[str, str]) -> list[str]:
    named = environment.get("HERMES_HOME", "")
    usual = f"{home}/.hermes"
    return [named, usual] if named and named != usual else [usual]


def discover(host: Host, place: str) -> Iterable[Source]:
    return databases(host, AGENT, place, lambda: _below(host, place))


def _below(host: Host, place: str) -> Iterator[str]:
    yield f"{place}/{FILE}"
    profiles = f"{place}/profiles"
    if host.stat(profiles) is not None:
        yield from (f"{profiles}/{entry.name}/{FILE}" for entry in host.entries(profiles) if entry.at and entry.at.is_folder)


def claims(path: str) -> Source | None:
    return Source(AGENT, path, ROWS) if os.path.basename(path) == FILE else None


def identify(path: str, head: bytes) -> str:
    return ""


class _HermesSession(NamedTuple):
    key: str
    parent: str | None
    end_reason: str
    source: str
    marked: bool  # a branch or a delegate
    worktree: bool


def _sessions(base: Base) -> dict[str, _HermesSession]:
    columns = base.columns("sessions")

    def column(name: str, otherwise: str = "NULL") -> str:
        return quoted(name) if name in columns else otherwise

    config = column("model_config", "''")
    markers = " OR ".join(f"instr({config}, '\"{name}\"')" for name in ("_branched_from", "_delegate_from"))
    trees = " OR ".join(f"coalesce({quoted(name)}, '') <> ''" for name in columns if name.startswith("worktree")) or "0"
    asked = f"id, {column('parent_session_id')}, {column('end_reason')}, {column('source')}, coalesce({markers}, 0), {trees}"
    return {
        str(key): _HermesSession(str(key), parent and str(parent), str(end or ""), str(source or ""), bool(marked), bool(tree))
        for key, parent, end, source, marked, tree in base.ask(f"SELECT {asked} FROM sessions ORDER BY rowid")
    }


def _goes_on_from(all_: Mapping[str, _HermesSession], row: _HermesSession) -> str | None:
    """The session that this one continues: by what is recorded, never by comparing times, which race."""
    before = all_.get(row.parent or "")
    if before is None or before.end_reason not in _GOES_ON or row.marked or row.source == "tool":
        return None
    return before.key


def _is_branch(row: _HermesSession, parent: _HermesSession) -> bool:
    return parent.end_reason == _BRANCHED and not row.marked and row.source not in ("tool", "subagent")


def chains(all_: Mapping[str, _HermesSession]) -> dict[str, list[str]]:
    """root → the sessions of its chain, in order."""
    found: dict[str, list[str]] = {}
    for row in all_.values():
        passed, root = {row.key}, row.key
        while (before := _goes_on_from(all_, all_[root])) is not None and before not in passed:
            root = before
            passed.add(root)
        # Rows that name each other in a ring have no root; the least of them takes its place.
        root = min(passed) if _goes_on_from(all_, all_[root]) in passed else root
        chain = found.setdefault(root, [])
        chain.append(row.key)
    return {root: [root, *(key for key in chain if key != root)] for root, chain in found.items()}


# Cheap, and enough: the session's own row, in which Hermes counts every message that it adds, archives or rewinds; the number of
# messages, the highest id (no id is used twice) and the number of active ones, which all lie in an index. Hermes never edits the
# words of a row; another program may, and that changes their length (0.1 s for 200,000 rows, 200 MB). A message row whose side
# note (`api_content`) is filled in later does not show; it is read at the session's next change.


def fingerprints(base: Base) -> dict[str, Fingerprint]:
    base.need("Hermes", "sessions", "messages")
    versions = dict(base.glimpses("sessions"))
    columns = base.columns("messages")
    active = ", sum(active)" if "active" in columns else ""
    lengths = "".join(f", sum(octet_length({name}))" for name in _WORDS if name in columns)
    counts = {
        str(key): values
        for key, *values in base.ask(f"SELECT session_id, count(*), max(id){active}{lengths} FROM messages GROUP BY session_id")
    }
    all_ = _sessions(base)
    return {
        root: Fingerprint(
            mark([(key, versions.get(key), counts.get(key)) for key in chain]),
            not any(key in counts or all_[key].worktree for key in chain),
        )
        for root, chain in chains(all_).items()
    }


def silent(base: Base) -> Iterator[str]:
    base.need("Hermes", "sessions", "messages")
    columns = base.columns("messages")
    says = " OR ".join(SAYS.format(name) for name in ("content", "tool_calls") if name in columns)
    found = {str(key) for (key,) in base.ask(f"SELECT DISTINCT session_id FROM messages WHERE NOT ({says or 1})")}
    return (root for root, chain in chains(_sessions(base)).items() if not found.isdisjoint(chain))


def places(base: Base, session: str, known: Mapping[str, str]) -> Iterator[Place]:
    base.need("Hermes", "sessions", "messages")
    all_ = _sessions(base)
    chain = chains(all_).get(session)
    if chain is None:
        raise base.no_session(session)
    # By id, the order in which rows were inserted; `+` keeps SQLite from walking through the whole table for that order.
    marks = ", ".join("?" * len(chain))
    rows = [row for (row,) in base.ask(f"SELECT id FROM messages WHERE session_id IN ({marks}) ORDER BY +id", *chain)]
    gone = gone_from("messages", rows, known)
    for key in chain:
        parent = all_.get(all_[key].parent or "")
        beside: dict[str, object] = {"parent_end_reason": _BRANCHED} if parent and _is_branch(all_[key], parent) else {}
        if gone and known.get(f"sessions/{key}") != base.version("sessions", key):
            beside, gone = {**beside, "gone": gone}, []
        yield ("sessions", key, beside) if beside else ("sessions", key)
    yield from placed("messages", rows, gone, known)
