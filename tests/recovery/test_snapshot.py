"""Snapshots: lossless, the same bytes each time, and as complete as possible if the keep or the file is damaged."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dreamkeep import Keep
from dreamkeep.errors import BadUsage, Failed
from dreamkeep.event import Kind
from dreamkeep.host import RealHost
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.recovery.snapshot.file import DamagedEntry, Unpacker
from tests.agents import claude, codex, hermes
from tests.helpers.faults import Dying, PowerCut
from tests.helpers.snapshots import copied, made, texts, truth, write_on

HOST = RealHost()


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A keep with a bit of everything: captured files and rows, one's own turns, a deletion, settings, something set aside."""
    root = tmp_path / "full"
    for agent in (claude, codex, hermes):
        agent.write(tmp_path / "home")
    with Keep.open(root) as keep:
        list(keep.ingest(home=tmp_path / "home"))
        session = keep.session("mine", cwd="/", title="a title")
        session.record("why \u2028 \ud800?", ("assistant", "x" * 3_000_000))
        session.submit("unfinished").start()
        keep.session("gone").record("to be deleted")
        keep.delete("gone")
        keep.compress(everything=True)
        keep.session("mine").record("again")
    (root / "keep.toml").write_text("[dream]\nsession_count = 7\n")
    (root / "aside").mkdir(exist_ok=True)
    (root / "aside" / "something.tail").write_bytes(b"\0torn")
    (root / "pages" / "p").mkdir(parents=True)
    (root / "pages" / "p" / "MEMORY.md").write_bytes(b"- a\r\n---\n- b")
    return root


def views(root: Path) -> list[Any]:
    """Everything in the contract's JSON except how long the index has been there."""
    with Keep.open(root) as keep:
        sessions = keep.sessions()
        answers: list[Any] = [keep.as_json(one) for one in sessions]
        for one in sessions:
            answers += [keep.show(one.id), keep.lineage(one.id), [[about, data] for about, data in keep.raw(one.id)]]
        return [*answers, {**keep.status(), "keep": ""}, keep.search("the", limit=50)]


def test_an_empty_keep_that_imports_has_every_byte_and_every_view(full: Path, tmp_path: Path) -> None:
    """D22 R4"""
    with Keep.open(full) as keep:
        out = keep.export(tmp_path / "s.tar.zst")
        assert keep.verify(tmp_path / "s.tar.zst")["ok"]
    with Keep.open(tmp_path / "new") as new:
        done = new.import_(tmp_path / "s.tar.zst")
    assert (done["bad"], done["skipped"]) == ([], [])
    assert done["added"] == out["sessions"] == 1 + sum(1 for _ in (full / "journal/sessions").glob("*/*")) - 1
    assert truth(tmp_path / "new") == truth(full)
    assert views(tmp_path / "new") == views(full)


def test_the_same_keep_gives_the_same_bytes_wherever_it_lies(full: Path, tmp_path: Path) -> None:
    """D22: also after its parts were compressed, its index was thrown away, and it was imported elsewhere."""
    with Keep.open(full) as keep:
        keep.export(tmp_path / "1")
        keep.compress(everything=True)
    (full / "index.sqlite").unlink()
    with Keep.open(full) as keep:
        keep.export(tmp_path / "2")
    with Keep.open(tmp_path / "new") as new:
        new.import_(tmp_path / "1")
        new.export(tmp_path / "3")
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes() == (tmp_path / "3").read_bytes()


