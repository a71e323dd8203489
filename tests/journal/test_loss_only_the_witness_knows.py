"""What a journal lost and only the witness knows stays told, whatever becomes of the index: until it is accepted, comes back, or
is deleted. And nothing else is ever taken for such a loss."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.errors import NotDurable
from dreamkeep.host import RealHost
from dreamkeep.index import build
from dreamkeep.index.sqlite import VERSION, SqliteStore
from dreamkeep.journal import witness
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.witness import Sighting
from dreamkeep.recovery.repair import undo as undoing
from tests.helpers.broken_keeps import HOST, World, cut_last_frames, fire_hook, missing_part, own, shortened, turn
from tests.helpers.faults import Dying, PowerCut


@pytest.fixture
def world(root: str, tmp_path: Path) -> World:
    return World(root, tmp_path / "home")


def test_a_journal_of_which_nothing_can_be_read_is_missed_by_the_name_that_it_had(world: World) -> None:
    part = own(world)
    part.write_bytes(part.read_bytes()[:30])
    found = {fault["id"] for fault in world.audit()["faults"]}
    for again in (ask, rebuild, ask):
        again(world)
        assert {fault["id"] for fault in world.audit()["faults"]} == found


def test_a_last_frame_that_was_damaged_and_lost_its_end_is_missed_after_a_question(world: World) -> None:
    """Once its last bytes were where they had been, so that the index took a file that had shrunk for one that had only grown."""
    part = own(world)
    data = bytearray(part.read_bytes()[:-1])
    data[data.rindex(b"answer")] ^= 1
    part.write_bytes(data)
    found = {fault["class"]: fault["id"] for fault in world.audit()["faults"]}
    assert found.keys() == {"journal_missing_part", "journal_tail"}
    ask(world)
    assert {fault["class"]: fault["id"] for fault in world.audit()["faults"]} == found


def ask(world: World) -> None:
    with Keep.open(world.root) as keep:
        keep.sessions()


def rebuild(world: World) -> None:
    with Keep.open(world.root) as keep:
        keep.reindex(from_zero=True)


def write_on(world: World) -> None:
    with Keep.open(world.root) as keep:
        for n in range(5):
            keep.session("own").record(f"later {n}", ("assistant", "so it is"))
            keep.sessions()


def upgrade(world: World) -> None:
    """The index was made by a program before this one, which knew no witness."""
    db = apsw.Connection(f"{world.root}/index.sqlite")
    db.pragma("user_version", VERSION - 1)
    db.close()
    os.remove(f"{world.root}/{witness.FILE}")
    os.remove(f"{world.root}/{witness.LOCK}")
    ask(world)


def lose(world: World) -> None:
    """The index is a view: it may be thrown away."""
    os.remove(f"{world.root}/index.sqlite")


def move(world: World) -> None:
    """Another folder, with other times and inodes."""
    shutil.copytree(world.root, f"{world.root}-copy")
    shutil.rmtree(world.root)
    os.rename(f"{world.root}-copy", world.root)
    ask(world)


def die_in_between(world: World) -> None:
    """A rebuilding that is killed when it has thrown away what it knew."""
    with Keep.open(world.root) as keep:
        keep.progress = killed
        keep.context.with_index(lambda store: store.clear(), follow=False)


def killed(done: int, total: int) -> None:
    raise KeyboardInterrupt


ASKED: dict[str, Callable[[World], None]] = {
    "asked": ask,
    "rebuilt": rebuild,
    "written to": write_on,
    "upgraded": upgrade,
    "copied": move,
    "rebuilding was killed": die_in_between,
    "thrown away": lose,
}


def missed(world: World) -> list[Sighting]:
    """What the witness saw, and is not where it was seen."""
    seen = witness.load(HOST, world.root).seen.values()
    return [one for found in seen for one in found if not witness.is_there(HOST, world.root, one)]


def told(world: World) -> list[dict[str, Any]]:
    found = world.audit()["faults"]
    assert world.audit(deep=True)["faults"] == found
    return [fault for fault in found if fault["class"] == "journal_missing_part"]


@pytest.mark.parametrize("how", ASKED)
def test_what_a_journal_lost_is_told_until_it_is_accepted_also_when_something_was_asked_since(world: World, how: str) -> None:
    cut_last_frames(own(world))
    [lost] = told(world)
    ASKED[how](world)
    [still] = told(world)
    assert still["id"] == lost["id"] and not still["repairable"]
    for again in (ask, rebuild, write_on):
        again(world)
    assert [fault["id"] for fault in told(world)] == [lost["id"]]
    done = world.repair(accept=[lost["id"]])
    assert done["audit"]["clean"]
    assert [fault["id"] for fault in world.repair(undo=done["undo_id"])["audit"]["faults"]] == [lost["id"]]
    world.repair(accept=[lost["id"]])
    write_on(world)
    rebuild(world)
    assert told(world) == []


@pytest.mark.parametrize("how", ASKED)
def test_a_journal_that_is_whole_is_never_said_to_have_lost_something(world: World, how: str) -> None:
    own(world)
    world.captured()
    ask(world)
    ASKED[how](world)
    assert world.audit()["clean"] and world.audit(deep=True)["clean"]
    ask(world)
    assert world.audit()["clean"] and missed(world) == []


@pytest.mark.parametrize("which", ["own", "keep"])
def test_a_whole_journal_that_is_gone_stays_told(world: World, which: str) -> None:
    own(world)
    shutil.rmtree(Path(world.root, KEEP) if which == "keep" else world.folder("python:own"))
    [lost] = told(world)
    for again in (ask, ask) if which == "keep" else (ask, rebuild, ask):
        again(world)
        assert [fault["id"] for fault in told(world)] == [lost["id"]]


def test_the_end_of_the_keeps_own_journal_stays_told(world: World) -> None:
    own(world)
    with Keep.open(world.root) as keep:
        keep.note_add("prices are integers")
        keep.notes()
    cut_last_frames(Path(world.root, KEEP, "000001.jsonl"))
    [lost] = told(world)
    ask(world)
    with Keep.open(world.root) as keep:
        keep.note_add("other notes")
        keep.notes()
    rebuild(world)
    assert [fault["id"] for fault in told(world)] == [lost["id"]]


@pytest.mark.parametrize("asked", [False, True])
def test_what_came_back_is_not_told_any_more(world: World, asked: bool) -> None:
    """A backup that was put in its place, for instance."""
    part = own(world)
    before = cut_last_frames(part)
    ask(world)
    part.write_bytes(before)
    if asked:
        ask(world)
    assert world.audit()["clean"] and world.audit(deep=True)["clean"] and missed(world) == []
    part.write_bytes(b"".join(before.splitlines(keepends=True)[:-2]))
    ask(world)
    lines = before.splitlines(keepends=True)
    with part.open("ab") as file:
        file.writelines(lines[-2:])  # only what was missing is appended
    ask(world)
    assert world.audit()["clean"] and missed(world) == []


@pytest.mark.parametrize("grown", [0, 2])
@pytest.mark.parametrize("asked", [False, True])
def test_what_an_ingest_took_again_from_its_file_is_no_loss(world: World, asked: bool, grown: int) -> None:
    shortened(world)
    if asked:
        ask(world)
        assert len(told(world)) == 1
    world.grow(100, grown)
    with Keep.open(world.root) as keep:
        assert not [one.problem for one in keep.ingest(home=world.home, again=not grown) if one.problem]
    assert world.rejoined() == world.transcript.read_bytes() and told(world) == []
    ask(world)
    assert told(world) == [] and missed(world) == []


def test_a_repair_takes_again_what_a_file_holds_also_when_something_was_asked_since(world: World) -> None:
    missing_part(world)
    world.repair(apply=True)
    said = world.messages()
    [*_, last] = sorted(world.folder().glob("*.jsonl"))
    last.unlink()
    ask(world)
    [lost] = told(world)
    assert lost["repairable"]
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and world.messages() == said and missed(world) == []
    assert world.audit(deep=True)["clean"]
    ask(world)
    assert world.audit()["clean"]


@pytest.mark.parametrize("hooked", [False, True])
def test_lines_are_taken_again_and_where_hooks_spoke_the_loss_stays_told(world: World, hooked: bool) -> None:
    """What capture remembers brings the lines back; whether a hook's words were lost with them, only the user may know."""
    world.captured(3, 3)
    if hooked:
        fire_hook(world, "told by a hook")
    world.grow(6, 3)
    world.ingest()
    said = world.messages()
    lines = world.part().read_bytes().splitlines(keepends=True)
    world.part().write_bytes(b"".join(lines[:-1]))
    rebuild(world)
    assert sorted(fault["repairable"] for fault in told(world)) == ([False, True] if hooked else [True])
    done = world.repair(apply=True)
    assert world.rejoined() == world.transcript.read_bytes() and world.messages() == said
    left = told(world)
    assert done["audit"]["faults"] == left and len(left) == hooked
    if hooked:
        done = world.repair(accept=[left[0]["id"]])
    assert done["audit"]["clean"] and world.audit(deep=True)["clean"]


