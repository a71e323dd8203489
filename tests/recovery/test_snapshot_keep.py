"""Importing what another keep learned: its notes point to places here, newer changes win, and deletions here hold."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from dreamkeep import Keep
from dreamkeep.dream.backends.api import Given, Proposal
from dreamkeep.event import Kind
from dreamkeep.host import RealHost
from dreamkeep.journal.places import KEEP, folder_of
from dreamkeep.journal.scan import events, read_events
from dreamkeep.recovery.snapshot import importing, merge
from tests.helpers.claude_home import SID, home_with, record

HOST = RealHost()
FONT = "We must never use zebrafont in the quuxpanel because it leaks."
LINT = "Always run `make lint-gnorb` before a commit."


def talk(root: Path, name: str, *prompts: str, end: bool = True) -> None:
    with Keep.open(root) as keep:
        session = keep.session(name, cwd="/")
        for prompt in prompts:
            session.record(prompt, ("assistant", "ok"))
        if end:
            session.end()


def dreamt(root: Path) -> None:
    with Keep.open(root) as keep:
        keep.dream()


def into(one: Path, other: Path, file: Path) -> dict[str, Any]:
    """A snapshot of one keep into the other."""
    file.unlink(missing_ok=True)
    with Keep.open(one) as keep:
        keep.export(file)
    with Keep.open(other) as keep:
        return keep.import_(file)


def texts(root: Path) -> list[str]:
    with Keep.open(root) as keep:
        return sorted(one["text"] for one in keep.notes())


def every_word(root: Path) -> bytes:
    """Of each file of a keep, unpacked where it is packed."""
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            data = Path(folder, name).read_bytes()
            if name.endswith(".zst"):
                data = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
            found.append(data)
    return b"\n".join(found)


# -- places


def test_what_went_on_here_is_dreamed_though_the_other_keep_dreamed_its_own_part(tmp_path: Path) -> None:
    """R4 M2"""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "chat", "hello")
    into(a, b, tmp_path / "s")
    talk(a, "chat", FONT, "thanks")
    dreamt(a)
    talk(b, "chat", LINT)
    into(a, b, tmp_path / "s")
    assert texts(b) == [FONT]
    dreamt(b)
    assert texts(b) == sorted((FONT, LINT))
    with Keep.open(b) as keep:
        said = {str(one["seq"]): one["text"] for one in keep.show("chat")["messages"]}
        for note in keep.notes():
            assert [said[quote["seq"]] for quote in note["evidence"]] == [note["text"]]
        assert into(a, b, tmp_path / "s")["events"] == 0, "importing twice is importing once"
        assert keep.dream_status()["sessions"][0]["eligibility"] == "already_consolidated"


def test_a_transcript_that_both_captured_in_other_steps_is_dreamed_on_and_quoted_where_it_stands(tmp_path: Path) -> None:
    """R4 A1"""
    a, b = tmp_path / "a", tmp_path / "b"
    home, file = home_with(tmp_path, record(1, "hello"))
    said = ["hi", FONT, "ok", "thanks", "welcome"]
    with Keep.open(a) as keep:
        for n, text in enumerate(said, 2):
            with file.open("ab") as grows:
                grows.write(record(n, text))
            list(keep.ingest(home=home))
        keep.end(SID)
    dreamt(a)
    with Keep.open(b) as keep:
        list(keep.ingest(home=home))
        keep.end(SID)
    into(a, b, tmp_path / "s")
    with file.open("ab") as grows:
        grows.write(record(7, LINT, timestamp="2030-01-01T00:00:00.000Z") + record(8, "fine"))
    with Keep.open(b) as keep:
        list(keep.ingest(home=home))
        keep.end(SID)
    dreamt(b)
    assert texts(b) == sorted((FONT, LINT))
    with Keep.open(b) as keep:
        there = {str(one["seq"]): one["text"] for one in keep.show(SID)["messages"]}
        assert all(there[quote["seq"]] == note["text"] for note in keep.notes() for quote in note["evidence"])


def test_a_session_that_is_the_same_here_and_was_dreamed_there_is_not_dreamed_again(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "chat", FONT)
    dreamt(a)
    talk(b, "other", "hello")
    into(a, b, tmp_path / "s")
    with Keep.open(b) as keep:
        waits = {one["id"]: one["eligibility"] for one in keep.dream_status()["sessions"]}
    assert waits["python:chat"] == "already_consolidated" and texts(b) == [FONT]


# -- newer words

ACTS: list[Callable[[Keep, str, str], object]] = [
    lambda keep, note, who: keep.note_change(note, "edit", text=f"Never use fonts of {who}."),
    lambda keep, note, who: keep.note_change(note, "pin" if who == "a" else "unpin"),
    lambda keep, note, who: keep.note_change(note, "retract" if who == "a" else "confirm"),
    lambda keep, note, who: keep.task_rename(keep.tasks()[0]["id"], f"title of {who}"),
    lambda keep, note, who: keep.project_rename(keep.notes(state=None)[0]["project"], f"project-of-{who}"),
]


@pytest.mark.parametrize("act", ACTS, ids=["edit", "pin", "life", "task", "project"])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_the_newer_word_wins_whichever_copy_goes_into_which(tmp_path: Path, act: Callable[..., object], order: str) -> None:
    """R4: newer wins per record."""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "chat", FONT)
    dreamt(a)
    into(a, b, tmp_path / "s")
    with Keep.open(a) as keep:
        note = keep.notes()[0]["id"]
        keep.note_change(note, "pin")
    with Keep.open(b) as keep:
        keep.note_change(note, "pin")
    for root, who in ((a, "a"), (b, "b")):
        with Keep.open(root) as keep:
            act(keep, note, who)
    for one, other in [(a, b), (b, a)] if order == "ab" else [(b, a), (a, b)]:
        into(one, other, tmp_path / "s")
    seen = []
    for root in (a, b):
        with Keep.open(root) as keep:
            found = keep.notes(state=None)
            shown = [(one["text"], one["state"], one["pinned"], one["project"]) for one in found]
            seen.append((sorted(shown), [one["title"] for one in keep.tasks()]))
    assert seen[0] == seen[1]
    told = repr(seen[0])
    assert "of a" not in told and "of-a" not in told and "retracted" not in told


# -- deletions


def secret_of(a: Path, b: Path, tmp_path: Path) -> None:
    """Both had the session and its note; it is deleted in b."""
    talk(a, "chat", LINT)
    talk(a, "zz-secret", FONT)
    dreamt(a)
    into(a, b, tmp_path / "s0")
    with Keep.open(b) as keep:
        keep.delete("zz-secret")
    assert b"zebrafont" not in every_word(b)


@pytest.mark.parametrize("how", ["whole", "its journal is gone there", "cut"])
def test_nothing_that_was_learned_in_a_session_deleted_here_comes_back(tmp_path: Path, how: str) -> None:
    """R5 K2: whatever the snapshot has of the session itself."""
    a, b = tmp_path / "a", tmp_path / "b"
    secret_of(a, b, tmp_path)
    talk(a, "more", "I prefer tabs in the blorp files, always.")
    dreamt(a)
    file = tmp_path / "s"
    if how == "its journal is gone there":
        for path in (a / folder_of("python:zz-secret")).iterdir():
            path.unlink()
    with Keep.open(a) as keep:
        keep.export(file, view=False)
    if how == "cut":
        file.write_bytes(file.read_bytes()[:-900])
    with Keep.open(b) as keep:
        keep.import_(file)
        assert not keep.search("zebrafont")
    assert b"zebrafont" not in every_word(b)
    with Keep.open(b) as keep:
        keep.import_(file)
        keep.dream()
    assert b"zebrafont" not in every_word(b) and FONT not in texts(b)


def test_a_killed_import_and_a_question_after_it_show_nothing_that_was_deleted_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5: an index that was asked in between must not know more than the journal."""
    a, b = tmp_path / "a", tmp_path / "b"
    secret_of(a, b, tmp_path)
    with Keep.open(a) as keep:
        keep.export(tmp_path / "s")
    for step in ("_session", "_merge_keep", "_finish"):
        with monkeypatch.context() as patched:
            patched.setattr(importing.SnapshotImport, step, _dies)
            with Keep.open(b) as keep, pytest.raises(KeyboardInterrupt):
                keep.import_(tmp_path / "s")
        assert FONT not in texts(b)
        with Keep.open(b) as keep:
            keep.import_(tmp_path / "s")
        assert FONT not in texts(b) and b"zebrafont" not in every_word(b)


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_page_of_another_keep_brings_what_people_wrote_on_it_and_no_deleted_note(tmp_path: Path) -> None:
    """R5 M10"""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "zz-secret", FONT)
    dreamt(a)
    [page] = (a / "pages").rglob("MEMORY.md")
    page.write_text(f"My own heading\n\n{page.read_text()}\nand my own end\n")
    talk(b, "zz-secret", FONT)
    with Keep.open(b) as keep:
        keep.delete("zz-secret")
    into(a, b, tmp_path / "s")
    there = b / page.relative_to(a)
    assert there.read_text().startswith("My own heading\n") and "and my own end" in there.read_text()
    assert b"zebrafont" not in every_word(b)


