"""Repair: each fault of the keep made for real, seen, planned, mended and undone; what is not safe is not touched.

Faults of agents' stores have their tests where their repairs are; here is what all share.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.capture.sources import source_bytes
from dreamkeep.errors import BadUsage, Busy, Failed, NotFound
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import RealHost
from dreamkeep.journal import parts, witness
from dreamkeep.journal.frame import draft, parse, place
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.scan import read_events
from dreamkeep.journal.writers import JournalWriters
from dreamkeep.recovery.audit.audit import AuditReport, audit
from dreamkeep.recovery.faults import CLASSES, Fault, MendResult
from dreamkeep.recovery.repair import keep as mend_keep
from dreamkeep.recovery.repair import repair
from dreamkeep.recovery.repair.context import PlanContext
from dreamkeep.recovery.repair.ledger import Ledger, repair_ids
from dreamkeep.recovery.repair.undo import undo as take_back
from tests.helpers.cli import Ran
from tests.helpers.faults import Dying, FragileHost, PowerCut, cut_at_every_step
from tests.paths import ROOT

HOST = RealHost()
PAGE = ROOT / "docs" / "recovery.md"
OLD_S = 2 * 3600


class World:
    """A keep, a home with one Claude transcript, and ways to break them."""

    def __init__(self, root: str, home: Path) -> None:
        self.root = root
        self.home = home
        self.transcript = home / ".claude" / "projects" / "-p" / "11111111-1111-4111-8111-111111111111.jsonl"
        self.session = "claude:11111111-1111-4111-8111-111111111111"
        self.transcript.parent.mkdir(parents=True)
        home.joinpath("p").mkdir()

    def grow(self, first: int, more: int) -> None:
        with self.transcript.open("ab") as file:
            for n in range(first, first + more):
                file.write(_line(n, self.transcript.stem, str(self.home / "p")))

    def ingest(self) -> None:
        with Keep.open(self.root) as keep:
            assert not [one.problem for one in keep.ingest(home=self.home) if one.problem]

    def captured(self, *steps: int) -> None:
        """A session taken in so many steps, each one frame."""
        done = 0
        for more in steps or (3, 3, 3, 3):
            self.grow(done, more)
            done += more
            self.ingest()

    def audit(self, deep: bool = False) -> dict[str, Any]:
        with Keep.open(self.root) as keep:
            return keep.audit(deep=deep, home=self.home)

    def repair(self, **how: Any) -> dict[str, Any]:
        with Keep.open(self.root) as keep:
            return keep.repair(home=self.home, **how)

    def classes(self) -> list[str]:
        return sorted(fault["class"] for fault in self.audit()["faults"])

    def folder(self, session: str = "") -> Path:
        return Path(self.root, folder_of(session or self.session))

    def part(self, session: str = "", number: int = 1) -> Path:
        return self.folder(session) / parts.name(number)

    def journal(self, session: str = "") -> list[dict[str, Any]]:
        return list(Reading(HOST, str(self.folder(session))))

    def messages(self) -> list[str]:
        with Keep.open(self.root) as keep:
            return sorted(message["text"] for message in keep.show(self.session)["messages"])

    def rejoined(self) -> bytes:
        [name] = source_bytes.sources(HOST, str(self.folder()))
        return b"".join(source_bytes.lines(HOST, str(self.folder()), name))


def _line(n: int, session: str, cwd: str) -> bytes:
    role = "user" if n % 2 == 0 else "assistant"
    message = {"role": role, "content": f"words {n}" if role == "user" else [{"type": "text", "text": f"words {n}"}]}
    at = f"2026-01-01T10:{n // 60:02d}:{n % 60:02d}.000Z"
    return (
        json.dumps(
            {"type": role, "uuid": f"u{n}", "sessionId": session, "cwd": cwd, "timestamp": at, "message": message}
        ).encode()
        + b"\n"
    )


@pytest.fixture
def world(root: str, tmp_path: Path) -> World:
    return World(root, tmp_path / "home")


def looks(root: str, *without: str) -> dict[str, tuple[bytes | None, int]]:
    """Every file of the keep: bytes and mode. Not the witness, a log whose lines say the same in many ways."""
    found: dict[str, tuple[bytes | None, int]] = {}
    for path in sorted(Path(root).rglob("*")):
        name = str(path.relative_to(root))
        if not name.startswith(("aside", witness.FILE, *without)):
            found[name] = (path.read_bytes() if path.is_file() else None, path.stat().st_mode & 0o777)
    return found


def stamps(root: str) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(Path(root).rglob("*"))}


# -- the classes, each broken for real


def _damage_line(path: Path, kind: str, nth: int = 0) -> None:
    """One bit of a frame's body."""
    lines = path.read_bytes().split(b"\n")
    at = [n for n, line in enumerate(lines) if f'"kind":"{kind}"'.encode() in line[:200]][nth]
    middle = lines[at].index(b'"body":') + 9
    lines[at] = lines[at][:middle] + bytes([lines[at][middle] ^ 1]) + lines[at][middle + 1 :]
    path.write_bytes(b"\n".join(lines))


def _drop_line(path: Path, kind: str, nth: int = 0) -> None:
    lines = path.read_bytes().split(b"\n")
    del lines[[n for n, line in enumerate(lines) if f'"kind":"{kind}"'.encode() in line[:200]][nth]]
    path.write_bytes(b"\n".join(lines))


def tail(world: World) -> None:
    world.captured()
    with world.part().open("ab") as part:
        part.write(b'{"id":"torn in the middle of a wor')


def tail_whole(world: World) -> None:
    world.captured()
    world.part().write_bytes(world.part().read_bytes()[:-1])


def damage(world: World) -> None:
    world.captured()
    _damage_line(world.part(), "source.read", 1)


def damage_at_the_end(world: World) -> None:
    """The last lines that were captured; the session was ended afterwards."""
    world.captured()
    with Keep.open(world.root) as keep:
        keep.end(world.session)
    _damage_line(world.part(), "source.read", 3)


def damage_of_nothing(world: World) -> None:
    """NULs that a power cut left between two good frames."""
    world.captured()
    lines = world.part().read_bytes().split(b"\n")
    world.part().write_bytes(b"\n".join([*lines[:3], b"\0" * 512, *lines[3:]]))


def gap(world: World) -> None:
    world.captured()
    _drop_line(world.part(), "source.read", 2)


def missing_part(world: World) -> None:
    with Keep.open(world.root) as keep:
        keep.context.journals()._part_size = 700
        for n in range(4):
            world.grow(3 * n, 3)
            assert not [one.problem for one in keep.ingest(home=world.home) if one.problem]
    numbers = parts.numbers(HOST, str(world.folder()))
    assert len(numbers) >= 4
    world.part(number=numbers[-2]).unlink()


def cold(world: World) -> None:
    """A bit of the last part, which is compressed: no frame tells what was in it."""
    with Keep.open(world.root) as keep:
        keep.context.journals()._part_size = 700
        for n in range(4):
            world.grow(3 * n, 3)
            assert not [one.problem for one in keep.ingest(home=world.home) if one.problem]
        keep.sessions()
        keep.compress(everything=True)
    flip(world.part(number=parts.numbers(HOST, str(world.folder()))[-1]).with_suffix(".jsonl.zst"))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def chunks(world: World) -> None:
    world.captured(2)
    long = json.loads(_line(2, world.transcript.stem, "/p"))
    long["message"]["content"] = "wörd" * 300_000
    with world.transcript.open("ab") as file:
        file.write(json.dumps(long, ensure_ascii=False).encode() + b"\n")
    world.ingest()
    _drop_line(world.part(), "chunk", 1)


def duplicate(world: World) -> None:
    world.captured()
    lines = world.part().read_bytes().split(b"\n")
    world.part().write_bytes(b"\n".join([*lines[:4], lines[3], *lines[4:]]))


def disorder(world: World) -> None:
    world.captured()
    lines = world.part().read_bytes().split(b"\n")
    lines[3], lines[4] = lines[4], lines[3]
    world.part().write_bytes(b"\n".join(lines))


def link(world: World) -> None:
    """A frame that names another one before it."""
    with Keep.open(world.root) as keep:
        keep.session("own").record("one")
    path = world.part("python:own")
    last = parse(path.read_bytes().split(b"\n")[-2])
    assert last
    line, _ = place(draft(_message("linked wrongly")), last["seq"], "0badc0de")
    path.write_bytes(path.read_bytes() + line)


def reused(world: World) -> None:
    """Two writers that did not see each other, as on a file system without locks."""
    with Keep.open(world.root) as keep:
        session = keep.session("own")
        session.record("one")
        session.record("two")
    path = world.part("python:own")
    lines = path.read_bytes().split(b"\n")
    frame, before = parse(lines[3]), parse(lines[2])
    assert frame and before
    other, _ = place(draft(_message("the other writer's")), before["seq"], before["crc"])
    path.write_bytes(b"\n".join([*lines[:4], other[:-1], *lines[4:]]))


def _message(text: str) -> Event:
    return Event(Ids(HOST.now, HOST.random).new(), Kind.MESSAGE_ADDED, rfc3339(HOST.now()), {"role": "user", "text": text})


