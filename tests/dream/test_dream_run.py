"""One run at a time, one result for each session, whatever dies; nothing is skipped for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.dream.assemble import redacted
from dreamkeep.dream.backends.api import Answer, Given, Proposal, TurnGiven, Usage
from dreamkeep.dream.parts import Parts
from dreamkeep.dream.run import LOCK, Dreaming
from dreamkeep.dream.schedule import Settings
from dreamkeep.errors import NotDurable, OverBudget
from dreamkeep.event import Event, Kind
from dreamkeep.host import read_file
from dreamkeep.memory.insight import Insight, note_id
from dreamkeep.memory.memory import Memory
from dreamkeep.verbs.dream.dreams import open_dreaming
from tests.helpers.faults import Dying, FragileHost, PowerCut
from tests.helpers.leaks import holding
from tests.helpers.prompt_dreams import memory

SETTINGS = Settings(session_count=5, time_hours=24.0, max_attempts=3, loss_guard=0.25)


class Prompts:
    """A backend that finds a constraint in every prompt; fails where it is told to."""

    def __init__(self, fails: Callable[[Given], bool] = lambda given: False) -> None:
        self.fails = fails
        self.given: list[Given] = []

    def backfill(self, given: Given) -> Answer:
        self.given.append(given)
        if self.fails(given):
            raise RuntimeError("the model said 500")
        said = [m for turn in given.turns if not turn.known for m in turn.messages if m.role == "user"]
        found = [Proposal("constraint", m.text, m.seq, m.text) for m in said]
        return Answer([*found, *found, Proposal("nonsense", "x", "1", "x")], Usage(calls=1))


class Frugal(Prompts):
    """Its budget allows so many calls."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def backfill(self, given: Given) -> Answer:
        if len(self.given) >= self.calls:
            raise OverBudget("the budget is used up", where="here", next="Raise it.")
        return super().backfill(given)


def one_note_each(memory: Memory, insights: Sequence[Insight], now: str, run: str) -> list[tuple[str, Mapping[str, Any]]]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    for one in insights:
        id = note_id(one.project, one.type, one.text)
        known = id in memory.notes
        body = {"id": id, "kind": one.type, "text": one.text, "project": one.project, "insights": [one.id], "reason": "said"}
        found.append((Kind.NOTE_STRENGTHENED if known else Kind.NOTE_ADDED, body))
    return found


def each_turn(turns: Sequence[TurnGiven], tokens: int) -> list[list[TurnGiven]]:
    return [[turn] for turn in turns]


def parts(backend: Any, **more: Any) -> Parts:
    given = {"consolidate": one_note_each, "chunks": each_turn, "redact": str, "loss": lambda memory, decisions: 0.0}
    return Parts(backend, **{**given, **more})


def dreaming(keep: Keep, settings: Settings = SETTINGS) -> Dreaming:
    return Dreaming(
        keep.context.host,
        keep.root,
        lambda events: keep.context.journals().append("", events),
        keep.context.ids,
        keep.context.ask,
        settings,
    )


def filled(root: Path, sessions: int = 2, turns: int = 2) -> None:
    with Keep.open(root) as keep:
        for n in range(sessions):
            session = keep.session(f"s{n}", cwd="/")
            for k in range(turns):
                session.record(f"rule {n}.{k}")
            session.end()


def texts(keep: Keep) -> list[str]:
    return sorted(note.text for note in memory(keep).notes.values())


def truth(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted((root / "journal").rglob("*.jsonl"))}


WHOLE = ["rule 0.0", "rule 0.1", "rule 1.0", "rule 1.1"]


def test_a_run_reads_what_ended_and_a_second_one_changes_no_byte(tmp_path: Path) -> None:
    """M1 M2 M7: the second to tenth dream change nothing."""
    filled(tmp_path / "k")
    with Keep.open(tmp_path / "k") as keep:
        keep.session("open").record("rule that is not finished")
        made = dreaming(keep).run(parts(Prompts()))
        assert (made["status"], made["considered"], made["processed"], made["failed"]) == ("completed", 2, 2, 0)
        assert (made["insights_added"], made["notes"]["added"], made["trigger"]) == (4, 4, "manual")
        assert made["dropped"] == [{"why": "duplicate", "count": 4}, {"why": "unknown type", "count": 4}]
        assert made["usage"]["calls"] == 4 and texts(keep) == WHOLE
        before = truth(tmp_path / "k")
        for _ in range(9):
            again = dreaming(keep).run(parts(Prompts()))
            assert (again["considered"], again["run"]) == (0, None)
        assert truth(tmp_path / "k") == before


