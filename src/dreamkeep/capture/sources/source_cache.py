"""A cache of how each source looked at the last ingest, so that the next one opens only what changed.

If it is lost or wrong, sources are opened in vain, and nothing else happens: every journal carries how far its sources were read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dreamkeep.host import Host, Stat, make_folders, read_file, replace_file
from dreamkeep.journal.places import SESSIONS

NAME = "state/sources.json"
PAUSED = "state/paused.json"
_VERSION = 4
_LEFT_OUT = ("deleted", "excluded", "empty")


class FileLook(NamedTuple):
    """How a file looks to `stat`."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, at: Stat) -> FileLook:
        return cls(at.size, at.mtime_ns, at.inode)


class SourceState(NamedTuple):
    """What is remembered of a source. `look`: how it looked when it was read; None if it must be read again in any case.
    `beside`: the look of an SQLite file's -wal. `journal`: the folder of its session; if that is gone, the look doesn't count."""

    agent: str
    session: str
    look: FileLook | None
    beside: FileLook | None = None
    state: str = ""
    #: For a file with many sessions: the fingerprint of each, and whether rows of it were lost (ingest_rows.py).
    rows: dict[str, str] | None = None
    journal: str = ""
    role: str = "main"
    #: For an audit, so that it need not open intact files: whether the agent ever removed or changed what was captured, how many
    #: lines are no records (None: unknown), and its `SourceCursor` as it was journaled.
    rewritten: bool | None = None
    odd: int | None = None
    word: str = ""


class SourcePause(NamedTuple):
    """A source over its own limit. `look`: how it looked then. `day`: the day of the limit, "" if waiting doesn't help. `limits`:
    the settings then."""

    session: str
    problem: str
    look: FileLook
    day: str
    limits: str


#: Path, agent, session, role, journal and cursor of a captured source. A plain tuple, because an audit compares thousands.
Captured = tuple[str, str, str, str, str, str]

#: Path, size, time, inode, agent, journal, state and cursor of a source.
Plain = tuple[str, int, int, int, str, str, str, str]


