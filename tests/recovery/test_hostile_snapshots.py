"""Snapshots that are damaged, crafted, merged both ways, or made under bad conditions."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dreamkeep import Keep
from dreamkeep.errors import BadUsage, Busy, DreamkeepError, NoSpace
from dreamkeep.event import Event, Kind
from dreamkeep.host import RealHost
from dreamkeep.journal.frame import draft, place
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import events, read_events
from dreamkeep.recovery.snapshot import file as snapshot_file
from dreamkeep.recovery.snapshot import importing, merge
from tests.agents import claude, hermes
from tests.helpers.faults import LOSSES, FragileHost, PowerCut
from tests.helpers.snapshots import copied, made, texts, truth, write_on

HOST = RealHost()
AT = "2026-01-01T00:00:00.000000Z"
ABOUT = {"dreamkeep-snapshot.json": b'{"format":1,"keep":"x"}\n'}


def ids(root: Path, session: str) -> list[str]:
    return [event.id for _, event in read_events(HOST, f"{root}/{folder_of(session) if session else KEEP}")]


def exported(root: Path, to: Path) -> Path:
    with Keep.open(root) as keep:
        keep.export(to, view=False)
    return to


def imported(root: Path, file: Path) -> dict[str, Any]:
    with Keep.open(root) as keep:
        return keep.import_(file)


def captured(tmp_path: Path, write: Callable[[Path], None]) -> tuple[str, set[str]]:
    """The largest session of an agent's home, in keep `a`; and its words."""
    write(tmp_path / "home")
    with Keep.open(tmp_path / "a") as keep:
        list(keep.ingest(home=tmp_path / "home"))
        session = max(keep.sessions(), key=lambda one: one.bytes).id
        return session, {m["text"] for m in keep.show(session)["messages"]}


def damaged(root: Path, session: str, lines: Callable[[bytes], bool], nth: int = 0) -> None:
    """Of the journal's lines that are meant, the nth is another now."""
    path = root / folder_of(session) / "000001.jsonl"
    all_lines = path.read_bytes().splitlines(keepends=True)
    at = [n for n, line in enumerate(all_lines) if lines(line)][nth]
    path.write_bytes(b"".join([*all_lines[:at], all_lines[at].replace(b"e", b"E", 3), *all_lines[at + 1 :]]))


# -- what a merge must not lose or double


def test_an_event_recorded_again_after_damage_is_not_recorded_a_third_time(tmp_path: Path) -> None:
    """R4: one id, one event, whichever way the two keeps are joined."""
    with Keep.open(tmp_path / "a") as keep:
        for n in range(5):
            keep.session("s").record(f"turn {n}")
    whole = exported(tmp_path / "a", tmp_path / "whole")
    copied(tmp_path / "a", tmp_path / "b")
    path = tmp_path / "b" / folder_of("python:s") / "000001.jsonl"
    data = bytearray(path.read_bytes())
    data[data.index(b"turn 2")] ^= 1
    path.write_bytes(data)
    imported(tmp_path / "b", whole)  # its hole is filled: the event is recorded again at the end
    imported(tmp_path / "a", exported(tmp_path / "b", tmp_path / "healed"))
    found = ids(tmp_path / "a", "python:s")
    assert len(found) == len(set(found))
    with Keep.open(tmp_path / "a") as a:
        assert texts(a, "python:s") == [f"turn {n}" for n in range(5)]


@pytest.mark.parametrize("which", ["piece", "end"])
def test_a_long_event_of_which_damage_took_a_piece_comes_back(tmp_path: Path, which: str) -> None:
    """R4 J3"""
    long = "long words " * 300_000
    with Keep.open(tmp_path / "a") as keep:
        keep.session("s").record("why?", ("tool", long))
        keep.session("s").record("after")
    whole = exported(tmp_path / "a", tmp_path / "whole")
    path = tmp_path / "a" / folder_of("python:s") / "000001.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if (b'"n":2,' in line[:300] if which == "piece" else b'"chunked":' in line[:300]))
    lines[at] = lines[at].replace(b"bytes" if which == "end" else b"words", b"WORDS", 1)
    path.write_bytes(b"".join(lines))
    with Keep.open(tmp_path / "a") as keep:
        assert long not in texts(keep, "python:s")
        keep.import_(whole)
        assert sorted(texts(keep, "python:s")) == sorted(["why?", long, "after"])
        assert keep.import_(whole)["events"] == 0


def test_a_title_given_there_is_not_lost_because_the_session_ended_here_later(tmp_path: Path) -> None:
    """R4: newer wins, title against title and state against state; both ways give the same."""
    with Keep.open(tmp_path / "a") as keep:
        keep.session("s").record("one")
    copied(tmp_path / "a", tmp_path / "b")
    with Keep.open(tmp_path / "b") as b:
        b.session("s", title="a good title")
    with Keep.open(tmp_path / "a") as a:
        a.session("s").record("two")
        a.end("s")
    one, other = exported(tmp_path / "a", tmp_path / "a.s"), exported(tmp_path / "b", tmp_path / "b.s")
    imported(tmp_path / "a", other)
    imported(tmp_path / "b", one)
    for root in ("a", "b"):
        with Keep.open(tmp_path / root) as keep:
            found = keep.summary("python:s")
            assert (found.title, found.state, found.turns) == ("a good title", "ended", 2), root