def twice(world: World) -> None:
    world.captured()
    folder = str(world.folder())
    plain = world.part().read_bytes()
    assert parts.compress(HOST, folder, 1, last=True)
    world.part().write_bytes(plain)
    world.part().chmod(0o600)


def unusable_index(world: World) -> None:
    world.captured()
    world.messages()
    Path(world.root, "index.sqlite").write_bytes(b"this is no database " * 500)


def drifted(world: World) -> None:
    """Rows are gone from the index."""
    world.captured()
    world.messages()
    db = apsw.Connection(f"{world.root}/index.sqlite")
    db.execute("DELETE FROM sessions")
    db.close()


def shortened(world: World) -> None:
    """An older copy of the journal was put back: sound, but the index knows more, and so does the transcript."""
    world.captured()
    world.messages()
    lines = world.part().read_bytes().split(b"\n")
    world.part().write_bytes(b"\n".join([*lines[:-2], b""]))


def torn_witness(world: World) -> None:
    """As a power cut leaves it."""
    world.captured()
    with Path(world.root, witness.FILE).open("ab") as file:
        file.write(b'{"journal":"journal/ses')


def lost_witness(world: World) -> None:
    world.captured()
    Path(world.root, witness.FILE).unlink()


def spooled(world: World) -> None:
    world.captured()
    folder = Path(world.root, "spool")
    folder.mkdir(mode=0o700)
    old = time.time_ns() - OLD_S * 10**9
    call = folder / f"{old:020d}-1-{'0' * 16}~claude~UserPromptSubmit.hook"
    said = {"session_id": world.session.partition(":")[2], "hook_event_name": "UserPromptSubmit", "prompt": "hooked"}
    call.write_text(json.dumps({**said, "cwd": str(world.home / "p"), "transcript_path": str(world.transcript)}))
    call.chmod(0o600)
    os.utime(call, ns=(old, old))
    world.grow(100, 1)  # not captured yet: the hook names this transcript


def spool_unreadable(world: World) -> None:
    world.captured()
    folder = Path(world.root, "spool")
    folder.mkdir(mode=0o700)
    (folder / "what is this").write_bytes(b"\xff\0")
    (folder / "what is this").chmod(0o600)
    _age(folder / "what is this")


def hook_lost(world: World) -> None:
    world.captured()
    folder = Path(world.root, "spool")
    folder.mkdir(mode=0o700)
    (folder / "problems").write_text("2026-01-01 claude Stop: no space\n")
    (folder / "problems").chmod(0o600)


def lease(world: World) -> None:
    world.captured()
    folder = Path(world.root, "state", "owners")
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / Ids(HOST.now, HOST.random).new()
    path.touch(0o600)
    _age(path)


def turn(world: World) -> None:
    _in_another_process(world, "t = k.session('own').submit('the prompt that must stay')\nos.kill(os.getpid(), 9)")
    for path in Path(world.root, "state", "owners").iterdir():
        path.unlink()  # else its lease is a fault of its own


def _in_another_process(world: World, program: str) -> None:
    subprocess.run(
        [sys.executable, "-c", f"import os, sys\nfrom dreamkeep import Keep\nk = Keep.open(sys.argv[1])\n{program}", world.root],
        check=False,
        timeout=60,
    )


def compaction(world: World) -> None:
    """A hook told that it began, long ago, and nobody told more."""
    journals = JournalWriters(HOST, world.root, Ids(HOST.now, HOST.random))
    world.captured()
    from dreamkeep.session.raw import pack

    at = rfc3339(HOST.now() - OLD_S * 10**9)
    payload = {"session_id": world.session.partition(":")[2], "hook_event_name": "PreCompact", "trigger": "manual"}
    told = {"agent": "claude", "calls": [{"event": "PreCompact", "at": at, "spool": "x"}]}
    body = pack(told, [json.dumps(payload).encode()])
    journals.append(world.session, [Event(Ids(HOST.now, HOST.random).new(), Kind.HOOK_FIRED, at, body)])
    journals.close()


def leftover(world: World) -> None:
    world.captured()
    path = Path(world.root, "state", f"sources.json.{'0' * 16}.tmp")
    path.write_bytes(b"half a fi")
    path.chmod(0o600)
    _age(path)


def _age(path: Path) -> None:
    then = time.time() - OLD_S
    os.utime(path, (then, then))


def opened(world: World) -> None:
    world.captured()
    Path(world.root).chmod(0o755)
    Path(world.root, "journal").chmod(0o750)
    Path(world.root, "state", "sources.json").chmod(0o644)


def state(world: World) -> None:
    world.captured()
    Path(world.root, "state", "sources.json").write_bytes(b'{"version":3,"sources":{')


def tombstone(world: World) -> None:
    with Keep.open(world.root) as keep:
        keep.session("own").record("one")
        keep.session("stays").record("two")
        journals = keep.context.journals()
        folder = Path(world.root, "state", "deleting")
        folder.mkdir(mode=0o700, parents=True)
        (folder / os.path.basename(folder_of("python:own"))).write_text("python:own")
        (folder / os.path.basename(folder_of("python:own"))).chmod(0o600)
        journals.say("", Kind.SESSION_DELETED, {"session": "python:own"})


def intent(world: World) -> None:
    """Of a deletion whose tombstone was never written, and one that nobody can read."""
    world.captured()
    folder = Path(world.root, "state", "deleting")
    folder.mkdir(mode=0o700)
    for name, said in (("x", b"python:x"), ("y", b"\xff\x00"), ("z", b"\xfe")):
        (folder / name).write_bytes(said)
        (folder / name).chmod(0o600)


#: How each class that has a repair comes about, and which it is.
BROKEN: dict[str, tuple[Callable[[World], None], str]] = {
    "tail": (tail, "journal_tail"),
    "tail_whole": (tail_whole, "journal_tail"),
    "damage": (damage, "journal_damage"),
    "damage_at_the_end": (damage_at_the_end, "journal_damage"),
    "damage_of_nothing": (damage_of_nothing, "journal_damage"),
    "gap": (gap, "journal_gap"),
    "missing_part": (missing_part, "journal_missing_part"),
    "shortened": (shortened, "journal_missing_part"),
    "cold": (cold, "journal_damage"),
    "chunks": (chunks, "journal_chunks"),
    "duplicate": (duplicate, "journal_duplicate"),
    "disorder": (disorder, "journal_disorder"),
    "link": (link, "journal_link"),
    "reused": (reused, "journal_reused"),
    "twice": (twice, "journal_twice"),
    "unusable_index": (unusable_index, "index_unusable"),
    "drifted": (drifted, "index_drift"),
    "torn_witness": (torn_witness, "witness_damaged"),
    "lost_witness": (lost_witness, "witness_damaged"),
    "spooled": (spooled, "spool_waiting"),
    "spool_unreadable": (spool_unreadable, "spool_unreadable"),
    "hook_lost": (hook_lost, "hook_lost"),
    "lease": (lease, "lease_stale"),
    "turn": (turn, "turn_interrupted"),
    "compaction": (compaction, "compaction_open"),
    "leftover": (leftover, "leftover"),
    "opened": (opened, "open_to_others"),
    "state": (state, "state_unreadable"),
    "intent": (intent, "leftover"),
}
#: Their age is part of the fault, and what came back is young.
_YOUNG = ("leftover", "lease")
#: What looking at a keep changes by itself.
_VIEWS = ("state/repair.lock", "state/index.lock", "state/drain.lock", "state/delete.lock")


def _seen(world: World) -> witness.Seen:
    return witness.load(HOST, world.root).seen


@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_of_the_keep_is_seen_planned_mended_and_undone(world: World, name: str) -> None:
    """B4, W2, W5: each repairable class has a repair, after which the audit is clean; every byte it replaces is kept."""
    make, cls = BROKEN[name]
    make(world)
    broken, seen = looks(world.root, *_VIEWS), _seen(world)
    touched = stamps(world.root)
    assert cls in world.classes()
    plan = world.repair()
    assert plan["applied"] == [] and plan["undo_id"] is None and plan["skipped"] == []
    assert {step["action"] for step in plan["plan"]} >= {CLASSES[cls].repair}
    assert not plan["audit"]["clean"] and stamps(world.root) == touched, "a plan writes nothing"
    done = world.repair(apply=True)
    assert done["skipped"] == [] and done["audit"]["clean"], done
    assert [step["fault"] for step in done["applied"]] == [step["fault"] for step in plan["plan"]]
    assert world.audit(deep=True)["clean"]
    touched = stamps(world.root)
    again = world.repair(apply=True)
    assert (again["plan"], again["applied"], again["undo_id"]) == ([], [], None) and stamps(world.root) == touched
    back = world.repair(undo=done["undo_id"])
    assert back["skipped"] == [], back
    after = looks(world.root, *_VIEWS)
    assert _seen(world) == seen
    assert {path: look for path, look in after.items() if path in broken or look[0] is not None} == broken
    if name not in _YOUNG:
        assert cls in world.classes()


# -- what the mended keep holds


