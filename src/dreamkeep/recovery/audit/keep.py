"""The views and book-keeping of the keep: index, pages, spool, tombstones, leases, turns, compactions, leftovers, modes, caches.

`Fault.about` of each class here (what a repair may rely on); paths are absolute.

    index_unusable          path, why
    witness_damaged         path, why ("it is gone" where it is)
    index_drift             path; journal (folder relative to the keep; "" when it is not one journal's)
    page_fence              path
    spool_waiting           path (the spool); calls, batches. Calls count from an hour on (drainers come when turns end), batches
                            at once, neither while somebody holds `state/drain.lock`
    spool_unreadable        path (of the one thing)
    hook_lost               path; lines. A file outside the keep (in the user's temp folder) is not repairable
    tombstone_unfinished    session; path (of the intent, or ""); journal (relative)
    lease_stale             path
    turn_interrupted        session, turn (id), owner, journal (relative)
    compaction_open         session, compaction (id), turn (id or ""), opened_at, closing ("owner_gone", "timeout"), journal
    leftover                path (older than an hour: younger ones may be at work; or of a deletion that never came to be)
    open_to_others          path, mode (as it is), wanted (0o600 or 0o700)
    state_unreadable        path, why. Of a repair's own notes, which nothing mends, too
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dreamkeep.capture.hooks import drain, spool
from dreamkeep.capture.python import OWNERS
from dreamkeep.event import rfc3339
from dreamkeep.host import Host, Stat, read_file
from dreamkeep.host.liveness import is_held
from dreamkeep.index import part_fingerprints
from dreamkeep.index.open import FILE
from dreamkeep.index.sqlite_errors import Unusable
from dreamkeep.index.store import Store
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.tombs import Tombstones
from dreamkeep.journal.witness import FILE as WITNESS
from dreamkeep.journal.witness import Witness
from dreamkeep.recovery.audit.journals import JournalAudit, UnsettledSession, is_temp
from dreamkeep.recovery.delete.delete import INTENTS, Intent
from dreamkeep.recovery.delete.delete import LOCK as DELETING
from dreamkeep.recovery.faults import Fault, counted, fault
from dreamkeep.recovery.isolate import check_each
from dreamkeep.recovery.repair.movable import is_link, why_not
from dreamkeep.session.compactions.compaction import IN_PROGRESS, OWNER_GONE, TIMEOUT, view_compaction
from dreamkeep.session.compactions.pairing import Pairing
from dreamkeep.session.turns import TurnView

#: What is younger may be at work.
_OLD_NS = 3600 * 10**9
_FENCE = re.compile(rb"^<!-- dreamkeep:(begin|end)\b[^\n]*-->[ \t\r]*$", re.MULTILINE)
_NOT_OURS = "The file is outside the keep, so no repair removes it. Once you have read it, run `dreamkeep repair --accept {id}`."
_PUT_BACK = (
    "Remove it again with `dreamkeep delete SESSION`, or keep it with `dreamkeep undelete SESSION`; a repair does neither."
)
_LEDGER = (
    "The bytes that it kept are beside it. Move the folder out of the keep, or accept it with `dreamkeep repair --accept {id}`."
)
_PAGE = "MEMORY.md"
_MOMENT_S = 0.02
#: SQLite's check takes some 20 ms for each MB, a hundred times of what reading it does. A larger index is checked by `doctor`.
_CHECKED_BYTES = 16 << 20


class KeepAudit:
    """Everything in a keep that is no journal. Each check is a generator of faults; `checked` counts what was looked at."""

    def __init__(self, host: Host, root: str, environment: Mapping[str, str]) -> None:
        self._host = host
        self._root = root
        self._environment = environment
        self._index = f"{root}/{FILE}"
        self._now = host.now()
        counted = ("index", "spool", "tombstones", "leases", "turns", "compactions", "pages", "states")
        self.checked = dict.fromkeys(counted, 0)

    # -- the index

    def index(self, store: Store | None, *, deep: bool, sound: bool) -> Iterator[Fault]:
        """`sound`: SQLite shall look at its file, too, where that does not take longer than all the rest."""
        if store is None:
            return
        self.checked["index"] = 1
        if is_link(self._host, self._index):
            raise Unusable("it is a link, and its target is not part of the keep", where=self._index)
        at = self._host.stat(self._index)
        if sound and at and at.size <= _CHECKED_BYTES and (damage := store.check()):
            raise Unusable(damage, where=self._index)  # then nothing that it says is believed
        for session in store.incomplete(rows=deep):
            name = folder_of(session) if session else ""
            what = f"rows of {session or 'some sessions'} are missing in it"
            yield fault("index_drift", self._index, what, session=session, key=session, path=self._index, journal=name)

    def unusable(self, why: str) -> Fault:
        unsafe = next(filter(None, (why_not(self._host, f"{self._index}{end}") for end in ("", "-wal", "-shm"))), "")
        return fault("index_unusable", self._index, why, unsafe=unsafe, path=self._index, why=why)

    # -- the witness

    def witness(self, seen: Witness) -> Iterator[Fault]:
        if seen.problem:
            path = f"{self._root}/{WITNESS}"
            what = f"what journals held before can't be told by it: {seen.problem}"
            yield fault("witness_damaged", path, what, unsafe=why_not(self._host, path), path=path, why=seen.problem)

    # -- turns and compactions

    def going_on(self, store: Store | None, journals: JournalAudit) -> Iterator[Fault]:
        """For journals that look as indexed by the index, for all others by what was just read."""
        yield from check_each(self._open(store, journals), self._session, self._confusing)

    def _open(self, store: Store | None, journals: JournalAudit) -> Iterator[UnsettledSession]:
        turns: dict[str, list[TurnView]] = {}
        for session, turn in store.unsettled(owned=True) if store else ():
            turns.setdefault(session, []).append(turn)
        for session in sorted({*turns, *(store.compacting() if store else ())} - journals.reread - journals.state.dead):
            place = store.place(folder_of(session)) if store else None
            if store and place:
                yield UnsettledSession(session, place.name, place.mark, turns.get(session, []), _segments(store.state(session)))
        yield from journals.unsettled

    def _confusing(self, one: UnsettledSession, why: str) -> Fault:
        what = f"its current state is unknown: {why}"
        return fault("index_drift", f"{self._root}/{one.name}", what, session=one.session, path=self._index, journal=one.name)

    def _session(self, one: UnsettledSession) -> Iterator[Fault]:
        found = [*self._turns(one), *self._compactions(one)]
        # Its owner may have ended it just before it exited. What was written after we read is for the next audit.
        if found and part_fingerprints.read_folder_mark(self._host, f"{self._root}/{one.name}", None) == one.mark:
            yield from found

    def _turns(self, one: UnsettledSession) -> Iterator[Fault]:
        for turn in one.turns:
            self.checked["turns"] += 1
            if not self._alive(turn.owner):
                what = f"the turn {_short(turn.prompt)!r} was never settled, and its owner has ended"
                about = {"turn": turn.id, "owner": turn.owner, "journal": one.name}
                yield fault("turn_interrupted", f"{self._root}/{one.name}", what, session=one.session, key=turn.id, **about)

    def _compactions(self, one: UnsettledSession) -> Iterator[Fault]:
        native = one.session.partition(":")[2]
        for entity in Pairing(native, one.segments.get("compactions")).entities.values():
            if entity.state != IN_PROGRESS:
                continue
            self.checked["compactions"] += 1
            now = view_compaction(entity, one.session, rfc3339(self._now), self._alive)
            if now.closing not in (OWNER_GONE, TIMEOUT):
                continue
            yield fault(
                "compaction_open",
                f"{self._root}/{one.name}",
                f"the compaction that started {now.opened_at or 'some time ago'} never finished ({now.closing})",
                session=one.session,
                key=now.id,
                compaction=now.id,
                turn=now.turn or "",
                opened_at=now.opened_at,
                closing=now.closing,
                journal=one.name,
            )

    def _alive(self, owner: str) -> bool:
        return "/" not in owner and is_held(self._host, f"{self._root}/{OWNERS}/{owner}")

    # -- the spool

    def spool(self) -> Iterator[Fault]:
        folder = f"{self._root}/{spool.SPOOL}"
        names = sorted(self._names(spool.SPOOL))
        self.checked["spool"] = len(names)
        bad = list(check_each(names, self._spooled, lambda name, why: self._no_call(f"{folder}/{name}", why)))
        yield from bad
        told = {one.where for one in bad}
        calls = [one for one in spool.entries(names) if f"{folder}/{one.name}" not in told]
        batches = [name for name in names if spool.is_batch(name)]
        old = [one for one in calls if self._now - int(one.name[:20]) > _OLD_NS]
        left = spool.left_over(names, self._now)
        if (batches or old or left) and not is_held(self._host, f"{self._root}/{drain.LOCK}"):
            what = f"{len(calls) + len(left)} hook calls and {len(batches)} batches are waiting, and nothing is draining them"
            first = min([*batches, *left, *(one.name for one in calls)])  # accepting it covers only those that wait now
            about: dict[str, Any] = {"path": folder, "calls": len(calls) + len(left), "batches": len(batches)}
            yield fault("spool_waiting", folder, what, key=first, **about)

    def _spooled(self, name: str) -> Iterator[Fault]:
        path = f"{self._root}/{spool.SPOOL}/{name}"
        ours = spool.is_batch(name) or spool.entry(name) or name == spool.PROBLEMS or spool.finished_name(name) != name
        if not ours:
            yield self._no_call(path, "no hook wrote this file")
        elif spool.is_batch(name):
            for call in self._host.names(path):
                if not spool.entry(call):
                    yield self._no_call(f"{path}/{call}", "no hook wrote this file")
        elif is_link(self._host, path):
            yield self._no_call(path, "it is a link")
        elif spool.entry(name):
            try:
                self._host.close(self._host.open_read(path))
            except FileNotFoundError:
                return  # it was drained meanwhile
            at = self._host.stat(path)
            if at and not at.is_file:
                yield self._no_call(path, "it is a folder" if at.is_folder else "it is not a file")

    def _no_call(self, path: str, why: str) -> Fault:
        unsafe = why_not(self._host, path)
        return fault("spool_unreadable", path, f"it is not a readable hook call: {why}", unsafe=unsafe, path=path)

    def hooks(self) -> Iterator[Fault]:
        for path, lines in spool.problems(self._host, self._root, self._environment).items():
            yield hook_lost(self._root, path, lines)

    # -- tombstones

    def tombstones(self, journals: JournalAudit) -> Iterator[Fault]:
        self.checked["tombstones"] = len(journals.state.dead)
        seen = {path: self._host.stat(path) for path in self._intents()}
        todo = [(self._intent(path), path) for path in seen] + [(session, "") for session, _ in journals.undeleted]
        if not todo or is_held(self._host, f"{self._root}/{DELETING}"):
            return
        # Look once more, now that nobody is deleting: a deletion that was going on is finished.
        begun = [(session, path) for session, path in todo if path and self._same(path, seen[path])]
        dead = Tombstones(self._host, self._root)
        yield from (self._unfinished(session, path) if dead.has(session) else self._not_begun(path) for session, path in begun)
        for session, name in journals.undeleted:
            is_here = dead.has(session) and part_fingerprints.read_folder_mark(self._host, f"{self._root}/{name}", None)
            if is_here and session not in dict(begun):
                yield self._unfinished(session, "")

    def _intents(self) -> list[str]:
        return [f"{self._root}/{INTENTS}/{name}" for name in sorted(self._names(INTENTS)) if not is_temp(name)]

    def _same(self, path: str, before: Stat | None) -> bool:
        return before is not None and self._host.stat(path) == before

    def _intent(self, path: str) -> str:
        try:
            return Intent.of(read_file(self._host, path)).session
        except OSError:
            return ""

    def _unfinished(self, session: str, path: str) -> Fault:
        name = folder_of(session)
        what = f"the deletion of {session} never finished" if path else f"{session} was deleted, but its journal is back"
        step = "" if path else _PUT_BACK
        where = path or f"{self._root}/{name}"
        return fault("tombstone_unfinished", where, what, session=session, step=step, path=path, journal=name)

    def _not_begun(self, path: str) -> Fault:
        what = "a deletion was prepared for a session that was not deleted"
        return fault("leftover", path, what, unsafe=why_not(self._host, path), path=path)

    # -- leases, leftovers, modes, caches, pages

    def leases(self) -> Iterator[Fault]:
        paths = [f"{self._root}/{OWNERS}/{name}" for name in sorted(self._names(OWNERS))]
        self.checked["leases"] = len(paths)
        free = [path for path in paths if not is_held(self._host, path)]
        if free:
            self._host.sleep(_MOMENT_S)  # a lock file exists for a moment before it is locked
        for path in free:
            at = self._host.stat(path) if not is_held(self._host, path) else None
            if at is not None:
                unsafe = why_not(self._host, path, folder=False)
                what = "the process that held it has ended" if at.is_file else "it is not a lock file: no process made it"
                yield fault("lease_stale", path, what, unsafe=unsafe, path=path)

    def leftovers(self, found: Iterable[str]) -> Iterator[Fault]:
        yield from check_each(found, self._leftover, self._no_state)
        yield from check_each(("", "state", "journal", INTENTS, "aside", "pages"), self._left_in, self._no_folder)

    def _left_in(self, folder: str) -> Iterator[Fault]:
        place = f"{self._root}/{folder}" if folder else self._root
        names = sorted(self._names(folder))
        yield from check_each((f"{place}/{name}" for name in names if is_temp(name)), self._leftover, self._no_state)
        if folder == "pages":
            inner = (f"pages/{name}" for name in names if self._is_folder(f"{place}/{name}"))
            yield from check_each(inner, self._left_in, self._no_folder)
        if folder == "aside":
            yield from check_each((name for name in names if name.startswith("repair-")), self._ledger, self._no_ledger)

    def _is_folder(self, path: str) -> bool:
        at = self._host.stat(path)
        return bool(at and at.is_folder and not is_link(self._host, path))

    def _ledger(self, name: str) -> Iterator[Fault]:
        from dreamkeep.recovery.repair import ledger  # only where something was ever repaired

        ledger.read_notes(self._host, self._root, name.removeprefix(ledger.PREFIX))
        yield from ()

    def _no_ledger(self, name: str, why: str) -> Fault:
        path = f"{self._root}/aside/{name}/undo.json"
        what = f"the records of a repair can't be read, so it can't be undone: {why}"
        return fault("state_unreadable", path, what, unsafe=_LEDGER, path=path, why=why)

    def _leftover(self, path: str) -> Iterator[Fault]:
        at = self._host.stat(path)
        if at and self._now - at.mtime_ns > _OLD_NS:
            unsafe = why_not(self._host, path)
            yield fault("leftover", path, f"{at.size} bytes left by an unfinished write", unsafe=unsafe, path=path)

    def _no_folder(self, name: str, why: str) -> Fault:
        place = f"{self._root}/{name}"
        what = f"it is not a readable folder: {why}"
        return fault("state_unreadable", place, what, unsafe="Make it one, or remove it by hand.", path=place, why=why)

    def modes(self) -> Iterator[Fault]:
        """Users who can't enter the keep's folder can read nothing in it. Below an open folder, everything open is reported."""
        at = self._host.stat(self._root)
        if at:
            yield from self._mode(self._root, at)

    def _mode(self, path: str, at: Stat) -> Iterator[Fault]:
        if not at.mode & 0o077:
            return
        wanted = 0o700 if at.is_folder else 0o600
        about: dict[str, Any] = {"path": path, "mode": at.mode, "wanted": wanted}
        yield fault("open_to_others", path, f"other users can access it (mode {at.mode:o})", key=f"{at.mode:o}", **about)
        if at.is_folder:
            for entry in self._host.entries(path):
                inside = f"{path}/{entry.name}"
                if entry.at and entry.at.mode & 0o077 and not is_link(self._host, inside):  # a link's target is not ours
                    yield from self._mode(inside, entry.at)

    def states(self) -> Iterator[Fault]:
        names = [name for name in sorted(self._names("state")) if name.endswith(".json")]
        self.checked["states"] = len(names)
        yield from check_each((f"{self._root}/state/{name}" for name in names), self._state, self._no_state)

    def _state(self, path: str) -> Iterator[Fault]:
        import json

        try:
            read = json.loads(read_file(self._host, path))
        except FileNotFoundError:
            return
        if not isinstance(read, dict):
            yield self._no_state(path, "it doesn't hold a JSON object")

    def _no_state(self, path: str, why: str) -> Fault:
        unsafe = why_not(self._host, path)
        return fault("state_unreadable", path, f"the cache can't be read: {why}", unsafe=unsafe, path=path, why=why)

    def pages(self) -> Iterator[Fault]:
        for project in sorted(self._names("pages")):
            path = f"{self._root}/pages/{project}/{_PAGE}"
            if self._host.stat(path) is not None:
                self.checked["pages"] += 1
                yield from check_each([path], self._page, lambda path, why: fault("page_fence", path, why, path=path))

    def _page(self, path: str) -> Iterator[Fault]:
        fence = list(_FENCE.findall(read_file(self._host, path)))
        if fence != [b"begin", b"end"]:
            what = " then ".join(kind.decode() for kind in fence) or "no fence line"
            yield fault("page_fence", path, f"a page needs one begin and one end; this one has: {what}", path=path)

    def _names(self, folder: str) -> list[str]:
        try:
            return self._host.names(f"{self._root}/{folder}" if folder else self._root)
        except FileNotFoundError:
            return []


def hook_lost(root: str, path: str, lines: Sequence[str]) -> Fault:
    """Hooks of all keeps share a file outside of them. There the newest line of this keep identifies the fault: once accepted
    it is not reported again, whatever other keeps add to the file."""
    what = f"{counted(len(lines), 'hook call was', 'hook calls were')} not recorded, the last: {lines[-1]}"
    if spool.is_in(root, path):
        return fault("hook_lost", path, what, path=path, lines=len(lines))
    return fault("hook_lost", path, what, key=lines[-1], unsafe=_NOT_OURS, path=path, lines=len(lines))


def _segments(state: str) -> dict[str, Any]:
    import json

    found = json.loads(state).get("segments")
    return found if isinstance(found, dict) else {}


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
