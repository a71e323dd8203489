"""The order of system calls, from a trace of a real run (ext4 hides a missing sync of a folder), and calls that fail for real.

`strace` makes a call fail without doing it: EIO from fdatasync, ENOSPC from write.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from dreamkeep import Keep
from dreamkeep.host import RealHost
from dreamkeep.journal.open_state import read_head

from .writers import Account, child, folder, run, said

_CALLS = "openat,mkdir,mkdirat,write,pwritev2,fsync,fdatasync,ftruncate,rename,renameat,renameat2,link,linkat,unlink,unlinkat"
_SYNCS = ("fsync", "fdatasync")


class Call(NamedTuple):
    """`start`, `end`: lines of the trace. Between threads only those tell what came first."""

    name: str
    arguments: str
    result: int
    start: int
    end: int

    @property
    def path(self) -> str:
        """Of the handle, or the last one named (which is the new one of two)."""
        handle = re.match(r"\d+<([^>]*)>", self.arguments)
        return handle[1] if handle else (re.findall(r'"([^"]*)"', self.arguments) or [""])[-1]

    @property
    def text(self) -> str:
        """What our children say goes to their stdout."""
        said = re.match(r'1<[^>]*>, "([^"]*)\\n"', self.arguments)
        return said[1] if self.name == "write" and said else ""


def parse(trace: str) -> list[Call]:
    """In the order in which the calls returned."""
    calls: list[Call] = []
    begun: dict[str, tuple[int, str]] = {}
    for n, line in enumerate(trace.splitlines()):
        process, _, rest = line.partition(" ")
        rest = rest.strip()
        start = n
        if rest.endswith("<unfinished ...>"):
            begun[process] = (n, rest.removesuffix("<unfinished ...>"))
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", rest):
            start, head = begun.pop(process)
            rest = head + resumed[1]
        if found := re.match(r"(\w+)\((.*)\)\s+= (-?\d+)", rest):
            name = re.sub(r"(?<=mkdir|.link)at$|(?<=rename)at2?$", "", found[1])
            calls.append(Call(name.replace("unlinkat", "unlink"), found[2], int(found[3]), start, n))
    return calls


def strace(trace: Path, *options: str) -> list[str]:
    names = ",".join(f"?{name}" for name in f"{_CALLS},io_submit,io_getevents".split(","))
    return ["strace", "-f", "-y", "-qq", "-s", "400", "-o", str(trace), "-e", f"trace={names}", *options]


@pytest.fixture(scope="module", autouse=True)
def _able(tmp_path_factory: pytest.TempPathFactory) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace on this machine")
    trace = tmp_path_factory.mktemp("able") / "trace"
    tried = subprocess.run(
        [*strace(trace, "-e", "inject=fdatasync:error=EIO"), "true"], capture_output=True, text=True, timeout=60
    )
    if tried.returncode != 0:
        pytest.skip(f"strace can't trace here: {tried.stderr.strip()[:200]}")


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "keep")


@pytest.fixture
def traced(tmp_path: Path) -> Callable[..., list[Call]]:
    def run_traced(*words: object) -> list[Call]:
        trace = tmp_path / "trace"
        run(*words, under=strace(trace))
        calls = parse(trace.read_text())
        assert any(call.text for call in calls), "the trace does not show what the child said"
        return calls

    return run_traced


def in_order(calls: Sequence[Call], *wanted: tuple[str, str]) -> None:
    """All of them succeed, one after the other, whatever lies between."""
    done = [(call.name, call.path) for call in calls if call.result >= 0]
    at = 0
    for step in wanted:
        assert step in done[at:], f"{step} is missing after {wanted[: wanted.index(step)]} in {done}"
        at += done[at:].index(step) + 1


def not_durable(calls: Sequence[Call]) -> set[str]:
    """What a power cut after the last of the calls might take: bytes not synced, names whose folder was not synced.

    Locks are left out: what they are worth dies with the process.
    """
    bytes_, names = set[str](), set[str]()
    for call in calls:
        name, path = call.name, call.path
        lasting = path.endswith((".jsonl", ".tail", ".tmp", "/published"))
        if call.result < 0:
            continue
        if (lasting and name in ("write", "ftruncate")) or (name == "pwritev2" and "DSYNC" not in call.arguments):
            bytes_.add(path)
        elif name in _SYNCS:
            bytes_.discard(path)
            names = {known for known in names if os.path.dirname(known) != path}
        elif name in ("mkdir", "rename", "link") or (lasting and name == "openat" and "O_CREAT" in call.arguments):
            names.add(path)
        elif name == "unlink":
            bytes_.discard(path)
            names.discard(path)
    return bytes_ | names


def stages(calls: Sequence[Call]) -> dict[str, list[Call]]:
    """The calls between one thing said and the next, by what was said at their end (without the time)."""
    found: dict[str, list[Call]] = {}
    since: list[Call] = []
    for call in calls:
        if call.text:
            found[" ".join(call.text.split(" ")[:2])] = since
            since = []
        else:
            since.append(call)
    return found


def durable_at_every_word(calls: Sequence[Call], kinds: tuple[str, ...] = ("mark", "ack")) -> None:
    words = 0
    for n, call in enumerate(calls):
        if call.text.startswith(kinds):
            words += 1
            assert not not_durable(calls[:n]), f"not durable at {call.text!r}: {not_durable(calls[:n])}"
    assert words > 1


# -- the order of things


def test_a_new_keep_and_session_are_durable_by_bytes_and_by_name_before_anything_is_acknowledged(
    root: str, traced: Callable[..., list[Call]]
) -> None:
    """W12: every new part is written, synced, and then its folder; every new folder is followed by a sync of the one above."""
    calls = traced("traced", root, "chat", 3)
    durable_at_every_word(calls)
    opening = stages(calls)["mark opened"]
    for journal in (f"{root}/journal/keep", folder(root, "chat")):
        part, above = f"{journal}/000001.jsonl", os.path.dirname(journal)
        in_order(opening, ("mkdir", journal), ("fsync", above), ("openat", part), ("write", part), ("fdatasync", part))
        in_order(opening, ("openat", part), ("write", part), ("fdatasync", part), ("fsync", journal), ("fsync", above))
    made = [call.path for call in opening if call.name == "mkdir" and call.result == 0]
    assert root in made and f"{root}/journal/sessions/python" in made
    for path in made:
        in_order(opening, ("mkdir", path), ("fsync", os.path.dirname(path)))


def test_each_append_is_one_write_and_one_sync_in_that_order(root: str, traced: Callable[..., list[Call]]) -> None:
    """W12 T10: also the submission of a turn, and a whole turn recorded in one call."""
    part = f"{folder(root, 'chat')}/000001.jsonl"
    once = [("write", part), ("fdatasync", part)]
    found = stages(traced("traced", root, "chat", 5))
    assert [(call.name, call.path) for call in found["mark submitted"] if part == call.path] == once
    for n in range(2, 8):
        assert [(call.name, call.path) for call in found[f"ack {n}"]] == once, f"append {n}"


def test_a_part_is_all_durable_before_the_next_one_begins(root: str, traced: Callable[..., list[Call]]) -> None:
    """W12: and the next one is durable by bytes and by name before its first append is acknowledged."""
    calls = traced("rotating", root, "parts", 9)
    durable_at_every_word(calls)
    parts = [f"{folder(root, 'parts')}/{n:06d}.jsonl" for n in (1, 2, 3)]
    for old, new in pairwise(parts):
        began = next(n for n, call in enumerate(calls) if (call.name, call.path) == ("openat", new))
        assert not not_durable(calls[:began]) - {new}
        assert not [call for call in calls[began:] if (call.name, call.path) == ("write", old)], "written after its end"
        in_order(calls[began:], ("write", new), ("fdatasync", new), ("fsync", os.path.dirname(new)))


def test_a_replaced_file_is_synced_before_it_gets_its_name_and_the_name_is_synced_after(
    tmp_path: Path, traced: Callable[..., list[Call]]
) -> None:
    """W10 W12 W15: file, rename or link, folder; under a temporary name that nobody else can have."""
    calls = traced("files", tmp_path)
    durable_at_every_word(calls)
    path = f"{tmp_path}/published"
    for word, act in (("mark published", "link"), ("mark replaced", "rename")):
        steps = stages(calls)[word]
        (temp,) = (call.path for call in steps if call.name == "openat" and "O_EXCL" in call.arguments)
        assert temp.startswith(path) and temp.endswith(".tmp")
        in_order(steps, ("write", temp), ("fdatasync", temp), (act, path), ("fsync", str(tmp_path)))
        assert [call.name for call in steps].count(act) == 1
        assert not [call for call in steps if call.path == path and call.name in ("write", "ftruncate")]
    assert Path(path).read_bytes() == b"two\n"
    assert sorted(os.listdir(tmp_path)) == ["published", "trace"]


def test_a_bad_tail_is_durable_elsewhere_before_it_is_cut_off(root: str, traced: Callable[..., list[Call]]) -> None:
    """W5 T5: its copy is written, synced, named, and the name synced; only then the part is cut."""
    with Keep.open(root) as keep:
        keep.session("chat").record("hello")
    part, aside = f"{folder(root, 'chat')}/000001.jsonl", f"{root}/aside"
    torn = b'{"id":"torn'
    with open(part, "ab") as file:
        file.write(torn)
    calls = traced("traced", root, "chat", 1)
    durable_at_every_word(calls, ("mark submitted", "ack"))  # opening a session that is there already promises nothing
    (kept,) = os.listdir(aside)
    (temp,) = (call.path for call in calls if call.name == "openat" and call.path.endswith(".tmp"))
    copied = (("openat", temp), ("write", temp), ("fdatasync", temp), ("link", f"{aside}/{kept}"), ("fsync", aside))
    in_order(calls, ("mkdir", aside), ("fsync", root), *copied, ("ftruncate", part), ("write", part), ("fdatasync", part))
    assert [(call.name, call.path) for call in calls].count(("ftruncate", part)) == 1
    assert Path(aside, kept).read_bytes() == torn
    assert [s.text.split(":")[0] for s in said(root, "chat")] == ["hello", "t", "t", "t", "Because."]


def test_many_threads_get_no_acknowledgement_before_their_own_bytes_are_synced(
    root: str, traced: Callable[..., list[Call]]
) -> None:
    """W12 T10: whichever way they are synced: alone, by a thread that leads, or side by side by the kernel."""
    calls = traced("crowd", root, 16, 4)
    syncs = [call for call in calls if call.name in ("fdatasync", "io_submit") and call.result >= 0]
    words = [call for call in calls if call.text.startswith("ack <")]
    assert len(words) == 16 * 4
    for word in words:
        mark = word.text.removeprefix("ack ")
        (write,) = (call for call in calls if call.path.endswith(".jsonl") and mark in call.arguments)
        assert "DSYNC" in write.arguments or any(
            write.end < sync.start and returned(sync, calls) < word.start and f"<{write.path}>" in sync.arguments
            for sync in syncs
        ), f"{mark} was acknowledged before it was synced"


def returned(sync: Call, calls: Sequence[Call]) -> int:
    """When the sync was over: what was submitted is over when its results were fetched."""
    if sync.name != "io_submit":
        return sync.end
    context = sync.arguments.split(",")[0]
    fetched = (c.end for c in calls if c.name == "io_getevents" and c.start > sync.end and c.arguments.startswith(context))
    return next(fetched, 1 << 62)


# -- calls that fail


def run_failing(root: str, trace: Path, *options: str, words: Sequence[object]) -> tuple[Account, list[str], list[Call]]:
    """Of a child to which some calls fail: what it was promised, what it was told, what it did."""
    with child(*words, under=strace(trace, *options)) as running:
        running.process.wait(120)
        lines = running.kill()
    account = Account("t")
    account.absorb(lines)
    calls = parse(trace.read_text())
    assert "(INJECTED)" in trace.read_text(), "nothing failed, so this proves nothing"
    return account, [line.removeprefix("raised ") for line in lines if line.startswith("raised ")], calls


def never_synced_again(calls: Sequence[Call]) -> None:
    failed: set[str] = set()
    for call in calls:
        if call.name in _SYNCS and call.path.endswith(".jsonl"):
            assert call.path not in failed, f"{call.path} was synced again after its sync had failed"
            if call.result < 0:
                failed.add(call.path)
        elif call.name == "unlink":
            failed.discard(call.path)  # what has that name later is another file


def tells_what_where_next(complaint: str, kind: str, where: str) -> None:
    named, what, place, step = complaint.split("|")
    assert named == kind
    assert what and place.startswith(where) and step.endswith("."), complaint


def goes_on(root: str, account: Account) -> None:
    """A new process, to which nothing fails: everything acknowledged is there, and more can be added."""
    account.check([s for s in said(root, "chat", rewritten=True) if s.text.startswith("t:")])
    run("messages", root, "chat", "late", 1, 3)
    found = said(root, "chat", rewritten=True)
    account.check(found)
    assert [s.text.split(":")[0] for s in found[-3:]] == ["late"] * 3
    with Keep.open(root) as keep:
        shown = keep.show("chat")
    assert [m["text"] for m in shown["messages"]] == [s.text for s in found]
    assert shown["faults"] == []


@pytest.fixture
def begun(root: str) -> str:
    """A keep that is there already, so that the first sync of the child is that of its first append."""
    with Keep.open(root) as keep:
        keep.session("chat")
    return root


@pytest.mark.parametrize("nth", [2, 3, 5])
def test_after_one_failed_sync_the_frames_go_to_a_new_part_and_the_old_one_is_never_synced_again(
    begun: str, tmp_path: Path, nth: int
) -> None:
    """W8 T10: the append succeeds honestly; the new part says that the one before it is suspect."""
    words = ("traced", begun, "chat", 5)
    account, told, calls = run_failing(begun, tmp_path / "trace", "-e", f"inject=fdatasync:error=EIO:when={nth}", words=words)
    never_synced_again(calls)
    assert told == []
    assert account.acked == account.tried == list(range(2, 8))
    second = read_head(RealHost(), folder(begun, "chat"), 2)
    assert second is not None and second["body"]["suspect"]["part"] == 1
    durable_at_every_word([call for call in calls if not call.path.endswith("000001.jsonl")])
    account.tried.insert(0, 1)
    goes_on(begun, account)


def test_when_every_sync_fails_each_call_says_so_and_a_new_process_goes_on(begun: str, tmp_path: Path) -> None:
    """W8 T10: NotDurable, with what, where and next; what was acknowledged before is there."""
    account, told, calls = run_failing(
        begun, tmp_path / "trace", "-e", "inject=fdatasync:error=EIO:when=4+", words=("traced", begun, "chat", 5)
    )
    never_synced_again(calls)
    assert account.acked == [2, 3]
    assert len(told) == 4
    for complaint in told:
        tells_what_where_next(complaint, "NotDurable", folder(begun, "chat"))
    account.tried.insert(0, 1)
    goes_on(begun, account)


def test_a_write_that_finds_no_space_raises_and_the_same_handle_goes_on(begun: str, tmp_path: Path) -> None:
    """W8 T10: NoSpace, with what, where and next; the one append it hits is not there, the others are."""
    part = f"{folder(begun, 'chat')}/000001.jsonl"
    options = ("-P", part, "-e", "inject=write:error=ENOSPC:when=3")
    account, told, _ = run_failing(begun, tmp_path / "trace", *options, words=("traced", begun, "chat", 5))
    (complaint,) = told
    tells_what_where_next(complaint, "NoSpace", folder(begun, "chat"))
    assert account.acked == [2, 4, 5, 6, 7]
    account.tried = [n for n in [1, *account.tried] if n != 3]
    goes_on(begun, account)


def test_a_change_that_was_not_durable_is_not_taken_for_done_when_it_is_asked_for_again(begun: str, tmp_path: Path) -> None:
    """W8 T10: the journal's bytes say `ended` already, but the disk never took them."""
    account, told, _ = run_failing(
        begun, tmp_path / "trace", "-e", "inject=fdatasync:error=EIO:when=1+", words=("ending", begun, "chat", 2)
    )
    assert account.acked == []
    assert len(told) == 2