def test_a_dream_that_can_not_begin_says_that_it_could_not_write(tmp_path: Path) -> None:
    with Keep.open(tmp_path / "keep") as keep:
        keep.session("s").record("We never use floats for prices.", ("assistant", "Understood."))
        (tmp_path / "keep" / LOCK).mkdir(parents=True)
        with pytest.raises(NotDurable, match=r"starting a dream failed .*dream\.lock"):
            keep.dream()


def test_a_session_that_goes_on_is_dreamed_for_its_new_part_only(tmp_path: Path) -> None:
    """D20 M2"""
    filled(tmp_path / "k", sessions=1)
    with Keep.open(tmp_path / "k") as keep:
        dreaming(keep).run(parts(Prompts()))
        session = keep.session("s0")
        session.record("rule that is new")
        assert dreaming(keep).run(parts(Prompts()))["considered"] == 0, "it has not ended again"
        session.end()
        backend = Prompts()
        made = dreaming(keep).run(parts(backend))
        assert (made["considered"], made["insights_added"]) == (1, 1)
        new = [turn for given in backend.given for turn in given.turns if not turn.known]
        assert [turn.messages[0].text for turn in new] == ["rule that is new"]


def test_a_chunk_that_fails_loses_only_itself_and_is_read_again(tmp_path: Path) -> None:
    """D26 D11: reason and attempts are kept, what went before is not read twice, and nothing is counted twice."""
    filled(tmp_path / "k", turns=3)
    with Keep.open(tmp_path / "k") as keep:
        broken = Prompts(lambda given: any("rule 0.1" in m.text for turn in given.turns for m in turn.messages))
        made = dreaming(keep).run(parts(broken))
        assert (made["status"], made["processed"], made["failed"]) == ("partial", 1, 1)
        assert "chunk 2 of 3" in made["sessions"][0]["reason"] and "500" in made["sessions"][0]["reason"]
        assert texts(keep) == ["rule 0.0", "rule 0.2", "rule 1.0", "rule 1.1", "rule 1.2"]
        found = memory(keep).dreamed["python:s0"]
        assert (found.status, found.attempts) == ("failed", 1) and "500" in found.failure
        backend = Prompts()
        made = dreaming(keep).run(parts(backend))
        assert (made["status"], made["insights_added"]) == ("completed", 1)
        asked = [m.text for given in backend.given for turn in given.turns if not turn.known for m in turn.messages]
        assert asked == ["rule 0.1"]
        assert texts(keep) == [f"rule {n}.{k}" for n in range(2) for k in range(3)]


def test_only_the_chunks_that_failed_are_asked_again(tmp_path: Path) -> None:
    """Two of six, and one of them twice; what came to the session since then is asked with them, and nothing a third time."""
    filled(tmp_path / "k", sessions=1, turns=6)

    def asked(given: Given) -> list[str]:
        return [m.text for turn in given.turns if not turn.known for m in turn.messages]

    with Keep.open(tmp_path / "k") as keep:
        runs = []
        for bad in ({"rule 0.0", "rule 0.3"}, {"rule 0.3"}, set[str]()):
            backend = Prompts(lambda given: not bad.isdisjoint(asked(given)))  # noqa: B023
            dreaming(keep).run(parts(backend))
            runs.append([text for given in backend.given for text in asked(given)])
            if len(runs) == 2:
                keep.session("s0").record("rule 0.6")
                keep.session("s0").end()
        assert runs == [[f"rule 0.{k}" for k in range(6)], ["rule 0.0", "rule 0.3"], ["rule 0.3", "rule 0.6"]]
        assert texts(keep) == [f"rule 0.{k}" for k in range(7)]
        assert memory(keep).dreamed["python:s0"].also == ()


