"""Packs rendered beforehand, for hooks that have a few milliseconds: `state/packs/`. A view: delete it, and it is rendered again.

    index                     `<folder> TAB <file> [TAB only]`: which pack is for a folder and all below it (`only`: not below)
    <project>-<hash>.md       a project's pack; `/` in the index names the one for folders that nobody knows yet
    after~<agent>~<id>.md     for one session, after its context was compacted
    made                      a fingerprint of what each pack was rendered from (JSON): what did not change is not rendered again

capture/hook.py reads these files and knows nothing else of the package. A file is replaced whole, and before the index names it.
One process at a time writes here (`LOCK`), from reading the keep to the last rename, so that nobody writes what was just deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from dreamkeep.host import Host, make_folders, read_file, replace_file
from dreamkeep.host import exclusive_lock as host_alone
from dreamkeep.memory.insight import digest

FOLDER = "state/packs"
LOCK = "state/packs.lock"
#: In the index, for folders of which nothing is known.
EVERYWHERE = "/"
_INDEX, _MADE, _AFTER = "index", "made", "after~"
_ONLY = "\tonly"
_WAIT_S = 30.0
#: The hook asks for no longer names.
_LONGEST_ID = 64


class WantedPack(NamedTuple):
    """A pack that shall exist. `folders`: (path, whether all below it belongs to the project). `mark`: a fingerprint of what it
    is rendered from."""

    project: str
    folders: tuple[tuple[str, bool], ...]
    mark: str


class RenderedPack(NamedTuple):
    """`says`: there is something to say, so there is a file."""

    mark: str
    says: bool


def has_readers(host: Host, root: str) -> bool:
    """Only where hooks are set up, or were ever called, does anybody read packs."""
    return any(host.stat(f"{root}/{name}") is not None for name in (FOLDER, "spool", "state/init"))


def lock_packs(host: Host, root: str) -> AbstractContextManager[None]:
    return host_alone(host, f"{root}/{LOCK}", wait_s=_WAIT_S)


def pack_file(project: str) -> str:
    words = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in project.rstrip("/").rpartition("/")[2])
    return f"{words.strip('_')[:40] or 'all'}-{digest(project)[:12]}.md"


def session_file(session: str) -> str | None:
    """None for an id that could not be a file's name as it is; then the project's pack must do."""
    agent, _, native = session.partition(":")
    usable = native.isascii() and native.replace("-", "").replace("_", "").replace(".", "").isalnum()
    return f"{_AFTER}{agent}~{native}.md" if usable and len(native) <= _LONGEST_ID else None


def _session_of_file(name: str) -> str | None:
    """The session that such a file is for."""
    agent, tilde, native = name.removeprefix(_AFTER).removesuffix(".md").partition("~")
    return f"{agent}:{native}" if tilde and name.startswith(_AFTER) else None


class PackFolder:
    """The rendered packs. Only under the lock (`lock_packs`)."""

    def __init__(self, host: Host, root: str) -> None:
        self._host = host
        self._folder = f"{root}/{FOLDER}"

    def update(self, wanted: Sequence[WantedPack], render: Callable[[str], str]) -> None:
        """`render` gives a project's text, "" for nothing to say. Packs that are not wanted are removed."""
        before, there = self._read_rendered(), set(self._names())
        now: dict[str, RenderedPack] = {}
        for one in wanted:
            known = before.get(one.project)
            if known is None or known.mark != one.mark or (known.says and pack_file(one.project) not in there):
                text = render(one.project)
                self._write(pack_file(one.project), text)
                known = RenderedPack(one.mark, bool(text))
            now[one.project] = known
        self._write(_INDEX, "".join(sorted(line for one in wanted if now[one.project].says for line in _index_lines(one))))
        self._write(_MADE, json.dumps(now, sort_keys=True))
        kept = {_INDEX, _MADE, *(pack_file(one.project) for one in wanted)}
        # Packs of projects that nobody works in, and what a process that died left.
        self._remove(name for name in self._names() if name not in kept and _session_of_file(name) is None)

    def write_session_pack(self, session: str, text: str) -> None:
        name = session_file(session)
        if name:
            self._write(name, text)

    def remove_session_packs(self, is_over: Callable[[str], bool]) -> None:
        sessions = ((name, _session_of_file(name)) for name in self._names())
        self._remove(name for name, session in sessions if session is not None and is_over(session))

    def clear(self) -> None:
        """The index first: a hook must not be led to what is gone."""
        self._remove(sorted(self._names(), key=lambda name: name != _INDEX))
        if self._host.stat(self._folder) is not None:
            self._host.sync_folder(self._folder)

    def _names(self) -> list[str]:
        return self._host.names(self._folder) if self._host.stat(self._folder) is not None else []

    def _read_rendered(self) -> dict[str, RenderedPack]:
        try:
            found = json.loads(read_file(self._host, f"{self._folder}/{_MADE}"))
            return {str(project): RenderedPack(str(mark), bool(says)) for project, (mark, says) in found.items()}
        except (FileNotFoundError, ValueError, TypeError, AttributeError):
            return {}  # then everything is rendered again

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

    def _remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._host.remove(f"{self._folder}/{name}")


def _index_lines(one: WantedPack) -> Iterator[str]:
    for folder, below in one.folders:
        if folder.startswith("/") and "\n" not in folder and "\t" not in folder:
            yield f"{folder}\t{pack_file(one.project)}{'' if below else _ONLY}\n"
