"""Deletions under bad conditions: no word of the session stays, and no other session loses one."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.errors import Busy, Deleted
from dreamkeep.event import Event, Ids, Kind
from dreamkeep.host import RealHost
from dreamkeep.journal import parts
from dreamkeep.journal.frame import Frame
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import events, read_events
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.delete.delete import Deleting
from dreamkeep.session import raw
from tests.helpers.faults import LOSSES, FragileHost, Inode, PowerCut
from tests.helpers.leaks import holding

HOST = RealHost()
AT = "2026-01-01T00:00:00.000000Z"
WORD = b"xylophon"


def fired(id: str, *payloads: bytes, agent: str = "python") -> Event:
    calls = [{"agent": agent, "event": "Stop", "at": AT, "spool": "x"}] * len(payloads)
    return Event(id, Kind.HOOK_FIRED, AT, raw.pack({"agent": "", "calls": calls}, payloads), {"drain": f"b-{id}"})


@pytest.mark.parametrize("native", ["s", "mine", "a-longer-one"])
def test_a_hook_call_however_short_is_erased_and_the_deletion_ends(tmp_path: Path, native: str) -> None:
    """K7: the filling needs some room; where there is little, the other calls of no session in that frame go, too."""
    with Keep.open(tmp_path / "k") as keep:
        keep.session(native).record("xylophone")
        for n, payload in enumerate((b'{"session_id":"%b"}', b'{"session_id":"%b","x":"xylophone"}', b'{ "sessionID" : "%b"}')):
            keep.context.journals().append("", [fired(f"h-{n}", payload % native.encode(), b"pears " * n)])
        keep.delete(native)
        assert holding(tmp_path / "k", WORD) == []
        assert holding(tmp_path / "k", b'"%b"' % native.encode()) == []
        reading = Reading(HOST, f"{tmp_path}/k/{KEEP}")
        assert sum(1 for _ in reading) and reading.defects == [] and reading.tail is None
        with pytest.raises(Deleted):
            keep.session(native)


@pytest.mark.parametrize("native", ["0b6c8a52-77aa-4f0e-9d3e-000000000001", "s1"])
@pytest.mark.parametrize("end", [b"", b'\xff"}', b'"}{}'])
def test_no_word_of_an_unreadable_hook_call_stays_or_comes_back(tmp_path: Path, native: str, end: bytes) -> None:
    """An agent that is interrupted leaves a call without its end, which goes to the keep's own journal."""
    root = tmp_path / "k"
    torn = b'{"session_id":"%b","prompt":"xylophone' % native.encode() + end
    with Keep.open(root) as keep:
        keep.session(native, agent="claude").record("xylophone")
        (root / "spool").mkdir()
        for n, payload in enumerate((torn, b'{"session_id":"another one","prompt":"pears')):
            (root / "spool" / f"{n:020d}-1-{n:016x}~claude~Stop.hook").write_bytes(payload)
        keep.drain()
        keep.delete(native)
        assert holding(root, WORD) == [] and holding(root, b64encode(torn)) == []
        (root / "spool" / f"{9:020d}-1-{9:016x}~claude~Stop.hook").write_bytes(torn)
        keep.drain()
    assert holding(root, WORD) == [] and holding(root, b64encode(torn)) == []
    assert holding(root, b"pears") != []


def test_of_a_session_with_a_short_id_nothing_stays_in_what_was_set_aside(tmp_path: Path) -> None:
    """K7: a torn frame of the keep's own journal, copies in the ledgers of repairs, plain, compressed and in a database."""
    with Keep.open(tmp_path / "k") as keep:
        keep.session("s").record("xylophone")
        keep.session("s2").record("pears")
        keep.sessions()
    root, aside = tmp_path / "k", tmp_path / "k" / "aside"
    (aside / "repair-1").mkdir(parents=True)
    part = (root / folder_of("python:s") / "000001.jsonl").read_bytes()
    (aside / "keep.000001.10.00000000-9.tail").write_bytes(b'{"session_id": "s", "prompt": "xylophone')
    (aside / "keep.000001.11.00000000-9.tail").write_bytes(rb'"text":"{\"sessionId\":\"s\",\"prompt\":\"xylophone')
    (aside / "repair-1" / "shared.1").write_bytes(part)
    (aside / "repair-1" / "shared.2").write_bytes(parts.frozen(part))
    (aside / "repair-1" / "shared.3").write_bytes((root / "index.sqlite").read_bytes())
    note = {"n": 1, "file": f"{root}/index.sqlite", "before": {"kept": "shared.3"}}
    (aside / "repair-1" / "undo.json").write_text(json.dumps(note) + "\n")
    (aside / "repair-1" / "shared.4").write_bytes(b"pears of s2, and an s alone")
    with Keep.open(root) as keep:
        keep.delete("python:s")
    assert holding(root, WORD) == []
    assert sorted(p.name for p in aside.rglob("*") if p.is_file()) == ["shared.4", "undo.json"]


