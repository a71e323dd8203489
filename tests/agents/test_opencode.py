"""OpenCode's reader against a home that our generator wrote in the form of a real one."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dreamkeep.agents import facts as f
from dreamkeep.agents.opencode import discovery
from dreamkeep.agents.opencode.reader import Reader
from dreamkeep.capture.sources import rows
from dreamkeep.host import RealHost
from tests.agents import crude
from tests.agents.opencode import EMPTY, EXPECTED, SHOP, TAKEN_BACK, OpenCode, text, tool, write

HOST = RealHost()
facts = partial(crude.read_rows, Reader)
lines = partial(crude.lines_of, "opencode")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path / ".local" / "share" / "opencode" / "opencode.db"


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("expected", EXPECTED["sessions"], ids=lambda one: one["title"])
def test_a_generated_home_says_what_was_put_into_it(database: Path, expected: dict[str, Any], rest: bool) -> None:
    found = facts(lines(database, expected["id"].partition(":")[2]), rest=rest)
    got = crude.fold(found, "opencode")
    assert got == {name: expected[name] for name in got}
    titles = [one.title for one in found if isinstance(one, f.SessionTitled)]
    assert not titles or titles == [expected["title"]]
    assert {one.cwd for one in found if isinstance(one, f.SessionPlaced)} == {expected["cwd"]}


def test_reading_after_every_write_gives_the_same_view_as_reading_once(tmp_path: Path) -> None:
    """W14: a part comes once a change, the message counts once."""
    path = tmp_path / "opencode.db"
    o = OpenCode(path)
    known: dict[str, str] = {}
    journal: list[bytes] = []
    s = o.session("ses_1")

    def look() -> None:
        journal.extend(lines(path, s, known))

    for prompt in ("continue", "continue"):
        asked = o.ask(s, prompt)
        look()
        message = o.message(s, {"role": "assistant", "parentID": asked})
        look()
        words = o.part(s, message, text("On"))
        look()
        o.now += 3
        o.part(s, message, text("On it."), words)
        look()
        run = tool("bash", {"command": "ls"}, "a b", 0)
        pending = {**run, "state": {"status": "running", "input": {"command": "ls"}}}
        ran = o.part(s, message, pending)
        look()
        o.now += 3
        o.part(s, message, run, ran)
        look()
        o.message(s, {"role": "assistant", "parentID": asked, "finish": "stop", "time": {"completed": o.now}}, message)
        look()
    o.close()
    live, once = crude.fold(facts(journal, rest=True)), crude.fold(facts(lines(path, s)))
    assert live == once
    assert [turn["state"] for turn in once["turns"]] == ["completed", "completed"]
    assert once["roles"] == {"user": 2, "assistant": 4, "tool": 2, "reasoning": 0, "summary": 0, "system": 0}


def test_events_are_kept_raw_and_only_new_ones_are_read(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    o = OpenCode(path)
    s = o.session("ses_1")
    known: dict[str, str] = {}
    o.ask(s, "one")
    first = lines(path, s, known)
    o.db.execute("UPDATE event SET data = '{}'")  # nobody does; it shows that they are not looked at again
    o.ask(s, "two")
    second = lines(path, s, known)
    o.close()
    seqs = [json.loads(line)["row"]["seq"] for line in first + second if b'"table":"event"' in line]
    assert seqs == list(range(len(seqs)))
    assert lines(path, s, known) == []


def test_a_compaction_is_started_by_a_part_and_completed_by_the_answer_to_it(database: Path) -> None:
    """S4: one id."""
    signals = [one for one in facts(lines(database, SHOP)) if isinstance(one, f.Signal)]
    assert [(one.phase, one.reason) for one in signals] == [("started", "auto"), ("completed", "")]
    assert len({one.id for one in signals}) == 1


@pytest.mark.parametrize(("name", "phase"), [("MessageAbortedError", "cancelled"), ("APIError", "failed")])
def test_a_compaction_whose_answer_has_an_error_is_not_completed(tmp_path: Path, name: str, phase: str) -> None:
    path = tmp_path / "opencode.db"
    o = OpenCode(path)
    s = o.session("ses_1")
    compaction = o.message(s, {"role": "user"})
    o.part(s, compaction, {"type": "compaction", "auto": False})
    o.answer(s, compaction, [], "", summary=True, error={"name": name, "data": {"message": "no"}})
    o.close()
    [compaction_] = crude.fold(facts(lines(path, s)))["compactions"]
    assert (compaction_["state"], compaction_["reason"]) == (phase, "manual")


def test_a_revert_that_comes_later_takes_back_what_was_read_before(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    o = OpenCode(path)
    s = o.session("ses_1")
    known: dict[str, str] = {}
    o.answer(s, o.ask(s, "one"), [text("1")])
    prompt = o.ask(s, "two")
    o.answer(s, prompt, [text("2")])
    before = facts(lines(path, s, known))
    o.update(s, revert=json.dumps({"messageID": prompt}))
    after = facts(lines(path, s, known))
    o.close()
    [rewound] = [one for one in after if isinstance(one, f.MessagesRewound)]
    assert rewound.key in {one.key for one in before if isinstance(one, f.MessageSaid) and one.text == "two"}


def test_a_pending_revert_marks_what_stands_behind_it(database: Path) -> None:
    said = [one for one in facts(lines(database, TAKEN_BACK)) if isinstance(one, f.MessageSaid)]
    assert [one.text for one in said if one.mark == f.REWOUND] == ["Make it Porto.", "Day one: Ribeira."]


def test_a_prune_of_an_old_tools_output_keeps_its_words(tmp_path: Path) -> None:
    """The part's row changes long after its message was forgotten."""
    path = tmp_path / "opencode.db"
    o = OpenCode(path)
    s = o.session("ses_1")
    known: dict[str, str] = {}
    old = tool("bash", {"command": "ls"}, "a b", 0)
    message = o.answer(s, o.ask(s, "one"), [old])
    for n in range(40):
        o.answer(s, o.ask(s, f"more {n}"), [text("ok")])
    journal = lines(path, s, known)
    [[part]] = o.db.execute("SELECT id FROM part WHERE message_id=? AND data LIKE '%\"tool\"%'", (message,))
    o.now += 1
    old["state"]["time"]["compacted"] = o.now
    o.part(s, message, old, part)
    changed = lines(path, s, known)
    o.close()
    assert len([line for line in changed if b'"table":"part"' in line]) == 1
    assert crude.fold(facts(journal + changed)) == crude.fold(facts(journal))