def test_a_hooks_call_of_a_session_deleted_here_does_not_lie_in_the_spool(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "chat", "hello")
    talk(b, "chat", "hello")
    with Keep.open(b) as keep:
        list(keep.ingest(home=home_with(tmp_path, record(1, FONT))[0]))
        keep.delete(SID)
    spool = a / "spool"
    spool.mkdir(mode=0o700, exist_ok=True)
    call = spool / "01794852542896949404-26883-adab0b2b9d1f6c26~claude~UserPromptSubmit.hook"
    call.write_text(json.dumps({"session_id": SID, "prompt": "zebrafont"}))
    into(a, b, tmp_path / "s")
    assert b"zebrafont" not in every_word(b)


def test_an_undelete_is_not_undone_by_an_older_snapshot(tmp_path: Path) -> None:
    """R5: `undelete` lifts the tombstone."""
    a = tmp_path / "a"
    talk(a, "chat", "hello")
    with Keep.open(a) as keep:
        keep.delete("chat")
        keep.export(tmp_path / "s")
        keep.undelete("python:chat")
        keep.import_(tmp_path / "s")
    talk(a, "chat", "hello again")


def test_notes_come_back_with_a_session_whose_deletion_was_lifted(tmp_path: Path) -> None:
    """R4: adds what is lacking."""
    a = tmp_path / "a"
    talk(a, "chat", FONT)
    dreamt(a)
    with Keep.open(a) as keep:
        note = keep.notes()[0]["id"]
        keep.note_change(note, "pin")
        keep.export(tmp_path / "s")
        keep.delete("chat")
        keep.undelete("python:chat")
        assert keep.notes() == []
        keep.import_(tmp_path / "s")
        assert [(one["id"], one["pinned"]) for one in keep.notes()] == [(note, True)]
        assert len(keep.tasks()) == 1 and keep.import_(tmp_path / "s")["events"] == 0
        assert keep.audit(home=tmp_path)["faults"] == []


