"""Find everything that is wrong, and change nothing: not in the keep, not in an agent's store, not in a cache of its own.

It has no memory of its own. It uses the witness (what each journal was seen to hold), the index (how each journal looked, with
checksums and defects) and `state/sources.json`. What looks unchanged is not opened; `deep` reads every byte, by one checksum over
each file. An error in a check is a fault of the item that was checked, so one bad item never hides another.

While others write: what is odd at the end of a journal counts only if it is so under its lock; an index that is missing or behind
is no fault; files young enough to be in use are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from dreamkeep.capture.sources.source_cache import Cache
from dreamkeep.errors import Busy, DreamkeepError
from dreamkeep.host import Host
from dreamkeep.index import open as index
from dreamkeep.index.store import Store
from dreamkeep.journal import witness
from dreamkeep.journal.parts import LOCK
from dreamkeep.journal.witness import Witness
from dreamkeep.recovery.audit.journals import JournalAudit
from dreamkeep.recovery.audit.keep import KeepAudit
from dreamkeep.recovery.faults import CLASSES, NOTICES, Fault, Notice, fault, notice, seen_as, seen_from
from dreamkeep.recovery.isolate import TROUBLE, describe_error, raise_if_index
from dreamkeep.recovery.repair.context import PlanContext
from dreamkeep.recovery.repair.movable import why_not
from dreamkeep.recovery.repair.reread import check_promises

#: The class and place of the fault when a whole check fails.
_CHECKS = {
    "spool": ("spool_unreadable", "spool"),
    "hooks": ("spool_unreadable", "spool/problems"),
    "leases": ("state_unreadable", "state/owners"),
    "leftovers": ("state_unreadable", "state"),
    "modes": ("state_unreadable", ""),
    "states": ("state_unreadable", "state"),
    "pages": ("page_fence", "pages"),
    "published": ("page_fence", "pages"),
    "runs": ("journal_unreadable", "journal/keep"),
    "tombstones": ("tombstone_unfinished", "state/deleting"),
    "going_on": ("journal_unreadable", "journal"),
    "sessions": ("journal_unreadable", "journal/sessions"),
    "captured": ("journal_unreadable", "journal/sessions"),
    "keep": ("journal_unreadable", "journal/keep"),
    "prove": ("journal_unreadable", "journal"),
    "witness": ("witness_damaged", witness.FILE),
    "sources": ("state_unreadable", "state/sources.json"),
    "stores": ("store_unreadable", ""),
}

#: If one of these exists there is a keep, or the rest of one.
_KEEPS = ("journal", "spool", index.FILE)

#: Faults of a whole file. Only how the file looks tells one from the next.
_WHOLE_FILES = frozenset(
    (
        "hook_lost",
        "index_unusable",
        "journal_differs",
        "journal_unreadable",
        "page_fence",
        "source_unreadable",
        "spool_unreadable",
        "state_unreadable",
        "store_unreadable",
        "webui_corrupt",
        "webui_orphan_backup",
        "witness_damaged",
    )
)


#: Repairs that write to the journal of their fault.
_LOCKING = frozenset(("settle", "recapture", "note", "readd", "finish_compress", "settle_turn", "close_compaction"))


class AuditReport(NamedTuple):
    """`checked`: how many things of each kind were checked. Faults are sorted by class and place."""

    checked: Mapping[str, int]
    faults: list[Fault]
    notices: Sequence[Notice] = ()

    @property
    def clean(self) -> bool:
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        faults, notices = ([one.as_json() for one in found] for found in (self.faults, self.notices))
        return {"clean": self.clean, "checked": dict(self.checked), "faults": faults, "notices": notices}


def audit(
    host: Host,
    root: str,
    *,
    home: str,
    environment: Mapping[str, str],
    deep: bool = False,
    around: Mapping[str, str] | None = None,
    misset: str = "",
    sound: bool = False,
) -> AuditReport:
    """`home`, `environment`: where to look for agents' stores. `around`: the environment in which hooks without a keep report
    problems. `misset`: why the settings can't be used. `sound`: check the index as a file, too, as `deep` does (a repair mends
    what a deep audit found)."""
    cache = Cache(host, root)  # before any journal is read
    checked: dict[str, int] = {}
    faults: list[Fault] = []
    accepted: set[str] = set()
    notices: list[Notice] = []
    if any(host.stat(f"{root}/{name}") is not None for name in _KEEPS):
        environs = environment if around is None else around
        checked, faults, accepted, notices = _audit_keep(host, root, environs, deep, sound or deep, cache)
    else:
        notices = [notice("no_keep", root, NOTICES["no_keep"][0])]
    faults += [_settings_fault(f"{root}/keep.toml", misset)] if misset else []
    faults += _audit_stores(host, root, home, environment, deep, checked, cache)
    locks: dict[str, str] = {}
    faults = [_check_lockable(host, root, one, locks) for one in faults]
    looking = PlanContext(host, root, home, environment, ())
    named = [(_identify_by_look(host, seen_from(root, one)), _identify_by_look(host, one)) for one in faults]
    # An earlier version identified faults by the whole path. What was accepted then stays accepted.
    left = {one.id: one for one, before in named if not accepted & {one.id, before.id}}
    checked["accepted"] = checked.get("accepted", 0) + len({one.id for one, _ in named} - left.keys())
    sure = list(check_promises(looking, sorted(left.values(), key=lambda one: (one.cls, one.where, one.id))))
    return AuditReport(checked, sure, sorted(notices))


def known_to_witness_alone(host: Host, root: str) -> list[Fault]:
    """Losses that only the witness knows of and that nobody accepted."""
    seen = _witness(host, root)

    def look(store: Store | None) -> list[Fault]:
        journals = JournalAudit(host, root, store, seen, deep=False, proven=set())
        found = _guarded(root, "keep", journals.keep) + _guarded(root, "sessions", journals.sessions)
        lost = [one for one in found if one.about.get("known_by") == "witness"]
        return [one for one in lost if not journals.state.accepted & {one.id, seen_from(root, one).id}]

    try:
        found = index.peek(host, root, look)
    except (DreamkeepError, OSError):
        found = None  # the audit reports that
    return look(None) if found is None else found


def _witness(host: Host, root: str) -> Witness:
    try:
        return witness.load(host, root)
    except OSError as problem:
        return Witness({}, {}, 0, describe_error(problem))


def _settings_fault(path: str, reason: str) -> Fault:
    unsafe = "Correct it or remove it; until then other commands refuse to run."
    return fault("state_unreadable", path, f"the settings are invalid: {reason}", unsafe=unsafe, path=path, why=reason)


def _identify_by_look(host: Host, one: Fault) -> Fault:
    """What was accepted for a file holds until the file changes."""
    if one.cls not in _WHOLE_FILES or (one.cls == "hook_lost" and one.key):
        return one
    try:
        at = host.stat(one.where)
    except OSError:
        at = None
    return seen_as(one, f"{at.size} {at.mtime_ns} {at.inode}") if at else one


def _check_lockable(host: Host, root: str, one: Fault, locks: dict[str, str]) -> Fault:
    """Don't promise to repair a journal that can't be locked. `locks`: the lock files checked so far, each with the reason."""
    if not one.repairable or CLASSES[one.cls].repair not in _LOCKING or not one.about.get("journal"):
        return one
    path = f"{root}/{one.about['journal']}/{LOCK}"
    if path not in locks:
        locks[path] = why_not(host, path, folder=False)
    unsafe = locks[path]
    return one._replace(repairable=False, next=f"Nobody can lock this journal by `{path}`. {unsafe}") if unsafe else one


class AuditFindings(NamedTuple):
    checked: dict[str, int]
    faults: list[Fault]
    accepted: set[str]
    notices: list[Notice]


def _audit_keep(host: Host, root: str, environment: Mapping[str, str], deep: bool, sound: bool, cache: Cache) -> AuditFindings:
    """With the help of the index; without it if there is none, it is damaged, or it keeps changing."""
    proven: set[tuple[str, str]] = set()
    seen = _witness(host, root)

    def look(store: Store | None) -> AuditFindings:
        return _run_checks(host, root, environment, store, seen, deep, sound, proven, cache)

    wrong = None
    try:
        found = index.peek(host, root, look)
        if found is not None:
            return found
    except Busy:
        pass  # the index keeps being replaced: the journals give the same answer, only slower
    except (DreamkeepError, OSError) as problem:
        wrong = KeepAudit(host, root, environment).unusable(describe_error(problem))
    found = look(None)
    return found._replace(faults=[*found.faults, wrong]) if wrong else found


def _run_checks(
    host: Host,
    root: str,
    environment: Mapping[str, str],
    store: Store | None,
    seen: Witness,
    deep: bool,
    sound: bool,
    proven: set[tuple[str, str]],
    cache: Cache,
) -> AuditFindings:
    journals = JournalAudit(host, root, store, seen, deep=deep, proven=proven)
    keep_audit = KeepAudit(host, root, environment)
    checks: list[tuple[str, Callable[[], Iterable[Fault]]]] = [
        ("prove", journals.prove if deep else tuple),
        ("keep", journals.keep),
        ("sessions", journals.sessions),
        ("witness", lambda: keep_audit.witness(seen)),
        ("captured", lambda: journals.captured(cache)),
        ("going_on", lambda: keep_audit.going_on(store, journals)),
        ("tombstones", lambda: keep_audit.tombstones(journals)),
        ("spool", keep_audit.spool),
        ("hooks", keep_audit.hooks),
        ("leases", keep_audit.leases),
        ("leftovers", lambda: keep_audit.leftovers(journals.leftovers)),
        ("modes", keep_audit.modes),
        ("states", keep_audit.states),
        ("pages", keep_audit.pages),
    ]
    faults = list(keep_audit.index(store, deep=deep, sound=sound))
    for name, check in checks:
        faults += _guarded(root, name, check)
    found, notices = _audit_dreams(host, root, journals)
    return AuditFindings({**journals.state.checked, **keep_audit.checked}, faults + found, journals.state.accepted, notices)


def _audit_dreams(host: Host, root: str, journals: JournalAudit) -> tuple[list[Fault], list[Notice]]:
    memory = journals.own.memory()
    if memory is None:
        return [], []  # there were no dreams; or the keep's own journal can't be read, which is reported already
    from dreamkeep.recovery.audit.dreams import DreamAudit

    dreams = DreamAudit(host, root, memory, journals.own.is_current)
    faults = _guarded(root, "published", dreams.pages) + _guarded(root, "runs", dreams.runs)
    return faults, dreams.notices


def _audit_stores(
    host: Host, root: str, home: str, environment: Mapping[str, str], deep: bool, checked: dict[str, int], cache: Cache
) -> list[Fault]:
    from dreamkeep.recovery.audit.sources import audit_sources
    from dreamkeep.recovery.stores import own_stores

    found = _guarded(root, "sources", lambda: audit_sources(host, root, home, environment, deep, checked, cache))
    for store in own_stores():
        found += _guarded(root, "stores", partial(store.audit, host, root, home, environment))
    return found


def _guarded(root: str, name: str, check: Callable[[], Iterable[Fault]]) -> list[Fault]:
    """A check that fails as a whole (its folder can't be listed) is a fault, too. What it found before stays."""
    found: list[Fault] = []
    try:
        found.extend(check())
    except TROUBLE as problem:
        raise_if_index(problem)
        cls, place = _CHECKS[name]
        where = f"{root}/{place}" if place else root
        unsafe = "Make it readable."
        reason = describe_error(problem)
        found.append(
            fault(cls, where, f"it can't be checked: {reason}", key=name, unsafe=unsafe, path=where, why=reason, journal="")
        )
    return found