def test_newer_rows_that_hold_a_message_each_are_read(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    o = OpenCode(path)
    s = o.session("ses_1")
    done = {"status": "completed", "input": {"command": "ls"}, "content": [{"type": "text", "text": "a b"}]}
    content = [
        {"type": "reasoning", "id": "r", "text": "Hm."},
        {"type": "tool", "id": "call_1", "name": "bash", "state": done, "time": {"created": 1}},
        {"type": "text", "id": "t", "text": "Two files."},
    ]
    newer: list[tuple[str, dict[str, Any]]] = [
        ("user", {"text": "What is here?"}),
        ("assistant", {"content": content, "finish": "stop", "time": {"created": 1, "completed": 2}}),
        ("compaction", {"reason": "manual", "summary": "Two files are here.", "recent": ""}),
        ("synthetic", {"text": "go on"}),
        ("model-switched", {}),
        ("comet", {}),
    ]
    for n, (kind, data) in enumerate(newer):
        row = (f"msg_{n}", s, kind, n, o.now, o.now, json.dumps(data))
        o.db.execute("INSERT INTO session_message VALUES (?,?,?,?,?,?,?)", row)
    o.close()
    assert not rows.sessions(HOST, "opencode", str(path))[s].empty
    got = crude.fold(facts(lines(path, s), rest=True))
    assert got["turns"] == [{"prompt": "What is here?", "state": "completed"}]
    assert got["roles"] == {"user": 2, "assistant": 2, "tool": 1, "reasoning": 1, "summary": 1, "system": 0}
    assert got["compactions"] == [{"state": "completed", "reason": "manual", "sources": ["transcript"]}]
    assert got["unknown"] == {"session_message/comet": 1}


def test_a_session_without_messages_is_listed_as_empty(database: Path) -> None:
    """K6."""
    assert [key for key, one in rows.sessions(HOST, "opencode", str(database)).items() if one.empty] == [EMPTY]


@pytest.mark.parametrize("events", [True, False])
def test_a_fingerprint_changes_with_every_part_also_where_no_events_are_kept(tmp_path: Path, events: bool) -> None:
    path = tmp_path / "opencode.db"
    o = OpenCode(path)
    first, second = o.session("ses_1"), o.session("ses_2")
    message = o.message(first, {"role": "assistant"})
    part = o.part(first, message, text("On"))
    if not events:
        o.db.execute("DELETE FROM event; DELETE FROM event_sequence")
    before = rows.sessions(HOST, "opencode", str(path))
    o.now += 1
    o.part(first, message, text("On it."), part)
    if not events:
        o.db.execute("DELETE FROM event; DELETE FROM event_sequence")
    after = rows.sessions(HOST, "opencode", str(path))
    o.close()
    assert after[first].mark != before[first].mark
    assert after[second] == before[second]


def test_tables_that_are_not_a_sessions_are_never_read(database: Path) -> None:
    """Accounts and tokens of the agent stay its own."""
    o = OpenCode(database)
    o.db.execute("INSERT INTO account VALUES ('a', 'dev', 'u', 'token-1234', 'token-5678', 0, 0, 0)")
    o.close()
    assert b"token-1234" not in b"".join(lines(database, SHOP))


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"data": "{"},
        {"data": "[]", "id": 3},
        {"data": '{"role":"assistant","summary":true,"error":5,"time":9}', "id": "m"},
        {"data": '{"type":"tool","state":{"metadata":{"exit":"x"},"status":"error"}}', "message_id": 4},
        {"data": '{"type":"text","text":{"a":1}}', "message_id": "m"},
        {"data": '{"type":"user","content":[1,{"type":"tool"}]}', "type": "assistant"},
    ],
)
@pytest.mark.parametrize("name", ["session", "message", "part", "session_message", "event", "comets"])
def test_no_row_makes_the_reader_raise(row: dict[str, Any], name: str) -> None:
    reader = Reader({})
    for _ in range(2):
        list(reader.read(f.Record("row", row, "", name)))
    list(reader.read(f.Record("row", None, "x", name)))


