"""No space, for real: a limit on the size of files, a tmpfs that is full, one that can't hold another name; and no leaks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.errors import NoSpace
from dreamkeep.host import RealHost
from dreamkeep.journal.reader import Reading
from tests.helpers.small_disk import fill, mount_tmpfs

from .writers import Account, folder, run, said, text


@pytest.mark.parametrize("spare", [0, 1, 150, 4096])
def test_a_file_that_may_not_grow_costs_the_append_and_nothing_else(tmp_path: Path, spare: int) -> None:
    """W8 T5 T10: NoSpace with what, where, next; no half frame stays; when the limit is lifted the same handle goes on."""
    root = str(tmp_path / "keep")
    lines = run("limited", root, "chat", spare)
    told = [line.removeprefix("raised ").split("|") for line in lines if line.startswith("raised")]
    assert len(told) == 2
    for kind, what, where, step in told:
        assert kind == "NoSpace" and "no space" in what and where == folder(root, "chat") and "Free space" in step
    assert "shown 1 1" in lines, "reading needs no space"
    account = Account("l")
    account.absorb(lines)
    assert account.acked == [1, 30, 31]
    found = said(root, "chat")
    assert [s.text for s in found] == [text("l", n) for n in account.acked]
    assert not os.path.exists(f"{root}/aside"), "what was taken only in part was cut back by who wrote it"
    run("messages", root, "chat", "late", 1, 2)
    assert len(said(root, "chat")) == 5


# -- a small tmpfs


@pytest.fixture
def small(tmp_path: Path) -> Iterator[str]:
    yield from mount_tmpfs(tmp_path, "size=1m")


@pytest.fixture
def few_names(tmp_path: Path) -> Iterator[str]:
    yield from mount_tmpfs(tmp_path, "size=8m,nr_inodes=64")


@pytest.mark.parametrize("indexed", [False, True])
def test_a_full_disk_refuses_appends_answers_questions_and_works_again_when_there_is_space(small: str, indexed: bool) -> None:
    """W8 T5 T10: the same handle and a new one, with an index that was there before and with none."""
    root, ballast = f"{small}/keep", f"{small}/ballast"
    with Keep.open(root) as keep:
        turn = keep.session("chat").submit("go")
        if indexed:
            assert keep.status()["messages"] == 1
        fill(ballast, keep_free=64 << 10)
        acked = ["go"]
        refused = 0
        for n in range(200):
            words = f"{n}:" + "x" * (n * 97 % 3000)
            try:
                turn.add("assistant", words)
            except NoSpace as problem:
                refused += 1
                assert problem.what and problem.where == folder(root, "chat") and problem.next
            else:
                acked.append(words)
        assert refused > 50 and len(acked) > 10
        warnings: list[str] = []
        keep.warn = warnings.append
        fill(f"{small}/last")
        for who in (keep, Keep.open(root)):
            assert [m["text"] for m in who.show("chat")["messages"]] == acked
            assert who.show("chat")["turns"][0]["state"] == "submitted"
            assert who.status()["messages"] == len(acked)
            assert who.status()["faults"] == 0
        assert warnings and "index" in warnings[0], "that the index could not be written is said"
        with pytest.raises(NoSpace):
            turn.add("assistant", "x" * 9000)
        os.unlink(ballast)
        turn.add("assistant", "the same handle")
        with Keep.open(root) as another:
            another.session("chat").record("a new one")
        acked += ["the same handle", "a new one"]
        assert [m["text"] for m in keep.show("chat")["messages"]] == acked
        assert keep.show("chat")["faults"] == []
    assert [s.text for s in said(root, "chat")] == acked
    assert Reading(RealHost(), folder(root, "chat")).tail is None


@pytest.fixture
def larger(tmp_path: Path) -> Iterator[str]:
    yield from mount_tmpfs(tmp_path, "size=6m")


@pytest.mark.parametrize("spare", [0, 4096, 8192, 12288, 16384, 32768, 65536, 131072])
def test_a_session_can_be_deleted_on_a_full_disk(larger: str, spare: int) -> None:
    """Whichever write it is that finds no space, no word of it is left, and the others are as they were."""
    root = f"{larger}/keep"
    with Keep.open(root) as keep:
        for name in ("stays", "goes"):
            chat = keep.session(name)
            for n in range(20):
                chat.record(f"{name}-{n} " + "".join(chr(97 + (n * k) % 26) for k in range(3000)))
        keep.note_add("greet everybody in the morning")
        keep.status()
        fill(f"{larger}/ballast", keep_free=spare)
        keep.delete("goes")
        assert [one.native_id for one in keep.sessions()] == ["stays"]
    with Keep.open(root) as keep:
        assert [one.native_id for one in keep.sessions()] == ["stays"]
        assert len(keep.show("stays")["messages"]) == 20
        os.unlink(f"{larger}/ballast")
        assert keep.audit()["faults"] == []
    held = subprocess.run(["grep", "-rl", "goes-1 ", root], capture_output=True, text=True)
    assert held.stdout == ""


def test_a_disk_that_can_hold_no_other_name_says_no_space_and_works_again_when_it_can(few_names: str) -> None:
    """W8 T10: whichever file or folder it is that can't be made: that of the keep, of a session, or of the turn's owner."""
    root = f"{few_names}/keep"
    taken: list[str] = []

    def take_all_names() -> None:
        while True:
            try:
                os.close(os.open(f"{few_names}/name{len(taken)}", os.O_CREAT | os.O_WRONLY))
            except OSError:
                return
            taken.append(f"{few_names}/name{len(taken)}")

    take_all_names()
    stuck = 0
    for _ in range(40):
        with Keep.open(root) as keep:
            try:
                keep.session("chat").submit("go").add("assistant", "gone")
                break
            except NoSpace as problem:
                assert problem.what and problem.where.startswith(root) and problem.next
                stuck += 1
        # One more name at a time: so every file and folder is once the one that can't be made.
        os.unlink(taken.pop())
    assert stuck > 8
    run("messages", root, "chat", "late", 1, 2)
    assert [s.text for s in said(root, "chat")[-2:]] == [text("late", n) for n in (1, 2)]


# -- no leaks


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_asking_a_thousand_times_leaves_no_file_open(tmp_path: Path) -> None:
    """B6: one keep, asked again and again, while it grows now and then."""
    with Keep.open(tmp_path / "keep") as keep:
        chat = keep.session("chat")
        chat.record("hello")
        keep.sessions()
        before = handles()
        for n in range(1000):
            if n % 100 == 0:
                chat.record("more")
            assert len(keep.sessions()) == 1
        assert handles() == before


def test_opening_and_closing_keeps_again_and_again_leaves_no_file_open(tmp_path: Path) -> None:
    """B6: with a turn each, so that every kind of handle is opened. 300 times: a thousand take eight seconds."""
    before = handles()
    for n in range(300):
        with Keep.open(tmp_path / "keep") as keep:
            keep.session("chat").submit("go").settle()
            if n % 100 == 0:
                assert keep.status()["turns"] == n + 1
    assert handles() == before
    assert os.listdir(tmp_path / "keep" / "state" / "owners") == []
