"""The witness: what each journal was seen to hold. With or without an index an audit tells the same; whatever happens to the
witness itself, it tells of no loss that is none, and of every loss since it was written last."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from dreamkeep import Keep
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import RealHost
from dreamkeep.index import build
from dreamkeep.index.sqlite import SqliteStore
from dreamkeep.journal import parts, witness
from dreamkeep.journal.frame import draft
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.witness import Sighting
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.audit.audit import audit
from tests.helpers import broken_keeps
from tests.helpers.broken_keeps import cut_last_frames, fire_hook
from tests.helpers.faults import LOSSES, FragileHost, cut_at_every_step
from tests.helpers.hosts import MeddlingHost
from tests.helpers.journal_damage import JOURNAL_DAMAGE, HealthyKeep, last_part, world
from tests.paths import TESTS

__all__ = ["world"]

HOST = RealHost()
DATA = TESTS / "data"


# -- the index is a view: an audit tells the same without it


def without_index(root: str) -> None:
    for path in Path(root).glob("index.sqlite*"):
        path.unlink()


def told(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What is wrong, but for the index itself."""
    return [fault for fault in report["faults"] if not fault["class"].startswith("index_")]


def cut_off(folder: str) -> None:
    cut_last_frames(Path(folder, parts.name(last_part(folder))))


def without_last_part(folder: str) -> None:
    Path(folder, parts.name(last_part(folder))).unlink()


def without_all(folder: str) -> None:
    shutil.rmtree(folder)


def zeroed(folder: str) -> None:
    part = Path(folder, parts.name(last_part(folder)))
    part.write_bytes(bytes(part.stat().st_size))


def last_frame_damaged(folder: str) -> None:
    part = Path(folder, parts.name(last_part(folder)))
    data = bytearray(part.read_bytes())
    data[-100] ^= 1
    part.write_bytes(data)


ENDS: dict[str, tuple[str, Callable[[str], None]]] = {
    "the last frames": ("journal_missing_part", cut_off),
    "the last part": ("journal_missing_part", without_last_part),
    "the whole journal": ("journal_missing_part", without_all),
    "the last part zeroed": ("journal_missing_part", zeroed),
    "the last frame damaged": ("journal_missing_part", last_frame_damaged),
}


@pytest.mark.parametrize("what", [*JOURNAL_DAMAGE, *ENDS])
@pytest.mark.parametrize("asked", [False, True])
def test_whatever_is_wrong_with_a_journal_is_told_without_an_index_as_with_one(
    world: HealthyKeep, what: str, asked: bool
) -> None:
    cls, damage = {**JOURNAL_DAMAGE, **ENDS}[what]
    damage(world.folder)
    if asked:
        world.index()
    before = told(world.audit(deep=True).as_json())
    assert {cls, "journal_missing_part"} & {fault["class"] for fault in before}
    without_index(world.root)
    assert told(world.audit().as_json()) == told(world.audit(deep=True).as_json()) == before
    world.index()
    assert told(world.audit(deep=True).as_json()) == before, "nor does a new index change anything"


def _hooked(world: broken_keeps.World) -> None:
    world.captured(3, 3)
    fire_hook(world, "told by a hook")
    world.grow(6, 3)
    world.ingest()
    lines = world.part().read_bytes().splitlines(keepends=True)
    world.part().write_bytes(b"".join(lines[:-2]))


BROKEN = {**{name: make for name, (make, _) in broken_keeps.BROKEN.items()}, "hooked": _hooked}


@pytest.mark.parametrize("name", BROKEN)
def test_a_captured_keep_is_judged_without_an_index_as_with_one(root: str, tmp_path: Path, name: str) -> None:
    """What can be repaired, too, and what is to be done."""
    world = broken_keeps.World(root, tmp_path / "home")
    BROKEN[name](world)
    before = told(world.audit(deep=True))
    assert before or name in ("unusable_index", "drifted")
    without_index(root)
    assert told(world.audit(deep=True)) == before


@pytest.mark.parametrize("indexed", [True, False])
def test_what_a_journal_lost_is_told_where_nobody_ever_asked_anything(root: str, tmp_path: Path, indexed: bool) -> None:
    """A writer that closes is a witness by itself."""
    with Keep.open(root) as keep:
        keep.session("own").record("one", ("assistant", "two"))
        if indexed:
            keep.sessions()
    cut_last_frames(Path(root, folder_of("python:own"), parts.name(1)))
    with Keep.open(root) as keep:
        [lost] = keep.audit(home=tmp_path)["faults"]
    assert (lost["class"], lost["session"]) == ("journal_missing_part", "python:own")


