"""An unreadable source affects only itself: it is reported, the others are captured, and later it is captured whole."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import apsw
import pytest

from dreamkeep import Keep
from dreamkeep.agents.gemini import writer
from dreamkeep.agents.registry import BUILT_IN as AGENTS
from dreamkeep.capture.find import why_not_followed
from dreamkeep.capture.sources import source_bytes
from dreamkeep.dream.pages.retired import left_over
from dreamkeep.host import FolderEntry, RealHost, Stat
from dreamkeep.journal.places import folder_of
from dreamkeep.memory.memory import Memory
from tests.agents.suite import assert_rejoined
from tests.helpers.claude_home import home_with, ingest, record

ROOT, ANNA, BERT = 0, 1000, 1001

#: (session, role, path) of each source that was captured.
Captured = set[tuple[str, str, str]]


class BadFile(RealHost):
    """From the nth access below a folder on, the file or folder of that access can't be read any more."""

    def __init__(self, below: Path, at: int) -> None:
        self._below = f"{below}/"
        self._left = at
        self._paths: dict[int, str] = {}
        self.bad = ""

    def look(self, path: str) -> None:
        if not path.startswith(self._below):
            return
        self._left -= 1
        if self._left == 0:
            self.bad = path
        if self.bad == path:
            raise OSError(errno.EIO, "injected", path)

    def stat(self, path: str) -> Stat | None:
        self.look(path)
        return super().stat(path)

    def names(self, folder: str) -> list[str]:
        self.look(folder)
        return super().names(folder)

    def entries(self, folder: str) -> list[FolderEntry]:
        self.look(folder)
        return super().entries(folder)

    def open_read(self, path: str) -> int:
        self.look(path)
        handle = super().open_read(path)
        self._paths[handle] = path
        return handle

    def close(self, handle: int) -> None:
        self._paths.pop(handle, None)
        super().close(handle)

    def handle_stat(self, handle: int) -> Stat:
        self.look(self._paths.get(handle, ""))
        return super().handle_stat(handle)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        self.look(self._paths.get(handle, ""))
        return super().read(handle, size, offset)

    def open_stream(self, path: str) -> BinaryIO:
        self.look(path)
        return _Stream(super().open_stream(path), path, self)  # type: ignore[return-value]


