"""What journals once held and no longer hold: losses that only the witness knows of, or only capture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dreamkeep.index.part_fingerprints import parse_sources
from dreamkeep.index.store import JournalPlace
from dreamkeep.index.witnessing import make_sighting
from dreamkeep.journal.places import KEEP, SESSIONS, folder_of
from dreamkeep.journal.reader import JournalDefect, covers
from dreamkeep.journal.scan import FrameKey
from dreamkeep.journal.tombs import Tombstones
from dreamkeep.journal.witness import FILE as WITNESS
from dreamkeep.journal.witness import Seen, Sighting, Witness, is_there, load
from dreamkeep.recovery.audit.compare_source import lacks
from dreamkeep.recovery.audit.journal_faults import lost_end_fault, lost_lines_fault
from dreamkeep.recovery.audit.journal_state import JournalState
from dreamkeep.recovery.faults import Fault
from dreamkeep.recovery.isolate import check_each

if TYPE_CHECKING:
    from dreamkeep.capture.sources.content import SourceCursor
    from dreamkeep.capture.sources.source_cache import Cache
    from dreamkeep.recovery.repair.ledger import TakenFrames


class JournalLosses:
    """`witness`: as it was before any journal was read, so that it is never ahead of a whole journal."""

    def __init__(self, state: JournalState, witness: Witness) -> None:
        self._state = state
        self._witness = witness
        store = state.store
        #: By journal, the frames it was seen to end with. A keep without a witness goes by its index.
        self.seen: Seen = witness.seen
        if store and not witness.size:
            self.seen = {name: [make_sighting(store, place)] for name, place in store.places().items() if place.position.seq}
        self._seen_now = self.seen
        #: Frames that undos removed; read when the first frame is missing.
        self._removed: TakenFrames | None = None

    # -- by the witness

    def unmet(self, name: str, place: JournalPlace | None = None) -> list[Sighting]:
        """Sightings whose frame is not at its place. `place`: the journal looks as it did when this was indexed, so nothing has
        to be opened for its last frame."""
        last = place.position[2:] if place else ()
        host, root = self._state.host, self._state.root
        return [one for one in self.seen.get(name, ()) if one.frame != last and not is_there(host, root, one)]

    def lost(
        self,
        name: str,
        unmet: Iterable[Sighting],
        found: Collection[FrameKey] = (),
        defects: Iterable[JournalDefect] = (),
        end: int = 0,
    ) -> Iterator[Fault]:
        """Faults for those of `unmet` that are really lost. `found`: frames that are elsewhere in the journal, or came back.
        `defects` may report the loss already. `end`: the seq with which the journal ends."""
        place = self._state.place(name)
        for one in unmet:
            covered = one.frame in found or any(covers(defect, one.part, one.seq) for defect in defects)
            if covered or one.session in self._state.dead or self._is_no_loss(one) or not self._is_still_seen(one):
                continue
            after = one.after if one.after >= 0 else end
            remembered = place is None or place.position[2:] != one.frame
            if not one.others:
                # Only files spoke, and they can be read again. Where hooks or a tap spoke, nobody knows whose words these were.
                self._state.lossy.add(name)
            what = _describe_end(one, after, is_gone=name not in self._state.present and name != KEEP)
            yield lost_end_fault(self._state.root, one, what, after=after, witnessed=_as_json(one), remembered=remembered)

    def session_of(self, name: str) -> str:
        """Whose journal it was; "" where that is unknown."""
        place = self._state.place(name)
        return place.session if place else next((one.session for one in self.seen.get(name, ())), "")

    def witnessed(self, name: str) -> dict[str, Any] | None:
        """What the witness knows about a session that stands in no transcript."""
        known = next((one for one in reversed(self.seen.get(name, ())) if one.state), None)
        return _as_json(known) if known else None

    def _is_no_loss(self, one: Sighting) -> bool:
        """Whether the frame is gone because its session was deleted, or because an undo removed it."""
        if self._removed is None:
            from dreamkeep.recovery.repair.ledger import read_all_taken_frames

            self._removed = read_all_taken_frames(self._state.host, self._state.root)
        return one.frame in self._removed.get(one.journal, ()) or self._was_deleted(one.session)

    def _is_still_seen(self, one: Sighting) -> bool:
        """Whether the witness still has it: a deletion that was undone since then removed it. Ask after the tombstones."""
        host, root = self._state.host, self._state.root
        if self.seen is self._witness.seen and host.stat(f"{root}/{WITNESS}") != self._witness.at:
            now = load(host, root)
            self._witness = now._replace(seen=self.seen)
            self._seen_now = now.seen
        return one.frame in {other.frame for other in self._seen_now.get(one.journal, ())}

    def _was_deleted(self, session: str) -> bool:
        """Whether the session was deleted after it was seen, even if that was undone: what is known of it is history."""
        keep = self._state.place(KEEP)
        position = keep.position if keep else None
        tombs = Tombstones(self._state.host, self._state.root, position, self._state.dead)
        try:
            return bool(session) and (tombs.has(session) or (keep is not None and session in tombs.buried))
        except OSError:
            return False  # the audit of the keep's own journal reports that

    # -- by capture

    def captured(self, cache: Cache, unreadable: Callable[[str, str], Fault]) -> Iterator[Fault]:
        """Lines that capture remembers to have journaled and no journal has. Ask when all journals were read. `cache`: as it was
        before any journal was read, so that it is never ahead of a whole journal. `unreadable` makes a fault of a journal."""
        indexed = self._state.store.sources() if self._state.store else {}
        lost: dict[str, dict[str, SourceCursor]] = {}
        sessions: dict[str, str] = {}
        for path, agent, native, role, journal, word in cache.captured():
            name, session = f"{SESSIONS}/{agent}/{journal}", f"{agent}:{native}"
            reached = self._state.reached[name][0] if name in self._state.reached else indexed.get(name, "")
            if f" {word}\n" in reached or not self._may_lack(name, session):
                continue
            if cursor := lacks(self._state.host, parse_sources(reached), role, path, word):
                lost.setdefault(name, {})[path] = cursor
                sessions[name] = session
        yield from check_each(sorted(lost), lambda name: self._lost_lines(name, sessions[name], lost[name]), unreadable)

    def _may_lack(self, name: str, session: str) -> bool:
        """Not what is reported already, can't be read, or was deleted."""
        state = self._state
        if name in state.lossy or name in state.unreadable or session in state.dead:
            return False
        return not (state.unlisted and name.startswith(state.unlisted)) and folder_of(session) == name

    def _lost_lines(self, name: str, session: str, lost: dict[str, SourceCursor]) -> Iterator[Fault]:
        if self._was_deleted(session):
            return
        is_here = name in self._state.present
        place = self._state.place(name)
        after = self._state.reached[name][1] if name in self._state.reached else place.position.seq if place else 0
        files = ", ".join(f"{word.offset} bytes of `{path}`" for path, word in sorted(lost.items()))
        head = "the journal holds less than was captured" if is_here else "the whole journal is missing; what was captured"
        key = " ".join(f"{path} {word.generation} {word.offset} {word.crc}" for path, word in sorted(lost.items()))
        yield lost_lines_fault(self._state.root, name, session, f"{head}: {files}", after=after if is_here else 0, key=key)


def _as_json(one: Sighting) -> dict[str, Any] | None:
    """Its state, and whether others than files spoke."""
    return {"state": one.state, "others": one.others} if one.session else None


def _describe_end(one: Sighting, after: int, *, is_gone: bool) -> str:
    if is_gone:
        return f"the whole journal is missing; it held {one.seq} frames"
    ends = f"it ends at {after}" if one.seq > after else "has other frames there"
    return f"the journal held frames up to {one.seq}, but now {ends}: truncated, an older copy, or a power cut"
