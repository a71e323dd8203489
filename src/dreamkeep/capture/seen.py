"""What the last ingest saw of each source: a cache, so that looking again opens nothing that did not change.

It holds no truth. Lost or wrong, it costs a closer look: every journal knows by itself how far each of its sources was read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from dreamkeep.host import Host, Stat, make_folders, read_file, replace_file

NAME = "state/sources.json"
_VERSION = 1


class Look(NamedTuple):
    """How a file looked: as far as a stat can tell."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, at: Stat) -> Look:
        return cls(at.size, at.mtime_ns, at.inode)


class Seen(NamedTuple):
    """`look`: when it was read; None when it must be read again whatever it looks like. `beside`: an SQLite file's -wal."""

    agent: str
    session: str
    look: Look | None
    beside: Look | None = None
    state: str = ""
    #: Of a database with many sessions: what each looked like.
    rows: dict[str, str] | None = None


class Cache:
    def __init__(self, host: Host, root: str) -> None:
        self._host = host
        self._path = f"{root}/{NAME}"
        self._changed = False
        # As they were read: most of them are only compared, so they are made into `Seen` when somebody asks for one.
        self._raw: dict[str, list[Any]] = {}
        self._load()

    def _load(self) -> None:
        import orjson

        try:
            found = orjson.loads(read_file(self._host, self._path))
            if found["version"] == _VERSION and isinstance(found["sources"], dict):
                self._raw = found["sources"]
        except (OSError, ValueError, KeyError, TypeError):
            self._raw = {}  # not there, or not ours: then everything is looked at

    def same(self, path: str, at: Stat) -> tuple[str, str, str] | None:
        """(agent, session, state) of a plain file that looks as it did."""
        entry = self._raw.get(path)
        try:
            if entry is None or entry[2] != [at.size, at.mtime_ns, at.inode] or entry[3] is not None or entry[5] is not None:
                return None
            return entry[0], entry[1], entry[4]
        except (IndexError, TypeError):
            return None

    def paths(self) -> Iterable[str]:
        return self._raw

    def get(self, path: str) -> Seen | None:
        try:
            return _seen(self._raw[path])
        except (KeyError, ValueError, TypeError):
            return None

    def put(self, path: str, seen: Seen) -> None:
        entry = _entry(seen)
        if self._raw.get(path) != entry:
            self._raw[path] = entry
            self._changed = True

    def forget(self, path: str) -> None:
        self._changed |= self._raw.pop(path, None) is not None

    def forget_session(self, session: str) -> None:
        """Look again at whatever it came from, however it looks."""
        agent, _, native = session.partition(":")
        for path in list(self._raw):
            seen = self.get(path)
            if seen and seen.agent == agent and (seen.session == native or native in (seen.rows or {})):
                self.forget(path)

    def save(self) -> None:
        import orjson

        if not self._changed:
            return
        make_folders(self._host, self._path.rpartition("/")[0])
        # A path that is no UTF-8 has no place in JSON: such a file is looked into each time.
        entries = {path: entry for path, entry in self._raw.items() if _is_text(path)}
        replace_file(self._host, self._path, orjson.dumps({"version": _VERSION, "sources": entries}))
        self._changed = False


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _entry(seen: Seen) -> list[Any]:
    look, beside = seen.look, seen.beside
    return [seen.agent, seen.session, list(look) if look else None, list(beside) if beside else None, seen.state, seen.rows]


def _seen(entry: list[Any]) -> Seen:
    agent, session, look, beside, state, rows = entry
    return Seen(agent, session, Look(*look) if look else None, Look(*beside) if beside else None, state, rows)
