"""Sessions that are still in their database: lost and blanked rows are reported, rows that the agent itself removed are not."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.agents.shared.database import Base
from dreamkeep.errors import DreamkeepError
from dreamkeep.recovery.audit import rows as audit_rows
from dreamkeep.recovery.faults import Fault
from tests.agents import goose, hermes, opencode
from tests.helpers.file_trees import tree
from tests.helpers.hosts import Watching
from tests.helpers.transcript_damage import audit, classes, ingest

S = "20261101_080030_a1b2c3"
FILES = {
    "hermes": ".hermes/state.db",
    "goose": ".local/share/goose/sessions/sessions.db",
    "opencode": ".local/share/opencode/opencode.db",
}
MAKERS: dict[str, Callable[[Path], Any]] = {"hermes": hermes.Hermes, "goose": goose.Goose, "opencode": opencode.OpenCode}
LONG = "The cart query runs once per item, and so the checkout page is slow: make it one join. " * 3


_STARTS = count(1)


def db_of(home: Path, agent: str) -> Any:
    return MAKERS[agent](home / FILES[agent])


def again(home: Path, agent: str) -> Any:
    """The agent, started once more."""
    db = db_of(home, agent)
    db.now += next(_STARTS) * (100_000_000 if agent == "opencode" else 100_000)
    if agent == "hermes":
        db.resume(S)
    elif agent == "goose":
        db.made = next(_STARTS) * 100
        db.talk[S] = [
            {"id": key, "role": role, "content": json.loads(content), "created": at, "seen": goose.BOTH}
            for key, role, content, at in db.db.execute(
                "SELECT message_id, role, content_json, created_timestamp FROM messages WHERE session_id=? ORDER BY id", (S,)
            )
        ]
    return db


def answered(db: Any, agent: str, prompt: str, words: str) -> None:
    if agent == "opencode":
        db.answer(S, db.ask(S, prompt), [opencode.text(words)])
    else:
        db.ask(S, prompt)
        db.answer(S, words)


@pytest.fixture(params=sorted(FILES))
def agent(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(tmp_path: Path, agent: str) -> Path:
    """Three turns, and another session beside them."""
    home = tmp_path / "home"
    db = db_of(home, agent)
    for key in (S, "other"):
        db.session(key)
    for n in range(3):
        answered(db, agent, f"Prompt {n}?", f"Answer {n}. {LONG}")
    if agent == "opencode":
        db.answer("other", db.ask("other", "Another?"), [opencode.text("Yes.")])
    else:
        db.ask("other", "Another?")
        db.answer("other", "Yes.")
    db.close()
    return home


def do(home: Path, agent: str, sql: str, *values: Any) -> None:
    db = apsw.Connection(str(home / FILES[agent]))
    db.execute("PRAGMA foreign_keys=ON")
    db.execute(sql, values)
    db.close()


WORDS = {"hermes": ("messages", "content"), "goose": ("messages", "content_json"), "opencode": ("part", "data")}


def where_it_says(agent: str, words: str) -> str:
    table, column = WORDS[agent]
    return f"FROM {table} WHERE instr({column}, '{words}')"


def deleted(home: Path, agent: str) -> None:
    do(home, agent, f"DELETE {where_it_says(agent, 'Answer 1.')}")


def emptied(home: Path, agent: str) -> None:
    table, column = WORDS[agent]
    blank = {"hermes": "", "goose": "[]", "opencode": json.dumps(opencode.text(""))}[agent]
    do(home, agent, f"UPDATE {table} SET {column} = ? WHERE instr({column}, 'Answer 1.')", blank)


def zeroed(home: Path, agent: str) -> None:
    """NULs of the same length: no fingerprint shows them."""
    table, column = WORDS[agent]
    blank = f"CAST(zeroblob(octet_length({column})) AS TEXT)"
    do(home, agent, f"UPDATE {table} SET {column} = {blank} WHERE instr({column}, 'Answer 1.')")


def all_gone(home: Path, agent: str) -> None:
    do(home, agent, f"DELETE FROM {'message' if agent == 'opencode' else 'messages'} WHERE session_id = ?", S)


def tail_gone(home: Path, agent: str) -> None:
    do(home, agent, f"DELETE {where_it_says(agent, 'Answer 2.')}")


def reworded(home: Path, agent: str) -> None:
    do(home, agent, "UPDATE messages SET content = 'Something else.' WHERE instr(content, 'Answer 1.')")


ACCIDENTS = [deleted, emptied, zeroed, all_gone, tail_gone]


@pytest.mark.parametrize("act", ACCIDENTS)
def test_a_row_that_is_gone_or_blanked_is_reported_with_the_same_id_before_and_after_an_ingest_saw_it(
    tmp_path: Path, root: str, home: Path, agent: str, act: Callable[[Path, str], None]
) -> None:
    ingest(root, home)
    assert audit(root, home) == audit(root, home, deep=True) == []
    act(home, agent)
    before = tree(root, home)
    [found] = audit(root, home)
    assert tree(root, home) == before, "nothing is written, neither here nor there"
    assert (found.cls, found.session) == ("source_shrank", f"{agent}:{S}")
    assert found.where == f"{home}/{FILES[agent]}#{S}"
    assert [one.id for one in audit(root, home, deep=True)] == [found.id]
    ingest(root, home)
    assert [one.id for one in audit(root, home)] == [one.id for one in audit(root, home, deep=True)] == [found.id]
    ingest(root, home)
    with Keep.open(root) as keep:
        said = [one["text"] for one in keep.show(f"{agent}:{S}")["messages"]]
        assert [one for one in said if one.startswith("Answer")] == [f"Answer {n}. {LONG}" for n in range(3)], "captured is safe"


@pytest.mark.parametrize("seen", [False, True])
def test_a_loss_stays_reported_when_the_session_continues(tmp_path: Path, root: str, home: Path, agent: str, seen: bool) -> None:
    ingest(root, home)
    deleted(home, agent)
    [found] = audit(root, home)
    if seen:
        ingest(root, home)
    db = again(home, agent)
    answered(db, agent, "Prompt 3?", "Answer 3.")
    db.close()
    assert [one.id for one in audit(root, home)] == [found.id]
    ingest(root, home)
    assert [one.id for one in audit(root, home)] == [found.id]


def test_a_loss_is_reported_again_after_captures_memory_was_lost(tmp_path: Path, root: str, home: Path, agent: str) -> None:
    ingest(root, home)
    deleted(home, agent)
    ingest(root, home)
    [found] = audit(root, home)
    os.unlink(f"{root}/state/sources.json")
    ingest(root, home)
    assert [one.id for one in audit(root, home)] == [found.id]


def without_its_database(home: Path, agent: str) -> None:
    for path in (home / FILES[agent]).parent.glob("*.db*"):
        path.unlink()


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("act", [deleted, emptied, zeroed, all_gone, without_its_database])
def test_a_databases_loss_is_reported_also_if_capture_does_not_remember_it(
    tmp_path: Path, root: str, home: Path, agent: str, act: Callable[[Path, str], None], deep: bool
) -> None:
    """The memory is a cache: it may be deleted, and a keep that a snapshot brought has none before the first ingest."""
    ingest(root, home)
    with Keep.open(root) as keep:
        keep.export(str(tmp_path / "keep.tar.zst"))
    imported = str(tmp_path / "imported")
    with Keep.open(imported) as keep:
        keep.import_(str(tmp_path / "keep.tar.zst"))
    assert audit(imported, home, deep=deep) == []
    act(home, agent)
    told = {(one.id, one.session, one.what) for one in audit(root, home, deep=deep)}
    assert told
    assert {(one.id, one.session, one.what) for one in audit(imported, home, deep=deep)} == told
    os.unlink(f"{root}/state/sources.json")
    assert {(one.id, one.session, one.what) for one in audit(root, home, deep=deep)} == told


def test_a_row_that_came_back_or_was_accepted_is_no_longer_reported(tmp_path: Path, root: str, home: Path, agent: str) -> None:
    ingest(root, home)
    copy = (home / FILES[agent]).read_bytes()
    deleted(home, agent)
    ingest(root, home)
    [found] = audit(root, home)
    with Keep.open(root) as keep:
        keep.repair(accept=[found.id], home=home)
        assert not [one for one in keep.audit(home=home)["faults"] if one["class"].startswith("source_")]
    (home / FILES[agent]).write_bytes(copy)
    assert audit(root, home) == audit(root, home, deep=True) == []
    ingest(root, home)
    assert audit(root, home) == audit(root, home, deep=True) == []


# -- what an agent does itself


def _replaced(db: hermes.Hermes, keep: int | None, *, active_only: bool = False) -> None:
    """As Hermes' `replace_messages` does it: what is kept is inserted again, and counted."""
    db.resume(S)
    kept = db.context[S][:keep]
    with db.db:
        db.db.execute(f"DELETE FROM messages WHERE session_id=? {'AND active=1' if active_only else ''}", (S,))
        for message in kept:
            db._insert(S, message, db.now)
        db.update(S, message_count=len(kept))
    db.context[S] = kept


