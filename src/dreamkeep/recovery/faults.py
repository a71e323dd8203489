"""The fault classes: what an audit can report, which repair mends it, and what to do otherwise. Pure.

The repairs are in `recovery/repair/`. `docs/recovery.md` has the same table; a test compares them. A single fault may be unsafe
to repair although its class has a repair (its content is nowhere else, for example): then it is not repairable and says why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class FaultClass(NamedTuple):
    """`repair`: the action's name, "" when nothing is safe. `next`: what to do about a fault that is not repairable."""

    means: str
    repair: str
    next: str


_PLACE = re.compile(r"\{id\}|SESSION|AGENT")
_ACCEPT = "or accept it with `dreamkeep repair --accept {id}`"
_RESTORE = "Restore what was captured with `dreamkeep restore SESSION --to AGENT`"
_ELSEWHERE = "Write the captured version to another folder with `dreamkeep restore SESSION --to AGENT --home DIR`"
_GONE = f"Import the missing events with `dreamkeep snapshot import FILE`, {_ACCEPT}."

CLASSES: Mapping[str, FaultClass] = MappingProxyType(
    {
        # the journals
        "journal_tail": FaultClass("an unfinished append at the end of a journal", "settle", ""),
        "journal_damage": FaultClass(
            "bytes that fail their checksum, followed by good frames, or a compressed part that can't be read",
            "recapture",
            _GONE,
        ),
        "journal_gap": FaultClass("frames are missing between two good ones", "recapture", _GONE),
        "journal_missing_part": FaultClass("a whole part, or the end of the last one, is missing", "recapture", _GONE),
        "journal_duplicate": FaultClass("the same frame twice; it is read once", "note", ""),
        "journal_disorder": FaultClass("frames out of order; all of them are read", "note", ""),
        "journal_link": FaultClass("a frame doesn't name the one before it, but none is missing", "note", ""),
        "journal_reused": FaultClass("two different frames with the same seq; the second is not read", "readd", ""),
        "journal_chunks": FaultClass("the pieces of a long event don't add up", "recapture", _GONE),
        "journal_strange": FaultClass("a frame whose body doesn't match its kind", "", f"Leave it, {_ACCEPT}."),
        "journal_unreadable": FaultClass(
            "a journal that can't be read at all, or a folder that is not a journal",
            "",
            "Make it readable, or move it out of the keep.",
        ),
        "journal_twice": FaultClass("a part exists both plain and compressed, as after a crash", "finish_compress", ""),
        "journal_differs": FaultClass(
            "a part's plain and compressed forms differ", "", "Compare the two; move the wrong one out of the keep."
        ),
        # views and book-keeping of the keep
        "witness_damaged": FaultClass(
            "the record of what each journal was seen to hold is missing or damaged", "renew_witness", ""
        ),
        "index_unusable": FaultClass("the index file is damaged or from another version", "rebuild", ""),
        "index_drift": FaultClass("the index disagrees with the journal", "rebuild", ""),
        "page_fence": FaultClass(
            "the fence of a page is broken", "", "Fix the fence lines by hand; until then nothing is written to that page."
        ),
        "page_unwritten": FaultClass("a published page is missing or was never written", "write_page", ""),
        "dream_unfinished": FaultClass("a dream started and never finished, and no dream is running", "end_dream", ""),
        "spool_waiting": FaultClass("hook calls that are not yet in a journal", "drain", ""),
        "spool_unreadable": FaultClass("something in the spool that is not a hook call", "set_aside", ""),
        "hook_lost": FaultClass("a hook call could not be recorded", "set_aside", ""),
        "tombstone_unfinished": FaultClass(
            "a deletion was interrupted", "", "Finish it with `dreamkeep delete SESSION`; a repair deletes nothing."
        ),
        "lease_stale": FaultClass("a lock file whose process has ended", "sweep", ""),
        "turn_interrupted": FaultClass("a turn was never settled, and its owner has ended", "settle_turn", ""),
        "compaction_open": FaultClass("a compaction started and will never finish", "close_compaction", ""),
        "leftover": FaultClass("a temporary file left by an unfinished write", "set_aside", ""),
        "open_to_others": FaultClass("a file or folder of the keep that other users can read", "close_mode", ""),
        "state_unreadable": FaultClass("a cache in `state/`, the settings, or a repair's records can't be read", "set_aside", ""),
        # the agents' own stores
        "source_shrank": FaultClass(
            "a transcript, or a session in a database, holds less than was captured", "", f"{_RESTORE}, {_ACCEPT}."
        ),
        "source_blanked": FaultClass("bytes of a transcript are now NULs, as after a power cut", "restore", ""),
        "source_changed": FaultClass(
            "a transcript or a database row was changed after it was captured",
            "",
            f"Nothing is overwritten. {_ELSEWHERE}, {_ACCEPT}.",
        ),
        "source_vanished": FaultClass("a captured transcript was deleted", "", f"{_RESTORE}, {_ACCEPT}."),
        "source_unreadable": FaultClass("a transcript can't be read", "", "Make it readable. What was captured is safe."),
        "source_malformed": FaultClass(
            "lines in a transcript that are not records (torn, or NULs)", "", f"Leave them, {_ACCEPT}."
        ),
        "store_unreadable": FaultClass(
            "an agent's database or session file can't be read", "", "Check it with the agent's own tools. Nothing was changed."
        ),
        "webui_corrupt": FaultClass("a session file can't be read, but there is a good copy", "rebuild_sidecar", ""),
        "webui_orphan_backup": FaultClass("a `.bak` whose session file is missing", "restore_backup", ""),
        "webui_richer_backup": FaultClass(
            "a `.bak` holds more than its session file, with no sign that this was intended", "restore_backup", ""
        ),
        "webui_richer_rows": FaultClass(
            "rows in state.db hold more than the session file, with no sign that this was intended",
            "",
            f"Restore the rows as a separate session with `dreamkeep restore`, {_ACCEPT}.",
        ),
        "webui_index_missing": FaultClass("`_index.json` doesn't list an existing session file", "rebuild_webui_index", ""),
        "webui_index_dangling": FaultClass("`_index.json` lists a session file that doesn't exist", "rebuild_webui_index", ""),
        "webui_no_sidecar": FaultClass("a row in state.db has no session file", "rebuild_sidecar", ""),
        "webui_no_row": FaultClass(
            "a session file has no row in state.db", "", "The file is intact; the WebUI adds the row when the session is used."
        ),
        "webui_empty_row": FaultClass(
            "a row in state.db has no messages and no worktree", "", "Nothing is lost; the agent may remove the row."
        ),
        "webui_turn_pending": FaultClass("a prompt in the turn journal never reached its session file", "recover_turn", ""),
    }
)


