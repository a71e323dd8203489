"""Insights become notes: merged, strengthened, superseded, taken back, expired; and that order does not matter."""

from __future__ import annotations

import random
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamkeep.dream.consolidate.consolidate import Consolidating, Decision, loss, lost, plan
from dreamkeep.dream.undo import rethought
from dreamkeep.event import Event, Kind
from dreamkeep.memory import alike, note
from dreamkeep.memory.insight import Insight, Quote
from dreamkeep.memory.memory import Memory, fold
from dreamkeep.memory.note import Note
from dreamkeep.memory.score import days_between, epoch_seconds, newest_of, score

NOW = "2027-01-01T00:00:00Z"


def day(n: int) -> str:
    return f"2026-{1 + n // 28:02d}-{1 + n % 28:02d}T10:00:00Z"


def said(text: str, on: int = 1, type: str = "constraint", session: str = "", author: str = "user", **more: Any) -> Insight:
    session = session or f"python:{on}"
    project = more.pop("project", "p")
    quote = Quote(session, more.pop("seq", "7"), None, text, author, "typed")
    id = "i-" + sha256(repr((session, type, text, on, author, project, quote.seq)).encode()).hexdigest()[:16]
    return Insight(id, type, text, project, (quote,), day(on) if on >= 0 else None, author=author, **more)


