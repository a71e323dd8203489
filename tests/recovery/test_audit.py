"""The audit of a keep: each kind of damage is reported as its own class; nothing is written, and little is read."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.capture.python import OWNERS
from dreamkeep.event import Kind
from dreamkeep.host import RealHost
from dreamkeep.host.liveness import hold
from dreamkeep.index.open import peek
from dreamkeep.journal import parts, witness
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.reader import JournalDefect as Seen
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.audit.journal_faults import defect_fault
from dreamkeep.recovery.faults import CLASSES, Fault
from dreamkeep.surfaces.cli.upkeep import describe_audit
from tests.helpers.claude_home import home_with, record
from tests.helpers.cli import Ran
from tests.helpers.file_trees import tree
from tests.helpers.hosts import MeddlingHost, Noticing, Watching
from tests.helpers.journal_damage import (
    HOST,
    IDS,
    JOURNAL_DAMAGE,
    PART_SIZE,
    HealthyKeep,
    append_frame,
    append_half_a_frame,
    change_lines,
    drop_last_line_feed,
    flip_bit,
    last_part,
    say,
    world,
)

__all__ = ["world"]
from tests.helpers.journals import part

HOUR_S = 3600


# -- journals


def other_file(folder: str) -> None:
    """Of the same size and time."""
    file = part(folder, 1)
    at = file.stat()
    Path(f"{folder}/new").write_bytes(file.read_bytes().replace(b"there", b"their"))
    os.utime(f"{folder}/new", ns=(at.st_atime_ns, at.st_mtime_ns))
    os.replace(f"{folder}/new", file)


def flipped_in_place(folder: str) -> None:
    with part(folder, 1).open("r+b") as file:
        data = file.read()
        file.seek(0)
        file.write(data.replace(b"there", b"their"))


def a_twin(folder: str) -> None:
    part(folder, 1).with_suffix(".jsonl.zst").write_bytes(b"no twin")


def one_more_part(folder: str) -> None:
    part(folder, 2).write_bytes(part(folder, 1).read_bytes())


ONE_PART = {
    "a bit flipped": ("journal_damage", flipped_in_place),
    "another file": ("journal_damage", other_file),
    "a second form": ("journal_differs", a_twin),
    "a part from elsewhere": ("journal_duplicate", one_more_part),
    "a torn append": ("journal_tail", append_half_a_frame),
    "a line feed missing": ("journal_tail", drop_last_line_feed),
    "the file gone": ("journal_missing_part", lambda folder: part(folder, 1).unlink()),
}


@pytest.mark.parametrize("what", ONE_PART)
def test_a_changed_journal_of_one_part_is_noticed_by_how_it_looks(world: HealthyKeep, what: str) -> None:
    """W4 B5: one part, all of it indexed: two stats must be enough to see that it is another one."""
    cls, damage = ONE_PART[what]
    with Keep.open(world.root) as keep:
        keep.session("first").record("and more", ("assistant", "after it"))
        keep.sessions()
    host = Watching()
    assert world.audit(host=host).clean and host.parts() == []
    damage(f"{world.root}/{folder_of('python:first')}")
    found = world.faults()
    assert [one.cls for one in found] == [cls], found


def linked(path: Path, elsewhere: Path) -> None:
    os.rename(path, elsewhere)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("memory", ["indexed before", "indexed after", "no index"])
@pytest.mark.parametrize(("session", "number"), [("python:first", 1), ("python:s0", 2), ("python:s0", 0)])
def test_a_part_that_is_a_link_is_reported_and_not_followed(
    world: HealthyKeep, tmp_path: Path, session: str, number: int, memory: str
) -> None:
    folder = f"{world.root}/{folder_of(session)}"
    path = part(folder, number or last_part(folder))
    linked(path, tmp_path / "elsewhere")
    if memory == "indexed after":
        world.index()
    elif memory == "no index":
        os.remove(f"{world.root}/index.sqlite")
    [found] = world.faults(deep=True)
    assert (found.cls, found.where, found.repairable) == ("journal_unreadable", str(path), False)
    if session == "python:first":
        assert [one.cls for one in world.faults()] == ["journal_unreadable"], "of a journal of one part it costs nothing"
    os.replace(tmp_path / "elsewhere", path)
    assert world.audit(deep=True).clean


def test_an_index_that_is_a_link_is_reported_and_not_removed(world: HealthyKeep, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    linked(Path(f"{world.root}/index.sqlite"), elsewhere)
    for deep in (False, True):
        [found] = world.faults(deep=deep)
        assert (found.cls, found.repairable) == ("index_unusable", False) and "link" in found.what
    with Keep.open(world.root) as keep:
        assert not keep.repair(apply=True, home=world.home)["applied"]
    assert elsewhere.exists() and Path(f"{world.root}/index.sqlite").is_symlink()


@pytest.mark.parametrize("memory", ["indexed before", "indexed after", "no index"])
@pytest.mark.parametrize("what", JOURNAL_DAMAGE)
def test_each_damage_to_a_journal_is_reported_as_its_own_class(world: HealthyKeep, what: str, memory: str) -> None:
    """B3 T11 W4: whether the index knew the journal before, has read it since, or is not there; and however often one asks."""
    cls, damage = JOURNAL_DAMAGE[what]
    assert world.classes() == world.classes(deep=True) == []
    damage(world.folder)
    if memory == "indexed after":
        world.index()
    elif memory == "no index":
        os.remove(f"{world.root}/index.sqlite")
    if what in ("a file for a folder", "a format of tomorrow"):
        # The witness knows what was there: then it is a loss.
        assert set(world.classes()) <= {cls, "journal_missing_part"} and world.classes()
        return
    before = world.faults()
    assert [one.cls for one in before] == [cls], before
    assert world.faults(deep=True) == before == world.faults()
    [found] = before
    assert found.where.startswith(world.folder) and found.about["journal"] == folder_of(world.session)
    assert found.what and found.next and found.repairable in (False, bool(CLASSES[cls].repair))


def test_good_frames_between_damaged_ones_are_still_read(world: HealthyKeep) -> None:
    """T11: several faults in one journal are all reported, each with its place."""
    for damage in (flip_bit, append_half_a_frame, change_lines(lambda rows: rows[:8] + rows[7:])):
        damage(world.folder)
    assert world.classes() == ["journal_damage", "journal_duplicate", "journal_tail"]
    [damage_, *_] = world.faults()
    assert damage_.about["part"] == 2 and damage_.about["missing"] and damage_.about["size"] > 0


@pytest.mark.parametrize(("how", "counts"), [("accepted", (1, 0)), ("recaptured", (0, 1)), ("noted", (0, 1))])
def test_a_repaired_fault_is_counted_as_repaired_and_not_reported(world: HealthyKeep, how: str, counts: tuple[int, int]) -> None:
    """J3: a hole that a writer tells of stays a fault; one that is called mended does not. What was repaired nobody accepted."""
    JOURNAL_DAMAGE["a line removed"][1](world.folder)
    with Keep.open(world.root) as keep:
        keep.session("s0").record("a writer opens it")
    [found] = world.faults()
    with Keep.open(world.root) as keep:
        keep.context.journals().say(world.session, Kind.JOURNAL_MENDED, {"faults": [found.about["mend"]], "how": how})
    for _ in range(2):
        report = world.audit()
        assert report.clean and (report.checked["accepted"], report.checked["mended"]) == counts
        assert (", 1 repaired earlier" in describe_audit(report.as_json())) == (how != "accepted")
        assert (", 1 accepted" in describe_audit(report.as_json())) == (how == "accepted")
        world.index()


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        ("duplicate", "1 frame stored twice", "2 frames stored twice"),
        ("disorder", "1 frame out of order", "2 frames out of order"),
        ("reused", "1 frame with a seq that is already taken", "2 frames with a seq that is already taken"),
    ],
)
def test_repeated_and_misplaced_frames_are_counted_in_the_message(kind: str, one: str, two: str) -> None:
    assert [defect_fault("/k", KEEP, "", Seen(kind, 1, 0, 0, times=n)).what for n in (1, 2)] == [one, two]


def test_an_accepted_fault_is_reported_again_when_its_cause_changes(world: HealthyKeep) -> None:
    old = f"{world.root}/state/x.json.0123456789abcdef.tmp"
    Path(old).write_text("x")
    os.utime(old, (1, 1))
    [found] = world.faults()
    with Keep.open(world.root) as keep:
        keep.context.journals().say("", Kind.FAULT_ACCEPTED, {"fault": found.id, "class": found.cls, "where": found.where})
    for _ in range(2):
        assert world.audit().clean and world.audit().checked["accepted"] == 1
        world.index()
    os.rename(old, old.replace("x.json", "y.json"))
    assert world.classes() == ["leftover"]


def test_the_keeps_own_journal_is_audited_like_any_other(world: HealthyKeep) -> None:
    """B3"""
    with Keep.open(world.root) as keep:
        keep.delete("s1")
    file = part(f"{world.root}/{KEEP}", 1)
    rows = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([rows[0], rows[1].replace(b"created", b"creaked", 1), *rows[2:]]))
    append_half_a_frame(f"{world.root}/{KEEP}")
    with Keep.open(world.root) as keep:  # a writer settles the tail
        keep.session("more")
    assert world.classes() == ["journal_damage"]
    assert not world.faults()[0].repairable, "nothing else holds what the keep said of itself"


@pytest.mark.parametrize("memory", ["indexed before", "indexed after", "no index"])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.SESSION_DELETED, {"session": {}}),
        (Kind.SESSION_DELETED, {"session": "python:\ud800"}),
        (Kind.SESSION_UNDELETED, {}),
    ],
    ids=["an object", "half a letter", "nothing"],
)
def test_a_tombstone_without_a_session_is_reported_and_stops_nothing(
    world: HealthyKeep, kind: str, body: dict[str, Any], memory: str, cli: Callable[..., Ran]
) -> None:
    """Its checksum holds: no query, capture or repair may fail because of it, and it must be reported."""
    append_frame(kind, body)(f"{world.root}/{KEEP}")
    if memory == "indexed after":
        world.index()
    elif memory == "no index":
        os.remove(f"{world.root}/index.sqlite")
    assert world.classes() == world.classes(deep=True) == ["journal_strange"]
    [found] = world.faults()
    assert not found.repairable
    for words in (("sessions",), ("reindex", "--from-zero"), ("hygiene",)):
        assert cli(*words, "--json").code in (0, 1), words
    with Keep.open(world.root) as keep:
        keep.session("more")
        assert keep.sessions()
    assert world.classes() == ["journal_strange"]
    assert cli("repair", "--accept", found.id, "--home", str(world.home)).code == 0 and world.classes() == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.SOURCE_OPENED, {"source": [], "path": 3}),
        (Kind.SOURCE_CHANGED, {"source": "main-1", "what": "moved"}),
        (Kind.PART_OPENED, {}),
        (Kind.PART_OPENED, {"carry": [1]}),
    ],
    ids=["a source that is a list", "moved from nowhere", "a head without what it carries", "a head that carries a list"],
)
def test_a_frame_of_wrong_shape_stops_neither_audit_nor_restore_nor_a_writer(
    kind: str, body: dict[str, Any], tmp_path: Path
) -> None:
    """Its checksum holds, so a foreign or faulty writer has written it: it must cost itself alone."""
    root = tmp_path / "keep"
    home, _ = home_with(tmp_path, b"".join(map(record, range(1, 20))))
    with Keep.open(root, environment={}) as keep:
        list(keep.ingest(home=home, agents=["claude"]))
        [session, *_] = keep.sessions()
        before = len(keep.show(session.id)["messages"])
    append_frame(kind, body)(f"{root}/{folder_of(session.id)}")
    with Keep.open(root, environment={}) as keep:
        assert len(keep.show(session.id)["messages"]) == before
        assert not [one for one in keep.audit(home=home)["faults"] if one["class"] in ("journal_unreadable", "source_unreadable")]
        back = keep.restore(session.id, "claude", home=tmp_path / "other")
        assert any(one["exact"] for one in back["files"])
        list(keep.ingest(home=home, agents=["claude"]))


# -- what only the witness knows


def test_a_journal_that_lost_its_end_is_reported(world: HealthyKeep) -> None:
    gone = last_part(world.folder)
    part(world.folder, gone).unlink()
    [found] = world.faults()
    assert (found.cls, found.about["part"], found.about["known_by"]) == ("journal_missing_part", gone, "witness")
    world.index()
    assert [one.id for one in world.faults()] == [found.id], "the index has followed the journal, and has not forgotten it"


def test_a_journal_that_is_gone_is_reported(world: HealthyKeep) -> None:
    shutil.rmtree(world.folder)
    [found] = world.faults()
    assert (found.cls, found.session) == ("journal_missing_part", world.session)


def test_an_older_copy_of_a_part_is_a_loss(world: HealthyKeep) -> None:
    file = part(world.folder, last_part(world.folder))
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    [found] = world.faults()
    assert (found.cls, found.about["known_by"], found.repairable) == ("journal_missing_part", "witness", False)
    world.index()
    assert [one.id for one in world.faults()] == [found.id], "the index has followed the journal, and has not forgotten it"


def test_a_journal_replaced_by_another_valid_one_has_lost_what_was_indexed(world: HealthyKeep) -> None:
    """W4"""
    shutil.rmtree(world.folder)
    journals = JournalWriters(HOST, world.root, IDS, part_size=PART_SIZE)
    for n in range(60):
        say(journals, world.session, Kind.MESSAGE_ADDED, {"role": "user", "text": f"other {n} " + "y" * 200})
    journals.close()
    [found] = world.faults()
    assert found.cls == "journal_missing_part" and "now has other frames there" in found.what


@pytest.mark.parametrize("how", ["missing", "behind", "never made"])
def test_a_missing_or_outdated_index_is_not_a_fault(world: HealthyKeep, how: str) -> None:
    path = Path(f"{world.root}/index.sqlite")
    if how == "behind":
        with Keep.open(world.root) as keep:
            keep.session("s1").record("news")
            keep.session("new one").record("news")
    else:
        path.unlink()
        if how == "never made":
            shutil.rmtree(f"{world.root}/state")
    report = world.audit()
    assert report.clean, report.faults
    assert report.checked["read"] == (2 if how == "behind" else 5)


def test_a_damaged_index_is_reported_and_hides_nothing(world: HealthyKeep) -> None:
    """B7: an answer that can't be had is not "empty"."""
    flip_bit(world.folder)
    Path(f"{world.root}/index.sqlite").write_bytes(b"garbage" * 1000)
    assert world.classes() == ["index_unusable", "journal_damage"]