@pytest.mark.parametrize("name", ["damage", "damage_at_the_end", "gap", "missing_part", "shortened", "cold", "chunks"])
def test_what_a_journal_lost_is_in_it_again_word_for_word(world: World, name: str) -> None:
    """W4: content decides, not how many frames there are."""
    BROKEN[name][0](world)
    lost = world.rejoined()
    assert lost != world.transcript.read_bytes()
    world.repair(apply=True)
    assert world.rejoined() == world.transcript.read_bytes()
    words = [json.loads(line)["message"]["content"] for line in world.transcript.read_bytes().splitlines()]
    expected = sorted(said if isinstance(said, str) else said[0]["text"] for said in words)
    assert world.messages() == expected
    with Keep.open(world.root) as keep:
        keep.reindex(from_zero=True)
        assert [one.state for one in keep.ingest(home=world.home)] == ["unchanged"]
        assert [one.new_events for one in keep.ingest(home=world.home, again=True)] == [0]
    assert world.messages() == expected
    world.grow(50, 2)
    world.ingest()
    assert world.rejoined() == world.transcript.read_bytes()


def test_lines_that_can_still_be_read_are_not_journaled_again(world: World) -> None:
    """W14: what is here is named, not repeated."""
    damage(world)
    before = world.part().stat().st_size
    lost = len(world.transcript.read_bytes()) // 4
    world.repair(apply=True)
    assert world.part().stat().st_size - before < lost + 2500
    [changed] = [frame for frame in world.journal() if frame["body"].get("what") == "mended"]
    ops = [frame["body"]["ops"] for frame in world.journal() if frame["seq"] > changed["seq"] and "ops" in frame["body"]]
    assert ops == [[[0, 3], 3, [3, 6]]]


def test_an_event_under_a_seq_that_was_taken_is_read_after_the_repair(world: World) -> None:
    """J4, W9: of two writers that did not see each other nothing is lost."""
    reused(world)
    with Keep.open(world.root) as keep:
        assert "the other writer's" not in [m["text"] for m in keep.show("python:own")["messages"]]
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        assert [m["text"] for m in keep.show("python:own")["messages"]].count("the other writer's") == 1


def test_an_interrupted_turn_is_said_once_its_prompt_stays_and_a_late_completion_wins(world: World) -> None:
    """T1, T2, T3, T4, T8: by the turn's own id, once, and only when its owner is gone."""
    turn(world)
    _in_another_process(
        world, "s = k.session('own')\ns.submit('again').start()\ns.submit('again').start()\nos.kill(os.getpid(), 9)"
    )
    for path in Path(world.root, "state", "owners").iterdir():
        path.unlink()
    with Keep.open(world.root) as alive:
        mine = alive.session("own").submit("mine goes on")
        done = world.repair(apply=True)
        assert [step["action"] for step in done["applied"]] == ["settle_turn"] * 3 and done["audit"]["clean"]
        mine.settle("completed")
    assert world.repair(apply=True)["applied"] == []
    settled = [frame["body"] for frame in world.journal("python:own") if frame["kind"] == "turn.settled"]
    assert [(one["state"], one.get("recovered")) for one in settled] == [("interrupted", True)] * 3 + [("completed", None)]
    with Keep.open(world.root) as keep:
        shown = keep.show("python:own")["turns"]
        assert [(one["prompt"], one["state"]) for one in shown] == [
            ("the prompt that must stay", "interrupted"),
            ("again", "interrupted"),
            ("again", "interrupted"),
            ("mine goes on", "completed"),
        ]
        keep.session("own").turn(shown[1]["id"]).settle("completed")
        assert [one["state"] for one in keep.show("python:own")["turns"]][1:3] == ["completed", "interrupted"]
        before = keep.summary("python:own").last_at
    assert before and before < rfc3339(HOST.now())


def test_a_recovered_turn_does_not_make_its_session_newer(world: World) -> None:
    turn(world)
    with Keep.open(world.root) as keep:
        before = keep.summary("python:own").last_at
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        assert keep.summary("python:own").last_at == before


def test_a_compaction_that_was_given_up_is_failed_and_counts_when_it_is_completed_after_all(world: World) -> None:
    """S5: a late completion is applied once."""
    compaction(world)
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        [one] = keep.show(world.session)["compactions"]
        assert (one["state"], one["closing"], one["active"]) == ("failed", "timeout", False)
    summary = {"type": "system", "subtype": "compact_boundary", "uuid": "c1", "sessionId": world.transcript.stem}
    more = {**summary, "timestamp": "2026-01-01T11:00:00.000Z", "compactMetadata": {"trigger": "manual", "preTokens": 9}}
    with world.transcript.open("ab") as file:
        file.write(json.dumps(more).encode() + b"\n")
    world.ingest()
    with Keep.open(world.root) as keep:
        [one] = keep.show(world.session)["compactions"]
        assert (one["state"], keep.summary(world.session).compactions) == ("completed", 1)


def test_hook_calls_and_the_transcripts_they_name_are_journaled_by_a_repair(world: World) -> None:
    spooled(world)
    world.repair(apply=True)
    assert [frame["kind"] for frame in world.journal()].count("hook.fired") == 1
    assert world.rejoined() == world.transcript.read_bytes() and "hooked" in world.messages()


def _spool(world: World, session: str, event: str = "UserPromptSubmit", n: int = 2) -> Path:
    call = Path(world.root, "spool", f"{time.time_ns() - OLD_S * 10**9:020d}-1-{n:016d}~claude~{event}.hook")
    call.write_text(json.dumps({"session_id": session, "hook_event_name": event, "prompt": "hooked", "cwd": "/nowhere"}))
    call.chmod(0o600)
    return call


def _all_calls(world: World) -> list[str]:
    """Every hook call that stands in a journal, by its name in the spool."""
    folders = [path.parent for path in Path(world.root, "journal").rglob("000001.jsonl")]
    told = [event for folder in folders for _, event in read_events(HOST, str(folder)) if event.kind == Kind.HOOK_FIRED]
    return sorted(call["spool"] for event in told for call in event.body["calls"])


@pytest.mark.parametrize("more", ["nothing", "a torn end", "an open mode"])
def test_a_hook_call_is_given_back_only_if_the_journal_it_went_to_was_taken_back(world: World, more: str) -> None:
    """T4: else it would be journaled twice. A call that is only an end, of a session nobody saw, went to the keep's own."""
    spooled(world)
    ghost, other = _spool(world, "ghost", "SessionEnd", 2), _spool(world, "other", n=3)
    [first] = set(Path(world.root, "spool").glob("*.hook")) - {ghost, other}
    if more == "a torn end":  # so that its journal is noted before the calls are
        with world.part().open("ab") as part:
            part.write(b'{"id":"torn')
    elif more == "an open mode":
        other.chmod(0o644)
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and _all_calls(world) == sorted(path.name for path in (first, ghost, other))
    world.grow(200, 2)
    world.ingest()
    with Keep.open(world.root) as keep:
        keep.context.journals().say("", Kind.TAP_FRAMES, {"conn": "c", "frames": [], "sizes": [], "lines": []})
    for _ in range(2):
        reasons = [skipped["reason"] for skipped in world.repair(undo=done["undo_id"])["skipped"]]
        for path in (first, ghost):
            assert [f"{path}: this call is in" in reason for reason in reasons].count(True) == 1
        assert list(Path(world.root, "spool").glob("*.hook")) == [other]
        assert other.stat().st_mode & 0o777 == (0o644 if more == "an open mode" else 0o600)
        assert _all_calls(world) == sorted([first.name, ghost.name])
    world.repair(apply=True)
    assert _all_calls(world) == sorted(path.name for path in (first, ghost, other))
    # And now that this one was journaled by another repair, undoing the first one again brings it back no more.
    world.repair(undo=done["undo_id"])
    assert list(Path(world.root, "spool").glob("*.hook")) == []


def test_hook_calls_wait_while_capture_is_off(world: World) -> None:
    spooled(world)
    Path(world.root, "OFF").touch(0o600)
    [skipped] = world.repair(apply=True)["skipped"]
    assert "capture is off" in skipped["reason"] and len(list(Path(world.root, "spool").glob("*.hook"))) == 1
    Path(world.root, "OFF").unlink()
    assert world.repair(apply=True)["audit"]["clean"]


def test_a_repair_finishes_no_deletion_and_delete_does(world: World) -> None:
    """K2, K7: what can't be undone is not a repair's to do. What was deleted shows nowhere meanwhile."""
    hook_lost(world)
    tombstone(world)
    before = {path: path.read_bytes() for path in world.folder("python:own").iterdir()}
    done = world.repair(apply=True)
    assert [step["action"] for step in done["applied"]] == ["set_aside"]
    [skipped] = done["skipped"]
    assert skipped["fault"].startswith("tombstone_unfinished") and "`dreamkeep delete python:own`" in skipped["reason"]
    assert {path: path.read_bytes() for path in world.folder("python:own").iterdir()} == before
    with Keep.open(world.root) as keep:
        assert "python:own" not in {session.id for session in keep.sessions()}
        assert keep.delete("python:own").id == "python:own"
        with pytest.raises(NotFound):
            keep.delete("python:own")
    assert world.audit(deep=True)["clean"]
    assert not world.folder("python:own").exists() and world.folder("python:stays").exists()
    assert not [p for p in Path(world.root).rglob("*") if p.is_file() and b'"one"' in p.read_bytes()]