class World:
    """A memory that lives: what is planned is journaled and folded, as a run does it."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.decided: list[Decision] = []
        self._n = 0

    def event(self, kind: str, at: str = NOW, /, **body: Any) -> None:
        self._n += 1
        self.memory.apply(Event(f"e-{self._n}", kind, at, body))
        assert self.memory.malformed == 0

    def dream(self, *insights: Insight, run: str = "r") -> list[Decision]:
        for one in insights:
            self.event(Kind.INSIGHT_ADDED, **{**one.as_json(), "run": run})
        decided = plan(self.memory, insights, now=NOW, run=run)
        for kind, body in decided:
            assert body["reason"] and body["run"] == run
            self.event(kind, **body)
        self.decided += decided
        return decided

    def texts(self, state: str = note.ACTIVE, project: str = "p") -> list[str]:
        return sorted(one.text for one in self.memory.notes.values() if one.state == state and one.project == project)

    def the(self, text: str, state: str = note.ACTIVE) -> Note:
        (found,) = [one for one in self.memory.notes.values() if one.text == text and one.state == state]
        return found

    def again(self) -> list[Decision]:
        return plan(self.memory, list(self.memory.insights.values()), now=NOW, run="again")


def dreamt(*insights: Insight) -> World:
    world = World()
    world.dream(*insights)
    assert world.again() == []
    return world


# -- which insights become notes


@pytest.mark.parametrize(
    "type",
    ["decision", "rejection", "finding", "constraint", "correction", "preference", "procedure", "failure_fix", "open_loop"],
)
def test_what_a_user_said_becomes_a_note_with_its_evidence(type: str) -> None:
    one = said("we use pnpm here", type=type)
    found = dreamt(one).the("we use pnpm here")
    assert (found.kind, found.project, found.insights, found.evidence) == (type, "p", (one.id,), one.evidence)
    assert (found.first_at, found.last_at) == (day(1), day(1))


@pytest.mark.parametrize("type", ["evidence", "hypothesis"])
def test_a_guess_or_a_measurement_alone_is_no_note_and_two_sessions_make_it_one(type: str) -> None:
    """D37: only what holds is remembered."""
    world = dreamt(said("it may be the vsync", 1, type))
    assert world.texts() == []
    world.dream(said("it may be the vsync", 2, type))
    assert world.texts() == ["it may be the vsync"]


def test_an_agents_unsure_finding_is_no_note() -> None:
    assert dreamt(said("the cache is stale", type="finding", author="agent", confidence=0.3)).texts() == []
    assert dreamt(said("the cache is stale", type="finding", author="agent", confidence=0.7)).texts() == ["the cache is stale"]


def test_notes_belong_to_their_project() -> None:
    world = dreamt(said("use tabs", project="p"), said("use tabs", type="constraint", project="q"))
    assert world.texts(project="p") == ["use tabs"] and world.texts(project="q") == ["use tabs"] and world.texts(project="") == []


# -- one note with more evidence


def test_the_same_fact_in_other_words_is_one_note_with_more_evidence() -> None:
    """D24"""
    world = dreamt(said("we use pnpm here", 1), said("Use pnpm.", 2), said("please use pnpm in this repo!", 2))
    found = world.the("we use pnpm here")
    assert (found.sessions, len(found.evidence), found.last_at) == (2, 3, day(2))
    world.dream(said("always use pnpm", 3))
    assert world.texts() == ["we use pnpm here"] and world.the("we use pnpm here").sessions == 3
    assert "3 sessions" in world.decided[-1].body["reason"]


def test_a_users_words_replace_an_agents_and_a_rule_replaces_a_finding() -> None:
    world = dreamt(said("The tests need docker", 1, "finding", author="agent", confidence=0.9))
    world.dream(said("tests need docker!", 2, "constraint"))
    found = world.the("tests need docker!")
    assert (found.kind, found.author, found.sessions) == ("constraint", "user", 2) and len(world.memory.notes) == 1


def test_what_a_hand_has_worded_keeps_its_words() -> None:
    world = dreamt(said("use tabs", 5))
    id = world.the("use tabs").id
    world.event(Kind.NOTE_EDITED, day(6), id=id, text="use tabs, always", reason="by hand")
    world.dream(said("we use tabs", 1))
    assert world.texts() == ["use tabs, always"] and world.again() == []


def test_a_note_that_was_edited_swallows_its_old_words_until_the_user_says_them_anew() -> None:
    world = dreamt(said("use node 18", 1))
    world.event(Kind.NOTE_EDITED, day(5), id=world.the("use node 18").id, text="use node 20", reason="by hand")
    world.dream(said("use node 18", 3, session="late"))
    world.dream(said("use node 18", 7, author="agent"))
    assert world.texts() == ["use node 20"]
    world.dream(said("use node 18", 9))
    assert world.texts() == ["use node 18"] and world.again() == []


def test_what_differs_in_a_number_a_name_or_a_sign_is_never_merged() -> None:
    """D5"""
    texts = ["session sess-1 is slow", "session sess-12 is slow", "session Sess-1 is slow", "run make -k", "run make -j"]
    assert dreamt(*(said(text) for text in texts)).texts() == sorted(texts)


def test_today_is_another_fact_on_another_day() -> None:
    """D14: days come from the records."""
    world = dreamt(said("no deploys today", 1), said("no deploys today", 2), said("No deploys today.", 2, session="other"))
    assert len(world.texts()) == 2


def test_a_note_that_says_all_of_another_and_more_takes_its_place() -> None:
    world = dreamt(said("use pnpm", 1))
    world.dream(said("use pnpm, the CI rejects a package-lock.json", 2))
    found = world.the("use pnpm, the CI rejects a package-lock.json")
    assert world.texts() == [found.text] and found.sessions == 2
    assert world.the("use pnpm", note.SUPERSEDED).by == found.id
    assert world.again() == []


def test_other_words_for_the_same_are_two_notes_until_a_model_links_them() -> None:
    """M9"""
    one, other = said("begin the worker before the tests", 2), said("Start the worker before the tests.", 1, session="python:x")
    world = dreamt(one, other)
    assert len(world.texts()) == 2
    world.event(Kind.INSIGHT_LINKED, id=one.id, op="same", other=other.id, reason="the same", run="r")
    for kind, body in world.again():
        world.event(kind, **body)
    assert world.texts() == [other.text] and world.again() == []
    kept, gone = world.the(other.text), world.the(one.text, note.SUPERSEDED)
    assert set(kept.insights) == {one.id, other.id} and gone.by == kept.id and kept.sessions == 2
    assert "in other words" in gone.history[-1].why


def test_an_agent_that_says_more_does_not_speak_for_a_user() -> None:
    world = dreamt(said("use pnpm", 1), said("use pnpm, the CI rejects a package-lock.json", 2, author="agent"))
    assert world.the("use pnpm").author == "user" and world.the("use pnpm, the CI rejects a package-lock.json").author == "agent"


def test_words_that_were_rejected_are_replaced_by_those_of_who_said_it_next() -> None:
    world = dreamt(first := said("we use pnpm here", 1), said("Use pnpm.", 2))
    world.event(Kind.INSIGHT_REJECTED, id=first.id, reason="said in jest")
    for kind, body in world.again():
        world.event(kind, **body)
    assert world.texts() == ["Use pnpm."] and len(world.memory.notes) == 1 and world.again() == []


# -- newer contradicts older


def test_the_newer_word_supersedes_the_older_and_both_are_kept_with_the_reason() -> None:
    """D38"""
    old, new = said("we use node 18", 1, "decision"), said("we use node 20", 5, "decision")
    for order in ([old, new], [new, old]):
        world = World()
        for one in order:
            world.dream(one)
        was = world.the("we use node 18", note.SUPERSEDED)
        assert world.texts() == ["we use node 20"] and was.by == world.the("we use node 20").id
        why = was.history[-1].why
        assert "the user, " + day(5)[:10] in why and "we use node 20" in why
        assert world.again() == []


def test_record_time_decides_and_not_the_order_of_dreaming() -> None:
    """D14 D19"""
    world = dreamt(said("never deploy on fridays", 9), said("we deploy on fridays", 3))
    assert world.texts() == ["never deploy on fridays"]


def test_times_are_compared_as_times_however_they_are_written() -> None:
    early = said("use tabs")._replace(said_at="2026-03-01T23:30:00+02:00")
    late = said("don't use tabs")._replace(said_at="2026-03-01T22:00:00.5Z")
    assert dreamt(early, late).texts() == ["don't use tabs"]


def test_a_user_outranks_an_agent_whoever_spoke_last() -> None:
    world = dreamt(said("use tabs", 1), said("don't use tabs", 9, author="agent"))
    assert world.texts() == ["use tabs"]
    world = dreamt(said("use tabs", 9, author="agent"), said("don't use tabs", 1))
    assert world.texts() == ["don't use tabs"]


def test_two_that_were_said_at_the_same_time_are_both_kept_and_that_is_said() -> None:
    world = dreamt(said("use tabs", 1, session="a"), said("don't use tabs", 1, session="b"))
    assert world.texts() == ["don't use tabs", "use tabs"]
    assert any("at the same time" in one.body["reason"] for one in world.decided)


def test_within_one_session_the_later_message_counts_though_no_time_is_known() -> None:
    first, second = said("use tabs", -1, session="a", seq="9"), said("don't use tabs", -1, session="a", seq="10.2")
    assert dreamt(first, second).texts() == ["don't use tabs"]


def test_who_goes_back_to_the_first_way_has_the_first_way() -> None:
    world = World()
    for on, text in enumerate(["use tabs", "use spaces, not tabs", "use tabs", "use spaces, not tabs", "we use tabs"]):
        world.dream(said(text, on))
        assert world.texts() == [text if on != 4 else "use tabs"]
    assert len(world.memory.notes) == 5 and world.again() == []


def test_a_rejected_insight_supersedes_nothing_any_more() -> None:
    world = dreamt(said("use tabs", 1), wrong := said("don't use tabs", 2))
    world.event(Kind.INSIGHT_REJECTED, id=wrong.id, reason="misheard")
    for kind, body in world.again():
        world.event(kind, **body)
    assert world.texts() == ["use tabs"] and world.again() == []


def test_a_pinned_note_is_not_superseded_by_a_dream_and_that_is_said() -> None:
    """D17"""
    world = dreamt(said("use tabs", 1))
    world.event(Kind.NOTE_PINNED, id=world.the("use tabs").id)
    decided = world.dream(said("don't use tabs", 2))
    assert world.texts() == ["don't use tabs", "use tabs"] and "pinned" in decided[-1].body["reason"]
    world.dream(said("forget the tabs rule", 3))
    assert "use tabs" in world.texts() and world.again() == []


# -- taken back, done, gone by hand


def test_what_a_user_takes_back_is_retracted_and_a_newer_word_brings_it_back() -> None:
    world = dreamt(said("TX power stays at 0 dBm on v2", 1), said("use tabs", 1))
    world.dream(said("forget the TX power rule", 5, "correction"))
    assert (
        world.texts() == ["use tabs"]
        and "forget the TX power" in world.the("TX power stays at 0 dBm on v2", note.RETRACTED).history[-1].why
    )
    world.dream(said("forget the tabs rule", 6, "correction", author="agent"))
    assert world.texts() == ["use tabs"], "an agent takes nothing back"
    world.dream(said("TX power stays at 0 dBm on v2", 9))
    assert "TX power stays at 0 dBm on v2" in world.texts() and world.again() == []


@pytest.mark.parametrize("author", ["user", "agent"])
def test_what_a_hand_retracted_never_comes_back_by_itself(author: str) -> None:
    """M10"""
    world = dreamt(said("use tabs", 1))
    world.event(Kind.NOTE_RETRACTED, day(3), id=world.the("use tabs").id, reason="deleted from the page")
    world.dream(said("we use tabs!", 5, author=author), said("we use tabs", 6, "preference", author=author))
    assert world.texts() == [] and world.again() == []
    world.dream(said("use tabs", 2, source="cli"))
    assert world.texts() == [], "the user's hand came later"
    world.dream(said("use tabs", 8, source="cli"))
    assert world.texts() == ["use tabs"], "said by hand, it is the user's wish"


def test_a_rejected_insight_never_comes_back_by_itself() -> None:
    """D28"""
    world = dreamt(one := said("use tabs", 1, author="agent"))
    world.event(Kind.INSIGHT_REJECTED, id=one.id, reason="no")
    world.dream(said("we use tabs", 5, author="agent"), said("Use tabs.", 6))
    assert world.texts() == []
    world = dreamt(one := said("it is the vsync", 1, "hypothesis"))
    world.event(Kind.INSIGHT_REJECTED, id=one.id, reason="no")
    world.dream(said("it's the vsync", 5, "finding"))
    assert world.texts() == [], "though it never was a note"


def test_what_is_taken_back_and_what_takes_its_place_are_both_heard() -> None:
    """M9: the old rule must not stay, and the last word must not be lost."""
    world = dreamt(said("When there is no invoice, return a 404 rather than an empty file.", 1))
    world.dream(said("Forget what I said about the 404, it should be 204.", 2, "correction"))
    assert world.texts() == ["Forget what I said about the 404, it should be 204."]
    assert dreamt(said("Forget about the cache.", 1, "correction")).texts() == [], "that alone is nothing to remember"


def test_a_loop_that_an_earlier_version_closed_stays_closed_until_somebody_says_it_again() -> None:
    """Earlier versions closed loops by words."""
    world = dreamt(loop := said("we still have to drop the jobs table", 3, "open_loop"))
    closed = world.the("we still have to drop the jobs table")
    world.event(Kind.NOTE_CLOSED, day(4), id=closed.id, reason="done", run="r")
    assert world.again() == [] and world.texts() == []
    world.dream(loop._replace(id="i-again", said_at=day(9)))
    assert "we still have to drop the jobs table" in world.texts()


def test_a_suggestion_that_nobody_confirms_expires_by_record_time() -> None:
    """D28: and not by the clock."""
    world = dreamt(said("run make before you push", 1, "decision", author="agent"))
    assert world.texts() == ["run make before you push"], "NOW is a year later, and nothing was said since"
    world.dream(said("use tabs", 20))
    assert len(world.texts()) == 2
    world.dream(said("something else entirely", 40))
    assert "run make before you push" not in world.texts()
    assert [one.state for one in world.memory.insights.values()] == ["expired", "confirmed", "confirmed"]
    world.dream(said("Run make before you push", 41, "decision", author="agent"))
    found = world.the("run make before you push")
    assert found.sessions == 2 and world.again() == []
    assert {one.state for one in world.memory.insights.values()} == {"confirmed"}


def test_a_command_that_an_agent_ran_is_a_note_only_when_two_sessions_show_it() -> None:
    ran = "Tests run with `make check`."
    world = dreamt(said(ran, 1, "procedure", author="agent", session="a"))
    assert world.texts() == []
    world.dream(said(ran, 2, "procedure", author="agent", session="a"))
    assert world.texts() == [], "the same session shows nothing new"
    world.dream(said(ran, 3, "procedure", author="agent", session="b"))
    assert world.the(ran).sessions == 2
    assert dreamt(said("run make before you push", 1, "procedure")).texts() == ["run make before you push"], "a user says it once"


def test_a_record_from_the_future_makes_nothing_old() -> None:
    world = dreamt(said("run make before you push", 1, "decision", author="agent"))
    world.dream(said("use tabs")._replace(said_at="2099-01-01T00:00:00Z"))
    assert len(world.texts()) == 2


def test_suggestions_are_confirmed_by_a_second_session_or_by_a_user() -> None:
    """D28"""
    world = dreamt(said("run make", 1, author="agent", session="a"), said("Run make.", 2, author="agent", session="a"))
    assert {one.state for one in world.memory.insights.values()} == {"suggested"}
    world.dream(said("run make", 3, author="agent", session="b"))
    assert {one.state for one in world.memory.insights.values()} == {"confirmed"}
    assert {one.state for one in dreamt(said("use tabs")).memory.insights.values()} == {"confirmed"}


# -- loss


def test_the_loss_is_the_part_of_the_active_notes_that_nothing_says_any_more() -> None:
    """M11 D37"""
    rules = [said(f"service{n} uses port {n}00", 1) for n in range(1, 9)]
    world = dreamt(*rules)
    changes = [said(f"service{n} doesn't use port {n}00", 5) for n in range(1, 5)]
    decided = plan(world.memory, changes, now=NOW, run="r")
    assert len(lost(world.memory, decided)) == 4 and loss(world.memory, decided) == 0.5
    few = plan(world.memory, changes[:2], now=NOW, run="r")
    assert len(lost(world.memory, few)) == 2 and loss(world.memory, few) == 0.0, "people change their minds"


def test_what_is_kept_in_a_fuller_note_is_not_lost() -> None:
    world = dreamt(said("use pnpm", 1))
    decided = plan(world.memory, [said("use pnpm, the CI rejects a package-lock.json", 2)], now=NOW, run="r")
    assert Kind.NOTE_SUPERSEDED in {one.kind for one in decided}
    assert lost(world.memory, decided) == []


# -- order


TEXTS = [
    "use tabs",
    "we use tabs here",
    "don't use tabs",
    "use spaces, not tabs",
    "use tabs, the linter wants it",
    "tabs, except in Makefiles",
    "forget the tabs rule",
    "use node 18",
    "use node 20",
    "now use node 22 in ci",
    "the timeout is 30 s",
    "the timeout is now 60 s",
    "we still have to drop the jobs table",
    "dropped the jobs table",
    "jobs live in Postgres, not Redis",
    "we're moving jobs to Redis after all",
    "keep answers short",
    "I prefer short answers",
    "no deploys today",
    "it might be the vsync",
    "start the worker before the tests",
    "begin the worker before the tests",
    "don't begin the worker before the tests",
    "begin the worker before the tests, it is slow",
]
TYPES = ["constraint", "preference", "decision", "correction", "finding", "evidence", "hypothesis", "open_loop", "procedure"]


@st.composite
def sayings(draw: st.DrawFn) -> list[Insight]:
    """Sessions lie apart in time; who said what when is free."""
    found = []
    for n in range(draw(st.integers(1, 9))):
        text = draw(st.sampled_from(TEXTS))
        session = draw(st.integers(0, 4))
        on = draw(st.sampled_from([3, 10, 20, 50, 90])) if draw(st.booleans()) else 3 + 20 * session
        type = draw(st.sampled_from(TYPES))
        author = draw(st.sampled_from(["user", "agent"]))
        project = draw(st.sampled_from(["p", "p", "p", "q"]))
        one = said(text, on, type, f"python:{session}", author, project=project, seq=str(n + 1), confidence=0.6)
        found.append(one)
    return list({one.id: one for one in found}.values())


def active(world: World | Journal) -> set[tuple[str, str, str, frozenset[str]]]:
    return {
        (one.project, one.kind, one.text, frozenset(one.insights))
        for one in world.memory.notes.values()
        if one.state == note.ACTIVE
    }


def states(world: World | Journal) -> dict[str, str]:
    return {one.id: one.state for one in world.memory.insights.values()}


@settings(max_examples=200)
@given(insights=sayings(), chance=st.randoms(use_true_random=False))
def test_the_order_of_dreaming_makes_no_difference_and_nothing_is_planned_twice(
    insights: list[Insight], chance: random.Random
) -> None:
    """D24: one by one, all at once, in any order: the same active notes; and planning again gives nothing."""
    together = World()
    together.dream(*insights)
    assert together.again() == []
    shuffled = list(insights)
    chance.shuffle(shuffled)
    for order in (insights, shuffled):
        world = World()
        for one in order:
            world.dream(one)
            assert plan(world.memory, [one], now=NOW, run="x") == []
        assert world.again() == []
        assert active(world) == active(together)
        assert states(world) == states(together)


def _without(memory: Memory, gone: str) -> Memory:
    """What added it was undone: the fold began again."""
    left = Memory()
    for one in memory.insights.values():
        if one.id != gone:
            left._put("insights", one.id, one)
    for noted in memory.notes.values():
        if gone not in noted.insights:
            left._put("notes", noted.id, noted)
    return left


@settings(max_examples=200)
@given(sayings(), st.randoms(use_true_random=False))
def test_who_plans_again_and_again_plans_what_one_who_begins_anew_plans(insights: list[Insight], chance: random.Random) -> None:
    """Also when hands are on the notes in between, and when a run is undone."""
    kept, world = Consolidating(), World()
    for one in insights:
        if chance.random() < 0.2:
            world.memory = world.memory.copy()  # read again by somebody: what it holds is the same
        for told in [one] if chance.random() < 0.8 else []:
            world.event(Kind.INSIGHT_ADDED, **told.as_json())
        decided = kept.plan(world.memory, [one], now=NOW, run="r")
        assert decided == plan(world.memory, [one], now=NOW, run="r")
        for kind, body in decided if one.id in world.memory.insights else []:
            world.event(kind, **body)
        for noted in list(world.memory.notes.values()):
            act = chance.choice([Kind.NOTE_PINNED, Kind.NOTE_RETRACTED, Kind.NOTE_EDITED, Kind.NOTE_CLOSED, "", "", "", "", ""])
            if act:
                world.event(act, day(chance.randint(1, 60)), id=noted.id, text="use " + chance.choice(TEXTS), reason="by hand")
        if chance.random() < 0.1 and world.memory.insights:
            world.event(Kind.INSIGHT_REJECTED, id=chance.choice(sorted(world.memory.insights)), reason="wrong")
        if chance.random() < 0.1 and world.memory.insights:
            gone = chance.choice(sorted(world.memory.insights))
            world.memory = _without(world.memory, gone)
    every = list(world.memory.insights.values())
    assert kept.plan(world.memory, every, now=NOW, run="x") == plan(world.memory, every, now=NOW, run="x")


class Journal:
    """Runs that are journaled and undone, as the keep does it."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @property
    def memory(self) -> Memory:
        return fold(self.events)

    def dream(self, run: str, insights: list[Insight]) -> None:
        self._say(Kind.DREAM_STARTED, {"run": run, "trigger": "manual", "sessions": []})
        for one in insights:
            self._say(Kind.INSIGHT_ADDED, {**one.as_json(), "run": run})
        for kind, body in plan(self.memory, insights, now=NOW, run=run):
            self._say(kind, body)

    def undo(self, run: str) -> None:
        before = self.memory
        self._say(Kind.DREAM_UNDONE, {"run": run})
        for kind, body in rethought(before, self.memory, run, NOW):
            self._say(kind, body)

    def _say(self, kind: str, body: dict[str, Any]) -> None:
        self.events.append(Event(f"e-{len(self.events)}", kind, NOW, body))


