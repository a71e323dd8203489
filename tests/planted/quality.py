"""How good a backend is on the written sessions: `make quality`.

    precision   of what it proposed and was not optional, how much was wanted
    recall      of what was wanted, how much it proposed

A proposal is right if it meets something wanted; wrong if it meets nothing, or rests on a decoy. What is optional counts neither
way. Subagents' sessions are left out, as a dream leaves them out. `-v` says what was wrong and what was missed; names of sessions
behind it choose among them. Of the set that is held out only totals are told.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from dreamkeep import Keep
from dreamkeep.dream.backfill import Known, checked
from dreamkeep.dream.given import Backend, Given, Said, TaskGiven, TurnGiven
from dreamkeep.dream.rules import Rules
from dreamkeep.memory.insight import TYPES, Insight
from tests.planted import into, written
from tests.planted.written import Wanted, Written

FOLDER = Path(__file__).parent
PRECISION, RECALL = 0.95, 0.8
#: Whoever works on the rules sees their totals only; else they would say nothing about other sessions.
HELD_OUT = ("third", "fourth", "fifth", "sixth", "ninth", "tenth")


class Judged(NamedTuple):
    """What a backend made of one session. `dropped`: proposals that did not hold (their quote, their type …)."""

    session: Written
    right: tuple[Insight, ...]
    optional: tuple[Insight, ...]
    wrong: tuple[Insight, ...]
    met: tuple[Wanted, ...]
    missed: tuple[Wanted, ...]
    dropped: int


class Score(NamedTuple):
    right: int
    wrong: int
    met: int
    missed: int

    @property
    def precision(self) -> float:
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        return self.met / (self.met + self.missed) if self.met + self.missed else 1.0


def halves() -> dict[str, list[Written]]:
    """By the folder's name."""
    found = {place.name: written.load(place) for place in sorted(FOLDER.iterdir()) if any(place.glob("*.json"))}
    return {name: sessions for name, sessions in found.items() if sessions}


def captured(sessions: Sequence[Written], folder: Path) -> Iterator[tuple[Written, Given]]:
    """Each session as a backend is given it, having gone all the way through the agent's own format."""
    into.write(sessions, folder / "home")
    with Keep.open(folder / "keep", environment={}) as keep:
        list(keep.ingest(home=folder / "home"))
        into.record(sessions, keep)
        for session in sessions:
            yield session, given(keep.show(session.id))


def given(shown: dict[str, Any]) -> Given:
    about = shown["session"]
    states = {turn["id"]: turn["state"] for turn in shown["turns"]}
    groups: list[tuple[str, list[Said]]] = []
    for one in shown["messages"]:
        said = Said(str(one["seq"]), one["role"], one["text"], one.get("at"), one.get("tool"), one.get("mark") or "")
        if groups and one.get("turn") in (None, groups[-1][0]):
            groups[-1][1].append(said)
        else:
            groups.append((one.get("turn") or "", [said]))
    turns = tuple(TurnGiven(name, states.get(name, ""), tuple(messages)) for name, messages in groups)
    tasks = (TaskGiven("t-0", about.get("title") or ""),)
    return Given(
        about["id"], about["agent"], about.get("project") or "", about.get("cwd") or "", about.get("title") or "", tasks, turns
    )


def judge(session: Written, what: Given, backend: Backend) -> Judged:
    answer = backend.backfill(what)
    insights, dropped = checked(answer, what, Known(), run="r", redact=str, trusted=isinstance(backend, Rules))
    right, optional, wrong = [], [], []
    for one in insights:
        if _meets(one, session.expect):
            right.append(one)
        elif _on_a_decoy(one, session) or not _meets(one, session.optional):
            wrong.append(one)
        else:
            optional.append(one)
    met = tuple(wanted for wanted in session.expect if any(wanted.is_met_by(one.type, one.text) for one in insights))
    missed = tuple(wanted for wanted in session.expect if wanted not in met)
    return Judged(session, tuple(right), tuple(optional), tuple(wrong), met, missed, sum(dropped.values()))


def _meets(one: Insight, wanted: Sequence[Wanted]) -> bool:
    return any(each.is_met_by(one.type, one.text) for each in wanted)


def _on_a_decoy(one: Insight, session: Written) -> bool:
    """Also where its words would do: what it rests on is nothing to rest on."""
    quotes = [quote.quote.strip() for quote in one.evidence[:1]]
    return any(quote in decoy or decoy in quote for quote in quotes for decoy in session.decoys)


def score(judged: Sequence[Judged]) -> Score:
    return Score(
        sum(len(one.right) for one in judged),
        sum(len(one.wrong) for one in judged),
        sum(len(one.met) for one in judged),
        sum(len(one.missed) for one in judged),
    )


def by_type(judged: Sequence[Judged]) -> dict[str, Score]:
    """What is wanted may be of several types: if it was met it counts for the one that met it, else for the first."""
    right, wrong, met, missed = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for one in judged:
        right.update(insight.type for insight in one.right)
        wrong.update(insight.type for insight in one.wrong)
        for wanted in one.met:
            met[
                next(found.type for found in (*one.right, *one.optional, *one.wrong) if wanted.is_met_by(found.type, found.text))
            ] += 1
        missed.update(next(kind for kind in TYPES if kind in wanted.types) for wanted in one.missed)
    return {kind: Score(right[kind], wrong[kind], met[kind], missed[kind]) for kind in TYPES}


def measured(sessions: Sequence[Written], backend: Backend, folder: Path) -> list[Judged]:
    return [judge(session, what, backend) for session, what in captured(sessions, folder)]


def _table(name: str, judged: Sequence[Judged]) -> Iterator[str]:
    whole = score(judged)
    yield f"{name}: {len(judged)} sessions, {sum(one.dropped for one in judged)} proposals did not hold"
    yield f"  {'type':12} {'right':>6} {'wrong':>6} {'met':>6} {'missed':>7} {'precision':>10} {'recall':>7}"
    for kind, one in [*by_type(judged).items(), ("all", whole)]:
        yield (f"  {kind:12} {one.right:6} {one.wrong:6} {one.met:6} {one.missed:7} {one.precision:10.3f} {one.recall:7.3f}")


def _details(judged: Sequence[Judged]) -> Iterator[str]:
    for one in judged:
        for insight in one.wrong:
            yield f"  wrong   {one.session.name}: {insight.type}: {insight.text!r}"
        for wanted in one.missed:
            yield f"  missed  {one.session.name}: {'/'.join(sorted(wanted.types))}: {wanted.quote!r}"


def main(words: Sequence[str]) -> int:
    worst = 0
    names = [word for word in words[1:] if word != "-v"]
    for name, sessions in halves().items():
        chosen = [one for one in sessions if not names or any(one.name.startswith(word) for word in names)]
        if not chosen:
            continue
        with TemporaryDirectory() as folder:
            judged = measured(chosen, Rules(), Path(folder))
        print("\n".join(_table(name, judged)))
        if "-v" in words and name not in HELD_OUT:
            print("\n".join(_details(judged)))
        whole = score(judged)
        worst |= whole.precision < PRECISION or whole.recall < RECALL
    return int(worst)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
