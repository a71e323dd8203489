"""Which pages of the keep may have lines of a session. Asked before anything of it is erased: afterwards nobody knows.

A page has the region that was published there last, or one before it, back to the last that is known to have been written. What
another deletion has erased tells no notes any more; but each line of ours in the file names its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dreamkeep.capture.forget import Learned
from dreamkeep.event import Event, Kind
from dreamkeep.host import Host, read_file
from dreamkeep.journal.places import KEEP
from dreamkeep.journal.scan import read_events
from dreamkeep.memory import page, page_edits


def showing(host: Host, root: str, session: str) -> frozenset[str]:
    """Relative to the keep."""
    if host.stat(f"{root}/{page.FOLDER}") is None:
        return frozenset()
    learned = Learned(session)
    for event in _read_events(host, root):
        learned.see(event)
    pages = _Pages()
    for event in _read_events(host, root):
        pages.see(event, shows=learned.left(event) is not None)  # of every event: so it learns which notes rest on the session

    def rest(notes: Iterable[str]) -> bool:
        told = Event("", Kind.PAGE_PUBLISHED, "", {"notes": list(notes)})
        return learned.left(told) is not None

    return frozenset(
        name
        for name, shown in pages.shown.items()
        if any(shown) or ((path := page.locate(root, name)) and rest(_named(host, path, pages.notes_for(name))))
    )


def _read_events(host: Host, root: str) -> Iterator[Event]:
    return (event for _, event in read_events(host, f"{root}/{KEEP}"))


def _named(host: Host, path: str, otherwise: Iterable[str]) -> Iterable[str]:
    """Notes that its lines name. `otherwise`: where nobody can tell."""
    try:
        data = read_file(host, path) if host.stat(path) is not None else b""
    except OSError:
        return otherwise
    is_text = not data.startswith((b"\xff\xfe", b"\xfe\xff")) and b"\0" not in data
    return page_edits.note_ids(data.decode("utf-8", "surrogateescape")) if is_text else otherwise


class _Pages:
    def __init__(self) -> None:
        #: Of each page in the keep, whether what was published showed it: from the last that is known to have been written on.
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
        """All that it may ever have shown: those of its project, and those that hold everywhere. Of a project that was called
        otherwise once it does not matter which it is now."""
        return {id for one in {"", self._project[path], *self._renamed} for id in self._notes.get(one, ())}
