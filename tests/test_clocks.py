"""Times that no calendar has: a clock far ahead or far behind, and records that say any time at all. Time is data: it never stops
a verb."""

from __future__ import annotations

import json
import os
import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.agents.registry import BUILT_IN as AGENTS
from dreamkeep.dream.backends.rules.dates import resolved
from dreamkeep.errors import BadUsage, DreamkeepError
from dreamkeep.event import rfc3339
from dreamkeep.host import FolderEntry, Look, RealHost, Stat, bounded_ns
from dreamkeep.recall import time_words
from dreamkeep.session.records import _moment
from dreamkeep.verbs.capture import find_hook_file

#: What is wrong with the made-up homes whatever the time: a torn line, lists that Hermes WebUI would have.
KNOWN_FAULTS = {"source_malformed", "store_unreadable", "webui_index_missing", "webui_richer_backup"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ns_of(*moment: int) -> int:
    return int((datetime(*moment, tzinfo=UTC) - EPOCH).total_seconds()) * 10**9  # type: ignore[misc, arg-type]


CLOCKS = {
    "now": RealHost().now(),
    "2300": ns_of(2300, 6, 1),
    "2600": ns_of(2600, 6, 1),
    "1970": 0,
    "before 1970": -(10**9) - 1,
    "year 1": ns_of(1, 1, 1),
    "year 1677": -(2**63),
    "last second of 9999": ns_of(9999, 12, 31, 23, 59, 59),
    "far beyond 9999": 10**24,
    "before year 1": -(10**24),
}


class OtherClock(RealHost):
    """This machine, but its clock says something else, and what is written now has that time."""

    def __init__(self, start_ns: int) -> None:
        self._ahead = start_ns - RealHost().now()

    def now(self) -> int:
        return super().now() + self._ahead

    def _moved(self, at: Stat | None) -> Stat | None:
        return at._replace(mtime_ns=bounded_ns(at.mtime_ns + self._ahead)) if at else None

    def stat(self, path: str) -> Stat | None:
        return self._moved(super().stat(path))

    def handle_stat(self, handle: int) -> Stat:
        at = super().handle_stat(handle)
        return at._replace(mtime_ns=bounded_ns(at.mtime_ns + self._ahead))

    def entries(self, folder: str) -> list[FolderEntry]:
        return [one._replace(at=self._moved(one.at)) for one in super().entries(folder)]

    def changed(self, folder: str, looks: Iterable[Look]) -> list[str]:
        return [path for path, *look in looks if not (at := self.stat(f"{folder}/{path}")) or not _looks_so(at, *look)]


def _looks_so(at: Stat, size: int, mtime_ns: int, inode: int) -> bool:
    return at.mtime_ns == mtime_ns and (not inode or (at.inode, at.size) == (inode, size))


def run_every_verb(tmp_path: Path, home: Path, host: RealHost) -> dict[str, Any]:
    """What came of it; nothing may raise, and a second look finds nothing new."""
    environment = {"HOME": str(home), "XDG_RUNTIME_DIR": str(tmp_path)}
    root, other, file = tmp_path / "keep", tmp_path / "other", tmp_path / "snapshot"

    def opened(where: Path) -> Keep:
        return Keep.open(where, host=host, environment=environment)

    with opened(root) as keep:
        own = keep.session("own", cwd=str(tmp_path))
        own.record("Always run the linter before a commit. Call me in two weeks, or next friday.", ("assistant", "Yes."))
        own.end()
        done = list(keep.ingest(home=home))
        assert [one.problem for one in done if one.problem] == []
        sessions = keep.sessions()
        for one in sessions:
            keep.markdown(keep.show(one.id, live=True))
            keep.as_json(one)
        keep.status()
        keep.hygiene()
        for one in sessions:
            keep.end(one.id)
        made = keep.dream()
        assert made["failed"] == 0, made["sessions"]
        keep.note_add("Deploys go out on Tuesdays, never on Fridays.")
        for query in ("linter", "what did we do yesterday", "linter last month", "three weeks ago", "since monday"):
            keep.search(query)
        keep.search("linter", since="0001-01-01", as_of="9999-12-31")
        keep.pack(query="linter")
        keep.render_packs()
        keep.dream_status()
        keep.dream_history()
        keep.page()
        keep.tasks()
        keep.doctor()
        keep.compress()
        again = list(keep.ingest(home=home))
        assert [one for one in again if one.problem or one.new_events] == []
        for deep in (False, True):
            told = keep.audit(deep=deep, home=home)["faults"]
            assert {one["class"] for one in told} <= KNOWN_FAULTS and not any("Error" in one["what"] for one in told), told
        keep.repair(home=home)
        keep.export(file)
        keep.verify(file)
        for one in sessions:
            for agent in ("claude", "codex", "gemini", "hermes"):
                with suppress(DreamkeepError):  # a session without a word can't be converted
                    keep.restore(one.id, to=agent, home=tmp_path / f"for {agent}")
        keep.delete(sessions[0].id)
        keep.undelete(sessions[0].id)
    with opened(other) as keep:
        keep.import_(file)
        assert len(keep.sessions()) == len(sessions)
        keep.reindex(from_zero=True)
        keep.search("linter")
    return made


@pytest.mark.parametrize("start_ns", CLOCKS.values(), ids=CLOCKS)
def test_every_verb_works_whatever_the_clock_says(tmp_path: Path, start_ns: int) -> None:
    home = tmp_path / "home"
    for agent in ("claude", "hermes", "codex"):
        import_module(f"tests.agents.{agent.replace('-', '_')}").write(home)
    made = run_every_verb(tmp_path, home, OtherClock(start_ns))
    assert made["notes"]["added"] > 0


#: What a record may say its time is: as text, and as a number.
TIMES: list[Any] = [
    *("9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
    *("2600-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "0000-00-00T00:00:00Z", "NaN", "Infinity", "", "2026-11-15"),
    *(0, -1, -(10**18), 10**18, 2**63, -(2**63), 2**70, 1e308, -1e308, 253_402_300_799_999, 19_880_000_000),
    *(float("nan"), float("inf"), float("-inf")),
]
_ISO = re.compile(r'"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^"]*"')
_NUMBER = re.compile(r"(?<![\w.\"-])17[0-9]{8}(?:[0-9]{3})?(?:\.\d+)?(?![\w.\"])")
_TIME_COLUMN = re.compile("time|_at$|created|updated|started|ended")


def falsify(home: Path, times: list[Any]) -> int:
    """Every time that is found in these files and databases becomes one of `times`. How many there were."""
    found = 0

    def next_time(match: object = None) -> str:
        nonlocal found
        found += 1
        return json.dumps(times[found % len(times)])

    for path in sorted(one for one in home.rglob("*") if one.is_file()):
        data = path.read_bytes()
        if data.startswith(b"SQLite format 3"):
            found += _falsify_rows(path, times)
        elif path.suffix in (".jsonl", ".json", ".ndjson"):
            text = data.decode("utf-8", "surrogateescape")
            text = _NUMBER.sub(next_time, _ISO.sub(next_time, text))
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return found


def _falsify_rows(path: Path, times: list[Any]) -> int:
    changed = 0
    with sqlite3.connect(path) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'").fetchall():
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if _TIME_COLUMN.search(row[1])]
            for column in columns:
                for (row,) in db.execute(f"SELECT rowid FROM {table}").fetchall():
                    changed += 1
                    value = times[changed % len(times)]
                    if isinstance(value, int) and not -(2**63) <= value < 2**63:
                        value = float(value)
                    db.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", (value, row))
    db.close()
    return changed


@pytest.mark.parametrize("agent", AGENTS)
def test_every_verb_works_whatever_time_a_record_says(tmp_path: Path, agent: str) -> None:
    for turn in range(2):
        place = tmp_path / str(turn)
        home = place / "home"
        import_module(f"tests.agents.{agent.replace('-', '_')}").write(home)
        times = list(TIMES)
        random.Random(turn).shuffle(times)
        assert falsify(home, times) > 2
        run_every_verb(place, home, RealHost())


EDGES = ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")


@pytest.mark.parametrize("at", EDGES)
def test_words_for_days_are_read_at_both_ends_of_the_calendar(at: str) -> None:
    said = [
        "tomorrow",
        "yesterday",
        "next friday",
        "last friday",
        "by friday",
        "next week",
        "last week",
        "last month",
        "next year",
    ]
    for words in [*said, "in 3 weeks", "10 months ago", "99999999999999999999 days ago", "the past 10 years", "since monday"]:
        assert resolved(f"We did it {words}.", at)
        time_words.read(f"what did we do {words}", at)


@pytest.mark.parametrize("at", EDGES)
def test_a_search_may_name_the_ends_of_the_calendar(tmp_path: Path, at: str) -> None:
    with Keep.open(tmp_path / "keep") as keep:
        keep.session("s").record("why is the lock file old?", ("assistant", "Because of the cache."))
        try:
            keep.search("lock", since=at)
            keep.search("lock", as_of=at)
        except BadUsage as problem:
            assert "must be a date or a time" in str(problem)
        assert keep.search("lock", since="0999-01-01"), "a year before 1000 is before now"


def test_a_tapped_frame_may_say_any_time() -> None:
    for ns in (10**400, -(10**400), 2**63, 0, -1, float("nan"), float("inf"), "x", None, True):
        _moment(ns)


def test_moments_are_texts_of_one_width_whatever_the_clock_says() -> None:
    shown = [rfc3339(ns) for ns in sorted(CLOCKS.values())]
    assert shown == sorted(shown) and {len(one) for one in shown} == {27}
    assert shown[0].startswith("0001-01-01T00:00:00") and shown[-1].startswith("9999-12-31T23:59:59")
    assert all(datetime.fromisoformat(one) for one in shown)


def test_a_file_of_any_year_is_captured_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    import_module("tests.agents.claude").write(home)
    files = [path for path in home.rglob("*") if path.is_file()]
    for n, path in enumerate(files):
        year_ns = (ns_of(2400, 1, 1), -(10**9), 0)[n % 3]
        os.utime(path, ns=(year_ns, year_ns))
    with Keep.open(tmp_path / "keep", environment={"HOME": str(home)}) as keep:
        assert [one.problem for one in keep.ingest(home=home) if one.problem] == []
        assert sum(one.new_events for one in keep.ingest(home=home)) == 0
        for path in (tmp_path / "keep").rglob("*"):
            os.utime(path, ns=(ns_of(2400, 1, 1), ns_of(2400, 1, 1)))
        assert keep.sessions()
        assert {one["class"] for one in keep.audit(home=home)["faults"]} <= KNOWN_FAULTS
        keep.reindex(from_zero=True)
        assert {one["class"] for one in keep.audit(deep=True, home=home)["faults"]} <= KNOWN_FAULTS


@pytest.mark.parametrize("now_ns", [-5, 0, 2**63 - 1])
def test_a_hook_call_is_drained_whatever_the_clock_said(tmp_path: Path, now_ns: int) -> None:
    words = [find_hook_file(), "claude", "UserPromptSubmit", str(tmp_path / "keep")]
    clock = f"import runpy, sys, time; time.time_ns = lambda: {now_ns}; sys.argv = {words!r}"
    program = f"{clock}; runpy.run_path({words[0]!r}, None, '__main__')"
    said = json.dumps({"session_id": "s1", "cwd": str(tmp_path), "prompt": "hello"}).encode()
    environment = {**os.environ, "DREAMKEEP_OFF": ""}
    assert subprocess.run([sys.executable, "-c", program], input=said, env=environment, timeout=60).returncode == 0
    with Keep.open(tmp_path / "keep") as keep:
        keep.drain()
        assert [one.id for one in keep.sessions()] == ["claude:s1"]