def test_a_message_in_two_chunks_is_read_when_both_were_heard(tmp_path: Path) -> None:
    filled(tmp_path / "k", sessions=1, turns=1)
    halves = lambda turns, tokens: [[turn] for turn in turns for _ in range(2)]  # noqa: E731
    with Keep.open(tmp_path / "k") as keep:
        assert dreaming(keep).run(parts(Prompts(lambda given: given.chunk == (2, 2)), chunks=halves))["failed"] == 1
        backend = Prompts()
        assert dreaming(keep).run(parts(backend, chunks=halves))["processed"] == 1
        assert [turn.known for given in backend.given for turn in given.turns] == [False, False]


def test_a_session_that_always_fails_is_poisoned_and_does_not_stop_the_others(tmp_path: Path) -> None:
    """M1 D26"""
    filled(tmp_path / "k")
    with Keep.open(tmp_path / "k") as keep:
        for _ in range(3):
            made = dreaming(keep).run(parts(Prompts(lambda given: given.session == "python:s0")))
        assert made["status"] == "failed" and [one["id"] for one in made["sessions"]] == ["python:s0"]
        assert dreaming(keep).run(parts(Prompts()))["considered"] == 0
        assert memory(keep).dreamed["python:s0"].attempts == 3 and texts(keep) == ["rule 1.0", "rule 1.1"]


def test_a_limit_or_a_budget_leaves_the_rest_for_the_next_run(tmp_path: Path) -> None:
    """D1 D26 M8: N complete, k pending, the next run finishes them; put off is no failure."""
    filled(tmp_path / "k", sessions=4)
    with Keep.open(tmp_path / "k") as keep:
        assert dreaming(keep).run(parts(Prompts()), limit=1)["considered"] == 1
        made = dreaming(keep).run(parts(Frugal(calls=2)))
        assert (made["status"], made["processed"], made["failed"]) == ("partial", 1, 0)
        assert [one["status"] for one in made["sessions"]] == ["completed", "pending", "pending"]
        assert {one.attempts for one in memory(keep).dreamed.values()} == {0}
        assert dreaming(keep).run(parts(Prompts()))["processed"] == 2
        assert len(texts(keep)) == 8


def test_the_trigger_counts_what_waits_and_is_asked_under_the_lock(tmp_path: Path) -> None:
    """M4 D12 D13"""
    filled(tmp_path / "k", sessions=4)
    with Keep.open(tmp_path / "k") as keep:
        made = dreaming(keep).run(parts(Prompts()), if_due=True)
        assert (made["status"], made["run"], made["waiting"]) == ("skipped", None, 4)
        keep.session("s9", cwd="/").record("rule")
        keep.end("s9")
        made = dreaming(keep).run(parts(Prompts()), if_due=True)
        assert (made["trigger"], made["processed"]) == ("session_count", 5)
        assert dreaming(keep).run(parts(Prompts()), if_due=True)["waiting"] == 0, "a dream never counts itself"


def test_two_at_once_are_one_run_and_the_other_says_how_many_wait(tmp_path: Path) -> None:
    """M5 D10"""
    filled(tmp_path / "k")
    with Keep.open(tmp_path / "k") as keep, Keep.open(tmp_path / "k") as other:
        dreaming(keep).complete()
        with dreaming(keep).lock() as mine:
            assert mine
            made = dreaming(other).run(parts(Prompts()))
        assert (made["lock"], made["status"], made["waiting"], made["run"]) == ("busy", "skipped", 2, None)
        assert made["trigger"] == "manual", "as it would have been"
        assert dreaming(other).run(parts(Prompts()))["processed"] == 2