def _hermes_retried(db: hermes.Hermes) -> None:
    _replaced(db, -2)
    answered(db, "hermes", "Prompt 2?", "Another answer.")


def _hermes_undone(db: hermes.Hermes) -> None:
    _replaced(db, -2)


def _hermes_cleared(db: hermes.Hermes) -> None:
    _replaced(db, 0)


def _hermes_saved_whole(db: hermes.Hermes) -> None:
    _replaced(db, None)


def _hermes_live_replaced(db: hermes.Hermes) -> None:
    db.compact(S, "A join.", head=1, tail=2)
    answered(db, "hermes", "More?", "More.")
    _replaced(db, -2, active_only=True)


def _hermes_rewound(db: hermes.Hermes) -> None:
    db.rewind(S, 2)
    answered(db, "hermes", "Otherwise?", "Otherwise.")


def _hermes_compacted(db: hermes.Hermes) -> None:
    db.compact(S, "A join.", head=1, tail=2, newer=True)
    db.answer(S, "Done.")


def _hermes_split(db: hermes.Hermes) -> None:
    child = f"child-{next(_STARTS)}"
    db.split(S, child, "A join.", head=1, tail=2)
    db.answer(child, "Done.")


def _goose_compacted(db: goose.Goose) -> None:
    db.compact(S, "A join.")
    db.answer(S, "Done.")