def test_an_index_with_a_damaged_page_is_reported_and_hides_nothing(world: HealthyKeep) -> None:
    """B7"""
    path = Path(f"{world.root}/index.sqlite")
    data = path.read_bytes()
    flip_bit(world.folder)
    seen = set()
    for page in range(1, len(data) // 4096):
        path.write_bytes(data[: page * 4096] + b"\xff" * 4096 + data[(page + 1) * 4096 :])
        found = world.classes()
        assert "journal_damage" in found and set(found) <= {"index_unusable", "journal_damage", "index_drift"}
        seen.update(found)
    assert "index_unusable" in seen


def test_a_deep_audit_accepts_only_an_index_that_sqlite_accepts(world: HealthyKeep) -> None:
    """Also where no question of the audit meets the damage."""
    path = Path(f"{world.root}/index.sqlite")
    sound = path.read_bytes()
    unseen = 0
    for page in range(1, len(sound) // 4096):
        data = bytearray(sound)
        for at in range(page * 4096, (page + 1) * 4096):
            data[at] ^= 0x5A
        path.write_bytes(data)
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            said = db.pragma("quick_check(1)")
        except apsw.Error as problem:
            said = str(problem)
        finally:
            db.close()
        unseen += said != "ok" and world.audit().clean
        assert said == "ok" or world.classes(deep=True) == ["index_unusable"], page
    assert unseen, "else a plain audit would do"


def test_a_repair_fixes_the_index_that_a_deep_audit_reported(world: HealthyKeep) -> None:
    path = Path(f"{world.root}/index.sqlite")
    data = bytearray(path.read_bytes())
    for page in range(len(data) // 4096 - 1, 0, -1):
        harmed = (
            data[: page * 4096] + bytes(byte ^ 0x5A for byte in data[page * 4096 : (page + 1) * 4096]) + data[(page + 1) * 4096 :]
        )
        path.write_bytes(harmed)
        if world.audit().clean and world.classes(deep=True) == ["index_unusable"]:
            break
    with Keep.open(world.root) as keep:
        assert keep.repair(apply=True, home=world.home)["audit"]["clean"]
    assert world.audit(deep=True).clean


@pytest.mark.parametrize(("table", "deep"), [("places", False), ("sessions", False), ("messages", True), ("words", True)])
def test_rows_that_are_gone_from_the_index_are_reported(world: HealthyKeep, table: str, deep: bool) -> None:
    db = apsw.Connection(f"{world.root}/index.sqlite")
    row = "rowid = 2" if table == "sessions" else "rowid = (SELECT min(rowid) FROM messages)"
    db.execute("DELETE FROM places WHERE session = 'python:s0'" if table == "places" else f"DELETE FROM {table} WHERE {row}")
    db.close()
    assert world.classes(deep=deep) == ["index_drift"]
    assert deep or world.classes(deep=True) == ["index_drift"]
    with Keep.open(world.root) as keep:
        keep.reindex(from_zero=True)
    assert world.classes(deep=True) == []


# -- the rest of the keep


def hook_call(world: HealthyKeep, said: bytes, *, age_s: int, event: str = "UserPromptSubmit", n: int = 1) -> Path:
    Path(f"{world.root}/spool").mkdir(exist_ok=True, mode=0o700)
    name = f"{HOST.now() - age_s * 10**9:020d}-{100 + n}-{n:016x}~claude~{event}.hook"
    file = Path(f"{world.root}/spool/{name}")
    file.write_bytes(said)
    return file


def test_waiting_hook_calls_are_reported_when_no_process_will_drain_them(world: HealthyKeep) -> None:
    said = b'{"session_id":"a","cwd":"/"}'
    hook_call(world, said, age_s=5, n=1)
    assert world.audit().clean, "a turn is going on"
    hook_call(world, said, age_s=2 * HOUR_S, n=2)
    assert world.classes() == ["spool_waiting"]
    handle = HOST.open_lock(f"{world.root}/state/drain.lock")
    assert HOST.try_lock(handle)
    assert world.audit().clean, "somebody is at it"
    HOST.close(handle)
    shutil.rmtree(f"{world.root}/spool")
    batch = Path(f"{world.root}/spool/batch-1~keep")
    batch.mkdir(parents=True)
    assert world.classes() == ["spool_waiting"]


def test_each_strange_file_in_the_spool_is_reported(world: HealthyKeep) -> None:
    """B1 B2"""
    good = hook_call(world, b"{}", age_s=5)
    Path(f"{world.root}/spool/notes.txt").write_text("mine")
    os.mkdir(good.with_name(good.name.replace("claude", "codex")))
    assert world.classes() == ["spool_unreadable"] * 2
    assert {os.path.basename(one.about["path"]) for one in world.faults()} == {
        "notes.txt",
        good.name.replace("claude", "codex"),
    }


def test_a_hook_that_could_not_store_its_call_is_reported(world: HealthyKeep) -> None:
    Path(f"{world.root}/spool").mkdir()
    Path(f"{world.root}/spool/problems").write_text("2026-01-01 no space\n")
    elsewhere = world.home / "dreamkeep-hook-7.problems"
    elsewhere.write_text(f"2026-01-01 {world.root} is not there\n2026-01-01 /another/keep\n")
    found = world.faults()
    assert [(one.cls, one.repairable, one.about["lines"]) for one in found] == [
        ("hook_lost", False, 1),
        ("hook_lost", True, 1),
    ] or [(one.cls, one.repairable) for one in found] == [("hook_lost", True), ("hook_lost", False)]
    assert {one.about["path"] for one in found} == {str(elsewhere), f"{world.root}/spool/problems"}


def test_a_lost_hook_call_noted_outside_the_keep_is_forgotten_when_accepted(world: HealthyKeep) -> None:
    shared = world.home / "dreamkeep-hook-7.problems"
    shared.write_text(
        f"1 claude Stop OSError: no space (keep {world.root})\n2 claude Stop OSError: no space (keep {world.root}2)\n"
    )
    environment = {"XDG_RUNTIME_DIR": str(world.home), "HOME": str(world.home)}

    def make_fault(keep: Keep) -> list[str]:
        faults = [one["what"] for one in keep.audit(home=world.home)["faults"]]
        assert any(one["check"] == "hook" for one in keep.doctor()) == bool(faults), "doctor says the same"
        return faults

    with Keep.open(world.root, environment=environment) as keep:
        [found] = keep.audit(home=world.home)["faults"]
        assert found["class"] == "hook_lost" and found["what"].startswith("1 hook call was")
        assert f"repair --accept {found['id']}" in found["next"] and not found["repairable"]
        assert keep.repair(accept=[found["id"]], home=world.home)["audit"]["clean"]
        assert make_fault(keep) == []
        with shared.open("a") as file:
            file.write(f"3 claude Stop OSError: no space (keep {world.root}2)\n")
        assert make_fault(keep) == [], "another keep's loss is not ours"
        with shared.open("a") as file:
            file.write(f"4 claude Stop OSError: no space (keep {world.root})\n")
        assert len(make_fault(keep)) == 1, "a new loss is told"


def test_an_interrupted_deletion_is_reported_and_its_journal_not_audited(world: HealthyKeep) -> None:
    """K2: with its intent; and when a copy of the journal was put back from somewhere."""
    kept = f"{world.home}/kept"
    flip_bit(world.folder)
    shutil.copytree(world.folder, kept)
    intent = Path(f"{world.root}/state/deleting/{os.path.basename(world.folder)}")
    with Keep.open(world.root) as keep:
        keep.context.journals().say("", Kind.SESSION_DELETED, {"session": world.session})
    intent.parent.mkdir(exist_ok=True)
    intent.write_text(world.session)
    [found] = world.faults()
    assert (found.cls, found.session, found.about["path"]) == ("tombstone_unfinished", world.session, str(intent))
    with Keep.open(world.root) as keep:
        keep.session("another")  # whoever writes next finishes it
    assert world.audit().clean
    shutil.copytree(kept, world.folder)
    [found] = world.faults()
    assert (found.cls, found.session, found.about["path"]) == ("tombstone_unfinished", world.session, "")


def with_older_index(world: HealthyKeep, act: Callable[[Keep], object]) -> None:
    """As an audit sees it that asked the index just before."""
    names = [name for name in os.listdir(world.root) if name.startswith("index.sqlite")]
    for name in names:
        shutil.copy(f"{world.root}/{name}", f"{world.home}/{name}")
    with Keep.open(world.root) as keep:
        act(keep)
    for name in os.listdir(world.root):
        if name.startswith("index.sqlite"):
            os.remove(f"{world.root}/{name}")
    for name in names:
        shutil.copy(f"{world.home}/{name}", f"{world.root}/{name}")


@pytest.mark.parametrize("deep", [False, True])
def test_a_session_deleted_and_undeleted_since_it_was_indexed_is_not_a_loss(world: HealthyKeep, deep: bool) -> None:
    """T2: also when it has begun anew meanwhile, with less in it than the index remembers."""

    def deleted(keep: Keep) -> None:
        for session in ("python:s0", "python:s1"):
            keep.delete(session)
            keep.undelete(session)
        keep.session("s1").record("once more")

    with_older_index(world, deleted)
    assert world.audit(deep=deep).clean, world.faults()


def test_a_missing_journal_is_reported_although_its_session_was_deleted_once(world: HealthyKeep) -> None:
    with Keep.open(world.root) as keep:
        keep.delete(world.session)
        keep.undelete(world.session)
        keep.session("s0").record("once more")
        keep.sessions()
    assert world.audit().clean
    shutil.rmtree(world.folder)
    assert world.classes() == ["journal_missing_part"]


def test_a_running_deletion_is_not_a_fault(world: HealthyKeep) -> None:
    folder = Path(f"{world.root}/state/deleting")
    folder.mkdir()
    (folder / "x").write_text("python:x")
    assert world.classes() == ["leftover"], "without a tombstone it means nothing"
    handle = HOST.open_lock(f"{world.root}/state/delete.lock")
    assert HOST.try_lock(handle)
    assert world.audit().clean
    HOST.close(handle)


def test_a_lease_of_a_dead_process_is_reported_and_one_of_a_live_process_is_not(world: HealthyKeep) -> None:
    """T2"""
    folder = f"{world.root}/{OWNERS}"
    Path(folder).mkdir(exist_ok=True)
    mine = hold(HOST, lambda: f"{folder}/{IDS.new()}")
    Path(f"{folder}/gone").write_text("")
    [found] = world.faults()
    assert (found.cls, found.about["path"]) == ("lease_stale", f"{folder}/gone")
    mine.release()


def test_a_turn_is_interrupted_only_when_its_owner_is_gone(world: HealthyKeep) -> None:
    """T2 T8 T3: all events of a turn count, not the last one of the session; identical prompts are different turns."""
    with Keep.open(world.root) as keep:
        session = keep.session("talk")
        turn, same = session.submit("continue"), session.submit("continue")
        turn.start()
        turn.add("assistant", "on my way")
        session.title("something else")
        for indexed in (False, True):
            if indexed:
                keep.sessions()
            assert world.audit().clean, "its owner lives"
        same.settle("completed")
    for indexed in (False, True):
        if indexed:
            world.index()
        [found] = world.faults()
        assert (found.cls, found.session, found.about["turn"]) == ("turn_interrupted", "python:talk", turn.id)
    with Keep.open(world.root) as keep:
        keep.session("talk").turn(turn.id).settle("completed")  # late, and it wins
        assert world.audit().clean
        keep.sessions()
        assert world.audit().clean


def test_a_compaction_that_nothing_will_finish_is_reported(world: HealthyKeep) -> None:
    """S3: by its deadline."""
    sid = "5f0c2d1e-0000-4000-8000-000000000001"
    said = json.dumps({"session_id": sid, "hook_event_name": "PreCompact", "trigger": "manual", "cwd": "/"}).encode()
    hook_call(world, said, age_s=2 * HOUR_S, event="PreCompact")
    with Keep.open(world.root) as keep:
        assert keep.drain()["calls"] == 1
    for indexed in (False, True):
        if indexed:
            world.index()
        [found] = world.faults()
        assert (found.cls, found.session, found.about["closing"]) == ("compaction_open", f"claude:{sid}", "timeout")
    hook_call(world, said.replace(b"PreCompact", b"PostCompact"), age_s=60, event="PostCompact")
    with Keep.open(world.root) as keep:
        keep.drain()
    assert world.audit().clean


def test_leftover_files_are_reported_once_no_process_can_be_using_them(world: HealthyKeep) -> None:
    """W10: in a journal's folder, too, before and after the index has seen it."""
    temp = "0123456789abcdef.tmp"
    paths = [f"{world.root}/{temp}", f"{world.root}/state/sources.json.{temp}", f"{world.folder}/000001.jsonl.zst.{temp}"]
    paths[0] = f"{world.root}/index.{temp}"
    for path in paths:
        Path(path).write_text("x")
    assert world.audit().clean, "somebody may be writing"
    for path in paths:
        os.utime(path, (1, 1))
    for _ in range(2):
        assert [one.about["path"] for one in world.faults()] == sorted(paths)
        world.index()


def test_files_that_other_users_can_reach_and_read_are_reported(world: HealthyKeep) -> None:
    """X1"""
    file = f"{world.root}/state"
    os.chmod(file, 0o755)
    assert world.audit().clean, "nobody else may enter the keep's folder"
    os.chmod(world.root, 0o755)
    assert {one.about["path"] for one in world.faults()} == {world.root, file}
    assert {one.about["wanted"] for one in world.faults()} == {0o700}
    assert set(world.classes()) == {"open_to_others"}


def test_a_cache_that_cannot_be_read_is_reported(world: HealthyKeep) -> None:
    """D2"""
    for said in (b"\x00garbage", b"[1]", b'{"version": 2, "sour'):
        Path(f"{world.root}/state/sources.json").write_bytes(said)
        assert world.classes() == ["state_unreadable"]
    Path(f"{world.root}/state/sources.json").write_bytes(b'{"version": 1}')
    assert world.audit().clean, "of another version: then everything is looked at again"


PAGES = {
    "whole": (b"# Mine\n<!-- dreamkeep:begin v1 -->\n- a\n<!-- dreamkeep:end -->\nmore\n", True),
    "no end": (b"<!-- dreamkeep:begin v1 -->\n- a\n", False),
    "twice": (b"<!-- dreamkeep:begin -->\n<!-- dreamkeep:end -->\n" * 2, False),
    "crossed": (b"<!-- dreamkeep:end -->\n<!-- dreamkeep:begin -->\n", False),
    "quoted": (b"`<!-- dreamkeep:begin -->` in a line\n<!-- dreamkeep:begin -->\n<!-- dreamkeep:end -->\n", True),
}


@pytest.mark.parametrize("what", PAGES)
def test_a_page_with_a_broken_fence_is_reported(world: HealthyKeep, what: str) -> None:
    """D16"""
    said, whole = PAGES[what]
    page = Path(f"{world.root}/pages/p/MEMORY.md")
    page.parent.mkdir(parents=True)
    page.write_bytes(said)
    assert world.classes() == ([] if whole else ["page_fence"])


# -- nothing is written


def everything_wrong(world: HealthyKeep) -> None:
    """One of each, each in a place of its own."""
    for n, (_, damage) in enumerate(JOURNAL_DAMAGE.values()):
        journals = JournalWriters(HOST, world.root, IDS, part_size=PART_SIZE)
        session = f"python:bad{n}"
        for m in range(40):
            say(journals, session, Kind.MESSAGE_ADDED, {"role": "user", "text": f"{m} " + "x" * 200})
        journals.close()
        damage(f"{world.root}/{folder_of(session)}")
    keep = JournalWriters(HOST, world.root, IDS, part_size=PART_SIZE)
    say(keep, "", Kind.SESSION_DELETED, {"session": "python:q"})
    keep.close()
    append_half_a_frame(f"{world.root}/{KEEP}")
    old = Path(f"{world.root}/state/z.0123456789abcdef.tmp")
    old.write_text("x")
    os.utime(old, (1, 1))
    Path(f"{world.root}/{OWNERS}").mkdir(exist_ok=True)
    Path(f"{world.root}/{OWNERS}/gone").write_text("")
    Path(f"{world.root}/state/sources.json").write_text("no JSON")
    hook_call(world, b"x", age_s=2 * HOUR_S)
    Path(f"{world.root}/spool/problems").write_text("no space\n")
    Path(f"{world.root}/spool/what").write_text("?")
    Path(f"{world.root}/state/deleting").mkdir(exist_ok=True)
    Path(f"{world.root}/state/deleting/q").write_text("python:q")
    Path(f"{world.root}/state/deleting/r").write_text("python:r")
    page = Path(f"{world.root}/pages/p/MEMORY.md")
    page.parent.mkdir(parents=True)
    page.write_text("no fence")
    stray = Path(f"{world.root}/journal/sessions/stray.txt")
    stray.write_text("?")
    Path(f"{world.root}/journal/sessions/python/_index.json").write_text("[1, 2]")


#: What `everything_wrong` must give, with how often.
ALL_WRONG = {
    **{cls: sum(one == cls for one, _ in JOURNAL_DAMAGE.values()) for cls, _ in JOURNAL_DAMAGE.values()},
    "leftover": 2,
    "lease_stale": 1,
    "state_unreadable": 1,
    "spool_waiting": 1,
    "spool_unreadable": 1,
    "hook_lost": 1,
    "tombstone_unfinished": 1,
    "page_fence": 1,
}


def counted(found: list[Fault]) -> dict[str, int]:
    return {cls: sum(one.cls == cls for one in found) for cls in sorted({one.cls for one in found})}


@pytest.mark.parametrize("index", ["there", "gone", "garbage", "in use"])
@pytest.mark.parametrize("deep", [False, True])
def test_an_audit_writes_nothing_anywhere(world: HealthyKeep, index: str, deep: bool) -> None:
    """B9: every byte, every name and every time of the keep is as it was, whatever is wrong and however the index lies there."""
    everything_wrong(world)
    other = None
    if index == "gone":
        os.remove(f"{world.root}/index.sqlite")
    elif index == "garbage":
        Path(f"{world.root}/index.sqlite").write_bytes(b"garbage" * 999)
    elif index == "in use":
        # In another process: SQLite shares its -shm within one.
        code = "import apsw, sys; db = apsw.Connection(sys.argv[1]); db.execute(sys.argv[2]); print(1, flush=True); input()"
        words = [sys.executable, "-c", code, f"{world.root}/index.sqlite", "INSERT INTO tombstones VALUES ('python:x', '')"]
        other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert other.stdout and other.stdout.readline() and os.path.exists(f"{world.root}/index.sqlite-wal")
    before = tree(world.root, world.home)
    assert not world.audit(deep=deep).clean
    assert tree(world.root, world.home) == before
    if other:
        other.communicate("\n", timeout=60)


def test_an_audit_of_a_folder_without_a_keep_creates_none(root: str, tmp_path: Path) -> None:
    report = HealthyKeep(root, tmp_path).audit()
    assert report.clean and not os.path.exists(root)


_WRITES = (
    "write,pwrite64,writev,pwritev,pwritev2,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,"
    "mkdir,mkdirat,rmdir,truncate,ftruncate,fallocate,chmod,fchmod,fchmodat,chown,fchown,fchownat,utimensat,fsync,fdatasync"
)


def test_no_system_call_of_an_audit_writes(world: HealthyKeep, tmp_path: Path) -> None:
    """B9: no file is opened for writing, nothing is made, renamed, cut or taken away; only its answer is written."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace on this machine")
    everything_wrong(world)
    trace = tmp_path / "trace"
    names = ",".join(f"?{name}" for name in f"open,openat,creat,{_WRITES}".split(","))
    words = [
        sys.executable,
        "-B",
        "-m",
        "dreamkeep",
        "--keep",
        world.root,
        "audit",
        "--json",
        "--deep",
        "--home",
        str(world.home),
    ]
    strace = ["strace", "-f", "-y", "-qq", "-s", "300", "-o", str(trace), "-e", f"trace={names}"]
    done = subprocess.run([*strace, *words, "--home", str(world.home)], capture_output=True, text=True, timeout=120)
    if done.returncode != 1:
        pytest.skip(f"strace can't trace here: {done.stderr[:200]}")
    assert json.loads(done.stdout)["faults"]
    calls = [line.partition(" ")[2].strip() for line in trace.read_text().splitlines()]
    opened = [call for call in calls if call.startswith(("open", "creat"))]
    assert any(world.root in call for call in opened)
    writing = [call for call in opened if "O_WRONLY" in call or "O_RDWR" in call or "O_CREAT" in call or call.startswith("creat")]
    others = [call for call in calls if not call.startswith(("open", "creat", "write(1<", "write(2<"))]
    assert [call for call in writing if "/dev/" not in call] == []
    assert [call for call in others if not call.startswith(("+++", "---", "<..."))] == []


# -- little is read


def test_a_clean_second_audit_opens_no_journal_and_a_change_only_that_one(world: HealthyKeep) -> None:
    """B5: the cost is proportional to what changed."""
    world.fill(sessions=20)
    host = Watching()
    report = world.audit(host=host)
    assert report.clean and host.parts() == [] and (report.checked["journals"], report.checked["read"]) == (22, 0)
    with Keep.open(world.root) as keep:
        keep.session("s7").record("news")
    changed = f"{world.root}/{folder_of('python:s7')}"
    report = world.audit(host=host)
    assert report.clean and report.checked["read"] == 1
    assert set(host.parts()) == {str(part(changed, last_part(changed)))}
    host.opened.clear()
    assert world.audit(host=host, deep=True).clean
    assert len(set(host.parts())) == sum(len(parts.numbers(HOST, f.path)) for f in journal_folders(world.root))


def journal_folders(root: str) -> Iterator[os.DirEntry[str]]:
    yield from (entry for entry in os.scandir(f"{root}/journal") if entry.name == "keep")
    yield from os.scandir(f"{root}/journal/sessions/python")


def test_a_compressed_part_is_not_audited_again(world: HealthyKeep) -> None:
    """J7: its bytes are the same; the checksum says so, in whichever form they lie there."""
    with Keep.open(world.root) as keep:
        assert keep.compress(everything=True) > 10
    for deep in (False, True, False):
        assert world.audit(deep=deep).clean
        world.index()


def test_a_deep_audit_finds_a_flipped_bit_in_a_file_with_an_unchanged_time(world: HealthyKeep) -> None:
    """W4: same size, same time, same inode; other bytes."""
    for number in (1, last_part(world.folder)):
        file = part(world.folder, number)
        data, at = bytearray(file.read_bytes()), file.stat()
        data[-100] ^= 1
        with file.open("r+b") as out:
            out.write(data)
        os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert world.audit().clean
    found = world.faults(deep=True)
    end = last_part(world.folder)
    # The last frame was no unfinished append: the index knows it.
    assert [(one.cls, one.about.get("part")) for one in found] == [
        ("journal_damage", 1),
        ("journal_missing_part", end),
        ("journal_tail", end),
    ]


# -- one bad thing hides nothing


def test_every_kind_of_damage_is_found_among_a_hundred_good_sessions(world: HealthyKeep) -> None:
    """B1 B2 B3 T8 T11 W4: all damage is reported, every good session is there, and none of them is reported."""
    world.fill(sessions=100, messages=5)
    everything_wrong(world)
    for memory in ("known", "indexed", "none"):
        if memory == "indexed":
            world.index()
        if memory == "none":
            os.remove(f"{world.root}/index.sqlite")
        for deep in (False, True):
            report = world.audit(deep=deep)
            found = counted(report.faults)
            # strays, but a file for a folder is a loss that the witness knows of; the keep's own
            extra = {"journal_unreadable": 1, "journal_tail": 1, "journal_missing_part": 1}
            wanted = {cls: count + extra.get(cls, 0) for cls, count in ALL_WRONG.items()}
            assert found == dict(sorted(wanted.items())), (memory, deep)
            assert not [one for one in report.faults if one.session.startswith("python:s")]
            assert [one.cls for one in report.faults] == sorted(one.cls for one in report.faults)
            assert len({one.id for one in report.faults}) == len(report.faults)
    with Keep.open(world.root) as keep:
        assert {f"python:s{n}" for n in range(100)} <= {one.id for one in keep.sessions()}


class RefusingHost(Noticing):
    """May not look at some things: as another user."""

    def __init__(self, *refused: str) -> None:
        self._refused = refused

    def notice(self, path: str) -> None:
        if path.endswith(self._refused):
            raise PermissionError(13, "Permission denied", path)

    def names(self, folder: str) -> list[str]:
        self.notice(folder)
        return super().names(folder)

    def stat(self, path: str) -> Any:
        self.notice(path)
        return super().stat(path)


@pytest.mark.parametrize(
    ("refused", "cls"),
    [
        ("/journal/sessions/python", "journal_unreadable"),
        (f"{folder_of('python:s0')}/000001.jsonl", "journal_unreadable"),
        (folder_of("python:s0"), "journal_unreadable"),
        ("/journal/keep/000001.jsonl", "journal_unreadable"),
        ("/spool", "spool_unreadable"),
        ("/state/owners", "state_unreadable"),
        ("/pages", "page_fence"),
        ("/index.sqlite", "index_unusable"),
        ("/state/sources.json", "state_unreadable"),
    ],
)
def test_an_unreadable_part_of_the_keep_is_a_fault_and_the_rest_is_audited(world: HealthyKeep, refused: str, cls: str) -> None:
    """B2 B3 B7: unreadable is not "empty"."""
    for folder in ("spool", "pages", "state/owners"):
        Path(f"{world.root}/{folder}").mkdir(exist_ok=True)
    Path(f"{world.root}/state/sources.json").write_text("{}")
    flip_bit(f"{world.root}/{folder_of('python:s1')}")
    found = counted(world.audit(deep=True, host=RefusingHost(refused)).faults)
    assert cls in found
    assert "journal_damage" in found or refused == "/journal/sessions/python"
    assert set(found) <= {cls, "journal_damage", "leftover", "state_unreadable"}


# -- others are at work


def test_a_journal_whose_first_frame_is_being_written_is_not_a_fault(world: HealthyKeep) -> None:
    """B7: a writer creates the file, then writes; in between nothing shows which session it belongs to."""
    world.audit()
    folder = Path(world.root, folder_of("python:fresh"))
    folder.mkdir(parents=True, mode=0o700)
    for name in (parts.LOCK, parts.name(1)):
        (folder / name).touch(mode=0o600)
    with (folder / parts.LOCK).open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert world.audit().clean
    assert [one.cls for one in world.audit().faults] == ["journal_unreadable"], "nobody is at it, and nobody will be"


def test_a_journal_that_was_never_indexed_is_not_missed_when_it_is_removed(world: HealthyKeep) -> None:
    """B7: it was looked at between its making and its first frame, and deleted since."""
    with Keep.open(world.root, environment={}) as keep:
        keep.session("fresh").record("hello")
        keep.sessions()
    shutil.rmtree(Path(world.root, folder_of("python:fresh")))
    assert [one.cls for one in world.audit().faults] == ["journal_missing_part"]
    db = apsw.Connection(f"{world.root}/index.sqlite")
    db.execute("UPDATE places SET part = 1, offset = 0, seq = 0, crc = '00000000' WHERE session = 'python:fresh'")
    db.close()
    witness.forget(HOST, world.root, [folder_of("python:fresh")])
    assert world.audit().faults == []


def test_an_audit_beside_writers_reports_no_false_fault(world: HealthyKeep) -> None:
    """T2 B7: appends, rotations, compressions, deletions, an index that is followed and thrown away, all the time."""
    stop = Path(f"{world.home}/stop")
    code = f"""
import os, sys
from dreamkeep import Keep
from dreamkeep.errors import Deleted, NotFound
def work(n, keep):
    session = keep.session(f"w{{n % 5}}")
    for _ in range(20):
        with session.submit("prompt") as turn:
            turn.add("assistant", "x" * 3000)
    if n % 7 == 0:
        keep.compress(everything=True)
    if n % 3 == 0:
        keep.sessions()
    if n % 11 == 0:
        keep.reindex(from_zero=True)
    if n % 13 == 0:
        keep.delete("w1")
        keep.undelete("w1")
n = 0
while not os.path.exists({str(stop)!r}):
    n += 1
    try:
        with Keep.open({world.root!r}) as keep:
            work(n, keep)
    except (Deleted, NotFound):
        pass  # the other one was faster
print(n)
"""
    workers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        until = time.monotonic() + 8
        rounds = 0
        while time.monotonic() < until or rounds < 6:
            report = world.audit(deep=rounds % 3 == 2)
            assert report.clean, report.faults
            rounds += 1
    finally:
        stop.write_text("")
        told = [worker.communicate(timeout=60)[0] for worker in workers]
    assert all(int(one) > 3 for one in told), "they wrote"
    assert world.audit(deep=True).clean


def test_a_tail_that_a_live_writer_is_writing_is_not_a_fault(world: HealthyKeep) -> None:
    """J4: a half-written frame is checked again under the writer's lock."""
    file = part(world.folder, last_part(world.folder))
    whole = file.read_bytes()
    file.write_bytes(whole[:-50])
    handle = HOST.open_lock(f"{world.folder}/lock")
    assert HOST.try_lock(handle)

    def finish() -> None:
        time.sleep(0.2)
        file.write_bytes(whole)
        HOST.close(handle)

    writer = threading.Thread(target=finish)
    writer.start()
    found = world.faults()
    writer.join()
    assert [one.cls for one in found if one.cls != "index_drift"] == []


@pytest.mark.parametrize("index", ["follows", "stays behind", "is not there"])
def test_a_session_deleted_during_its_audit_is_not_a_fault(world: HealthyKeep, index: str) -> None:
    """K2: between asking who is deleted and looking at his journal."""
    if index == "is not there":
        os.remove(f"{world.root}/index.sqlite")

    def delete() -> None:
        with Keep.open(world.root) as keep:
            if index == "stays behind":
                keep.context.journals().say("", Kind.SESSION_DELETED, {"session": "python:s1"})
                shutil.rmtree(f"{world.root}/{folder_of('python:s1')}")
            else:
                keep.delete("s1")

    assert world.audit(host=MeddlingHost(delete)).clean


def test_a_journal_compressed_during_its_audit_is_not_a_fault(world: HealthyKeep) -> None:
    def compress() -> None:
        with Keep.open(world.root) as keep:
            keep.compress(everything=True)

    for deep in (True, False):
        assert world.audit(host=MeddlingHost(compress), deep=deep).clean


class ForgetfulHost(RealHost):
    """The first attempt to open one file finds it missing."""

    def __init__(self, path: str) -> None:
        self._missing: set[str] = {path}

    def open_stream(self, path: str) -> BinaryIO:
        if path in self._missing:
            self._missing.discard(path)
            raise FileNotFoundError(2, "No such file", path)
        return super().open_stream(path)


def test_a_file_that_is_missing_for_a_moment_is_checked_again(world: HealthyKeep) -> None:
    os.remove(f"{world.root}/index.sqlite")
    path = str(part(world.folder, 1))
    host = ForgetfulHost(path)
    assert world.audit(host=host).clean and not host._missing


def test_an_index_that_changes_while_it_is_read_is_asked_again(world: HealthyKeep) -> None:
    """B7: read without a lock, it may have been half of one moment and half of the next."""
    calls = []

    def ask(store: Any) -> int:
        calls.append(len(store.places()))
        if len(calls) == 1:
            with Keep.open(world.root) as keep:
                keep.session("one more").record("x")
                keep.sessions()
        return calls[-1]

    assert peek(HOST, world.root, ask) == calls[0] + 1 and len(calls) == 2


# -- handles


def _handles() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no /proc here")
@pytest.mark.parametrize("times", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_handles_do_not_pile_up(world: HealthyKeep, times: int) -> None:
    """B6: with an index, with a damaged one, with faults of every kind."""
    everything_wrong(world)
    world.audit()
    before = _handles()
    data = Path(f"{world.root}/index.sqlite").read_bytes()
    for n in range(times):
        if n == times // 2:
            Path(f"{world.root}/index.sqlite").write_bytes(b"garbage" * 999)
        world.audit(deep=n % 5 == 0)
    Path(f"{world.root}/index.sqlite").write_bytes(data)
    assert _handles() == before


# -- the surface


def test_the_command_reports_by_exit_code_text_and_json(world: HealthyKeep, cli: Callable[..., Ran]) -> None:
    """U1"""
    clean = cli("audit", "--home", str(world.home))
    assert (clean.code, clean.err) == (0, "") and ": no problems." in clean.out
    flip_bit(world.folder)
    told = cli("audit", "--deep", "--home", str(world.home))
    assert told.code == 1 and "journal_damage" in told.out and "→" in told.out and ": 1 problem." in told.out
    data = cli("audit", "--json", "--home", str(world.home))
    assert data.code == 1 and data.json["clean"] is False
    assert {"id", "class", "where", "what", "repairable", "next"} <= set(data.json["faults"][0])
    with Keep.open(world.root) as keep:
        assert keep.audit(home=world.home) == data.json


def test_an_audit_starts_no_drainer(world: HealthyKeep, cli: Callable[..., Ran]) -> None:
    """B9: any other command would."""
    hook_call(world, b'{"session_id":"a","cwd":"/"}', age_s=5)
    assert cli("audit", "--home", str(world.home)).code == 0
    time.sleep(0.5)
    assert not os.path.exists(f"{world.root}/state/drain.log")
    assert len(os.listdir(f"{world.root}/spool")) == 1


def test_a_folder_without_a_keep_is_reported_as_such(tmp_path: Path) -> None:
    """A wrong --keep must not look like a clean audit: the JSON alone must show it."""
    said: list[str] = []
    with Keep.open(tmp_path / "typo", environment={}) as keep:
        keep.warn = said.append
        found = keep.audit(home=tmp_path / "home")
        told = [(one["class"], one["where"], "no keep" in one["what"]) for one in found["notices"]]
        assert found["clean"] and told == [("no_keep", str(tmp_path / "typo"), True)]
        assert keep.repair(apply=True, home=tmp_path / "home")["audit"]["notices"] == found["notices"]
        assert len(said) == 1 and "no keep" in said[0] and not (tmp_path / "typo").exists()
        keep.session("s").record("one")
        assert keep.audit(home=tmp_path / "home")["notices"] == []


@pytest.mark.parametrize("broken", [b"nonsense = [", b"[dream]\nno_such_key = 1\n", None])
def test_invalid_settings_are_reported_and_hide_nothing_else(
    world: HealthyKeep, cli: Callable[..., Ran], broken: bytes | None
) -> None:
    """An audit is what one runs when things are broken. What is excluded from capture is not known then."""
    hook_call(world, b'{"session_id":"a","cwd":"/"}', age_s=7200)
    temp = Path(world.root, "state", f"sources.json.{7:016x}.tmp")
    temp.write_bytes(b"left")
    os.chmod(temp, 0o600)
    os.utime(temp, (1, 1))
    settings = Path(world.root, "keep.toml")
    settings.write_bytes(broken) if broken is not None else settings.mkdir()
    settings.chmod(0o700 if broken is None else 0o600)
    ran = cli("audit", "--home", str(world.home), "--json")
    told = {one["class"]: one for one in ran.json["faults"]}
    assert ran.code == 1 and set(told) == {"state_unreadable", "leftover", "spool_waiting"}
    assert told["state_unreadable"]["where"] == str(settings) and not told["state_unreadable"]["repairable"]
    done = cli("repair", "--apply", "--home", str(world.home), "--json")
    assert done.code == 1 and [step["action"] for step in done.json["applied"]] == ["set_aside"]
    left = {one["fault"].partition("-")[0]: one["reason"] for one in done.json["skipped"]}
    assert set(left) == {"state_unreadable", "spool_waiting"} and all("Correct" in reason for reason in left.values())
    assert cli("status").code == 2 and settings.exists()
    settings.unlink() if broken is not None else settings.rmdir()
    assert cli("repair", "--apply", "--home", str(world.home)).code == 0