def test_a_refused_session_leaves_no_folder(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    secret_of(a, b, tmp_path)
    into(a, b, tmp_path / "s")
    assert not (b / folder_of("python:zz-secret")).exists()


# -- what is each keep's own


def test_settings_of_another_keep_are_reported_and_not_imported(tmp_path: Path) -> None:
    """X1: a snapshot may be anybody's, and settings name commands."""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "chat", "hello")
    (a / "keep.toml").write_text('[dream]\nbackend = "command"\n[dream.model]\ncommand = ["touch", "/nowhere"]\n')
    talk(b, "other", "hello")
    done = into(a, b, tmp_path / "s")
    assert [one["where"] for one in done["skipped"]] == ["keep.toml"] and not (b / "keep.toml").exists()
    assert into(a, tmp_path / "new", tmp_path / "s")["skipped"] == []
    assert (tmp_path / "new" / "keep.toml").exists(), "one's own backup brings them back"
    (tmp_path / "new" / "keep.toml").unlink()
    into(a, tmp_path / "new", tmp_path / "s")
    assert (tmp_path / "new" / "keep.toml").exists(), "also where an import was interrupted before"


def test_a_fault_accepted_in_another_keep_is_reported_here(tmp_path: Path) -> None:
    """R1"""
    a, b = tmp_path / "a", tmp_path / "b"
    home, file = home_with(tmp_path, record(1, "hello") + record(2, "hi"))
    for root in (a, b):
        with Keep.open(root) as keep:
            list(keep.ingest(home=home))
    kept = file.read_bytes()
    file.unlink()
    with Keep.open(a) as keep:
        [fault] = keep.audit(home=home)["faults"]
        keep.repair(accept=[fault["id"]], home=home)
    file.write_bytes(kept)
    into(a, b, tmp_path / "s")
    file.unlink()
    with Keep.open(b) as keep:
        assert [one["class"] for one in keep.audit(home=home)["faults"]] == ["source_vanished"]


