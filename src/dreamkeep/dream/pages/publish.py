"""Writes pages. First it journals what a user changed in our region of the file, then it rewrites that region and nothing else.

    read the file ─► edited by hand? journal that ─► render ─► journal the new region ─► file unchanged? replace it
                                                                                         └─ changed: begin again

A page is journaled before it is written. So we always know which text of a file is ours, even after a crash between the two, or
if the file can't be written: the file then has the region of the last publication, or of an earlier one, back to the last that is
known to have been written. If a line is missing from one of these versions, the user did not necessarily delete it.

Only one process publishes at a time (`LOCK`), and it reads the memory under the lock: otherwise a page that another process has
just published would look edited. A page in the keep is named relative to it, so a copy of a keep never writes into the original.
A file elsewhere is ours only while it has our region. Without it, the file is left alone until the user asks for a page there
again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import Any, NamedTuple

from dreamkeep.dream.pages.checkout import head_of
from dreamkeep.dream.pages.retired import is_text, once_called, place, withdraw
from dreamkeep.errors import Busy, Failed
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import Host, exclusive_lock, make_folders, publish_file, read_file
from dreamkeep.memory import page, page_edits
from dreamkeep.memory.insight import CONFIRMED, PREFERENCE, USER, Insight, insight_id
from dreamkeep.memory.insight import digest as page_digest
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.note import ACTIVE, Note
from dreamkeep.memory.page import PageBudget, is_in_keep
from dreamkeep.memory.page_edits import PageEdit, find_hand_edits

LOCK = "state/page.lock"
_WAIT_S = 30.0
_TRIES = 5
#: The mode of a new file outside the keep.
_FILE_MODE = 0o644


class Published(NamedTuple):
    """The result for one page. `edits`: how many hand edits were journaled. `problem`: why nothing was written."""

    project: str
    path: str
    changed: bool = False
    notes: int = 0
    left_out: int = 0
    edits: int = 0
    problem: str = ""


def lock_pages(host: Host, root: str) -> AbstractContextManager[None]:
    return exclusive_lock(host, f"{root}/{LOCK}", wait_s=_WAIT_S)


def look(memory: Memory, project: str, budget: PageBudget) -> str:
    """A digest that changes when the page would be made from other notes or with other settings."""
    return page_digest(memory.page_fingerprint(project), repr(tuple(budget)), str(page.LOOK))[:16]


def differing(host: Host, root: str, memory: Memory, target: str, budget: PageBudget) -> list[tuple[str, str]]:
    """(project, path) of pages that were edited or are not up to date, in the order in which they were saved: of two hand edits
    the later one counts. It compares digests, so that no notes are loaded if nothing changed, which is the usual case."""
    everywhere = bool(memory.marks.get("", {}).get("active"))
    wanted = [one for one in sorted(memory.marks) if one and (everywhere or memory.marks[one]["active"])]
    named = {(str(one["project"]), str(one["path"])) for one in memory.pages.values()}
    made = {(one, place(root, one, target)) for one in wanted}
    found = {(one, path) for one, path in made if (one, path[len(root) + 1 :]) not in named}
    for published in memory.pages.values():
        project, path = str(published["project"]), page.locate(root, str(published["path"]))
        if path and _differs(host, path, published, lambda project=project: look(memory, project, budget)):  # type: ignore[misc]
            found.add((project, path))
    return sorted(found, key=lambda one: (_find_mtime_ns(host, one[1]), *one))


def _find_mtime_ns(host: Host, path: str) -> int:
    try:
        seen = host.stat(path)
    except OSError:
        return 0  # publishing it reports the problem
    return seen.mtime_ns if seen else 0


def touched(host: Host, root: str, memory: Memory) -> bool:
    """Whether any page differs from what was published, perhaps because of a hand edit."""
    known = [(one, page.locate(root, str(one["path"]))) for one in memory.pages.values()]
    return any(path and _differs(host, path, one, lambda one=one: str(one.get("of"))) for one, path in known)  # type: ignore[misc]


def stamps(host: Host, paths: Iterable[str]) -> dict[str, int]:
    """When each page was saved: a cheap way to see that nobody has saved it since."""
    return {path: _find_mtime_ns(host, path) for path in paths}


def _differs(host: Host, path: str, published: Mapping[str, Any], of: Callable[[], str]) -> bool:
    elsewhere = os.path.isabs(str(published["path"]))
    try:
        data = read_file(host, path)
    except OSError:
        return not elsewhere  # a file elsewhere was removed by the user, and stays removed
    if elsewhere and b"dreamkeep:begin" not in data:
        return False
    return sha256(data).hexdigest() != published.get("digest") or published.get("of") != of() or not published.get("written")


def still_holding(host: Host, root: str, memory: Memory) -> list[str]:
    """Files that may still have lines of a deleted session: the record of what was published there is erased, and nothing was
    written over it since. A file without our region and our lines is the user's own."""
    erased = [page.locate(root, str(one["path"])) for one in memory.pages.values() if "erased" in one]
    return sorted({path for path in erased if path and _may_have_lines(host, path, memory)})


