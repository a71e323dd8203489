"""After a run was undone: what it had decided is decided again, by what is left. Pure.

A later run that said the same had nothing to decide any more: X was superseded by Y already. Without the first run both would be
active. Or what the later run found was overruled or taken back by Y, and holds now that Y is gone. It may have no note, and none
that names the first run. So everything that the first run's insights touched is decided again, too, and what was confirmed or
expired because of them.

What follows now rests on what the later run found, so it counts as that run's: if that is undone, too, so is this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dreamkeep.dream.consolidate import fact_index
from dreamkeep.dream.consolidate.consolidate import Decision, near, plan
from dreamkeep.event import Kind
from dreamkeep.memory.insight import Insight
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.note import Note


def rethought(before: Memory, after: Memory, run: str, now: str) -> list[Decision]:
    """`before`, `after`: what is remembered with that run, and without it."""
    settled = [id for one in before.notes.values() if _has_part_in(before, one, run) for id in one.insights]
    said = [one for one in before.insights.values() if one.run == run]
    return thought_over(before, after, settled, said, now)


def thought_over(before: Memory, after: Memory, settled: Iterable[str], said: Sequence[Insight], now: str) -> list[Decision]:
    """What follows when these insights (`said`) do not count any more. `settled`: ids of others that are decided again."""
    judged = [id for id, one in after.insights.items() if id in before.insights and before.insights[id].state != one.state]
    touched = dict.fromkeys((*settled, *judged, *(one.id for one in near(before, said, now=now))))
    left = [after.insights[id] for id in touched if id in after.insights]
    decisions = plan(after, left, now=now, run="")
    made = {str(one.body["id"]): one.body["insights"] for one in decisions if one.kind == Kind.NOTE_ADDED}

    def whose(decision: Decision) -> str:
        about = str(decision.body.get("by") or decision.body["id"])
        rests = made.get(about) or (after.notes[about].insights if about in after.notes else [about])
        return _whose(after.insights[id] for id in (*rests, *decision.body.get("insights", ())) if id in after.insights)

    return [Decision(one.kind, {**one.body, "run": whose(one)}) for one in decisions]


def _has_part_in(memory: Memory, one: Note, run: str) -> bool:
    rests: Sequence[Insight] = [memory.insights[id] for id in one.insights if id in memory.insights]
    return any(step.run == run for step in one.history) or any(found.run == run for found in rests)


def _whose(insights: Iterable[Insight]) -> str:
    """The run that found the last of them; of what somebody stated outright, that insight itself."""
    last = max(insights, key=lambda one: (fact_index.seconds_of(one), one.id), default=None)
    return "" if last is None else last.run or last.id
