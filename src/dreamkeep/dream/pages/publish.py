"""Writes pages: what a user changed in the region is journaled first, then the region is written anew; nothing else is touched.

    read the file ─► edited by hand? journal that ─► render ─► journal what will be there ─► still as it was read? replace it
                                                                                             └─ no: begin again

A page is journaled before it is written. So it is always known what in a file is ours, also after a crash between the two, or
where the file can't be written: it has the region of the last publication, or of an earlier one, back to the last that is known
to have been written. A line that one of these did not have was not deleted by the user.

One process works at a time (`LOCK`) and reads what is remembered under the lock: else a page that another process has just
published would look edited. A page in the keep is named relative to it, so a copy of a keep never writes into the original. A
file elsewhere is ours only while it has our region: without it, the file is left alone until the user asks for a page there
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
from dreamkeep.host import Host, make_folders, publish_file, read_file
from dreamkeep.host import exclusive_lock as host_alone
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
#: Of a new file outside of the keep.
_FILE_MODE = 0o644


class Published(NamedTuple):
    """`edits`: how many edits by hand were journaled. `problem`: why nothing was written."""

    project: str
    path: str
    changed: bool = False
    notes: int = 0
    left_out: int = 0
    edits: int = 0
    problem: str = ""


def lock_pages(host: Host, root: str) -> AbstractContextManager[None]:
    return host_alone(host, f"{root}/{LOCK}", wait_s=_WAIT_S)


def look(memory: Memory, project: str, budget: PageBudget) -> str:
    """A digest that changes when a page would be made of other notes or with other settings."""
    return page_digest(memory.page_fingerprint(project), repr(tuple(budget)), str(page.LOOK))[:16]


def differing(host: Host, root: str, memory: Memory, target: str, budget: PageBudget) -> list[tuple[str, str]]:
    """(project, path) of pages that are not as they were published, or not made of what is remembered now, in the order in which
    they were saved: of two edits by hand the later one holds. Digests are compared, so that no notes are loaded where nothing
    changed, which is the usual case."""
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
    """Whether a page is not as it was published: perhaps it was edited by hand."""
    known = [(one, page.locate(root, str(one["path"]))) for one in memory.pages.values()]
    return any(path and _differs(host, path, one, lambda one=one: str(one.get("of"))) for one, path in known)  # type: ignore[misc]


def stamps(host: Host, paths: Iterable[str]) -> dict[str, int]:
    """The time at which each page was saved: a cheap way to see that nobody has saved it since."""
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
    """`since`: no edit was before that."""

    edits: list[PageEdit]
    since: str


def by_hand(host: Host, root: str, last: Mapping[str, Any], path: str, region: str) -> HandEdits:
    """What a user did inside the region, compared with every version that may have been in the file. After a checkout of another
    branch, or a stash, that may be any version that we wrote there: exactly that one, or the one from which the fewest edits lead
    here. Otherwise the user deleted those lines of the last version that are missing."""
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
    """All that was published there, oldest first, also under another name of the file, except what was erased since. This reads
    the whole journal, but is rarely needed."""
    from dreamkeep.journal.places import KEEP
    from dreamkeep.journal.scan import read_events

    kinds = (Kind.PAGE_PUBLISHED, Kind.PAGE_WRITTEN)
    said = [event for _, event in read_events(host, f"{root}/{KEEP}") if event.kind in kinds]
    names, found, written = {str(last["path"])}, list[page_edits.PageVersion](), set[str]()
    for event in reversed(said):
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
    """Why a file with these bytes is left alone; "" where it isn't."""
    return found.problem if is_text(data) else "it is not UTF-8 text; save it as UTF-8, or name another file"


#: Problems of a file that has another keep's region, and of one that is full.
FOREIGN = "another keep also writes to it; `dreamkeep page --write` takes it over"
NO_ROOM = "its other content leaves no room for a note (`page.max_lines`, `page.max_bytes`)"