def test_a_dream_that_is_stopped_by_hand_has_tried_nothing_and_keeps_what_it_read(tmp_path: Path) -> None:
    """M1: whoever stops it five times has not given a session up, and no audit finds a run that nobody ended."""
    filled(tmp_path / "k", sessions=3)

    class Stopped(Prompts):
        def backfill(self, given: Given) -> Answer:
            if given.session == "python:s1":
                raise KeyboardInterrupt
            return super().backfill(given)

    with Keep.open(tmp_path / "k") as keep:
        broken = Prompts(lambda given: given.session == "python:s2")
        dreaming(keep).run(parts(broken), sessions=["python:s2"])
        for _ in range(SETTINGS.max_attempts + 1):
            with pytest.raises(KeyboardInterrupt):
                dreaming(keep).run(parts(Stopped()))
        found = memory(keep).dreamed
        told = [(found[f"python:s{n}"].status, found[f"python:s{n}"].attempts) for n in range(3)]
        assert told == [("completed", 0), ("pending", 0), ("pending", 1)], "what failed before was tried before"
        assert texts(keep) == ["rule 0.0", "rule 0.1"] and keep.audit(home=tmp_path / "home")["clean"]
        last = keep.dream_history()[0]["report"]
        assert (last["status"], last["failed"], last["why"]) == ("partial", 0, "the dream was stopped")
        assert dreaming(keep).run(parts(Prompts()))["processed"] == 2