def test_a_change_whose_author_was_killed_before_its_sync_is_synced_by_who_asks_for_it_again(begun: str, tmp_path: Path) -> None:
    """T10: whoever says that it is done has made sure of it."""
    killed = strace(tmp_path / "trace", "-e", "inject=fdatasync:signal=KILL:when=1")
    with child("ending", begun, "chat", 1, under=killed) as running:
        running.process.wait(120)
        assert running.kill() == ["try 1"]
    trace = tmp_path / "again"
    run("ending", begun, "chat", 1, under=strace(trace))
    part = f"{folder(begun, 'chat')}/000001.jsonl"
    assert ("fdatasync", part) in [(call.name, call.path) for call in stages(parse(trace.read_text()))["ack 1"]]


def test_a_lock_that_can_not_be_removed_is_given_back_all_the_same(begun: str, tmp_path: Path) -> None:
    """W8 T2: closing a keep on a disk that takes no change raises no bare OSError, which would hide why an append failed."""
    with child("traced", begun, "chat", 3, under=strace(tmp_path / "trace", "-e", "inject=unlink:error=EIO")) as running:
        assert running.finish()[-1].startswith("ack 5")
    assert "(INJECTED)" in (tmp_path / "trace").read_text(), "nothing failed, so this proves nothing"


@pytest.mark.parametrize("nth", [1, 3, 5, 8, 10])
def test_a_folder_that_can_not_be_synced_is_a_broken_promise_like_any_other(root: str, tmp_path: Path, nth: int) -> None:
    """W8 W12 T10: the append raises NotDurable or succeeds honestly, in a new journal and when parts rotate."""
    with child(
        "rotating", root, "chat", 9, under=strace(tmp_path / "trace", "-e", f"inject=fsync:error=EIO:when={nth}")
    ) as running:
        running.process.wait(120)
        lines = running.kill()
    assert "(INJECTED)" in (tmp_path / "trace").read_text(), "nothing failed, so this proves nothing"
    assert running.process.returncode == 0, "it did not end with one of our errors"
    account = Account("r")
    account.absorb(lines)
    for line in lines:
        if line.startswith("raised"):
            tells_what_where_next(line.removeprefix("raised "), "NotDurable", root)
    assert len(account.acked) >= 8, "one failure costs at most the append it hits"
    account.check(said(root, "chat", rewritten=True))
