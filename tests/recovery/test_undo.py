"""Undoing repairs: every byte comes back, whatever dies in between, and nothing that changed since is overwritten."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.errors import DreamkeepError, NotFound
from dreamkeep.event import Ids, Kind
from dreamkeep.host import Host, RealHost, make_folders, read_file, replace_file
from dreamkeep.journal import parts
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import read_events
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.repair import ledger, undo
from dreamkeep.recovery.repair.ledger import Ledger, NotedJournals, marked_ids
from tests.helpers.faults import FragileHost, PowerCut, cut_at_every_step

ROOT = "/keep"
SESSION = "python:a"


@contextmanager
def at_work(host: Host, root: str, part_size: int | None = None) -> Iterator[tuple[Ledger, NotedJournals]]:
    undo_id = Ids(host.now, host.random).new()
    notes = Ledger(host, root, undo_id)
    journals = NotedJournals(host, root, marked_ids(host, undo_id), notes)
    if part_size:
        journals._part_size = part_size
    yield notes, journals
    journals.close()
    notes.finish()
    notes.close()


def say(journals: JournalWriters, *texts: str, session: str = SESSION) -> None:
    for text in texts:
        journals.say(session, Kind.MESSAGE_ADDED, {"role": "user", "text": text})


def recorded(host: Host, *texts: str, root: str = ROOT, part_size: int = 1 << 20) -> JournalWriters:
    """A journal as some process left it."""
    make_folders(host, root)
    journals = JournalWriters(host, root, Ids(host.now, host.random), part_size=part_size)
    say(journals, *texts)
    journals.close()
    return journals


def texts(host: Host, root: str = ROOT) -> list[str]:
    found = read_events(host, f"{root}/{folder_of(SESSION)}")
    return [event.body["text"] for _, event in found if event.kind == Kind.MESSAGE_ADDED]


def tree(host: Host, top: str, without: tuple[str, ...] = ("aside", "state", "lock")) -> dict[str, bytes | None]:
    """Every file below, by its bytes; folders as None."""
    found: dict[str, bytes | None] = {}
    for name in sorted(host.names(top)):
        path = f"{top}/{name}"
        at = host.stat(path)
        assert at is not None
        if name in without:
            continue  # what a repair set aside stays; the length of a lock is only a hint
        if at.is_folder:
            found[path] = None
            found |= tree(host, path, without)
        else:
            found[path] = read_file(host, path)
    return found


def refused(steps: list[undo.UndoStep]) -> dict[str, str]:
    return {step.where: step.reason for step in steps if step.reason}


# -- files


def test_replaced_removed_and_published_files_come_back_byte_for_byte_with_their_modes(tmp_path: Path) -> None:
    """W2, W3: what is replaced is kept first, and a later copy never takes the place of an earlier one."""
    host, root = RealHost(), str(tmp_path / "keep")
    make_folders(host, root)
    for name, data in (("a", b"old a \0\xff"), ("b", b"old b"), ("empty", b"")):
        replace_file(host, f"{root}/{name}", data)
    os.chmod(f"{root}/a", 0o644)
    before = tree(host, root)
    with at_work(host, root) as (notes, _):
        assert notes.replace(f"{root}/a", b"new").mended and notes.replace(f"{root}/a", b"newer").mended
        assert notes.remove(f"{root}/b").mended and notes.remove(f"{root}/empty").mended
        assert notes.publish(f"{root}/c", b"c").mended
        assert notes.set_mode(f"{root}/a", 0o600).mended
    assert {p.name: p.read_bytes() for p in Path(root).iterdir() if p.is_file()} == {"a": b"newer", "c": b"c"}
    assert refused(undo.undo(host, root, notes.id)) == {}
    assert tree(host, root) == before and os.stat(f"{root}/a").st_mode & 0o777 == 0o644
    assert refused(undo.undo(host, root, notes.id)) == {}, "undoing twice is undoing once"
    assert tree(host, root) == before


def test_what_changed_since_the_repair_is_refused_with_its_reason_and_the_others_come_back(tmp_path: Path) -> None:
    """K4: nothing newer is lost by going back."""
    host, root = RealHost(), str(tmp_path)
    for name in "abc":
        replace_file(host, f"{root}/{name}", b"old " + name.encode())
    with at_work(host, root) as (notes, _):
        notes.replace(f"{root}/a", b"new a")
        notes.remove(f"{root}/b")
        notes.replace(f"{root}/c", b"new c")
    Path(root, "a").write_bytes(b"newer a")
    Path(root, "b").write_bytes(b"another b")
    assert refused(undo.undo(host, root, notes.id)) == {
        f"{root}/a": "it has changed since the repair",
        f"{root}/b": "it has changed since the repair",
    }
    assert [Path(root, name).read_bytes() for name in "abc"] == [b"newer a", b"another b", b"old c"]


def test_what_appears_or_changes_meanwhile_is_left_alone_and_nothing_is_undone_for_it(tmp_path: Path) -> None:
    """W11: publishing creates or fails, and the loser reports `appeared`."""
    root = str(tmp_path)

    class Racing(RealHost):
        """Somebody else writes just before the last step."""

        def link(self, old: str, new: str) -> None:
            Path(new).write_bytes(b"theirs")
            super().link(old, new)

        def create(self, path: str) -> int:
            if path.startswith(f"{root}/changed"):
                Path(root, "changed").write_bytes(b"theirs")
            return super().create(path)

    host = Racing()
    Path(root, "changed").write_bytes(b"as it was")
    with at_work(host, root) as (notes, _):
        done = notes.publish(f"{root}/new", b"ours")
        assert not done.mended and "appeared" in done.why
        done = notes.replace(f"{root}/changed", b"ours")
        assert not done.mended and "changed" in done.why
    assert undo.undo(RealHost(), root, notes.id) == []
    assert [Path(root, name).read_bytes() for name in ("new", "changed")] == [b"theirs", b"theirs"]
    assert not [name for name in os.listdir(root) if name.endswith(".tmp")]


def test_kept_bytes_that_are_damaged_or_gone_are_not_put_back(tmp_path: Path) -> None:
    host, root = RealHost(), str(tmp_path)
    for name in "ab":
        replace_file(host, f"{root}/{name}", b"old " + name.encode())
    with at_work(host, root) as (notes, _):
        notes.replace(f"{root}/a", b"new")
        notes.replace(f"{root}/b", b"new")
    first, second = sorted(p for p in Path(notes.folder).iterdir() if p.name != "undo.json")
    first.unlink()
    second.write_bytes(b"OLD ?")
    assert len(refused(undo.undo(host, root, notes.id))) == 2
    assert Path(root, "a").read_bytes() == Path(root, "b").read_bytes() == b"new"


def test_a_repair_is_found_by_a_unique_beginning_of_its_id_and_by_nothing_else(tmp_path: Path) -> None:
    """W13: what names nothing is refused before anything happens."""
    host, root = RealHost(), str(tmp_path)
    with at_work(host, root) as (notes, _):
        notes.publish(f"{root}/a", b"a")
    assert undo.find_repair(host, root, notes.id[:20]) == notes.id
    for text in ("", "zzz", "../x"):
        with pytest.raises(NotFound):
            undo.find_repair(host, root, text)


# -- journals


def noted(host: Host, change: Callable[[JournalWriters], None], part_size: int | None = None) -> str:
    with at_work(host, ROOT, part_size) as (notes, journals):
        change(journals)
    return notes.id


def test_what_a_repair_appended_is_taken_off_a_journal_again_also_parts_and_whole_journals() -> None:
    cases: list[tuple[int, tuple[str, ...]]] = [(1 << 20, ("one", "two")), (300, ("one", "two", "three")), (1 << 20, ())]
    for part_size, said in cases:
        host = FragileHost()
        recorded(host, *said, part_size=part_size)
        before = tree(host, ROOT)

        def change(journals: JournalWriters) -> None:
            say(journals, "mended", "mended too", "x" * 300, "more")

        undo_id = noted(host, change, part_size=300)
        assert texts(host) == [*said, "mended", "mended too", "x" * 300, "more"]
        assert refused(undo.undo(host, ROOT, undo_id)) == {}
        assert texts(host) == list(said)
        after = tree(host, ROOT)
        assert {path: data for path, data in after.items() if path in before} == before
        recorded(host, "goes on")
        assert texts(host) == [*said, "goes on"]


def test_an_unfinished_append_that_was_set_aside_stands_at_the_end_again_byte_for_byte() -> None:
    for tail in (b'{"id":"torn', b"\0" * 700, b'{"id":"\xff\n\n'):
        host = FragileHost()
        recorded(host, "one")
        path = f"{ROOT}/{folder_of(SESSION)}/{parts.name(1)}"
        host._need(path).data += tail
        before = tree(host, ROOT)
        undo_id = noted(host, lambda journals: say(journals, "mended"))
        assert texts(host) == ["one", "mended"]
        assert refused(undo.undo(host, ROOT, undo_id)) == {} and tree(host, ROOT) == before


TAILS = (b'{"id":"torn', b'{"id":"', b"\0" * 700, b'{"id":"\xff\n\n')


def _went_on(tail: bytes, where: str, who: str) -> tuple[FragileHost, str, dict[str, bytes | None]]:
    """The disk was too full to set an unfinished append aside: it stayed, and the repair went on `where`."""
    host = FragileHost()
    recorded(host, "one")
    first, second = (f"{ROOT}/{folder_of(SESSION)}/{parts.name(part)}" for part in (1, 2))
    host._need(first).data += tail
    before = tree(host, ROOT)
    there = len(host._need(first).data)
    undo_id = noted(host, lambda journals: say(journals, "mended"))
    if who == "others":
        recorded(host, "theirs")
    written = bytes(host._need(first).data[there - len(tail) :])
    host._need(first).data[there - len(tail) :] = tail
    if where == "behind it":
        host._need(first).data += written
    else:
        replace_file(host, second, written)
    return host, undo_id, before


@pytest.mark.parametrize("where", ["behind it", "in a new part"])
@pytest.mark.parametrize("tail", TAILS, ids=["torn", "begun", "blank", "lines"])
def test_an_unfinished_append_left_by_a_full_disk_stops_no_undo(tail: bytes, where: str) -> None:
    """W9: it is in the ledger, so it is nothing that the repair does not know."""
    host, undo_id, before = _went_on(tail, where, "the repair alone")
    assert refused(undo.undo(host, ROOT, undo_id)) == {}
    assert tree(host, ROOT) == before
    host, undo_id, _ = _went_on(tail, where, "others")
    now = tree(host, ROOT)
    assert list(refused(undo.undo(host, ROOT, undo_id)).values()) == ["the journal has grown since the repair"]
    assert tree(host, ROOT) == now


@pytest.mark.parametrize("how", ["fail", "tear"])
def test_a_repair_that_filled_the_disk_at_any_step_of_an_append_can_be_undone(how: str) -> None:
    for part_size in (1 << 20, 300):
        for at in count(1):
            host = FragileHost()
            recorded(host, "one", "two", part_size=part_size)
            last = parts.numbers(host, f"{ROOT}/{folder_of(SESSION)}")[-1]
            host._need(f"{ROOT}/{folder_of(SESSION)}/{parts.name(last)}").data += TAILS[0]
            before = tree(host, ROOT)
            with at_work(host, ROOT, part_size) as (notes, journals):
                begun = len(host.trace)
                host.plan(at, how, errno.ENOSPC)
                for text in ("mended", "mended too"):
                    try:
                        say(journals, text)
                    except (DreamkeepError, OSError):
                        pass  # a reason in `skipped`, and the others go on
                done = host.calls < at
                host.plan(0, "cut")
            if not done and host.trace[begun + at - 1][0] == "sync":
                continue  # then the new part repeats what was in doubt, and may be the only one that has it
            assert refused(undo.undo(host, ROOT, notes.id)) == {}, (part_size, at)
            assert tree(host, ROOT) == before, (part_size, at)
            if done:
                break


def test_a_journal_that_others_appended_to_since_keeps_every_frame() -> None:
    """K4, W9: an undo takes back what the repair wrote, or nothing."""
    for tail in (b"", b'{"torn'):
        host = FragileHost()
        recorded(host, "one")
        host._need(f"{ROOT}/{folder_of(SESSION)}/{parts.name(1)}").data += tail
        undo_id = noted(host, lambda journals: say(journals, "mended"))
        recorded(host, "theirs")
        before = tree(host, ROOT)
        assert list(refused(undo.undo(host, ROOT, undo_id)).values()) == ["the journal has grown since the repair"]
        assert tree(host, ROOT) == before and texts(host) == ["one", "mended", "theirs"]


def test_a_writer_that_was_open_all_the_time_goes_on_after_an_undo() -> None:
    host = FragileHost()
    long_lived = recorded(host, "one")
    say(long_lived, "two")
    undo_id = noted(host, lambda journals: say(journals, "mended"))
    assert refused(undo.undo(host, ROOT, undo_id)) == {}
    say(long_lived, "three")
    assert texts(host) == ["one", "two", "three"]
    assert [frame["seq"] for frame in Reading(host, f"{ROOT}/{folder_of(SESSION)}")] == [1, 2, 3, 4]


def test_an_undo_of_a_damaged_or_compressed_journal_refuses_and_changes_nothing() -> None:
    """W4: content is compared, not counted."""
    host = FragileHost()
    recorded(host, "one")
    undo_id = noted(host, lambda journals: say(journals, "mended"))
    path = f"{ROOT}/{folder_of(SESSION)}/{parts.name(1)}"
    node = host._need(path)
    node.data = bytearray(node.data.replace(b"one", b"0ne"))
    before = tree(host, ROOT)
    assert list(refused(undo.undo(host, ROOT, undo_id)).values()) == ["what was there before the repair no longer exists"]
    assert tree(host, ROOT) == before
    node.data = bytearray(node.data.replace(b"0ne", b"one"))
    assert parts.compress(host, f"{ROOT}/{folder_of(SESSION)}", 1, last=True)
    assert "compressed" in next(iter(refused(undo.undo(host, ROOT, undo_id)).values()))
    assert texts(host) == ["one", "mended"]


# -- crashes


def _change_everything(host: Host) -> None:
    with at_work(host, ROOT, part_size=300) as (notes, journals):
        notes.replace(f"{ROOT}/a", b"new a")
        say(journals, "mended", "mended again " + "x" * 300, "and again")
        notes.remove(f"{ROOT}/b")
        notes.publish(f"{ROOT}/c", b"c")
        say(journals, "keeps", session="python:new")


def _prepared() -> FragileHost:
    host = FragileHost()
    recorded(host, "one", "two")
    for name in "ab":
        replace_file(host, f"{ROOT}/{name}", b"old " + name.encode())
    path = f"{ROOT}/{folder_of(SESSION)}/{parts.name(1)}"
    host._need(path).data += b'{"torn'
    host._need(path).durable = bytes(host._need(path).data)
    return host


@pytest.mark.parametrize("loss", ["lost", "kept", "torn"])
def test_a_repair_that_dies_at_any_step_can_be_undone_and_nothing_is_lost(loss: str) -> None:
    """W12, T1: what was there is durable before it is changed."""
    expected = tree(_prepared(), ROOT)
    for at, host in cut_at_every_step(lambda _: _prepared(), _change_everything):
        host = host.reboot(loss, seed=at)
        for undo_id in ledger.repair_ids(host, ROOT):
            assert refused(undo.undo(host, ROOT, undo_id)) == {}, at
        left = tree(host, ROOT)
        assert {path: data for path, data in left.items() if path in expected} == expected, at
        assert not [path for path in left if path.endswith(".tmp")], at
        assert f"{ROOT}/c" not in left


@pytest.mark.parametrize("how", ["cut", "fail"])
def test_an_undo_that_dies_at_any_step_can_be_run_again(how: str) -> None:
    for at in count(1):
        host = _prepared()
        expected = tree(host, ROOT)
        _change_everything(host)
        [undo_id] = ledger.repair_ids(host, ROOT)
        host.plan(at, how)
        try:
            undo.undo(host, ROOT, undo_id)
        except (PowerCut, DreamkeepError, OSError):
            pass
        done = host.calls < at
        host = host.reboot("lost" if at % 2 else "mixed", seed=at) if how == "cut" else host
        host.plan(0, "cut")
        assert refused(undo.undo(host, ROOT, undo_id)) == {}, at
        left = tree(host, ROOT)
        assert {path: data for path, data in left.items() if path in expected} == expected, at
        assert f"{ROOT}/c" not in left and not [path for path in left if folder_of("python:new") in path and path.endswith("l")]
        if done:
            break


def test_temporary_files_of_a_repair_that_died_are_swept_by_the_next_one() -> None:
    """W10: temp names are unique, and known before they are used."""
    seen = 0
    for at, host in cut_at_every_step(lambda _: _prepared(), _change_everything):
        host = host.reboot("kept")
        seen += bool([path for path in tree(host, ROOT) if path.endswith(".tmp")])
        ledger.sweep_temps(host, ROOT)
        assert not [path for path in tree(host, ROOT) if path.endswith(".tmp")], at
    assert seen > 3


def test_ids_of_a_repair_end_as_its_own_and_are_still_different() -> None:
    host = RealHost()
    undo_id = Ids(host.now, host.random).new()
    made = [marked_ids(host, undo_id).new() for _ in range(3)]
    ids = marked_ids(host, undo_id)
    made += [ids.new() for _ in range(2000)]
    assert all(one.replace("-", "").endswith(ledger.mark_of(undo_id)) for one in made)
    assert len(set(made[3:])) == 2000 and len(undo_id) == len(made[0])


def test_bytes_that_a_repair_sets_aside_are_named_after_their_session(keep: Keep, root: str) -> None:
    """R5: a deletion finds by its name what a repair kept of a session."""
    keep.session("a").record("a secret word", ("assistant", "yes"))
    keep.close()
    path = f"{root}/{folder_of(SESSION)}/{parts.name(1)}"
    with open(path, "ab") as part:
        part.write(b'{"a secret word, torn')
    with at_work(RealHost(), root) as (_, journals):
        say(journals, "mended")
    holding = [p for p in Path(root, "aside").rglob("*") if p.is_file() and b"secret" in p.read_bytes()]
    assert holding and all(p.name.startswith(f"{os.path.basename(folder_of(SESSION))}.") for p in holding)