def test_a_holder_that_is_killed_leaves_no_lock(tmp_path: Path) -> None:
    """D3"""
    filled(tmp_path / "k")
    code = f"""
import os, time
from dreamkeep.host import RealHost
host = RealHost()
os.makedirs(os.path.dirname({str(tmp_path / "k" / LOCK)!r}), exist_ok=True)
handle = host.open_lock({str(tmp_path / "k" / LOCK)!r})
assert host.try_lock(handle)
print("held", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        with Keep.open(tmp_path / "k") as keep:
            assert dreaming(keep).run(parts(Prompts()))["lock"] == "busy"
            os.kill(holder.pid, signal.SIGKILL)
            holder.wait()
            assert dreaming(keep).run(parts(Prompts()))["processed"] == 2


def test_a_run_that_would_take_away_too_much_stops(tmp_path: Path) -> None:
    """D37 M11"""
    filled(tmp_path / "k")
    with Keep.open(tmp_path / "k") as keep:
        made = dreaming(keep).run(parts(Prompts(), loss=lambda memory, decisions: 0.5))
        assert made["status"] == "failed" and "50%" in made["sessions"][0]["reason"]
        assert texts(keep) == [] and memory(keep).insights == {}


def test_sessions_that_take_away_too_much_together_are_refused_as_one_would_be_and_told_the_way_out(tmp_path: Path) -> None:
    """D37: against what was there when the run began."""
    things = ("web", "api", "db", "mail", "cache", "log")

    def say(keep: Keep, name: str, *words: str) -> None:
        session = keep.session(name, cwd="/")
        for one in words:
            session.record(one, ("assistant", "ok"))
        session.end()

    with Keep.open(tmp_path / "k") as keep:
        say(keep, "s", *(f"The {one} port must always be 800{n}." for n, one in enumerate(things, 1)))
        keep.dream()
        assert len(keep.notes()) == 6
        for k in range(3):
            say(
                keep, f"s{k}", *(f"The {one} port must always be 900{n}." for n, one in enumerate(things, 1) if (n - 1) // 2 == k)
            )
        say(keep, "t", "Never use tabs in YAML files.")
        made = keep.dream()
        assert [one["status"] for one in made["sessions"]] == ["completed", "failed", "failed", "completed"]
        assert made["notes"]["superseded"] == 2 and (made["status"], made["failed"]) == ("partial", 2)
        reason = made["sessions"][1]["reason"]
        assert "67%" in reason and "25%" in reason and "`dreamkeep dream --session python:s1`" in reason
        for name in ("s1", "s2"):
            assert keep.dream(sessions=[name])["notes"]["superseded"] == 2
        say(keep, "all", *(f"The {one} port must always be 700{n}." for n, one in enumerate(things, 1)))
        [refused] = keep.dream()["sessions"]
        assert "`DREAMKEEP_DREAM_LOSS_GUARD=1 dreamkeep dream --session python:all`" in refused["reason"]
        [waiting] = [one for one in keep.dream_status()["sessions"] if one["id"] == "python:all"]
        assert waiting["failure_reason"] == refused["reason"]
    with Keep.open(tmp_path / "k", environment={"DREAMKEEP_DREAM_LOSS_GUARD": "1"}) as keep:
        assert keep.dream(sessions=["all"])["notes"]["superseded"] == 6


def test_a_run_that_dies_at_any_step_is_ended_by_the_next_with_one_result_each(tmp_path: Path) -> None:
    """D11: kill at every change of the disk."""
    filled(tmp_path / "template")
    import shutil

    for n in count(1):
        root = tmp_path / "k"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(tmp_path / "template", root)
        dying = Keep.open(root, host=Dying(n))
        try:
            dreaming(dying).run(parts(Prompts()))
            finished = True
        except PowerCut:
            finished = False
        with Keep.open(root) as keep:
            dreaming(keep).run(parts(Prompts()))
            found = memory(keep)
            assert texts(keep) == WHOLE, n
            assert len(found.insights) == 4 and all(one.read == one.finished for one in found.dreamed.values())
            assert all(len(note.insights) == 1 and note.sessions == 1 for note in found.notes.values()), n
            keep.reindex(from_zero=True)
            assert memory(keep).notes == found.notes
        if finished:
            break
    assert n > 10


def test_what_a_subagent_was_told_is_nobodys_word(tmp_path: Path) -> None:
    from tests.agents import claude

    claude.write(tmp_path / "home")
    with Keep.open(tmp_path / "k") as keep:
        list(keep.ingest(home=tmp_path / "home"))
        below = [one.id for one in keep.sessions() if any(kind == "subagent" for kind, _ in one.lineage)]
        assert below
        for one in keep.sessions():
            keep.end(one.id)
        backend = Prompts()
        dreaming(keep).run(parts(backend))
        assert {given.session for given in backend.given} & set(below) == set()
        assert all(memory(keep).dreamed[one].status == "completed" for one in below if one in memory(keep).dreamed)
        asked_for = {session for one in keep.tasks() for session in one["sessions"]}
        assert asked_for and not asked_for & set(below), "what a subagent is for is its parent's task"


def test_a_subagents_session_waits_for_no_dream_and_makes_none_due(tmp_path: Path) -> None:
    """M1 M4: one session with four subagents is one session that waits. That it ended is recorded all the same (D8)."""
    from tests.agents import claude

    claude.write(tmp_path / "home")
    with Keep.open(tmp_path / "k") as keep:
        list(keep.ingest(home=tmp_path / "home"))
        below = [one.id for one in keep.sessions() if any(kind == "subagent" for kind, _ in one.lineage) and one.messages]
        assert below
        for one in below:
            keep.end(one)
        told = keep.dream_status()
        assert (told["trigger"]["waiting"], told["trigger"]["why"]) == (0, "no sessions are waiting"), "as it will be"
        assert set(open_dreaming(keep.context).complete().sessions) == set(below)
        told = keep.dream_status()
        assert {one["id"] for one in told["sessions"]} == set(below)
        assert {one["eligibility"] for one in told["sessions"]} == {"already_consolidated"}
        assert (told["trigger"]["waiting"], told["last_successful_run_at"]) == (0, None)
        assert keep.dream()["run"] is None
        keep.reindex(from_zero=True)
        assert keep.dream_status()["sessions"] == told["sessions"]


def test_what_failed_too_often_is_read_when_it_is_asked_for_by_name(tmp_path: Path) -> None:
    """D26: nothing is skipped for ever. And what is not read says why."""
    filled(tmp_path / "k", sessions=1)
    with Keep.open(tmp_path / "k") as keep:
        keep.session("open").record("not finished")
        for _ in range(SETTINGS.max_attempts):
            dreaming(keep).run(parts(Prompts(lambda given: True)))
        assert dreaming(keep).run(parts(Prompts()))["considered"] == 0
        assert dreaming(keep).run(parts(Prompts()), sessions=["python:s0"])["status"] == "completed"
        made = dreaming(keep).run(parts(Prompts()), sessions=["python:s0", "python:open"])
        assert made["why"] == "no sessions are waiting (python:s0: already_consolidated, python:open: not_completed)"


def test_a_reason_holds_no_secret(tmp_path: Path) -> None:
    """M12: a backend says what it wants, also the key that was refused."""
    filled(tmp_path / "k", sessions=1, turns=1)

    class Refused:
        def backfill(self, given: Given) -> Answer:
            raise RuntimeError("401: hush-hush is no key" + " " * 2000)

    with Keep.open(tmp_path / "k") as keep:
        made = dreaming(keep).run(parts(Refused(), redact=lambda text: text.replace("hush-hush", "[redacted]")))
        assert made["sessions"][0]["reason"].startswith("chunk 1 of 1: RuntimeError: 401: [redacted] is no key")
        assert all(b"hush-hush" not in data for data in truth(tmp_path / "k").values())


def test_a_session_that_failed_and_is_deleted_while_the_dream_goes_on_leaves_no_word_in_its_report(tmp_path: Path) -> None:
    """R5: a backend may tell in the session's own words why it failed."""

    class Failing:
        name = "failing"

        def backfill(self, given: Given) -> list[Proposal]:
            said = " ".join(m.text for turn in given.turns for m in turn.messages)
            if "xylophone" in said:
                raise ValueError(f"what is {said}?")
            with Keep.open(tmp_path / "k") as other:
                other.delete("goes")
            return []

    with Keep.open(tmp_path / "k") as keep:
        for name, words in (("goes", "the xylophone"), ("stays", "pears")):
            session = keep.session(name)
            session.record(words)
            session.end()
        report = keep.dream(backend=Failing())
        assert [one["status"] for one in report["sessions"]] == ["failed", "completed"]
        assert keep.dream_history()
    assert holding(tmp_path / "k", b"xylophon") == []