@pytest.mark.parametrize("verb", ["delete", "undelete"])
def test_what_somebody_put_back_of_a_deleted_session_waits_for_his_word(world: World, tmp_path: Path, verb: str) -> None:
    """K2: a backup of the keep's folder, say. Only who put it there knows whether it shall count."""
    with Keep.open(world.root) as keep:
        keep.session("own").record("zebra")
        shutil.copytree(world.folder("python:own"), tmp_path / "backup")
        keep.delete("own")
    shutil.copytree(tmp_path / "backup", world.folder("python:own"))
    [fault] = world.audit()["faults"]
    assert fault["class"] == "tombstone_unfinished" and not fault["repairable"]
    assert "`dreamkeep delete python:own`" in fault["next"] and "`dreamkeep undelete python:own`" in fault["next"]
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        keep.session("another").record("a writer leaves it alone, too")
        assert world.folder("python:own").exists() and not keep.search("zebra")
        getattr(keep, verb)("python:own")
        assert bool(keep.search("zebra")) == (verb == "undelete") == world.folder("python:own").exists()
    assert world.audit(deep=True)["clean"]


def test_an_intent_that_nobody_can_read_hinders_no_writer(world: World) -> None:
    intent(world)
    with Keep.open(world.root) as keep:
        keep.session("own").record("one")
    assert os.listdir(Path(world.root, "state", "deleting")) == [] and world.audit()["clean"]


# -- what is not safe


def _only_damage(world: World) -> dict[str, Any]:
    [fault] = [fault for fault in world.audit()["faults"] if fault["class"].startswith("journal_")]
    return dict(fault)


def _untouched(world: World, reason: str) -> None:
    """Nothing is promised, nothing is changed, and it is said why."""
    fault = _only_damage(world)
    journal = world.part().read_bytes() if world.part().exists() else b""
    for how in ({}, {"apply": True}):
        done = world.repair(**how)
        assert not done["applied"] and not done["plan"] and done["undo_id"] is None
        [skipped] = [one for one in done["skipped"] if one["fault"] == fault["id"]]
        assert re.search(reason, skipped["reason"]), skipped
    assert (world.part().read_bytes() if world.part().exists() else b"") == journal
    assert not Path(world.root, "aside").exists()


def test_a_hole_is_not_filled_from_a_transcript_that_is_not_what_was_captured(world: World) -> None:
    """W4, K3: other bytes at the same length are another file, and what was meant to be gone is not brought back."""
    damage(world)
    world.transcript.write_bytes(world.transcript.read_bytes().replace(b"words 5", b"swords5"))
    _untouched(world, "changed since it was captured.*--accept journal_damage-")


def test_a_hole_is_not_filled_when_the_transcript_shrank_or_is_gone(world: World) -> None:
    damage(world)
    whole = world.transcript.read_bytes()
    world.transcript.write_bytes(whole[: len(whole) // 2])
    _untouched(world, "changed since it was captured")
    world.transcript.unlink()
    _untouched(world, "can't be read")


def test_a_hole_in_what_no_file_holds_is_left_alone(world: World) -> None:
    """What one's own agent said, and what hooks told, is nowhere else."""
    with Keep.open(world.root) as keep:
        session = keep.session("own")
        for n in range(3):
            session.record(f"words {n}")
    _damage_line(world.part("python:own"), "turn.recorded", 1)
    world.session = "python:own"
    _untouched(world, "snapshot import|accept")


def test_a_lost_hook_call_is_not_taken_for_a_line_of_the_transcript(world: World) -> None:
    compaction(world)
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        keep.end(world.session)
    _damage_line(world.part(), "hook.fired")
    fault = _only_damage(world)
    [skipped] = world.repair(apply=True)["skipped"]
    assert skipped["fault"] == fault["id"] and "hook.fired" in skipped["reason"]


def test_a_gap_beside_hook_calls_is_not_promised_because_nobody_knows_what_it_was(world: World) -> None:
    compaction(world)
    world.repair(apply=True)
    _drop_line(world.part(), "source.read", 1)
    [skipped] = world.repair(apply=True)["skipped"]
    assert "unknown what was lost" in skipped["reason"]


def test_lines_of_an_earlier_version_of_a_file_are_not_promised(world: World) -> None:
    """K3, K4: what the agent took out of its file is not in it any more."""
    world.captured()
    lines = world.transcript.read_bytes().splitlines(keepends=True)
    world.transcript.write_bytes(b"".join(lines[:4] + lines[8:]))
    world.ingest()
    world.repair(accept=[fault["id"] for fault in world.audit()["faults"]])
    _drop_line(world.part(), "source.read", 2)
    [skipped] = [one for one in world.repair(apply=True)["skipped"] if one["fault"].startswith("journal")]
    assert "version" in skipped["reason"]


def test_a_session_whose_beginning_is_lost_is_not_promised_to_be_whole(world: World) -> None:
    world.captured()
    _drop_line(world.part(), "session.opened")
    _untouched(world, "began or ended")


def test_damage_after_which_a_file_grew_is_still_mended(world: World) -> None:
    damage(world)
    world.grow(50, 3)
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and world.rejoined() == world.transcript.read_bytes()


# -- choosing, accepting, refusing


def test_what_is_accepted_is_not_told_again_until_it_is_undone(world: World) -> None:
    """J3: a hole is a fault until it is repaired or accepted; accepting is journaled."""
    test_a_hole_in_what_no_file_holds_is_left_alone(world)
    hook_lost_file = Path(world.root, "spool")
    hook_lost_file.mkdir(mode=0o700)
    hook_lost_file.joinpath("problems").write_text("2026-01-01 claude Stop: no space\n")
    faults = world.audit()["faults"]
    done = world.repair(accept=[fault["id"] for fault in faults])
    assert done["audit"]["clean"] and len(done["applied"]) == 2 and world.audit(deep=True)["clean"]
    with Keep.open(world.root) as keep:
        keep.reindex(from_zero=True)
    assert world.audit()["clean"] and world.audit()["checked"]["accepted"] == 2
    assert world.repair(undo=done["undo_id"])["skipped"] == []
    assert [fault["id"] for fault in world.audit()["faults"]] == [fault["id"] for fault in faults]


def test_only_the_chosen_faults_are_mended(world: World) -> None:
    world.captured()
    for name in ("one", "two"):
        path = Path(world.root, "state", f"{name}.json")
        path.write_bytes(b"{")
        path.chmod(0o600)
    first, second = world.audit()["faults"]
    plan = world.repair(only=[first["id"]])
    assert [step["fault"] for step in plan["plan"]] == [first["id"]]
    done = world.repair(apply=True, only=[first["id"]])
    assert [fault["id"] for fault in done["audit"]["faults"]] == [second["id"]]
    assert done["skipped"] == [{"fault": second["id"], "reason": "not chosen (--only)"}]


def test_arguments_that_make_no_sense_are_refused_before_anything_happens(world: World) -> None:
    """W13"""
    damage(world)
    before = stamps(world.root)
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (NotFound, {"accept": ["journal_damage-00000000"]}),
        (NotFound, {"apply": True, "only": ["x"]}),
        (NotFound, {"undo": "../../x"}),
        (NotFound, {"undo": ""}),
        (BadUsage, {"undo": "x", "apply": True}),
        (BadUsage, {"accept": "x"}),
        (BadUsage, {"accept": ["x"], "only": ["x"]}),
    ]
    for kind, how in wrong:
        with pytest.raises(kind):
            world.repair(**how)
    assert stamps(world.root) == before


def test_one_repair_at_a_time(world: World) -> None:
    damage(world)
    handle = HOST.open_lock(f"{world.root}/{repair.LOCK}")
    try:
        assert HOST.try_lock(handle)
        with pytest.raises(Busy):
            world.repair(apply=True)
        assert world.repair()["plan"], "a plan needs nobody's leave"
    finally:
        HOST.close(handle)
    assert world.repair(apply=True)["audit"]["clean"]


def test_a_fault_that_can_not_be_mended_now_hinders_no_other(world: World) -> None:
    """B2: each by itself."""
    gap(world)
    lease(world)
    leftover(world)
    bad = next(Path(world.root, "state", "owners").iterdir())

    class Stubborn(RealHost):
        def remove(self, path: str) -> None:
            if path == str(bad):
                raise PermissionError(1, "not permitted", path)
            super().remove(path)

    with Keep.open(world.root, host=Stubborn()) as keep:
        done = keep.repair(apply=True, home=world.home)
    assert [one["fault"].partition("-")[0] for one in done["skipped"]] == ["lease_stale"]
    assert "not permitted" in done["skipped"][0]["reason"] and bad.exists()
    assert [fault["class"] for fault in done["audit"]["faults"]] == ["lease_stale"]


def _acted_on(world: World, faults: list[Fault]) -> list[MendResult]:
    """What was seen a while ago, mended now."""
    with Keep.open(world.root):
        where = PlanContext(HOST, world.root, str(world.home), {}, ())
        wired = repair.Repair(where, AuditReport, alive=lambda owner: False, rebuild=lambda: None)  # type: ignore[arg-type]
        with wired._at_work() as mending:
            return [repair.actions()[CLASSES[fault.cls].repair](mending, fault) for fault in faults]


def test_what_was_mended_since_it_was_seen_is_not_mended_twice(world: World) -> None:
    """T4, W14: keyed by the turn, the event, the lines: however often, it is there once."""
    reused(world)
    _in_another_process(world, "k.session('own').submit('the prompt')\nos.kill(os.getpid(), 9)")
    damage(world)
    seen = audit(HOST, world.root, home=str(world.home), environment={}).faults
    assert {"journal_reused", "turn_interrupted", "journal_damage"} <= {fault.cls for fault in seen}
    for _ in range(3):
        assert all(done.mended for done in _acted_on(world, seen))
    own = [frame["kind"] for frame in world.journal("python:own")]
    with Keep.open(world.root) as keep:
        assert [m["text"] for m in keep.show("python:own")["messages"]].count("the other writer's") == 1
    assert own.count("turn.settled") == 1 and world.rejoined() == world.transcript.read_bytes()
    assert [frame["body"].get("what") for frame in world.journal() if frame["kind"] == "source.changed"] == ["mended"]


def test_an_event_that_is_added_again_does_not_take_back_what_was_said_since(world: World) -> None:
    """K4: a newer word stands."""
    with Keep.open(world.root) as keep:
        keep.session("own", title="before").record("one")
    path = world.part("python:own")
    lines = path.read_bytes().split(b"\n")
    before = parse(lines[2])
    assert before
    titled = _message("")._replace(kind=Kind.SESSION_TITLED, body={"title": "hidden"}, carry={"title": "hidden"})
    heard = _message("heard")._replace(carry={"heard": 1})
    others = b"".join(place(draft(event), before["seq"], before["crc"])[0] for event in (titled, heard))
    path.write_bytes(b"\n".join([*lines[:4], others[:-1], *lines[4:]]))
    with Keep.open(world.root) as keep:
        keep.session("own").title("after")
        keep.context.journals().append("python:own", [_message("heard later")._replace(carry={"heard": 2})])
    assert world.repair(apply=True)["audit"]["clean"]
    with Keep.open(world.root) as keep:
        assert keep.context.journals().writer("python:own").carried("title") == keep.summary("python:own").title == "after"
        assert [m["text"] for m in keep.show("python:own")["messages"]] == ["one", "heard later", "heard"]


def test_a_repair_takes_away_what_one_that_died_left_half_written(world: World) -> None:
    """W10, W15: in an agent's folder, too, where nobody else would look for it."""
    world.captured()
    dead = Ledger(HOST, world.root, Ids(HOST.now, HOST.random).new())
    temp = world.transcript.with_name(f"{world.transcript.name}.{'0' * 16}.tmp")
    dead.note({"file": str(world.transcript), "before": None, "after": None, "temp": str(temp)})
    dead.close()
    temp.write_bytes(b"half")
    lease(world)
    assert world.repair(apply=True)["audit"]["clean"] and not temp.exists()


# -- the command line


def test_the_command_plans_applies_undoes_and_says_by_its_exit_code_whether_faults_remain(
    world: World, cli: Callable[..., Ran]
) -> None:
    home = ("--home", str(world.home))
    damage(world)
    planned = cli("repair", *home, "--json")
    assert planned.code == 1 and set(planned.json) == {"plan", "applied", "skipped", "undo_id", "audit"}
    [step] = planned.json["plan"]
    assert set(step) == {"fault", "action", "where"} and step["action"] == "recapture"
    said = cli("repair", *home)
    assert said.code == 1 and "would recapture" in said.out and "--apply" in said.out
    done = cli("repair", "--apply", *home)
    assert done.code == 0 and "recapture" in done.out and "No problems remain." in done.out
    undo_id = done.out.split("--undo ")[1].split()[0]
    assert cli("repair", *home).out == "No problems.\n"
    back = cli("repair", "--undo", undo_id, *home)
    assert back.code == 0 and "restored: " in back.out
    assert cli("repair", *home, "--json").json["plan"] == planned.json["plan"]
    accepted = cli("repair", "--accept", step["fault"], *home)
    assert accepted.code == 0 and cli("repair", *home).code == 0
    assert cli("repair", "--undo", "nothing", *home).code == 1
    assert cli("repair", "--undo", "x", "--apply").code == 2


def test_doctor_tells_that_repairs_can_be_taken_back(world: World) -> None:
    tail(world)
    world.repair(apply=True)
    with Keep.open(world.root) as keep:
        told = [entry["what"] for entry in keep.doctor() if entry["check"] == "aside"]
    assert [what.partition(" ")[0] for what in told] == ["what", "1"] and "1 repair " in told[0]


def test_what_is_left_alone_is_told_with_its_reason_and_exit_code_1(world: World, cli: Callable[..., Ran]) -> None:
    damage(world)
    world.transcript.unlink()
    done = cli("repair", "--apply", "--home", str(world.home))
    assert done.code == 1 and "skipped: journal_damage-" in done.out and "can't be read" in done.out


# -- under others' hands, and when it dies


def test_a_repair_beside_writers_loses_nothing_and_its_undo_takes_nothing_of_theirs(world: World) -> None:
    """K4, W9: two processes write to a session while it is mended and the repair is taken back."""
    damage(world)
    with Keep.open(world.root) as keep:
        keep.session("own").record("first")
    _damage_nothing(world.part("python:own"))
    program = (
        "import sys\nfrom dreamkeep import Keep\nk = Keep.open(sys.argv[1])\ns = k.session('own')\n"
        "for n in range(150): s.record(f'{sys.argv[2]} {n}')"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, world.root, name]) for name in ("a", "b")]
    undone: list[dict[str, Any]] = []
    while any(writer.poll() is None for writer in writers):
        done = world.repair(apply=True)
        if done["undo_id"]:
            undone.append(world.repair(undo=done["undo_id"]))
    assert [writer.wait() for writer in writers] == [0, 0] and undone
    final = world.repair(apply=True)
    assert final["audit"]["clean"], final
    assert final["audit"]["clean"] and world.rejoined() == world.transcript.read_bytes()
    with Keep.open(world.root) as keep:
        prompts = [one["prompt"] for one in keep.show("python:own")["turns"]]
    assert sorted(prompts) == sorted(["first", *(f"{name} {n}" for name in ("a", "b") for n in range(150))])
    assert [frame["seq"] for frame in world.journal("python:own")] == list(range(1, len(world.journal("python:own")) + 1))


