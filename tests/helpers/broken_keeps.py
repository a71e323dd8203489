"""A keep with a captured transcript, and functions that break it in every way that a repair can mend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.capture.sources import source_bytes
from dreamkeep.event import Event, Ids, Kind, rfc3339
from dreamkeep.host import RealHost
from dreamkeep.journal import parts, witness
from dreamkeep.journal.frame import draft, parse, place
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.journal.writers import JournalWriters
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


def damage_line(path: Path, kind: str, nth: int = 0) -> None:
    """One bit of a frame's body."""
    lines = path.read_bytes().split(b"\n")
    at = [n for n, line in enumerate(lines) if f'"kind":"{kind}"'.encode() in line[:200]][nth]
    middle = lines[at].index(b'"body":') + 9
    lines[at] = lines[at][:middle] + bytes([lines[at][middle] ^ 1]) + lines[at][middle + 1 :]
    path.write_bytes(b"\n".join(lines))


def drop_line(path: Path, kind: str, nth: int = 0) -> None:
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
    damage_line(world.part(), "source.read", 1)


def damage_at_the_end(world: World) -> None:
    """The last lines that were captured; the session was ended afterwards."""
    world.captured()
    with Keep.open(world.root) as keep:
        keep.end(world.session)
    damage_line(world.part(), "source.read", 3)


def damage_of_nothing(world: World) -> None:
    """NULs that a power cut left between two good frames."""
    world.captured()
    lines = world.part().read_bytes().split(b"\n")
    world.part().write_bytes(b"\n".join([*lines[:3], b"\0" * 512, *lines[3:]]))


def gap(world: World) -> None:
    world.captured()
    drop_line(world.part(), "source.read", 2)


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
    drop_line(world.part(), "chunk", 1)


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
    line, _ = place(draft(message("linked wrongly")), last["seq"], "0badc0de")
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
    other, _ = place(draft(message("the other writer's")), before["seq"], before["crc"])
    path.write_bytes(b"\n".join([*lines[:4], other[:-1], *lines[4:]]))


def message(text: str) -> Event:
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
    age(folder / "what is this")


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
    age(path)


def turn(world: World) -> None:
    in_another_process(world, "t = k.session('own').submit('the prompt that must stay')\nos.kill(os.getpid(), 9)")
    for path in Path(world.root, "state", "owners").iterdir():
        path.unlink()  # else its lease is a fault of its own


def in_another_process(world: World, program: str) -> None:
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
    age(path)


def age(path: Path) -> None:
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
YOUNG = ("leftover", "lease")


#: What looking at a keep changes by itself.
VIEWS = ("state/repair.lock", "state/index.lock", "state/drain.lock", "state/delete.lock")


def read_witness(world: World) -> witness.Seen:
    return witness.load(HOST, world.root).seen


def own(world: World, turns: int = 4) -> Path:
    """A session of one's own agent, all of it indexed: no file but its journal holds its words."""
    with Keep.open(world.root) as keep:
        session = keep.session("own")
        for n in range(turns):
            session.record(f"question {n}", ("assistant", f"answer {n}"))
        keep.sessions()
    return world.part("python:own")


def fire_hook(world: World, prompt: str) -> None:
    """A prompt that stands in no file."""
    folder = Path(world.root, "spool")
    folder.mkdir(mode=0o700, exist_ok=True)
    call = folder / f"{time.time_ns():020d}-1-{'0' * 16}~claude~UserPromptSubmit.hook"
    said = {"session_id": world.session.partition(":")[2], "hook_event_name": "UserPromptSubmit", "prompt": prompt}
    call.write_text(json.dumps({**said, "cwd": str(world.home / "p"), "transcript_path": str(world.transcript)}))
    call.chmod(0o600)
    with Keep.open(world.root) as keep:
        keep.drain()


def cut_last_frames(part: Path) -> bytes:
    """Its last two frames are gone; what it was before."""
    before = part.read_bytes()
    part.write_bytes(b"".join(before.splitlines(keepends=True)[:-2]))
    return before