def test_impossible_frames_of_another_keep_stop_nothing(tmp_path: Path) -> None:
    """A keep's own journal may be anybody's."""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "chat", "hello")
    into(a, b, tmp_path / "s")
    talk(a, "chat", FONT)
    talk(b, "chat", LINT)
    with Keep.open(a) as keep:
        for kind in (Kind.INSIGHT_ADDED, Kind.DREAM_READ, Kind.DREAM_STARTED, Kind.SESSION_COMPLETED, Kind.NOTE_EDITED):
            for body in ({}, {"session": "python:chat", "upto": "x", "seq": None, "evidence": 7, "sessions": [1], "id": []}):
                keep.context.journals().say("", kind, body)
        keep.dream()
    into(a, b, tmp_path / "s")
    dreamt(b)
    assert texts(b) == sorted((FONT, LINT))
    kinds = [event.kind for _, event in read_events(HOST, f"{b}/{KEEP}")]
    assert Kind.INSIGHT_ADDED in kinds


# -- places, quotes and losses that two keeps know differently


def quotes_right(root: Path, session: str) -> bool:
    """Whether every quote of every note stands in the message that its place opens."""
    with Keep.open(root) as keep:
        said = {str(one["seq"]): one["text"] for one in keep.show(session)["messages"]}
        found = [quote for note in keep.notes() for quote in note["evidence"]]
        return bool(found) and all(quote["quote"] in said.get(quote["seq"], "") for quote in found)


def test_a_quote_opens_its_message_though_lines_of_the_transcript_show_none_or_several(tmp_path: Path) -> None:
    """A1: what a frame shows is counted otherwise than the lines in it."""
    a, b = tmp_path / "a", tmp_path / "b"
    noise = b'{"type":"file-history-snapshot","messageId":"m","snapshot":{}}\n'
    thinking = json.loads(record(2, "ok"))
    thinking["message"]["content"] = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "ok"}]
    lines = [
        record(1, "hello"),
        json.dumps(thinking).encode() + b"\n",
        noise,
        noise,
        record(3, FONT),
        record(4, "fine"),
        record(5, LINT),
    ]
    home, file = home_with(tmp_path, b"")
    with Keep.open(a) as keep:
        for line in lines:
            with file.open("ab") as grows:
                grows.write(line)
            list(keep.ingest(home=home))
        keep.end(SID)
    with Keep.open(b) as keep:
        list(keep.ingest(home=home))
        keep.end(SID)
    for one, other in ((a, b), (b, a)):
        dreamt(one)
        into(one, other, tmp_path / "s")
    assert texts(a) == texts(b) == sorted((FONT, LINT))
    assert quotes_right(a, SID) and quotes_right(b, SID)