def test_databases_are_found_for_every_channel_and_where_the_environment_says(database: Path, tmp_path: Path) -> None:
    beta = database.with_name("opencode-beta.db")
    beta.write_bytes(database.read_bytes())
    database.with_name("opencode.db-wal").touch()
    [place] = discovery.homes(str(tmp_path), {})
    assert [one.path for one in discovery.discover(HOST, place)] == [str(beta), str(database)]
    moved = discovery.homes("/home/dev", {"XDG_DATA_HOME": "/x", "OPENCODE_DB": "own.db"})
    assert moved == ["/x/opencode/own.db", "/x/opencode", "/home/dev/.local/share/opencode"]
    assert discovery.homes("/home/dev", {"OPENCODE_DB": ":memory:"}) == ["/home/dev/.local/share/opencode"]
    assert [one.path for one in discovery.discover(HOST, str(beta))] == [str(beta)]
    assert list(discovery.discover(HOST, str(tmp_path / "nowhere"))) == []
    assert discovery.claims("/x/opencode-dev.db") is not None
    assert discovery.claims("/x/openers.db") is None


def forked(o: OpenCode, parent: str, key: str) -> str:
    """As `opencode run --fork` does it: new ids, old times of messages, new times of parts, and no word of the parent."""
    fork = o.session(key, "Slow checkout page (fork #1)")
    renamed: dict[str, str] = {}
    for old, created, data in list(
        o.db.execute("SELECT id, time_created, data FROM message WHERE session_id = ? ORDER BY time_created", (parent,))
    ):
        said = json.loads(data)
        said |= {"parentID": renamed[said["parentID"]]} if said.get("parentID") in renamed else {}
        renamed[old] = o._id("msg")
        o.db.execute("INSERT INTO message VALUES (?,?,?,?,?)", (renamed[old], fork, created, o.now, json.dumps(said)))
        for (part,) in list(o.db.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (old,))):
            o.part(fork, renamed[old], json.loads(part))
    return fork


def test_a_fork_is_known_by_the_times_of_its_copies_and_they_count_once(database: Path, tmp_path: Path) -> None:
    """S28: as seen with 1.18."""
    from dreamkeep import Keep

    o = OpenCode(database)
    o.now += 86_400_000
    fork = forked(o, SHOP, "ses_fork")
    o.answer(fork, o.ask(fork, "And now?"), [text("Now it is a fork.")])
    o.close()
    with Keep.open(tmp_path / "k") as keep:
        list(keep.ingest(home=tmp_path))
        found = keep.show("ses_fork")
        assert found["session"]["lineage"] == [{"kind": "fork", "session": f"opencode:{SHOP}"}]
        assert [turn["prompt"] for turn in found["turns"]] == ["And now?"] and found["compactions"] == []
        assert [m["text"] for m in found["messages"] if not m.get("mark")] == ["And now?", "Now it is a fork."]
        assert {m["mark"] for m in found["messages"] if m.get("mark")} == {f.COPIED}
        assert keep.show(SHOP)["session"]["lineage"] == []


def test_a_session_that_was_imported_with_old_times_is_no_fork(tmp_path: Path) -> None:
    o = OpenCode(tmp_path / "opencode.db")
    s = o.session("ses_1")
    o.answer(s, o.ask(s, "one"), [text("1")])
    o.update(s, time_created=o.now + 10_000)
    o.close()
    said = [one for one in facts(lines(tmp_path / "opencode.db", s)) if isinstance(one, f.MessageSaid)]
    assert [(one.text, one.mark) for one in said] == [("one", ""), ("1", "")]
