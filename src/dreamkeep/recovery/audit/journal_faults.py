"""Faults of journals, made from what a scan found. Pure.

`Fault.about` of each class (a repair may rely on it). All have `journal` (the folder, relative to the keep) and `session` (""
for the keep's own, and where it is unknown).

    journal_tail            part, at, size, whole (only the line feed is missing)
    journal_damage          kind "damage" or "cold" (a compressed part that can't be read from `at` on; without `missing` it is
                            unknown how much was lost); part, at, size, missing [[first, last], …], times, recorded, mend
    journal_gap             kind "gap" or "suspect" (lost with a failed sync, never acknowledged); the same keys
    journal_missing_part    kind "missing_part"; the same keys; part: the first that is missing. known_by:
                              "journal"  frames on both sides show it
                              "witness"  the last parts or frames are gone, and only the witness knows of them. mend is None;
                                         after: the seq with which the journal ends; remembered: whether the index has followed
                                         the journal since
                              "capture"  captured lines of a file are gone. part 0; mend is None; after, too
    journal_duplicate       kind "duplicate"; the same keys
    journal_disorder        kind "disorder"; the same keys
    journal_link            kind "link"; the same keys
    journal_reused          kind "reused"; the same keys (part, at, size: the frame that is not read)
    journal_chunks          kind "chunks"; seq (of the frame that binds the chunks); part 0, at = seq; mend
    journal_strange         kind "strange"; seq; part 0, at = seq; mend
    journal_unreadable      why
    journal_twice           part
    journal_differs         part

The first four kinds also have `witnessed`: what was known of the session before the loss and stands in no file (`state`, and
whether `others` than files spoke); None where nothing was known.

`mend`: {"kind", "part", "at", "size"}. Put it unchanged into a frame `journal.mended` of that journal ({"faults": [mend, …],
"how": "accepted" | "noted" | "recaptured" | "readded" | "imported"}): then the fault is no longer reported.
"""

from __future__ import annotations

from typing import Any

from dreamkeep.journal import parts
from dreamkeep.journal.reader import JournalDefect, Tail
from dreamkeep.journal.witness import Sighting
from dreamkeep.recovery.faults import Fault, counted, fault

_CLASS = {
    "damage": "journal_damage",
    "cold": "journal_damage",
    "gap": "journal_gap",
    "suspect": "journal_gap",
    "missing_part": "journal_missing_part",
    "duplicate": "journal_duplicate",
    "disorder": "journal_disorder",
    "link": "journal_link",
    "reused": "journal_reused",
    "chunks": "journal_chunks",
    "strange": "journal_strange",
}
_RECAPTURED = frozenset(("journal_damage", "journal_gap", "journal_missing_part", "journal_chunks"))
_NOWHERE_ELSE = "There is no other copy of what was lost here."


def defect_fault(root: str, name: str, session: str, defect: JournalDefect, *, witnessed: dict[str, Any] | None = None) -> Fault:
    """A fault of the journal `name`."""
    folder = f"{root}/{name}"
    cls = _CLASS[defect.kind]
    where = f"{folder}/{parts.name(defect.part)}:{defect.offset}" if defect.part else f"{folder}:{defect.offset}"
    # Where no frame is missing nothing was lost. Of an unreadable compressed part it is unknown.
    lost = bool(defect.missing) or defect.kind == "cold"
    unsafe = _unsafe(cls, session) if lost else ""
    about = {**_about(defect), "witnessed": witnessed if lost else None}
    return journal_fault(cls, where, _describe(defect), name, session, key=defect.kind, unsafe=unsafe, **about)


def _about(defect: JournalDefect) -> dict[str, Any]:
    kind, part, offset, size = defect[:4]
    about: dict[str, Any] = {
        "kind": kind,
        "part": part,
        "at": offset,
        "size": size,
        "missing": [list(span) for span in defect.missing],
        "times": defect.times,
        "recorded": defect.recorded,
        "mend": {"kind": kind, "part": part, "at": offset, "size": size},
    }
    if not part:
        about["seq"] = offset
    if kind == "missing_part":
        about["known_by"] = "journal"
    return about


def tail_fault(root: str, name: str, session: str, tail: Tail) -> Fault:
    what = "the last frame has no line feed" if tail.whole else f"{tail.size} bytes of an unfinished append"
    where = f"{root}/{name}/{parts.name(tail.part)}:{tail.offset}"
    about: dict[str, Any] = {"part": tail.part, "at": tail.offset, "size": tail.size, "whole": tail.whole}
    return journal_fault("journal_tail", where, what, name, session, **about)


def lost_end_fault(
    root: str, one: Sighting, what: str, *, after: int, witnessed: dict[str, Any] | None, remembered: bool
) -> Fault:
    """What followed the seq `after` is gone, and only the witness knows of it. The id depends on `one` alone: what is written
    since, be it that this was accepted, makes it no other loss."""
    cls = "journal_missing_part"
    known = {"mend": None, "after": after, "known_by": "witness", "witnessed": witnessed, "remembered": remembered}
    about = {**_about(JournalDefect("missing_part", one.part, 0, 0)), **known}
    where = f"{root}/{one.journal}/{parts.name(one.part)}"
    unsafe = _unsafe(cls, one.session)
    return journal_fault(cls, where, what, one.journal, one.session, key=f"{one.seq} {one.crc}", unsafe=unsafe, **about)


def lost_lines_fault(root: str, name: str, session: str, what: str, *, after: int, key: str) -> Fault:
    """Lines that capture remembers to have journaled are missing behind the seq `after`, and nothing else reports them."""
    known = {"mend": None, "after": after, "known_by": "capture", "witnessed": None}
    about = {**_about(JournalDefect("missing_part", 0, 0, 0)), **known}
    return journal_fault("journal_missing_part", f"{root}/{name}", what, name, session, key=key, **about)


def journal_fault(
    cls: str, where: str, what: str, name: str, session: str, *, key: str = "", unsafe: str = "", step: str = "", **about: Any
) -> Fault:
    return fault(cls, where, what, session=session, key=key, unsafe=unsafe, step=step, journal=name, **about)


def _unsafe(cls: str, session: str) -> str:
    return _NOWHERE_ELSE if cls in _RECAPTURED and (not session or session.startswith("python:")) else ""


def _describe(defect: JournalDefect) -> str:
    lost = ", ".join(f"{a}–{b}" if b > a else f"{a}" for a, b in defect.missing)
    frames = counted(defect.times, "frame", "frames")
    text = {
        "damage": f"{defect.size} bytes fail their checksum",
        "cold": f"the compressed part can't be read{f' from byte {defect.offset} of its content' if defect.offset else ''}",
        "gap": "frames are missing",
        "suspect": "frames were lost with a failed sync (they were never acknowledged)",
        "missing_part": "the part is missing",
        "duplicate": f"{frames} stored twice",
        "disorder": f"{frames} out of order",
        "link": "the frame doesn't name the one before it",
        "reused": f"{frames} with a seq that is already taken",
        "chunks": "the pieces of this event don't add up",
        "strange": "the body of this frame doesn't match its kind",
    }[defect.kind]
    return f"{text}: seq {lost}" if lost and defect.part else text
