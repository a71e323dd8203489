"""The fault classes: what an audit can report, which repair mends it, and what to do where none may. Pure.

A class that names a repair has one (`recovery/repair.py`), and `docs/recovery.md` lists the same table: a test compares them.
Of a class with a repair one fault may still be unsafe (its content is nowhere else): then it is not repairable, and says why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Class(NamedTuple):
    """`repair`: the action's name, "" when nothing is safe. `next`: what to do when it is not (or not) repaired."""

    means: str
    repair: str
    next: str


_PLACE = re.compile(r"\{id\}|SESSION|AGENT")
_ACCEPT = "or accept it: `dreamkeep repair --accept {id}`"
_RESTORE = "`dreamkeep restore SESSION --to AGENT` gives back what was captured"
_ELSEWHERE = "`dreamkeep restore SESSION --to AGENT --home DIR` writes what was captured into another place"
_GONE = f"Bring the missing events back with `dreamkeep snapshot import FILE`, {_ACCEPT}."

CLASSES: Mapping[str, Class] = MappingProxyType(
    {
        # the journals
        "journal_tail": Class("an append that did not finish, at the end of a journal", "settle", ""),
        "journal_damage": Class(
            "bytes that fail their checksum, with good frames after them, or a compressed part that can't be read",
            "recapture",
            _GONE,
        ),
        "journal_gap": Class("seqs are missing between two good frames", "recapture", _GONE),
        "journal_missing_part": Class("a whole part, or the end of the last one, is missing", "recapture", _GONE),
        "journal_duplicate": Class("the same frame twice: read once", "note", ""),
        "journal_disorder": Class("frames in another order than they were written: all are read", "note", ""),
        "journal_link": Class("a frame does not name the one before it, and none is missing", "note", ""),
        "journal_reused": Class("one seq for two different frames: the second is not read", "readd", ""),
        "journal_chunks": Class("the pieces of a long event don't add up", "recapture", _GONE),
        "journal_strange": Class("a frame whose body is not what its kind promises", "", f"It stays as it is; {_ACCEPT}."),
        "journal_unreadable": Class(
            "a journal that can't be read at all, or a folder that is none", "", "Make it readable, or move it out of the keep."
        ),
        "journal_twice": Class("a part lies there plain and compressed, as a crash leaves it", "finish_compress", ""),
        "journal_differs": Class(
            "a part's plain and compressed form differ", "", "Compare the two; move the wrong one out of the keep."
        ),
        # views and book-keeping of the keep
        "witness_damaged": Class("the record of what each journal was seen to hold is gone or damaged", "renew_witness", ""),
        "index_unusable": Class("the index file is damaged, or not one of this version", "rebuild", ""),
        "index_drift": Class("the index says other than the journal", "rebuild", ""),
        "page_fence": Class(
            "the fence of a page is broken", "", "Mend the fence lines by hand; nothing is written to that page before."
        ),
        "page_unwritten": Class("a page that was published and is not there, or was not written any more", "write_page", ""),
        "dream_unfinished": Class("a dream began, did not end, and nobody dreams", "end_dream", ""),
        "spool_waiting": Class("hook calls that no drainer has journaled", "drain", ""),
        "spool_unreadable": Class("something in the spool that is no hook call", "set_aside", ""),
        "hook_lost": Class("a hook call could not be kept", "set_aside", ""),
        "tombstone_unfinished": Class(
            "a deletion was interrupted", "", "`dreamkeep delete SESSION` finishes it: a repair deletes nothing."
        ),
        "lease_stale": Class("the lock file of a process that is gone", "sweep", ""),
        "turn_interrupted": Class("a turn was not settled and its owner is gone", "settle_turn", ""),
        "compaction_open": Class("a compaction began, and nothing will end it", "close_compaction", ""),
        "leftover": Class("a temporary file of a write that did not finish", "set_aside", ""),
        "open_to_others": Class("a file or folder of the keep that others may read", "close_mode", ""),
        "state_unreadable": Class("a cache in `state/`, the settings, or a repair's notes that can't be read", "set_aside", ""),
        # the agents' own stores
        "source_shrank": Class(
            "a transcript, or a session in a database, has less than was captured", "", f"{_RESTORE}, {_ACCEPT}."
        ),
        "source_blanked": Class("a transcript's bytes became NULs (a power cut)", "restore", ""),
        "source_changed": Class(
            "a transcript has other bytes where captured ones were, or a row other words",
            "",
            f"Both are kept; {_ELSEWHERE}, {_ACCEPT}.",
        ),
        "source_vanished": Class("a captured transcript is gone", "", f"{_RESTORE}, {_ACCEPT}."),
        "source_unreadable": Class("a transcript can't be read", "", "Make it readable; what was captured is safe."),
        "source_malformed": Class(
            "lines in a transcript that are no records (torn, NULs)", "", f"They are kept as they are; {_ACCEPT}."
        ),
        "store_unreadable": Class(
            "an agent's database or session file can't be read", "", "Look at it with the agent's own tools; nothing was changed."
        ),
        "webui_corrupt": Class("a session file that can't be read, of which a good copy is at hand", "rebuild_sidecar", ""),
        "webui_orphan_backup": Class("a `.bak` whose session file is gone", "restore_backup", ""),
        "webui_richer_backup": Class(
            "a `.bak` that holds more than the session file, and nobody meant that", "restore_backup", ""
        ),
        "webui_richer_rows": Class(
            "rows of state.db hold more than the session file, and nothing says that this was meant",
            "",
            f"`dreamkeep restore` puts what the rows have beside it, as a session of its own, {_ACCEPT}.",
        ),
        "webui_index_missing": Class("`_index.json` lacks a session file that is there", "rebuild_webui_index", ""),
        "webui_index_dangling": Class("`_index.json` names a session file that is not there", "rebuild_webui_index", ""),
        "webui_no_sidecar": Class("a row of state.db has no session file", "rebuild_sidecar", ""),
        "webui_no_row": Class(
            "a session file has no row in state.db", "", "The file is whole; the WebUI makes the row when the session is used."
        ),
        "webui_empty_row": Class(
            "a row of state.db with no messages and no worktree", "", "Nothing is lost by it; the agent may remove it."
        ),
        "webui_turn_pending": Class("a prompt in the turn journal that never reached its session file", "recover_turn", ""),
    }
)