def _goose_compacted_by_hand(db: goose.Goose) -> None:
    db.compact(S, "A join.", manual=True)


def _goose_edited(db: goose.Goose) -> None:
    """Everything from a prompt on goes, and another one is sent."""
    db.db.execute("DELETE FROM messages WHERE session_id=? AND id >= 3", (S,))
    answered(db, "goose", "Prompt 1, otherwise?", "Otherwise.")


def _goose_edited_the_first(db: goose.Goose) -> None:
    db.db.execute("DELETE FROM messages WHERE session_id=?", (S,))
    answered(db, "goose", "Prompt 0, otherwise?", "Otherwise.")


def _goose_cleared(db: goose.Goose) -> None:
    db.db.execute("DELETE FROM messages WHERE session_id=?", (S,))
    db.db.execute("UPDATE sessions SET total_tokens=0, input_tokens=0, output_tokens=0 WHERE id=?", (S,))


def _goose_noted(db: goose.Goose) -> None:
    """A client adds to a tool's request what it knows of it."""
    db.call(S, "call_9", "shell", {"command": "ls"}, "cart.py")
    asked = "SELECT id, content_json FROM messages WHERE instr(content_json, 'toolRequest') ORDER BY id DESC LIMIT 1"
    [[key, content]] = db.db.execute(asked)
    blocks = json.loads(content)
    blocks[0]["_meta"] = {"title": "a list"}
    db.db.execute("UPDATE messages SET content_json=? WHERE id=?", (json.dumps(blocks), key))