def test_what_others_set_aside_stays_though_it_speaks_of_the_deleted_session(tmp_path: Path) -> None:
    """K7: an id may be an everyday word; files set aside for another session stay."""
    with Keep.open(tmp_path / "k") as keep:
        keep.session("password").record("xylophone")
        keep.session("other").record("the password")
    aside = tmp_path / "k" / "aside"
    (aside / "repair-1" / "deeper").mkdir(parents=True)
    other = os.path.basename(folder_of("python:other"))
    mine = os.path.basename(folder_of("python:password"))
    for folder in (aside, aside / "repair-1", aside / "repair-1" / "deeper"):
        (folder / f"{other}.000001.7").write_bytes(b"a password and 'python:password'")
        (folder / f"{mine}.000001.7").write_bytes(b"xylophone")
    with Keep.open(tmp_path / "k") as keep:
        keep.delete("password")
    assert holding(tmp_path / "k", WORD) == []
    assert len(list(aside.rglob(f"{other}.*"))) == 3 and list(aside.rglob(f"{mine}.*")) == []


def test_a_deletion_takes_nothing_away_behind_a_link_and_waits_for_none_that_leads_in_a_circle(tmp_path: Path) -> None:
    """K7: what a link leads to is not the keep's, and a pipe holds no words."""
    mine, aside = tmp_path / "mine", tmp_path / "k" / "aside"
    mine.mkdir()
    (mine / "diary.txt").write_text("what I thought of a-longer-one")
    with Keep.open(tmp_path / "k") as keep:
        keep.session("a-longer-one").record("xylophone")
        aside.mkdir(exist_ok=True)
        (aside / "folder").symlink_to(mine)
        (aside / "file").symlink_to(mine / "diary.txt")
        (aside / "circle").symlink_to(".")
        (aside / "itself").symlink_to("itself")
        os.mkfifo(aside / "pipe")
        keep.delete("a-longer-one")
        assert keep.audit(home=tmp_path)["clean"]
    assert (mine / "diary.txt").read_text() == "what I thought of a-longer-one"
    assert holding(tmp_path / "k" / "journal", WORD) == []


def test_a_good_frame_glued_to_damage_is_not_erased_with_it(tmp_path: Path) -> None:
    """K2: it may be a tombstone."""
    native = "a-session-to-delete"
    with Keep.open(tmp_path / "k") as keep:
        keep.session("dead").record("long ago")
        keep.session(native).record("xylophone")
        keep.context.journals().append("", [fired("h", b'{"session_id":"%b","x":"xylophone"}' % native.encode())])
        keep.delete("dead")
    path = tmp_path / "k" / KEEP / "000001.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b"xylophone" in line)
    assert b"session.deleted" in lines[at + 1]
    lines[at] = lines[at].replace(b'"kind"', b'"KIND"').replace(b"\n", b"?")
    path.write_bytes(b"".join(lines))
    with Keep.open(tmp_path / "k") as keep:
        keep.delete(native)
        assert holding(tmp_path / "k", WORD) == []
        for gone in ("dead", native):
            with pytest.raises(Deleted):
                keep.session(gone)


def test_what_a_compression_that_was_killed_left_in_the_keeps_own_journal_goes_too(tmp_path: Path) -> None:
    """K7"""
    native = "a-session-to-delete"
    with Keep.open(tmp_path / "k") as keep:
        keep.session(native).record("xylophone")
        keep.context.journals().append("", [fired("h", b'{"session_id":"%b","x":"xylophone"}' % native.encode())])
    folder = tmp_path / "k" / KEEP
    left = parts.frozen((folder / "000001.jsonl").read_bytes())
    (folder / f"000001.jsonl.zst.{7:016x}.tmp").write_bytes(left)
    with Keep.open(tmp_path / "k") as keep:
        keep.delete(native)
    assert [p.name for p in folder.iterdir() if p.name.endswith(".tmp")] == []