@settings(max_examples=300)
@given(sayings(), st.randoms(use_true_random=False))
def test_a_run_that_was_undone_leaves_what_would_be_there_without_it(insights: list[Insight], chance: random.Random) -> None:
    """M11: whatever later runs said, and whichever runs are undone in whichever order, before or after others."""
    times = sorted({one.said_at or "" for one in insights})
    heard: dict[str, list[Insight]] = {}
    for one in insights:
        # Over some months: what is old beside one that is undone is not, by that.
        then = one._replace(run=one.evidence[0].session, said_at=day(9 * times.index(one.said_at or "")))
        heard.setdefault(then.run, []).append(then)
    journal, undone = Journal(), set()
    for n, (run, said_in) in enumerate(heard.items(), 1):
        journal.dream(run, said_in)
        for gone in [one for one in list(heard)[:n] if one not in undone and chance.random() < 0.3]:
            journal.undo(gone)
            undone.add(gone)
    without = Journal()
    for run, said_in in heard.items():
        if run not in undone:
            without.dream(run, said_in)
    assert active(journal) == active(without)
    assert states(journal) == states(without)
    assert plan(journal.memory, list(journal.memory.insights.values()), now=NOW, run="again") == []


@settings(max_examples=100)
@given(sayings())
def test_no_two_active_notes_say_the_same_and_each_rests_on_something(insights: list[Insight]) -> None:
    world = World()
    world.dream(*insights)
    found = [one for one in world.memory.notes.values() if one.state == note.ACTIVE]
    keys = [(one.project, one.kind == "open_loop", one.text if alike.dated(one.text) else alike.key(one.text)) for one in found]
    assert len(keys) - len(set(keys)) <= sum(alike.dated(one.text) for one in found)
    assert all(one.insights and one.evidence for one in found)
    for one in world.memory.notes.values():
        assert not one.by or one.by in world.memory.notes
        assert all(step.why for step in one.history)


