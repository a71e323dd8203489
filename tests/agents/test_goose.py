"""Goose's reader against a home that our generator wrote after Goose's source."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dreamkeep.agents import facts as f
from dreamkeep.agents.goose import discovery
from dreamkeep.agents.goose.reader import Reader
from dreamkeep.capture.sources import rows
from dreamkeep.host import RealHost
from tests.agents import crude
from tests.agents.goose import EMPTY, EXPECTED, OLDER, SCHEMA, Goose, text, write

HOST = RealHost()
facts = partial(crude.read_rows, Reader)
lines = partial(crude.lines_of, "goose")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path / ".local" / "share" / "goose" / "sessions" / "sessions.db"


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("expected", EXPECTED["sessions"], ids=lambda one: one["title"])
def test_a_generated_home_says_what_was_put_into_it(database: Path, expected: dict[str, Any], rest: bool) -> None:
    """K5."""
    found = facts(lines(database, expected["id"].partition(":")[2]), rest=rest)
    got = crude.fold(found, "goose")
    assert got == {name: expected[name] for name in got}
    assert [one.title for one in found if isinstance(one, f.SessionTitled)] == [expected["title"]]


@pytest.mark.parametrize("schema", [SCHEMA, OLDER], ids=["ids", "no ids"])
def test_reading_after_every_write_gives_the_same_messages_as_reading_once(tmp_path: Path, schema: str) -> None:
    """W14: rows come again under new ids, the last prompt even twice; each message counts once."""
    path = tmp_path / "sessions.db"
    g = Goose(path, schema)
    known: dict[str, str] = {}
    journal: list[bytes] = []
    s = g.session("20261101_9")
    for n in range(3):
        for prompt in ("continue", f"step {n}"):
            g.ask(s, prompt)
            journal += lines(path, s, known)
            if prompt != "continue":
                if n == 1:
                    g.call(s, "call_1", "developer__shell", {"command": "ls"}, "a")
                    journal += lines(path, s, known)
                g.compact(s, f"summary {n}")
                journal += lines(path, s, known)
            g.answer(s, "ok")
            journal += lines(path, s, known)
    g.close()
    assert len(journal) > 2 * len(lines(path, s))
    for read in (journal, lines(path, s)):
        got = crude.fold(facts(read, rest=True))
        assert [turn["prompt"] for turn in got["turns"]] == ["continue", "step 0", "continue", "step 1", "continue", "step 2"]
        assert {turn["state"] for turn in got["turns"]} == {"completed"}
        assert got["roles"] == {"user": 6, "assistant": 10, "tool": 1, "reasoning": 0, "summary": 3, "system": 0}
        assert got["marks"] == {"meta": 3}
        assert len(got["compactions"]) == 3


def test_the_same_prompt_after_a_compaction_that_the_user_asked_for_is_a_new_turn(tmp_path: Path) -> None:
    """T3: only a compaction by itself doubles the last prompt."""
    path = tmp_path / "sessions.db"
    g = Goose(path)
    s = g.session("20261101_9")
    for manual in (False, True):
        g.ask(s, "continue")
        g.answer(s, "ok")
        g.compact(s, "so far", manual=manual)
    g.ask(s, "continue")
    g.close()
    assert [turn["state"] for turn in crude.fold(facts(lines(path, s)))["turns"]] == ["completed", "completed", "open"]


def test_an_answer_that_asks_for_a_tool_ends_no_turn(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    g = Goose(path)
    s = g.session("20261101_9")
    g.ask(s, "count")
    g.call(s, "call_1", "developer__shell", {"command": "ls"}, "a", text("Let me see."))
    g.close()
    got = crude.fold(facts(lines(path, s)))
    assert got["turns"] == [{"prompt": "count", "state": "open"}]


def test_a_session_without_messages_is_listed_as_empty(database: Path) -> None:
    """K6."""
    assert [key for key, one in rows.sessions(HOST, "goose", str(database)).items() if one.empty] == [EMPTY]


@pytest.mark.parametrize(
    "change", ["UPDATE messages SET metadata_json = '{}' WHERE id = (SELECT max(id) FROM messages)", "DELETE FROM messages"]
)
def test_a_fingerprint_changes_with_visibility_too(database: Path, change: str) -> None:
    before = rows.sessions(HOST, "goose", str(database))
    g = Goose(database)
    g.db.execute(change)
    g.close()
    after = rows.sessions(HOST, "goose", str(database))
    assert after != before
    assert after[EMPTY] == before[EMPTY]


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"content_json": "[1, null, {}]", "role": "user"},
        {"content_json": '[{"type":"text","text":7}]', "role": "assistant", "created_timestamp": "x"},
        {"content_json": '[{"type":"toolResponse","toolResult":{"value":3}}]', "role": "user", "metadata_json": "{"},
        {
            "content_json": '[{"type":"text","text":"x"}]',
            "role": "user",
            "metadata_json": '{"userVisible":false,"agentVisible":false}',
        },
    ],
)
@pytest.mark.parametrize("name", ["sessions", "messages", "comets"])
def test_no_row_makes_the_reader_raise(row: dict[str, Any], name: str) -> None:
    reader = Reader({})
    for _ in range(3):
        list(reader.read(f.Record("row", row, "", name)))
    list(reader.read(f.Record("row", None, "x", name)))


def test_databases_are_found_where_goose_puts_them(database: Path, tmp_path: Path) -> None:
    [place] = discovery.homes(str(tmp_path), {})
    assert [one.path for one in discovery.discover(HOST, place)] == [str(database)]
    moved = discovery.homes("/home/dev", {"GOOSE_PATH_ROOT": "/g", "XDG_DATA_HOME": "/x"})
    assert moved == ["/g/data/sessions", "/x/goose/sessions", "/home/dev/.local/share/goose/sessions"]
    assert list(discovery.discover(HOST, str(tmp_path / "nowhere"))) == []
    assert discovery.claims("/x/sessions.db") is not None
    assert discovery.claims("/x/other.db") is None
