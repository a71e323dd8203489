"""What a search costs: at 10,000 and 100,000 messages (and, with --million, at 1,000,000), by words and by meaning.

The rows are put into an index directly: what is measured is the search, and how it grows. Texts are made of 40,000 words whose
frequencies fall as those of a language do, in sessions of about a hundred messages; queries are two to five words of one message,
frequent ones among them. Beside it, in turns, stands the least that can be asked of the same index: FTS5's ten best.

Measured is the whole but opening the keep: understanding the query, candidates, neighbours, sessions, order, the hits' texts.
Times are CPU time: a search waits for nothing (what it reads is in memory after the first ones), and other work does not count.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import time
from collections.abc import Sequence
from itertools import cycle

from bench.side_by_side import Goal, Table, arguments, milliseconds, ratio, say, workplace

from dreamkeep.index.searching import Within
from dreamkeep.index.sqlite import SqliteStore
from dreamkeep.index.store import FolderMark, IndexBatch, JournalPlace
from dreamkeep.index.words import terms
from dreamkeep.journal.reader import Position
from dreamkeep.recall.embed import installed
from dreamkeep.recall.query import read_query
from dreamkeep.recall.search import Meaning, Search
from dreamkeep.recall.vectors import Nearest, fill
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import empty

_NOW = "2026-06-01T00:00:00Z"
_VOCABULARY, _SAY_NOTHING, _IN_A_SESSION = 40_000, 100, 100
_GOALS = {("words", 100_000): Goal(10), ("hybrid", 100_000): Goal(30)}
_KINDS = ("message", "insight", "note")


class Words:
    """Texts whose words are as frequent as those of a language."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        made = random.Random(7)
        syllables = [c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"]
        self._words = ["".join(made.choice(syllables) for _ in range(2 + n % 3)) + str(n % 7 or "") for n in range(_VOCABULARY)]
        self._frequent = frozenset(self._words[:_SAY_NOTHING])
        total, self._sums = 0.0, []
        for n in range(_VOCABULARY):
            total += 1 / (n + 5)
            self._sums.append(total)

    def text(self) -> str:
        count = min(400, int(self._chance.lognormvariate(3.3, 0.8)) + 3)
        return " ".join(self._chance.choices(self._words, cum_weights=self._sums, k=count))

    def query(self, text: str) -> str:
        """Without the most frequent words, which say nothing, and which search leaves out by their names."""
        words = [word for word in text.split() if word not in self._frequent] or text.split()
        return " ".join(self._chance.sample(words, min(len(words), self._chance.randint(2, 5))))


def filled(path: str, messages: int) -> tuple[SqliteStore, list[str]]:
    """An index with so many messages, and some queries for it."""
    SqliteStore.create(path)
    store = SqliteStore(path)
    words = Words(messages)
    queries: list[str] = []
    for session in range(messages // _IN_A_SESSION):
        name = f"python:s{session}"
        said = [words.text() for _ in range(_IN_A_SESSION)]
        at = f"2026-{1 + session % 5:02d}-{1 + session % 28:02d}T10:00:00Z"
        rows = [Message(n + 2, 0, "user" if n % 2 else "assistant", text, at, f"t{n // 2}") for n, text in enumerate(said)]
        summary = empty(name)._replace(project=f"p{session % 10}", agent="python", messages=len(rows), last_at=at, started_at=at)
        place = JournalPlace(f"journal/{name}", name, Position(1, 1, 1, "0"), FolderMark(1, 1, 1, 1, 1))
        with store.writing():
            store.put(IndexBatch(place, summary, [], rows, []))
        if session % max(1, messages // _IN_A_SESSION // 200) == 0:
            queries.append(words.query(random.Random(session).choice(said)))
    return store, queries


def searched(store: SqliteStore, query: str, meaning: Meaning | None, within: Within = Within()) -> None:  # noqa: B008
    with store.reading():
        search = Search(store, read_query(query, _NOW), within, _NOW, meaning)
        search.read_texts(search.run(_KINDS, 10))


def timed(store: SqliteStore, queries: Sequence[str], meaning: Meaning | None, rounds: int) -> dict[str, list[float]]:
    """Seconds of every search; the sides take turns with each query."""
    times: dict[str, list[float]] = {"fts5": [], "words": [], "filtered": []}
    clock = time.process_time
    within = Within(project="p3")
    for _, query in zip(range(rounds), cycle(queries), strict=False):
        began = clock()
        store.best(terms(query), Within(), 10)
        times["fts5"].append(clock() - began)
        for side, chosen, where in (("words", None, Within()), ("hybrid", meaning, Within()), ("filtered", meaning, within)):
            if side != "hybrid" or meaning:
                began = clock()
                searched(store, query, chosen, where)
                times.setdefault(side, []).append(clock() - began)
    return times


def measured(table: Table, place: str, messages: int, rounds: int) -> None:
    path = f"{place}/index-{messages}.sqlite"
    say(f"putting {messages:,} messages into an index")
    store, queries = filled(path, messages)
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    size = os.path.getsize(path)
    texts = int(store._db.execute("SELECT sum(length(text)) FROM messages").fetchall()[0][0])
    embedder = installed()
    meaning = None
    if embedder:
        began = time.process_time()
        fill(store, embedder, messages)
        say(f"  embedded in {time.process_time() - began:.1f} s of CPU")
        meaning = Meaning(embedder, Nearest())
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with_vectors = os.path.getsize(path)
    for query in queries[:20]:
        searched(store, query, meaning)
    times = timed(store, queries, meaning, rounds)
    for side, found in times.items():
        goal = _GOALS.get((side, messages))
        p50, p95 = statistics.median(found) * 1e3, sorted(found)[int(len(found) * 0.95)] * 1e3
        table.fact(f"{side}, {messages:,} messages: p50 (p95)", f"{p50:.1f} ms ({p95:.1f})", goal, p50)
    for side in ("words", "hybrid"):
        if side in times:
            against = ratio(times[side], times["fts5"])
            middle = statistics.median(times[side])
            table.line(
                f"{side} against FTS5's ten best", milliseconds(middle), milliseconds(statistics.median(times["fts5"])), against
            )
    table.fact(f"index, {messages:,} messages", f"{size / 1e6:.0f} MB, {size / texts:.2f} of the texts")
    table.fact("  with vectors", f"{with_vectors / 1e6:.0f} MB, {with_vectors / texts:.2f} of the texts")
    table.fact("  highest memory so far", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    store.close()


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--million", action="store_true", help="1,000,000 messages, too: some ten minutes")
    given = parser.parse_args()
    sizes = [2_000, 20_000] if given.quick else [10_000, 100_000, *([1_000_000] if given.million else [])]
    with workplace(given.dir) as place:
        table = Table("Search")
        for messages in sizes:
            measured(table, place, messages, rounds=60 if given.quick else 400)
        table.print()


if __name__ == "__main__":
    main()