def test_after_repairs_for_real_a_deletion_leaves_no_word(tmp_path: Path) -> None:
    """K7: an interrupted turn, a torn tail, a damaged frame, an index that was made anew: all of it went through ledgers."""
    root = tmp_path / "k"
    code = f"""
import os
from dreamkeep import Keep
keep = Keep.open({str(root)!r})
keep.session("other").record("pears")
s = keep.session("goes", title="xylophone, the title")
for n in range(4):
    s.record(f"turn {{n}} of the xylophone")
s.submit("xylophone, and nobody settles it").start()
keep.search("xylophone")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    path = root / folder_of("python:goes") / "000001.jsonl"
    data = bytearray(path.read_bytes())
    data[data.index(b"turn 2")] ^= 1
    path.write_bytes(bytes(data) + b'{"id":"torn","body":{"x":"xylophone')
    (root / "index.sqlite").write_bytes((root / "index.sqlite").read_bytes()[:-4096])
    with Keep.open(root) as keep:
        done = keep.repair(apply=True, home=tmp_path / "home")
        left = [fault["id"] for fault in done["audit"]["faults"]]
        if left:
            keep.repair(accept=left, home=tmp_path / "home")
        assert list((root / "aside").glob("repair-*"))
        keep.delete("goes")
        assert keep.search("pears")
    assert holding(root, WORD) == []


@pytest.mark.slow
def test_a_program_that_reads_the_index_delays_the_end_of_a_deletion_and_no_more(tmp_path: Path) -> None:
    """K7: SQLite can't empty its log under a reader; the next writer does."""
    import apsw

    with Keep.open(tmp_path / "k") as keep:
        keep.session("goes").record("xylophone")
        keep.session("stays").record("pears")
        keep.search("xylophone")
        reader = apsw.Connection(str(tmp_path / "k" / "index.sqlite"))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sessions").fetchall()
        try:
            with pytest.raises(Busy):
                keep.delete("goes")
        finally:
            reader.close()
    with Keep.open(tmp_path / "k") as keep:
        keep.session("stays").record("more pears")
        assert {one.native_id for one in keep.sessions()} == {"stays"}
    assert holding(tmp_path / "k", WORD) == []


def test_a_session_that_only_the_spool_knows_can_be_deleted(tmp_path: Path) -> None:
    """K7"""
    native = "0b6c8a52-77aa-4f0e-9d3e-000000000001"
    spool = tmp_path / "k" / "spool"
    spool.mkdir(parents=True)
    said = b'{"session_id":"%b","prompt":"xylophone","hook_event_name":"UserPromptSubmit"}' % native.encode()
    (spool / f"{1:020d}-1-{1:016x}~claude~UserPromptSubmit.hook").write_bytes(said)
    with Keep.open(tmp_path / "k") as keep:
        keep.delete(native)
        assert keep.sessions() == []
    assert holding(tmp_path / "k", WORD) == []


# -- others who write meanwhile


def _say_on(root: str, name: str, count: int, go: Any) -> None:
    with Keep.open(root) as keep:
        journals = keep.context.journals()
        go.wait()
        for n in range(count):
            journals.say("", "note.added", {"text": f"{name} {n}"})


def test_many_processes_append_to_the_keeps_own_journal_while_it_is_erased(tmp_path: Path) -> None:
    """J4 K7: nothing acknowledged is lost, no seq is used twice, and no word stays.

    One of them lost everything: it had the replaced file open, and what told it to look again was put back by another one.
    """
    root = tmp_path / "k"
    natives = [f"a-session-to-delete-{n}" for n in range(6)]
    with Keep.open(root) as keep:
        for native in natives:
            keep.session(native).record("xylophone")
            for n in range(5):
                payload = b'{"session_id":"%b","x":"xylophone %d"}' % (native.encode(), n)
                keep.context.journals().append("", [fired(f"h-{native}-{n}", payload, b"pears")])
    spawn = multiprocessing.get_context("spawn")
    go = spawn.Event()
    running = [spawn.Process(target=_say_on, args=(str(root), f"p{n}", 300, go)) for n in range(3)]
    for one in running:
        one.start()
    go.set()
    with Keep.open(root) as keep:
        for native in natives:
            keep.delete(native)
    for one in running:
        one.join(120)
        assert one.exitcode == 0
    reading = Reading(HOST, f"{root}/{KEEP}")
    said = [event.body["text"] for _, event in events(reading) if event.kind == "note.added"]
    assert reading.defects == [] and reading.tail is None
    assert sorted(said) == sorted(f"p{p} {n}" for p in range(3) for n in range(300))
    assert holding(root, WORD) == []


def _record_on(root: str, go: Any, out: Any) -> None:
    with Keep.open(root) as keep:
        try:
            session = keep.session("goes")
            go.set()
            for n in range(100_000):
                session.record(f"xylophone {n}")
        except Deleted:
            out.put("told")


def test_a_running_writer_gets_an_error_and_writes_nothing_after_a_deletion(tmp_path: Path) -> None:
    """K2 K7"""
    root = tmp_path / "k"
    with Keep.open(root) as keep:
        keep.session("goes").record("xylophone")
    spawn = multiprocessing.get_context("spawn")
    go, out = spawn.Event(), spawn.Queue()
    running = [spawn.Process(target=_record_on, args=(str(root), go, out)) for _ in range(2)]
    for one in running:
        one.start()
    assert go.wait(60)
    with Keep.open(root) as keep:
        keep.delete("goes")
    for one in running:
        one.join(60)
        assert one.exitcode == 0
    assert [out.get(timeout=10) for _ in running] == ["told", "told"]
    assert holding(root, WORD) == []


