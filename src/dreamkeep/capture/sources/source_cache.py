"""What the last ingest saw of each source: a cache, so that looking again opens nothing that did not change.

It holds no truth. Lost or wrong, it costs a closer look: every journal knows by itself how far each of its sources was read.
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
    """How a file looked: as far as a stat can tell."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, at: Stat) -> FileLook:
        return cls(at.size, at.mtime_ns, at.inode)


class SourceState(NamedTuple):
    """`look`: when it was read; None when it must be read again whatever it looks like. `beside`: an SQLite file's -wal.

    `journal`: the folder that holds its session; if that is gone (deleted, lost), the look counts for nothing.
    """

    agent: str
    session: str
    look: FileLook | None
    beside: FileLook | None = None
    state: str = ""
    #: Of a database with many sessions: what each looked like, and whether rows of it were lost by then (ingest_rows.py).
    rows: dict[str, str] | None = None
    journal: str = ""
    role: str = "main"
    #: For an audit, so that it need not open what is well: whether the agent ever took away or changed what was captured, and
    #: how many lines are no records (None: nobody knows, look closer); and its word as it was journaled (content.py).
    rewritten: bool | None = None
    odd: int | None = None
    word: str = ""


class SourcePause(NamedTuple):
    """A source that is over its own limit. `look`: how it looked then; `day`: on which it is, "" when another day does not help;
    `limits`: as they were set."""

    session: str
    problem: str
    look: FileLook
    day: str
    limits: str


#: Path, agent, session, role, journal and word of a source of which something was captured. As bare, for the same reason.
Captured = tuple[str, str, str, str, str, str]

#: Path, size, time, inode, agent, journal, state and word of a source. Bare, because an audit compares thousands.
Plain = tuple[str, int, int, int, str, str, str, str]


class Cache:
    def __init__(self, host: Host, root: str) -> None:
        self._host = host
        self._root = root
        self._journals: dict[str, set[str]] = {}
        self._path = f"{root}/{NAME}"
        self._changed = False
        # As they were read: most of them are only compared, so they are made into `Seen` when somebody asks for one.
        self._raw: dict[str, list[Any]] = {}
        #: By source: the day, and what was captured of it then.
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
            self._raw = {}  # not there, or not ours: then everything is looked at

    def look_at_journals(self) -> None:
        """Which journals there are now: asked once a round, a listing for each agent."""
        self._journals = {}

    def has_journal(self, agent: str, journal: str) -> bool:
        if agent not in self._journals:
            try:
                self._journals[agent] = set(self._host.names(f"{self._root}/{SESSIONS}/{agent}"))
            except OSError:
                self._journals[agent] = set()
        return journal in self._journals[agent]

    def same(self, path: str, at: Stat) -> tuple[str, str, str] | None:
        """(agent, session, state) of a plain file that looks as it did, and whose journal is there."""
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
        """Whether there is something to save."""
        return self._changed

    def paths(self) -> Iterable[str]:
        return self._raw

    def append_only_files(self) -> Iterator[Plain]:
        """Of files that were never rewritten and hold nothing but records: as long as one looks so, there is nothing to tell."""
        for path, entry in self._raw.items():
            try:
                agent, _, look, beside, state, rows, journal, _, rewritten, odd, word = entry
                if rewritten is False and odd == 0 and rows is None and beside is None and journal:
                    size, mtime_ns, inode = look
                    yield path, size, mtime_ns, inode, agent, journal, state, word
            except (ValueError, TypeError):
                continue  # not ours, or to be read again whatever it looks like

    def captured(self) -> Iterator[Captured]:
        """Of files that are journaled, each by itself."""
        for path, entry in self._raw.items():
            try:
                agent, session, _, _, state, rows, journal, role, _, _, word = entry
                if word and journal and rows is None and state not in _LEFT_OUT:
                    yield path, agent, session, role, journal, word
            except (ValueError, TypeError):
                continue  # not ours

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
        """Look again at whatever it came from, however it looks."""
        agent, _, native = session.partition(":")
        for path in list(self._raw):
            seen = self.get(path)
            if seen and seen.agent == agent and (seen.session == native or native in (seen.rows or {})):
                self.forget(path)
        for source, pause in list(self._pauses.items()):
            if pause.session == session:
                self.resume(source)

    def look_again(self, path: str) -> None:
        """However it looks; what is known of it stays."""
        seen = self.get(path)
        if seen and seen.look:
            self.put(path, seen._replace(look=None))

    def grown(self, source: str, day: str) -> int:
        """How many bytes of a source were captured on that day. If this was lost, it counts from anew."""
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
        # A path that is no UTF-8 has no place in JSON: such a file is looked into each time.
        entries = {path: entry for path, entry in self._raw.items() if _is_text(path)}
        try:
            make_folders(self._host, self._path.rpartition("/")[0])
            replace_file(
                self._host, self._path, orjson.dumps({"version": _VERSION, "sources": entries, "grown": self._grown_today()})
            )
            if self._pauses_changed:
                self._save_pauses()
        except OSError:
            return  # what was read is safe; the next round looks more closely, that is all
        self._changed = False

    def _grown_today(self) -> dict[str, Any]:
        """Only the last day counts."""
        last = max((str(seen[0]) for seen in self._grown.values()), default="")
        return {path: seen for path, seen in self._grown.items() if _is_text(path) and seen[0] == last}

    def _save_pauses(self) -> None:
        path = f"{self._root}/{PAUSED}"
        if self._pauses:
            replace_file(self._host, path, json.dumps(self._pauses).encode())
        elif self._host.stat(path) is not None:
            self._host.remove(path)
        self._pauses_changed = False


def paused_sources(host: Host, root: str) -> dict[str, SourcePause]:
    """Sources that are over their own limit. In a file of its own, which hardly anybody has: `status` reads it."""
    path = f"{root}/{PAUSED}"
    try:
        found = json.loads(read_file(host, path)) if host.stat(path) is not None else {}
        return {
            str(source): SourcePause(str(session), str(problem), FileLook(*look), str(day), str(limits))
            for source, (session, problem, look, day, limits) in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # can't be read, or not ours: then they are looked at once more


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
        raise TypeError("somebody else wrote this")
    if rows is not None and not isinstance(rows, dict):
        raise TypeError("somebody else wrote this")
    if rewritten not in (True, False, None) or not (odd is None or isinstance(odd, int)):
        raise TypeError("somebody else wrote this")
    looks = (FileLook(*look) if look else None, FileLook(*beside) if beside else None)
    return SourceState(agent, session, *looks, state, rows, journal, role, rewritten, odd, word)
