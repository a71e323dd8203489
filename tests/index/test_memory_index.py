"""What was learned, as the index has it: followed event by event or read from zero, and gone with its session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.event import Kind
from dreamkeep.memory.memory import Memory
from tests.helpers.leaks import holding
from tests.helpers.store_suite import recalled


def say(keep: Keep, _kind: str, /, **body: Any) -> None:
    keep.context.journals().say("", _kind, body)


def learn(keep: Keep, n: int, session: str, text: str, run: str = "r-1") -> None:
    quote = {"session": session, "seq": "2", "turn": None, "quote": text}
    about = {"type": "constraint", "project": "p", "evidence": [quote], "said_at": "2026-01-01T00:00:00Z", "run": run}
    say(keep, Kind.INSIGHT_ADDED, id=f"i-{n}", text=text, **about)
    say(keep, Kind.NOTE_ADDED, id=f"n-{n}", kind="constraint", text=text, project="p", insights=[f"i-{n}"], run=run)


def memory(keep: Keep) -> list[Any]:
    return keep.context.ask(lambda store: store.memory())


def found(keep: Keep, query: str) -> list[str]:
    return [hit.id for hit in keep.context.ask(lambda store: recalled(store, query, kinds=["note"]))]


def test_memory_followed_step_by_step_is_memory_read_from_zero(tmp_path: Path) -> None:
    """D34 D23: and each note is found as soon as it is there."""
    with Keep.open(tmp_path / "k") as keep:
        for n in range(3):
            learn(keep, n, "python:a", f"pears{n} are cheap", run=f"r-{n}")
            assert found(keep, f"pears{n}") == [f"n-{n}"]
        say(keep, Kind.NOTE_RETRACTED, id="n-0", reason="no")
        say(keep, Kind.NOTE_STRENGTHENED, id="n-1", insights=["i-2"], run="r-2")
        assert found(keep, "pears0") == []
        say(keep, Kind.DREAM_UNDONE, run="r-2")
        assert found(keep, "pears2") == [] and found(keep, "pears1") == ["n-1"]
        before = memory(keep)
        keep.reindex(from_zero=True)
        assert memory(keep) == before


def test_rows_that_followed_a_new_name_are_to_the_letter_those_of_an_index_from_zero(tmp_path: Path) -> None:
    """D34"""
    with Keep.open(tmp_path / "k") as keep:
        for n in range(6):
            keep.note_add(f"The port of service {n} is 844{n}.", project="example.org/old")
        keep.project_rename("example.org/old", "example.org/new")
        followed = keep.context.ask(lambda store: list(store.memory()))
        keep.reindex(from_zero=True)
        assert keep.context.ask(lambda store: list(store.memory())) == followed


def test_two_that_follow_at_once_agree(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "k") as one, Keep.open(tmp_path / "k") as other:
        for n in range(5):
            learn(one if n % 2 else other, n, "python:a", f"pears{n}")
            assert found(one, f"pears{n}") == found(other, f"pears{n}") == [f"n-{n}"]


def test_a_deleted_session_takes_along_what_was_learned_in_it_alone(tmp_path: Path) -> None:
    """R5 K7"""
    with Keep.open(tmp_path / "k") as keep:
        for name in ("goes", "stays"):
            keep.session(name).record("a prompt")
        learn(keep, 1, "python:goes", "xylophones are loud")
        learn(keep, 2, "python:stays", "pears are soft")
        say(keep, Kind.TASK_OPENED, id="t-1", title="tune the xylophone", project="p", session="python:goes")
        say(keep, Kind.NOTE_EDITED, id="n-1", text="xylophones are very loud", reason="by hand")
        assert found(keep, "xylophones") == ["n-1"]
        keep.delete("goes")
        assert holding(tmp_path / "k", b"xylophon") == []
        assert found(keep, "xylophones") == [] and found(keep, "pears") == ["n-2"]
        learned = [("insights", "i-2"), ("notes", "n-2")]
        assert sorted(row[:2] for row in memory(keep)) == sorted([*learned, ("rests", "i-2"), ("marks", "p")])


def rests(keep: Keep, note: str, *sessions: str, said: str = "xylophones are loud", more: bool = False) -> None:
    """A note on which one session after the other insists."""
    for n, session in enumerate(sessions):
        id, added = f"{note}-i-{session}", Kind.NOTE_STRENGTHENED if n or more else Kind.NOTE_ADDED
        quote = {"session": f"python:{session}", "seq": "1", "turn": None, "quote": f"{said}, says {session}"}
        say(keep, Kind.INSIGHT_ADDED, id=id, type="finding", text=said, project="p", evidence=[quote])
        say(keep, added, id=note, kind="finding", text=said, project="p", insights=[id])


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")])
def test_what_a_user_did_to_a_note_goes_with_the_last_session_that_it_rests_on(tmp_path: Path, order: tuple[str, ...]) -> None:
    """R5 K7: whichever goes last, and whether he did it before or after the others said so; while one is left it stays."""
    with Keep.open(tmp_path / "k") as keep:
        for name in ("a", "b", "c", "stays"):
            keep.session(name).record("a prompt")
        rests(keep, "n-1", "a")
        say(keep, Kind.NOTE_EDITED, id="n-1", text="early quokkas")
        rests(keep, "n-1", "b", "c", more=True)
        rests(keep, "n-2", "stays", "a")
        say(keep, Kind.NOTE_SUPERSEDED, id="n-2", by="n-1", reason="the user, later: “early quokkas”")
        late: list[tuple[str, dict[str, str]]] = [
            (Kind.NOTE_EDITED, {"text": "late quokkas"}),
            (Kind.NOTE_PINNED, {"text": "late quokkas", "kind": "finding", "project": "p"}),
            (Kind.NOTE_UNPINNED, {}),
            (Kind.NOTE_RETRACTED, {"text": "late quokkas", "reason": "no more quokkas"}),
        ]
        for note in ("n-1", "n-2"):
            for kind, body in late:
                say(keep, kind, id=note, **{key: text.replace("quokkas", f"quokkas of {note}") for key, text in body.items()})
        for name in order[:2]:
            keep.delete(name)
            assert Memory.load(memory(keep)).notes["n-1"].text == "late quokkas of n-1"
        keep.delete(order[2])
        assert holding(tmp_path / "k", b"early quokkas") == holding(tmp_path / "k", b"quokkas of n-1") == []
        assert holding(tmp_path / "k", b"says a") == []
        left = Memory.load(memory(keep)).notes
        assert [(id, one.text, one.state) for id, one in left.items()] == [("n-2", "late quokkas of n-2", "retracted")]


def test_an_edit_that_repeats_a_deleted_session_goes_unless_others_say_it_too(tmp_path: Path) -> None:
    """R5 K7"""
    with Keep.open(tmp_path / "k") as keep:
        for name in ("goes", "stays"):
            keep.session(name).record("a prompt")
        rests(keep, "n-1", "goes", said="Xylophones are tuned by ear")
        rests(keep, "n-1", "stays", said="Instruments are tuned by ear", more=True)
        say(keep, Kind.NOTE_EDITED, id="n-1", text="Xylophones are tuned by ear, mostly")
        say(keep, Kind.NOTE_PINNED, id="n-1", text="Xylophones are tuned by ear, mostly", kind="finding")
        rests(keep, "n-2", "goes", "stays", said="Pears are soft when they are ripe")
        say(keep, Kind.NOTE_EDITED, id="n-2", text="Pears are soft when they are ripe, mostly")
        keep.delete("goes")
        assert holding(tmp_path / "k", b"Xylophones are") == []
        left = Memory.load(memory(keep)).notes
        assert (left["n-1"].text, left["n-1"].pinned) == ("Instruments are tuned by ear", True)
        assert left["n-2"].text == "Pears are soft when they are ripe, mostly"


def test_the_words_that_an_edit_replaced_go_with_the_session_that_said_them(tmp_path: Path) -> None:
    """R5 K7: whether others say the same in other words, or nobody does."""
    with Keep.open(tmp_path / "k") as keep:
        for name in ("goes", "stays"):
            keep.session(name).record("a prompt")
        rests(keep, "n-1", "stays", said="Instruments are tuned by ear")
        rests(keep, "n-1", "goes", said="Xylophones are tuned by ear", more=True)
        rests(keep, "n-2", "goes", said="Xylophones are heavy things")
        rests(keep, "n-3", "goes", "stays", said="Pears are soft when they are ripe")
        said = {note: Memory.load(memory(keep)).notes[note].text for note in ("n-1", "n-2", "n-3")}
        for note, text in said.items():
            body = {"id": note, "kind": "finding", "project": "p", "text": f"By the user, of {note}", "was": text}
            say(keep, Kind.NOTE_EDITED, **body, reason="by the user")
        say(keep, Kind.NOTE_EDITED, id="n-1", text="By the user, again", was="By the user, of n-1")
        assert holding(tmp_path / "k", b"Xylophones are") != []
        keep.delete("goes")
        assert holding(tmp_path / "k", b"Xylophones are") == []
        left = Memory.load(memory(keep)).notes
        assert {id: one.text for id, one in left.items()} == {"n-1": "By the user, again", "n-3": "By the user, of n-3"}
        assert [step.was for step in left["n-1"].history if step.what == "edited"][1] == "By the user, of n-1"
        assert [step.was for step in left["n-3"].history if step.what == "edited"] == [said["n-3"]], "others say it, too"


def test_the_title_that_a_user_gave_a_task_goes_with_the_last_of_its_sessions(tmp_path: Path) -> None:
    """R5 K7"""
    with Keep.open(tmp_path / "k") as keep:
        for name in ("goes", "joins", "stays"):
            keep.session(name).record("a prompt")
        for id, session in (("t-1", "python:goes"), ("t-2", "python:goes"), ("t-3", "python:stays"), ("t-4", None)):
            say(keep, Kind.TASK_OPENED, id=id, title=f"tune xylophone {id}", project="p", session=session)
        say(keep, Kind.TASK_CLOSED, id="t-1", state="done")
        say(keep, Kind.TASK_JOINED, id="t-2", session="python:joins")
        say(keep, Kind.TASK_JOINED, id="t-3", session="python:goes")
        for id in ("t-1", "t-2", "t-3", "t-4"):
            say(keep, Kind.TASK_RENAMED, id=id, title=f"quokkas of {id}")
            say(keep, Kind.TASK_CLOSED, id=id, state="done", reason=f"enough of {id}")
        keep.delete("goes")
        for words in (b"xylophone t-1", b"xylophone t-2", b"quokkas of t-1", b"enough of t-1"):
            assert holding(tmp_path / "k", words) == []
        titles = {id: (one.title, one.state) for id, one in Memory.load(memory(keep)).tasks.items()}
        assert titles == {id: (f"quokkas of {id}", "done") for id in ("t-2", "t-3", "t-4")}
        keep.delete("joins")
        keep.delete("stays")
        assert holding(tmp_path / "k", b"quokkas of t-2") == holding(tmp_path / "k", b"quokkas of t-3") == []
        assert list(Memory.load(memory(keep)).tasks) == ["t-4"]


def test_what_a_user_closed_keeps_no_title_of_a_deleted_session_and_stays_closed(tmp_path: Path) -> None:
    """R5 K7: who closes a task says what it was; that is the session's own title, unless the user gave it another."""
    with Keep.open(tmp_path / "k") as keep:
        for name in ("goes", "joins"):
            keep.session(name).record("a prompt")
        for id in ("t-1", "t-2"):
            say(keep, Kind.TASK_OPENED, id=id, title=f"tune xylophone {id}", project="p", session="python:goes")
            say(keep, Kind.TASK_JOINED, id=id, session="python:joins")
        keep.task_rename("t-2", "quokkas")
        for id in ("t-1", "t-2"):
            keep.task_close(id)
        keep.delete("goes")
        assert holding(tmp_path / "k", b"xylophone") == [] and holding(tmp_path / "k", b"quokkas") != []
        left = {id: (one.title, one.state) for id, one in Memory.load(memory(keep)).tasks.items()}
        assert left == {"t-1": ("t-1", "done"), "t-2": ("quokkas", "done")}
        keep.delete("joins")
        assert holding(tmp_path / "k", b"quokkas") == [] and not Memory.load(memory(keep)).tasks


