"""Hermes' reader against its real data, and against a home that our generator wrote."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dreamkeep.agents import facts as f
from dreamkeep.agents.hermes import discovery
from dreamkeep.agents.hermes.reader import Reader
from dreamkeep.capture.sources import rows
from dreamkeep.host import RealHost
from tests.agents import crude
from tests.agents.hermes import BRANCH, EXPECTED, GHOST, SHOP, TRIP, TRIP_2, Hermes, write

HOST = RealHost()
facts = partial(crude.read_rows, Reader)
lines = partial(crude.lines_of, "hermes")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path / ".hermes" / "state.db"


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("expected", EXPECTED["sessions"], ids=lambda one: one["title"])
def test_a_generated_home_says_what_was_put_into_it(database: Path, expected: dict[str, Any], rest: bool) -> None:
    """K5, S28, T3: rewound, squeezed-out and live rows told apart; tool ids and reasoning kept; copies count once."""
    found = facts(lines(database, expected["id"].partition(":")[2]), rest=rest)
    got = crude.fold(found, "hermes")
    assert got == {name: expected[name] for name in got}
    titles = [one.title for one in found if isinstance(one, f.SessionTitled)]
    assert not titles or titles[-1] == expected["title"]
    assert {one.cwd for one in found if isinstance(one, f.SessionPlaced)} == {expected["cwd"]}


def test_each_message_counts_once_however_often_a_compaction_inserts_it_again(database: Path) -> None:
    """W14."""
    said = [one for one in facts(lines(database, SHOP)) if isinstance(one, f.MessageSaid)]
    continued = {one.key: one.at for one in said if one.text == "continue"}
    assert len(continued) == 3
    assert len(set(continued.values())) == 3  # a copy keeps the time of its original
    assert sum(one.role == f.TOOL for one in said) > len({one.key for one in said if one.role == f.TOOL})


def test_a_compaction_in_place_is_one_signal_with_what_was_before_and_after(database: Path) -> None:
    """S12: and the copies around the summary begin no turn."""
    signals = [one for one in facts(lines(database, SHOP)) if isinstance(one, f.Signal)]
    by_id: dict[str, list[f.Signal]] = {}
    for one in signals:
        by_id.setdefault(one.id, []).append(one)
    told = [([s.before for s in one if s.before], [s.after for s in one if s.after]) for one in by_id.values()]
    assert told == [([{"messages": 11}], [{"messages": 7}]), ([{"messages": 10}], [{"messages": 7}])]


def test_a_split_is_one_compaction_between_two_native_ids(database: Path) -> None:
    """S6, T9: the turn in the middle of which it happens goes on."""
    found = facts(lines(database, TRIP))
    first = next(one for one in found if isinstance(one, f.Signal))
    assert (first.phase, first.old_scope, first.scope, first.before) == ("completed", TRIP, TRIP_2, {"messages": 5})
    began = [one.turn for one in found if isinstance(one, f.TurnBegan)]
    settled = [one.turn for one in found if isinstance(one, f.TurnSettled)]
    assert began == settled
    assert isinstance(found[-1], f.SessionClosed)
    assert found[-1].reason == "cli_close"


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
def test_reading_after_every_write_gives_the_same_messages_as_reading_once(tmp_path: Path, newer: bool, resumed: bool) -> None:
    """K5: also where a newer Hermes marks what it keeps as if the user had taken it back."""
    path = tmp_path / "state.db"
    h = Hermes(path)
    known: dict[str, str] = {}
    journal: list[bytes] = []
    s = h.session("20261101_000000_ffffff")
    for n in range(3):
        for prompt in ("continue", f"step {n}", "continue"):
            h.ask(s, prompt)
            journal += lines(path, s, known)
            h.answer(s, "ok")
            journal += lines(path, s, known)
        if resumed:
            h.resume(s)
        h.compact(s, f"summary {n}", head=2, tail=3, newer=newer)
        journal += lines(path, s, known)
    h.ask(s, "continue")
    h.answer(s, "ok")
    journal += lines(path, s, known)
    h.close()
    for read in (journal, lines(path, s)):
        got = crude.fold(facts(read, rest=True))
        assert [turn["state"] for turn in got["turns"]] == ["completed"] * 10
        assert got["roles"] == {"user": 10, "assistant": 10, "tool": 0, "reasoning": 0, "summary": 3, "system": 0}
        assert got["marks"] == {}
        assert len(got["compactions"]) == 3


def test_what_the_user_takes_back_is_marked_as_soon_as_it_is_seen(tmp_path: Path) -> None:
    """K5."""
    path = tmp_path / "state.db"
    h = Hermes(path)
    known: dict[str, str] = {}
    s = h.session("20261101_000000_ffffff")
    h.ask(s, "one")
    h.answer(s, "first")
    h.ask(s, "two")
    h.answer(s, "second")
    before = lines(path, s, known)
    h.rewind(s, 2)
    after = lines(path, s, known)
    h.close()
    assert crude.fold(facts(before))["marks"] == {}
    assert crude.fold(facts(before + after))["marks"] == {"rewound": 2}
    assert crude.fold(facts(lines(path, s)))["marks"] == {"rewound": 2}


def test_the_same_first_prompt_typed_twice_is_two_turns(tmp_path: Path) -> None:
    """T3: a compaction inserts the first prompt again, too; only the next row's time tells them apart."""
    path = tmp_path / "state.db"
    h = Hermes(path)
    s = h.session("20261101_000000_ffffff")
    for _ in range(3):
        h.ask(s, "go on")
        h.answer(s, "done")
    for n in range(2):
        h.compact(s, f"summary {n}", head=2, tail=2)
        h.ask(s, "go on")
        h.answer(s, "done")
    h.close()
    got = crude.fold(facts(lines(path, s), rest=True))
    assert len(got["turns"]) == 5
    assert got["roles"]["user"] == 5
    assert len(got["compactions"]) == 2