def test_a_snapshot_brings_back_what_was_lost_also_when_something_was_asked_since(world: World, tmp_path: Path) -> None:
    part = own(world)
    with Keep.open(world.root) as keep:
        keep.export(tmp_path / "whole")
    cut_last_frames(part)
    ask(world)
    assert len(told(world)) == 1
    with Keep.open(world.root) as keep:
        assert keep.export(tmp_path / "less")["problems"], "an export tells what is not in it"
        keep.import_(tmp_path / "less")
        assert len(told(world)) == 1
        keep.import_(tmp_path / "whole")
        assert len(keep.show("own")["messages"]) == 8
    assert told(world) == [] and missed(world) == []


@pytest.mark.parametrize("gone", [False, True])
def test_nothing_is_missed_of_a_session_that_was_deleted(world: World, gone: bool) -> None:
    part = own(world)
    with Keep.open(world.root) as keep:
        keep.session("stays").record("another one")
    cut_last_frames(part)
    if gone:
        shutil.rmtree(part.parent)
    ask(world)
    assert len(told(world)) == 1
    with Keep.open(world.root) as keep:
        keep.delete("python:own")
    assert world.audit()["clean"] and missed(world) == []
    for again in (ask, rebuild):
        again(world)
        assert world.audit()["clean"]
    with Keep.open(world.root) as keep:
        keep.undelete("python:own")
    rebuild(world)
    assert world.audit()["clean"]