def _damage_nothing(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], b"\0" * 64, *lines[2:]]))


def test_a_folder_among_the_lock_files_of_processes_is_told_as_that_and_left_to_its_user(world: World) -> None:
    world.captured()
    path = Path(world.root, "state", "owners", "somebodys")
    path.mkdir(parents=True, mode=0o700)
    for _ in range(2):
        done = world.repair(apply=True)
        assert (done["plan"], done["undo_id"]) == ([], None)
        [found] = done["audit"]["faults"]
        assert (found["class"], found["repairable"], found["where"]) == ("lease_stale", False, str(path))
        assert "not a lock file" in found["what"] and "by hand" in found["next"]


@pytest.mark.parametrize("kind", ["a folder", "a link"])
def test_no_repair_of_a_journal_is_promised_that_nobody_can_lock(world: World, kind: str) -> None:
    world.captured()
    lock_path = world.folder() / parts.LOCK
    lock_path.unlink()
    lock_path.mkdir(mode=0o700) if kind == "a folder" else lock_path.symlink_to("/not-mounted/lock")
    with world.part().open("ab") as part:
        part.write(b'{"id":"torn')
    before = world.part().read_bytes()
    for _ in range(2):
        done = world.repair(apply=True)
        assert (done["plan"], done["undo_id"]) == ([], None)
        [found] = done["audit"]["faults"]
        assert (found["class"], found["repairable"]) == ("journal_tail", False)
        assert str(lock_path) in found["next"] and "by hand" in found["next"]
    assert world.part().read_bytes() == before


@pytest.mark.parametrize("where", ["spool/dir", "state/deleting/dd"])
@pytest.mark.parametrize("filled", [False, True], ids=["empty", "with folders in it"])
def test_folders_that_a_repair_took_away_come_back_as_they_were(world: World, where: str, filled: bool) -> None:
    world.captured()
    folder = Path(world.root, where)
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    if filled:
        (folder / "empty").mkdir()
        (folder / "deeper" / "still").mkdir(parents=True)
        (folder / "deeper" / "b").write_text("words")
        (folder / "a").write_text("w")
        (folder / "empty").chmod(0o711)
    folder.chmod(0o755)
    before = looks(world.root, *_VIEWS)
    done = world.repair(apply=True)
    assert len(done["applied"]) == 1 and done["audit"]["clean"] and not folder.exists()
    for _ in range(2):
        assert world.repair(undo=done["undo_id"])["skipped"] == []
        assert looks(world.root, *_VIEWS) == before, "undoing twice is undoing once"


def test_a_folder_in_which_something_lies_since_it_was_made_stays(world: World) -> None:
    made = f"{world.root}/one/two"
    ledger = Ledger(HOST, world.root, "0198a1b2-0000-7000-8000-000000000001")
    ledger.make_folders(made)
    ledger.close()
    Path(world.root, "one", "somebodys").write_text("words")
    assert [step.reason for step in take_back(HOST, world.root, ledger.id)] == ["", ""]
    assert [path.name for path in Path(world.root, "one").iterdir()] == ["somebodys"]