def test_where_a_session_ran_comes_back_with_the_beginning_that_damage_took(tmp_path: Path) -> None:
    """R4: the older statement counts if there is no newer one."""
    with Keep.open(tmp_path / "a") as keep:
        keep.session("s", cwd="/").record("one")
        keep.end("s")
    whole = exported(tmp_path / "a", tmp_path / "whole")
    path = tmp_path / "a" / folder_of("python:s") / "000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"cwd":"/"', b'"cwd":"?"'))
    imported(tmp_path / "a", whole)
    with Keep.open(tmp_path / "a") as keep:
        found = keep.summary("python:s")
        assert (found.cwd, found.state) == ("/", "ended")


def test_rows_that_only_the_snapshot_has_are_reported_or_imported(tmp_path: Path) -> None:
    """R4 docs/snapshot.md: nothing is left out in silence."""
    session, before = captured(tmp_path, hermes.write)
    whole = exported(tmp_path / "a", tmp_path / "whole")
    damaged(tmp_path / "a", session, lambda line: b'"kind":"source.rows"' in line)
    with Keep.open(tmp_path / "a") as keep:
        assert not before <= {m["text"] for m in keep.show(session)["messages"]}
        done = keep.import_(whole)
        now = {m["text"] for m in keep.show(session)["messages"]}
        assert before <= now or [one for one in done["skipped"] if one["where"] == session]


def test_a_source_whose_path_leads_elsewhere_now_is_merged_all_the_same(tmp_path: Path) -> None:
    """R4: on another machine a folder may be a link, or not be there."""
    session, messages = captured(tmp_path, claude.write)
    whole = exported(tmp_path / "a", tmp_path / "whole")
    damaged(tmp_path / "a", session, lambda line: b'"kind":"source.read"' in line and len(line) > 10_000, nth=1)
    (tmp_path / "home").rename(tmp_path / "moved")
    (tmp_path / "home").symlink_to(tmp_path / "moved")
    with Keep.open(tmp_path / "a") as keep:
        done = keep.import_(whole)
        assert done["bad"] == []
        assert messages <= {m["text"] for m in keep.show(session)["messages"]}
        assert keep.import_(whole)["merged"] == 0


def lines_of(native: str, *numbers: int) -> str:
    def line(n: int) -> str:
        said = {"type": "user", "uuid": f"u-{n}", "sessionId": native, "message": {"role": "user", "content": f"words {n}"}}
        return json.dumps(said) + "\n"

    return "".join(map(line, numbers))


def a_transcript(tmp_path: Path) -> tuple[str, Path]:
    native = "0b6c8a52-77aa-4f0e-9d3e-00000000000a"
    home = tmp_path / "home" / ".claude" / "projects" / "-w"
    home.mkdir(parents=True)
    return native, home / f"{native}.jsonl"


def test_what_was_captured_before_an_agent_shortened_its_file_comes_along(tmp_path: Path) -> None:
    """C2 R4: the other keep looked earlier; both end where the file is now, and the next ingest finds nothing new."""
    native, file = a_transcript(tmp_path)
    for root, numbers in (("b", (1, 2, 3, 4)), ("b", (1, 2)), ("a", (1, 2))):
        file.write_text(lines_of(native, *numbers))
        with Keep.open(tmp_path / root) as keep:
            list(keep.ingest(home=tmp_path / "home"))
    snapshot = exported(tmp_path / "b", tmp_path / "b.s")
    with Keep.open(tmp_path / "a") as keep:
        assert keep.import_(snapshot)["bad"] == []
        assert sorted(set(texts(keep, f"claude:{native}"))) == ["words 1", "words 2", "words 3", "words 4"]
        assert keep.import_(snapshot)["merged"] == 0
        assert {one.state for one in keep.ingest(home=tmp_path / "home", again=True)} == {"unchanged"}


def test_a_line_that_was_half_written_when_the_other_keep_looked_is_no_line_of_its_own(tmp_path: Path) -> None:
    native, file = a_transcript(tmp_path)
    whole = lines_of(native, 1, 2)
    for root, text in (("b", whole[:-30]), ("a", whole)):
        file.write_text(text)
        with Keep.open(tmp_path / root) as keep:
            list(keep.ingest(home=tmp_path / "home"))
    copied(tmp_path / "b", tmp_path / "c")
    one, other = exported(tmp_path / "a", tmp_path / "a.s"), exported(tmp_path / "b", tmp_path / "b.s")
    from dreamkeep.capture.sources.source_bytes import lines, sources

    for root, snapshot in (("a", other), ("c", one)):
        imported(tmp_path / root, snapshot)
        folder = f"{tmp_path}/{root}/{folder_of(f'claude:{native}')}"
        assert [b"".join(lines(HOST, folder, name)) for name in sources(HOST, folder)] == [whole.encode()]