def test_planning_is_the_same_each_time() -> None:
    insights = [said(text, n) for n, text in enumerate(TEXTS)]
    plans = [plan(Memory(), order, now=NOW, run="r") for order in (insights, insights[::-1], insights[7:] + insights[:7])]
    assert plans[0] == plans[1] == plans[2]


# -- worth


def noted(text: str = "t", **more: Any) -> Note:
    return Note(
        "n-1",
        **{"kind": "constraint", "text": text, "sessions": 1, "author": "user", "first_at": day(1), "last_at": day(1), **more},
    )


def test_more_voices_a_user_and_a_fresher_word_are_worth_more_and_a_pin_most() -> None:
    """D19"""
    newest = day(300)
    base = score(noted(), newest)
    for better in ({"sessions": 4}, {"last_at": day(200)}, {"confidence": 0.9}, {"pinned": True}):
        assert score(noted(**better), newest) > base, better
    assert score(noted(author="agent"), newest) < base and score(noted(kind="finding"), newest) < base
    assert score(noted(kind="hypothesis", pinned=True), newest) > score(noted(sessions=1000, last_at=newest), newest)
    assert score(noted(), newest, uses=5) > base


def test_a_rest_of_the_keep_costs_no_worth() -> None:
    assert score(noted(), day(1)) == score(noted(first_at=day(50), last_at=day(50)), day(50))


