"""Search by meaning: vectors are a view of the index, made by an embedder that is installed, and by nothing from outside."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.index.searching import Within
from dreamkeep.recall import embed
from dreamkeep.recall.vectors import Nearest, fill
from tests.helpers.conversations import note, talk, texts

np = pytest.importorskip("numpy")
pytest.importorskip("wordllama")


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    with Keep.open(tmp_path / "k", environment={}) as opened:
        yield opened


class Letters:
    """An embedder of one's own: how often each letter is in a text."""

    name = "letters/1"

    def embed(self, texts: Sequence[str]) -> Any:
        rows = np.array([[text.lower().count(chr(97 + n % 26)) - 0.5 for n in range(64)] for text in texts], dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def ask(self, words: Sequence[tuple[str, float]]) -> Any:
        return self.embed([" ".join(word for word, _ in words)])[0]


def test_what_means_the_same_is_found_without_one_word_of_the_query(keep: Keep) -> None:
    talk(keep, "a", "the automobile is in the garage", "noted", "bananas are yellow", "indeed")
    talk(keep, "b", "we raised the invoices", "fine")
    assert texts(keep.search("car"))[:1] == ["the automobile is in the garage"]
    keep.context.find_embedder = lambda: None
    assert keep.search("car") == []


def test_of_neighbours_the_one_that_means_it_comes_first(keep: Keep) -> None:
    """They have the same words of the query and the same neighbourhood; and of equal ones the newer would be first."""
    talk(keep, "a", "tower: the automobile", "tower: the strawberry")
    assert texts(keep.search("tower vehicle")) == ["tower: the automobile", "tower: the strawberry"]


def test_a_note_is_found_by_what_it_means(keep: Keep) -> None:
    note(keep, "n-1", "Automobiles are repaired in the garage", at="2026-01-01T00:00:00Z")
    assert "n-1" in [hit.id for hit in keep.search("vehicle repair", kinds=["note"])]


def test_nothing_is_fetched(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    """A3: not even tried."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("somebody opens a connection")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    embed.installed.cache_clear()
    talk(keep, "a", "the automobile is in the garage")
    assert len(keep.search("car")) == 1


def test_filters_come_before_the_cut_of_the_nearest(keep: Keep) -> None:
    for n in range(40):
        talk(keep, f"many{n}", *(f"the car number {n} {m} is fast" for m in range(10)))
    talk(keep, "one", "the automobile is in the garage", "noted")
    keep.embed()
    assert texts(keep.search("vehicle", session="python:one", limit=1)) == ["the automobile is in the garage"]
    assert texts(keep.search("vehicle", session="python:one", since="2020-01-01", limit=1)) == ["the automobile is in the garage"]
    assert keep.search("vehicle", session="python:one", since="2999-01-01") == []


def test_vectors_of_another_embedder_are_made_again(keep: Keep) -> None:
    talk(keep, "a", "the automobile is in the garage", "noted")
    assert keep.embed() == 2 and keep.embed() == 0

    def other(store: Any) -> tuple[str, int, int, int]:
        with store.writing():
            store.put_vectors("letters/1", [])
        waiting = store.unembedded_count()
        fill(store, Letters(), 100)
        return store.embedder()[0], waiting, store.unembedded_count(), len(store.codes())

    assert keep.context.ask(other) == ("letters/1", 2, 0, 2)
    keep.context.find_embedder = Letters
    assert "noted" in texts(keep.search("donet"))


def test_what_changed_is_embedded_again_and_what_is_gone_has_no_vector(keep: Keep) -> None:
    talk(keep, "goes", "the automobile is in the garage")
    talk(keep, "stays", "bananas are yellow")
    keep.embed()
    assert keep.context.ask(lambda store: len(store.codes())) == 2
    keep.delete("goes")
    assert keep.context.ask(lambda store: (len(store.codes()), store.unembedded_count())) == (1, 0)
    assert keep.search("car") == []


def test_near_and_exact_agree_on_which_is_nearest(keep: Keep) -> None:
    """Quantised and rescored as if all had been compared exactly."""
    said = [f"{'abcdefghij'[n % 10] * (n + 1)} {'klmnopqrst'[n // 10] * (n // 3 + 1)}" for n in range(100)]
    talk(keep, "a", *said)

    def compared(store: Any) -> tuple[list[int], list[int]]:
        fill(store, Letters(), 1000)
        asked = Letters().embed(["aaaa kkk"])[0]
        found = Nearest().near(store, asked, least=-1, limit=5, sessions=None, inside=None)
        nos = sorted(no for no, _ in store.codes())
        exact = Letters().embed([store.texts([no])[no] for no in nos]) @ asked
        return [one.no for one in found], [nos[n] for n in np.argsort(-exact, kind="stable")[:5]]

    near, exact = keep.context.ask(compared)
    assert len(near) == 5 and len(set(near) & set(exact)) >= 4 and near[0] == exact[0]


def test_only_messages_within_are_near(keep: Keep) -> None:
    talk(keep, "a", "the automobile is in the garage")
    keep.embed()

    def near(store: Any) -> list[int]:
        asked = embed.installed()
        assert asked is not None
        found = Nearest().near(
            store, asked.embed(["car"])[0], least=-1, limit=5, sessions=store.sessions_within(Within(agent="codex")), inside=None
        )
        return [one.no for one in found]

    assert keep.context.ask(near) == []


def test_many_threads_search_one_keep_while_vectors_are_made(keep: Keep) -> None:
    from concurrent.futures import ThreadPoolExecutor

    talk(keep, "a", *(f"the automobile number {n} is in the garage" for n in range(300)))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: len(keep.search("car", limit=5)), range(24)))
    assert found[-1] == 5 and set(found) <= {0, 1, 2, 3, 4, 5}


def test_a_note_that_only_sounds_alike_stays_below_a_message_that_holds_the_name(keep: Keep) -> None:
    for n in range(10):
        keep.session(f"s{n}", cwd="/").record(f"what is zebra{n}?", ("assistant", f"An animal, the {n}th."))
    for n in range(10, 100, 10):
        keep.note_add(f"zebra{n} is striped")
    for n in range(10):
        assert keep.search(f"zebra{n}", limit=1)[0].text == f"what is zebra{n}?"