def test_a_source_that_both_captured_alike_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cost: a session may have hundreds of files beside it, and reading its journal for each would be quadratic."""
    claude.write(tmp_path / "home")
    for root in ("a", "b"):
        with Keep.open(tmp_path / root) as keep:
            list(keep.ingest(home=tmp_path / "home"))
    snapshot = exported(tmp_path / "b", tmp_path / "b.s")
    from dreamkeep.capture.sources import merge_source

    def no(*given: Any) -> str:
        raise AssertionError(given)

    monkeypatch.setattr(merge_source, "merge_source", no)
    assert imported(tmp_path / "a", snapshot)["bad"] == []


def _import(root: str, file: str, gate: Any, out: Any) -> None:
    gate.wait()
    try:
        with Keep.open(root) as keep:
            out.put(keep.import_(file)["events"])
    except Busy as problem:
        out.put(str(problem))


def test_two_imports_at_once_add_nothing_twice(tmp_path: Path) -> None:
    """R4: one waits for the other or is refused as busy."""
    with Keep.open(tmp_path / "a") as keep:
        keep.session("s").record("one")
    copied(tmp_path / "a", tmp_path / "b")
    with Keep.open(tmp_path / "b") as b:
        for n in range(2000):
            b.session("s").record(f"there {n}")
    with Keep.open(tmp_path / "a") as a:
        a.session("s").record("here")
    file = exported(tmp_path / "b", tmp_path / "b.s")
    spawn = multiprocessing.get_context("spawn")
    gate, out = spawn.Barrier(3), spawn.Queue()
    running = [spawn.Process(target=_import, args=(str(tmp_path / "a"), str(file), gate, out)) for _ in range(2)]
    for one in running:
        one.start()
    gate.wait()
    for one in running:
        one.join(60)
    found = ids(tmp_path / "a", "python:s")
    assert len(found) == len(set(found)) and len(found) >= 2002


def test_a_cursor_that_went_on_here_is_not_turned_back_by_frames_that_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J4 R4: a capture that runs beside an import; its source is joined line by line, and the next ingest finds nothing new."""
    native, file = a_transcript(tmp_path)
    file.write_text(lines_of(native, 1))
    with Keep.open(tmp_path / "a") as keep:
        list(keep.ingest(home=tmp_path / "home"))
    copied(tmp_path / "a", tmp_path / "b")
    file.write_text(lines_of(native, 1, 2, 3))
    with Keep.open(tmp_path / "b") as b:
        list(b.ingest(home=tmp_path / "home"))
    snapshot = exported(tmp_path / "b", tmp_path / "b.s")

    times = 0

    def and_meanwhile(*given: Any) -> Iterator[Any]:
        """Another process ingests after what is lacking was found, and before it is appended."""
        nonlocal times
        yield from merge.find_missing(*given)
        if times == 0 and given[0].carry.get("opened"):
            times += 1
            with Keep.open(tmp_path / "a") as other:
                list(other.ingest(home=tmp_path / "home"))

    monkeypatch.setattr(importing, "find_missing", and_meanwhile)
    with Keep.open(tmp_path / "a") as a:
        assert a.import_(snapshot)["bad"] == []
        assert times == 1
        assert texts(a, f"claude:{native}") == ["words 1", "words 2", "words 3"]
        assert {one.state for one in a.ingest(home=tmp_path / "home", again=True)} == {"unchanged"}
    from dreamkeep.capture.sources.source_bytes import lines, sources

    folder = f"{tmp_path}/a/{folder_of(f'claude:{native}')}"
    for name in sources(HOST, folder):
        assert b"".join(lines(HOST, folder, name)) == file.read_bytes()


#: What one keep may do to a session after it was copied.
_ACTS = st.sampled_from(["record", "title", "end", "suspend", "resume", "hook", "open turn"])


def act(keep: Keep, what: str, words: str) -> None:
    session = keep.session("s") if what in ("record", "open turn", "title") else None
    if session and what == "record":
        session.record(words, ("assistant", "\ud800"))
    elif session and what == "open turn":
        session.submit(words).start()
    elif session:
        session.title(words)
    elif what == "hook":
        name = f"{keep.context.host.now():020d}-1-{os.urandom(8).hex()}~python~UserPromptSubmit.hook"
        payload = {"session_id": "s", "prompt": words, "hook_event_name": "UserPromptSubmit"}
        (Path(keep.root) / "spool").mkdir(exist_ok=True)
        (Path(keep.root) / "spool" / name).write_text(json.dumps(payload))
        keep.drain()
    elif not (what == "suspend" and keep.summary("python:s").state == "ended"):
        {"end": keep.end, "suspend": keep.suspend, "resume": keep.resume}[what]("s")


def resumed_at(root: Path) -> set[str]:
    folder = f"{root}/{folder_of('python:s')}"
    return {event.at for _, event in read_events(HOST, folder) if event.kind == Kind.SESSION_RESUMED}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.booleans(), _ACTS), max_size=8))
def test_whichever_copy_goes_into_which_the_session_is_the_same(tmp_path: Path, acts: list[tuple[bool, str]]) -> None:
    """R4: the same messages, turns, title and state; and afterwards hooks and turns go on, once each."""
    base = tmp_path / os.urandom(8).hex()
    with Keep.open(base / "a") as keep:
        keep.session("s").record("first")
    copied(base / "a", base / "b")
    for n, (here, what) in enumerate(acts):
        with Keep.open(base / ("a" if here else "b")) as keep:
            act(keep, what, f"words {n}")
    one, other = exported(base / "a", base / "a.s"), exported(base / "b", base / "b.s")
    imported(base / "a", other)
    imported(base / "b", one)
    found, last = [], []
    resumed = [resumed_at(base / root) for root in ("a", "b")]
    for root in ("a", "b"):
        with Keep.open(base / root) as keep:
            summary = keep.summary("python:s")
            said = sorted(texts(keep, "python:s"))
            found.append((summary.title, summary.state, summary.turns, summary.messages, said))
            last.append(summary.last_at or "")
            assert (keep.import_(other)["events"], keep.import_(one)["events"]) == (0, 0)
            act(keep, "hook", "and on")
            act(keep, "record", "and further")
            assert [texts(keep, "python:s").count(words) for words in ("and on", "and further")] == [1, 1]
        told = ids(base / root, "python:s")
        assert len(told) == len(set(told))
    assert found[0] == found[1]
    # A resume that the other copy's later end outdates is not imported. Only such a resume may be last in one copy alone.
    assert last[0] == last[1] or max(last) in resumed[last.index(max(last))]
    shutil.rmtree(base)