def test_a_session_that_is_damaged_in_the_snapshot_makes_no_false_quotes_and_is_dreamed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4: a bad part is skipped and reported, the rest restored."""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "chat", "hello")
    into(a, b, tmp_path / "s")
    talk(a, "chat", LINT, "thanks")
    talk(b, "chat", FONT, "thanks", "bye", "ciao")
    dreamt(b)
    with monkeypatch.context() as patched:
        patched.setattr(importing.SnapshotImport, "_session", lambda *_: None)  # as where no part of it can be read
        into(b, a, tmp_path / "s")
    dreamt(a)
    assert texts(a) == [LINT] and quotes_right(a, "chat")
    into(b, a, tmp_path / "s")
    dreamt(a)
    assert texts(a) == sorted((FONT, LINT)) and quotes_right(a, "chat")


def test_a_users_edit_is_not_undone_by_what_another_keeps_dream_found_better(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "chat", FONT)
    dreamt(a)
    into(a, b, tmp_path / "s")
    with Keep.open(b) as keep:
        note = keep.notes()[0]
        keep.note_change(note["id"], "edit", text="Zebrafont is out of the quuxpanel.")
    with Keep.open(a) as keep:
        body = {"id": note["id"], "insights": note["insights"], "text": "We never use zebrafont.", "run": "r", "reason": "better"}
        keep.context.journals().say("", Kind.NOTE_STRENGTHENED, body)
        assert [one["text"] for one in keep.notes()] == ["We never use zebrafont."]
    for one, other in ((a, b), (b, a), (a, b)):
        into(one, other, tmp_path / "s")
    assert texts(a) == texts(b) == ["Zebrafont is out of the quuxpanel."]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_users_retraction_holds_though_a_dream_elsewhere_superseded_the_note_later(tmp_path: Path, order: str) -> None:
    """R2: intent is never taken away."""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "chat", "From now on we use MongoDB for the ledger database.")
    dreamt(a)
    into(a, b, tmp_path / "s")
    with Keep.open(b) as keep:
        note = keep.notes()[0]["id"]
        keep.note_change(note, "retract")
    talk(a, "later", "From now on we use PostgreSQL instead of MongoDB for the ledger database.")
    dreamt(a)
    for one, other in [(a, b), (b, a)] if order == "ab" else [(b, a), (a, b)]:
        into(one, other, tmp_path / "s")
    for root in (a, b):
        with Keep.open(root) as keep:
            assert {one["id"]: one["state"] for one in keep.notes(state="all")}[note] == "retracted"


def test_a_deleted_session_with_a_non_ascii_id_stops_no_import(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for odd in ("日本語", 'q"u\\o', "ümlaut"):
        talk(a, odd, "hello")
        with Keep.open(a) as keep:
            keep.delete(f"python:{odd}")
    talk(b, "chat", FONT)
    talk(b, "日本語", LINT)
    dreamt(b)
    assert into(b, a, tmp_path / "s")["bad"] == []
    assert texts(a) == [FONT] and b"lint-gnorb" not in every_word(a)


def test_what_a_dream_there_read_behind_a_failed_stretch_is_dreamed_here(tmp_path: Path) -> None:
    """M6: never skipped for ever."""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "chat", "hello", end=False)
    into(a, b, tmp_path / "s")
    talk(a, "chat", LINT)
    talk(b, "chat", FONT, "thanks")
    dreamt(b)
    with Keep.open(b) as keep:
        run = keep.dream_history()[0]["id"]
        body = {"run": run, "session": "python:chat", "upto": 2, "status": "failed", "also": [[3, 40]], "reason": "no"}
        keep.context.journals().say("", Kind.DREAM_READ, body)
    into(b, a, tmp_path / "s")
    read = [event.body for _, event in read_events(HOST, f"{a}/{KEEP}") if event.kind == Kind.DREAM_READ]
    assert all(not one.get("also") for one in read)
    dreamt(a)
    assert texts(a) == sorted((FONT, LINT))


def test_a_hook_call_that_was_journaled_here_is_not_put_into_the_spool_again(tmp_path: Path) -> None:
    """SnapshotImport twice is importing once."""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "chat", "hello")
    spool = a / "spool"
    spool.mkdir(mode=0o700, exist_ok=True)
    call = spool / "01794852542896949404-26883-adab0b2b9d1f6c26~claude~UserPromptSubmit.hook"
    call.write_text(json.dumps({"session_id": SID, "cwd": "/", "prompt": FONT}))
    with Keep.open(a) as keep:
        keep.export(tmp_path / "s")
    for _ in range(3):
        with Keep.open(b) as keep:
            keep.import_(tmp_path / "s")
            keep.drain()
    folder = f"{b}/{folder_of(f'claude:{SID}')}"
    assert len([1 for _, event in read_events(HOST, folder) if event.kind == Kind.HOOK_FIRED]) == 1
    with Keep.open(a) as keep:
        keep.drain()
    into(a, b, tmp_path / "s2")
    into(b, a, tmp_path / "s2")
    for root in (a, b):
        folder = f"{root}/{folder_of(f'claude:{SID}')}"
        assert len([1 for _, event in read_events(HOST, folder) if event.kind == Kind.HOOK_FIRED]) == 1


class Prompts:
    """Every prompt is a constraint."""

    name = "prompts"

    def backfill(self, given: Given) -> list[Proposal]:
        said = [m for turn in given.turns if not turn.known for m in turn.messages if m.role == "user"]
        return [Proposal("constraint", m.text, m.seq, m.text, confidence=0.9) for m in said]


def test_what_a_deletion_there_left_of_an_event_is_taken_over_once(tmp_path: Path) -> None:
    """R4: importing twice is importing once, also where the words of a deleted session were erased from what stays."""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "goes", FONT)
    talk(a, "stays", LINT)
    with Keep.open(a) as keep:
        keep.dream(backend=Prompts())
        note = next(one["id"] for one in keep.notes() if one["text"] == LINT)
        keep.note_change(note, "pin", reason=f"{FONT} They said so.")
        keep.delete("goes")
    talk(b, "other", "ships sail")
    into(a, b, tmp_path / "s")
    before = (b / KEEP / "000001.jsonl").read_bytes()
    assert into(a, b, tmp_path / "s")["events"] == 0
    assert (b / KEEP / "000001.jsonl").read_bytes() == before
    with Keep.open(b) as keep:
        assert [one["pinned"] for one in keep.notes() if one["id"] == note] == [True]


def test_a_users_word_counts_though_a_deletion_took_its_reason(tmp_path: Path) -> None:
    """R4: an earlier change to the note in another keep does not undo it."""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "goes", FONT)
    with Keep.open(a) as keep:
        keep.dream(backend=Prompts())
        note = keep.note_add("Use tabs.", kind="constraint")["id"]
    shutil.copytree(a, b)
    with Keep.open(b) as keep:
        keep.note_change(note, "retract")
        keep.note_change(note, "confirm")
    with Keep.open(a) as keep:
        keep.note_change(note, "retract", reason=f"{FONT} They said so.")
        keep.delete("goes")
    into(b, a, tmp_path / "s")
    with Keep.open(a) as keep:
        assert [one["state"] for one in keep.notes(state=None) if one["id"] == note] == ["retracted"]


def test_a_journal_is_read_once_for_all_hook_calls_that_wait_in_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4: thousands may wait, and a session may be long."""
    a, b = tmp_path / "a", tmp_path / "b"
    talk(a, "mine", *(f"prompt {n}" for n in range(20)), end=False)
    talk(b, "other", "ships sail")
    (b / "spool").mkdir(exist_ok=True)
    said = json.dumps({"session_id": "mine", "prompt": "more", "hook_event_name": "UserPromptSubmit"})
    for n in range(30):
        (b / "spool" / f"{n:020d}-1-{n:016x}~python~UserPromptSubmit.hook").write_text(said)
    seen = 0

    def counted(*given: Any) -> Iterator[Any]:
        nonlocal seen
        for one in events(*given):
            seen += 1
            yield one

    monkeypatch.setattr(merge, "events", counted)
    assert into(b, a, tmp_path / "s")["files"] == 30
    told = sum(1 for name in (KEEP, folder_of("python:mine")) for _ in read_events(HOST, f"{a}/{name}"))
    assert seen <= told
