"""Repairs of captured transcripts: only blanked bytes are filled in again, from the journal. What else was done may be meant.

The bytes that are not NUL must be the captured ones, byte for byte, in their places; whatever the agent wrote behind them stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dreamkeep.capture.sources.content import PlainFile, iter_blocks
from dreamkeep.journal.places import folder_of
from dreamkeep.recovery.audit import compare_source
from dreamkeep.recovery.faults import Fault
from dreamkeep.recovery.repair.mending import MENDED, Looking, Mending, MendResult, left

_OTHER = (
    "it was changed beyond the blanked bytes, the agent rewrote it, the journal lost lines of it, or secrets in it were masked"
    " at capture;"
    " `dreamkeep restore` restores what was captured"
)


def restore(mending: Mending, fault: Fault) -> MendResult:
    seen = mending.host.stat(fault.about["path"])
    if seen is None:
        return left("it no longer exists")
    now = _bytes(mending, fault)
    if b"\0" not in now:
        return MENDED  # by somebody else, or by us before a crash
    whole = _whole(mending, fault, now)
    if whole is None:
        return left(_OTHER)
    return mending.ledger.replace(fault.about["path"], whole, seen=seen, session=fault.session)


def can_restore(looking: Looking, fault: Fault) -> str:
    return "" if _whole(looking, fault, _bytes(looking, fault)) is not None else _OTHER


def _whole(looking: Looking, fault: Fault, now: bytes) -> bytes | None:
    return compare_source.unblanked(looking.host, f"{looking.root}/{folder_of(fault.session)}", fault.about["name"], now)


def _bytes(looking: Looking, fault: Fault) -> bytes:
    content = PlainFile(looking.host, fault.about["path"])
    try:
        return b"".join(iter_blocks(content))
    finally:
        content.close()


ACTIONS: Mapping[str, Callable[[Mending, Fault], MendResult]] = MappingProxyType({"restore": restore})
CHECKS: Mapping[str, Callable[[Looking, Fault], str]] = MappingProxyType({"restore": can_restore})