class _Stream:
    def __init__(self, real: BinaryIO, path: str, host: BadFile) -> None:
        self._real, self._path, self._host = real, path, host

    def read(self, size: int = -1) -> bytes:
        self._host.look(self._path)
        return self._real.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _BadFiles(apsw.VFS):
    """SQLite's own access to the disk, for the same files."""

    def __init__(self, host: BadFile) -> None:
        self.host = host
        super().__init__("bad", base="unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return _BadDatabase(path or "", name, flags, self.host)


class _BadDatabase(apsw.VFSFile):
    def __init__(self, path: str, name: Any, flags: list[int], host: BadFile) -> None:
        self._path, self._host = path, host
        super().__init__("unix", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        try:
            self._host.look(self._path)
        except OSError as problem:
            raise apsw.IOError(str(problem)) from problem
        return super().xRead(amount, offset)


@contextmanager
def sqlite_reads(host: BadFile) -> Iterator[None]:
    vfs = _BadFiles(host)
    try:
        yield
    finally:
        vfs.unregister()


def captured(keep: Keep) -> Captured:
    found = set()
    for session in keep.sessions():
        sources = source_bytes.sources(RealHost(), f"{keep.root}/{folder_of(session.id)}").values()
        found |= {(session.id, about["role"], about["path"]) for about in sources}
    return found


def is_hit(path: str, bad: str) -> bool:
    """Whether this source is the unreadable file, lies in the unreadable folder, or is partly kept there."""
    return path == bad or path.startswith(f"{bad}/") or bad in {f"{path}{end}" for end in ("-wal", "-shm", "-journal")}


def not_hit(whole: Captured, bad: str) -> Captured:
    """What can be captured without the unreadable path: companions of a session wait until it is found."""
    lost = {session for session, role, path in whole if role in ("main", "subagent") and is_hit(path, bad)}
    return {one for one in whole if not is_hit(one[2], bad) and one[0] not in lost}


#: Agents whose files are looked at so often that a fault at each look takes long.
_LONG = ("claude", "codex", "gemini", "hermes", "hermes-webui", "opencode")


@pytest.mark.parametrize(
    "agent", [pytest.param(agent, marks=pytest.mark.slow) if agent in _LONG else agent for agent in sorted(AGENTS)]
)
def test_a_read_error_affects_only_the_unreadable_source(agent: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    import_module(f"tests.agents.{agent.replace('-', '_')}").write(home)
    with Keep.open(tmp_path / "untouched") as keep:
        list(keep.ingest(agents=[agent], home=home))
        whole = captured(keep)
    for n in count(1):
        host = BadFile(home, n)
        host.sleep = lambda seconds: None  # type: ignore[method-assign]
        with Keep.open(tmp_path / f"keep{n}", host=host) as keep, sqlite_reads(host):
            told = [one.path for one in keep.ingest(agents=[agent], home=home) if one.problem]
        if not host.bad:
            break
        with Keep.open(tmp_path / f"keep{n}") as keep:
            assert not_hit(whole, host.bad) - captured(keep) == set(), (n, host.bad)
            later = list(keep.ingest(agents=[agent], home=home))
            assert [one.problem for one in later if one.problem] == []
            if any(one.new_events for one in later):
                assert any(is_hit(host.bad, path) or is_hit(path, host.bad) for path in told), (n, host.bad, told)
            assert captured(keep) == whole, (n, host.bad)
            assert_rejoined(keep)
    assert n > 10


def test_a_transcript_that_links_to_a_processs_memory_does_not_stop_the_others(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1), "first")
    file.with_name("bad.jsonl").symlink_to("/proc/self/mem")
    home_with(tmp_path, record(2), "second")
    with Keep.open(tmp_path / "keep") as keep:
        found = {one.path.rpartition("/")[2]: one for one in ingest(keep, home)}
        assert [session.native_id for session in keep.sessions()] == ["second", "first"]
    assert found["bad.jsonl"].state == "failed"
    assert "/mem`, which is not a file on a disk, so it is not followed" in (found["bad.jsonl"].problem or "")


def test_a_vanished_source_with_an_unwritable_journal_does_not_stop_the_others(tmp_path: Path) -> None:
    home, first = home_with(tmp_path, record(1), "first")
    _, second = home_with(tmp_path, record(2), "second")
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
    first.unlink()
    second.unlink()
    journal = next((tmp_path / "keep/journal/sessions/claude").glob("first-*"))
    (journal / "lock").unlink()
    (journal / "lock").mkdir()
    with Keep.open(tmp_path / "keep") as keep:
        states = {one.path: one.state for one in ingest(keep, home)}
    assert states == {str(first): "failed", str(second): "vanished"}


def test_an_unreadable_path_does_not_stop_the_capture_of_others(tmp_path: Path) -> None:
    _, first = home_with(tmp_path, record(1), "first")
    _, second = home_with(tmp_path, record(2), "second")
    for n in count(1):
        host = BadFile(first, n)
        host._below = str(first)
        with Keep.open(tmp_path / f"keep{n}", host=host) as keep:
            found = {one.path: one.state for one in keep.ingest(paths=[first, second])}
            assert found[str(second)] == "new"
        if not host.bad:
            break
        assert found[str(first)] == "failed", n
    assert n > 5


def test_a_watcher_continues_when_a_place_cannot_be_read(tmp_path: Path) -> None:
    home_with(tmp_path, record(1), "first")

    class Lost(RealHost):
        def stat(self, path: str) -> Stat | None:
            if path.endswith("/.codex"):
                raise OSError(errno.EIO, "lost", path)
            return super().stat(path)

    steps: list[int] = []
    told = []
    with Keep.open(tmp_path / "keep", host=Lost()) as keep:
        for one in keep.watch(home=tmp_path / "home", agents=["codex", "claude"], polling=True, stopped=lambda: len(steps) > 1):
            if one is None:
                steps.append(1)
            else:
                told.append((one.path.rpartition("/")[2], one.state))
    assert told == [(".codex", "failed"), ("first.jsonl", "new")]


# -- links


def at(owner: int, **more: Any) -> Stat:
    return Stat(1, 0, 1, 1, False, 0o600, owner=owner)._replace(**more)


@pytest.mark.parametrize(
    ("link", "target", "file_system", "user", "why"),
    [
        (ANNA, at(ANNA), "ext4", ANNA, ""),
        (ROOT, at(ANNA), "ext4", ANNA, ""),
        (ANNA, at(ANNA, is_file=False, is_folder=True), "ext4", ANNA, ""),
        (ANNA, at(BERT), "ext4", ANNA, "which belongs to another user"),
        (ANNA, at(ROOT), "ext4", ANNA, "which belongs to another user"),
        (ANNA, at(ANNA), "proc", ANNA, "which is not a file on a disk"),
        (ANNA, at(ANNA, is_file=False), "ext4", ANNA, "which is a device, a pipe or a socket"),
        (ROOT, at(BERT), "ext4", ROOT, ""),
        (ANNA, at(ANNA), "ext4", ROOT, ""),
        (ANNA, at(ROOT), "ext4", ROOT, "and the two belong to different users"),
        (ROOT, at(ROOT), "proc", ROOT, "which is not a file on a disk"),
    ],
)
def test_a_link_is_followed_to_files_and_folders_of_its_user_only(
    link: int, target: Stat, file_system: str, user: int, why: str
) -> None:
    assert why_not_followed(at(link, is_link=True), target, file_system, user) == why


class Owned(RealHost):
    """As seen by Anna, who owns everything except what is below `theirs`."""

    def __init__(self, theirs: Path) -> None:
        self._theirs = str(theirs)

    def user(self) -> int:
        return ANNA

    def stat(self, path: str) -> Stat | None:
        found = super().stat(path)
        theirs = self.real_path(path).startswith(self._theirs)
        return found and found._replace(owner=BERT if theirs else ANNA)


def test_links_that_are_not_followed_are_reported_once_and_the_others_are_followed(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1), "plain")
    elsewhere, theirs = tmp_path / "elsewhere", tmp_path / "theirs"
    for folder in (elsewhere, theirs):
        (folder / "project").mkdir(parents=True)
        (folder / "project" / f"{folder.name}.jsonl").write_bytes(record(2))
        (folder / "linked.jsonl").write_bytes(record(3))
    os.mkfifo(tmp_path / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    links = {
        file.with_name("own.jsonl"): elsewhere / "linked.jsonl",
        file.with_name("another-s.jsonl"): theirs / "linked.jsonl",
        file.with_name("pipe.jsonl"): tmp_path / "pipe",
        file.with_name("socket.jsonl"): tmp_path / "socket",
        file.with_name("device.jsonl"): Path("/dev/zero"),
        file.with_name("process.jsonl"): Path("/proc/self/environ"),
        file.with_name("nowhere.jsonl"): tmp_path / "nowhere",
        file.parent.with_name("own-folder"): elsewhere / "project",
        file.parent.with_name("another-s-folder"): theirs / "project",
    }
    for link, target in links.items():
        link.symlink_to(target)
    with Keep.open(tmp_path / "keep", host=Owned(theirs)) as keep:
        told = [one.path.rpartition("/")[2] for one in ingest(keep, home) if one.problem]
        assert sorted(told) == [
            "another-s-folder",
            "another-s.jsonl",
            "device.jsonl",
            "pipe.jsonl",
            "process.jsonl",
            "socket.jsonl",
        ]
        assert {one.native_id for one in keep.sessions()} == {"plain", "own", "elsewhere"}
    listener.close()


def test_a_watcher_reports_an_unreadable_source_once(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1), "plain")
    file.with_name("bad.jsonl").symlink_to("/proc/self/mem")
    file.parent.with_name("no-project").symlink_to("/proc/self")
    steps: list[int] = []
    told = []
    with Keep.open(tmp_path / "keep") as keep:
        for one in keep.watch(home=home, agents=["claude"], polling=True, stopped=lambda: len(steps) > 2):
            if one is None:
                steps.append(1)
            else:
                told.append((one.path.rpartition("/")[2], one.state))
    assert sorted(told) == [("bad.jsonl", "failed"), ("no-project", "failed"), ("plain.jsonl", "new")]


# -- audit, doctor, init


@pytest.mark.parametrize("agent", ["claude", "codex", "hermes", "hermes-webui"])
def test_a_read_error_affects_only_one_source_of_an_audit(agent: str, tmp_path: Path) -> None:
    """The transcripts are changed first, so that each must be read and has a fault of its own."""
    home = tmp_path / "home"
    import_module(f"tests.agents.{agent.replace('-', '_')}").write(home)
    with Keep.open(tmp_path / "keep") as keep:
        list(keep.ingest(agents=[agent], home=home))
        for path in {Path(path) for _, role, path in captured(keep) if role in ("main", "subagent") and path.endswith("l")}:
            path.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[1:]))
        expected = faults(keep, home)
    for n in count(1):
        host = BadFile(home, n)
        host.sleep = lambda seconds: None  # type: ignore[method-assign]
        with Keep.open(tmp_path / "keep", host=host) as keep, sqlite_reads(host):
            found = faults(keep, home)
        if not host.bad:
            break
        missed = {where for where in expected - found if not is_hit(where.partition("#")[0], host.bad)}
        assert missed == set(), (n, host.bad, found)


