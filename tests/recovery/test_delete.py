"""Delete: the tombstone is written first, then everything is removed; the next writer finishes what a crash interrupted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.errors import BadUsage, Deleted, NotFound
from dreamkeep.event import Event, Kind
from dreamkeep.host import RealHost
from dreamkeep.journal import parts
from dreamkeep.journal.places import folder_of
from dreamkeep.journal.reader import Reading
from dreamkeep.session import raw
from tests.helpers.faults import Dying, PowerCut
from tests.helpers.leaks import holding


def _dies(template: Path, root: Path, n: int, act: Callable[[Keep], object]) -> bool:
    """In a copy of the template the machine dies at step `n`. Whether it was done by then."""
    shutil.copytree(template, root)
    dying = Keep.open(root, host=Dying(n))
    try:
        act(dying)
    except PowerCut:
        return False
    return True


def test_a_delete_that_dies_at_any_step_is_finished_or_never_happened(tmp_path: Path) -> None:
    """K2: and nothing of it can be seen meanwhile once the tombstone stands."""
    template = tmp_path / "template"
    with Keep.open(template) as keep:
        keep.session("stays").record("pears")
        keep.session("goes").record("xylophone")
        keep.search("xylophone")
    seen = set()
    for n in count(1):
        root = tmp_path / f"k{n}"
        finished = _dies(template, root, n, lambda dying: dying.delete("goes"))
        with Keep.open(root) as keep:
            there = {s.native_id for s in keep.sessions()}
            keep.session("stays").record("the next writer")
            assert {s.native_id for s in keep.sessions()} == there, "what was visible must not change by finishing"
        words = [p for p in root.rglob("*") if p.is_file() and b"xylophon" in p.read_bytes()]
        assert (words == []) == ("goes" not in there), (n, words)
        assert list(root.glob("state/deleting/*")) == []
        if "goes" not in there:
            with pytest.raises(Deleted), Keep.open(root) as keep:
                keep.session("goes")
        seen.add("goes" in there)
        if finished:
            break
    assert seen == {True, False} and n > 10


def test_another_process_that_still_writes_is_reported(tmp_path: Path) -> None:
    """K2"""
    with Keep.open(tmp_path / "k") as mine, Keep.open(tmp_path / "k") as other:
        session = other.session("s")
        session.record("one")
        mine.delete("s")
        with pytest.raises(Deleted, match="undelete"):
            session.record("two")
        assert mine.sessions() == []


SID = "0b6c8a52-77aa-4f0e-9d3e-000000000001"
WORD = b"xylophon"


def everywhere(root: Path) -> None:
    """One session whose words are in every place of a keep that can hold them, beside one that must not lose anything."""
    home = root.parent / "home" / ".claude" / "projects" / "-w"
    home.mkdir(parents=True, exist_ok=True)
    line = json.dumps(
        {"type": "user", "uuid": "u-1", "sessionId": SID, "message": {"role": "user", "content": "xylophone " * 40}}
    )
    (home / f"{SID}.jsonl").write_text((line + "\n") * 3)
    with Keep.open(root) as keep:
        keep.session("stays").record("pears and quinces")
        keep.ingest(agents=["claude"], home=root.parent / "home")
        journals = keep.context.journals()  # what a tap and a drainer write, without a process of each
        tap = {"conn": "conn-of-the-session", "frames": [[1, "client", 1]]}
        other = {"conn": "conn-of-another-one", "frames": [[1, "client", 1]]}
        at = "2026-01-01T00:00:00Z"
        journals.append(f"claude:{SID}", [Event("t-1", Kind.TAP_OPENED, at, {"conn": "conn-of-the-session", "owner": ""})])
        journals.append("", [Event("k-1", Kind.TAP_FRAMES, at, raw.pack(tap, [b'{"method":"session/new","x":"xylophone"}']))])
        journals.append("", [Event("k-2", Kind.TAP_FRAMES, at, raw.pack(other, [b'{"method":"initialize","x":"pears"}']))])
        long = b'{"session_id":"%b","x":"%b"}' % (SID.encode(), b"xylophone" * 200_000)
        for n, payload in enumerate((b'{"session_id":"%b","x":"xylophone"}' % SID.encode(), long)):
            calls = [{"agent": "claude", "event": "Stop", "at": at, "spool": "s"}] * 2
            body = raw.pack({"agent": "", "calls": calls}, [payload, b"not of any session: pears"])
            journals.append("", [Event(f"h-{n}", Kind.HOOK_FIRED, at, body, {"drain": f"b-{n}"})])
        keep.search("xylophone")
    spool = root / "spool"
    spool.mkdir(exist_ok=True)
    said = b'{"session_id":"%b","prompt":"xylophone"}' % SID.encode()
    (spool / f"{1:020d}-1-{1:016x}~claude~Stop.hook").write_bytes(said)
    (spool / f".{2:020d}-1-{2:016x}~claude~Stop.tmp").write_bytes(said[:-2])
    (spool / f"{3:020d}-1-{3:016x}~claude~Stop.hook").write_bytes(b'{"session_id":"another","prompt":"pears"}')
    aside = root / "aside"
    aside.mkdir(exist_ok=True)
    (aside / "keep.000001.10.00000000-9.tail").write_bytes(b'{"conn":"conn-of-the-session","x":"xylophone')
    (aside / "keep.000001.99.00000000-9.tail").write_bytes(b"pears")
    (aside / "repair-1").mkdir(exist_ok=True)
    (aside / "repair-1" / "0").write_bytes(said)


@pytest.mark.parametrize("cold", [False, True])
def test_after_a_delete_no_file_of_the_keep_has_a_word_of_it_and_others_lose_nothing(tmp_path: Path, cold: bool) -> None:
    """K7 R5: not in the keep's own journal, the spool, what was set aside, compressed parts, or SQLite's free pages."""
    root = tmp_path / "k"
    everywhere(root)
    with Keep.open(root) as keep:
        if cold:
            keep.compress(everything=True)
            for n in range(3):  # so that the keep's own journal has a finished part
                parts.compress(RealHost(), f"{root}/journal/keep", n)
        assert len(holding(root, WORD)) > 5
        before = sum(1 for _ in Reading(RealHost(), f"{root}/journal/keep"))
        keep.delete(SID)
        assert holding(root, WORD) == []
        reading = Reading(RealHost(), f"{root}/journal/keep")
        assert sum(1 for _ in reading) == before + 2 and reading.defects == []  # the tombstone, and the head of a new part
        assert "pears and quinces" in keep.search("quinces")[0].text
        assert [one.state for one in keep.ingest(agents=["claude"], home=tmp_path / "home")] == ["deleted"]
    kept = b"".join(path.read_bytes() for path in root.rglob("*.jsonl"))
    assert kept.count(b"not of any session: pears") == 1 and b'"initialize","x":"pears"' in kept
    assert holding(root, WORD) == []
    assert (root / "aside" / "keep.000001.99.00000000-9.tail").exists()
    assert b"pears" in b"".join(p.read_bytes() for p in root.rglob("*.jsonl"))


@pytest.mark.slow
def test_a_delete_of_words_that_are_everywhere_is_finished_whatever_step_it_dies_at(tmp_path: Path) -> None:
    """K2 K7"""
    template = tmp_path / "template" / "k"
    template.parent.mkdir()
    everywhere(template)
    for n in count(1):
        root = tmp_path / "k"
        shutil.rmtree(root, ignore_errors=True)
        finished = _dies(template, root, n, lambda dying: dying.delete(SID))
        with Keep.open(root) as keep:
            keep.session("stays").record("the next writer")
            there = SID in {s.native_id for s in keep.sessions()}
        assert (holding(root, WORD) == []) == (not there), n
        reading = Reading(RealHost(), f"{root}/journal/keep")
        assert sum(1 for _ in reading) and reading.defects == []
        if finished:
            break


@pytest.mark.parametrize("words", ["python:chat-42", "chat-42"])
def test_repeating_a_delete_removes_no_other_session_with_the_same_prefix(tmp_path: Path, words: str) -> None:
    """K2: a subagent's session id begins with its parent's id, and a deletion can't be undone."""
    with Keep.open(tmp_path / "k") as keep:
        keep.session("chat-42").record("xylophone")
        keep.session("chat-42/agent-1").record("pears")
        assert keep.delete(words).id == "python:chat-42"
        for verb in (keep.delete, keep.show, keep.resolve, keep.end):
            with pytest.raises(NotFound, match=r"that session was deleted.*undelete python:chat-42"):
                verb(words)
        assert [one.id for one in keep.sessions()] == ["python:chat-42/agent-1"]
        assert keep.show("chat-42/a")["session"]["id"] == "python:chat-42/agent-1"
        keep.undelete(words)
        assert keep.resolve(words) == "python:chat-42/agent-1", "nothing else is called so now"