def test_what_appeared_where_a_folder_was_is_left_alone(world: World) -> None:
    world.captured()
    folder = Path(world.root, "spool", "dir")
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    done = world.repair(apply=True)
    folder.write_text("newer")
    [refused] = world.repair(undo=done["undo_id"])["skipped"]
    assert "something else has appeared there" in refused["reason"]
    assert folder.read_text() == "newer"


def _everything(world: World) -> None:
    """One fault of many kinds, in one keep."""
    opened(world)
    Path(world.root).chmod(0o700)
    with Keep.open(world.root) as keep:
        session = keep.session("own")
        session.record("one")
        session.record("two")
    _damage_line(world.part(), "source.read", 1)
    with world.part().open("ab") as part:
        part.write(b'{"id":"torn')
    path = world.part("python:own")
    lines = path.read_bytes().split(b"\n")
    before = parse(lines[2])
    assert before
    other, _ = place(draft(_message("the other writer's")), before["seq"], before["crc"])
    path.write_bytes(b"\n".join([*lines[:4], other[:-1], *lines[4:]]))
    for name in ("spool", "state/owners"):
        Path(world.root, name).mkdir(mode=0o700, exist_ok=True)
    Path(world.root, "state", "other.json").write_bytes(b"{")
    old = time.time_ns() - OLD_S * 10**9
    call = Path(world.root, "spool", f"{old:020d}-1-{'0' * 16}~claude~Notification.hook")
    call.write_text(json.dumps({"session_id": world.transcript.stem, "message": "a call that waits"}))
    lease_path = Path(world.root, "state", "owners", Ids(HOST.now, HOST.random).new())
    lease_path.touch()
    _age(lease_path)
    for path in Path(world.root).rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    Path(world.root).chmod(0o755)


def _dying(world: World, at: int, **how: Any) -> bool:
    """Whether it came to its end."""
    host = Dying(at)
    try:
        with Keep.open(world.root, host=host) as keep:
            keep.repair(home=world.home, **how)
    except PowerCut:
        return False
    return True


def _whole(world: World) -> None:
    """All that was ever said is there, each once."""
    assert world.rejoined() == world.transcript.read_bytes()
    texts = world.messages()
    assert sorted(set(texts)) == sorted(f"words {n}" for n in range(12)) and len(texts) == 12
    with Keep.open(world.root) as keep:
        assert sorted(m["text"] for m in keep.show("python:own")["messages"]) == ["one", "the other writer's", "two"]
    assert [frame["kind"] for frame in world.journal()].count("hook.fired") == 1


@pytest.mark.slow
@pytest.mark.parametrize("undo_too", [False, True], ids=["apply", "undo"])
def test_a_repair_or_undo_that_is_killed_at_any_step_is_simply_run_again(tmp_path: Path, undo_too: bool) -> None:
    """B4, T1, W12: it ends right, with nothing lost and nothing twice."""
    import shutil

    model = World(str(tmp_path / "model"), tmp_path / "home")
    _everything(model)
    broken = looks(model.root, *_VIEWS, "index")
    done: dict[str, Any] = {}
    if undo_too:
        done = model.repair(apply=True)
        assert done["audit"]["clean"], done
    for at in count(1):
        world = World.__new__(World)
        world.__dict__.update(model.__dict__, root=str(tmp_path / f"keep{at}"))
        shutil.copytree(model.root, world.root)
        if not undo_too:
            ended = _dying(world, at, apply=True)
            after = world.repair(apply=True)
            assert after["audit"]["clean"] and not after["skipped"], (at, after)
            _whole(world)
        else:
            ended = _undone_at(world, model.root, at, done["undo_id"])
            assert looks(world.root, *_VIEWS, "index") == broken, at
        shutil.rmtree(world.root)
        if ended:
            assert at > (15 if undo_too else 40)
            break


def _undone_at(world: World, before: str, at: int, undo_id: str) -> bool:
    """An undo that dies, then another. (The ledger's paths are the model's: it is moved to its place for that.)"""
    os.rename(before, before + ".model")
    os.rename(world.root, before)
    root, world.root = world.root, before
    try:
        ended = _dying(world, at, undo=undo_id)
        back = world.repair(undo=undo_id)
        assert back["skipped"] == [], (at, back)
    finally:
        world.root = root
        os.rename(before, root)
        os.rename(before + ".model", before)
    return ended


@pytest.mark.parametrize("drained", [False, True], ids=["at once", "after another drain"])
def test_a_hook_call_is_journaled_once_after_a_drain_that_died_at_any_step_was_undone(tmp_path: Path, drained: bool) -> None:
    """T1: neither lost with the journal's end, nor given back beside a batch that still has it."""
    for at in count(1):
        world = World(str(tmp_path / f"keep{at}"), tmp_path / f"home{at}")
        spooled(world)
        [call] = Path(world.root, "spool").glob("*.hook")
        ended = _dying(world, at, apply=True)
        if drained:
            with Keep.open(world.root) as keep:
                keep.drain()
        for undo_id in repair_ids(HOST, world.root):
            world.repair(undo=undo_id)
        world.repair(apply=True)
        assert _all_calls(world) == [call.name], at
        if ended:
            break
    assert at > 20


def test_every_host_operation_of_a_journals_repair_survives_a_power_cut() -> None:
    """W12, T5: on a disk that forgets what was not synced."""
    for loss in ("lost", "kept", "mixed"):
        for at, host in cut_at_every_step(lambda _: _torn_journals(), _repair_on):
            host = host.reboot(loss, seed=at)
            result = _repair_on(host)
            assert result.audit.clean and not result.skipped, (at, loss, result.as_json())
            found = [event for _, event in read_events(host, f"/keep/{folder_of('python:own')}")]
            assert [event.body["text"] for event in found if event.kind == Kind.MESSAGE_ADDED] == ["one", "two", "hidden"]
            assert sum(event.kind == Kind.TURN_SETTLED for event in found) == 1


def _torn_journals() -> FragileHost:
    """A tail, a reused seq, a duplicate, and a turn whose owner is gone."""
    host = FragileHost()
    host.make_folder("/keep")
    ids = Ids(host.now, host.random)
    journals = JournalWriters(host, "/keep", ids)
    journals.say("", Kind.KEEP_CREATED, {"keep": ids.new()}, {"created": 1})
    journals.say("python:own", Kind.SESSION_OPENED, {"session": "python:own"}, {"state": "active", "opened": 1})
    journals.say("python:own", Kind.TURN_SUBMITTED, {"turn": "t", "prompt": "p", "owner": "gone"})
    for text in ("one", "two"):
        journals.say("python:own", Kind.MESSAGE_ADDED, {"role": "user", "text": text})
    journals.close()
    node = host._need(f"/keep/{folder_of('python:own')}/{parts.name(1)}")
    lines = bytes(node.data).split(b"\n")
    before = parse(lines[3])
    assert before
    hidden = Event(ids.new(), Kind.MESSAGE_ADDED, rfc3339(host.now()), {"role": "user", "text": "hidden"})
    other, _ = place(draft(hidden), before["seq"], before["crc"])
    node.data = bytearray(b"\n".join([*lines[:5], other[:-1], lines[4], *lines[5:]]) + b'{"id":"torn')
    node.durable = bytes(node.data)
    return host


def _repair_on(host: FragileHost) -> repair.RepairResult:
    looking = PlanContext(host, "/keep", "/home", {}, ())

    def look() -> AuditReport:
        return audit(host, "/keep", home="/home", environment={})

    return repair.Repair(looking, look, alive=lambda owner: False, rebuild=lambda: None).apply()


# -- the tables agree


def test_classes_repairs_and_the_page_on_recovery_are_one_table() -> None:
    """B4: each class that is called repairable has a repair, and the page lists the same."""
    page = re.findall(r"^\| `(\w+)` \| (.*?) \| (?:`(\w+)`|–) \| ", PAGE.read_text(), re.MULTILINE)
    assert {(cls, means, action) for cls, means, action in page} == {(n, c.means, c.repair) for n, c in CLASSES.items()}
    named = {known.repair for known in CLASSES.values() if known.repair}
    assert set(repair.actions()) == named and set(repair.checks()) <= named
    for cls, known in CLASSES.items():
        assert known.repair or known.next, f"{cls} says nothing of what to do"


def test_every_class_of_the_keep_that_has_a_repair_is_broken_and_mended_here() -> None:
    ours = {cls for cls, known in CLASSES.items() if known.repair in mend_keep.ACTIONS}
    assert {cls for _, cls in BROKEN.values()} == ours


def test_where_there_is_no_keep_a_repair_finds_nothing_and_makes_none(world: World) -> None:
    for how in ({}, {"apply": True}):
        assert world.repair(**how)["audit"]["clean"]
    assert not Path(world.root).exists()


def own(world: World, turns: int = 4) -> Path:
    """A session of one's own agent, all of it indexed: no file but its journal holds its words."""
    with Keep.open(world.root) as keep:
        session = keep.session("own")
        for n in range(turns):
            session.record(f"question {n}", ("assistant", f"answer {n}"))
        keep.sessions()
    return world.part("python:own")