def test_times_in_any_zone_are_comparable_and_what_is_no_time_is_none() -> None:
    assert epoch_seconds("nonsense") is None and epoch_seconds(None) is None and epoch_seconds("") is None
    assert (
        epoch_seconds("2026-01-01T00:00:00Z")
        == epoch_seconds("2026-01-01T01:00:00+01:00")
        == epoch_seconds("2026-01-01 00:00:00")
    )
    assert days_between(day(0), day(10)) == 10 and days_between(None, day(1)) == 0
    assert newest_of([day(3), None, day(5), "x", "2099-01-01T00:00:00Z"], NOW) == day(5)
    assert newest_of([]) is None


@pytest.mark.parametrize("others", [False, True])
def test_what_is_old_only_beside_a_run_that_is_undone_is_young_again(others: bool) -> None:
    """D28: a later run read an older session, whose suggestion had expired beside the first run's record. `others`: beside a
    third one's it still has."""
    suggested = said("run make before you push", 1, "decision", author="agent")
    journal = Journal()
    journal.dream("r1", [said("use tabs", 60, run="r1")])
    journal.dream("r2", [suggested._replace(run="r2")])
    if others:
        journal.dream("r3", [said("use semicolons", 61, run="r3")])
    assert journal.memory.insights[suggested.id].state == "expired"
    journal.undo("r1")
    memory = journal.memory
    assert memory.insights[suggested.id].state == ("expired" if others else "suggested") and not memory.malformed
    assert [one.state for one in memory.notes.values() if one.text == suggested.text] == ([] if others else ["active"])
    assert plan(memory, list(memory.insights.values()), now=NOW, run="again") == []


@pytest.mark.parametrize("newer", ["the port must be 9000", "forget that the port must be 8443, use 9000"])
def test_what_a_user_rejected_overrules_and_takes_back_nothing_when_it_is_said_again(newer: str) -> None:
    older = said("the port must be 8443", 1, run="r1")
    wrong = said(newer, 2, run="r2")
    journal = Journal()
    journal.dream("r1", [older])
    journal.dream("r2", [wrong])
    assert [one.text for one in journal.memory.notes.values() if one.state == "active"] == [newer]
    journal._say(Kind.INSIGHT_REJECTED, {"id": wrong.id, "reason": ""})
    journal.dream("r3", [said(newer, 3, run="r3"), older])
    assert [one.text for one in journal.memory.notes.values() if one.state == "active"] == [older.text]