def _may_have_lines(host: Host, path: str, memory: Memory) -> bool:
    try:
        data = read_file(host, path) if host.stat(path) is not None else b""
    except OSError:
        return True  # it can't be read, so it may
    text = data.decode("utf-8", "surrogateescape")
    found = page.parse(text)
    return not is_text(data) or bool(found.problem) or found.region is not None or _names_missing_note(text, memory)


def _names_missing_note(text: str, memory: Memory) -> bool:
    return any(one not in memory.notes for one in page_edits.note_ids(text))


class HandEdits(NamedTuple):
    """`since`: all edits were made after that time."""

    edits: list[PageEdit]
    since: str


def by_hand(host: Host, root: str, last: Mapping[str, Any], path: str, region: str) -> HandEdits:
    """The user's edits inside the region, compared with every version that may have been in the file. After a checkout of another
    branch, or a stash, the file may have any version that we wrote: an equal one means no edits, else the one that needs the
    fewest edits is taken. If the last version needs no more, lines missing from it were deleted by the user."""
    moved = bool(last.get("head")) and head_of(host, path) != last["head"]
    if moved and page_edits.is_our_version(last, region):
        return HandEdits([], "")
    versions = () if last.get("written") and not moved else _find_versions(host, root, last)
    since = min(one.at for one in page_edits.possible_versions(last, versions))
    found = HandEdits(find_hand_edits(last, region, versions), since)
    base = page_edits.nearest_version(versions, region) if moved and found.edits else None
    older = HandEdits(page_edits.find_edits(base.region, region), base.at) if base else found
    return older if len(older.edits) < len(found.edits) else found


def _find_versions(host: Host, root: str, last: Mapping[str, Any]) -> list[page_edits.PageVersion]:
    """All versions that were published there, oldest first, including those under another name of the file, but none that was
    erased since. This reads the whole journal, but is rarely needed."""
    from dreamkeep.journal.places import KEEP
    from dreamkeep.journal.scan import read_events

    kinds = (Kind.PAGE_PUBLISHED, Kind.PAGE_WRITTEN)
    events = [event for _, event in read_events(host, f"{root}/{KEEP}") if event.kind in kinds]
    names, found, written = {str(last["path"])}, list[page_edits.PageVersion](), set[str]()
    for event in reversed(events):
        path = str(event.body.get("path"))
        if path not in names:
            continue
        if event.kind == Kind.PAGE_WRITTEN:
            written.add(path)
            continue
        names |= {str(one).partition("\0")[2] for one in event.body.get("instead", ())}
        region = event.body.get("region")
        if isinstance(region, str) and page_edits.is_our_version(last, region):
            found.append(page_edits.PageVersion(event.at, region, path in written))
        written.discard(path)
    return found[::-1]


def unfit(data: bytes, found: page.ParsedPage) -> str:
    """Why a file with these bytes must not be written; "" if it may be."""
    return found.problem if is_text(data) else "it is not UTF-8 text; save it as UTF-8, or name another file"


#: The problems of a file with another keep's region, and of a full one.
FOREIGN = "another keep also writes to it; `dreamkeep page --write` takes it over"
NO_ROOM = "its other content leaves no room for a note (`page.max_lines`, `page.max_bytes`)"


