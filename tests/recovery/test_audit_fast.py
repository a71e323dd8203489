"""The shortcuts of an audit (how files look, one checksum a part) never accept what a full reading would not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dreamkeep import Keep
from dreamkeep.host import Look, RealHost
from dreamkeep.index import part_fingerprints
from dreamkeep.journal import parts
from tests.helpers.claude_home import home_with
from tests.helpers.faults import FragileHost
from tests.helpers.journal_damage import HealthyKeep
from tests.helpers.transcript_damage import LINES, audit, classes, ingest

HOST = RealHost()
Change = Callable[[bytes], bytes]


def _flip(at: float, bit: int) -> Change:
    def act(data: bytes) -> bytes:
        n = min(int(at * len(data)), len(data) - 1)
        return data[:n] + bytes([data[n] ^ 1 << bit]) + data[n + 1 :]

    return act


def _cut(at: float) -> Change:
    return lambda data: data[: int(at * len(data))]


def _zero(at: float, size: int) -> Change:
    def act(data: bytes) -> bytes:
        n = int(at * len(data))
        return data[:n] + bytes(len(data[n : n + size])) + data[n + size :]

    return act


def _without_line(n: int) -> Change:
    def act(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        return b"".join(line for m, line in enumerate(lines) if m != n % len(lines))

    return act


def _swapped(n: int) -> Change:
    def act(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        a, b = n % len(lines), (n + 1) % len(lines)
        lines[a], lines[b] = lines[b], lines[a]
        return b"".join(lines)

    return act


def _twice(n: int) -> Change:
    def act(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        return b"".join([*lines, lines[n % len(lines)]])

    return act


def _added(more: bytes) -> Change:
    return lambda data: data + more


somewhere = st.floats(0, 1, exclude_max=True)
changes = st.one_of(
    st.builds(_flip, somewhere, st.integers(0, 7)),
    st.builds(_cut, somewhere),
    st.builds(_zero, somewhere, st.integers(1, 600)),
    st.builds(_without_line, st.integers(0, 30)),
    st.builds(_swapped, st.integers(0, 30)),
    st.builds(_twice, st.integers(0, 30)),
    st.builds(_added, st.binary(min_size=1, max_size=40)),
    st.just(lambda data: data),
)


class Mutated:
    """A keep with journals of one part and of many; one file after the other becomes another, and is as it was again."""

    def __init__(self, folder: str) -> None:
        home = Path(folder, "home")
        home.mkdir()
        self.world = HealthyKeep(f"{folder}/keep", home)
        with Keep.open(self.world.root) as keep:
            for n in range(2):
                for m in range(4):
                    keep.session(f"small{n}").record(f"question {m}", ("assistant", "because " * 30))
        self.world.fill(sessions=1, messages=20)
        self.files = sorted(Path(self.world.root, "journal").rglob("*.jsonl"))
        assert len({file.parent for file in self.files if len(list(file.parent.glob("*.jsonl"))) == 1}) >= 2
        assert self.world.audit().clean and self.world.audit(deep=True).clean

    def told(self, file: Path, change: Change, *, quietly: bool, deep: bool) -> tuple[bool, bool, bool]:
        """Whether the bytes are as they were; whether the short way says clean; and reading from zero, without an index."""
        before, at = file.read_bytes(), file.stat()
        index = Path(self.world.root, "index.sqlite")
        aside = index.with_suffix(".aside")
        try:
            with file.open("r+b") as out:
                out.write(change(before))
                out.truncate()
            if quietly:
                os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
            same = file.read_bytes() == before
            short = self.world.audit(deep=deep).clean
            os.rename(index, aside)
            return same, short, self.world.audit().clean
        finally:
            if aside.exists():
                os.rename(aside, index)
            file.write_bytes(before)
            os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))


def test_a_deep_audit_calls_well_only_what_has_its_bytes_and_what_a_reading_from_zero_calls_well() -> None:
    """W4: no time, size or inode betrays what happened."""
    with TemporaryDirectory() as folder:
        mutated = Mutated(folder)
        seen: set[tuple[bool, bool]] = set()

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(which=st.integers(0, 1000), change=changes, quietly=st.booleans())
        def never_weaker(which: int, change: Change, quietly: bool) -> None:
            file = mutated.files[which % len(mutated.files)]
            same, short, long = mutated.told(file, change, quietly=quietly, deep=True)
            assert long or not short
            assert short == same
            seen.add((short, long))

        never_weaker()
        assert seen >= {(True, True), (False, False)}


def test_an_audit_by_looks_calls_well_only_what_a_reading_from_zero_calls_well() -> None:
    with TemporaryDirectory() as folder:
        mutated = Mutated(folder)

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(which=st.integers(0, 1000), change=changes)
        def never_weaker(which: int, change: Change) -> None:
            file = mutated.files[which % len(mutated.files)]
            same, short, long = mutated.told(file, change, quietly=False, deep=False)
            assert long or not short
            assert short or not same

        never_weaker()


def test_files_put_beside_a_part_are_noticed_and_unreadable_ones_are_checked(tmp_path: Path) -> None:
    """R1: of many files exactly those that look different are reported."""
    names = [f"s{n}" for n in range(6)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(b"x" * 10)
    before: list[Look] = []
    for name in names:
        at = os.stat(tmp_path / name / "a")
        before += [(f"{name}/a", at.st_size, at.st_mtime_ns, at.st_ino), (name, 0, os.stat(tmp_path / name).st_mtime_ns, 0)]
    assert HOST.changed(str(tmp_path), before) == []
    (tmp_path / "s0" / "b").touch()
    with (tmp_path / "s1" / "a").open("ab") as file:
        file.write(b"y")
    (tmp_path / "s2" / "a").chmod(0)
    (tmp_path / "s3" / "a").unlink()
    later = os.stat(tmp_path / "s4" / "a")
    (tmp_path / "s4" / "new").write_bytes(b"z" * 10)
    os.replace(tmp_path / "s4" / "new", tmp_path / "s4" / "a")
    os.utime(tmp_path / "s4" / "a", ns=(later.st_atime_ns, later.st_mtime_ns))
    assert HOST.changed(str(tmp_path), before) == ["s0", "s1/a", "s2/a", "s3/a", "s3", "s4/a", "s4"]


def test_a_checksum_covers_bytes_beyond_a_single_read(tmp_path: Path) -> None:
    size = len(part_fingerprints.make_buffer()) * 2 + 17
    for host, folder in ((HOST, str(tmp_path)), (FragileHost(), "")):
        handle = host.create(f"{folder}/{parts.name(1)}")
        host.write(handle, b"a" * size)
        host.close(handle)
        known = part_fingerprints.extend_sum(host, folder, 1, part_fingerprints.Sum(0, 0), None)
        assert known.size == size and part_fingerprints.part_holds(host, folder, 1, known, whole=True)
        assert not part_fingerprints.part_holds(host, folder, 1, known._replace(size=size - 1), whole=False)
        assert not part_fingerprints.part_holds(host, folder, 1, known._replace(size=size + 1), whole=False)
        handle = host.open_append(f"{folder}/{parts.name(1)}")
        host.write(handle, b"b")
        host.close(handle)
        assert part_fingerprints.part_holds(host, folder, 1, known, whole=False) and not part_fingerprints.part_holds(
            host, folder, 1, known, whole=True
        )


def test_a_transcript_is_called_well_only_if_it_is_without_any_memory_of_how_it_looked() -> None:
    with TemporaryDirectory() as folder:
        root = f"{folder}/keep"
        home, file = home_with(Path(folder), LINES)
        ingest(root, home)
        before, at = file.read_bytes(), file.stat()
        memory = Path(root, "state/sources.json")
        remembered = memory.read_bytes()

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(change=changes, quietly=st.booleans())
        def never_weaker(change: Change, quietly: bool) -> None:
            with file.open("r+b") as out:
                out.write(change(before))
                out.truncate()
            if quietly:
                os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
            memory.write_bytes(remembered)
            shorts = [classes(audit(root, home, deep=True)), *([] if quietly else [classes(audit(root, home))])]
            memory.unlink()
            long = classes(audit(root, home))
            assert all(long == [] for short in shorts if short == [])
            assert file.read_bytes() != before or shorts[0] == long == []

        never_weaker()


def test_a_part_added_to_a_journal_of_one_part_is_noticed() -> None:
    """Nothing betrays it but the time of the folder."""
    with TemporaryDirectory() as folder:
        mutated = Mutated(folder)
        for deep in (False, True):
            file = next(one for one in mutated.files if len(list(one.parent.glob("*.jsonl"))) == 1 and one.parent.name != "keep")
            other = file.with_name(parts.name(2))
            other.write_bytes(b'{"no":"frame"}\n')
            assert not mutated.world.audit(deep=deep).clean
            other.unlink()
            assert mutated.world.audit(deep=deep).clean