def test_a_session_that_is_deleted_while_it_is_dreamed_leaves_no_word(tmp_path: Path) -> None:
    """R5 D21"""
    filled(tmp_path / "k", sessions=2, turns=1)

    class Deleting(Prompts):
        def backfill(self, given: Given) -> Answer:
            if given.session == "python:s0":
                with Keep.open(tmp_path / "k") as other:
                    other.delete("s0")
            return super().backfill(given)

    with Keep.open(tmp_path / "k") as keep:
        made = keep.dream(backend=Deleting())
        assert made["processed"] == 2 and texts(keep) == ["rule 1.0"]
        assert {one["id"] for one in keep.dream_status()["sessions"]} == {"python:s1"}
    assert holding(tmp_path / "k", b"rule 0.0") == []


def test_what_is_noted_while_a_backend_thinks_is_known_when_a_session_is_concluded(tmp_path: Path) -> None:
    """M5: as without the overlap, the user's newest word holds; also where it comes just before what was concluded is written."""
    for late in (False, True):
        root = tmp_path / f"k{late}"
        with Keep.open(root) as keep:
            for n, said in enumerate(("Never use tabs in YAML files.", "The port must be 2222.")):
                session = keep.session(f"s{n}", cwd="/")
                session.record(said)
                session.end()
            project = keep.sessions()[0].project

            def tell(root: Path = root, project: str = project) -> None:
                with Keep.open(root) as other:
                    other.note_add("The port must be 3333.", kind="constraint", project=project)

            class Slow(Prompts):
                def backfill(self, given: Given, late: bool = late, tell: Callable[[], None] = tell) -> Answer:
                    if given.session == "python:s1" and not late:
                        tell()
                    return super().backfill(given)

            if late:
                append = keep.context.journals().append

                def overtaken(session: str, events: Sequence[Event], append: Any = append, tell: Any = tell) -> Any:
                    if any(one.kind == Kind.DREAM_READ and one.body["session"] == "python:s1" for one in events):
                        tell()
                    return append(session, events)

                keep.context.journals().append = overtaken  # type: ignore[method-assign]
            keep.dream(backend=Slow(), sessions=["s1", "s0"])
            states = {note.text: note.state for note in memory(keep).notes.values()}
            assert states["The port must be 3333."] == "active" and states["The port must be 2222."] == "superseded", late


