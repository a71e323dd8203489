"""What the witness learns from the indexer: up to which frame each journal was read, and where the frames seen before are now.

So the index may be deleted at any time. The witness learns only of frames that are on disk: a reader also sees what a writer has
not synced yet, and a power cut takes that away again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import suppress

from dreamkeep.errors import DreamkeepError
from dreamkeep.host import Host
from dreamkeep.index.part_fingerprints import covers_sources, parse_sources
from dreamkeep.index.store import JournalPlace, Store
from dreamkeep.journal import parts, witness
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.reader import covers
from dreamkeep.journal.scan import Scan
from dreamkeep.journal.witness import Sighting, Witness
from dreamkeep.session import summary as life
from dreamkeep.session.fold import FROM_FILES

_OLD_NS = 600 * 10**9
#: Of a session with more files, the witness does not learn how far they were read.
_MOST_SOURCES = 64


def update_witness(host: Host, root: str, store: Store, changed: Collection[str]) -> None:
    """After the index followed the journals. `changed`: those that were read now. What fails now is done next time."""
    with suppress(OSError, DreamkeepError):
        buried = {folder_of(session) for session in store.tombstones()}
        known = witness.load(host, root)
        if buried & known.seen.keys():
            witness.forget(host, root, buried)
        names = [name for name in _to_update(store, known.seen, changed) if name not in buried]
        _update(host, root, store, known, names)


def _to_update(store: Store, seen: witness.Seen, changed: Collection[str]) -> Iterator[str]:
    for name, *_, seq, crc in store.standings():
        known = [one for one in seen.get(name, ()) if one.frame == (seq, crc) and (one.state or name == KEEP)]
        lost = len(seen.get(name, ())) > len(known)
        if seq and (not known or (lost and name in changed)):
            yield name


def _update(host: Host, root: str, store: Store, before: Witness, names: Collection[str]) -> None:
    found: list[Sighting] = []
    settled: set[tuple[str, int, str]] = set()
    ended: dict[str, int] = {}
    for name in names:
        place = store.place(name)
        if place is None:
            continue
        with suppress(OSError, DreamkeepError):  # one unreadable journal must not hide the others
            one = make_sighting(store, place)
            known = before.seen.get(name, ())
            if one.frame not in {other.frame for other in known}:
                _make_durable(host, f"{root}/{name}", one.part, named=one.part in {other.part for other in known})
            found.append(one)
            if unmet := [other for other in known if not witness.ends_there(host, root, other)]:
                met, ended[name] = _look_for(host, root, unmet, one)
                settled |= {(name, *frame) for frame in met}
    if found:
        witness.note(host, root, found, settled=settled, ended=ended, known=before)


def make_sighting(store: Store, place: JournalPlace) -> Sighting:
    """The frame that was indexed last, with what is known about its session."""
    summary = store.session(place.session) if place.session else None
    state = (summary.state or "") if summary else ""
    others = bool(json.loads(store.state(place.session)).get("channels", 0) & ~FROM_FILES) if summary else True
    return Sighting(place.name, place.session, *place.position, -1, _reached(place.sources), state, others)


def _reached(sources: str) -> str:
    """How far each was read, in numbers, as `covers_sources` compares it."""
    known = parse_sources(sources)
    told = (f"{name} {' '.join(word.split()[:2])} \n" for name, word in sorted(known.items()))
    return "".join(told) if len(known) <= _MOST_SOURCES else ""


def _make_durable(host: Host, folder: str, part: int, *, named: bool) -> None:
    """Its writer may have died before the sync. A compressed part is durable before it gets its name, and a file that was not
    touched for a while was written by the system. `named`: the part was there when the journal was seen before."""
    path = f"{folder}/{parts.name(part)}"
    at = host.stat(path)
    if at is None or host.now() - at.mtime_ns > _OLD_NS:
        return
    handle = host.open_read(path)
    try:
        host.sync(handle)
    finally:
        host.close(handle)
    if not named:
        host.sync_folder(folder)


def _look_for(host: Host, root: str, unmet: Collection[Sighting], now: Sighting) -> tuple[set[tuple[int, str]], int]:
    """Which frames need not be missed, and the seq with which the journal ends. Not missed is what is elsewhere in the journal,
    what a hole covers, and what was captured again."""
    scan = Scan(host, f"{root}/{now.journal}", heads=True, wanted=[one.frame for one in unmet]).run()
    told = (one for one in unmet if any(covers(defect, one.part, one.seq) for defect in scan.reading.defects))
    back = (one for one in unmet if was_captured_again(one, now.sources, now.state))
    return scan.found_frames | {one.frame for one in (*told, *back)}, scan.reading.position.seq


def was_captured_again(one: Sighting, sources: str, state: str | None) -> bool:
    """Whether an ingest captured again what was lost: only files spoke, and they were read as far as before."""
    return not one.others and one.state in (life.ACTIVE, state) and covers_sources(sources, one.sources)