#: What is worth reporting but no fault: what it is, and what will happen.
NOTICES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "page_edited": (
            "a page was edited by hand, and the edits are not applied yet",
            "The next dream applies them as your word. To do it now, run `dreamkeep dream`.",
        ),
        "no_keep": (
            "there is no keep in this folder, so only the agents' own stores were checked",
            "It is created when the first session is recorded. If yours is elsewhere, name it with --keep.",
        ),
    }
)


class Notice(NamedTuple):
    """Something that waits and is as it should be: the keep still counts as clean."""

    cls: str
    where: str
    what: str
    next: str

    def as_json(self) -> dict[str, str]:
        return {"class": self.cls, "where": self.where, "what": self.what, "next": self.next}


def notice(cls: str, where: str, what: str) -> Notice:
    return Notice(cls, where, what, NOTICES[cls][1])


class Fault(NamedTuple):
    """One thing that is wrong. `about`: what the repair needs to know. `session`: the session it belongs to, if it belongs to
    one. `key`: distinguishes it from others at the same place."""

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


class MendResult(NamedTuple):
    """What the repair of one fault came to. `why`: the reason when it was not mended."""

    mended: bool
    why: str = ""


MENDED = MendResult(True)


def not_mended(why: str) -> MendResult:
    return MendResult(False, why)


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
    """`key`: distinguishes it from others of its class at the same place; the same in every audit.

    `unsafe`: why this fault can't be repaired although its class can. `step`: what to do about it, instead of what its class
    says.
    """
    from shlex import quote

    known = CLASSES[cls]
    name = f"{cls}-{_digest(where, key)}"
    repairable = bool(known.repair) and not unsafe
    way = (
        f"Fix it with `dreamkeep repair --apply` ({known.repair.replace('_', ' ')})."
        if repairable
        else f"{unsafe} {step or known.next}".strip()
    )
    # In one pass, or a name inside of an inserted text would be replaced, too.
    named = {"{id}": name, "SESSION": quote(session) or "SESSION", "AGENT": session.partition(":")[0] or "AGENT"}
    way = _PLACE.sub(lambda found: named[found[0]] if session or found[0] == "{id}" else found[0], way)
    return Fault(name, cls, where, what, repairable, way, session, MappingProxyType({"session": session, **about}), key)


def counted(number: int, one: str, many: str) -> str:
    """ "1 frame lies", "2 frames lie"."""
    return f"{number} {one if number == 1 else many}"


def seen_from(root: str, one: Fault) -> Fault:
    """A fault in the keep, with an id that doesn't depend on where the keep is or by which path it was opened."""
    if one.where != root and not one.where.startswith(f"{root}/"):
        return one
    return _with_id(one, f"{one.cls}-{_digest(one.where.removeprefix(root), one.key)}")


def seen_as(one: Fault, look: str) -> Fault:
    """A fault that is bound to how a file looks now: when the file changes, it is another fault, which nobody has accepted
    yet."""
    return _with_id(one, f"{one.cls}-{_digest(one.id, look)}")


def _with_id(one: Fault, id: str) -> Fault:
    return one._replace(id=id, next=one.next.replace(one.id, id))


def _digest(*words: str) -> str:
    from hashlib import blake2b

    # Long enough that no two of thousands of faults share an id: one would hide the other.
    return blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