def test_of_what_others_say_too_a_deletion_takes_only_the_words(tmp_path: Path) -> None:
    """R5: notes live on by what others said; reasons, reports and pages keep nothing of it."""
    words = "Xylophones are tuned by ear"
    quoted = {"run": "r", "reason": f"the user, later: “{words}”"}
    failed = {"status": "failed", "reason": f"RuntimeError: {words}, it says"}
    report = {"sessions": [{"id": "python:goes", **failed}, {"id": "python:stays", "status": "completed"}], "notes": {}}

    def insight(id: str, session: str, text: str) -> dict[str, Any]:
        evidence = [{"session": session, "seq": "1", "turn": None, "quote": text}]
        return {"id": id, "type": "constraint", "text": text, "project": "p", "evidence": evidence}

    with Keep.open(tmp_path / "k") as keep:
        for name in ("goes", "stays"):
            keep.session(name, cwd="/").record("hello")
            keep.end(name)
        told: list[tuple[str, dict[str, Any]]] = [
            ("insight.added", insight("i-1", "python:goes", words)),
            ("insight.added", insight("i-2", "python:stays", "Instruments are tuned by ear.")),
            ("note.added", {"id": "n-1", "kind": "constraint", "text": words, "project": "p", "insights": ["i-1"]}),
            ("note.strengthened", {"id": "n-1", "project": "p", "insights": ["i-2"], **quoted, "text": words}),
            ("note.added", {"id": "n-2", "kind": "constraint", "text": words, "project": "p", "insights": ["i-1", "i-2"]}),
            ("note.added", {"id": "n-3", "kind": "constraint", "text": "Old.", "project": "p", "insights": ["i-2"]}),
            ("note.superseded", {"id": "n-3", "by": "n-1", **quoted}),
            ("note.added", {"id": "n-4", "kind": "constraint", "text": words, "project": "p", "insights": ["i-1"]}),
            ("note.strengthened", {"id": "n-4", "project": "p", "insights": ["i-2"], "reason": "said again"}),
            ("note.retracted", {"id": "n-4", "reason": "by the user"}),
            ("page.published", {"project": "p", "path": "pages/p/MEMORY.md", "region": words, "notes": ["n-1"]}),
            ("dream.read", {"run": "r", "session": "python:goes", "upto": 1, **failed}),
            ("dream.finished", {"run": "r", "report": report}),
            ("dream.finished", {"run": "r-2", "report": {**report, "padding": "x" * (2 << 20)}}),
        ]
        for kind, body in told:
            keep.context.journals().say("", kind, body)
        keep.delete("goes")
        assert holding(tmp_path / "k", words[:15].encode()) == []
        left = Memory.load(memory(keep))
        assert {id: (one.text, one.state) for id, one in left.notes.items()} == {
            "n-1": ("Instruments are tuned by ear.", "active"),
            "n-2": ("Instruments are tuned by ear.", "active"),
            "n-3": ("Old.", "superseded"),
            "n-4": ("Instruments are tuned by ear.", "retracted"),
        }
        assert left.runs["r"].report["sessions"][0] == {"id": "python:goes", "status": "failed"}