def test_a_loss_after_a_deletion_was_lifted_outlives_another_deletion(world: World) -> None:
    """All tombstones are read again then; those that were known before speak of nothing that was missed since."""
    own(world)
    with Keep.open(world.root) as keep:
        keep.session("other").record("to be deleted")
        keep.delete("python:own")
        keep.undelete("python:own")
    cut_last_frames(own(world))
    ask(world)
    [lost] = told(world)
    with Keep.open(world.root) as keep:
        keep.delete("other")
        keep.sessions()
    assert [fault["id"] for fault in told(world)] == [lost["id"]]


# -- what an undo takes off a journal is no loss


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_what_an_undo_took_off_is_not_missed(world: World, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows the journals meanwhile (a watcher, say) has read the frames of the repair."""
    turn(world)
    ask(world)
    before = world.audit()["faults"]
    done = world.repair(apply=True)
    ask(world)
    if when == "between":
        cut_back = undoing._Undo._cut_back

        def and_ask(self: Any, *given: Any) -> None:
            cut_back(self, *given)
            ask(world)

        monkeypatch.setattr(undoing._Undo, "_cut_back", and_ask)
    back = world.repair(undo=done["undo_id"])
    assert back["skipped"] == [] and back["audit"]["faults"] == before
    if when == "after":
        ask(world)
    rebuild(world)
    assert world.audit()["faults"] == before and missed(world) == []


def test_what_an_undo_that_died_took_off_is_not_missed(tmp_path: Path) -> None:
    """At any step; and somebody asks before it is run again."""
    for at in range(1, 200):
        world = World(str(tmp_path / f"keep{at}"), tmp_path / f"home{at}")
        turn(world)
        ask(world)
        before = [fault["id"] for fault in world.audit()["faults"]]
        done = world.repair(apply=True)
        ask(world)
        host = Dying(at)
        try:
            with Keep.open(world.root, host=host) as keep:
                keep.repair(undo=done["undo_id"], home=world.home)
            died = False
        except PowerCut:
            died = True
        lost = [fault for fault in world.audit()["faults"] if fault["class"] == "journal_missing_part"]
        assert lost == [], at
        ask(world)
        assert [fault for fault in world.audit()["faults"] if fault["class"] == "journal_missing_part"] == [], at
        world.repair(undo=done["undo_id"])
        assert [fault["id"] for fault in world.audit()["faults"]] == before, at
        shutil.rmtree(Path(world.root, "aside"))
        assert [fault["id"] for fault in world.audit()["faults"]] == before, at
        shutil.rmtree(world.root)
        if not died:
            break
    else:
        pytest.fail("it never came to its end")


# -- the index


def test_two_that_follow_at_once_miss_a_frame_only_if_it_is_gone(world: World) -> None:
    """One meets it in its first batch, and is overtaken by the other, who has begun behind it."""
    with Keep.open(world.root) as keep:
        for n in range(3):
            keep.session("own").record(f"question {n}", ("assistant", "x" * 5_000_000))
            keep.sessions()
        keep.session("own").record("more", ("assistant", "y" * 5_000_000))
        keep.context.with_index(lambda store: store.clear(), follow=False)
    one, other = (SqliteStore(f"{world.root}/index.sqlite") for _ in range(2))
    name = folder_of("python:own")
    readings = [build._follow_session(HOST, world.root, store, name, "python:own") for store in (one, other)]
    for _ in range(20):
        for reading in readings:
            next(reading, None)
    one.close()
    other.close()
    assert world.audit()["clean"] and missed(world) == []


@pytest.mark.parametrize("how", ["forgotten", "cleared"])
def test_who_waited_while_others_read_a_journal_and_forgot_it_misses_none_of_its_frames(world: World, how: str) -> None:
    """Several ask at once about a journal in which something is odd: each reads it, forgets it, and reads it from zero."""
    own(world)
    with Keep.open(world.root) as keep:
        keep.context.with_index(lambda store: store.forget(folder_of("python:own")), follow=False)
    one, other = (SqliteStore(f"{world.root}/index.sqlite") for _ in range(2))
    name = folder_of("python:own")
    waits = build._Stretch(HOST, f"{world.root}/{name}", one, name, "python:own", None)
    list(build._follow_session(HOST, world.root, other, name, "python:own"))
    if how == "cleared":
        with other.writing():
            other.clear()
    else:
        build._forget(other, name)
    list(waits.read())
    one.close()
    other.close()
    assert world.audit()["clean"] and missed(world) == []


def test_who_waited_while_others_read_the_keeps_own_journal_and_forgot_it_misses_none_of_its_frames(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion lets it be read anew."""
    own(world)
    with Keep.open(world.root) as keep:
        keep.context.with_index(lambda store: store.forget(KEEP), follow=False)
    one, other = (SqliteStore(f"{world.root}/index.sqlite") for _ in range(2))
    read = build._scan_keep

    def and_others_do(*given: Any) -> Any:
        found = read(*given)
        monkeypatch.setattr(build, "_scan_keep", read)
        build.follow_keep(HOST, world.root, other)
        build._forget(other, KEEP)
        return found

    monkeypatch.setattr(build, "_scan_keep", and_others_do)
    build.follow_keep(HOST, world.root, one)
    one.close()
    other.close()
    assert world.audit()["clean"] and missed(world) == []


class Failing(RealHost):
    """A disk that fails slowly enough for somebody to ask meanwhile. `how`: "sync", or "full" after the first line of a write."""

    def __init__(self, root: str, how: str) -> None:
        self.root, self.how, self.torn = root, how, False
        self.asking: list[threading.Thread] = []

    def _asked(self) -> None:
        self.asking.append(threading.Thread(target=lambda: Keep.open(self.root).sessions()))
        self.asking[-1].start()
        time.sleep(0.3)

    def write(self, handle: int, data: bytes) -> int:
        if self.how == "full" and self.torn:
            self._asked()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.how == "full" and 0 < (first := data.find(b"\n") + 1) < len(data):
            self.torn = True
            return super().write(handle, data[:first])
        return super().write(handle, data)

    def sync(self, handle: int) -> None:
        if self.how == "sync":
            self._asked()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(handle)


@pytest.mark.parametrize("how", ["sync", "full"])
def test_what_a_writer_took_back_because_the_disk_failed_is_not_missed_by_who_read_it_meanwhile(world: World, how: str) -> None:
    own(world)
    host = Failing(world.root, "")
    with Keep.open(world.root, host=host) as keep:
        session = keep.session("own")
        session.record("this is safe")
        host.how = how
        with pytest.raises(NotDurable):
            session.record("and this is not", ("assistant", "x" * 3_000_000))
        host.how = ""
        for one in host.asking:
            one.join()
        assert host.asking and told(world) == [] and missed(world) == []
        session.record("again")
    ask(world)
    assert told(world) == [] and missed(world) == []