# -- nothing that is no loss is told


def test_an_old_keep_opens_as_ever_and_gets_its_witness_with_its_index(tmp_path: Path) -> None:
    root = str(tmp_path / "keep")
    shutil.copytree(DATA / "keep-format-1", root)
    index = zstandard.ZstdDecompressor().decompress((DATA / "indexes" / "v25.sqlite.zst").read_bytes())
    Path(root, "index.sqlite").write_bytes(index)

    def classes() -> set[str]:
        with Keep.open(root) as keep:
            return {fault["class"] for fault in keep.audit(home=tmp_path)["faults"]} - {"open_to_others", "index_unusable"}

    before = classes()
    assert not {"witness_damaged", "journal_missing_part"} & before and not Path(root, witness.FILE).exists()
    with Keep.open(root) as keep:
        assert keep.sessions()
    seen = witness.load(HOST, root).seen
    assert seen.keys() == {KEEP, *build.journals(HOST, root)} and classes() == before


def test_what_an_index_before_the_witness_knew_is_not_forgotten(root: str, tmp_path: Path) -> None:
    """An old program indexed; frames were lost; then this one came."""
    with Keep.open(root) as keep:
        keep.session("own").record("one", ("assistant", "two"))
        keep.sessions()
    db = SqliteStore(f"{root}/index.sqlite")
    db._db.pragma("user_version", 25)
    db.close()
    for name in (witness.FILE, witness.LOCK):
        os.remove(f"{root}/{name}")
    cut_last_frames(Path(root, folder_of("python:own"), parts.name(1)))
    with Keep.open(root) as keep:
        keep.session("other").record("written before anybody asked")
    with Keep.open(root) as keep:
        keep.sessions()
        [lost] = keep.audit(home=tmp_path)["faults"]
    assert lost["class"] == "journal_missing_part" and "python/own" in lost["where"]


@pytest.mark.parametrize("with_index", [True, False])
def test_a_keep_that_was_moved_restored_from_a_backup_or_imported_lost_nothing(
    root: str, tmp_path: Path, with_index: bool
) -> None:
    def clean(where: str | Path) -> bool:
        with Keep.open(where) as keep:
            return bool(keep.audit(home=tmp_path, deep=True)["clean"])

    with Keep.open(root) as keep:
        keep.session("own").record("one")
        keep.sessions()
    backup = tmp_path / "backup"
    shutil.copytree(root, backup)
    with Keep.open(root) as keep:
        keep.session("own").record("two")
        keep.sessions()
        keep.export(tmp_path / "snapshot")
    shutil.move(root, tmp_path / "moved")
    assert clean(tmp_path / "moved")
    if not with_index:
        without_index(str(backup))
    shutil.copytree(backup, root)
    assert clean(root)
    with Keep.open(tmp_path / "new") as keep:
        keep.import_(tmp_path / "snapshot")
    assert clean(tmp_path / "new")
    with Keep.open(backup) as keep:
        keep.import_(tmp_path / "snapshot")
        assert keep.audit(home=tmp_path)["clean"]
        keep.sessions()
    assert clean(backup)


def test_of_a_deleted_session_no_word_stays_and_nothing_is_missed(root: str, tmp_path: Path) -> None:
    """Also of one that lost frames before, and of what a crash left beside the witness."""
    with Keep.open(root) as keep:
        keep.session("secret-name").record("one", ("assistant", "two"))
        keep.session("stays").record("three")
        keep.sessions()
    cut_last_frames(Path(root, folder_of("python:secret-name"), parts.name(1)))
    shutil.copy(Path(root, witness.FILE), Path(root, f"{witness.FILE}.0123456789abcdef.tmp"))
    with Keep.open(root) as keep:
        keep.session("secret-name").record("four")
        keep.delete("python:secret-name")
    assert not [path for path in Path(root, "journal").glob("witness*") if b"secret" in path.read_bytes()]
    without_index(root)
    with Keep.open(root) as keep:
        assert keep.audit(home=tmp_path)["clean"]
        keep.undelete("python:secret-name")
        keep.session("secret-name").record("again")
        assert keep.audit(home=tmp_path)["clean"]


@pytest.mark.parametrize("with_index", [True, False])
def test_a_session_that_is_deleted_and_lifted_while_it_is_looked_at_lost_nothing(world: HealthyKeep, with_index: bool) -> None:
    """The witness was read before."""
    if not with_index:
        without_index(world.root)

    def act() -> None:
        with Keep.open(world.root) as keep:
            keep.delete("s1")
            keep.undelete("s1")

    assert world.audit(host=MeddlingHost(act)).clean