def test_an_import_beside_an_agent_at_work_loses_nothing_of_either(tmp_path: Path) -> None:
    """J4 R4: real processes; the session that is being written is the one that is merged."""
    with Keep.open(tmp_path / "k") as keep:
        keep.session("busy").record("first")
    copied(tmp_path / "k", tmp_path / "b")
    with Keep.open(tmp_path / "b") as b:
        for n in range(300):
            b.session("busy").record(f"there {n}")
    snapshot = exported(tmp_path / "b", tmp_path / "b.s")
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    writer = spawn.Process(target=write_on, args=(str(tmp_path / "k"), stop))
    writer.start()
    try:
        for _ in range(3):
            assert imported(tmp_path / "k", snapshot)["bad"] == []
    finally:
        stop.set()
        writer.join(60)
    assert writer.exitcode == 0
    reading = Reading(HOST, f"{tmp_path}/k/{folder_of('python:busy')}")
    found = [event.body.get("prompt") for _, event in events(reading)]
    assert reading.defects == [] and reading.tail is None
    mine = [said for said in found if said and said.startswith("turn ")]
    assert mine == [f"turn {n}" for n in range(len(mine))]
    assert [said for said in found if said and said.startswith("there ")] == [f"there {n}" for n in range(300)]


# -- what was deleted


def test_what_was_set_aside_of_a_deleted_session_does_not_come_back(tmp_path: Path) -> None:
    """K7 R5: nor its hook calls, nor what the keep's own journal had of it."""
    with Keep.open(tmp_path / "a") as keep:
        keep.session("goes").record("xylophone")
        keep.session("stays").record("pears")
    name = os.path.basename(folder_of("python:goes"))
    (tmp_path / "a" / "aside" / "repair-1").mkdir(parents=True)
    (tmp_path / "a" / "aside" / f"{name}.000001.9.00000000-9.tail").write_bytes(b"xylophone")
    (tmp_path / "a" / "aside" / "repair-1" / f"{name}.abc").write_bytes(b"xylophone")
    (tmp_path / "a" / "spool").mkdir()
    call = tmp_path / "a" / "spool" / f"{1:020d}-1-{1:016x}~python~Stop.hook"
    call.write_bytes(b'{"session_id":"goes","x":"xylophone"}')
    file = exported(tmp_path / "a", tmp_path / "s")
    with Keep.open(tmp_path / "a") as keep:
        keep.delete("goes")
        done = keep.import_(file)
        assert "python:goes" in {one["where"] for one in done["skipped"]}
    assert [str(p) for p in (tmp_path / "a").rglob("*") if p.is_file() and b"xylophone" in p.read_bytes()] == []


# -- what a crash leaves


def test_what_a_killed_import_staged_is_gone_after_the_next_and_after_a_delete(tmp_path: Path) -> None:
    """K7 W10: no words stay in a folder that no verb reads."""
    with Keep.open(tmp_path / "a") as keep:
        keep.session("goes").record("xylophone")
        keep.session("stays").record("pears")
    file = exported(tmp_path / "a", tmp_path / "s")
    root = tmp_path / "b"
    imported(root, file)

    def staged() -> list[Path]:
        return [path for path in (root / "state").rglob("*") if path.is_file() and b"xylophone" in path.read_bytes()]

    class Killed(RealHost):
        def __init__(self) -> None:
            self.dead = False

        def _die(self) -> None:
            if not self.dead and staged():
                self.dead = True
            if self.dead:
                raise PowerCut

        def sync(self, handle: int) -> None:
            super().sync(handle)
            self._die()

        def remove(self, path: str) -> None:
            if self.dead:
                raise PowerCut
            super().remove(path)

    def kill() -> None:
        with pytest.raises(PowerCut):
            Keep.open(root, host=Killed()).import_(file)
        assert staged()

    kill()
    imported(root, file)
    assert staged() == []
    kill()
    with Keep.open(root) as keep:
        keep.delete("goes")
    assert [str(p) for p in root.rglob("*") if p.is_file() and b"xylophone" in p.read_bytes()] == []


@pytest.mark.parametrize("merging", [False, True])
def test_an_import_whose_machine_loses_power_at_any_step_is_finished_by_the_next(merging: bool) -> None:
    """J2 R4: what was not synced is gone, and nothing that was there before is."""

    def fresh() -> FragileHost:
        host = FragileHost(seed=1)
        host.make_folder("/k")
        with Keep.open("/x", host=host, environment={}) as keep:
            keep.session("s", cwd="/").record("one")
            keep.session("t", cwd="/").record("two", ("assistant", "x" * 5000))
            keep.export("/snapshot", view=False)
        if merging:
            with Keep.open("/k", host=host, environment={}) as keep:
                keep.session("t", cwd="/").record("mine")
        return host

    def said(host: FragileHost, session: str) -> list[str]:
        reading = Reading(host, f"/k/{folder_of(session)}")
        found = [event.body["prompt"] for _, event in events(reading) if event.kind == Kind.TURN_RECORDED]
        assert reading.defects == [] and reading.tail is None
        return sorted(found)

    for at in range(1, 400):
        loss = LOSSES[at % len(LOSSES)]
        host = fresh()
        host.plan(at, "cut")
        finished = False
        try:
            Keep.open("/k", host=host, environment={}).import_("/snapshot")
            finished = True
        except PowerCut:
            pass
        again = host.reboot(loss, seed=at)
        if finished:
            assert said(again, "python:s") == ["one"], "what was reported as imported is durable"
        with Keep.open("/k", host=again, environment={}) as keep:
            assert keep.import_("/snapshot")["bad"] == [], (at, loss)
        assert said(again, "python:s") == ["one"], (at, loss)
        assert said(again, "python:t") == (["mine", "two"] if merging else ["two"]), (at, loss)
        assert [name for name in again.names("/k/state") if "import" in name and not name.endswith(".lock")] == []
        if finished:
            break
    assert 20 < at < 399