def _indexed(world: World, session: str = "python:own") -> int:
    """How many messages the index has, asked without bringing it up to date."""
    db = apsw.Connection(f"{world.root}/index.sqlite", flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = db.execute("SELECT count(*) FROM messages JOIN sessions ON session = sessions.no WHERE id = ?", (session,)).get
        return int(found)
    finally:
        db.close()


def _stays_until_accepted(world: World, cls: str, messages: int) -> None:
    """However often it is repaired; and what the index knows of it stays, too."""
    for _ in range(3):
        done = world.repair(apply=True)
        [told] = [fault for fault in done["audit"]["faults"] if fault["class"] == cls]
        assert not told["repairable"] and "snapshot import" in told["next"] and "--accept" in told["next"]
        assert [fault["class"] for fault in done["audit"]["faults"]] == [cls], "and it is told once"
        assert world.audit(deep=True)["faults"] == [told]
        assert _indexed(world) == messages
    assert world.repair(accept=[told["id"]])["audit"]["clean"] and world.audit(deep=True)["clean"]


@pytest.mark.parametrize("which", [1, 2])
def test_a_compressed_part_that_can_not_be_read_is_damage_until_it_is_accepted(world: World, which: int) -> None:
    """Once "0 bytes", repairable, and clean over a session that was lost."""
    own(world)
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
        keep.session("own").record("question 4", ("assistant", "answer 4"))  # in a second part
        keep.compress(everything=True)
        keep.sessions()
    flip(world.part("python:own", which).with_suffix(".jsonl.zst"))
    [told] = world.audit(deep=True)["faults"]
    assert "the compressed part can't be read" in told["what"] and "0 bytes" not in told["what"]
    _stays_until_accepted(world, "journal_damage", 10)


def test_a_compressed_part_that_can_not_be_read_stays_damage_when_more_is_said_and_asked(world: World) -> None:
    own(world)
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
    flip(world.part("python:own").with_suffix(".jsonl.zst"))
    with Keep.open(world.root) as keep:
        keep.session("own").record("one more")
        keep.sessions()
    _stays_until_accepted(world, "journal_damage", 1)


def test_of_a_captured_session_nothing_is_promised_if_its_only_part_can_not_be_read(world: World) -> None:
    world.captured()
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
        keep.sessions()
    flip(world.part().with_suffix(".jsonl.zst"))
    for _ in range(2):
        [told] = world.repair(apply=True)["audit"]["faults"]
        assert (told["class"], told["repairable"]) == ("journal_damage", False)


def _first_part_compressed(world: World) -> Path:
    """What was captured so far, then a line more in a second part."""
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
    world.grow(40, 1)
    world.ingest()
    assert parts.numbers(HOST, str(world.folder())) == [1, 2]
    return world.part().with_suffix(".jsonl.zst")


@pytest.mark.parametrize("harm", [flip, lambda path: path.write_bytes(b""), Path.unlink], ids=["a bit", "emptied", "gone"])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_compressed_first_part_of_a_captured_session_is_taken_again_from_its_transcript(
    world: World, harm: Callable[[Path], None], indexed: bool
) -> None:
    """Once told as lost for good, though every line of it lay there: how a session began is repeated by each later part."""
    world.captured()
    path = _first_part_compressed(world)
    with Keep.open(world.root) as keep:
        before, said = keep.summary(world.session), world.messages()
    if not indexed:
        Path(world.root, "index.sqlite").unlink()
    harm(path)
    [told] = world.audit(deep=True)["faults"]
    assert told["repairable"], told
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and not done["skipped"] and world.audit(deep=True)["clean"]
    assert world.repair(apply=True)["applied"] == []
    assert world.rejoined() == world.transcript.read_bytes() and world.messages() == said
    assert [frame["kind"] for frame in world.journal()].count("session.opened") == 1
    with Keep.open(world.root) as keep:
        keep.reindex(from_zero=True)
        after = keep.summary(world.session)
        assert (after.state, after.cwd, after.project, after.title) == (before.state, before.cwd, before.project, before.title)
        assert [one.new_events for one in keep.ingest(home=world.home, again=True)] == [0]
    assert world.messages() == said
    back = world.repair(undo=done["undo_id"])
    assert back["skipped"] == [] and [fault["id"] for fault in back["audit"]["faults"]] == [told["id"]]


def test_a_lost_beginning_is_taken_again_though_the_transcript_grew_and_the_session_ended_since(world: World) -> None:
    """It stays ended, and at the same time: that it is opened is not said anew."""
    world.captured()
    path = _first_part_compressed(world)
    with Keep.open(world.root) as keep:
        keep.end(world.session)
        before = keep.summary(world.session)
    flip(path)
    world.grow(50, 2)
    assert world.repair(apply=True)["audit"]["clean"] and world.rejoined() == world.transcript.read_bytes()
    with Keep.open(world.root) as keep:
        after = keep.summary(world.session)
        assert (after.state, after.ended_at, after.cwd) == ("ended", before.ended_at, before.cwd)


def _by_a_hook(world: World) -> None:
    spooled(world)
    world.repair(apply=True)


def _by_the_user(world: World) -> None:
    world.captured()
    with Keep.open(world.root) as keep:
        keep.end(world.session)


def _by_a_title(world: World) -> None:
    world.captured()
    with Keep.open(world.root) as keep:
        keep.session(world.transcript.stem, agent="claude", title="mine")


def _by_a_tap(world: World) -> None:
    world.captured()
    with Keep.open(world.root) as keep:
        keep.context.journals().say("", Kind.TAP_FRAMES, {"conn": "c", "frames": [], "sizes": [], "lines": []})


@pytest.mark.parametrize(
    ("told", "reason"),
    [(_by_a_hook, "drain"), (_by_the_user, "began or ended"), (_by_a_title, "title"), (_by_a_tap, "a tap was used")],
)
def test_a_lost_beginning_that_may_hold_what_no_file_does_is_not_promised(
    world: World, told: Callable[[World], None], reason: str
) -> None:
    told(world)
    flip(_first_part_compressed(world))
    _untouched_since(world, reason)


def _untouched_since(world: World, reason: str) -> None:
    before = looks(world.root, *_VIEWS)
    [skipped] = [one for one in world.repair(apply=True)["skipped"] if one["fault"].startswith("journal_damage")]
    assert reason in skipped["reason"] and "--accept" in skipped["reason"]
    assert looks(world.root, *_VIEWS) == before


def _copied(transcript: Path) -> None:
    copy = transcript.with_suffix(".copy")
    copy.write_bytes(transcript.read_bytes())
    copy.replace(transcript)


def _gone_on(transcript: Path) -> None:
    first = transcript.read_bytes().splitlines(keepends=True)[0]
    transcript.write_bytes(transcript.read_bytes() + first.replace(b'"uuid":"', b'"uuid":"later-'))


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("since", [_copied, _gone_on])
def test_a_journal_that_lost_even_that_a_file_was_opened_takes_it_again_though_the_file_looks_other_by_now(
    world: World, since: Callable[[Path], None], indexed: bool
) -> None:
    world.captured()
    if indexed:
        with Keep.open(world.root) as keep:
            keep.sessions()
    frames = world.part().read_bytes().splitlines(keepends=True)
    opened = next(n for n, frame in enumerate(frames) if b'"kind":"source.opened"' in frame)
    world.part().write_bytes(b"".join(frames[:opened]))
    since(world.transcript)
    [told] = world.audit()["faults"]
    assert told["class"] == "journal_missing_part" and told["repairable"]
    assert world.repair(apply=True)["audit"]["clean"]
    world.ingest()
    assert world.classes() == [] and world.rejoined() == world.transcript.read_bytes()


def test_where_nothing_tells_how_a_lost_session_began_the_way_to_take_its_transcript_in_again_is_named(world: World) -> None:
    world.captured()
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
        keep.sessions()
    flip(world.part().with_suffix(".jsonl.zst"))
    [told] = world.audit()["faults"]
    assert not told["repairable"] and "`dreamkeep ingest --again`" in told["next"]
    with Keep.open(world.root) as keep:
        assert not [one.problem for one in keep.ingest(home=world.home, again=True) if one.problem]
    assert world.repair(apply=True)["audit"]["clean"] and world.rejoined() == world.transcript.read_bytes()


@pytest.mark.parametrize("lost", ["all", "the end"])
def test_a_text_beside_a_transcript_is_taken_again_as_the_text_it_is(world: World, lost: str) -> None:
    """Once as lines that are no records, when it was lost what it is: its words were in no message any more."""
    world.captured(2)
    beside = world.transcript.with_suffix("") / "tool-results"
    beside.mkdir(parents=True)
    for n in range(3):
        (beside / f"toolu_{n}.txt").write_text(f"zebra {n}\nthe rest of it\n")
    world.ingest()
    plain = world.part().read_bytes()
    path = _first_part_compressed(world)
    said = world.messages()
    assert sum("zebra" in text for text in said) == 3
    if lost == "all":
        flip(path)
    else:
        path.unlink()
        world.part().write_bytes(b"".join(plain.splitlines(keepends=True)[:4]))  # the transcript's are in it
        world.part().chmod(0o600)
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and not done["skipped"], done
    assert world.messages() == said
    told = source_bytes.sources(HOST, str(world.folder()))
    assert sorted((one["role"], one["form"]) for one in told.values()) == [("main", "lines")] + [("result", "text")] * 3
    for name, one in told.items():
        assert b"".join(source_bytes.lines(HOST, str(world.folder()), name)) == Path(one["path"]).read_bytes()


def test_a_transcript_that_holds_no_more_than_the_journal_proves_nothing_of_an_end_that_is_gone(world: World) -> None:
    """What was lost is that the session ended, which stands in no transcript."""
    world.captured()
    with Keep.open(world.root) as keep:
        keep.end(world.session)
        keep.sessions()
    world.part().write_bytes(b"".join(world.part().read_bytes().splitlines(keepends=True)[:-1]))
    [told] = world.repair(apply=True)["audit"]["faults"]
    assert (told["class"], told["repairable"]) == ("journal_missing_part", False)


@pytest.mark.parametrize("session", ["python:own", "claude"])
def test_one_repair_is_enough_for_a_line_feed_that_is_missing(world: World, session: str) -> None:
    """The journal's bytes are then those that were indexed, and a frame more."""
    part = own(world)
    if session == "claude":
        world.captured()
        world.messages()
        part = world.part()
    part.write_bytes(part.read_bytes()[:-1])
    assert world.classes() == ["journal_tail"]
    done = world.repair(apply=True)
    assert [step["action"] for step in done["applied"]] == ["settle"] and done["audit"]["clean"], done["audit"]
    assert world.audit(deep=True)["clean"]


def _zeroed(data: bytes) -> bytes:
    return bytes(len(data))


def _cut_after_line_5(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:5])