def _reverted(db: opencode.OpenCode) -> str:
    [[key]] = db.db.execute("SELECT id FROM message WHERE session_id=? ORDER BY id LIMIT 1 OFFSET 4", (S,))
    db.update(S, revert=json.dumps({"messageID": key}))
    return str(key)


def _cleaned_up(db: opencode.OpenCode, first: str, *, events: bool) -> None:
    """What was reverted goes when the next prompt comes."""
    for (key,) in list(db.db.execute("SELECT id FROM message WHERE session_id=? AND id >= ? ORDER BY id", (S, first))):
        db.db.execute("DELETE FROM part WHERE message_id=?", (key,))
        db.db.execute("DELETE FROM message WHERE id=?", (key,))
        if events:
            db._event(S, "message.removed.1", {"sessionID": S, "messageID": key})
    db.update(S, revert=None)


def _opencode_reverted(db: opencode.OpenCode) -> None:
    _cleaned_up(db, _reverted(db), events=True)


def _opencode_went_on(db: opencode.OpenCode) -> None:
    _cleaned_up(db, _reverted(db), events=True)
    answered(db, "opencode", "Otherwise?", "Otherwise.")


def _opencode_part_removed(db: opencode.OpenCode) -> None:
    [[key, message]] = db.db.execute("SELECT id, message_id FROM part WHERE instr(data, 'Answer ') LIMIT 1")
    db.db.execute("DELETE FROM part WHERE id=?", (key,))
    db._event(S, "message.part.removed.1", {"sessionID": S, "messageID": message, "partID": key})


def _opencode_written_again(db: opencode.OpenCode) -> None:
    [[key, message]] = db.db.execute("SELECT id, message_id FROM part WHERE instr(data, 'Answer ') LIMIT 1")
    db.part(S, message, opencode.text("Other words."), key)


def _opencode_pruned(db: opencode.OpenCode) -> None:
    tool = opencode.tool("bash", {"command": "ls"}, "cart.py", 0)
    message = db.answer(S, db.ask(S, "List."), [tool])
    tool["state"] |= {"output": "", "time": {"start": 1, "compacted": 2}}
    [[key]] = db.db.execute("SELECT id FROM part WHERE message_id=? AND instr(data, 'cart.py')", (message,))
    db.part(S, message, tool, key)


MEANT: dict[str, list[Callable[[Any], None]]] = {
    "hermes": [
        *(_hermes_retried, _hermes_undone, _hermes_cleared, _hermes_saved_whole, _hermes_live_replaced, _hermes_rewound),
        *(_hermes_compacted, _hermes_split),
    ],
    "goose": [
        *(_goose_compacted, _goose_compacted_by_hand, _goose_edited, _goose_edited_the_first, _goose_cleared, _goose_noted),
    ],
    "opencode": [
        *(_opencode_reverted, _opencode_went_on, _opencode_part_removed, _opencode_written_again, _opencode_pruned),
    ],
}
EACH: list[Any] = [pytest.param(agent, act, id=act.__name__[1:]) for agent, acts in MEANT.items() for act in acts]


