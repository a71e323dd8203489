"""What the reader of pi's lines says, and where it looks for them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dreamkeep.agents import facts as f
from dreamkeep.agents.pi import discovery as place
from dreamkeep.agents.pi.reader import Reader
from dreamkeep.agents.shared import unknown as plain
from dreamkeep.host import RealHost
from tests.agents import pi as made
from tests.agents.crude import fold, read

NATIVE = {one["id"].removeprefix("pi:"): one for one in made.EXPECTED["sessions"]}
#: The crude fold counts a line each time, and forgets that a message was taken back when it is said again.
CRUDE = {"unknown": 0, "marks": 0}


def lines_of(native: str) -> list[str]:
    return next(content for name, content in made.files().items() if name.endswith(f"_{native}.jsonl")).splitlines()


def of(kind: type, found: Iterable[f.Fact]) -> list[Any]:
    return [one for one in found if isinstance(one, kind)]


@pytest.mark.parametrize("native", NATIVE)
def test_the_lines_of_each_session_say_what_is_expected(native: str) -> None:
    want = NATIVE[native]
    found = read(Reader, lines_of(native))
    got = fold(found, "pi")
    assert got["turns"] == want["turns"]
    assert got["roles"] == want["roles"]
    assert got["tool_calls"] == want["tool_calls"]
    assert got["compactions"] == want["compactions"]
    assert got["lineage"] == want["lineage"]
    assert got["marks"] == want["marks"]
    assert got["unknown"] == want["unknown"]
    assert found == read(Reader, lines_of(native), rest=True)


def test_a_branch_that_was_left_takes_back_its_prompt() -> None:
    found = read(Reader, lines_of(made.MAIN))
    (rewound,) = of(f.MessagesRewound, found)
    assert {one.key: one.text for one in of(f.MessageSaid, found)}[rewound.key] == "Try lld."


def test_what_a_fork_copied_counts_where_it_came_from() -> None:
    """S28: the copies have the keys of the originals, and begin no turns."""
    found = read(Reader, lines_of(made.COPY))
    copies = {one.key for one in of(f.MessageSaid, found) if one.mark == f.COPIED}
    assert copies and copies <= {one.key for one in of(f.MessageSaid, read(Reader, lines_of(made.MAIN)))}
    assert [one.prompt for one in of(f.TurnBegan, found)] == ["And the tests?"]
    assert len(of(f.TurnSettled, found)) == 1


def test_a_compaction_has_its_tokens_and_its_summary() -> None:
    found = read(Reader, lines_of(made.MAIN))
    (signal,) = of(f.Signal, found)
    assert (signal.phase, signal.before, signal.id) == ("completed", {"tokens": 195020}, signal.id)
    assert [one.text for one in of(f.MessageSaid, found) if one.key == signal.id] == ["The build was slow; mold is set."]


def test_read_twice_in_a_row_it_is_the_same_session() -> None:
    """W14."""
    lines = lines_of(made.MAIN)
    assert fold(read(Reader, lines)) | CRUDE == fold(read(Reader, [*lines, *lines])) | CRUDE


@pytest.mark.parametrize("reader", [Reader, plain.Reader])
def test_no_line_makes_a_reader_raise(reader: Any) -> None:
    """B2: wrong types anywhere."""
    rng = random.Random(3)
    junk: list[Any] = [None, 7, "x", [], {}, [None], {"type": 1}, [{"type": "text", "text": {}}], "\ud800"]
    lines = [json.loads(line) for line in lines_of(made.MAIN)[:-1]]
    for _ in range(800):
        line = json.loads(json.dumps(rng.choice(lines)))
        spot: Any = line.get("message", line) if rng.random() < 0.6 else line
        spot[rng.choice(list(spot))] = rng.choice(junk)
        one = reader({})
        for data in (rng.choice(lines), line, rng.choice(lines)):
            list(one.read(f.Record("file", data)))
        json.dumps(one.state)


def test_an_agent_without_a_reader_is_kept_and_shown_as_unknown() -> None:
    records = [f.Record("file", {"type": "x"}), f.Record("piece", None, "some text"), f.Record("row", {}, "", "messages")]
    reader = plain.Reader({})
    assert [fact for record in records for fact in reader.read(record)] == [
        f.UnknownRecord("x"),
        f.UnknownRecord("piece"),
        f.UnknownRecord("messages"),
    ]


def test_every_session_is_found_and_nothing_else(tmp_path: Path) -> None:
    made.write(tmp_path)
    (home,) = place.homes(str(tmp_path), {})
    found = list(place.discover(RealHost(), home))
    assert {source.session for source in found} == set(NATIVE)
    for source in found:
        assert place.claims(source.path) == source
        assert place.identify(source.path, Path(source.path).read_bytes()) == source.session
    assert list(place.discover(RealHost(), str(tmp_path / "not there"))) == []


def test_sessions_may_be_kept_elsewhere_and_under_another_name(tmp_path: Path) -> None:
    asked = {"PI_CODING_AGENT_SESSION_DIR": str(tmp_path), "PI_CODING_AGENT_DIR": "~/p"}
    assert place.homes("/h", asked) == [str(tmp_path), "/h/p/sessions", "/h/.pi/agent/sessions"]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines_of(made.MAIN)))
    (source,) = place.discover(RealHost(), str(tmp_path))
    assert source.session == ""
    assert place.identify(source.path, (tmp_path / "mine.jsonl").read_bytes()) == made.MAIN


def test_a_foreign_file_is_not_taken_for_one_of_pi() -> None:
    assert place.claims("/tmp/some_thing.jsonl") is None
    assert place.identify("/tmp/some_thing.jsonl", b'{"type":"user"}\n') == ""
    assert place.identify("/tmp/some_thing.jsonl", b"\xff") == ""
