"""Repair: a plan by default; applied, it mends exactly the safe part. What it leaves alone is listed with the reason.

    audit ─► plan ─► (check whether each repair can be promised) ─► apply: keep the previous state, act ─► audit again

Each fault is mended by itself: one that can't be is listed in `skipped`, and the others go on. Every action looks at the thing
as it is now, so a second repair changes nothing, and a repair that died halfway is simply run again.
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
from dreamkeep.recovery.faults import CLASSES, Fault, MendResult, not_mended
from dreamkeep.recovery.isolate import TROUBLE, describe_error
from dreamkeep.recovery.repair import dreams, keep, sources
from dreamkeep.recovery.repair.context import PlanContext, RepairContext
from dreamkeep.recovery.repair.ledger import ASIDE, Ledger, NotedJournals, marked_ids, sweep_temps
from dreamkeep.recovery.repair.reread import journal_mended
from dreamkeep.recovery.repair.undo import UndoStep, find_repair, undo
from dreamkeep.recovery.stores import Mender, own_stores

LOCK = "state/repair.lock"
_WAIT_S = 1.0
_MENDERS: tuple[Mender, ...] = (keep, dreams, sources)
#: Actions that read what agents wrote.
_CAPTURES = ("drain", "recapture")


def actions() -> dict[str, Callable[[RepairContext, Fault], MendResult]]:
    """What does each repair that `faults.py` names."""
    return {name: act for mender in (*_MENDERS, *own_stores()) for name, act in mender.ACTIONS.items()}


def checks() -> dict[str, Callable[[PlanContext, Fault], str]]:
    """What finds out whether a repair can be promised, for those that need it."""
    return {name: check for mender in (*_MENDERS, *own_stores()) for name, check in mender.CHECKS.items()}


class AuditedKeep(Protocol):
    """The result of an audit."""

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
    """`audit`: the state afterwards (for a plan: now)."""

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
    """`audit`: audits everything. `misset`: the settings can't be read. The others: see `RepairContext`."""

    def __init__(
        self,
        context: PlanContext,
        audit: Callable[[], AuditedKeep],
        *,
        alive: Callable[[str], bool],
        rebuild: Callable[[], None],
        off: bool = False,
        misset: bool = False,
        mask: Callable[[Event], Event] | None = None,
    ) -> None:
        self._context = context
        self._host = context.host
        self._root = context.root
        self._audit = audit
        self._alive = alive
        self._rebuild = rebuild
        self._off = off
        self._misset = misset
        self._mask = mask

    def plan(self, only: Sequence[str] = ()) -> RepairResult:
        """Writes nothing."""
        report = self._audit()
        _find_faults(report.faults, only)
        result = RepairResult(report)
        for fault in report.faults:
            if reason := self._reason_to_skip(fault, only):
                result.skip(fault.id, reason)
            else:
                result.plan.append(RepairStep(fault, CLASSES[fault.cls].repair))
        return result

    def _reason_to_skip(self, fault: Fault, only: Sequence[str]) -> str:
        if only and fault.id not in only:
            return "not chosen (--only)"
        action = CLASSES[fault.cls].repair
        if not fault.repairable or not action:
            return fault.next
        if self._misset and action in _CAPTURES:
            return "Correct keep.toml first: until then it is unknown what it excludes from capture."
        check = checks().get(action)
        try:
            reason = check(self._context, fault) if check else ""
        except TROUBLE as problem:
            reason = f"It can't be checked: {describe_error(problem)}."
        return f"{reason} {CLASSES[fault.cls].next.replace('{id}', fault.id)}".strip() if reason else ""

    def apply(self, only: Sequence[str] = ()) -> RepairResult:
        result = self.plan(only)
        if not result.plan:
            return result
        with self._at_work() as context:
            result = self.plan(only)  # again, now that nobody else repairs
            for step in result.plan:
                done = _act(context, step)
                if done.mended:
                    result.applied.append(step.as_json())
                else:
                    result.skip(step.fault.id, done.why)
            result.undo_id = context.ledger.id if context.ledger.used else None
        result.audit = self._audit()
        return result

    def accept(self, ids: Sequence[str]) -> RepairResult:
        """These faults stay as they are and are no longer reported, until the thing changes again."""
        report = self._audit()
        chosen = _find_faults(report.faults, ids)
        result = RepairResult(report)
        with self._at_work() as context:
            for fault in chosen:
                _accept(context, fault)
                result.applied.append(RepairStep(fault, "accept").as_json())
            result.undo_id = context.ledger.id
        result.audit = self._audit()
        return result

    def undo(self, text: str) -> RepairResult:
        undo_id = find_repair(self._host, self._root, text)
        with self._lock():
            steps = undo(self._host, self._root, undo_id)
            self._forget_sources(steps)
            report = self._audit()
            if self._is_index_ahead(steps, report):
                self._rebuild()
                report = self._audit()
        result = RepairResult(report, undo_id=undo_id)
        for step in steps:
            if step.reason:
                result.skip(step.fault or step.where, f"{step.where}: {step.reason}")
            else:
                result.applied.append({"fault": step.fault, "action": "undo", "where": step.where})
        return result

    def _forget_sources(self, steps: Sequence[UndoStep]) -> None:
        """If capture's memory could not be brought back, it must not believe that what was taken off is still here."""
        if not any(step.reason and step.where.endswith(f"/{SOURCES}") for step in steps):
            return
        cache = Cache(self._host, self._root)
        for session in {step.session for step in steps if step.session}:
            cache.forget_session(session)
        cache.save()

    def _is_index_ahead(self, steps: Sequence[UndoStep], report: AuditedKeep) -> bool:
        """Whether the index has events that were taken off a journal. (An index that was itself put back is as it was.)"""
        if f"{self._root}/{INDEX}" in {step.where for step in steps}:
            return False
        undone = {f"{self._root}/{step.where}" for step in steps if not step.reason}
        drift = (fault for fault in report.faults if fault.cls == "index_drift")
        return any(f"{self._root}/{fault.about.get('journal')}" in undone for fault in drift)

    def _lock(self) -> AbstractContextManager[None]:
        """One repair at a time; the lock goes with its process."""
        return exclusive_lock(self._host, f"{self._root}/{LOCK}", wait_s=_WAIT_S)

    @contextmanager
    def _at_work(self) -> Iterator[RepairContext]:
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
            known = vars(self._context)
            try:
                yield RepairContext(
                    **known, journals=journals, ids=ids, ledger=ledger, alive=self._alive, rebuild=self._rebuild, off=self._off
                )
                ledger.finish()
            finally:
                journals.close()
                ledger.close()