class Publishing:
    """`append` makes events durable in the keep's own journal. `memory` is updated with these events."""

    def __init__(
        self,
        host: Host,
        root: str,
        memory: Memory,
        append: Callable[[Sequence[Event]], object],
        ids: Ids,
        budget: PageBudget,
    ) -> None:
        self._root = root
        self._host = host
        self._memory = memory
        self._append = append
        self._ids = ids
        self._budget = budget

    def publish(self, project: str, path: str, run: str = "", *, asked: bool = True) -> Published:
        """Must be called under the lock (`lock_pages`). `asked`: the user asked for this page; otherwise a file elsewhere without
        our region is left alone."""
        for _ in range(_TRIES):
            done = self._try_publish(project, path, run, asked)
            if done is not None:
                return done
        raise Busy("the file keeps changing while it is written", where=path, next="Try again when nothing is writing to it.")

    def _try_publish(self, project: str, path: str, run: str, asked: bool) -> Published | None:
        """None if the file changed meanwhile."""
        before = self._read(path)
        text = (before or b"").decode("utf-8", "surrogateescape")
        found = page.parse(text)
        others = self._find_other_records(project, path)
        owner = _newest((self._memory.pages.get(self._key(project, path)), *others))
        if (refusal := self._find_refusal(project, path, before or b"", found, owner, asked)) is not None:
            return refusal
        edits = self._take_edits(owner, project, path, found.region)
        mark = self._find_mark(owner, path)
        made = page.render(self._memory.active_notes(project), project, page.remaining_budget(text, self._budget), mark)
        unchanged = Published(project, path, False, len(made.notes), len(made.left_out), edits)
        if before is None and not made.notes:
            return unchanged
        if not made.text and found.region is None:
            return unchanged._replace(problem=NO_ROOM)
        shown = made.text or page.empty_region(mark)
        after = page.replace_region(text, shown, page_edits.stray_lines(found.region or "")).encode("utf-8", "surrogateescape")
        self._journal_publication(project, path, run, others, found.region, shown, made.notes, before, after)
        written = bool(self._memory.pages[self._key(project, path)].get("written"))
        if after != before or not written:
            self._remove_temporary_files(path)
        if after != before and not self._write(path, before, after):
            return None
        if not written:
            self._journal([self._event(Kind.PAGE_WRITTEN, {"project": project, "path": self._name_of(path)})])
        return unchanged._replace(changed=after != before)

    def _find_refusal(
        self, project: str, path: str, before: bytes, found: page.ParsedPage, owner: Mapping[str, Any] | None, asked: bool
    ) -> Published | None:
        """The result for a file that must not be written; None if it may be written."""
        if why := unfit(before, found):
            return Published(project, path, problem=why)
        own = is_in_keep(self._root, path)
        if found.region is None and not asked and not own:
            return Published(project, path)
        if not asked and owner is not None and owner["project"] != project:
            return Published(project, path)  # it is another project's page by now
        if found.region is not None and not asked and self._is_foreign(owner, found.region):
            return Published(project, path, problem=FOREIGN)
        erased = owner is not None and "erased" in owner and own
        if erased and _names_missing_note(f"{found.before}\n\n{found.after}", self._memory):
            return Published(project, path, problem="lines of removed notes are outside its fence; delete them")
        return None

    def _journal_publication(
        self,
        project: str,
        path: str,
        run: str,
        others: Sequence[Mapping[str, Any]],
        region: str | None,
        shown: str,
        notes: Sequence[str],
        before: bytes | None,
        after: bytes,
    ) -> None:
        """Journals the page's new region, unless that is journaled already."""
        last = self._memory.pages.get(self._key(project, path))
        of, digest = look(self._memory, project, self._budget), sha256(after).hexdigest()
        head = "" if is_in_keep(self._root, path) else head_of(self._host, path)
        same = last is not None and (last.get("region"), last.get("of"), last.get("digest")) == (shown, of, digest)
        moved = after != before and last is not None and last.get("head", "") != head
        if same and not others and not moved:
            return
        self._journal_written(last, region)
        body = {"digest": digest, "of": of, "region": shown, "notes": list(notes), "head": head}
        where = {"project": project, "path": self._name_of(path)}
        more = {"run": run, "instead": [f"{one['project']}\0{one['path']}" for one in others]}
        present = {key: value for key, value in more.items() if value}
        self._journal([self._event(Kind.PAGE_PUBLISHED, {**where, **body, **present})])

    def _find_mark(self, owner: Mapping[str, Any] | None, path: str) -> str:
        """The mark that distinguishes our region in a file elsewhere from another keep's, which may know the same notes. It
        stays the same while the file is ours. Inside the keep there is none: nobody else writes there."""
        if is_in_keep(self._root, path):
            return ""
        known = page.fence_owner(str(owner.get("region", ""))) if owner else ""
        return known or f"k-{self._host.random(4).hex()}"

    def _find_other_records(self, project: str, path: str) -> list[Mapping[str, Any]]:
        """Records of the same file under another name, or as another project's page: only the last owner of a file counts."""
        if is_in_keep(self._root, path):
            return []
        mine, real = self._key(project, path), self._name_of(path)
        elsewhere = [(key, one) for key, one in self._memory.pages.items() if key != mine and os.path.isabs(str(one["path"]))]
        return [one for _, one in elsewhere if self._host.real_path(str(one["path"])) == real]

    def _journal_written(self, last: Mapping[str, Any] | None, region: str | None) -> None:
        """After a crash between writing the page and journaling that: journal it now, so that edits are compared with it."""
        if last and not last.get("written") and region is not None and region.replace("\r\n", "\n") == last.get("region"):
            where = {"project": last["project"], "path": last["path"]}
            self._journal([self._event(Kind.PAGE_WRITTEN, where)])

    def _remove_temporary_files(self, path: str) -> None:
        """Removes temporary files that a crash left beside the page, perhaps among the user's own files. Under the lock, nobody
        else makes any."""
        folder, name = os.path.split(self._host.real_path(path))
        if self._host.stat(folder) is None:
            return
        temporary = re.compile(re.escape(name) + r"(\.[0-9a-f]{16}\.tmp)+")
        for other in self._host.names(folder):
            if temporary.fullmatch(other):
                self._host.remove(f"{folder}/{other}")

    def _name_of(self, path: str) -> str:
        """The name of a page. Elsewhere it is the real path: one file is one page."""
        return path[len(self._root) + 1 :] if is_in_keep(self._root, path) else self._host.real_path(path)

    def _key(self, project: str, path: str) -> str:
        return f"{project}\0{self._name_of(path)}"

    def _read(self, path: str) -> bytes | None:
        at = self._host.stat(path)
        if at is None:
            return None
        if not at.is_file:
            raise Failed("a page must be a file", where=path, next="Name another one.")
        return read_file(self._host, path)

    def _write(self, path: str, before: bytes | None, after: bytes) -> bool:
        """Replaces the file as a whole: it is old or new, never a mixture. Returns False, and changes nothing, if the file is no
        longer as it was read."""
        host = self._host
        real = host.real_path(path)  # a link stays a link
        make_folders(host, os.path.dirname(real) or ".")
        if before is None:
            made = publish_file(host, real, after)
            if made and not is_in_keep(self._root, path):
                host.set_mode(real, _FILE_MODE)  # among the user's own files, for whoever may read those
            return made
        return replace_unchanged(host, real, before, after)

    # -- hand edits

    def _take_edits(self, last: Mapping[str, Any] | None, project: str, path: str, region: str | None) -> int:
        """Journals the hand edits in a region and returns their number. `last`: what the file's owner published there last."""
        if region is None:
            return 0
        since = ""
        if last is None or self._is_foreign(last, region):
            # Another keep's notes are not ours, and lines missing from them are none of our business. But lines that a user
            # wrote between them are kept.
            regions = (str(last.get(name, "")) for name in ("region", "before")) if last else ()
            ours = {text for shown in regions for text in page_edits.note_texts(shown)}
            edits = page_edits.unreferenced_lines(region, ours)
        elif "erased" in last:
            edits, since = self._drop_known(map(_redact, page_edits.unreferenced_lines(region))), str(last.get("at", ""))
        else:
            edits, since = by_hand(self._host, self._root, last, path, region)
        found = [_redact(edit) for edit in page_edits.keep_user_words(edits, self._memory.notes)]
        if found:
            self._journal_edits(found, str(last["project"]) if last else project, self._date_edits(since, path))
        return len(found)

    def _drop_known(self, added: Iterable[PageEdit]) -> list[PageEdit]:
        """For a page whose record of what we published is erased. Our own lines all name a note, so lines without one are the
        user's. What is in the memory already, because an earlier publication failed after journaling it, is left out."""
        found = list(added)
        if not found:
            return []
        known = {page.flatten(one.text) for table in (self._memory.notes, self._memory.insights) for one in table.values()}
        return [edit for edit in found if page.flatten(edit.text) not in known]

    def take_reworded(self, project: str, path: str, session: str) -> None:
        """Journals reworded lines of a page that can't be written, before a session is deleted. Must be called under the lock.
        After the deletion we no longer know what was published beside its lines, and so what a user changed there."""
        last, before = self._memory.pages.get(self._key(project, path)), self._read(path)
        if last is None or "erased" in last or before is None or not self._shows_session(last, session):
            return
        text = before.decode("utf-8", "surrogateescape")
        edits = page_edits.reworded_lines(str(last.get("region", "")), text)
        found = [_redact(edit) for edit in page_edits.keep_user_words(edits, self._memory.notes)]
        if found:
            self._journal_edits(found, project, self._date_edits(str(last.get("at", "")), path))

    def retire(self, path: str) -> str:
        """Empties a file that is no project's page any more (`left_over`) and may have lines of a deleted session. First journals
        what a user wrote in its region. Must be called under the lock. Returns why it may still have such lines, or ""."""
        before = self._read(path) or b""
        text = before.decode("utf-8", "surrogateescape")
        found = page.parse(text)
        edits = self._drop_known(map(_redact, page_edits.unreferenced_lines(found.region))) if found.region is not None else []
        if edits:
            self._journal_edits(edits, once_called(self._root, self._memory, path), self._date_edits("", path))
        if why := withdraw(self._host, path):
            return why
        outside = _names_missing_note(f"{found.before}\n\n{found.after}", self._memory)
        return "lines of removed notes are outside its fence; delete them" if outside else ""

    def _shows_session(self, last: Mapping[str, Any], session: str) -> bool:
        shown = [self._memory.notes[id] for id in map(str, last.get("notes", ())) if id in self._memory.notes]
        return any(quote.session == session for one in shown for quote in one.evidence)

    def _journal_edits(self, found: Sequence[PageEdit], project: str, at: str) -> None:
        """Journals edits as the user's word, before a run concludes anything. All edits are applied before anything is concluded
        from one of them, since two lines may have changed places. Conclusions go into the same append: a crash must not leave a
        statement from which nothing is ever concluded."""
        from dreamkeep.dream.consolidate import statements  # imported late: mostly there are no hand edits

        put = [edit for edit in found if edit.what != page_edits.ADDED and edit.note is not None]
        anew = [edit for edit in put if self._is_said_anew(edit, at)]
        ours = [edit for edit in put if edit not in anew and not self._is_known(edit, at)]
        events = self._apply([self._make_edit_event(self._memory.notes[str(edit.note)], edit, at) for edit in ours])
        for edit in ours:
            if edit.what == page_edits.CHANGED:
                follows = statements.conclude_edit(self._memory, str(edit.note), self._now())
                events += self._apply([self._event(one.kind, one.body) for one in follows])
        for edit in anew:
            was = self._memory.notes[str(edit.note)]
            events += self._apply(self._insight_events(edit.text, was.project, at, was.kind))
        for edit in found:
            if edit.what == page_edits.ADDED:
                events += self._apply(self._insight_events(edit.text, project, at))
        if events:
            self._append(events)

    def _is_said_anew(self, edit: PageEdit, at: str) -> bool:
        """Whether new words for a note are a new statement. They are if the note has ended (its line was deleted on another page,
        or something superseded it), since nobody would see them there; but not if the user ended it after this edit."""
        was = self._memory.notes[str(edit.note)]
        if edit.what != page_edits.CHANGED or was.state == ACTIVE:
            return False
        ended = next((step for step in reversed(was.history) if step.what == was.state), None)
        return ended is None or bool(ended.run) or ended.at <= at

    def _is_known(self, edit: PageEdit, at: str) -> bool:
        """Whether it is journaled already, by a process that died before it published the result."""
        was = self._memory.notes[str(edit.note)]
        known = any(step.what == "edited" and step.at >= at for step in was.history)
        return edit.what == page_edits.CHANGED and was.state == ACTIVE and was.text == edit.text and known

    def _date_edits(self, since: str, path: str) -> str:
        """The time of the edits: when the file was saved, which may be long ago, so that what was said since is newer. But not
        earlier than the version that was edited."""
        seen = self._host.stat(path)
        saved = rfc3339(seen.mtime_ns) if seen else self._now()
        return min(self._now(), max(saved, since))

    def _is_foreign(self, last: Mapping[str, Any] | None, region: str) -> bool:
        return last is not None and page_edits.is_foreign(last, region, self._memory.notes)

    def _make_edit_event(self, was: Note, edit: PageEdit, at: str) -> Event:
        """The event of an edit. It repeats the whole note: if a run that made the note is undone, the user's edit stays."""
        from dreamkeep.dream.consolidate import statements

        at = statements.date_edit(self._memory, was, edit.text or was.text, at, self._now())
        body = {"id": was.id, "kind": was.kind, "project": was.project}
        if edit.what == page_edits.DELETED:
            return self._event(Kind.NOTE_RETRACTED, {**body, "text": was.text, "reason": page_edits.LINE_DELETED}, at)
        body |= {"text": edit.text, "was": was.text}
        return self._event(Kind.NOTE_EDITED, {**body, "reason": "its line was edited on the page"}, at)

    def _insight_events(self, text: str, project: str, at: str, kind: str = PREFERENCE) -> list[Event]:
        from dreamkeep.dream.consolidate import statements

        now = self._now()
        # A new insight each time: a user who writes a deleted line again wants it back.
        id = insight_id(f"{path_of(project)} {now}", kind, text)
        insight = Insight(id, kind, text, project, (), at, 1.0, CONFIRMED, USER, "hand")
        insight = statements.date_as_newest(self._memory, insight, now)
        follows = statements.conclude(self._memory, insight, now, keep=True).decisions
        return [self._event(Kind.INSIGHT_ADDED, insight.as_json()), *(self._event(one.kind, one.body) for one in follows)]

    def _journal(self, events: list[Event]) -> None:
        if events:
            self._append(events)
            self._apply(events)

    def _apply(self, events: list[Event]) -> list[Event]:
        for event in events:
            self._memory.apply(event)
        return events

    def _event(self, kind: str, body: Mapping[str, Any], at: str = "") -> Event:
        return Event(self._ids.new(), kind, at or self._now(), body)

    def _now(self) -> str:
        return rfc3339(self._host.now())


def replace_unchanged(host: Host, path: str, before: bytes, after: bytes) -> bool:
    """Replaces the file as a whole. Returns False, and changes nothing, if the file is no longer `before`."""
    temp = f"{path}.{host.random(8).hex()}.tmp"
    if not publish_file(host, temp, after):
        return False
    try:
        host.copy_mode(temp, path)
        if read_file(host, path) != before:
            host.remove(temp)
            return False
        host.replace(temp, path)
    except BaseException:
        if host.stat(temp) is not None:
            host.remove(temp)
        raise
    host.sync_folder(os.path.dirname(path) or ".")
    return True


def _newest(records: Iterable[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
    return max((one for one in records if one), key=lambda one: str(one.get("at", "")), default=None)


def _redact(edit: PageEdit) -> PageEdit:
    from dreamkeep.secrets.redact import redact

    return edit._replace(text=redact(edit.text)[0]) if edit.text else edit


def path_of(project: str) -> str:
    """Takes the place of the session in the id of an insight that was written on a page."""
    return f"page:{project}"