def test_a_full_disk_ends_an_import_and_says_so(tmp_path: Path) -> None:
    """J2: it is not the snapshot that is bad; nothing is left behind."""
    for merging in (False, True):
        host = FragileHost(seed=1)
        host.make_folder("/k")
        with Keep.open("/x", host=host, environment={}) as keep:
            for n in range(3):
                keep.session(f"s{n}", cwd="/").record("one")
            keep.export("/snapshot", view=False)
        if merging:
            with Keep.open("/k", host=host, environment={}) as keep:
                keep.session("s0", cwd="/").record("mine")
                keep.session("s1", cwd="/").record("mine")
        broken = 0
        for at in range(1, 300):
            copy = host.reboot("kept")
            keep = Keep.open("/k", host=copy, environment={})
            if merging:
                keep.context.journals()
            copy.plan(at, "fail", errno.ENOSPC)
            try:
                assert keep.import_("/snapshot")["bad"] == [], at
                if copy.calls < at:
                    break
            except NoSpace:
                broken += 1
            left = copy.names("/k/state") if copy.stat("/k/state") else []
            if copy.trace[-1][0] not in ("remove", "remove_folder"):
                assert [name for name in left if not name.endswith(".lock")] == [], (at, copy.trace[-5:])
        assert broken > 10


# -- crafted files


def frames(*bodies: tuple[str, Any], journal: str = "python:s", start: int = 0) -> bytes:
    """A part with a good head and good checksums; what is in it is anybody's guess."""
    head = {"format": 1, "journal": journal, "part": 1, "carry": {}}
    drafts = [d for kind, body in ((Kind.PART_OPENED, head), *bodies) for d in draft(Event("i", kind, AT, body))]
    return place(drafts, start, "00000000")[0]