def _cut_in_the_middle(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _last_frame_torn(data: bytes) -> bytes:
    return data[:-30]


@pytest.mark.parametrize("harm", [_zeroed, _cut_after_line_5, _cut_in_the_middle, _last_frame_torn])
def test_what_the_index_knows_and_the_journal_lost_is_a_fault_until_it_is_accepted(
    world: World, harm: Callable[[bytes], bytes]
) -> None:
    """Once the index was made anew over it, and nothing was wrong."""
    part = own(world)
    part.write_bytes(harm(part.read_bytes()))
    assert "journal_missing_part" in world.classes()
    _stays_until_accepted(world, "journal_missing_part", 8)


@pytest.mark.parametrize("which", ["keep", "own"])
def test_that_a_whole_journal_is_gone_stays_accepted_when_it_is_written_anew(world: World, which: str) -> None:
    """Once the frame that said so began the keep's journal anew, and the same loss was told again under another name."""
    own(world)
    shutil.rmtree(Path(world.root, KEEP) if which == "keep" else world.folder("python:own"))
    [lost] = world.audit()["faults"]
    done = world.repair(accept=[lost["id"]])
    assert done["audit"]["clean"] and world.audit(deep=True)["clean"]
    assert [fault["id"] for fault in world.repair(undo=done["undo_id"])["audit"]["faults"]] == [lost["id"]]
    world.repair(accept=[lost["id"]])
    ids = Ids(HOST.now, HOST.random)
    journals = JournalWriters(HOST, world.root, ids)
    said = {"role": "user", "text": "later"}
    journals.append("python:own", [Event(ids.new(), Kind.MESSAGE_ADDED, rfc3339(HOST.now()), said)])
    journals.close()
    assert world.audit()["clean"] and world.audit(deep=True)["clean"]


@pytest.mark.parametrize("lock", [True, False])
def test_what_is_left_of_a_journal_whose_parts_are_gone_is_there_again_when_what_began_it_anew_is_undone(
    world: World, lock: bool
) -> None:
    """Once the folder and the lock in it went, too."""
    own(world)
    folder = Path(world.root, KEEP)
    (folder / parts.name(1)).unlink()
    if not lock:
        (folder / parts.LOCK).unlink()
    before = looks(world.root, *_VIEWS, "index.sqlite")
    [lost] = world.audit()["faults"]
    done = world.repair(accept=[lost["id"]])
    back = world.repair(undo=done["undo_id"])
    assert back["skipped"] == [] and [fault["id"] for fault in back["audit"]["faults"]] == [lost["id"]]
    assert looks(world.root, *_VIEWS, "index.sqlite") == before


def test_that_the_last_part_is_gone_stays_accepted_when_the_journal_goes_on(world: World) -> None:
    own(world)
    with Keep.open(world.root) as keep:
        keep.compress(everything=True)
        keep.session("own").record("question 4", ("assistant", "answer 4"))  # in a second part
        keep.sessions()
    world.part("python:own", 2).unlink()
    [lost] = world.audit()["faults"]
    assert world.repair(accept=[lost["id"]])["audit"]["clean"]
    with Keep.open(world.root) as keep:
        keep.session("own").record("question 5")  # asks nothing
        assert world.audit()["clean"] and world.audit(deep=True)["clean"]


def test_a_repair_that_is_taken_back_does_not_make_the_index_forget_what_a_journal_lost(world: World) -> None:
    part = own(world)
    part.write_bytes(_cut_in_the_middle(part.read_bytes()))
    before = world.audit()["faults"]
    done = world.repair(apply=True)
    assert [step["action"] for step in done["applied"]] == ["settle"]
    assert world.repair(undo=done["undo_id"])["audit"]["faults"] == before and _indexed(world) == 8


def test_an_index_is_made_anew_and_what_another_journal_lost_is_told_all_the_same(world: World) -> None:
    part = own(world)
    world.captured()
    world.messages()
    part.write_bytes(_cut_after_line_5(part.read_bytes()))
    db = apsw.Connection(f"{world.root}/index.sqlite")
    db.execute("DELETE FROM sessions WHERE id = ?", (world.session,))
    db.close()
    done = world.repair(apply=True)
    assert [step["action"] for step in done["applied"]] == ["rebuild"]
    [lost] = done["audit"]["faults"]
    assert lost["class"] == "journal_missing_part"
    assert world.repair(accept=[lost["id"]])["audit"]["clean"]


def test_the_end_of_a_journal_that_only_the_index_remembers_is_read_again_from_the_file(world: World) -> None:
    """W2: a part that somebody removed, behind which nothing is left that could tell of it."""
    missing_part(world)
    world.repair(apply=True)
    said = world.messages()
    last = parts.numbers(HOST, str(world.folder()))[-1]
    world.part(number=last).unlink()
    assert world.classes() == ["journal_missing_part"]
    done = world.repair(apply=True)
    assert done["audit"]["clean"] and not done["skipped"], done
    assert world.rejoined() == world.transcript.read_bytes() and world.messages() == said


def test_a_file_where_the_folder_of_repairs_belongs_is_named_with_the_way_out(world: World) -> None:
    hook_lost(world)
    Path(world.root, "aside").write_bytes(b"not ours")
    with pytest.raises(Failed, match="Move it out of the keep, then repair again"):
        world.repair(apply=True)
    Path(world.root, "aside").rename(Path(world.root).parent / "elsewhere")
    assert world.repair(apply=True)["audit"]["clean"]


def test_what_a_write_of_a_page_left_is_told_and_put_aside(world: World) -> None:
    with Keep.open(world.root) as keep:
        keep.session("own").record("one")
    page = Path(world.root, "pages", "shop-1", "MEMORY.md")
    page.parent.mkdir(mode=0o700, parents=True)
    young, old = (page.with_name(f"MEMORY.md.{n:016x}.tmp") for n in (1, 2))
    for path in (young, old):
        path.write_bytes(b"half a page")
        path.chmod(0o600)
    os.utime(old, (1, 1))
    Path(world.root, "pages", "a file").touch(0o600)
    [told] = world.audit()["faults"]
    assert (told["class"], told["where"], told["repairable"]) == ("leftover", str(old), True)
    assert world.repair(apply=True)["audit"]["clean"] and young.exists() and not old.exists()


@pytest.mark.parametrize("garbage", [b"garbage\n", b"[]\n", b"\xff\n", None])
def test_notes_of_a_repair_that_can_not_be_read_are_told_until_accepted(world: World, garbage: bytes | None) -> None:
    """What it did can't be taken back any more: better known before one needs it."""
    with Keep.open(world.root) as keep:
        keep.session("own").record("one")
    notes = Path(world.root, "aside", "repair-1", "undo.json")
    notes.parent.mkdir(mode=0o700, parents=True)
    notes.write_bytes(b'{"n": 1, "mode": "/x", "before": 1, "after": 2}\n{"n": 2, "unfini')
    notes.chmod(0o600)
    assert world.audit()["clean"], "a last line that was not finished says nothing"
    if garbage is None:
        notes.unlink()
        notes.mkdir(mode=0o700)
    else:
        notes.write_bytes(garbage)
    [told] = world.audit()["faults"]
    assert (told["class"], told["where"], told["repairable"]) == ("state_unreadable", str(notes), False)
    assert f"repair --accept {told['id']}" in told["next"]
    assert world.repair(apply=True)["applied"] == []
    world.repair(accept=[told["id"]])
    assert world.audit()["clean"]
