"""What a reading of a journal saw, as faults of the audit. Pure.

`Fault.about` of each class here (what a repair may rely on). All have `journal` (folder relative to the keep) and `session` (""
for the keep's own, and where none can be told).

    journal_tail            part, at, size, whole (only the line feed is missing)
    journal_damage          kind "damage" or "cold" (a compressed part that can't be read from `at` on; without `missing` nobody
                            knows how much was lost); part, at, size, missing [[first, last], …], times, recorded, mend
    journal_gap             kind "gap" or "suspect" (lost with a failed sync, never acknowledged); the same keys
    journal_missing_part    kind "missing_part"; the same keys; part: the first that is missing; known_by "journal", or
                            "witness": the last parts or frames are gone, and only the witness knows of them (then mend is None,
                            and after: the seq with which the journal ends; remembered: the index was brought up to
                            date since); or "capture": lines of a file that were captured
                            (part 0; mend None; after, too)
    journal_duplicate       kind "duplicate"; the same keys
    journal_disorder        kind "disorder"; the same keys
    journal_link            kind "link"; the same keys
    journal_reused          kind "reused"; the same keys (part, at, size: where the frame lies that is not read)
    journal_chunks          kind "chunks"; seq (of the frame that binds the pieces); part 0, at = seq; mend
    journal_strange         kind "strange"; seq; part 0, at = seq; mend
    journal_unreadable      why
    journal_twice           part
    journal_differs         part

Of the first four kinds, `witnessed`: what was known of the session before that was lost, and stands in no file (`state`, and
whether `others` than files spoke); None where nobody knew anything.

`mend`: {"kind", "part", "at", "size"}, to be put as it is into the body of a frame `journal.mended` of that journal
({"faults": [mend, …], "how": "accepted" | "noted" | "recaptured" | "readded" | "imported"}): then the fault is no longer
reported.
"""

from __future__ import annotations

from typing import Any

from dreamkeep.journal import parts
from dreamkeep.journal.reader import JournalDefect as Seen
from dreamkeep.journal.reader import Tail
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


def make_fault(root: str, name: str, session: str, seen: Seen, *, witnessed: dict[str, Any] | None = None) -> Fault:
    """One fault of the journal `name`."""
    folder = f"{root}/{name}"
    cls = _CLASS[seen.kind]
    where = f"{folder}/{parts.name(seen.part)}:{seen.offset}" if seen.part else f"{folder}:{seen.offset}"
    # Where no frame is missing nothing was lost; of a compressed part that can't be read nobody knows.
    lost = bool(seen.missing) or seen.kind == "cold"
    unsafe = _unsafe(cls, session) if lost else ""
    about = {**_about(seen), "witnessed": witnessed if lost else None}
    return made(cls, where, _describe(seen), name, session, key=seen.kind, unsafe=unsafe, **about)


def _about(seen: Seen) -> dict[str, Any]:
    about: dict[str, Any] = {
        "kind": seen.kind,
        "part": seen.part,
        "at": seen.offset,
        "size": seen.size,
        "missing": [list(span) for span in seen.missing],
        "times": seen.times,
        "recorded": seen.recorded,
        "mend": {"kind": seen.kind, "part": seen.part, "at": seen.offset, "size": seen.size},
    }
    if not seen.part:
        about["seq"] = seen.offset
    if seen.kind == "missing_part":
        about["known_by"] = "journal"
    return about


def tail_told(root: str, name: str, session: str, tail: Tail) -> Fault:
    what = "the last frame has no line feed" if tail.whole else f"{tail.size} bytes of an unfinished append"
    where = f"{root}/{name}/{parts.name(tail.part)}:{tail.offset}"
    about: dict[str, Any] = {"part": tail.part, "at": tail.offset, "size": tail.size, "whole": tail.whole}
    return made("journal_tail", where, what, name, session, **about)


def end_lost(
    root: str,
    one: Sighting,
    what: str,
    *,
    after: int,
    witnessed: dict[str, Any] | None,
    remembered: bool,
) -> Fault:
    """What followed the seq `after` is gone, and only the witness knows of it.

    By `one` alone it is named: what is written there since, be it that this was accepted, makes it no other loss. `remembered`:
    the index has followed the journal since, and knows no more than that.
    """
    cls = "journal_missing_part"
    known_by = {"known_by": "witness", "witnessed": witnessed, "remembered": remembered}
    about = {**_about(Seen("missing_part", one.part, 0, 0)), "mend": None, "after": after, **known_by}
    where = f"{root}/{one.journal}/{parts.name(one.part)}"
    unsafe = _unsafe(cls, one.session)
    return made(cls, where, what, one.journal, one.session, key=f"{one.seq} {one.crc}", unsafe=unsafe, **about)


def captured_lost(root: str, name: str, session: str, what: str, *, after: int, key: str) -> Fault:
    """Lines that capture remembers to have journaled are not there, behind the seq `after`, and nothing else tells of them."""
    cls = "journal_missing_part"
    known_by = {"known_by": "capture", "witnessed": None}
    about = {**_about(Seen("missing_part", 0, 0, 0)), "mend": None, "after": after, **known_by}
    return made(cls, f"{root}/{name}", what, name, session, key=key, **about)


def made(cls: str, where: str, what: str, name: str, session: str, *, key: str = "", unsafe: str = "", **about: Any) -> Fault:
    return fault(cls, where, what, session=session, key=key, unsafe=unsafe, journal=name, **about)


def _unsafe(cls: str, session: str) -> str:
    return _NOWHERE_ELSE if cls in _RECAPTURED and (not session or session.startswith("python:")) else ""


def _describe(seen: Seen) -> str:
    lost = ", ".join(f"{a}–{b}" if b > a else f"{a}" for a, b in seen.missing)
    frames = counted(seen.times, "frame", "frames")
    said = {
        "damage": f"{seen.size} bytes fail their checksum",
        "cold": f"the compressed part can't be read{f' from byte {seen.offset} of its content' if seen.offset else ''}",
        "gap": "frames are missing",
        "suspect": "frames were lost with a failed sync (they were never acknowledged)",
        "missing_part": "the part is missing",
        "duplicate": f"{frames} stored twice",
        "disorder": f"{frames} out of order",
        "link": "the frame doesn't name the one before it",
        "reused": f"{frames} with a seq that is already taken",
        "chunks": "the pieces of this event don't add up",
        "strange": "the body of this frame doesn't match its kind",
    }[seen.kind]
    return f"{said}: seq {lost}" if lost and seen.part else said