def test_a_rollover_is_a_boundary_and_no_compaction(tmp_path: Path) -> None:
    """S18."""
    path = tmp_path / "state.db"
    h = Hermes(path)
    h.session("20261101_000000_ffffff")
    h.ask("20261101_000000_ffffff", "one")
    h.answer("20261101_000000_ffffff", "first")
    h.update("20261101_000000_ffffff", ended_at=h.now, end_reason="turn_boundary_rollover")
    h.session("20261101_000001_eeeeee", parent_session_id="20261101_000000_ffffff")
    h.ask("20261101_000001_eeeeee", "two")
    h.answer("20261101_000001_eeeeee", "second")
    h.close()
    assert list(rows.sessions(HOST, "hermes", str(path))) == ["20261101_000000_ffffff"]
    found = facts(lines(path, "20261101_000000_ffffff"))
    assert [one.reason for one in found if isinstance(one, f.Boundary)] == ["rollover"]
    assert not any(isinstance(one, f.Signal) for one in found)
    assert len(crude.fold(found)["turns"]) == 2


def test_the_reader_remembers_little_of_a_long_session(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    h = Hermes(path)
    s = h.session("20261101_000000_ffffff")
    with h.db:
        for n in range(600):
            h.ask(s, f"prompt {n} " + "x" * 500)
            h.answer(s, f"answer {n}")
    h.close()
    reader = Reader({})
    for line in lines(path, s):
        held = json.loads(line)
        list(reader.read(f.Record("row", held["row"], "", held["table"])))
    assert len(json.dumps(reader.state)) < 20_000


def test_an_empty_row_is_listed_as_empty_and_one_with_a_worktree_is_not(database: Path) -> None:
    """K6."""
    found = rows.sessions(HOST, "hermes", str(database))
    assert [key for key, one in found.items() if one.empty] == [GHOST]
    assert set(found) == {SHOP, TRIP, BRANCH, GHOST, *(one["id"].partition(":")[2] for one in EXPECTED["sessions"])}
    h = Hermes(database)
    h.db.execute("ALTER TABLE sessions ADD COLUMN worktree_path TEXT")
    h.update(GHOST, worktree_path="/home/dev/shop-blue")
    h.close()
    assert not rows.sessions(HOST, "hermes", str(database))[GHOST].empty
    assert any(isinstance(one, f.SessionPlaced) for one in facts(lines(database, GHOST)))


def test_an_older_schema_without_flags_is_read_as_all_live(tmp_path: Path) -> None:
    """K8: whichever columns exist."""
    path = tmp_path / "state.db"
    h = Hermes(path)
    h.db.execute(
        "DROP TABLE messages; CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT,"
        " content TEXT, timestamp REAL)"
    )
    h.session("old")
    h.ask("old", "hello")
    h.say("old", "assistant", "hi")
    h.close()
    assert not rows.sessions(HOST, "hermes", str(path))["old"].empty
    got = crude.fold(facts(lines(path, "old")))
    assert (got["roles"]["user"], got["roles"]["assistant"], got["marks"]) == (1, 1, {})


@pytest.mark.parametrize(
    "row", [{}, {"id": "x"}, {"id": 1, "role": 7, "timestamp": "soon"}, {"tool_calls": "[[", "role": "assistant"}]
)
@pytest.mark.parametrize("name", ["sessions", "messages", "comets", ""])
def test_no_row_makes_the_reader_raise(row: dict[str, Any], name: str) -> None:
    reader = Reader({})
    for _ in range(2):
        list(reader.read(f.Record("row", row, "", name)))
    list(reader.read(f.Record("row", None, "x", name)))


def test_content_that_is_packed_or_no_text_is_shown_as_text() -> None:
    reader = Reader({})
    packed = "\x00json:" + json.dumps(
        [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": "data:…"}}]
    )
    rows_ = [{"id": 1, "role": "user", "content": packed}, {"id": 2, "role": "user", "content": {"$text": "/2hp"}}]
    said = [one for row in rows_ for one in reader.read(f.Record("row", row, "", "messages")) if isinstance(one, f.MessageSaid)]
    assert [one.text for one in said] == ["what is this?\n[image]", "\ufffdhi"]


def test_databases_are_found_in_the_home_in_profiles_and_where_the_environment_says(database: Path, tmp_path: Path) -> None:
    write(tmp_path / ".hermes" / "profiles" / "work")
    (tmp_path / ".hermes" / "profiles" / "work" / ".hermes" / "state.db").rename(tmp_path / ".hermes/profiles/work/state.db")
    [home] = discovery.homes(str(tmp_path), {})
    found = [one.path for one in discovery.discover(HOST, home)]
    assert found == [str(database), f"{home}/profiles/work/state.db"]
    assert discovery.homes("/home/dev", {"HERMES_HOME": "/data/hermes"}) == ["/data/hermes", "/home/dev/.hermes"]
    assert list(discovery.discover(HOST, str(tmp_path / "nowhere"))) == []
    claimed = discovery.claims("/x/state.db")
    assert claimed is not None
    assert claimed.form == "rows"
    assert discovery.claims("/x/state.json") is None
