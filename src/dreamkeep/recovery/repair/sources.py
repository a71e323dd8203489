"""Repair of captured transcripts: only blanked bytes are filled in again, from the journal. Any other change may be intended.

All bytes that are not NUL must be the captured ones, in their places. Whatever the agent wrote after them stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dreamkeep.capture.sources.content import PlainFile, iter_blocks
from dreamkeep.journal.places import folder_of
from dreamkeep.recovery.audit import compare_source
from dreamkeep.recovery.faults import MENDED, Fault, MendResult, not_mended
from dreamkeep.recovery.repair.context import PlanContext, RepairContext

_OTHER = (
    "it was changed beyond the blanked bytes, the agent rewrote it, the journal lost lines of it, or secrets in it were masked"
    " at capture;"
    " `dreamkeep restore` restores what was captured"
)


def restore(context: RepairContext, fault: Fault) -> MendResult:
    seen = context.host.stat(fault.about["path"])
    if seen is None:
        return not_mended("it no longer exists")
    now = _bytes(context, fault)
    if b"\0" not in now:
        return MENDED  # by somebody else, or by us before a crash
    whole = _whole(context, fault, now)
    if whole is None:
        return not_mended(_OTHER)
    return context.ledger.replace(fault.about["path"], whole, seen=seen, session=fault.session)


def can_restore(context: PlanContext, fault: Fault) -> str:
    return "" if _whole(context, fault, _bytes(context, fault)) is not None else _OTHER


def _whole(context: PlanContext, fault: Fault, now: bytes) -> bytes | None:
    return compare_source.unblanked(context.host, f"{context.root}/{folder_of(fault.session)}", fault.about["name"], now)


def _bytes(context: PlanContext, fault: Fault) -> bytes:
    content = PlainFile(context.host, fault.about["path"])
    try:
        return b"".join(iter_blocks(content))
    finally:
        content.close()


ACTIONS: Mapping[str, Callable[[RepairContext, Fault], MendResult]] = MappingProxyType({"restore": restore})
CHECKS: Mapping[str, Callable[[PlanContext, Fault], str]] = MappingProxyType({"restore": can_restore})