#: What is worth telling and is no fault: what it is, and what comes of it.
NOTICES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "page_edited": (
            "lines of a page were changed by hand, and nobody has taken that in yet",
            "The next dream takes it in as your word; `dreamkeep dream` does so now.",
        ),
        "no_keep": (
            "there is no keep in this folder, so only what agents have themselves was looked at",
            "The first session that is recorded makes one; if it is elsewhere, name it with --keep.",
        ),
    }
)


class Notice(NamedTuple):
    """Something that waits and is as it should be: the keep is clean all the same."""

    cls: str
    where: str
    what: str
    next: str

    def as_json(self) -> dict[str, str]:
        return {"class": self.cls, "where": self.where, "what": self.what, "next": self.next}


def notice(cls: str, where: str, what: str) -> Notice:
    return Notice(cls, where, what, NOTICES[cls][1])


class Fault(NamedTuple):
    """One thing that is wrong. `about`: what the repair must know; `session`: whose, where it is one session's; `key`: what tells
    it from others at the same place."""

    id: str
    cls: str
    where: str
    what: str
    repairable: bool
    next: str
    session: str = ""
    about: Mapping[str, Any] = MappingProxyType({})
    key: str = ""

    def as_json(self) -> dict[str, Any]:
        answer = {
            "id": self.id,
            "class": self.cls,
            "where": self.where,
            "what": self.what,
            "repairable": self.repairable,
            "next": self.next,
        }
        return {**answer, "session": self.session} if self.session else answer


def fault(
    cls: str,
    where: str,
    what: str,
    *,
    session: str = "",
    key: str = "",
    unsafe: str = "",
    step: str = "",
    **about: Any,
) -> Fault:
    """`key`: what tells it from others of its class at the same place, and stays so from audit to audit.

    `unsafe`: why this one can't be repaired although its class can. `step`: what to do about this one, instead of what its
    class says.
    """
    from shlex import quote

    known = CLASSES[cls]
    name = f"{cls}-{_digest(where, key)}"
    repairable = bool(known.repair) and not unsafe
    way = (
        f"Run `dreamkeep repair --apply`: {known.repair.replace('_', ' ')}."
        if repairable
        else f"{unsafe} {step or known.next}".strip()
    )
    # One after the other, the names in what was put in would be taken for places to fill.
    named = {"{id}": name, "SESSION": quote(session) or "SESSION", "AGENT": session.partition(":")[0] or "AGENT"}
    way = _PLACE.sub(lambda found: named[found[0]] if session or found[0] == "{id}" else found[0], way)
    return Fault(name, cls, where, what, repairable, way, session, MappingProxyType({"session": session, **about}), key)


def counted(number: int, one: str, many: str) -> str:
    """ "1 frame lies", "2 frames lie"."""
    return f"{number} {one if number == 1 else many}"


def seen_from(root: str, one: Fault) -> Fault:
    """One in the keep, named from there: it is the same fault by whatever path the keep is opened, and where it was moved to."""
    if one.where != root and not one.where.startswith(f"{root}/"):
        return one
    return _called(one, f"{one.cls}-{_digest(one.where.removeprefix(root), one.key)}")


def seen_as(one: Fault, look: str) -> Fault:
    """One that is told of a file as it is: when the file becomes another, this is another fault, accepted by nobody yet."""
    return _called(one, f"{one.cls}-{_digest(one.id, look)}")


def _called(one: Fault, id: str) -> Fault:
    return one._replace(id=id, next=one.next.replace(one.id, id))


def _digest(*words: str) -> str:
    from hashlib import blake2b

    # So long that two faults of thousands never share it: one would hide the other.
    return blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