def test_the_problems_of_an_export_are_reported_by_verify_and_import(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        keep.session("well").record("pears")
        keep.session("torn").record("x", ("assistant", "y" * 5000))
        keep.compress(everything=True)
        whole = keep.export(tmp_path / "whole")
        assert keep.verify(tmp_path / "whole")["ok"] and b"problems" not in manifest(tmp_path / "whole")
        part = tmp_path / "k" / folder_of("python:torn") / "000001.jsonl.zst"
        held = part.read_bytes()
        part.write_bytes(held[: len(held) // 2])
        done = keep.export(tmp_path / "torn", view=False)
        assert whole["problems"] == [] and [one["where"] for one in done["problems"]] == [
            f"{folder_of('python:torn')}/000001.jsonl"
        ]
        found = keep.verify(tmp_path / "torn")
        assert (found["ok"], found["problems"], found["digest"]) == (False, done["problems"], done["digest"])
    with Keep.open(tmp_path / "other") as other:
        taken = other.import_(tmp_path / "torn")
        assert done["problems"][0] in taken["bad"]
        assert [one.native_id for one in other.sessions()] == ["well"]


def manifest(file: Path) -> bytes:
    with file.open("rb") as source:
        return next(b"".join(blocks) for header, blocks in Unpacker(source).entries() if header.name == "manifest.json")


def test_importing_twice_is_importing_once(full: Path, tmp_path: Path) -> None:
    with Keep.open(full) as keep:
        keep.export(tmp_path / "s")
    with Keep.open(tmp_path / "new") as new:
        new.import_(tmp_path / "s")
        before = truth(tmp_path / "new")
        again = new.import_(tmp_path / "s")
        assert (again["added"], again["merged"], again["events"], again["files"]) == (0, 0, 0, 0)
    assert truth(tmp_path / "new") == before


def test_a_file_that_is_there_is_not_written_over(full: Path, tmp_path: Path) -> None:
    """W11"""
    (tmp_path / "s").write_bytes(b"mine")
    with Keep.open(full) as keep, pytest.raises(BadUsage, match="a file of that name already exists"):
        keep.export(tmp_path / "s")
    assert (tmp_path / "s").read_bytes() == b"mine" and not list(tmp_path.glob("*.tmp"))


def test_people_can_read_it_with_the_tools_they_have(full: Path, tmp_path: Path) -> None:
    import tarfile

    import zstandard

    with Keep.open(full) as keep:
        keep.export(tmp_path / "s")
    with (tmp_path / "s").open("rb") as packed:
        plain = io.BytesIO(zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read())
    with tarfile.open(fileobj=plain) as found:
        names = found.getnames()
        pages = [name for name in names if name.startswith("view/") and "mine" in name]
        page = found.extractfile(pages[0])
        assert page and b"**assistant**" in page.read()
        listed = json.load(found.extractfile("manifest.json") or io.BytesIO())["entries"]
        for one in listed:
            inside = found.extractfile(one["name"])
            assert inside and hashlib.sha256(inside.read()).hexdigest() == one["sha256"]
    assert names[0] == "dreamkeep-snapshot.json" and names[-1] == "manifest.json" and len(listed) == len(names) - 1


# -- damage


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    base = tmp_path_factory.mktemp("small")
    with Keep.open(base / "k") as keep:
        for n in range(4):
            keep.session(f"s-{n}").record(f"question {n}", ("assistant", f"answer {n}"))
        keep.export(base / "s", view=False)
    return (base / "s").read_bytes()


def taken_in(data: bytes, base: Path) -> dict[str, list[str]]:
    """What a keep has after importing it; each session whole or not at all."""
    (base / "s").write_bytes(data)
    with Keep.open(base / "k") as keep:
        try:
            done = keep.import_(base / "s")
        except Failed:
            assert not keep.exists()
            return {}
        assert done["bad"]
        return {one.native_id: [m["text"] for m in keep.show(one.id)["messages"]] for one in keep.sessions()}


WHOLE = {f"s-{n}": [f"question {n}", f"answer {n}"] for n in range(4)}


def verified(data: bytes, base: Path) -> bool:
    (base / "v").write_bytes(data)
    with Keep.open(base / "none") as keep:
        try:
            return bool(keep.verify(base / "v")["ok"])
        except Failed:
            return False


def test_a_snapshot_cut_at_any_byte_says_so(small: bytes, tmp_path: Path) -> None:
    assert verified(small, tmp_path)
    for size in range(len(small)):
        assert not verified(small[:size], tmp_path), size


def test_the_good_part_of_a_cut_snapshot_is_imported(small: bytes, tmp_path: Path) -> None:
    """R4: or it is refused cleanly, when not even its beginning is there."""
    most = 0
    for size in range(0, len(small), 97):
        base = tmp_path / str(size)
        base.mkdir()
        found = taken_in(small[:size], base)
        assert found.items() <= WHOLE.items()
        assert len(found) >= most, "more bytes, more sessions"
        most = len(found)
    assert most == 4


def test_a_flipped_bit_anywhere_is_noticed_and_costs_at_most_what_it_hit(small: bytes, tmp_path: Path) -> None:
    """R4 W4"""
    for at in range(0, len(small), 61):
        base = tmp_path / str(at)
        base.mkdir()
        data = bytearray(small)
        data[at] ^= 1 << at % 8
        assert not verified(bytes(data), base), at
        found = taken_in(bytes(data), base)
        assert found.items() <= WHOLE.items() and len(found) >= 3, at


def test_a_file_that_is_not_a_snapshot_or_is_newer_is_refused(tmp_path: Path) -> None:
    """R7"""
    with Keep.open(tmp_path / "k") as keep:
        (tmp_path / "x").write_bytes(b"hello" * 1000)
        with pytest.raises(Failed, match="not a snapshot"):
            keep.import_(tmp_path / "x")
        (tmp_path / "newer").write_bytes(made({"dreamkeep-snapshot.json": b'{"format":2,"keep":"x"}\n'}))
        with pytest.raises(Failed, match="newer dreamkeep"):
            keep.import_(tmp_path / "newer")
        with pytest.raises(BadUsage, match="can't be opened"):
            keep.verify(tmp_path / "nothing")
        assert not keep.exists()


@pytest.mark.parametrize(
    "name",
    [
        *(
            "../outside",
            "/outside",
            "aside/../../outside",
            "journal/sessions/x/../../../outside/000001.jsonl",
            "bin/sh",
            "index.sqlite",
        ),
        *("state/dream.lock", "aside//x", "aside/\u0000x", "OFF", "journal/sessions/x/y/000001.jsonl", "aside/a\nb"),
    ],
)
def test_a_name_that_has_no_place_in_a_keep_is_refused(name: str, tmp_path: Path) -> None:
    """X1"""
    about = b'{"format":1,"keep":"x"}\n'
    (tmp_path / "in").mkdir()
    (tmp_path / "s").write_bytes(made({"dreamkeep-snapshot.json": about, name: b"bad"}))
    with Keep.open(tmp_path / "in" / "k") as keep:
        done = keep.import_(tmp_path / "s")
    assert len(done["bad"]) >= 2  # and there is no manifest
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes() == b"bad"}
    assert found == set()


# -- a keep that has something already


def test_two_keeps_that_went_on_from_one_are_joined_and_lose_nothing(tmp_path: Path) -> None:
    """K4 R4: event by event; a session's state counts only if it is newer."""
    with Keep.open(tmp_path / "a") as keep:
        keep.session("s", title="first").record("one")
    copied(tmp_path / "a", tmp_path / "b")
    with Keep.open(tmp_path / "b") as b:
        b.session("s", title="theirs").record("two, there")
        b.session("only there").record("new")
        b.end("s")
        b.export(tmp_path / "b.zst")
    with Keep.open(tmp_path / "a") as a:
        a.session("s").record("two, here")
        a.session("s", title="ours, newer")
        done = a.import_(tmp_path / "b.zst")
        assert (done["added"], done["merged"], done["bad"]) == (1, 1, [])
        assert sorted(texts(a, "python:s")) == ["one", "two, here", "two, there"]
        # Its state was changed last there, its title was changed last here.
        assert (a.summary("python:s").title, a.summary("python:s").state) == ("ours, newer", "ended")
        again = a.import_(tmp_path / "b.zst")
        assert (again["merged"], again["events"]) == (0, 0)
        a.export(tmp_path / "a.zst")
    with Keep.open(tmp_path / "b") as b:
        b.import_(tmp_path / "a.zst")
        assert sorted(texts(b, "python:s")) == ["one", "two, here", "two, there"]
        assert (b.summary("python:s").title, b.summary("python:s").state) == ("ours, newer", "ended")


def test_a_snapshot_that_is_ahead_is_imported_in_full(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "a") as keep:
        keep.session("s").record("one")
    copied(tmp_path / "a", tmp_path / "b")
    with Keep.open(tmp_path / "b") as b:
        b.session("s").record("two")
        b.end("s")
        b.export(tmp_path / "b.zst")
    with Keep.open(tmp_path / "a") as a:
        assert a.import_(tmp_path / "b.zst")["merged"] == 1
        assert texts(a, "python:s") == ["one", "two"] and a.summary("python:s").state == "ended"
    assert (
        truth(tmp_path / "a")[f"{folder_of('python:s')}/000001.jsonl"]
        == truth(tmp_path / "b")[f"{folder_of('python:s')}/000001.jsonl"]
    )


def test_an_older_snapshot_changes_nothing(tmp_path: Path) -> None:
    """K3 K4: nothing newer is lost."""
    with Keep.open(tmp_path / "a") as keep:
        keep.session("s").record("one")
        keep.export(tmp_path / "old")
        keep.session("s").record("two")
        keep.end("s")
        before = truth(tmp_path / "a")
        done = keep.import_(tmp_path / "old")
        assert (done["merged"], done["unchanged"]) == (0, 1)
    assert truth(tmp_path / "a") == before


def test_what_damage_took_from_a_journal_comes_back_from_a_snapshot(tmp_path: Path) -> None:
    """J3: the hole stays where it is, the events are appended."""
    with Keep.open(tmp_path / "a") as keep:
        for n in range(5):
            keep.session("s").record(f"turn {n}")
        keep.export(tmp_path / "s")
    path = tmp_path / "a" / folder_of("python:s") / "000001.jsonl"
    data = bytearray(path.read_bytes())
    data[data.index(b"turn 2")] ^= 1
    path.write_bytes(data)
    with Keep.open(tmp_path / "a") as keep:
        assert "turn 2" not in texts(keep, "python:s")
        assert keep.import_(tmp_path / "s")["merged"] == 1
        assert sorted(texts(keep, "python:s")) == [f"turn {n}" for n in range(5)]
        assert keep.import_(tmp_path / "s")["merged"] == 0


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _cut(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _pieces(path: Path) -> None:
    """One of those that a long event was written in."""
    data = path.read_bytes()
    at = data.index(b'"kind":"chunk"', data.index(b'"kind":"chunk"') + 1)
    path.write_bytes(data[: at + 300] + b"?" + data[at + 301 :])


def _cold(path: Path) -> None:
    with Keep.open(path.parents[4]) as keep:
        keep.compress(everything=True)
        keep.sessions()
    _flipped(path.with_suffix(".jsonl.zst"))


@pytest.mark.parametrize("asked", [False, True], ids=["", "asked"])
@pytest.mark.parametrize(
    ("of", "harm"),
    [
        *((folder_of("python:s"), harm) for harm in (_emptied, _zeroed, _cut, _flipped, _pieces, _cold)),
        *((KEEP, harm) for harm in (_emptied, _zeroed, _cut)),
    ],
)
def test_a_loss_is_not_a_fault_any_more_when_a_snapshot_is_proven_to_have_brought_all_of_it_back(
    tmp_path: Path, of: str, harm: Any, asked: bool
) -> None:
    """R4: once the words came back, and the audit went on to advise the same import."""
    root, home = tmp_path / "a", tmp_path / "home"
    home.mkdir()
    with Keep.open(root) as keep:
        for n in range(5):
            keep.session("s").record(f"turn {n} " + ("long " * 300_000 if n == 2 and harm is _pieces else ""))
            keep.note_add(f"note {n}")
        keep.export(tmp_path / "s")
        before, notes = texts(keep, "python:s"), len(keep.notes())
    harm(root / of / "000001.jsonl")
    with Keep.open(root) as keep:
        if asked:
            keep.sessions()  # then the index does not know any more what was lost
        lost = keep.audit(home=home)["faults"]
        assert asked or lost
        keep.import_(tmp_path / "s")
        assert keep.audit(home=home)["faults"] == keep.audit(home=home, deep=True)["faults"] == []
        assert sorted(texts(keep, "python:s")) == sorted(before) and len(keep.notes()) == notes
        assert keep.audit(home=home, deep=True)["faults"] == []
        files = {path: path.read_bytes() for path in (root / of).iterdir()}
        keep.import_(tmp_path / "s")
        assert {path: path.read_bytes() for path in (root / of).iterdir()} == files, "it is said once"


@pytest.mark.parametrize("harm", [_zeroed, _cut, _flipped, _cold])
def test_a_loss_stays_a_fault_if_the_snapshot_has_not_all_of_what_was_lost(tmp_path: Path, harm: Any) -> None:
    root, home = tmp_path / "a", tmp_path / "home"
    home.mkdir()
    with Keep.open(root) as keep:
        for n in range(3):
            keep.session("s").record(f"turn {n}")
        keep.export(tmp_path / "s")
        for n in range(3, 12):
            keep.session("s").record(f"turn {n}")
        keep.sessions()
    harm(root / folder_of("python:s") / "000001.jsonl")
    with Keep.open(root) as keep:
        keep.import_(tmp_path / "s")
        for deep in (False, True):
            [told] = keep.audit(home=home, deep=deep)["faults"]
            assert told["class"] in ("journal_damage", "journal_missing_part")


@pytest.mark.parametrize("view", [True, False])
def test_an_export_reports_losses_that_only_the_index_knows_and_keeps_them_known(tmp_path: Path, view: bool) -> None:
    root, home = tmp_path / "a", tmp_path / "home"
    home.mkdir()
    with Keep.open(root) as keep:
        for n in range(5):
            keep.session("s").record(f"turn {n}")
        keep.session("other").record("said")
        keep.sessions()
    _cut(root / folder_of("python:s") / "000001.jsonl")
    with Keep.open(root) as keep:
        keep.session("other").record("more")
        [lost] = keep.audit(home=home)["faults"]
        [told] = keep.export(tmp_path / "s", view=view)["problems"]
        assert told["where"] == f"{folder_of('python:s')}/000001.jsonl" and lost["what"] in told["what"]
        assert keep.audit(home=home)["faults"] == [lost]
        assert keep.verify(tmp_path / "s")["problems"] == [told], "who only has the file must know it, too"
        keep.repair(accept=[lost["id"]], home=home)
        assert keep.export(tmp_path / "s2", view=view)["problems"] == []


def test_a_damaged_note_stays_a_fault_after_an_import(tmp_path: Path) -> None:
    root, home = tmp_path / "a", tmp_path / "home"
    home.mkdir()
    with Keep.open(root) as keep:
        for n in range(3):
            keep.note_add(f"note {n}")
        keep.export(tmp_path / "s")
    path = root / KEEP / "000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"text":"note 1"', b'"text":"?ote 1"', 1))
    with Keep.open(root) as keep:
        keep.import_(tmp_path / "s")
        assert [fault["class"] for fault in keep.audit(home=home)["faults"]] == ["journal_damage"]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_damage_took_from_a_captured_transcript_comes_back_byte_for_byte(tmp_path: Path, which: int) -> None:
    claude.write(tmp_path / "home")
    with Keep.open(tmp_path / "a") as keep:
        list(keep.ingest(home=tmp_path / "home"))
        session = max(keep.sessions(), key=lambda one: one.bytes).id
        messages = keep.show(session)["messages"]
        keep.export(tmp_path / "s")
    path = tmp_path / "a" / folder_of(session) / "000001.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = [n for n, line in enumerate(lines) if b'"kind":"source.read"' in line and len(line) > 10_000][which]
    path.write_bytes(b"".join(lines[:at]) + lines[at].replace(b"e", b"E", 3) + b"".join(lines[at + 1 :]))
    with Keep.open(tmp_path / "a") as keep:
        assert [m["text"] for m in keep.show(session)["messages"]] != [m["text"] for m in messages]
        done = keep.import_(tmp_path / "s")
        assert done["bad"] == []
        # What comes back is recorded later than it happened, so its place may differ; nothing is missing.
        assert {m["text"] for m in messages} <= {m["text"] for m in keep.show(session)["messages"]}
        assert keep.import_(tmp_path / "s")["merged"] == 0
    from dreamkeep.capture.sources import source_bytes

    folder = f"{tmp_path}/a/{folder_of(session)}"
    for name, about in source_bytes.sources(HOST, folder).items():
        assert b"".join(source_bytes.lines(HOST, folder, name)) == Path(about["path"]).read_bytes()


def test_what_was_deleted_here_stays_deleted_and_a_tombstone_of_theirs_deletes_nothing(tmp_path: Path) -> None:
    """K2 R5"""
    with Keep.open(tmp_path / "a") as keep:
        for name in ("dead here", "dead there", "dead there, never here"):
            keep.session(name).record(f"words of {name}")
    copied(tmp_path / "a", tmp_path / "b")
    with Keep.open(tmp_path / "a") as a:
        a.delete("dead here")
        a.delete("dead there, never here")
        a.undelete("dead there, never here")
    with Keep.open(tmp_path / "b") as b:
        b.delete("dead there")
        b.delete("dead there, never here")
        b.export(tmp_path / "s")
    with Keep.open(tmp_path / "a") as a:
        done = a.import_(tmp_path / "s")
        assert {one["where"] for one in done["skipped"]} == {"python:dead here", "python:dead there"}
        assert {one.native_id for one in a.sessions()} == {"dead there"}
        with pytest.raises(Exception, match="deleted"):
            a.session("dead there, never here")


def test_a_file_of_mine_that_differs_stays(full: Path, tmp_path: Path) -> None:
    with Keep.open(full) as keep:
        keep.export(tmp_path / "s")
    (tmp_path / "k" / "pages" / "p").mkdir(parents=True)
    (tmp_path / "k" / "pages" / "p" / "MEMORY.md").write_text("mine")
    (tmp_path / "k" / "keep.toml").write_text("")
    with Keep.open(tmp_path / "k") as keep:
        done = keep.import_(tmp_path / "s")
    assert {one["where"] for one in done["skipped"]} == {"keep.toml", "pages/p/MEMORY.md"}
    assert (tmp_path / "k" / "pages" / "p" / "MEMORY.md").read_text() == "mine"


def test_an_import_that_dies_at_any_step_is_finished_by_the_next(tmp_path: Path) -> None:
    """D22"""
    with Keep.open(tmp_path / "a") as keep:
        keep.session("s").record("one")
        keep.session("t").record("two")
        keep.export(tmp_path / "s", view=False)
    with Keep.open(tmp_path / "b") as keep:
        keep.session("t").record("mine")
    for n in count(1):
        root = tmp_path / "k"
        shutil.rmtree(root, ignore_errors=True)
        if n % 2:
            shutil.copytree(tmp_path / "b", root)
        try:
            Keep.open(root, host=Dying(n // 2 + 1)).import_(tmp_path / "s")
            finished = True
        except PowerCut:
            finished = False
        with Keep.open(root) as keep:
            done = keep.import_(tmp_path / "s")
            assert done["bad"] == [], n
            assert texts(keep, "python:s") == ["one"]
            assert sorted(texts(keep, "python:t")) == (["mine", "two"] if n % 2 else ["two"])
        for session in ("python:s", "python:t"):
            reading = Reading(HOST, f"{root}/{folder_of(session)}")
            assert sum(1 for _ in reading) and reading.defects == [] and reading.tail is None
        if finished and n % 2 == 0:
            break
    assert n > 20


def test_an_export_beside_a_writer_has_whole_appends_only(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        keep.session("busy").record("turn")
    stop = multiprocessing.get_context("spawn").Event()
    writer = multiprocessing.get_context("spawn").Process(target=write_on, args=(str(tmp_path / "k"), stop))
    writer.start()
    try:
        for n in range(5):
            with Keep.open(tmp_path / "k") as keep:
                keep.export(tmp_path / f"s{n}", view=False)
            with Keep.open(tmp_path / f"new{n}") as new:
                assert new.import_(tmp_path / f"s{n}")["bad"] == []
            reading = Reading(HOST, f"{tmp_path}/new{n}/{folder_of('python:busy')}")
            assert sum(1 for _ in reading) and reading.defects == [] and reading.tail is None
    finally:
        stop.set()
        writer.join(30)
    assert writer.exitcode == 0


_TEXT = st.text(st.characters(blacklist_categories=()), max_size=60) | st.sampled_from(
    ["", "\0", "\u2028", "---\n", "x" * 2_000_000]
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 3), _TEXT, st.lists(_TEXT, max_size=2)), max_size=8), st.booleans())
def test_any_sessions_come_back_equal(tmp_path: Path, said: list[tuple[int, str, list[str]]], cold: bool) -> None:
    """D22: any text, any sizes."""
    base = tmp_path / os.urandom(8).hex()
    with Keep.open(base / "a") as keep:
        keep.session("first").record("so that there is one")
        for n, prompt, answers in said:
            keep.session(f"s{n}", title=f"t{len(prompt)}").record(prompt, *(("assistant", answer) for answer in answers))
        if cold:
            keep.compress(everything=True)
        keep.export(base / "s")
    with Keep.open(base / "b") as new:
        assert new.import_(base / "s")["bad"] == []
    assert truth(base / "a") == truth(base / "b") and views(base / "a") == views(base / "b")
    shutil.rmtree(base)


@given(st.lists(st.binary(max_size=3000) | st.integers(1, 3).map(lambda n: bytes(n << 20)), max_size=4), st.integers(0, 10**9))
@settings(max_examples=40, deadline=None)
def test_entries_of_any_length_come_back_or_are_reported(contents: list[bytes], cut: int) -> None:
    files = {f"aside/{n}": data for n, data in enumerate(contents)}
    packed = made(files)
    assert read(packed) == (files, True)
    found, whole = read(packed[: cut % (len(packed) + 1)])
    assert found.items() <= files.items() and whole == (cut % (len(packed) + 1) == len(packed))


def read(data: bytes) -> tuple[dict[str, bytes], bool]:
    unpacker = Unpacker(io.BytesIO(data))

    def entries() -> Iterator[tuple[str, bytes]]:
        for header, blocks in unpacker.entries():
            try:
                yield header.name, b"".join(blocks)
            except DamagedEntry:
                continue

    return dict(entries()), unpacker.ended and not unpacker.bad


@pytest.mark.slow
def test_a_large_keep_goes_out_and_in_within_little_memory(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        for n in range(60):
            keep.session("long").record(f"turn {n}", ("tool", os.urandom(2_500_000).hex()))
    code = """
import resource, sys
from dreamkeep import Keep
with Keep.open(sys.argv[1]) as keep:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (keep.export if sys.argv[3] == "out" else keep.import_)(sys.argv[2])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    with Keep.open(tmp_path / "k") as keep:
        keep.reindex()  # which has its own bound
    for root, way in (("k", "out"), ("new", "in")):
        words = [sys.executable, "-c", code, str(tmp_path / root), str(tmp_path / "s"), way]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert int(done.stdout) < 120_000, f"{way}: {done.stdout} KB for a keep of 300 MB"


def test_a_snapshot_holds_kinds_it_does_not_know(tmp_path: Path) -> None:
    """D34: what a later version journals goes along unread."""
    with Keep.open(tmp_path / "a") as keep:
        keep.context.journals().say("", "note.added", {"text": "remember"})
        keep.context.journals().say("python:s", Kind.SESSION_OPENED, {"session": "python:s", "cwd": "/"}, {"state": "active"})
        keep.context.journals().say("python:s", "insight.added", {"text": "found"})
        keep.export(tmp_path / "s")
    with Keep.open(tmp_path / "b") as new:
        new.session("other").record("so that it is not empty")
        new.import_(tmp_path / "s")
        kinds = [
            frame["kind"] for name in ("journal/keep", folder_of("python:s")) for frame in Reading(HOST, f"{tmp_path}/b/{name}")
        ]
    assert "note.added" in kinds and "insight.added" in kinds
