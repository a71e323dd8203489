"""Sessions that are still in their database, against what was captured of them: rows that are gone, blanked, or say other words.

What each looked like when it was captured is in `state/sources.json`, and whether rows of it were lost by then. If the database
looks as it did, only those sessions are read; else also those whose fingerprint is another one, and those with a row that says
nothing (SQLite is asked for these). `deep`: all. What was meant (rewound, compacted, edited, cleared) is no loss:
`capture/sources/row_loss.py`.

Most sessions have lost nothing. So their rows are first compared as they stand, many sessions at a time, and only where a row
differs the session is judged by itself: that takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import blake2b

from dreamkeep.agents.shared import database
from dreamkeep.agents.shared.database import Fingerprint
from dreamkeep.capture.ingest_rows import Captured, captured_last, is_lost, loss, mark_of
from dreamkeep.capture.sources import rows
from dreamkeep.capture.sources.row_loss import Loss
from dreamkeep.host import Host
from dreamkeep.journal.open_state import survey
from dreamkeep.journal.places import folder_of
from dreamkeep.recovery.faults import Fault, counted, fault
from dreamkeep.recovery.isolate import TROUBLE, check_each
from dreamkeep.recovery.stores import restores_rows

#: Of rows that are held at a time, to be compared in one read transaction: short, because some agents wait for readers.
_GROUP_BYTES = 4 << 20
_ACCEPT = "or accept it with `dreamkeep repair --accept {id}`."
_ADDED = (
    "Add what was captured with `dreamkeep restore SESSION --to AGENT` (if the session has continued since, run"
    f" `dreamkeep ingest` first), {_ACCEPT}"
)
_ELSEWHERE = (
    "Existing rows are never overwritten. Write the captured version to another folder with"
    f" `dreamkeep restore SESSION --to AGENT --home DIR`, {_ACCEPT}"
)
_CONVERTED = f"Convert what was captured for another agent with `dreamkeep restore SESSION --to claude`, {_ACCEPT}"


def to_look_at(
    host: Host, agent: str, path: str, before: Mapping[str, str], now: Mapping[str, Fingerprint] | None, deep: bool
) -> list[str]:
    """`before`: what is remembered of each session; `now`: None when the database looks as it did then."""
    if now is None:
        return sorted(native for native, known in before.items() if is_lost(known))
    if deep:
        return sorted(now)
    silent = rows.silent(host, agent, path)
    return sorted(
        native
        for native, print_ in now.items()
        if native in silent or is_lost(before.get(native, "")) or mark_of(before.get(native, "")) != print_.mark
    )


def audit_rows(host: Host, root: str, agent: str, path: str, names: Collection[str], sessions: Iterable[str]) -> Iterator[Fault]:
    """`names`: what the database may be called in journals."""

    def look(native: str) -> Iterator[Fault]:
        folder = f"{root}/{folder_of(f'{agent}:{native}')}"
        if host.stat(folder) is not None and not {f"src:{name}" for name in names}.isdisjoint(survey(host, folder).carry):
            yield from _make_faults(agent, path, native, loss(host, agent, path, native, folder, names))

    def unreadable(native: str, why: str) -> Fault:
        what = f"its rows can't be compared with what was captured: {why}"
        return fault("store_unreadable", f"{path}#{native}", what, session=f"{agent}:{native}", path=path, name="")

    return check_each(_not_as_captured(host, root, agent, path, names, sessions), look, unreadable)


def _not_as_captured(
    host: Host, root: str, agent: str, path: str, names: Collection[str], sessions: Iterable[str]
) -> Iterator[str]:
    """Sessions that need a closer look. What goes wrong here is told by that."""
    group: dict[str, Captured] = {}
    size = 0
    for native in sessions:
        found = _captured(host, agent, f"{root}/{folder_of(f'{agent}:{native}')}", names)
        if found is None or not found.rows:
            yield native
            continue
        group[native] = found
        size += found.size
        if size >= _GROUP_BYTES:
            yield from _changed(host, path, group)
            group, size = {}, 0
    yield from _changed(host, path, group)


def _captured(host: Host, agent: str, folder: str, names: Collection[str]) -> Captured | None:
    try:
        return captured_last(host, agent, folder, names)
    except TROUBLE:
        return None


def _changed(host: Host, path: str, group: Mapping[str, Captured]) -> list[str]:
    try:
        same = database.unchanged(host, path, {native: one.rows for native, one in group.items()}) if group else set()
    except TROUBLE:
        same = set()
    return [native for native in group if native not in same]


def _make_faults(agent: str, path: str, native: str, found: Loss) -> Iterator[Fault]:
    where, session = f"{path}#{native}", f"{agent}:{native}"
    missed = (*found.gone, *found.blanked)
    if missed:
        kinds = [(found.gone, "gone"), (found.blanked, "empty")]
        how = " and ".join(f"{len(keys)} {said}" for keys, said in kinds if keys)
        what = f"of {counted(found.spoken, 'captured row', 'captured rows')}, {how}"
        step = _step(agent, bool(found.blanked or found.changed))
        yield fault(
            "source_shrank", where, what, session=session, key=_key(missed), step=step, path=path, name="", gone=len(missed)
        )
    if found.changed:
        what = counted(len(found.changed), "captured row has", "captured rows have") + " changed since"
        step, gone = _step(agent, True), len(found.changed)
        yield fault(
            "source_changed", where, what, session=session, key=_key(found.changed), step=step, path=path, name="", gone=gone
        )


def _step(agent: str, in_the_way: bool) -> str:
    """Rows can be put back into the database of some agents, beside those that are there; others we only read."""
    if not restores_rows(agent):
        return _CONVERTED
    return _ELSEWHERE if in_the_way else _ADDED


def _key(keys: Iterable[str]) -> str:
    """The same as long as the same rows are missing."""
    return blake2b("\n".join(sorted(keys)).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