def faults(keep: Keep, home: Path) -> set[str]:
    return {fault["where"] for fault in keep.audit(home=home, deep=True)["faults"]}


@pytest.mark.slow
def test_a_read_error_affects_only_one_agent_of_doctor_and_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    for folder in (".claude", ".codex", ".gemini", ".qwen", ".hermes"):
        (home / folder).mkdir(parents=True)
    with Keep.open(tmp_path / "keep") as keep:
        keep.init()
    for n in count(1):
        host = BadFile(home, n)
        with Keep.open(tmp_path / "keep", host=host) as keep:
            found = {check["what"].partition(":")[0] for check in keep.doctor() if check["check"] == "hooks"}
            again = keep.init()
        assert found >= {"claude", "codex", "gemini", "qwen", "hermes"}, host.bad
        assert {change["agent"] for change in again} >= found - {"opencode"}, host.bad
        if not host.bad:
            break


@pytest.mark.parametrize("settings", [b'{"a":' * 100_000, b"[" * 100_000, b"\xff\xfe", b"{" + b'"a":1,' * 100_000, b"\0" * 5000])
def test_unreadable_settings_affect_only_their_agent(settings: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    for folder in (".claude", ".gemini"):
        (home / folder).mkdir(parents=True)
    (home / ".claude" / "settings.json").write_bytes(settings)
    with Keep.open(tmp_path / "keep") as keep:
        actions = {(change["agent"], change["action"]) for change in keep.init()}
        assert ("claude", "refused") in actions and ("gemini", "install") in actions
        assert any(check["what"].startswith("gemini: ") and " hooks in " in check["what"] for check in keep.doctor())
    assert (home / ".claude" / "settings.json").read_bytes() == settings


def test_an_unreadable_folder_of_pages_hides_no_page_of_another_folder(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        (tmp_path / "pages" / name).mkdir(parents=True)
        (tmp_path / "pages" / name / "MEMORY.md").write_text("mine")
    host = BadFile(tmp_path / "pages", 2)
    found = left_over(host, str(tmp_path), Memory())
    assert host.bad == str(tmp_path / "pages" / "second")
    assert found == [str(tmp_path / "pages" / name / "MEMORY.md") for name in ("first", "third")]


def test_an_unreadable_marker_does_not_stop_a_restore_for_gemini(tmp_path: Path) -> None:
    for name, owner in (("bread", "/work/bread"), ("shop", "/work/shop"), ("torn", "/work/torn")):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".project_root").write_text(owner)
    host = BadFile(tmp_path / "bread", 1)
    assert writer.project_name(host, str(tmp_path), "/work/shop") == "shop"
    assert host.bad, "it was met"
    assert writer.project_name(BadFile(tmp_path / "torn", 1), str(tmp_path), "/work/torn") == "torn-1", (
        "it may be somebody else's"
    )


def test_an_unreadable_interrupted_deletion_does_not_stop_an_undelete(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "keep") as keep:
        keep.session("chat").record("hello")
        keep.delete("chat")
        (tmp_path / "keep/state/deleting/no-file").mkdir()
        keep.undelete("chat")
        (tmp_path / "keep/state/deleting/no-file").rmdir()
        keep.session("chat").record("again")


class Stale(RealHost):
    """Files whose names can be listed, but that can't be read: a network disk that lost its server."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def entries(self, folder: str) -> list[FolderEntry]:
        return [FolderEntry(one.name, None, "stale") if one.name in self._names else one for one in super().entries(folder)]


@pytest.mark.parametrize(
    ("stale", "told"), [({"first.jsonl"}, "first.jsonl"), ({"first.jsonl", "second.jsonl", "third.jsonl"}, "-home-dev-shop")]
)
def test_unreadable_files_are_reported_one_by_one_or_as_their_folder(stale: set[str], told: str, tmp_path: Path) -> None:
    for n, name in enumerate(("first", "second", "third"), 1):
        home, _ = home_with(tmp_path, record(n), name)
    with Keep.open(tmp_path / "keep", host=Stale(stale)) as keep:
        problems = [(one.path.rpartition("/")[2], one.problem) for one in ingest(keep, home) if one.problem]
        assert problems == [(told, "stale")]
        assert len(keep.sessions()) == 3 - len(stale)