@pytest.mark.parametrize("agent, act", EACH)
def test_what_an_agent_takes_away_or_writes_again_itself_is_not_a_fault_and_a_row_that_is_lost_then_is(
    tmp_path: Path, root: str, home: Path, agent: str, act: Callable[[Any], None]
) -> None:
    ingest(root, home)
    for _ in range(2):
        db = again(home, agent)
        act(db)
        db.close()
        assert audit(root, home) == audit(root, home, deep=True) == []
        ingest(root, home)
        assert audit(root, home) == audit(root, home, deep=True) == []
        db = again(home, agent)
        for n in range(2):
            answered(db, agent, f"And {n}?", f"So {n}, after {act.__name__}.")
        db.close()
        assert audit(root, home) == audit(root, home, deep=True) == []
        ingest(root, home)
        assert audit(root, home) == audit(root, home, deep=True) == []
    do(home, agent, f"DELETE FROM {WORDS[agent][0]} WHERE instr({WORDS[agent][1]}, 'So 0, after')")
    [found] = audit(root, home)
    assert found.about["gone"] in (1, 2), "not what was meant before"
    ingest(root, home)
    assert [one.id for one in audit(root, home)] == [one.id for one in audit(root, home, deep=True)] == [found.id]


# -- what is advised, and the corners


@pytest.mark.parametrize("agent", ["hermes"])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("act", [*ACCIDENTS, reworded])
def test_the_advice_for_lost_rows_works(
    tmp_path: Path, root: str, home: Path, agent: str, act: Callable[[Path, str], None], seen: bool
) -> None:
    ingest(root, home)
    act(home, agent)
    if seen:
        ingest(root, home)
    [found] = audit(root, home)
    elsewhere = "--home DIR" in found.next
    assert elsewhere == (act in (emptied, zeroed, reworded))
    with Keep.open(root) as keep:
        if elsewhere:
            with pytest.raises(DreamkeepError):
                keep.restore(found.session, to=agent, home=home)
        to = tmp_path / "elsewhere" if elsewhere else home
        keep.restore(found.session, to=agent, home=to)
    db = apsw.Connection(str(to / FILES[agent]))
    said = [words for (words,) in db.execute("SELECT content FROM messages WHERE session_id=? ORDER BY id", (S,))]
    assert said == [words for n in range(3) for words in (f"Prompt {n}?", f"Answer {n}. {LONG}")]
    db.close()
    if not elsewhere:
        assert audit(root, home) == audit(root, home, deep=True) == []
        ingest(root, home)
        assert audit(root, home) == audit(root, home, deep=True) == []


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("agent", ["hermes", "goose"])
def test_changed_words_in_a_row_that_its_agent_never_edits_are_reported_as_changed(
    tmp_path: Path, root: str, home: Path, agent: str, deep: bool, beside: bool
) -> None:
    """`beside`: another session goes on meanwhile, so the ingest has something to do and does not look for what is odd."""
    ingest(root, home)
    table, column = WORDS[agent]
    do(home, agent, f"UPDATE {table} SET {column} = replace({column}, 'one join', 'two joins')")
    if beside:
        title = {"hermes": "title", "goose": "description"}[agent]
        do(home, agent, f"UPDATE sessions SET {title} = 'Renamed' WHERE id = 'other'")
    for _ in range(2):
        found = audit(root, home, deep=deep)
        assert {(one.cls, one.about["gone"]) for one in found} == {("source_changed", 3)}
        ingest(root, home)


@pytest.mark.parametrize("agent", ["hermes", "goose"])
@pytest.mark.parametrize("seen", [False, True])
def test_an_older_copy_of_the_database_that_goes_on_is_missing_what_came_since(
    tmp_path: Path, root: str, home: Path, agent: str, seen: bool
) -> None:
    """Numbers are given anew, to other words."""
    copy = (home / FILES[agent]).read_bytes()
    db = again(home, agent)
    answered(db, agent, "Prompt 3?", "Answer 3.")
    answered(db, agent, "Prompt 4?", "Answer 4.")
    db.close()
    ingest(root, home)
    (home / FILES[agent]).write_bytes(copy)
    [found] = audit(root, home)
    assert (found.cls, found.about["gone"]) == ("source_shrank", 4)
    if seen:
        ingest(root, home)
    db = again(home, agent)
    answered(db, agent, "Something else?", "Yes.")
    db.close()
    for _ in range(2):
        told = audit(root, home)
        assert sum(one.about["gone"] for one in told) == 4
        ingest(root, home)


