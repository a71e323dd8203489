"""Which pages of the keep may have lines of a session. This is asked before anything is erased; afterwards nobody knows.

A page has the region that was published last, or an earlier one, back to the last that is known to have been written. A
publication that another deletion erased no longer names its notes, but each line of ours in the file names its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dreamkeep.capture.forget import Learned
from dreamkeep.event import Event, Kind
from dreamkeep.host import Host, read_file
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.scan import read_events
from dreamkeep.memory import page, page_edits


def pages_with(host: Host, root: str, session: str) -> frozenset[str]:
    """The pages' paths, relative to the keep."""
    if host.stat(f"{root}/{page.FOLDER}") is None:
        return frozenset()
    learned = Learned(session)
    for event in _read_events(host, root):
        learned.see(event)
    pages = _Pages()
    for event in _read_events(host, root):
        pages.see(event, shows=learned.left(event) is not None)  # of every event, to learn which notes rest on the session

    def have_its_notes(notes: Iterable[str]) -> bool:
        publication = Event("", Kind.PAGE_PUBLISHED, "", {"notes": list(notes)})
        return learned.left(publication) is not None

    return frozenset(
        name
        for name, shown in pages.shown.items()
        if any(shown) or ((path := page.locate(root, name)) and have_its_notes(_notes_in_file(host, path, pages.notes_for(name))))
    )


def _read_events(host: Host, root: str) -> Iterator[Event]:
    return (event for _, event in read_events(host, f"{root}/{KEEP}"))


def _notes_in_file(host: Host, path: str, possible: Iterable[str]) -> Iterable[str]:
    """The notes that its lines name; `possible` where the file can't be read."""
    try:
        data = read_file(host, path) if host.stat(path) is not None else b""
    except OSError:
        return possible
    is_text = not data.startswith((b"\xff\xfe", b"\xfe\xff")) and b"\0" not in data
    return page_edits.note_ids(data.decode("utf-8", "surrogateescape")) if is_text else possible


class _Pages:
    def __init__(self) -> None:
        #: For each page in the keep: whether a publication showed the session, from the last one known to have been written.
        self.shown: dict[str, list[bool]] = {}
        self._project: dict[str, str] = {}
        self._notes: dict[str, set[str]] = {}
        self._renamed: set[str] = set()

    def see(self, event: Event, *, shows: bool) -> None:
        body = event.body
        path, project = str(body.get("path")), str(body.get("project") or "")
        if event.kind == Kind.PAGE_PUBLISHED and path.startswith(f"{page.FOLDER}/"):
            self.shown.setdefault(path, []).append(shows)
            self._project[path] = project
        elif event.kind == Kind.PAGE_WRITTEN and path in self.shown:
            self.shown[path] = self.shown[path][-1:]
        elif event.kind == Kind.NOTE_ADDED:
            self._notes.setdefault(project, set()).add(str(body.get("id")))
        elif event.kind == Kind.PROJECT_RENAMED:
            self._renamed.add(str(body.get("was")))

    def notes_for(self, path: str) -> set[str]:
        """All notes that the page may ever have shown: its project's, the global ones, and those of projects that were
        renamed."""
        return {id for project in {"", self._project[path], *self._renamed} for id in self._notes.get(project, ())}