def test_a_run_asks_for_all_that_is_remembered_once_unless_others_told_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M8: what a run itself appends is no news to it, nor is a session that ended meanwhile."""
    from dreamkeep.dream import queries

    filled(tmp_path / "k", sessions=4)
    asked: list[str] = []
    monkeypatch.setattr(queries, "load_remembered", _told(queries.load_remembered, asked, lambda store: "all"))

    class Beside(Prompts):
        def __init__(self, act: Callable[[Keep], object]) -> None:
            super().__init__()
            self.act = act

        def backfill(self, given: Given) -> Answer:
            if given.session == "python:s1":
                with Keep.open(tmp_path / "k") as other:
                    self.act(other)
            return super().backfill(given)

    with Keep.open(tmp_path / "k") as keep:
        keep.dream(backend=Beside(lambda other: (other.session("more"), other.end("more"), other.hygiene())), limit=3)
        assert len(asked) == 1
        filled(tmp_path / "k", sessions=4)
        keep.dream(backend=Beside(lambda other: other.note_add("Prices are in cents.")))
        assert len(asked) == 1 + 2


def test_a_dry_run_counts_in_what_ended_and_has_no_record_yet(tmp_path: Path) -> None:
    """D36: processed = in scope, and what a run would read is what it reads."""
    filled(tmp_path / "k")
    with Keep.open(tmp_path / "k") as keep:
        dry = keep.dream(dry_run=True)
        assert [one["id"] for one in dry["sessions"]] == ["python:s0", "python:s1"] and dry["processed"] == 2
        assert [one["id"] for one in keep.dream(preview=True)["sessions"]] == ["python:s0", "python:s1"]
        assert [one["id"] for one in keep.dream()["sessions"]] == ["python:s0", "python:s1"]


@pytest.mark.parametrize("loss", ["mixed", *(pytest.param(one, marks=pytest.mark.slow) for one in ("lost", "kept"))])
def test_a_power_cut_at_every_step_of_a_dream_costs_nothing_that_the_next_one_does_not_make_good(loss: str) -> None:
    """D11 M10: what was not synced is gone; then there is one result for each session, one whole page, and nothing beside it."""
    for n in count(1):
        host = FragileHost(seed=n)
        keep = Keep.open("/k", host=host)
        for k in range(2):
            session = keep.session(f"s{k}", cwd="/")
            session.record(f"Rule {k} is to use tool{k}.")
            session.end()
        host.plan(n, "cut")
        try:
            keep.dream(backend=Prompts())
            finished = True
        except PowerCut:
            finished = False
        after = host.reboot(loss, seed=n)
        again = Keep.open("/k", host=after)
        again.dream(backend=Prompts())
        found = memory(again)
        assert {one.status for one in found.dreamed.values()} == {"completed"} and len(found.dreamed) == 2, n
        assert len(found.insights) == 2 and {one.source for one in found.insights.values()} == {"dream"}, n
        assert [one.state for one in found.notes.values()] == ["active", "active"], n
        [folder] = after.names("/k/pages")
        assert after.names(f"/k/pages/{folder}") == ["MEMORY.md"], n
        text = read_file(after, f"/k/pages/{folder}/MEMORY.md").decode()
        assert text.count("[n-") == 2 and text.count("dreamkeep:begin") == 1, n
        if finished:
            break
    assert n > 10


@pytest.mark.parametrize("n", [0, 20, 30, 35, 52])
def test_no_half_of_a_secret_is_left_where_something_is_cut(tmp_path: Path, n: int) -> None:
    """M12: titles and quotes are cut after they were redacted."""
    secret = "ghp_" + "a1B2" * 9
    with Keep.open(tmp_path / "k") as keep:
        session = keep.session("s", cwd="/")
        session.record(f"{'x ' * n}{secret} is the token")
        session.record(f"{'y ' * 990}{secret} is the token")
        session.end()

        class Quoting:
            def backfill(self, given: Given) -> Answer:
                assert "ghp_" not in given.title
                said = [m for turn in given.turns for m in turn.messages if m.role == "user"]
                return Answer([Proposal("constraint", f"Text {m.seq}.", m.seq, m.text) for m in said])

        made = dreaming(keep).run(parts(Quoting(), redact=redacted))
        assert made["insights_added"] == 2
        found = memory(keep)
        told = [one.title for one in found.tasks.values()] + [q.quote for one in found.insights.values() for q in one.evidence]
        assert len(told) == 3 and all(len(text) <= 2000 and "ghp_" not in text for text in told)


def test_an_index_that_is_thrown_away_in_the_middle_of_a_run_costs_no_session(tmp_path: Path) -> None:
    """D21: sessions are read from the index as it is; where it is not whole, everything is followed first."""
    filled(tmp_path / "k", sessions=3)

    class Discarding(Prompts):
        def backfill(self, given: Given) -> Answer:
            for file in (tmp_path / "k").glob("index.sqlite*"):
                file.unlink()
            return super().backfill(given)

    with Keep.open(tmp_path / "k") as keep:
        made = keep.dream(backend=Discarding())
        assert (made["processed"], made["failed"]) == (3, 0)
        assert texts(keep) == [*WHOLE, "rule 2.0", "rule 2.1"]


def test_a_dream_that_finds_nothing_new_reads_no_note_and_no_insight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M8: what it costs does not depend on what is remembered; the journals of sessions are looked at once."""
    from dreamkeep.index import build
    from dreamkeep.index.sqlite import SqliteStore

    filled(tmp_path / "k")
    with Keep.open(tmp_path / "k") as keep:
        keep.dream(backend=Prompts())
        asked: list[str] = []
        for name, what in (("memory", lambda *given: "all"), ("memory_table", lambda store, table: table)):
            monkeypatch.setattr(SqliteStore, name, _told(getattr(SqliteStore, name), asked, what))
        row = _told(SqliteStore.memory_row, asked, lambda store, table, id: table)
        monkeypatch.setattr(SqliteStore, "memory_row", row)
        monkeypatch.setattr(build, "current", _told(build.current, asked, lambda *given: "journals"))
        assert keep.dream(backend=Prompts())["considered"] == 0
        assert set(asked) - {"projects"} == {"marks", "pages", "dreamed", "runs", "journals"} and asked.count("journals") == 1
        filled(tmp_path / "k", sessions=3)
        assert keep.dream(backend=Prompts())["considered"] == 3 and {"notes", "insights"} <= set(asked)