# -- what is wrong with the witness itself


@pytest.mark.parametrize("how", ["torn", "a bit flipped", "empty", "lost"])
@pytest.mark.parametrize("who", ["writer", "indexer"])
def test_a_witness_that_is_torn_damaged_or_lost_is_told_and_made_again(root: str, tmp_path: Path, how: str, who: str) -> None:
    with Keep.open(root) as keep:
        for n in range(3):
            keep.session(f"s{n}").record("one")
        keep.sessions()
    path = Path(root, witness.FILE)
    before = witness.load(HOST, root).seen
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    harmed: dict[str, bytes] = {"torn": path.read_bytes() + b'{"journal":', "a bit flipped": bytes(data), "empty": b""}
    if how == "lost":
        path.unlink()
    else:
        path.write_bytes(harmed[how])
    with Keep.open(root) as keep:
        [found] = keep.audit(home=tmp_path)["faults"]
        assert (found["class"], found["repairable"]) == ("witness_damaged", True)
        keep.session("more").record("two")
        if who == "indexer":
            keep.sessions()
    assert witness.load(HOST, root).problem == ""
    with Keep.open(root) as keep:
        assert keep.audit(home=tmp_path)["clean"]
        keep.sessions()
    after = witness.load(HOST, root).seen
    assert {name: after[name] for name in before if name != KEEP} == {name: before[name] for name in before if name != KEEP}


def test_a_witness_of_a_newer_program_is_left_alone(root: str, tmp_path: Path) -> None:
    with Keep.open(root) as keep:
        keep.session("own").record("one")
    path = Path(root, witness.FILE)
    path.write_bytes(witness._signed({"format": 2}) + b"whatever\n")
    before = path.read_bytes()
    with Keep.open(root) as keep:
        keep.session("own").record("two")
        keep.sessions()
        assert keep.audit(home=tmp_path)["clean"]
    assert path.read_bytes() == before


def test_a_witness_is_bounded(root: str) -> None:
    """However often it is written, and however often a journal loses its end."""
    part = Path(root, folder_of("python:own"), parts.name(1))
    for n in range(30):
        with Keep.open(root) as keep:
            keep.session("own").record(f"{n}")
        if n % 2:
            cut_last_frames(part)
    assert len(witness.load(HOST, root).seen[folder_of("python:own")]) <= witness._MOST
    sizes = []
    for n in range(40):
        some = [Sighting(f"journal/sessions/python/{m:0100d}", "", 1, n, n, "0" * 8) for m in range(30)]
        witness.put_back(HOST, root, some)
        sizes.append(Path(root, witness.FILE).stat().st_size)
    assert max(sizes) < witness._ROOM + 3 * sizes[0] * witness._MOST and sorted(sizes) != sizes


class Counting(RealHost):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def sync(self, handle: int) -> None:
        self.calls.append("sync")
        super().sync(handle)

    def open_append(self, path: str) -> int:
        self.calls.append(path)
        return super().open_append(path)


def test_an_append_does_not_write_the_witness(root: str) -> None:
    host = Counting()
    with Keep.open(root, host=host) as keep:
        turn = keep.session("own").submit("one")
        host.calls.clear()
        for n in range(5):
            turn.add("assistant", f"{n}")
        assert host.calls == ["sync"] * 5


# -- the power goes


ROOT = "/keep"


def journals(host: FragileHost) -> JournalWriters:
    return JournalWriters(host, ROOT, Ids(host.now, host.random), part_size=1500)


def say(pool: JournalWriters, host: FragileHost, session: str, n: int) -> None:
    event = Event(f"e{n}", Kind.MESSAGE_ADDED, rfc3339(host.now()), {"session": session, "role": "user", "text": "x" * 300})
    pool.append(session, [event])


def written(host: FragileHost, first: int, count: int) -> None:
    """As a process that opens, writes, rotates and closes."""
    pool = journals(host)
    pool.say("", Kind.KEEP_CREATED, {"keep": "k"}, {"created": 1})
    for n in range(first, first + count):
        say(pool, host, f"python:s{n % 2}", n)
    pool.close()


def classes(host: FragileHost) -> list[str]:
    return sorted(fault.cls for fault in audit(host, ROOT, home="/home", environment={}).faults)


def prepared(seed: int) -> FragileHost:
    host = FragileHost(seed=seed)
    host.make_folder(ROOT)
    host.sync_folder("/")
    written(host, 0, 6)
    return host


