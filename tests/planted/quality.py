"""What the rules take of the written sessions: `make quality`. `-v` says which of it nobody expects.

taken     standing sentences of users that become insights
expected  of these, how many an author expects, or allows
decoys    of these, how many rest on words that only sound like it: there must be none
planted   what the authors expect; most of it takes a model to read
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from dreamkeep import Keep
from dreamkeep.dream.backends.api import Given, GivenMessage, TaskGiven, TurnGiven
from dreamkeep.dream.backends.checks import KnownInsights, checked
from dreamkeep.dream.backends.rules.rules import Rules
from dreamkeep.memory.insight import USER, Insight
from tests.planted import into, written
from tests.planted.written import Written

FOLDER = Path(__file__).parent


class Taken(NamedTuple):
    """What the rules take of one session's talk."""

    session: Written
    expected: tuple[Insight, ...]
    others: tuple[Insight, ...]
    on_decoys: tuple[Insight, ...]


def sets() -> dict[str, list[Written]]:
    """By the folder's name."""
    return {place.name: written.load(place) for place in sorted(FOLDER.iterdir()) if any(place.glob("*.json"))}


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
    groups: list[tuple[str, list[GivenMessage]]] = []
    for one in shown["messages"]:
        said = GivenMessage(str(one["seq"]), one["role"], one["text"], one.get("at"), one.get("tool"), one.get("mark") or "")
        if groups and one.get("turn") in (None, groups[-1][0]):
            groups[-1][1].append(said)
        else:
            groups.append((one.get("turn") or "", [said]))
    turns = tuple(TurnGiven(name, states.get(name, ""), tuple(messages)) for name, messages in groups)
    title = about.get("title") or ""
    project, cwd = about.get("project") or "", about.get("cwd") or ""
    return Given(about["id"], about["agent"], project, cwd, title, (TaskGiven("t-0", title),), turns)


def taken(sessions: Sequence[Written], folder: Path) -> list[Taken]:
    return [_judged(session, what) for session, what in captured(sessions, folder)]


def _judged(session: Written, what: Given) -> Taken:
    insights, _ = checked(Rules().backfill(what), what, KnownInsights(), run="r", redact=str, trusted=True)
    said = [one for one in insights if one.author == USER]
    decoys = tuple(one for one in said if _on_a_decoy(one, session))
    wanted = (*session.expect, *session.optional)
    met = tuple(one for one in said if one not in decoys and any(each.is_met_by(one.type, one.text) for each in wanted))
    return Taken(session, met, tuple(one for one in said if one not in met and one not in decoys), decoys)


def _on_a_decoy(one: Insight, session: Written) -> bool:
    """Also where its words would do: what it rests on is nothing to rest on."""
    quotes = [quote.quote.strip() for quote in one.evidence[:1]]
    return any(quote in decoy or decoy in quote for quote in quotes for decoy in session.decoys)


def main(words: Sequence[str]) -> int:
    print(f"{'set':8} {'sessions':>9} {'taken':>6} {'expected':>9} {'decoys':>7} {'planted':>8}")
    worst = 0
    for name, sessions in sets().items():
        with TemporaryDirectory() as folder:
            found = taken(sessions, Path(folder))
        met, others = sum(len(one.expected) for one in found), sum(len(one.others) for one in found)
        decoys = sum(len(one.on_decoys) for one in found)
        planted = sum(len(one.expect) for one in sessions)
        print(f"{name:8} {len(sessions):9} {met + others + decoys:6} {met:9} {decoys:7} {planted:8}")
        worst += decoys
        for one in found if "-v" in words else ():
            for insight in (*one.others, *one.on_decoys):
                print(f"  {one.session.name}: {insight.type}: {insight.text!r}")
    return int(worst > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