class Cache:
    def __init__(self, host: Host, root: str) -> None:
        self._host = host
        self._root = root
        self._journals: dict[str, set[str]] = {}
        self._path = f"{root}/{NAME}"
        self._changed = False
        # As read from disk: most entries are only compared, so a `SourceState` is made only on demand.
        self._raw: dict[str, list[Any]] = {}
        #: By source: the day, and how many bytes were captured on it.
        self._grown: dict[str, list[Any]] = {}
        self._pauses = paused_sources(host, root)
        self._pauses_changed = False
        self._load()

    def _load(self) -> None:
        import orjson

        try:
            found = orjson.loads(read_file(self._host, self._path))
            if found["version"] == _VERSION and isinstance(found["sources"], dict):
                self._raw = found["sources"]
                self._grown = dict(found.get("grown", {}))
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            self._raw = {}  # missing or invalid: then every source is opened

    def look_at_journals(self) -> None:
        """Forget which journals exist: they are listed once a round, for each agent."""
        self._journals = {}

    def has_journal(self, agent: str, journal: str) -> bool:
        if agent not in self._journals:
            try:
                self._journals[agent] = set(self._host.names(f"{self._root}/{SESSIONS}/{agent}"))
            except OSError:
                self._journals[agent] = set()
        return journal in self._journals[agent]

    def same(self, path: str, at: Stat) -> tuple[str, str, str] | None:
        """(agent, session, state) of a plain file that looks as it did and whose journal exists."""
        entry = self._raw.get(path)
        try:
            if entry is None or entry[2] != [at.size, at.mtime_ns, at.inode] or entry[3] is not None or entry[5] is not None:
                return None
            if entry[6] and not self.has_journal(entry[0], entry[6]):
                return None
            return entry[0], entry[1], entry[4]
        except (IndexError, TypeError):
            return None

    @property
    def changed(self) -> bool:
        """Whether something must be saved."""
        return self._changed

    def paths(self) -> Iterable[str]:
        return self._raw

    def append_only_files(self) -> Iterator[Plain]:
        """Files that were never rewritten and hold only records: while one looks the same, an audit need not open it."""
        for path, entry in self._raw.items():
            try:
                agent, _, look, beside, state, rows, journal, _, rewritten, odd, word = entry
                if rewritten is False and odd == 0 and rows is None and beside is None and journal:
                    size, mtime_ns, inode = look
                    yield path, size, mtime_ns, inode, agent, journal, state, word
            except (ValueError, TypeError):
                continue  # invalid, or to be read again in any case

    def captured(self) -> Iterator[Captured]:
        """Files with a journal of their own."""
        for path, entry in self._raw.items():
            try:
                agent, session, _, _, state, rows, journal, role, _, _, word = entry
                if word and journal and rows is None and state not in _LEFT_OUT:
                    yield path, agent, session, role, journal, word
            except (ValueError, TypeError):
                continue  # invalid

    def get(self, path: str) -> SourceState | None:
        try:
            return _seen(self._raw[path])
        except (KeyError, ValueError, TypeError, AttributeError):
            return None

    def put(self, path: str, seen: SourceState) -> None:
        entry = _entry(seen)
        if self._raw.get(path) != entry:
            self._raw[path] = entry
            self._changed = True

    def forget(self, path: str) -> None:
        self._changed |= self._raw.pop(path, None) is not None

    def forget_session(self, session: str) -> None:
        """Read its sources again, however they look."""
        agent, _, native = session.partition(":")
        for path in list(self._raw):
            seen = self.get(path)
            if seen and seen.agent == agent and (seen.session == native or native in (seen.rows or {})):
                self.forget(path)
        for source, pause in list(self._pauses.items()):
            if pause.session == session:
                self.resume(source)

    def look_again(self, path: str) -> None:
        """Read it again, however it looks; keep what is known of it."""
        seen = self.get(path)
        if seen and seen.look:
            self.put(path, seen._replace(look=None))

    def grown(self, source: str, day: str) -> int:
        """How many bytes of a source were captured on that day. If the cache was lost, counting begins at zero."""
        seen = self._grown.get(source)
        return int(seen[1]) if isinstance(seen, list) and len(seen) == 2 and seen[0] == day else 0

    def grow(self, source: str, day: str, size: int) -> None:
        self._grown[source] = [day, self.grown(source, day) + size]
        self._changed = True

    def pause(self, source: str, pause: SourcePause) -> None:
        self._pauses[source] = pause
        self._changed = self._pauses_changed = True

    def resume(self, source: str) -> None:
        if self._pauses.pop(source, None):
            self._changed = self._pauses_changed = True

    def paused(self, source: str) -> SourcePause | None:
        return self._pauses.get(source)

    def save(self) -> None:
        import orjson

        if not self._changed:
            return
        # JSON can't hold a path that is no UTF-8: such a file is opened each time.
        entries = {path: entry for path, entry in self._raw.items() if _is_text(path)}
        # The limit is per day, so only the last day counts.
        last = max((str(seen[0]) for seen in self._grown.values()), default="")
        grown = {path: seen for path, seen in self._grown.items() if _is_text(path) and seen[0] == last}
        try:
            make_folders(self._host, self._path.rpartition("/")[0])
            replace_file(self._host, self._path, orjson.dumps({"version": _VERSION, "sources": entries, "grown": grown}))
            if self._pauses_changed:
                self._save_pauses()
        except OSError:
            return  # the journals are safe; the next round opens more files, that is all
        self._changed = False

    def _save_pauses(self) -> None:
        path = f"{self._root}/{PAUSED}"
        if self._pauses:
            replace_file(self._host, path, json.dumps(self._pauses).encode())
        elif self._host.stat(path) is not None:
            self._host.remove(path)
        self._pauses_changed = False


def paused_sources(host: Host, root: str) -> dict[str, SourcePause]:
    """Sources over their own limit, from a file that exists only if there are any: `status` reads it."""
    path = f"{root}/{PAUSED}"
    try:
        found = json.loads(read_file(host, path)) if host.stat(path) is not None else {}
        return {
            str(source): SourcePause(str(session), str(problem), FileLook(*look), str(day), str(limits))
            for source, (session, problem, look, day, limits) in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # unreadable or invalid: then they are opened once more


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _entry(seen: SourceState) -> list[Any]:
    look, beside = seen.look, seen.beside
    looks = (list(look) if look else None, list(beside) if beside else None)
    return [seen.agent, seen.session, *looks, *seen[4:]]


def _seen(entry: list[Any]) -> SourceState:
    agent, session, look, beside, state, rows, journal, role, rewritten, odd, word = entry
    if not all(isinstance(text, str) for text in (agent, session, state, journal, role, word)):
        raise TypeError("invalid entry")
    if rows is not None and not isinstance(rows, dict):
        raise TypeError("invalid entry")
    if rewritten not in (True, False, None) or not (odd is None or isinstance(odd, int)):
        raise TypeError("invalid entry")
    looks = (FileLook(*look) if look else None, FileLook(*beside) if beside else None)
    return SourceState(agent, session, *looks, state, rows, journal, role, rewritten, odd, word)