def ends(host: FragileHost) -> dict[str, list[tuple[int, str]]]:
    return {name: [one.frame for one in found] for name, found in witness.load(host, ROOT).seen.items()}


def without_ends(host: FragileHost) -> None:
    """Cut the last frame off every journal."""
    for name in ("python:s0", "python:s1"):
        folder = f"{ROOT}/{folder_of(name)}"
        node = host._need(f"{folder}/{parts.name(parts.numbers(host, folder)[-1])}")
        node.data = bytearray(b"".join(bytes(node.data).splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_power_cut_at_every_step_tells_of_no_loss_and_hides_none(loss: str) -> None:
    torn = 0
    for n, host in cut_at_every_step(prepared, lambda host: written(host, 6, 12)):
        before = ends(prepared(n))
        after = host.reboot(loss, seed=n)
        found = set(classes(after))
        torn += "witness_damaged" in found
        assert found <= {"journal_tail", "witness_damaged"}, (n, found)
        seen = ends(after)
        for name, frames in before.items():
            assert max(seen[name]) >= max(frames), "what was seen before is not forgotten"
        written(after, 90, 2)
        assert classes(after) == [], "the next writer makes it whole again"
        without_ends(after)
        assert classes(after) == ["journal_missing_part"] * 2
    assert torn or loss in ("lost", "kept")


def stretches(host: FragileHost) -> Iterator[None]:
    """Frames that a writer wrote and did not sync, and an indexer that sees them."""
    pool = journals(host)
    for n in range(20, 23):
        event = Event(f"e{n}", Kind.MESSAGE_ADDED, rfc3339(host.now()), {"session": "python:s0", "role": "user", "text": "x"})
        writer = pool.writer("python:s0")
        writer._locked(writer._write_new, [event], [draft(event)])  # written, and not synced
        yield


def followed(host: FragileHost) -> None:
    store = SqliteStore.in_memory()
    try:
        for _ in stretches(host):
            build.follow(host, ROOT, store)
    finally:
        store.close()


@pytest.mark.parametrize("loss", LOSSES)
def test_an_indexer_tells_only_of_what_is_on_disk(loss: str) -> None:
    """It reads what a writer has not synced yet."""
    for n, host in cut_at_every_step(prepared, followed):
        after = host.reboot(loss, seed=n)
        assert set(classes(after)) <= {"journal_tail", "witness_damaged"}, n


@pytest.mark.parametrize("how", ["fail", "tear", "bad_sync"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_the_witness_fails_no_writer(how: str, error: int) -> None:
    steps = [n for n, (_, path) in enumerate(_trace(), 1) if "witness" in path]
    assert len(steps) > 4
    for at in steps:
        host = prepared(at)
        host.plan(at, how, error)
        written(host, 6, 12)
        host.plan(0, "cut")
        assert set(classes(host)) <= {"witness_damaged", "leftover"}, at
        written(host, 90, 2)
        assert classes(host) == [], at
        assert set(classes(host.reboot("lost"))) == set(), at


def _trace() -> list[tuple[str, str]]:
    host = prepared(1)
    host.trace.clear()
    written(host, 6, 12)
    return host.trace


def deleted(host: FragileHost) -> None:
    witness.forget(host, ROOT, [folder_of("python:s1")])


@pytest.mark.parametrize("loss", LOSSES)
def test_a_power_cut_while_a_session_is_forgotten_leaves_the_old_witness_or_the_new_one(loss: str) -> None:
    for n, host in cut_at_every_step(prepared, deleted):
        after = host.reboot(loss, seed=n)
        assert witness.load(after, ROOT).problem == "" and set(classes(after)) == set(), n
        deleted(after)
        assert folder_of("python:s1") not in ends(after)
        assert not [one for one in after.names(f"{ROOT}/journal") if one.endswith(".tmp")]


# -- the format


def test_a_line_says_what_the_page_says(root: str) -> None:
    with Keep.open(root) as keep:
        keep.session("own").record("not a word of this")
        keep.sessions()
    text = Path(root, witness.FILE).read_text()
    said = {json.loads(line).get("journal"): json.loads(line) for line in text.splitlines()}
    line = said[folder_of("python:own")]
    assert line.keys() == {"journal", "session", "seen", "crc"} and "word of this" not in text
    [one] = line["seen"]
    part = Path(root, folder_of("python:own"), parts.name(one["part"])).read_bytes()
    frame = json.loads(part[: one["end"]].splitlines()[-1])
    assert (frame["seq"], frame["crc"]) == (one["seq"], one["frame"]) and (one["state"], one["others"]) == ("active", False)