def test_repeating_a_delete_by_prefix_removes_no_second_session(tmp_path: Path) -> None:
    """K2: convenient, and once only."""
    with Keep.open(tmp_path / "k") as keep:
        keep.session("chat-42").record("xylophone")
        assert keep.delete("chat").id == "python:chat-42"
        keep.session("chat-43").record("pears")
        with pytest.raises(NotFound, match="give the full id"):
            keep.delete("chat")
        with pytest.raises(NotFound, match="no session"):
            keep.delete("chatter")
        assert keep.show("chat")["session"]["id"] == "python:chat-43"
        assert keep.delete("chat-43").id == "python:chat-43"


@pytest.mark.parametrize("words", ["python:chat-42", "chat-42"])
def test_an_interrupted_deletion_is_finished_by_any_full_name_and_reported(tmp_path: Path, words: str) -> None:
    """K2"""
    for n in count(1):
        root = tmp_path / f"k{n}"
        with Keep.open(root) as keep:
            keep.session("chat-42").record("xylophone")
            keep.session("chat-42/agent-1").record("pears")
        try:
            Keep.open(root, host=Dying(n)).delete(words)
            break
        except PowerCut:
            left = bool(list(root.glob("state/deleting/*")))
        with Keep.open(root) as keep:
            if left or keep.sessions()[1:]:
                assert keep.delete(words).id == "python:chat-42"
            assert [one.id for one in keep.sessions()] == ["python:chat-42/agent-1"]
        assert holding(root, WORD) == []
    assert n > 10


