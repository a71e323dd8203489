"""The audit of captured transcripts: each damage is reported as its own class, before and after an ingest saw it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.capture.sources import source_bytes
from dreamkeep.errors import DreamkeepError, Failed
from dreamkeep.recovery.audit.compare_source import without_blanks
from tests.agents import gemini, hermes
from tests.helpers.claude_home import home_with, record
from tests.helpers.file_trees import tree
from tests.helpers.hosts import Watching
from tests.helpers.transcript_damage import (
    LINES,
    SID,
    TRANSCRIPT_DAMAGE,
    audit,
    blank_a_third,
    blank_and_append,
    classes,
    cut_lines,
    edit_in_place,
    ingest,
    make_old,
)

EACH = [(cls, act) for cls, acts in TRANSCRIPT_DAMAGE.items() for act in acts]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize(("cls", "act"), EACH, ids=[f"{cls}-{act.__name__}" for cls, act in EACH])
def test_each_damage_to_a_transcript_is_reported_as_its_own_class_before_and_after_an_ingest(
    tmp_path: Path, root: str, cls: str, act: Callable[[Path], None], seen: bool, deep: bool
) -> None:
    """W2 W4 B3 T11: a shrink leaves a trace; the same count with other bytes is a fault; unreadable is a fault."""
    home, file = home_with(tmp_path, LINES)
    ingest(root, home)
    make_old(file)
    ingest(root, home)
    assert audit(root, home, deep=deep) == []
    act(file)
    make_old(file)
    if seen:
        with Keep.open(root) as keep:
            list(keep.ingest(home=home))
            list(keep.ingest(home=home))
    before = tree(root, home)
    [found] = audit(root, home, deep=deep)
    assert (found.cls, found.where, found.session) == (cls, str(file), f"claude:{file.stem}")
    assert found.next
    assert tree(root, home) == before


def _beheaded(file: Path) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[3:]))


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("whole", [LINES, LINES + bytes(40) + b"\n" + record(9)], ids=["plain", "with-older-nuls"])
@pytest.mark.parametrize(
    "act",
    [*TRANSCRIPT_DAMAGE["source_shrank"], *TRANSCRIPT_DAMAGE["source_changed"], _beheaded, blank_a_third, blank_and_append],
    ids=lambda act: act.__name__,
)
def test_the_advice_for_a_transcript_that_lost_lines_works(
    tmp_path: Path, root: str, act: Callable[[Path], None], whole: bytes, seen: bool
) -> None:
    home, file = home_with(tmp_path, whole)
    ingest(root, home)
    act(file)
    left = file.read_bytes()
    if seen:
        ingest(root, home)
    found = next(one for one in audit(root, home) if one.cls != "source_malformed")
    with Keep.open(root) as keep:
        if found.repairable:
            keep.repair(apply=True, home=home)
            assert file.read_bytes().startswith(whole)
            return
        if "--home DIR" not in found.next:
            keep.restore(found.session, "claude", home=home)
            assert file.read_bytes() == whole
            return
        number = re.search(r"--generation (\d+)", found.next)
        wanted = int(number[1]) if number else None
        with pytest.raises(Failed):
            keep.restore(found.session, "claude", home=home, generation=wanted)
        [made] = keep.restore(found.session, "claude", home=tmp_path / "elsewhere", generation=wanted)["files"]
    assert (Path(made["path"]).read_bytes(), file.read_bytes()) == (whole, left)


@pytest.mark.parametrize(
    ("cls", "act"), [("source_changed", edit_in_place), ("source_shrank", _beheaded), ("source_blanked", blank_a_third)]
)
@pytest.mark.parametrize("seen", [False, True])
def test_nuls_that_were_captured_are_not_reported_as_blanked_lines(
    tmp_path: Path, root: str, cls: str, act: Callable[[Path], None], seen: bool
) -> None:
    home, file = home_with(tmp_path, LINES + bytes(40) + b"\n" + record(9))
    ingest(root, home)
    act(file)
    if seen:
        ingest(root, home)
    assert [one.cls for one in audit(root, home) if one.cls != "source_malformed"] == [cls]


@pytest.mark.parametrize("seen", [False, True])
def test_one_of_two_files_of_a_session_that_says_only_inside_whose_it_is_is_missed_when_it_is_emptied(
    tmp_path: Path, root: str, seen: bool
) -> None:
    home = tmp_path / "home"
    gemini.write(home)
    ingest(root, home)
    for file in sorted(home.rglob("chats/session-*-5d0c41f7.jsonl")):
        whole = file.read_bytes()
        file.write_bytes(b"")
        if seen:
            ingest(root, home)
        [found] = [one for one in audit(root, home) if one.where == str(file)]
        assert found.cls == "source_shrank"
        file.write_bytes(whole)
        ingest(root, home)
        assert not [one for one in audit(root, home) if one.where == str(file) and one.cls != "source_malformed"]


def test_a_fault_keeps_its_id_from_before_to_after_an_ingest_and_while_the_file_goes_on(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, LINES)
    ingest(root, home)
    cut_lines(file)
    [first] = audit(root, home)
    ingest(root, home)
    [second] = audit(root, home)
    file.write_bytes(file.read_bytes() + record(20))
    [third] = audit(root, home)
    ingest(root, home)
    [fourth] = audit(root, home)
    assert {one.id for one in (first, second, third, fourth)} == {first.id}
    file.write_bytes(b"".join(LINES.splitlines(keepends=True)[:2]))
    [more] = audit(root, home)
    assert more.id != first.id, "other lines are missing now: what was accepted is not this"


def test_a_transcript_that_grew_moved_or_got_its_lines_back_is_not_a_fault(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, LINES)
    ingest(root, home)
    file.write_bytes(LINES + record(9) + record(10)[:30])
    assert audit(root, home) == audit(root, home, deep=True) == []
    ingest(root, home)
    assert audit(root, home) == [], "a line that is being written is no fault"
    file.write_bytes(LINES + record(9) + record(10))
    assert audit(root, home) == []
    ingest(root, home)
    cut_lines(file)
    ingest(root, home)
    file.write_bytes(LINES + record(9) + record(10))
    assert audit(root, home) == audit(root, home, deep=True) == []
    ingest(root, home)
    assert audit(root, home) == []


def test_a_last_line_without_its_line_feed_is_missed_when_it_goes_and_only_then(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, LINES + record(9).rstrip())
    make_old(file)
    ingest(root, home)
    Path(root, "state/sources.json").unlink()
    assert audit(root, home) == audit(root, home, deep=True) == []
    file.write_bytes(LINES)
    [found] = audit(root, home)
    assert (found.cls, found.about["gone"]) == ("source_shrank", 1)


def test_a_torn_line_that_was_captured_half_and_went_on_glued_is_malformed(tmp_path: Path, root: str) -> None:
    """T5 T11: torn tail + next append."""
    home, file = home_with(tmp_path, LINES + record(9)[:50])
    ingest(root, home)
    file.write_bytes(LINES + record(9)[:50] + record(10))
    ingest(root, home)
    assert classes(audit(root, home)) == ["source_malformed"]


@pytest.mark.parametrize(("bad", "said"), [(b"[1]\n", "1 line is not a record ("), (b"[1]\n[2]\n", "2 lines are not records (")])
def test_malformed_lines_are_counted_in_the_message(tmp_path: Path, root: str, bad: bytes, said: str) -> None:
    home, _ = home_with(tmp_path, LINES + bad + record(9))
    ingest(root, home)
    [found] = audit(root, home)
    assert found.what.startswith(said)


@pytest.mark.parametrize("above", [False, True])
def test_the_advice_for_a_transcript_behind_a_dangling_link_works(tmp_path: Path, root: str, above: bool) -> None:
    """W4: a restore refuses to write through such a link, so the link comes first."""
    home, file = home_with(tmp_path, LINES)
    ingest(root, home)
    link = file.parent if above else file
    shutil.move(link, tmp_path / "elsewhere")
    [plain] = audit(root, home)
    link.symlink_to("/not-mounted/there")
    [found] = audit(root, home)
    assert (found.cls, found.id) == ("source_vanished", plain.id)
    assert "a link to nothing" in found.what and (str(link) in found.what) == above
    assert found.next.startswith("Bring back the link's target, or remove the link")
    assert "`dreamkeep restore claude:" in plain.next and plain.next in found.next
    with Keep.open(root) as keep:
        with pytest.raises(DreamkeepError, match="a link to nothing"):
            keep.restore(found.session, "claude", home=home)
        link.unlink()
        keep.restore(found.session, "claude", home=home)
    assert audit(root, home) == []


def test_an_archived_rollout_has_not_vanished(tmp_path: Path, root: str) -> None:
    native = "0198a1b2-0000-7000-8000-000000000001"
    home = tmp_path / "home"
    file = home / f".codex/sessions/2026/11/01/rollout-2026-11-01T10-00-00-{native}.jsonl"
    file.parent.mkdir(parents=True)
    meta = {"id": native, "timestamp": "2026-11-01T10:00:00Z", "cwd": "/home/dev", "originator": "codex_cli", "cli_version": "1"}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    lines = [{"type": "session_meta", "payload": meta}, {"type": "response_item", "payload": said}]
    file.write_text("".join(json.dumps({"timestamp": "2026-11-01T10:00:00Z", **line}) + "\n" for line in lines))
    ingest(root, home)
    archived = home / ".codex/archived_sessions" / file.name
    archived.parent.mkdir()
    shutil.move(file, archived)
    assert audit(root, home) == []
    ingest(root, home)
    assert audit(root, home) == audit(root, home, deep=True) == []
    archived.unlink()
    assert classes(audit(root, home)) == ["source_vanished"]


def test_a_clean_audit_opens_no_transcript_and_no_journal(tmp_path: Path, root: str) -> None:
    """B5: work is proportional to change."""
    for n in range(5):
        sid = SID.format(n)
        home, _ = home_with(tmp_path, b"".join(record(i, uuid=f"{sid}-{i}", sessionId=sid) for i in range(1, 9)), sid)
    ingest(root, home)
    host = Watching()
    assert audit(root, home, host=host) == []
    assert set(host.opened) == {f"{root}/state/sources.json"}
    assert classes(audit(root, home, deep=True, host=host)) == []
    assert len([path for path in set(host.opened) if path.endswith(".jsonl")]) == 5, "deep: every transcript, and no journal"


def test_a_bit_that_flipped_without_a_trace_is_found_by_the_deep_audit(tmp_path: Path, root: str) -> None:
    """W4: size, time and inode are the same; only the bytes differ."""
    home, file = home_with(tmp_path, LINES)
    ingest(root, home)
    seen = os.stat(file)
    with file.open("r+b") as held:
        held.seek(LINES.index(b"question 3"))
        held.write(b"Q")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert audit(root, home) == []
    assert classes(audit(root, home, deep=True)) == ["source_changed"]


def test_the_audit_finds_the_same_without_captures_memory(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, LINES)
    home_with(tmp_path, record(1, "quite another"), SID.format(2))
    ingest(root, home)
    edit_in_place(file)
    [found] = audit(root, home)
    Path(root, "state/sources.json").unlink()
    assert [one.id for one in audit(root, home)] == [found.id]


def test_every_kind_of_damaged_transcript_is_found_among_a_hundred_good_ones(tmp_path: Path, root: str) -> None:
    """B2: one bad file stops nothing, and hides none of the others."""
    home = tmp_path / "home"
    files = {}
    for n in range(100 + len(EACH)):
        sid = f"5f0c2d1e-0000-4000-8000-{n:012d}"
        _, files[sid] = home_with(tmp_path, b"".join(record(i, uuid=f"{sid}-{i}", sessionId=sid) for i in range(1, 9)), sid)
    ingest(root, home)
    bad = {}
    for (cls, act), sid in zip(EACH, files, strict=False):
        act(files[sid])
        make_old(files[sid])
        bad[str(files[sid])] = cls
    assert {one.where: one.cls for one in audit(root, home)} == bad
    assert {one.where: one.cls for one in audit(root, home, deep=True)} == bad
    with Keep.open(root) as keep:
        list(keep.ingest(home=home))
    assert {one.where: one.cls for one in audit(root, home)} == bad


def _gemini(messages: list[dict[str, Any]]) -> str:
    return json.dumps({"sessionId": "abc", "projectHash": "f" * 8, "messages": messages}, indent=2)


def _words(n: int, text: str) -> dict[str, Any]:
    return {"id": f"m{n}", "timestamp": "2026-11-01T10:00:00Z", "type": "user" if n % 2 else "gemini", "content": text}


@pytest.mark.parametrize("seen", [False, True])
def test_a_document_that_is_rewritten_as_a_habit_is_a_fault_only_when_it_lost_messages(
    tmp_path: Path, root: str, seen: bool
) -> None:
    """W4: fifty contents blanked are a loss, though the count is right."""
    home = tmp_path / "home"
    file = home / ".gemini/tmp/shop/chats/session-2026-11-01T10-00-abcdef01.json"
    file.parent.mkdir(parents=True)
    file.write_text(_gemini([_words(1, "one"), _words(2, "tw")]))
    ingest(root, home)
    file.write_text(_gemini([_words(1, "one"), _words(2, "two, whole"), _words(3, "three")]))
    if seen:
        ingest(root, home)
    assert audit(root, home) == audit(root, home, deep=True) == []
    ingest(root, home)
    file.write_text(_gemini([_words(1, ""), _words(2, ""), _words(3, "")]))
    if seen:
        ingest(root, home)
    [found] = audit(root, home)
    assert (found.cls, found.about["gone"]) == ("source_shrank", 3)
    file.write_text(_gemini([_words(9, "<state_snapshot> all of it </state_snapshot>")]))
    assert audit(root, home) == [], "a compression is meant"
    file.write_text(_gemini([_words(1, "one")])[:-20])
    assert classes(audit(root, home)) == ["source_unreadable"]


@pytest.mark.parametrize("seen", [False, True])
def test_each_session_missing_from_a_database_is_reported(tmp_path: Path, root: str, seen: bool) -> None:
    """B8: the database is read through SQLite, and its folder stays as it was."""
    home = tmp_path / "home"
    hermes.write(home)
    ingest(root, home)
    assert audit(root, home) == audit(root, home, deep=True) == []
    db = hermes.Hermes(home / ".hermes/state.db")
    for table, column in (("messages", "session_id"), ("sessions", "id")):
        db.db.execute(f"DELETE FROM {table} WHERE {column} = ?", (hermes.HELPER,))
    db.close()
    if seen:
        ingest(root, home)
    before = tree(root, home)
    [found] = audit(root, home)
    assert (found.cls, found.session) == ("source_vanished", f"hermes:{hermes.HELPER}")
    assert tree(root, home) == before
    (home / ".hermes/state.db").write_bytes(b"this is no database " * 100)
    assert classes(audit(root, home)) == ["store_unreadable"]
    (home / ".hermes/state.db").unlink()
    assert classes(audit(root, home)) == ["source_vanished"]


@pytest.mark.parametrize("size", [65, 300, 501])
def test_a_row_with_a_long_id_hides_no_other_of_its_database_and_stops_no_other_source(
    tmp_path: Path, root: str, size: int
) -> None:
    """An id that no session can have is reported by ingest as the failure of that session only."""
    home, file = home_with(tmp_path, LINES)
    hermes.write(home)
    db = hermes.Hermes(home / ".hermes/state.db")
    db.session("x" * size, source="cli")
    db.say("x" * size, "user", "who has such a name?")
    db.close()
    with Keep.open(root) as keep:
        outcomes = list(keep.ingest(home=home))
        assert [one.session for one in outcomes if one.problem] == ([f"hermes:{'x' * size}"] if size > 500 else [])
        captured = {one.id for one in keep.sessions()}
    assert {f"claude:{file.stem}", f"hermes:{hermes.HELPER}"} <= captured
    assert (f"hermes:{'x' * size}" in captured) == (size <= 500)
    assert audit(root, home, deep=True) == []
    db = hermes.Hermes(home / ".hermes/state.db")
    db.db.execute("DELETE FROM sessions WHERE id = ?", (hermes.HELPER,))
    db.close()
    assert [one.session for one in audit(root, home)] == [f"hermes:{hermes.HELPER}"]


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("store", [".claude/projects", ".gemini/tmp/shop/chats", ".hermes/state.db", ".hermes"])
def test_a_store_behind_a_dangling_link_is_reported_missing(tmp_path: Path, root: str, store: str, seen: bool) -> None:
    home, _ = home_with(tmp_path, LINES)
    chat = home / ".gemini/tmp/shop/chats/session-2026-11-01T10-00-abcdef01.json"
    chat.parent.mkdir(parents=True)
    chat.write_text(_gemini([_words(1, "one"), _words(2, "two")]))
    hermes.write(home)
    ingest(root, home)
    assert audit(root, home, deep=True) == []
    (home / store).rename(home / "unmounted")
    (home / store).symlink_to(home / "not-mounted")
    if seen:
        ingest(root, home)
    for deep in (False, True):
        [found] = audit(root, home, deep=deep)
        assert (found.cls, found.where.startswith(str(home / store))) == ("source_vanished", True)
    (home / "unmounted").rename(home / "not-mounted")
    assert audit(root, home) == audit(root, home, deep=True) == [], "it is there again, elsewhere"


def test_a_link_to_another_transcript_is_not_the_one_that_was_captured(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, LINES)
    ingest(root, home)
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"".join(LINES.splitlines(keepends=True)[:3]))
    file.unlink()
    file.symlink_to(other)
    assert classes(audit(root, home)) == ["source_shrank"]


def test_a_session_that_was_deleted_here_is_not_missed(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, LINES)
    ingest(root, home)
    with Keep.open(root) as keep:
        keep.delete(f"claude:{file.stem}")
    cut_lines(file)
    assert audit(root, home) == []
    ingest(root, home)
    file.unlink()
    assert audit(root, home) == audit(root, home, deep=True) == []


def test_only_a_transcript_that_was_merely_blanked_is_filled_in_again() -> None:
    whole = b"abc\ndef\nghi\n"
    assert without_blanks(b"abc\n\0\0\0\0ghi\n", whole) == whole
    assert without_blanks(b"abc\n\0\0\0\0ghi\nnew\n", whole) == whole + b"new\n"
    assert without_blanks(b"abc\n\0\0\0", whole) == whole
    assert without_blanks(b"abX\n\0\0\0\0ghi\n", whole) is None
    assert without_blanks(b"abc\n\0\0\0\0gh", b"abc\n") == b"abc\n\0\0\0\0gh", "what was never captured stays as it is"
    assert without_blanks(whole, whole) is None


@pytest.mark.parametrize("form", ["lines", "document"])
def test_lines_captured_during_a_deep_audit_are_not_reported_missing(
    tmp_path: Path, root: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside writers it tells of nothing that is none: of a file only what it had when it was opened is seen."""
    home, file = home_with(tmp_path, LINES)
    if form == "document":
        file = home / ".gemini/tmp/shop/chats/session-2026-11-01T10-00-abcdef01.json"
        file.parent.mkdir(parents=True)
        file.write_text(_gemini([_words(1, "one")]))
    ingest(root, home)
    file.write_bytes(file.read_bytes() + (record(9) if form == "lines" else b"\n"))  # so that it is looked at more closely
    generations = source_bytes.generations
    captured: list[Any] = []

    def meanwhile(*of: Any) -> Iterator[tuple[int, list[bytes]]]:
        if not captured:
            captured.append(of)
            more = record(10).decode() if form == "lines" else ""
            file.write_text(file.read_text() + more if more else _gemini([_words(1, "one"), _words(2, "two")]))
            ingest(root, home)
        return generations(*of)

    monkeypatch.setattr(source_bytes, "generations", meanwhile)
    assert audit(root, home, deep=True) == [] and captured