def _act(context: RepairContext, step: RepairStep) -> MendResult:
    """What goes wrong with one repair hinders no other."""
    context.ledger.fault = step.fault.id
    try:
        return actions()[step.action](context, step.fault)
    except TROUBLE as problem:
        is_system = isinstance(problem, (DreamkeepError, OSError))
        return not_mended(str(problem) if is_system else f"it can't be parsed ({describe_error(problem)})")
    finally:
        context.ledger.fault = ""


def _find_faults(faults: Sequence[Fault], ids: Sequence[str]) -> list[Fault]:
    missing = sorted(set(ids) - {fault.id for fault in faults})
    if missing:
        raise NotFound(f"no problem has the id {missing[0]!r}", where="repair", next="`dreamkeep audit` lists them.")
    return [fault for fault in faults if fault.id in ids]


def _accept(context: RepairContext, fault: Fault) -> None:
    context.ledger.fault = fault.id
    if fault.about.get("mend") and keep.session_of(fault) is not None:
        journal_mended(context, fault, "accepted")
        return
    body = {"fault": fault.id, "class": fault.cls, "where": fault.where, "key": str(fault.about.get("key", ""))}
    context.journals.say("", Kind.FAULT_ACCEPTED, body)
    if fault.about.get("known_by") == "witness" and fault.session:
        keep.look_again(context, fault.session)  # otherwise capture's memory would report the same loss again


def check_arguments(*, apply: bool, undo: str | None, accept: Sequence[str], only: Sequence[str]) -> None:
    """Before anything happens."""
    if sum((apply, undo is not None, bool(accept))) > 1 or (only and (undo is not None or accept)):
        raise BadUsage("these options exclude each other", where="repair", next="Give one of: apply (with only), undo, accept.")
    if isinstance(accept, str) or isinstance(only, str):
        raise BadUsage("problems must be given as a list of ids", where="repair", next="Pass [id].")
