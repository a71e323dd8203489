"""What dreams left: pages beside what was published of them, and runs that nobody will end.

A hand edit is a statement by the user and no fault: it is told as a notice, and the next dream takes it in. A session that failed
too often (poisoned) is a state, which `dream status` tells. Of a file elsewhere that is gone, or has no region of ours any more,
nothing is told: it is its user's.

`Fault.about` of each class here (what a repair may rely on):

    page_fence              path
    page_unwritten          path; project, page (its name in the journal). Not while somebody holds `PAGE_LOCK`
    dream_unfinished        run. Not while somebody holds `DREAM_LOCK`

Nothing is told if the keep's journal went on since it was read: then it may be over, and the next audit tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dreamkeep.host import Host, read_file
from dreamkeep.host.liveness import is_held
from dreamkeep.journal.places import KEEP
from dreamkeep.memory import page, page_edits
from dreamkeep.memory.dreams import RUNNING, DreamRun
from dreamkeep.memory.memory import Memory
from dreamkeep.recovery.faults import Fault, Notice, fault, notice
from dreamkeep.recovery.isolate import check_each
from dreamkeep.recovery.repair.movable import in_the_way

#: Held by whoever writes pages, and by whoever dreams.
PAGE_LOCK = "state/page.lock"
DREAM_LOCK = "state/dream.lock"


class DreamAudit:
    """`memory`: as of the keep's journal as it was read; `current`: whether that is still all of it. `notices`: afterwards."""

    def __init__(self, host: Host, root: str, memory: Memory, current: Callable[[], bool]) -> None:
        self._host = host
        self._root = root
        self._memory = memory
        self._current = current
        self.notices: list[Notice] = []

    # -- pages

    def pages(self) -> Iterator[Fault]:
        found = list(check_each(self._memory.pages.values(), self._page, self._unreadable))
        if (found or self.notices) and (is_held(self._host, f"{self._root}/{PAGE_LOCK}") or not self._current()):
            self.notices.clear()
            return
        yield from found

    def _page(self, last: Mapping[str, Any]) -> Iterator[Fault]:
        path = page.locate(self._root, str(last["path"]))
        if path is None:
            return
        at = self._host.stat(path)
        if at is None:
            # What a file elsewhere was, is its user's business; and one that shows nothing need not be there.
            if page.is_in_keep(self._root, path) and last.get("notes") and last.get("region"):
                yield self._unwritten(last, path, "it was published, but is missing now")
            return
        if not at.is_file:
            yield _fence(path, "it is not a file")
            return
        read = page.parse(read_file(self._host, path).decode("utf-8", "surrogateescape"))
        if read.problem:
            yield _fence(path, read.problem)
        elif read.region is not None and "erased" not in last:
            yield from self._region(last, path, read.region)

    def _region(self, last: Mapping[str, Any], path: str, region: str) -> Iterator[Fault]:
        if page_edits.is_foreign(last, region, self._memory.notes):
            return  # another keep writes into it, too, of which dreams tell; no hand of a user of this one did that
        plain = region.replace("\r\n", "\n")
        if not last.get("written") and plain == last.get("before") != last.get("region"):
            yield self._unwritten(last, path, "the last published version was not written; the page still has the one before")
            return
        edits = list(page_edits.keep_user_words(page_edits.find_hand_edits(last, region), self._memory.notes))
        if edits:
            what = f"{len(edits)} {'line was' if len(edits) == 1 else 'lines were'} edited by hand since it was published"
            self.notices.append(notice("page_edited", path, what))

    def _unwritten(self, last: Mapping[str, Any], path: str, what: str) -> Fault:
        about = {"path": path, "project": str(last["project"]), "page": str(last["path"])}
        unsafe = in_the_way(self._host, path)
        return fault("page_unwritten", path, what, key=str(last.get("digest", "")), unsafe=unsafe, **about)

    def _unreadable(self, last: Mapping[str, Any], why: str) -> Fault:
        return _fence(str(page.locate(self._root, str(last.get("path", ""))) or self._root), f"it can't be read: {why}")

    # -- runs

    def runs(self) -> Iterator[Fault]:
        left = [one for one in self._memory.runs.values() if not one.is_over]
        if left and not is_held(self._host, f"{self._root}/{DREAM_LOCK}") and self._current():
            yield from map(self._unfinished, left)

    def _unfinished(self, run: DreamRun) -> Fault:
        open_ = [one.session for one in self._memory.dreamed.values() if one.run == run.id and one.status == RUNNING]
        those = (
            f"; {len(open_)} {'session is' if len(open_) == 1 else 'sessions are'} still marked as in progress" if open_ else ""
        )
        what = f"the dream that started {run.started_at or 'some time ago'} never finished, and no dream is running{those}"
        return fault("dream_unfinished", f"{self._root}/{KEEP}", what, key=run.id, run=run.id)


def left_alone(host: Host, root: str, pages: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(path, why) of pages that no dream writes until a hand has mended them."""
    paths = {page.locate(root, str(last.get("path", ""))) for last in pages}
    found = [(path, _problem(host, path)) for path in sorted(path for path in paths if path)]
    return [(path, why) for path, why in found if why]


def _problem(host: Host, path: str) -> str:
    try:
        at = host.stat(path)
        if at is None:
            return ""
        return page.parse(read_file(host, path).decode("utf-8", "surrogateescape")).problem if at.is_file else "it is not a file"
    except OSError as problem:
        return f"it can't be read: {problem}"


def _fence(path: str, why: str) -> Fault:
    return fault("page_fence", path, why, path=path)
