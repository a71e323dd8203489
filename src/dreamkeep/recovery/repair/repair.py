"""Repair: a plan by default; applied, exactly the safe part of it. What is left alone is listed with its reason.

    audit ─► plan ─► (look whether each can be promised) ─► apply: keep what was there, act ─► audit again

Each fault is mended by itself: one that can't be is a reason in `skipped`, and the others go on. Doing it twice is doing it once,
because every action looks at the thing as it is; so a repair that died half-way is simply run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from dreamkeep.capture.sources.source_cache import NAME as SOURCES
from dreamkeep.capture.sources.source_cache import Cache
from dreamkeep.errors import BadUsage, DreamkeepError, Failed, NotFound
from dreamkeep.event import Event, Ids, Kind
from dreamkeep.host import exclusive_lock
from dreamkeep.index.open import FILE as INDEX
from dreamkeep.recovery.faults import CLASSES, Fault
from dreamkeep.recovery.isolate import TROUBLE, why
from dreamkeep.recovery.repair import dreams, keep, sources
from dreamkeep.recovery.repair.ledger import ASIDE, Ledger, NotedJournals, marked_ids, sweep_temps
from dreamkeep.recovery.repair.mending import Looking, Mending, MendResult, left
from dreamkeep.recovery.repair.reread import mended
from dreamkeep.recovery.repair.undo import UndoStep as Undone
from dreamkeep.recovery.repair.undo import undo as take_back
from dreamkeep.recovery.repair.undo import which
from dreamkeep.recovery.stores import Mender, own_stores

LOCK = "state/repair.lock"
_WAIT_S = 1.0

_MENDERS: tuple[Mender, ...] = (keep, dreams, sources)


def actions() -> dict[str, Callable[[Mending, Fault], MendResult]]:
    """Every repair that `faults.py` names, and what does it."""
    return {name: act for one in (*_MENDERS, *own_stores()) for name, act in one.ACTIONS.items()}


def checks() -> dict[str, Callable[[Looking, Fault], str]]:
    """Of some it is found out before they are promised whether they can be done."""
    return {name: look for one in (*_MENDERS, *own_stores()) for name, look in one.CHECKS.items()}


#: These read what agents wrote.
_CAPTURES = ("drain", "recapture")


class AuditedKeep(Protocol):
    """What an audit answers."""

    @property
    def clean(self) -> bool: ...

    @property
    def faults(self) -> Sequence[Fault]: ...

    def as_json(self) -> dict[str, Any]: ...


class RepairStep(NamedTuple):
    fault: Fault
    action: str

    def as_json(self) -> dict[str, str]:
        return {"fault": self.fault.id, "action": self.action, "where": self.fault.where}


@dataclass
class RepairResult:
    """As the contract's JSON. `audit`: how it is afterwards (of a plan: how it is)."""

    audit: AuditedKeep
    plan: list[RepairStep] = field(default_factory=list)
    applied: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    undo_id: str | None = None

    def skip(self, fault: str, reason: str) -> None:
        self.skipped.append({"fault": fault, "reason": reason})

    def as_json(self) -> dict[str, Any]:
        return {
            "plan": [step.as_json() for step in self.plan],
            "applied": self.applied,
            "skipped": self.skipped,
            "undo_id": self.undo_id,
            "audit": self.audit.as_json(),
        }


