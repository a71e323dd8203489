"""A home full of traps: beside every good transcript lie links to devices, pipes, bombs and worse, named as transcripts are."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from .conftest import Count
from .world import World

_MIB = 1 << 20
_BOMB_MIB = 1024
_LINE_MIB = 64


# -- traps: each makes one thing at a path


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.mkdir()
    (path / path.name).mkdir()


def folder_that_loops(path: Path) -> None:
    path.mkdir()
    (path / "again").symlink_to(path, target_is_directory=True)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    where = os.getcwd()
    os.chdir(path.parent)  # the whole path may be too long for a socket's name
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name[-100:])
    finally:
        os.chdir(where)


def holding(data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


def forbidden(path: Path) -> None:
    path.write_bytes(b'{"type":"user"}\n')
    path.chmod(0)


def bomb(path: Path) -> None:
    """Some kilobytes that unpack to a gigabyte of records."""
    line = b'{"type":"event_msg","payload":{"type":"x","pad":"' + b"x" * 950 + b'"}}\n'
    with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as packed:
        for _ in range(_BOMB_MIB):
            packed.write(line * (_MIB // len(line)))


def sparse(path: Path) -> None:
    """A terabyte of zeros that takes no room."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


SURROGATES = b'{"type":"user","sessionId":"x","uuid":"u","message":{"role":"user","content":"\\ud800 \\udfff"}}\n'
TRAPS: dict[str, Callable[[Path], None]] = {
    "memory": link_to("/proc/self/mem"),
    "zeros": link_to("/dev/zero"),
    "random": link_to("/dev/urandom"),
    "terminal": link_to("/dev/tty"),
    "input": link_to("/dev/stdin"),
    "kernel": link_to("/proc/kmsg"),
    "root": link_to("/"),
    "nowhere": link_to("/nowhere/at/all"),
    "loop": link_to_itself,
    "folder": folder,
    "folder loop": folder_that_loops,
    "pipe": pipe,
    "socket": bound_socket,
    "forbidden": forbidden,
    "empty": holding(b""),
    "nul": holding(bytes(_MIB)),
    "deep": holding(b"[" * _MIB + b"\n" + b'{"a":' * 200_000 + b"\n"),
    "no utf-8": holding(b"\xff\xfe\x80" * 1000 + b"\n"),
    "surrogates": holding(SURROGATES * 3),
    "scalars": holding(b'1\n"x"\nnull\ntrue\n[]\n{}\n1e999\n' + b"9" * 10_000 + b"\n"),
    "keys": holding(b'{"type":{},"message":7,"sessionId":[],"payload":null,"timestamp":-1}\n' * 100),
}
#: One of each is enough: they take room and time.
LARGE: dict[str, Callable[[Path], None]] = {
    "long line": lambda path: holding(b'{"type":"user","text":"' + b"x" * (_LINE_MIB * _MIB))(path),
    "bomb": bomb,
    "sparse": sparse,
}


def trap_name(name: str, n: int) -> str:
    """As an agent names another transcript of the same kind: the last signs before the ending are others."""
    stem, dot, ending = name.partition(".json")
    return f"{re.sub(r'[0-9A-Za-z]{1,4}$', f'{0xA000 + n:04x}', stem)}{dot}{ending}"


def odd_names(name: str) -> list[bytes]:
    raw = os.fsencode(name)
    return [
        raw.replace(b".", b"\n.", 1),
        raw.replace(b".", b"\xff\xfe.", 1),
        b"\x1b[2J" + raw,
        b"-rf " + raw,
        b"a" * 240 + raw[-10:],
    ]