@pytest.mark.parametrize("agent", ["opencode"])
@pytest.mark.parametrize("meant", [False, True])
def test_in_an_opencode_without_events_what_was_reverted_is_the_end_of_what_was_there(
    tmp_path: Path, root: str, home: Path, agent: str, meant: bool
) -> None:
    do(home, agent, "DELETE FROM event; DELETE FROM event_sequence")
    db = again(home, agent)
    db._event = lambda *about: None
    ingest(root, home)
    if meant:
        _cleaned_up(db, _reverted(db), events=False)
    else:
        do(home, agent, "DELETE FROM message WHERE id = (SELECT id FROM message ORDER BY id LIMIT 1)")
    answered(db, agent, "Otherwise?", "Otherwise.")
    db.close()
    for _ in range(2):
        assert classes(audit(root, home)) == classes(audit(root, home, deep=True)) == ([] if meant else ["source_shrank"])
        ingest(root, home)


@pytest.mark.parametrize("seen", [False, True])
def test_what_was_captured_with_its_secrets_masked_is_compared_all_the_same(
    tmp_path: Path, root: str, home: Path, agent: str, seen: bool
) -> None:
    db = again(home, agent)
    answered(db, agent, "The key is sk-live-4242424242abcdefghij, use it.", "I use sk-live-4242424242abcdefghij.")
    db.close()
    os.makedirs(root, exist_ok=True)
    Path(root, "keep.toml").write_text("[capture]\nredact_raw = true\n")
    ingest(root, home)
    assert audit(root, home) == audit(root, home, deep=True) == []
    if agent != "opencode":
        db = again(home, agent)
        _replaced(db, None) if agent == "hermes" else db.compact(S, "A summary.")
        db.close()
    if seen:
        ingest(root, home)
    assert audit(root, home) == audit(root, home, deep=True) == []
    deleted(home, agent)
    assert classes(audit(root, home)) == ["source_shrank"]


@pytest.mark.parametrize("agent", ["hermes"])
def test_a_row_of_an_older_hermes_without_flags_and_counts_is_missed_too(
    tmp_path: Path, root: str, home: Path, agent: str
) -> None:
    do(home, agent, "DROP INDEX idx_messages_session_active; ALTER TABLE messages DROP COLUMN active")
    do(home, agent, "ALTER TABLE messages DROP COLUMN compacted; ALTER TABLE sessions DROP COLUMN message_count")
    ingest(root, home)
    deleted(home, agent)
    assert classes(audit(root, home)) == ["source_shrank"]


def test_a_clean_audit_opens_no_journal_of_a_session_in_a_database_and_one_that_grew_only_its_own(
    tmp_path: Path, root: str, home: Path, agent: str
) -> None:
    ingest(root, home)
    host = Watching()
    assert audit(root, home, host=host) == []
    assert set(host.opened) == {f"{root}/state/sources.json"}
    db = again(home, agent)
    answered(db, agent, "Prompt 3?", "Answer 3.")
    db.close()
    assert audit(root, home, host=host) == []
    opened = {path for path in host.opened if "/journal/" in path}
    assert opened
    assert all(f"/{S}" in path for path in opened)


def test_a_session_that_lost_rows_hides_no_other(tmp_path: Path, root: str, home: Path, agent: str) -> None:
    db = again(home, agent)
    for n in range(100):
        db.session(f"many-{n}")
        if agent == "opencode":
            db.answer(f"many-{n}", db.ask(f"many-{n}", "Go."), [opencode.text(f"Gone {n}.")])
        else:
            db.ask(f"many-{n}", "Go.")
            db.answer(f"many-{n}", f"Gone {n}.")
    db.close()
    ingest(root, home)
    for n in range(0, 100, 10):
        do(home, agent, f"DELETE {where_it_says(agent, f'Gone {n}.')}")
    for _ in range(2):
        assert {one.session for one in audit(root, home)} == {f"{agent}:many-{n}" for n in range(0, 100, 10)}
        ingest(root, home)