# -- a machine that loses power


def files(node: Inode, path: str = "") -> Iterator[tuple[str, bytes]]:
    for name, inner in (node.entries or {}).items():
        if inner.entries is None:
            yield f"{path}/{name}", bytes(inner.data)
        yield from files(inner, f"{path}/{name}")


def erase_words(frame: Frame, line: bytes) -> bytes | None:
    return b"" if WORD in line else None


def test_an_erasure_that_loses_power_at_any_step_leaves_a_whole_journal_and_is_finished_by_the_next() -> None:
    """J2 K7: all losses, and frames that were written again after a failed sync, armoured or long ones."""
    for at in range(1, 60):
        loss = LOSSES[at % len(LOSSES)]
        host = FragileHost(seed=at)
        host.make_folder("/k")
        journals = JournalWriters(host, "/k", Ids(host.now, host.random), part_size=2500)
        said = []
        for n in range(30):
            if n == 10:
                host.plan(3, "bad_sync")
            body = {"text": f"xylophone {n} {'x' * 90}" if n % 3 == 0 else f"pears {n}", "odd": "\ud800" if n % 2 else ""}
            journals.append("", [Event(f"e-{n}", "note.added", AT, body, {"cursor": n + 1})])
            said += [n] if n % 3 else []
        journals.close()
        parts.compress(host, "/k/journal/keep", 1)
        host.plan(at, "cut")
        finished = False
        try:
            journals.writer("").erase(erase_words)
            finished = True
        except PowerCut:
            pass
        again = host.reboot(loss, seed=at)
        if finished:
            assert not [path for path, data in files(again.root) if WORD in data and not path.endswith(".zst")]
        after = JournalWriters(again, "/k", Ids(again.now, again.random), part_size=2500)
        after.writer("").erase(erase_words)
        reading = Reading(again, f"/k/{KEEP}")
        left = [int(e.id[2:]) for _, e in events(reading) if e.kind == "note.added"]
        assert left == said and reading.tail is None, (at, loss)
        assert [fault for fault in reading.defects if fault.missing] == [], (at, loss)
        for part in parts.numbers(again, f"/k/{KEEP}"):
            assert WORD not in b"".join(parts.lines(again, f"/k/{KEEP}", part)), (at, loss)
        assert after.append("", [Event("new", "note.added", AT, {"text": "x"}, {"cursor": 30})]) == (None,), "cursors stay"
        if finished:
            break
    assert 5 < at < 59


def test_a_deletion_that_loses_power_at_any_step_is_finished_by_the_next_writer() -> None:
    """K2 K7"""
    native = "a-session-to-delete"
    seen = set()
    for at in range(1, 200):
        loss = LOSSES[at % len(LOSSES)]
        host = FragileHost(seed=at)
        host.make_folder("/k")
        ids = Ids(host.now, host.random)
        journals = JournalWriters(host, "/k", ids)
        for name in (native, "stays"):
            title = "xylophone" if name == native else "pears"
            journals.say(f"python:{name}", Kind.SESSION_OPENED, {"session": f"python:{name}", "title": title}, {"opened": 1})
        journals.append("", [fired("h", b'{"session_id":"%b","x":"xylophone"}' % native.encode(), b"pears")])
        for folder in ("/k/aside", "/k/spool", "/k/state"):
            host.make_folder(folder)
        for path in (
            f"/k/aside/{os.path.basename(folder_of(f'python:{native}'))}.tail",
            f"/k/spool/{1:020d}-1-{1:016x}~python~Stop.hook",
        ):
            handle = host.create(path)
            host.write(handle, json.dumps({"session_id": native, "x": "xylophone"}).encode())
            host.sync(handle)
            host.close(handle)
        for folder in ("/k/aside", "/k/spool", "/k/state", "/k", "/"):
            host.sync_folder(folder)
        host.plan(at, "cut")
        finished = False
        try:
            Deleting(host, "/k", journals, lambda name, pages: None).delete(f"python:{native}")
            finished = True
        except PowerCut:
            pass
        again = host.reboot(loss, seed=at)
        after = JournalWriters(again, "/k", Ids(again.now, again.random))
        Deleting(again, "/k", after, lambda name, pages: None).finish_all()
        dead = [e.body["session"] for _, e in read_events(again, f"/k/{KEEP}") if e.kind == Kind.SESSION_DELETED]
        words = [path for path, data in files(again.root) if WORD in data]
        assert (words == []) == bool(dead), (at, loss, words)
        assert b"pears" in b"".join(data for path, data in files(again.root) if KEEP in path)
        assert not dead or not [path for path, _ in files(again.root) if "deleting" in path]
        seen.add(bool(dead))
        if finished:
            assert dead
            break
    assert seen == {True, False} and 20 < at < 199