class Publishing:
    """`append` makes events durable in the keep's own journal; `memory` is what is remembered, and is kept up with them."""

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
        """Under the lock (`lock_pages`). `asked`: the user asked for it; else a file elsewhere without our region is left
        alone."""
        for _ in range(_TRIES):
            done = self._try_publish(project, path, run, asked)
            if done is not None:
                return done
        raise Busy("the file keeps changing while it is written", where=path, next="Try again when nothing is writing to it.")

    def _try_publish(self, project: str, path: str, run: str, asked: bool) -> Published | None:
        """None: the file changed meanwhile."""
        before = self._read(path)
        text = (before or b"").decode("utf-8", "surrogateescape")
        found = page.parse(text)
        others = self._find_other_records(project, path)
        owner = _newest((self._memory.pages.get(self._key(project, path)), *others))
        if (left := self._find_refusal(project, path, before or b"", found, owner, asked)) is not None:
            return left
        edits = self._take_edits(owner, project, path, found.region)
        mark = self._find_mark(owner, path)
        made = page.render(self._memory.active_notes(project), project, page.remaining_budget(text, self._budget), mark)
        told = Published(project, path, False, len(made.notes), len(made.left_out), edits)
        if before is None and not made.notes:
            return told
        if not made.text and found.region is None:
            return told._replace(problem=NO_ROOM)
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
        return told._replace(changed=after != before)

    def _find_refusal(
        self, project: str, path: str, before: bytes, found: page.ParsedPage, owner: Mapping[str, Any] | None, asked: bool
    ) -> Published | None:
        """The result for a file that must not be written; None for one that may."""
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
        """Journals what the page will hold, where that is not journaled yet."""
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
        told_more = {key: value for key, value in more.items() if value}
        self._journal([self._event(Kind.PAGE_PUBLISHED, {**where, **body, **told_more})])

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
        """Removes temporary files that a crash left beside the page, perhaps among the user's own files. Nobody else makes any
        under the lock."""
        folder, name = os.path.split(self._host.real_path(path))
        if self._host.stat(folder) is None:
            return
        left = re.compile(re.escape(name) + r"(\.[0-9a-f]{16}\.tmp)+")
        for other in self._host.names(folder):
            if left.fullmatch(other):
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
        """The file is old or new, never a mixture. False, and nothing done, if it is not what was read any more."""
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
        """`last`: what the file's owner published there last."""
        if region is None:
            return 0
        since = ""
        if last is None or self._is_foreign(last, region):
            # Another keep's notes are not ours, nor is what is missing of them. But what a user wrote between them is not lost.
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
        """Where the record of what we published is erased: our own lines all name a note, so lines without one are the user's.
        What was journaled before, and could not be written, is not journaled again."""
        found = list(added)
        if not found:
            return []
        said = {page.flatten(one.text) for table in (self._memory.notes, self._memory.insights) for one in table.values()}
        return [edit for edit in found if page.flatten(edit.text) not in said]

    def take_reworded(self, project: str, path: str, session: str) -> None:
        """Under the lock, before that session is deleted; for a page that is left alone. After the deletion it is not known
        any more what was published beside its lines, and so what a user changed there."""
        last, before = self._memory.pages.get(self._key(project, path)), self._read(path)
        if last is None or "erased" in last or before is None or not self._shows_session(last, session):
            return
        text = before.decode("utf-8", "surrogateescape")
        edits = page_edits.reworded_lines(str(last.get("region", "")), text)
        found = [_redact(edit) for edit in page_edits.keep_user_words(edits, self._memory.notes)]
        if found:
            self._journal_edits(found, project, self._date_edits(str(last.get("at", "")), path))

    def retire(self, path: str) -> str:
        """Under the lock, when a session was deleted; for a file that is no project's page any more (`left_over`) and may have
        lines of that session. Why it still may, "" where it can't. What a user wrote in its region, and is not known yet, is
        journaled."""
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
        """Journals edits as the user's word, before anything that a run concludes. All edits are applied before anything is
        concluded from one of them: two lines may have changed places. What follows goes into the same append: a crash must not
        leave a statement from which nothing is ever concluded."""
        from dreamkeep.dream.consolidate import statements  # mostly no hand was there

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
        """Other words for a note that has ended (its line was deleted on another page, or something superseded it) are a new
        statement: in the old note nobody would see them. Unless the user ended it later than this edit."""
        was = self._memory.notes[str(edit.note)]
        if edit.what != page_edits.CHANGED or was.state == ACTIVE:
            return False
        ended = next((step for step in reversed(was.history) if step.what == was.state), None)
        return ended is None or bool(ended.run) or ended.at <= at

    def _is_known(self, edit: PageEdit, at: str) -> bool:
        """Journaled already, by a process that died before it published the result."""
        was = self._memory.notes[str(edit.note)]
        known = any(step.what == "edited" and step.at >= at for step in was.history)
        return edit.what == page_edits.CHANGED and was.state == ACTIVE and was.text == edit.text and known

    def _date_edits(self, since: str, path: str) -> str:
        """When the file was saved, which may be long ago: what was said since is newer. Never before the version it was made
        from."""
        seen = self._host.stat(path)
        saved = rfc3339(seen.mtime_ns) if seen else self._now()
        return min(self._now(), max(saved, since))

    def _is_foreign(self, last: Mapping[str, Any] | None, region: str) -> bool:
        return last is not None and page_edits.is_foreign(last, region, self._memory.notes)

    def _make_edit_event(self, was: Note, edit: PageEdit, at: str) -> Event:
        """The event of an edit, with all of the note: if a run is undone and the note with it, what the user did to it stays."""
        from dreamkeep.dream.consolidate import statements

        at = statements.date_edit(self._memory, was, edit.text or was.text, at, self._now())
        about = {"id": was.id, "kind": was.kind, "project": was.project}
        if edit.what == page_edits.DELETED:
            return self._event(Kind.NOTE_RETRACTED, {**about, "text": was.text, "reason": page_edits.LINE_DELETED}, at)
        about |= {"text": edit.text, "was": was.text}
        return self._event(Kind.NOTE_EDITED, {**about, "reason": "its line was edited on the page"}, at)

    def _insight_events(self, text: str, project: str, at: str, kind: str = PREFERENCE) -> list[Event]:
        from dreamkeep.dream.consolidate import statements

        now = self._now()
        # A new insight each time: a user who writes a deleted line again means it.
        id = insight_id(f"{path_of(project)} {now}", kind, text)
        said = Insight(id, kind, text, project, (), at, 1.0, CONFIRMED, USER, "hand")
        said = statements.date_as_newest(self._memory, said, now)
        follows = statements.conclude(self._memory, said, now, keep=True).decisions
        return [self._event(Kind.INSIGHT_ADDED, said.as_json()), *(self._event(one.kind, one.body) for one in follows)]

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
    """The file is old or new, never a mixture. False, and nothing done, where it is not what was read any more."""
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
    """Stands for the session in the id of an insight that was stated on a page."""
    return f"page:{project}"