def set_traps(home: Path) -> int:
    """Beside every transcript; how many."""
    made = 0
    kinds = {(path.parent, path.name.partition(".")[2]): path for path in sorted(home.rglob("*.json*")) if path.is_file()}
    for n, good in enumerate(kinds.values()):
        for m, trap in enumerate(TRAPS.values()):
            made += _set(trap, good.parent / trap_name(good.name, 256 * n + m))
        for raw in odd_names(good.name):
            made += _set(holding(SURROGATES), Path(os.fsdecode(os.fsencode(good.parent) + b"/" + raw)))
        made += _set(folder_that_loops, good.parent / "subfolder")
    codex = next(home.rglob("rollout-*.jsonl.zst"))
    claude = next(path for path in sorted(home.rglob("*.jsonl")) if path.parent.parent.name == "projects")
    made += _set(LARGE["bomb"], codex.with_name(trap_name(codex.name, 0xFF1)))
    made += _set(LARGE["long line"], claude.with_name(trap_name(claude.name, 0xFF2)))
    made += _set(LARGE["sparse"], claude.with_name(trap_name(claude.name, 0xFF3)))
    return made + _dig(claude.parent)


def _set(trap: Callable[[Path], None], path: Path) -> int:
    try:
        trap(path)
    except FileExistsError:
        return 0
    return 1


def _dig(folder: Path) -> int:
    """Folders in folders, deeper than any path may be long."""
    where = os.getcwd()
    os.chdir(folder)
    try:
        for _ in range(60):
            os.mkdir("d" * 100)
            os.chdir("d" * 100)
        Path("deep.jsonl").write_bytes(SURROGATES)
    finally:
        os.chdir(where)
    return 61


def looks(home: Path) -> dict[bytes, tuple[int, int, int]]:
    """Of all that lies there, without following a link: mode, size, time of the last change."""
    found = {}
    for top, folders, files, handle in os.fwalk(os.fsencode(home)):
        for name in (*folders, *files):
            at = os.lstat(name, dir_fd=handle)
            found[top + b"/" + name] = (at.st_mode, at.st_size, at.st_mtime_ns)
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the traps are those of Linux")
def test_all_good_sessions_are_captured_from_a_home_full_of_traps(world: World, count: Count) -> None:
    """And nothing in that home is changed, read for ever, or taken into memory as a whole."""
    expected = world.expected()
    # A trap may be named as one more file of a good session: its lines are captured as lines that nobody understands.
    about = [key for key in next(iter(expected.values())) if key not in ("unknown", "odd")]
    traps = set_traps(world.home)
    before = looks(world.home)
    limited = ("prlimit", f"--as={4 << 30}")  # bytes of memory; a link to /dev/zero would take more
    world.run("ingest", under=limited)
    lost = world.lost(expected, about)
    kept_mib = sum(path.stat().st_size for path in Path(world.root).rglob("*") if path.is_file()) // _MIB
    commands = (["ingest"], ["status"], ["sessions"], ["search", "the"], ["pack"], ["audit"], ["doctor"], ["dream"])
    for words in commands:
        world.run(*words, under=limited)
    again = world.lost(expected, about)
    changed = looks(world.home) != before
    count("hostile tree", hostile_files=traps, good_sessions=len(expected), sessions_lost=len({*lost, *again}))
    count("hostile tree", commands_given=len(commands) + 1, files_of_agents_changed=int(changed))
    assert lost == again == []
    assert not changed
    assert kept_mib < _BOMB_MIB, "a bomb was unpacked into the keep"


@pytest.mark.slow
def test_a_transcript_that_becomes_a_trap_takes_nothing_away(world: World, count: Count) -> None:
    """Its file is replaced after it was captured: by a link, a pipe, a folder."""
    expected = world.expected()
    world.run("ingest")
    files = sorted(path for path in world.home.rglob("*.jsonl") if path.is_file())
    traps = [link_to("/dev/zero"), pipe, folder, link_to_itself, link_to("/proc/self/mem")]
    for n, path in enumerate(files):
        path.unlink()
        traps[n % len(traps)](path)
    world.run("ingest")
    world.run("audit")
    lost = world.lost(expected)
    said = json.loads(world.run("sessions", "--json").out)["sessions"]
    count("hostile tree", hostile_files=len(files), good_sessions=len(expected), sessions_lost=len(lost))
    assert lost == [] and len(said) >= len(expected)