def test_what_was_put_back_of_a_deleted_session_is_not_deleted_instead_of_one_of_the_same_name(tmp_path: Path) -> None:
    """K2: two have that name, and only who deletes knows which he means."""
    with Keep.open(tmp_path / "k") as keep:
        keep.session("chat").record("xylophone")
        shutil.copytree(tmp_path / "k" / folder_of("python:chat"), tmp_path / "backup")
        keep.delete("chat")
        keep.session("chat", agent="other").record("pears")
        shutil.copytree(tmp_path / "backup", tmp_path / "k" / folder_of("python:chat"))
        with pytest.raises(NotFound, match="matches 2 sessions"):
            keep.delete("chat")
        assert keep.delete("python:chat").id == "python:chat"
        assert [one.id for one in keep.sessions()] == ["other:chat"] and holding(tmp_path / "k", WORD) == []


def test_a_delete_without_a_keep_creates_none_and_reports_that(tmp_path: Path) -> None:
    """K2: who takes something away must not leave a keep behind."""
    with pytest.raises(NotFound, match="there is no keep"), Keep.open(tmp_path / "k") as keep:
        keep.delete("chat")
    with pytest.raises(BadUsage), Keep.open(tmp_path / "k") as keep:
        keep.delete("")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", ["python:goes", "goes"])
@pytest.mark.parametrize("lost", ["journal", "index too", "words"])
def test_a_session_without_a_journal_can_be_deleted_with_everything_derived_from_it(
    tmp_path: Path, lost: str, words: str
) -> None:
    """K7 R5: the index as it was before the question knows it, or else what was learned from it."""
    root = tmp_path / "k"
    with Keep.open(root) as keep:
        keep.session("stays").record("Please never commit the quince file to git.", ("assistant", "Ok."))
        keep.session("goes").record("Please never commit the xylophone file to git.", ("assistant", "Ok."))
        keep.end("goes")
        keep.end("stays")
        keep.dream()
        assert any("xylophone" in note["text"] for note in keep.notes())
    folder = root / folder_of("python:goes")
    if lost == "words":
        (folder / "000001.jsonl").write_bytes(bytes(100))
    else:
        shutil.rmtree(folder)
    if lost != "journal":
        (root / "index.sqlite").unlink()
    assert holding(root, WORD) != []
    with Keep.open(root) as keep:
        assert keep.delete(words).id == "python:goes"
        assert holding(root, WORD) == []
        assert [note["text"] for note in keep.notes()] == ["Never commit the quince file to git."]
        with pytest.raises(NotFound, match="that session was deleted"):
            keep.delete(words)
        with pytest.raises(Deleted):
            keep.session("goes")
        assert [one.native_id for one in keep.sessions()] == ["stays"]


def test_a_session_that_only_the_index_knew_is_deleted_as_it_was(tmp_path: Path) -> None:
    """K7: nothing was learned from it, and its journal is gone."""
    root = tmp_path / "k"
    with Keep.open(root) as keep:
        keep.session("goes", title="a walk").record("xylophone")
        assert keep.search("xylophone")
        shutil.rmtree(root / folder_of("python:goes"))
        gone = keep.delete("python:goes")
        assert (gone.title, gone.messages) == ("a walk", 1)
        assert holding(root, WORD) == []
        with pytest.raises(NotFound, match="no session"):
            keep.delete("python:never")


def test_several_sessions_are_deleted_together_and_a_death_at_any_step_leaves_each_whole_or_gone(tmp_path: Path) -> None:
    template = tmp_path / "template"
    with Keep.open(template) as keep:
        for name, word in (("stays", "pears"), ("goes", "xylophone"), ("too", "marimba")):
            keep.session(name).record(word)
        keep.search("xylophone")
        with pytest.raises(NotFound):
            keep.delete_all(["goes", "nobody", "too"])
        assert len(keep.sessions()) == 3, "all that are named, or none"

    def both(dying: Keep) -> None:
        assert [one.native_id for one in dying.delete_all(["goes", "too", "goes"])] == ["goes", "too"]

    seen = set()
    for n in count(1):
        root = tmp_path / f"k{n}"
        finished = _dies(template, root, n, both)
        with Keep.open(root) as keep:
            keep.session("stays").record("the next writer")
            there = {one.native_id for one in keep.sessions()}
        assert holding(root, b"pears") and not list(root.glob("state/deleting/*"))
        for name, said in (("goes", b"xylophon"), ("too", b"marimba")):
            assert bool(holding(root, said)) == (name in there), (n, name)
        seen.add(frozenset(there - {"stays"}))
        if finished:
            break
    assert seen == {frozenset({"goes", "too"}), frozenset({"too"}), frozenset()}