def _told(act: Callable[..., Any], asked: list[str], what: Callable[..., str]) -> Callable[..., Any]:
    def telling(*given: Any) -> Any:
        asked.append(what(*given))
        return act(*given)

    return telling


@pytest.mark.parametrize("reply", [None, {"insights": []}, "nothing", Answer(None, Usage(calls=1))])  # type: ignore[arg-type]
def test_a_chunk_whose_whole_reply_is_of_no_use_is_read_again(tmp_path: Path, reply: object) -> None:
    """M6: of that chunk nobody knows what was in it; the others of its session are read."""

    class Speechless(Prompts):
        def backfill(self, given: Given) -> Answer:
            found = super().backfill(given)
            return reply if given.chunk == (2, 2) else found  # type: ignore[return-value]

    filled(tmp_path / "k", sessions=1)
    with Keep.open(tmp_path / "k") as keep:
        made = dreaming(keep).run(parts(Speechless()))
        assert (made["status"], made["failed"]) == ("failed", 1) and texts(keep) == ["rule 0.0"]
        assert "chunk 2 of 2: NoAnswer: the backend returned" in made["sessions"][0]["reason"]
        assert made["usage"]["calls"] == 1 + isinstance(reply, Answer)
        [row] = keep.dream_status()["sessions"]
        assert (row["eligibility"], row["attempts"]) == ("retry_after_failure", 1)
        assert dreaming(keep).run(parts(Prompts()))["status"] == "completed" and texts(keep) == ["rule 0.0", "rule 0.1"]


def test_a_backend_may_yield_its_proposals_and_one_that_breaks_off_is_asked_again(tmp_path: Path) -> None:
    class Yielding(Prompts):
        def __init__(self, breaks: bool) -> None:
            super().__init__()
            self.breaks = breaks

        def backfill(self, given: Given) -> Any:
            yield from super().backfill(given).proposals
            if self.breaks:
                raise RuntimeError("cut off")

    filled(tmp_path / "k", sessions=1)
    with Keep.open(tmp_path / "k") as keep:
        made = dreaming(keep).run(parts(Yielding(breaks=True)))
        assert made["failed"] == 1 and "cut off" in made["sessions"][0]["reason"] and texts(keep) == []
        made = dreaming(keep).run(parts(Yielding(breaks=False)))
        assert made["status"] == "completed" and texts(keep) == ["rule 0.0", "rule 0.1"]
