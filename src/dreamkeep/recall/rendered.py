"""Packs rendered beforehand, for hooks that have a few milliseconds: `state/packs/`. A view: delete it, and it is made again.

    index                     `<folder> TAB <file> [TAB only]`: which pack is for a folder and all below it (`only`: not below)
    <project>-<hash>.md       a project's pack; `/` in the index names the one for folders that nobody knows yet
    after~<agent>~<id>.md     for one session, after its context was compacted
    made                      of what each pack was made, as JSON of digests: what did not change is not made again

capture/hook.py reads these and knows nothing else of us. A file is replaced whole, and before the index names it; one process at
a time writes here (`LOCK`), from reading the keep to the last rename, so that nobody writes down what was just deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from dreamkeep.host import Host, make_folders, read_file, replace_file
from dreamkeep.host import exclusive_lock as host_alone
from dreamkeep.memory.insight import digest

FOLDER = "state/packs"
LOCK = "state/packs.lock"
#: For folders of which nothing is known.
EVERYWHERE = "/"
_INDEX, _MADE, _AFTER = "index", "made", "after~"
_ONLY = "\tonly"
_WAIT_S = 30.0
#: The hook's: longer names, and others, it does not ask for.
_LONGEST_ID = 64


class Wanted(NamedTuple):
    """A pack that shall be there. `folders`: (path, whether all below it belongs to the project). `mark`: of what it is made."""

    project: str
    folders: tuple[tuple[str, bool], ...]
    mark: str


class Made(NamedTuple):
    """`says`: there is something to say, so there is a file."""

    mark: str
    says: bool


def wanted_at_all(host: Host, root: str) -> bool:
    """Only where hooks are set up, or were ever called, does anybody read them."""
    return any(host.stat(f"{root}/{name}") is not None for name in (FOLDER, "spool", "state/init"))


def lock_packs(host: Host, root: str) -> AbstractContextManager[None]:
    return host_alone(host, f"{root}/{LOCK}", wait_s=_WAIT_S)


def file_of(project: str) -> str:
    words = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in project.rstrip("/").rpartition("/")[2])
    return f"{words.strip('_')[:40] or 'all'}-{digest(project)[:12]}.md"


def after_file(session: str) -> str | None:
    """None for an id that could not be a file's name as it is: then the project's pack must do."""
    agent, _, native = session.partition(":")
    plain = native.isascii() and native.replace("-", "").replace("_", "").replace(".", "").isalnum()
    return f"{_AFTER}{agent}~{native}.md" if plain and len(native) <= _LONGEST_ID else None


def session_of(name: str) -> str | None:
    """The session that such a file is for."""
    agent, tilde, native = name.removeprefix(_AFTER).removesuffix(".md").partition("~")
    return f"{agent}:{native}" if tilde and name.startswith(_AFTER) else None


class PackShelf:
    """What lies there. Only under the lock (`alone`)."""

    def __init__(self, host: Host, root: str) -> None:
        self._host = host
        self._folder = f"{root}/{FOLDER}"

    def update(self, wanted: Sequence[Wanted], make: Callable[[str], str]) -> list[str]:
        """`make` gives a project's text, "" for nothing to say. Which projects were made anew. What is not wanted goes."""
        made, there = self._made(), set(self._names())
        now: dict[str, Made] = {}
        for one in wanted:
            known = made.get(one.project)
            if known is None or known.mark != one.mark or (known.says and file_of(one.project) not in there):
                text = make(one.project)
                self._write(file_of(one.project), text)
                known = Made(one.mark, bool(text))
            now[one.project] = known
        self._write(_INDEX, "".join(sorted(line for one in wanted if now[one.project].says for line in _lines(one))))
        self._write(_MADE, json.dumps(now, sort_keys=True))
        self._sweep({file_of(one.project) for one in wanted})
        return [one.project for one in wanted if made.get(one.project) != now[one.project]]

    def put_after(self, session: str, text: str) -> None:
        name = after_file(session)
        if name:
            self._write(name, text)

    def keep_after(self, alive: Callable[[str], bool]) -> None:
        """Of sessions that are over, nobody asks any more."""
        for name in self._names():
            session = session_of(name)
            if session is not None and not alive(session):
                self._host.remove(f"{self._folder}/{name}")

    def clear(self) -> None:
        """The index first: a hook must not be led to what is gone."""
        for name in sorted(self._names(), key=lambda name: name != _INDEX):
            self._host.remove(f"{self._folder}/{name}")
        if self._host.stat(self._folder) is not None:
            self._host.sync_folder(self._folder)

    def _names(self) -> list[str]:
        return self._host.names(self._folder) if self._host.stat(self._folder) is not None else []

    def _made(self) -> dict[str, Made]:
        try:
            found = json.loads(read_file(self._host, f"{self._folder}/{_MADE}"))
            return {str(project): Made(str(mark), bool(says)) for project, (mark, says) in found.items()}
        except (FileNotFoundError, ValueError, TypeError, AttributeError):
            return {}  # then everything is made again

    def _write(self, name: str, text: str) -> None:
        """Only what changed; nothing to say is no file."""
        path = f"{self._folder}/{name}"
        data = text.encode("utf-8", "replace")
        there = self._host.stat(path) is not None
        if not text:
            if there:
                self._host.remove(path)
            return
        if there and read_file(self._host, path) == data:
            return
        make_folders(self._host, self._folder)
        replace_file(self._host, path, data)

    def _sweep(self, ours: Collection[str]) -> None:
        """Packs of projects that nobody works in, and what a process that died left."""
        for name in self._names():
            if name not in ours and name not in (_INDEX, _MADE) and session_of(name) is None:
                self._host.remove(f"{self._folder}/{name}")


def _lines(one: Wanted) -> Iterator[str]:
    for folder, below in one.folders:
        if _is_plain(folder):
            yield f"{folder}\t{file_of(one.project)}{'' if below else _ONLY}\n"


def _is_plain(folder: str) -> bool:
    return folder.startswith("/") and "\n" not in folder and "\t" not in folder