class Repair:
    """`audit`: looks at everything. The others: what only the app can do (see `Mending`)."""

    def __init__(
        self,
        looking: Looking,
        audit: Callable[[], AuditedKeep],
        *,
        alive: Callable[[str], bool],
        rebuild: Callable[[], None],
        off: bool = False,
        misset: bool = False,
        mask: Callable[[Event], Event] | None = None,
    ) -> None:
        self._mask = mask
        self._looking = looking
        self._host = looking.host
        self._root = looking.root
        self._audit = audit
        self._alive = alive
        self._rebuild = rebuild
        self._off = off
        self._misset = misset

    def plan(self, only: Sequence[str] = ()) -> RepairResult:
        """Writes nothing."""
        report = self._audit()
        _find_faults(report.faults, only)
        result = RepairResult(report)
        for fault in report.faults:
            if reason := self._reason(fault, only):
                result.skip(fault.id, reason)
            else:
                result.plan.append(RepairStep(fault, CLASSES[fault.cls].repair))
        return result

    def _reason(self, fault: Fault, only: Sequence[str]) -> str:
        """Why a fault is not in the plan."""
        if only and fault.id not in only:
            return "not chosen (--only)"
        action = CLASSES[fault.cls].repair
        if not fault.repairable or not action:
            return fault.next
        if self._misset and action in _CAPTURES:
            return "Correct keep.toml first: until then it is unknown what it excludes from capture."
        check = checks().get(action)
        try:
            reason = check(self._looking, fault) if check else ""
        except TROUBLE as problem:
            reason = f"It can't be checked: {why(problem)}."
        return f"{reason} {CLASSES[fault.cls].next.replace('{id}', fault.id)}".strip() if reason else ""

    def apply(self, only: Sequence[str] = ()) -> RepairResult:
        result = self.plan(only)
        if not result.plan:
            return result
        with self._at_work() as mending:
            result = self.plan(only)  # again, now that nobody else repairs
            for step in result.plan:
                done = _isolated(mending, step)
                if done.mended:
                    result.applied.append(step.as_json())
                else:
                    result.skip(step.fault.id, done.why)
            result.undo_id = mending.ledger.id if mending.ledger.used else None
        result.audit = self._audit()
        return result

    def accept(self, ids: Sequence[str]) -> RepairResult:
        """These faults are known and stay as they are; they are no longer reported, until the thing changes again."""
        report = self._audit()
        chosen = _find_faults(report.faults, ids)
        result = RepairResult(report)
        with self._at_work() as mending:
            for fault in chosen:
                _accept(mending, fault)
                result.applied.append(RepairStep(fault, "accept").as_json())
            result.undo_id = mending.ledger.id
        result.audit = self._audit()
        return result

    def undo(self, text: str) -> RepairResult:
        undo_id = which(self._host, self._root, text)
        with self._lock():
            steps = take_back(self._host, self._root, undo_id)
            self._forget_sources(steps)
            report = self._audit()
            if self._is_ahead(steps, report):
                self._rebuild()
                report = self._audit()
        result = RepairResult(report, undo_id=undo_id)
        for step in steps:
            if step.reason:
                result.skip(step.fault or step.where, f"{step.where}: {step.reason}")
            else:
                result.applied.append({"fault": step.fault, "action": "undo", "where": step.where})
        return result

    def _forget_sources(self, steps: Sequence[Undone]) -> None:
        """Where capture's memory could not be brought back, too, it must not believe that what was taken back is here."""
        if not any(step.reason and step.where.endswith(f"/{SOURCES}") for step in steps):
            return
        cache = Cache(self._host, self._root)
        for session in {step.session for step in steps if step.session}:
            cache.forget_session(session)
        cache.save()

    def _is_ahead(self, steps: Sequence[Undone], report: AuditedKeep) -> bool:
        """Whether the index knows of what was taken off a journal. (If it went back itself, it is as it was.)"""
        back = {f"{self._root}/{step.where}" for step in steps if not step.reason}
        if f"{self._root}/{INDEX}" in {step.where for step in steps}:
            return False
        ahead = (one for one in report.faults if one.cls == "index_drift")
        return any(f"{self._root}/{fault.about.get('journal')}" in back for fault in ahead)

    def _lock(self) -> AbstractContextManager[None]:
        """One repair at a time, by a lock that goes with its process."""
        return exclusive_lock(self._host, f"{self._root}/{LOCK}", wait_s=_WAIT_S)

    @contextmanager
    def _at_work(self) -> Iterator[Mending]:
        host, root = self._host, self._root
        at = host.stat(f"{root}/{ASIDE}")
        if at and not at.is_folder:
            what = "nothing was repaired: repairs keep what they replace in this folder, but it is not a folder"
            raise Failed(what, where=f"{root}/{ASIDE}", next="Move it out of the keep, then repair again.")
        with self._lock():
            sweep_temps(host, root)
            undo_id = Ids(host.now, host.random).new()
            ledger, ids = Ledger(host, root, undo_id), marked_ids(host, undo_id)
            journals = NotedJournals(host, root, ids, ledger, self._mask)
            looking = self._looking
            try:
                yield Mending(
                    host,
                    root,
                    looking.home,
                    looking.environment,
                    looking.exclude,
                    journals,
                    ids,
                    ledger,
                    self._alive,
                    self._rebuild,
                    self._off,
                )
                ledger.finish()
            finally:
                journals.close()
                ledger.close()


def _isolated(mending: Mending, step: RepairStep) -> MendResult:
    """What one fault's repair meets hinders no other."""
    mending.ledger.fault = step.fault.id
    try:
        return actions()[step.action](mending, step.fault)
    except TROUBLE as problem:
        return left(str(problem) if isinstance(problem, (DreamkeepError, OSError)) else f"it can't be parsed ({why(problem)})")
    finally:
        mending.ledger.fault = ""


def _find_faults(faults: Sequence[Fault], ids: Sequence[str]) -> list[Fault]:
    found = [fault for fault in faults if fault.id in ids]
    missing = sorted(set(ids) - {fault.id for fault in found})
    if missing:
        raise NotFound(f"no problem has the id {missing[0]!r}", where="repair", next="`dreamkeep audit` lists them.")
    return found


def _accept(mending: Mending, fault: Fault) -> None:
    mending.ledger.fault = fault.id
    if fault.about.get("mend") and keep.session_of(fault) is not None:
        mended(mending, fault, "accepted")
        return
    about = {"fault": fault.id, "class": fault.cls, "where": fault.where, "key": str(fault.about.get("key", ""))}
    mending.journals.say("", Kind.FAULT_ACCEPTED, about)
    if fault.about.get("known_by") == "witness" and fault.session:
        keep.look_again(mending, fault.session)  # or the same loss would be told again, by what capture remembers


def checked(*, apply: bool, undo: str | None, accept: Sequence[str], only: Sequence[str]) -> None:
    """Before anything happens."""
    if sum((apply, undo is not None, bool(accept))) > 1 or (only and (undo is not None or accept)):
        raise BadUsage("these options exclude each other", where="repair", next="Give one of: apply (with only), undo, accept.")
    if isinstance(accept, str) or isinstance(only, str):
        raise BadUsage("problems must be given as a list of ids", where="repair", next="Pass [id].")