def listed(files: dict[str, bytes]) -> bytes:
    entries = [{"name": n, "size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in files.items()]
    return made({**files, "manifest.json": json.dumps({"format": 1, "entries": entries}).encode()})


GOOD = frames(
    (Kind.SESSION_OPENED, {"session": "python:good"}),
    (Kind.TURN_RECORDED, {"turn": "t", "prompt": "hello", "messages": [], "state": "completed"}),
    journal="python:good",
)


def strange_files() -> Iterator[tuple[str, dict[str, bytes]]]:
    s = folder_of("python:s")
    yield "a file where a folder must be", {"aside/x": b"1", "aside/x/y": b"2"}
    yield "a name too long for a file system", {f"aside/{'n' * 300}": b"1"}
    yield "a deletion of nothing", {f"{KEEP}/000001.jsonl": frames((Kind.SESSION_DELETED, {}), journal="keep")}
    yield "a deletion of a number", {f"{KEEP}/000001.jsonl": frames((Kind.SESSION_DELETED, {"session": 7}), journal="keep")}
    yield "an absurd part", {f"{s}/999999999999.jsonl": frames()}
    yield "one part under two names", {f"{s}/000001.jsonl": frames(), f"{s}/0000001.jsonl": frames()}
    yield "a body that is a list", {f"{s}/000001.jsonl": frames().replace(b"{}", b"[]")}
    line = b'{"kind":"x","body":[],"prev":"00000000","seq":           1'
    import zlib

    yield "a frame without an id", {f"{s}/000001.jsonl": line + b',"crc":"%08x"}\n' % zlib.crc32(line)}
    yield "a head that says nothing", {f"{s}/000001.jsonl": frames((Kind.PART_OPENED, {}))}
    yield "a hole that says nothing", {f"{s}/000001.jsonl": frames((Kind.JOURNAL_HOLE, {}))}
    yield "a piece that says nothing", {f"{s}/000001.jsonl": frames((Kind.CHUNK, {}))}
    source = {"source": "main-1", "what": "moved"}
    yield "a source that says nothing", {f"{s}/000001.jsonl": frames((Kind.SOURCE_READ, source), (Kind.SOURCE_CHANGED, source))}


@pytest.mark.parametrize("merging", [False, True])
@pytest.mark.parametrize(("what", "files"), list(strange_files()), ids=[what for what, _ in strange_files()])
def test_one_strange_entry_in_a_snapshot_stops_nothing_else(
    what: str, files: dict[str, bytes], merging: bool, tmp_path: Path
) -> None:
    """W4 R4"""
    (tmp_path / "s").write_bytes(listed({**ABOUT, **files, f"{folder_of('python:good')}/000001.jsonl": GOOD}))
    with Keep.open(tmp_path / "k") as keep:
        keep.session("mine").record("pears")
        if merging:
            keep.session("s").record("mine too")
    done = imported(tmp_path / "k", tmp_path / "s")
    with Keep.open(tmp_path / "k") as keep:
        assert texts(keep, "python:good") == ["hello"], done
        assert texts(keep, "python:mine") == ["pears"]
        keep.session("new").record("goes on")
        keep.delete("mine")
        imported(tmp_path / "k", tmp_path / "s")


def test_duplicate_and_unlisted_entries_are_reported(tmp_path: Path) -> None:
    out = io.BytesIO()
    packer = snapshot_file.Packer(writer(out))
    part = f"{folder_of('python:good')}/000001.jsonl"
    more = {**ABOUT, part: GOOD}
    manifest = json.dumps(
        {"entries": [{"name": n, "size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in more.items()]}
    )
    for name, data in [*more.items(), (part, GOOD), ("aside/x", b"1"), ("manifest.json", manifest.encode())]:
        packer.add(snapshot_file.Header(name, len(data), hashlib.sha256(data).hexdigest()), [data])
    packer.end()
    (tmp_path / "s").write_bytes(out.getvalue())
    with Keep.open(tmp_path / "k") as keep:
        found = {one["where"] for one in keep.verify(tmp_path / "s")["problems"]}
        assert found == {part, "aside/x"}
        assert {one["where"] for one in keep.import_(tmp_path / "s")["bad"]} >= {part}
        assert texts(keep, "python:good") == ["hello"]


@pytest.mark.parametrize(
    "manifest", [b'{"entries":[{"name":[],"size":1,"sha256":"x"}]}', b"[" * 200_000, b'{"entries":7}', b"\xff"]
)
def test_a_foreign_manifest_is_reported(manifest: bytes, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(made({**ABOUT, "manifest.json": manifest}))
    with Keep.open(tmp_path / "k") as keep:
        assert not keep.verify(tmp_path / "s")["ok"]


def writer(out: io.BytesIO) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        out.write(data)

    return write


def packed(blocks: list[bytes]) -> bytes:
    """Blocks of any content with right checksums: an entry each."""
    out = io.BytesIO()
    packer = snapshot_file.Packer(writer(out))
    for n, block in enumerate(blocks):
        packer._entry = n
        packer._block(0, block, last=True)
    packer.end()
    return out.getvalue()


def tar_header(name: str, data: bytes, kind: bytes = tarfile.REGTYPE, **pax: str) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    info.pax_headers = {"comment": hashlib.sha256(data).hexdigest(), **{key.replace("__", "."): v for key, v in pax.items()}}
    return info.tobuf(tarfile.PAX_FORMAT) + data + b"\0" * (-len(data) % 512)


@pytest.mark.parametrize(
    "block",
    [
        *(
            tar_header("aside/x", b"abc", kind)
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
        ),
        *(tar_header("aside/x", b"abc", size=size) for size in ("-1", "-3", "99999999999999999999", "x", "1e3", "")),
        tar_header("aside/x", b"abc", GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__realsize="9"),
        tar_header("aside/x", b"abc", GNU__sparse__map="0,x", GNU__sparse__size="9"),
        tar_header("aside/x", b"abc", GNU__sparse__map="0,1,2", GNU__sparse__size="-9"),
        tar_header("aside/x", b"abc", path="../../x"),
        tar_header("aside/x", b"abc", path="/etc/x"),
        tar_header("aside/x", b"abc", hdrcharset="BINARY"),
        tar_header("aside/x", b"abc")[:700],
        tar_header("aside/x", b"abc")[:512],
        b"",
        b"\0" * 512,
        b"\xff" * 2000,
    ],
)
def test_crafted_headers_are_bad_entries_and_nothing_else(block: bytes, tmp_path: Path) -> None:
    """X1"""
    about = tar_header("dreamkeep-snapshot.json", ABOUT["dreamkeep-snapshot.json"])
    good = tar_header(f"{folder_of('python:good')}/000001.jsonl", GOOD)
    (tmp_path / "s").write_bytes(packed([about, block, good]))
    with Keep.open(tmp_path / "in" / "k") as keep:
        assert not keep.verify(tmp_path / "s")["ok"]
        done = keep.import_(tmp_path / "s")
        assert texts(keep, "python:good") == ["hello"], done
    assert [str(p) for p in tmp_path.rglob("x*") if not p.is_relative_to(tmp_path / "in/k/aside")] == []


def test_a_ledger_of_another_machine_cannot_point_a_repair_at_files_here(tmp_path: Path) -> None:
    """X1: the notes of a repair name paths to be restored and swept; not from a file that anybody may have made."""
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    note = json.dumps({"n": 1, "file": str(precious), "before": None, "after": {"sha256": "x"}, "temp": str(precious)}) + "\n"
    id = "019b0000-0000-7000-8000-000000000000"
    (tmp_path / "s").write_bytes(listed({**ABOUT, f"aside/repair-{id}/undo.json": note.encode()}))
    done = imported(tmp_path / "k", tmp_path / "s")
    with Keep.open(tmp_path / "k") as keep:
        keep.session("s").submit("a turn that nobody settles")
    with Keep.open(tmp_path / "k") as keep:
        keep.repair(apply=True, home=tmp_path / "nowhere")
        with pytest.raises(DreamkeepError):
            keep.repair(undo=id)
    assert precious.read_text() == "mine"
    assert f"aside/repair-{id}/undo.json" in {one["where"] for one in done["skipped"]}


# -- export


def test_an_export_into_the_keep_or_into_nothing_is_refused(tmp_path: Path) -> None:
    """K7: in the keep it would hold what is deleted later, and the next export would hold it."""
    with Keep.open(tmp_path / "k") as keep:
        keep.session("s").record("one")
        (tmp_path / "link").symlink_to(tmp_path / "k")
        for path in ("k/aside/s", "k/s", "link/s"):
            (tmp_path / path).parent.mkdir(exist_ok=True)
            with pytest.raises(BadUsage, match="inside the keep"):
                keep.export(tmp_path / path)
        for path in ("nothing/s", "k/keep.toml/s"):
            with pytest.raises(BadUsage):
                keep.export(tmp_path / path)
        with pytest.raises(BadUsage):
            keep.export(tmp_path)
    assert list((tmp_path / "k").rglob("*.tmp")) == []


def test_a_full_disk_is_reported_once_and_for_the_snapshot(tmp_path: Path) -> None:
    """J2: the index is well, and nothing is read twice."""
    warned: list[str] = []
    tries = 0

    class Full(RealHost):
        def create(self, path: str) -> int:
            nonlocal tries
            if ".tmp" in path and "snapshot" in path:
                tries += 1
            return super().create(path)

        def write(self, handle: int, data: bytes) -> int:
            if tries:
                raise OSError(errno.ENOSPC, "No space left on device")
            return os.write(handle, data)

    with Keep.open(tmp_path / "k", host=Full()) as keep:
        keep.session("s").record("one")
        keep.sessions()
        keep.warn = warned.append
        with pytest.raises(NoSpace, match="snapshot"):
            keep.export(tmp_path / "snapshot")
    assert (tries, warned, list(tmp_path.glob("snapshot*"))) == (1, [], [])


def test_an_export_goes_to_a_disk_without_hard_links(tmp_path: Path) -> None:
    """W11: a stick with another file system; still nothing is written over."""

    class Stick(RealHost):
        def link(self, old: str, new: str) -> None:
            if "stick" in new:
                raise PermissionError(errno.EPERM, "Operation not permitted", old)
            super().link(old, new)

    (tmp_path / "stick").mkdir()
    with Keep.open(tmp_path / "k", host=Stick()) as keep:
        keep.session("s").record("one")
        keep.export(tmp_path / "stick" / "s")
        assert keep.verify(tmp_path / "stick" / "s")["ok"]
        with pytest.raises(BadUsage):
            keep.export(tmp_path / "stick" / "s")
    assert os.listdir(tmp_path / "stick") == ["s"]


def test_hook_calls_that_are_drained_while_an_export_runs_do_not_end_it(tmp_path: Path) -> None:
    (tmp_path / "k" / "spool").mkdir(parents=True)
    call = tmp_path / "k" / "spool" / f"{1:020d}-1-{1:016x}~claude~Stop.hook"

    class Draining(RealHost):
        def open_stream(self, path: str) -> BinaryIO:
            if path.endswith("keep.toml") or path == str(call):
                call.unlink(missing_ok=True)
            return super().open_stream(path)

    with Keep.open(tmp_path / "k", host=Draining()) as keep:
        keep.session("s").record("one")
        call.write_bytes(b"{}")
        keep.export(tmp_path / "s", view=False)
        assert keep.verify(tmp_path / "s")["ok"]


@pytest.mark.parametrize("when", range(1, 9))
def test_a_session_deleted_while_an_export_runs_does_not_end_it(when: int, tmp_path: Path) -> None:
    """Either the rest is there, or the export reports that something changed."""
    with Keep.open(tmp_path / "k") as keep:
        for name in ("a", "goes", "z"):
            keep.session(name).record(name)
        keep.sessions()

    class Deleting(RealHost):
        def __init__(self) -> None:
            self.left = -1

        def open_stream(self, path: str) -> Any:
            if self.left > 0:
                self.left -= 1
                if self.left == 0:
                    with Keep.open(tmp_path / "k") as other:
                        other.delete("goes")
            return super().open_stream(path)

    host = Deleting()
    with Keep.open(tmp_path / "k", host=host) as keep:
        host.left = when
        try:
            keep.export(tmp_path / "s")
        except DreamkeepError as problem:
            assert "changed while it was read" in str(problem)
            return
        assert keep.verify(tmp_path / "s")["ok"]
    with Keep.open(tmp_path / "new") as new:
        new.import_(tmp_path / "s")
        assert {one.native_id for one in new.sessions()} >= {"a", "z"}


def test_an_unreadable_part_is_reported_and_the_rest_is_exported(tmp_path: Path) -> None:
    """R4: a keep with damage is the one that needs a copy most."""
    with Keep.open(tmp_path / "k") as keep:
        for name in ("bad", "cold", "good"):
            for n in range(3):
                keep.session(name).record(f"{name} {n}", ("tool", os.urandom(40_000).hex()))
        keep.compress(everything=True)
    (tmp_path / "k/journal/sessions/python/.DS_Store").write_bytes(b"a file of another program")
    bad = tmp_path / "k" / folder_of("python:bad") / "000001.jsonl.zst"
    cold = tmp_path / "k" / folder_of("python:cold") / "000001.jsonl.zst"
    bad.unlink()
    bad.mkdir()
    data = bytearray(cold.read_bytes())
    data[len(data) // 2 :] = b""
    cold.write_bytes(data)
    with Keep.open(tmp_path / "k") as keep:
        done = keep.export(tmp_path / "s")
        assert {one["where"] for one in done["problems"]} == {
            f"{folder_of('python:bad')}/000001.jsonl",
            f"{folder_of('python:cold')}/000001.jsonl",
        }
        assert keep.verify(tmp_path / "s")["problems"] == done["problems"]
    with Keep.open(tmp_path / "new") as new:
        new.import_(tmp_path / "s")
        assert texts(new, "python:good")[::2] == ["good 0", "good 1", "good 2"]


def test_a_circular_or_outward_link_is_reported_and_the_rest_is_exported(tmp_path: Path) -> None:
    """R4: what a link to a folder leads to is not the keep's."""
    root = tmp_path / "k"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("mine")
    with Keep.open(root) as keep:
        keep.session("s").record("words")
        for folder in ("aside", "pages"):
            (root / folder).mkdir(exist_ok=True)
            (root / folder / "circle").symlink_to(".")
            (root / folder / "itself").symlink_to("itself")
            (root / folder / "elsewhere").symlink_to(tmp_path / "mine")
            (root / folder / "plain").write_text("plain")
        told = {one["where"] for one in keep.export(tmp_path / "s")["problems"]}
    assert told == {f"{folder}/{name}" for folder in ("aside", "pages") for name in ("circle", "itself", "elsewhere")}
    imported(tmp_path / "c", tmp_path / "s")
    assert (tmp_path / "c" / "aside" / "plain").read_text() == "plain"
    assert not list((tmp_path / "c").rglob("diary.txt"))


def test_names_that_are_no_text_and_odd_ones_come_through(tmp_path: Path) -> None:
    """D22"""
    with Keep.open(tmp_path / "k") as keep:
        keep.session("s").record("one")
    aside = os.fsencode(tmp_path / "k" / "aside")
    os.makedirs(aside, exist_ok=True)
    for name in (b"caf\xe9.tail", "ﬁ\u200b\u0301".encode(), b"n" * 150, b" ", b"-rf", "日本".encode() * 20):
        with open(os.path.join(aside, name), "wb") as file:
            file.write(name)
    exported(tmp_path / "k", tmp_path / "s")
    assert imported(tmp_path / "new", tmp_path / "s")["bad"] == []
    assert truth(tmp_path / "new") == truth(tmp_path / "k")


# -- cost


def test_many_small_entries_are_read_in_the_time_of_their_bytes() -> None:
    """What is copied for each block must not be what was read ahead."""
    copied_bytes = 0

    class Counting(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            nonlocal copied_bytes
            copied_bytes += size or 0
            return super().read(size)

    packed_ = made({f"aside/{n}": b"x" for n in range(2000)})
    found = list(snapshot_file.Unpacker(Counting(packed_)).entries())
    assert len(found) == 2000
    assert copied_bytes < 3 * len(packed_) + (1 << 20)


def test_events_are_joined_in_batches_of_bounded_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory: long outputs are many megabytes each."""
    from dreamkeep.journal.writers import JournalWriters

    largest = 0
    append = JournalWriters.append_if

    def watched(self: JournalWriters, session: str, batch: Any, expect: Any) -> Any:
        nonlocal largest
        largest = max(largest, sum(len(d.head) for event in batch for d in draft(event)))
        return append(self, session, batch, expect)

    with Keep.open(tmp_path / "a") as keep:
        keep.session("s").record("one")
    copied(tmp_path / "a", tmp_path / "b")
    with Keep.open(tmp_path / "b") as b:
        for n in range(30):
            b.session("s").record(f"{n}", ("tool", "x" * 1_500_000))
    exported(tmp_path / "b", tmp_path / "s")
    monkeypatch.setattr(JournalWriters, "append_if", watched)
    assert imported(tmp_path / "a", tmp_path / "s")["events"] == 30
    assert 1_000_000 < largest < 12 << 20


# -- what is left when an export ends early


def test_an_export_that_loses_power_at_any_step_gives_a_whole_file_or_none() -> None:
    """J2 W11 W12"""
    for at in range(1, 100):
        host = FragileHost(seed=at)
        with Keep.open("/k", host=host, environment={}) as keep:
            keep.session("s", cwd="/").record("one")
            host.make_folder("/out")
            host.sync_folder("/")
            host.plan(at, "cut")
            finished = False
            try:
                keep.export("/out/s", view=False)
                finished = True
                host.plan(0, "cut")
            except PowerCut:
                pass
        again = host.reboot(LOSSES[at % len(LOSSES)], seed=at)
        there = again.stat("/out/s") is not None
        assert there or not finished
        if there:
            assert Keep.open("/k", host=again, environment={}).verify("/out/s")["ok"]
        if finished:
            break
    assert 5 < at < 99


@pytest.mark.parametrize("how", ["fail", "tear"])
def test_an_export_that_fails_at_any_step_leaves_nothing_behind(how: str) -> None:
    """W10: or it is there and whole, and only what came after its name was refused."""
    for at in range(1, 100):
        host = FragileHost(seed=at)
        with Keep.open("/k", host=host, environment={}) as keep:
            keep.session("s", cwd="/").record("one")
            host.make_folder("/out")
            host.plan(at, how, errno.ENOSPC)
            try:
                keep.export("/out/s", view=False)
            except DreamkeepError:
                names = host.names("/out")
                assert names == [] or (names == ["s"] and keep.verify("/out/s")["ok"]), (at, names)
                continue
            if host.calls < at:
                break
    assert 5 < at < 99


def test_an_interrupted_command_leaves_no_file(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as keep:
        for n in range(40):
            keep.session("s").record(f"{n}", ("tool", os.urandom(700_000).hex()))
    (tmp_path / "out").mkdir()
    words = [sys.executable, "-m", "dreamkeep", "--keep", str(tmp_path / "k"), "snapshot", "export", str(tmp_path / "out" / "s")]
    running = subprocess.Popen(words, stderr=subprocess.PIPE)
    while running.poll() is None and not any(path.stat().st_size > 1 << 20 for path in (tmp_path / "out").iterdir()):
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=60)[1]
    assert running.returncode != 0 and b"Traceback" not in said
    assert list((tmp_path / "out").iterdir()) == []


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_header_with_any_bytes_changed_is_read_or_passed_over(data: st.DataObject) -> None:
    """X1: with correct checksums, as an attacker would write it."""
    pieces = [b"size=-1\n", b"GNU.sparse.major=1\n", b"path=../x\n", b"g", b"x", b"L"]
    block = bytearray(tar_header("aside/x", b"abc", path="aside/y", size="3"))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, 2000))
        piece = data.draw(st.binary(max_size=12) | st.sampled_from(pieces))
        block[at : at + len(piece)] = piece
    unpacker = snapshot_file.Unpacker(io.BytesIO(packed([bytes(block), tar_header("aside/good", b"good")])))
    found = {}
    for header, blocks in unpacker.entries():
        try:
            found[header.name] = b"".join(blocks)
        except snapshot_file.DamagedEntry:
            continue
    assert found["aside/good"] == b"good"