# -- what a version before has captured


def _unnoted(base: Base, session: str, known: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    """As Goose was captured before: no note of what is gone."""
    yield "sessions", session
    for (row,) in base.ask("SELECT id FROM messages WHERE session_id = ? ORDER BY +id", session):
        yield "messages", row


GOOSE = [act for act in MEANT["goose"] if act is not _goose_cleared]


@pytest.mark.parametrize("agent", ["goose"])
@pytest.mark.parametrize("first", GOOSE)
@pytest.mark.parametrize("then", GOOSE)
def test_what_goose_took_away_when_that_was_not_noted_yet_is_not_a_fault_and_a_row_that_is_lost_then_is(
    tmp_path: Path,
    root: str,
    home: Path,
    agent: str,
    first: Callable[[Any], None],
    then: Callable[[Any], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as before:
        before.setattr("dreamkeep.agents.goose.discovery.places", _unnoted)
        ingest(root, home)
        for act in (first, then):
            db = again(home, agent)
            act(db)
            db.close()
            ingest(root, home)
    for n in range(3):
        assert audit(root, home) == audit(root, home, deep=True) == []
        ingest(root, home)
        db = again(home, agent)
        answered(db, agent, f"And {n}?", f"So {n}.")
        db.close()
    ingest(root, home)
    do(home, agent, f"DELETE {where_it_says(agent, 'So 0.')}")
    [found] = audit(root, home)
    assert found.about["gone"] == 1


@pytest.mark.parametrize("agent", ["goose"])
def test_a_row_lost_before_removals_were_noted_is_reported(
    tmp_path: Path, root: str, home: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("dreamkeep.agents.goose.discovery.places", _unnoted)
        ingest(root, home)
        deleted(home, agent)
        db = again(home, agent)
        answered(db, agent, "And?", "So.")
        db.close()
        ingest(root, home)
    [found] = audit(root, home, deep=True)
    assert found.about["gone"] == 1


@pytest.mark.parametrize("agent", ["hermes", "goose"])
@pytest.mark.parametrize("meant", [False, True])
def test_a_session_without_messages_that_nobody_remembered_is_asked_for_before_it_is_missed(
    tmp_path: Path, root: str, home: Path, agent: str, meant: bool
) -> None:
    ingest(root, home)
    db = again(home, agent)
    if meant:
        _hermes_cleared(db) if agent == "hermes" else _goose_cleared(db)
    else:
        db.db.execute("DELETE FROM messages WHERE session_id=?", (S,))
    db.close()
    ingest(root, home)
    seen = Path(root, "state/sources.json")
    told = seen.read_text()
    seen.write_text(re.sub(rf'"{S}":"[^"]*",?', "", told).replace(",}", "}"))
    assert seen.read_text() != told
    assert classes(audit(root, home)) == classes(audit(root, home, deep=True)) == ([] if meant else ["source_shrank"])
    do(home, agent, "DELETE FROM sessions WHERE id = ?", S)
    assert classes(audit(root, home)) == ["source_vanished"]


def told_at(home: Path, agent: str) -> set[tuple[Any, ...]]:
    db = apsw.Connection(str(home / FILES[agent]))
    found = set(db.execute("SELECT content, timestamp FROM messages WHERE session_id=?", (S,)))
    db.close()
    return found


@pytest.mark.parametrize("agent", ["hermes"])
def test_a_restored_row_has_no_words_of_another_message_that_once_had_its_number(
    tmp_path: Path, root: str, home: Path, agent: str
) -> None:
    """An older copy of the database that goes on gives numbers twice."""
    older = (home / FILES[agent]).read_bytes()
    db = again(home, agent)
    answered(db, agent, "Which port?", "Port 8080.")
    db.close()
    ingest(root, home)
    told = told_at(home, agent)
    without_its_database(home, agent)
    (home / FILES[agent]).write_bytes(older)
    db = again(home, agent)
    answered(db, agent, "Which host?", "The second.")
    db.close()
    ingest(root, home)
    told |= told_at(home, agent)
    with Keep.open(root) as keep:
        keep.restore(f"hermes:{S}", to=agent, home=tmp_path / "elsewhere")
    assert told_at(tmp_path / "elsewhere", agent) <= told


#: What may happen to a database, by chance: SQL for a table, a column and a row of it.
_ACCIDENTS = (
    "DELETE FROM {table} WHERE rowid = {row}",
    "UPDATE {table} SET {column} = '' WHERE rowid = {row}",
    "UPDATE {table} SET {column} = NULL WHERE rowid = {row}",
    "UPDATE {table} SET {column} = substr({column}, 1, length({column}) / 2) WHERE rowid = {row}",
    "UPDATE {table} SET {column} = replace({column}, 'e', 'x') WHERE rowid = {row}",
    "UPDATE {table} SET {column} = {column} || ' more' WHERE rowid = {row}",
    "UPDATE {table} SET {column} = CAST({column} AS BLOB) WHERE rowid = {row}",
    "UPDATE {table} SET {column} = CAST(x'ff41' AS TEXT) WHERE rowid = {row}",
    "UPDATE {table} SET {column} = 1 WHERE rowid = {row}",
    "UPDATE {table} SET {column} = 1.0 WHERE rowid = {row}",
)


def _accident(chance: random.Random, path: Path) -> None:
    db = apsw.Connection(str(path))
    tables = ("messages", "sessions", "message", "part", "session", "event")
    table = chance.choice([name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'") if name in tables])
    columns = [name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,)) if name != "id"]
    words = [name for name in columns if name in ("content", "content_json", "data")]
    column = chance.choice(words if words and chance.random() < 0.7 else columns)
    rows = [row for (row,) in db.execute(f"SELECT rowid FROM {table}")]
    try:
        db.execute("PRAGMA foreign_keys = 0")
        db.execute(chance.choice(_ACCIDENTS).format(table=table, column=f'"{column}"', row=chance.choice(rows or [0])))
    except apsw.ConstraintError:
        pass  # the database refuses it
    finally:
        db.close()


def _sorted(found: list[Fault]) -> list[Fault]:
    return sorted(found, key=lambda one: (one.cls, one.where, one.id))


@pytest.mark.parametrize("seed", range(3))
def test_comparing_rows_at_once_tells_what_judging_each_session_tells(
    root: str, home: Path, agent: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(f"{agent} {seed}")
    told: set[str] = set()
    for _ in range(12):
        ingest(root, home)
        for _ in range(chance.randint(0, 2)):
            _accident(chance, home / FILES[agent])
        quick = _sorted(audit(root, home, deep=True))
        with monkeypatch.context() as patch:
            patch.setattr(audit_rows, "_changed", lambda host, path, group: list(group))
            patch.setattr(audit_rows, "_captured", lambda *given: None)
            assert _sorted(audit(root, home, deep=True)) == quick
        told.update(classes(quick))
    assert told, "some of it is told"


def test_a_column_that_an_agent_adds_needs_no_closer_look(
    root: str, home: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(root, home)
    db = apsw.Connection(str(home / FILES[agent]))
    db.execute(f"ALTER TABLE {'part' if agent == 'opencode' else 'messages'} ADD COLUMN added TEXT DEFAULT 'x'")
    db.close()
    monkeypatch.setattr(audit_rows, "loss", lambda *given: pytest.fail("a session was judged by itself"))
    assert audit(root, home, deep=True) == []
