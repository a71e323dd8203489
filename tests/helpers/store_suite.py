"""What every store must do. A second store subclasses `StoreSuite`, gives a `store` fixture, and runs the same tests."""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dreamkeep.event import Event, Kind
from dreamkeep.index.rows import RowCollector, Stored
from dreamkeep.index.searching import Within, session_of
from dreamkeep.index.store import FolderMark, IndexBatch, IndexCounts, JournalPlace, Store
from dreamkeep.index.words import Term
from dreamkeep.journal.reader import JournalDefect, Position, SeqRange
from dreamkeep.recall.hits import KINDS, Hit
from dreamkeep.recall.query import read_query
from dreamkeep.recall.search import Search
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import Summary, empty
from dreamkeep.session.turns import TurnView

MARK = FolderMark(1, 100, 5, 7, 6)
NOW = "2026-03-01T00:00:00Z"
ANY = Within()


def place(session: str, seq: int = 1) -> JournalPlace:
    position = Position(2, 100 * seq, seq, f"{seq:08x}")
    return JournalPlace(
        f"journal/sessions/{session}", session, position, MARK, "000001.jsonl:9:8:7", f"1:9:0000abcd 2:{100 * seq}:0000ffff"
    )


def filled(store: Store, session: str, *said: str, at: str = "2026-01-01T00:00:00Z", project: str = "p") -> None:
    summary = empty(session)._replace(last_at=at, started_at=at, project=project, messages=len(said), turns=1, bytes=10)
    rows = [Message(n, 0, "user", text, at, "t1") for n, text in enumerate(said, 2)]
    with store.writing():
        store.put(IndexBatch(place(session), summary, [TurnView("t1", 2, "started", said[0] if said else "", at)], rows, []))


def recalled(store: Store, query: str, *, kinds: Collection[str] = KINDS, within: Within = ANY, limit: int = 10) -> list[Hit]:
    """As recall asks a store, without an embedder."""
    search = Search(store, read_query(query, NOW), within, NOW, None)
    return search.read_texts(search.run(kinds, limit))


class StoreSuite:
    @pytest.fixture
    def store(self) -> Store:
        raise AssertionError("a store's own suite gives the fixture")

    def test_what_was_put_is_answered(self, store: Store) -> None:
        filled(store, "python:a", "hello", "world")
        found = store.session("python:a")
        assert found is not None and (found.messages, found.project, found.state) == (2, "p", "active")
        assert [m.text for m in store.messages("python:a")] == ["hello", "world"]
        assert [m.text for m in store.last_messages("python:a", 1)] == ["world"]
        assert store.last_messages("python:a", 9) == store.messages("python:a") and store.last_messages("python:none", 9) == []
        assert [t.prompt for t in store.turns("python:a")] == ["hello"]
        assert [t.id for t in store.turns("python:a", ["t1", "none"])] == ["t1"]
        assert store.place(place("python:a").name) == place("python:a")
        assert store.places() == {place("python:a").name: place("python:a")}
        assert store.counts() == IndexCounts(1, 1, 2, 10, 0)
        assert store.session("python:none") is None and store.messages("python:none") == []

    def test_how_a_journal_looked_is_told_as_it_was_put_and_whether_that_is_all_there_is(self, store: Store) -> None:
        """R1: an audit compares thousands of them. Plain is only what ends where its one file ends."""
        filled(store, "python:a", "hello")
        whole = Position(MARK.part, MARK.size, 1, "0")
        plain = place("python:b")._replace(position=whole, looks="", sums="1:7:0badcafe")
        others = [
            plain._replace(name="c", looks="000001.jsonl.zst:1:2:3"),
            plain._replace(name="d", mark=plain.mark._replace(size=plain.mark.size + 1)),
            plain._replace(name="e", position=plain.position._replace(part=plain.mark.part + 1)),
        ]
        with store.writing():
            for one in (plain, *others):
                store.put_place(one, None)
        found = {row[0]: row[1:] for row in store.standings()}
        assert found[plain.name] == (plain.position.part, "1:7:0badcafe", 1, *plain.mark, 1, "0")
        assert [found[one.name][2] for one in others] == [0, 0, 0]
        assert found.keys() == store.places().keys()
        with store.writing():
            store.put_place(plain._replace(sources="main-0123456789 1 7 0\n"), None)
        assert store.sources() == {plain.name: "main-0123456789 1 7 0\n"}, "and how far the files were read"
        assert store.place(plain.name) == plain._replace(sources="main-0123456789 1 7 0\n")

    def test_memory_is_put_row_by_row_found_by_its_words_and_told_anew(self, store: Store) -> None:
        """D23 D34"""
        quote = {"session": "python:a", "seq": "7.2", "turn": "t1", "quote": "q"}
        note = {"id": "n-1", "text": "Prices are integers \ud800", "state": "active", "project": "p", "last_at": "2026-01-02"}
        whole = {**note, "evidence": [quote]}
        insight: dict[str, Any] = {
            "id": "i-1",
            "text": "integers!",
            "state": "rejected",
            "project": "p",
            "said_at": None,
            "evidence": [],
        }
        with store.writing():
            store.remember({("notes", "n-1"): whole, ("insights", "i-1"): insight, ("tasks", "t"): {"id": "t"}}, anew=False)
        assert store.memory() == [("insights", "i-1", insight), ("notes", "n-1", whole), ("tasks", "t", {"id": "t"})]
        [hit] = recalled(store, "an integer")
        assert (hit.kind, hit.id, hit.session, hit.seq, hit.n, hit.turn) == ("note", "n-1", "python:a", 7, 2, "t1")
        assert recalled(store, "integer", kinds=["insight"]) == recalled(store, "integer", within=Within(project="q")) == []
        assert recalled(store, "integer", within=Within(since="2026-01-03")) == recalled(store, '"') == []
        with store.writing():
            store.remember({("notes", "n-1"): {**whole, "state": "retracted"}, ("tasks", "t"): None}, anew=False)
        assert recalled(store, "integer") == []
        assert [row[:2] for row in store.memory()] == [("insights", "i-1"), ("notes", "n-1")]
        with store.writing():
            store.remember({("insights", "i-2"): {**insight, "state": "confirmed"}}, anew=True)
        assert [row[:2] for row in store.memory()] == [("insights", "i-2")]
        assert [one.id for one in recalled(store, "INTEGERS")] == ["i-2"]

    def test_sessions_that_ended_are_told_with_their_last_message_oldest_first(self, store: Store) -> None:
        for n, session in enumerate(("python:b", "python:a", "python:open", "python:empty")):
            filled(store, session, *(["one", "two"][: n + 1] if session != "python:empty" else []))
            found = store.session(session)
            assert found
            if session != "python:open":
                with store.writing():
                    store.put(IndexBatch(place(session), found._replace(state="ended", ended_at=f"2026-01-0{n + 1}"), [], [], []))
        assert store.ended() == [("python:b", 2), ("python:a", 3)]

    def test_accepted_faults_are_remembered_until_told_anew(self, store: Store) -> None:
        with store.writing():
            store.accept(["a", "b"], anew=False)
            store.accept(["b", "\udc80"], anew=False)
        assert store.accepted() == {"a", "b", "\udc80"}
        with store.writing():
            store.accept(["c"], anew=True)
        assert store.accepted() == {"c"}

    def test_a_mended_fault_is_told_and_not_counted(self, store: Store) -> None:
        gone = JournalDefect("gap", 1, 10, 0, (SeqRange(2, 3),), True)
        with store.writing():
            faults = [gone, gone._replace(offset=20, mended=True), gone._replace(offset=30, mended=True, accepted=True)]
            store.put(IndexBatch(place("python:a"), empty("python:a"), [], [], faults))
        assert store.faults() == [("python:a", one) for one in faults]
        assert store.counts().faults == 1

    def test_an_owned_turn_is_told_from_one_that_nobody_owns(self, store: Store) -> None:
        mine, free = TurnView("t1", 2, "started", "p", owner="me"), TurnView("t2", 3, "started", "p")
        done = TurnView("t3", 4, "completed", "p", owner="me")
        with store.writing():
            store.put(IndexBatch(place("python:a"), empty("python:a"), [mine, free, done], [], []))
        assert store.unsettled() == [("python:a", mine), ("python:a", free)]
        assert store.unsettled(owned=True) == [("python:a", mine)]

    def test_a_session_in_which_something_is_in_progress_is_known(self, store: Store) -> None:
        for name, state in (("python:a", '{"x": "in_progress"}'), ("python:b", "{}")):
            with store.writing():
                store.put(IndexBatch(place(name), empty(name), [], [], [], state))
        assert store.compacting() == ["python:a"]
        with store.writing():
            store.put(IndexBatch(place("python:a"), empty("python:a"), [], [], [], "{}"))
        assert store.compacting() == []

    def test_a_store_that_lacks_nothing_says_so_whatever_was_done_to_it(self, store: Store) -> None:
        filled(store, "python:a", "one", "two")
        filled(store, "python:a", "one, changed", "two", "three")
        filled(store, "python:b", "x")
        with store.writing():
            store.put(IndexBatch(place("python:a"), empty("python:a"), [], [], [], removed={(2, 0), (9, 9)}))
            store.put_place(JournalPlace("journal/keep", "", Position(), MARK), [])
            store.forget(place("python:b").name)
        assert store.incomplete(rows=True) == [] and len(store.messages("python:a")) == 2

    def test_a_failed_batch_leaves_nothing(self, store: Store) -> None:
        with pytest.raises(ZeroDivisionError), store.writing():
            store.put(IndexBatch(place("python:a"), empty("python:a"), [], [], []))
            _ = 1 / 0
        assert store.sessions() == [] and store.places() == {}
        filled(store, "python:b", "works afterwards")
        assert len(store.sessions()) == 1

    def test_sessions_are_newest_first_and_filtered_before_the_cut(self, store: Store) -> None:
        """D32"""
        for n in range(6):
            filled(store, f"{'python' if n % 2 else 'codex'}:{n}", "x", at=f"2026-01-0{n + 1}T00:00:00Z", project=f"p{n % 3}")
        assert [s.native_id for s in store.sessions()] == ["5", "4", "3", "2", "1", "0"]
        assert [s.native_id for s in store.sessions(limit=2)] == ["5", "4"]
        assert [s.native_id for s in store.sessions(agent="codex", limit=2)] == ["4", "2"]
        assert [s.native_id for s in store.sessions(project="p0", limit=1)] == ["3"]
        assert store.sessions(project="none") == []

    def test_where_sessions_ran_is_told_by_what_their_fold_remembers(self, store: Store) -> None:
        filled(store, "python:b", "hello", project="")
        summary = empty("python:a")._replace(project="p", cwd="/\ud800", last_at="2026-01-01T00:00:00Z")
        state = {"folders": [["/\ud800", "main", "2.1"], "strange"], "remotes": [["x.org/a", "push", "3.1"]], "other": 1}
        with store.writing():
            store.put(IndexBatch(place("python:a"), summary, [], [], [], json.dumps(state)))
        first, second = store.session_places()
        assert first[:4] == ("python:a", "p", "/\ud800", "2026-01-01T00:00:00Z")
        assert first[4:] == ((("/\ud800", "main", "2.1"),), (("x.org/a", "push", "3.1"),))
        assert second == ("python:b", "", "", "2026-01-01T00:00:00Z", (), ())

    def test_ids_are_matched_exactly_first_then_by_prefix(self, store: Store) -> None:
        """D5: sess-1 is not sess-12; ids that differ only in case differ."""
        for name in ("python:sess-1", "python:sess-12", "codex:Chat", "codex:chat", "python:50%_done"):
            filled(store, name, "x")
        assert store.matching("sess-1") == ["python:sess-1"]
        assert store.matching("python:sess-1") == ["python:sess-1"]
        assert store.matching("sess") == ["python:sess-1", "python:sess-12"]
        assert store.matching("chat") == ["codex:chat"]
        assert store.matching("codex:C") == ["codex:Chat"]
        assert store.matching("50%_") == ["python:50%_done"] and store.matching("5__") == [] and store.matching("zzz") == []

    def test_forgetting_takes_everything_of_one_and_nothing_of_others(self, store: Store) -> None:
        filled(store, "python:a", "apple")
        filled(store, "python:b", "apple")
        with store.writing():
            store.forget(place("python:a").name)
        assert [s.id for s in store.sessions()] == ["python:b"]
        assert store.messages("python:a") == [] and store.turns("python:a") == []
        assert [h.session for h in recalled(store, "apple")] == ["python:b"]
        with store.writing():
            store.forget("never there")

    def test_clearing_empties_it_and_it_works_again(self, store: Store) -> None:
        filled(store, "python:a", "apple")
        with store.writing():
            store.mark_deleted("python:z", "t")
            store.clear()
        assert store.counts() == IndexCounts(0, 0, 0, 0, 0) and recalled(store, "apple") == [] and store.tombstones() == {}
        filled(store, "python:a", "apple")
        assert len(recalled(store, "apple")) == 1

    def test_putting_the_same_again_doubles_nothing(self, store: Store) -> None:
        """W14"""
        filled(store, "python:a", "apple", "pear")
        filled(store, "python:a", "apple", "pear")
        assert len(store.messages("python:a")) == 2 and len(recalled(store, "apple")) == 1

    def test_any_text_comes_back_as_it_was(self, store: Store) -> None:
        """W7: also in titles and prompts."""
        for n, text in enumerate(["\ud800x", "nul\0in", "", "\u2028", "日本語", '"; DROP TABLE messages; --']):
            session = f"python:{n}"
            summary = empty(session)._replace(title=text, cwd=text)
            rows = [Message(2, 0, "user", text, "t", None, {"input": text, "n": float("inf")})]
            with store.writing():
                store.put(IndexBatch(place(session), summary, [TurnView("t", 2, "submitted", text)], rows, []))
            [back] = store.messages(session)
            assert back == rows[0]
            assert store.turns(session)[0].prompt == text
            found = store.session(session)
            assert found is not None and found.title == text and found.cwd == text

    def test_faults_are_kept_until_said_otherwise(self, store: Store) -> None:
        fault = JournalDefect("damage", 1, 20, 5, (SeqRange(3, 4), SeqRange(9, 9)), True, 2)
        with store.writing():
            store.put(IndexBatch(place("python:a"), empty("python:a"), [], [], [fault]))
        with store.writing():
            store.put(IndexBatch(place("python:a", 2), empty("python:a"), [], [], None))
        assert store.faults() == [("python:a", fault)]
        with store.writing():
            store.put(IndexBatch(place("python:a", 3), empty("python:a"), [], [], []))
        assert store.faults() == []

    def test_faults_of_the_keeps_own_journal_stand_under_no_session(self, store: Store) -> None:
        fault = JournalDefect("damage", 1, 20, 5)
        keep = JournalPlace("journal/keep", "", Position(1, 5, 1, "0"), MARK)
        with store.writing():
            store.put_place(keep, [fault])
            store.put_place(keep, None)
        assert store.faults() == [("", fault)] and store.place("journal/keep") == keep
        with store.writing():
            store.put_place(keep, [])
        assert store.faults() == []

    def test_an_exact_id_wins_over_a_native_one(self, store: Store) -> None:
        for name in ("python:chat", "codex:python:chat"):
            filled(store, name, "x")
        assert store.matching("python:chat") == ["python:chat"]

    def test_unsettled_turns_are_listed_with_their_sessions(self, store: Store) -> None:
        filled(store, "python:a", "x")
        with store.writing():
            store.put(IndexBatch(place("python:b"), empty("python:b"), [TurnView("t2", 2, "completed", "y")], [], []))
        assert [(s, t.id) for s, t in store.unsettled()] == [("python:a", "t1")]

    def test_tombstones_are_remembered_and_lifted(self, store: Store) -> None:
        with store.writing():
            store.mark_deleted("python:a", "t1")
            store.mark_deleted("python:a", "t2")
            store.mark_deleted("python:b", "t3")
            store.lift("python:b")
        assert store.tombstones() == {"python:a": "t1"}

    def test_search_finds_words_in_any_form_and_filters_before_the_cut(self, store: Store) -> None:
        """D32"""
        filled(store, "python:a", "The builds failed", "nothing here", at="2026-01-01T00:00:00Z", project="p")
        filled(store, "python:b", "build build build", at="2026-02-01T00:00:00Z", project="q")
        assert {h.session for h in recalled(store, "building")} == {"python:a", "python:b"}
        places = {"python:a": Within(project="p"), "python:b": Within(since="2026-01-15")}
        for session, within in (*places.items(), *((one, Within(session=one)) for one in places)):
            assert [h.session for h in recalled(store, "build", within=within, limit=1)] == [session]
            [(no, _)] = store.best([Term(("build",))], within, 1)
            assert store.heads([no])[0].session == session
        [hit] = recalled(store, "failed")
        assert (hit.kind, hit.seq, hit.turn, hit.text) == ("message", 2, "t1", "The builds failed")

    def test_any_query_text_is_legal(self, store: Store) -> None:
        """D32: quotes, operators, OPS-306, NULs, surrogates; never an exception, and adding a filter never adds hits."""
        filled(store, "python:a", "OPS-306 crashed; NEAR the AND gate", "plain")
        assert [h.seq for h in recalled(store, "OPS-306")] == [2]
        assert store.holding([Term(("AND",)), Term(("NEAR", "OR")), Term(("gate NOT",))]) == [1, 1, 0]
        check = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))(
            given(st.text(st.characters(blacklist_categories=())))(lambda query: _legal(store, query))
        )
        check()

    def test_messages_are_numbered_by_session_and_told_by_the_words_they_hold(self, store: Store) -> None:
        filled(store, "python:a", "one apple", "two pears", "three apples", project="p")
        filled(store, "codex:b", "an apple", at="2026-02-01T00:00:00Z", project="q")
        apple, pear, none = Term(("apple",)), Term(("pear", "peach")), Term(("grape",))
        assert store.indexed_messages() == 4 and store.holding([apple, pear, none]) == [3, 1, 0]
        held = store.holders(apple, 10)
        assert held == sorted(held) and store.holders(apple, 2) == held[:2]
        assert len({session_of(no) for no in held}) == 2 and len(store.best([apple, pear], Within(), 2)) == 2
        for within, texts in (
            (Within(project="q"), {"an apple"}),
            (Within(agent="python"), {"one apple", "three apples"}),
            (Within(session="codex:b"), {"an apple"}),
            (Within(session="none"), set()),
            (Within(since="2026-01-15"), {"an apple"}),
            (Within(until="2026-01-15"), {"one apple", "three apples"}),
            (Within(project="p", agent="codex"), set()),
        ):
            found = [no for no, _ in store.best([apple], within, 10)]
            assert set(store.texts(found).values()) == texts and store.inside(held, within) == set(found)
        assert store.sessions_within(Within(since="2026")) is None
        assert store.sessions_within(Within(project="q")) == {session_of(held[-1])}
        assert store.session_sizes({session_of(no) for no in held}) == {session_of(held[0]): 3, session_of(held[-1]): 1}
        assert store.session_ends({session_of(held[-1])}) == {session_of(held[-1]): "2026-02-01T00:00:00Z"}

    def test_what_stands_around_a_message_is_of_its_session_and_searched(self, store: Store) -> None:
        """D33: copies and our own words are neither found nor neighbours."""
        marks = ["", "copied", "", "injected", "", "compacted", "rewound", ""]
        rows = [Message(n + 2, 0, "user", f"apple {n}", "t", None, mark=mark) for n, mark in enumerate(marks)]
        with store.writing():
            store.put(IndexBatch(place("python:a"), empty("python:a")._replace(messages=8), [], rows, []))
        filled(store, "python:b", "apple b")
        held = [
            no for no in store.holders(Term(("apple",)), 20) if session_of(no) == session_of(store.holders(Term(("0",)), 1)[0])
        ]
        assert [store.texts([no])[no] for no in held] == ["apple 0", "apple 2", "apple 4", "apple 6", "apple 7"]
        around = store.around(held, 1)
        assert [around[no] for no in held] == [held[:2], held[:3], held[1:4], held[2:5], held[3:]]
        assert store.numbers([("python:a", 2, 0), ("python:a", 3, 0), ("none", 2, 0)]) == {("python:a", 2, 0): held[0]}
        [head] = store.heads([held[3]])
        assert (head.session, head.seq, head.mark, head.begins, head.ends, head.length) == (
            "python:a", 8, "rewound", "apple 6", "apple 6", 7,
        )  # fmt: skip
        assert store.incomplete(rows=True) == []

    def test_what_was_learned_is_told_by_words_ids_and_places(self, store: Store) -> None:
        quote = {"session": "python:a", "seq": "7.2", "turn": "t1", "quote": "q"}
        note = {"id": "n-1", "text": "Prices are integers \ud800", "state": "superseded", "project": "p", "by": "n-2"}
        whole = {**note, "first_at": "2026-01-01", "last_at": "2026-01-02", "evidence": [quote]}
        with store.writing():
            store.remember(
                {("notes", "n-1"): whole, ("notes", "n-2"): {**whole, "id": "n-2", "state": "active", "by": ""}}, anew=False
            )
        nos = store.remembered_holding(Term(("integer",)))
        rows = store.remembered_rows(nos)
        assert {(row.id, row.state, row.by, row.first_at, row.at) for row in rows} == {
            ("n-1", "superseded", "n-2", "2026-01-01", "2026-01-02"),
            ("n-2", "active", "", "2026-01-01", "2026-01-02"),
        }
        assert rows[0].text == "Prices are integers \ud800" and [row.id for row in store.remembered_ids(["n-2", "none"])] == [
            "n-2"
        ]
        assert store.grounds([("python:a", "7.2"), ("python:a", "7")]) == {("python:a", "7.2"): ["n-1", "n-2"]}
        assert store.rests_on("n-1", "python:a") and not store.rests_on("n-1", "python:b")
        assert recalled(store, "integer")[0].id == "n-2"
        with store.writing():
            store.remember({("notes", "n-1"): {**whole, "state": "retracted"}}, anew=False)
        assert store.grounds([("python:a", "7.2")]) == {("python:a", "7.2"): ["n-2"]}
        assert len(store.remembered_holding(Term(("integer",)))) == 1

    def test_what_has_no_vector_waits_for_one_and_a_changed_text_waits_again(self, store: Store) -> None:
        filled(store, "python:a", "one", "two")
        with store.writing():
            output = [Message(9, 0, "tool", "output", "t", None), Message(10, 0, "user", " ", "t", None)]
            store.put(IndexBatch(place("python:a"), empty("python:a"), [], output, []))
        waiting = store.unembedded(10)
        assert [text for _, text in waiting] == ["two", "one"] and store.unembedded_count() == 2
        before = store.embedder()
        with store.writing():
            store.put_vectors("x", [(no, bytes([n]), b"v") for n, (no, _) in enumerate(waiting)])
        assert store.unembedded_count() == 0 and store.embedder()[0] == "x" and store.embedder() != before
        assert store.codes() == sorted((no, bytes([n])) for n, (no, _) in enumerate(waiting))
        assert dict(store.vectors([waiting[0][0], 5])) == {waiting[0][0]: b"v"}
        filled(store, "python:a", "one, changed", "two")
        assert {text for _, text in store.unembedded(10)} == {"one, changed", "two"}
        known = store.embedder()
        with store.writing():
            store.forget(place("python:a").name)
        assert store.codes() == [] and store.unembedded_count() == 0 and store.embedder() != known

    def test_answers_do_not_depend_on_how_the_rows_came_in(self, store: Store) -> None:
        """D34: one batch or many, in any grouping: the same answers, byte for byte."""
        events = _story()
        for session, cuts in (("python:one", [len(events)]), ("python:many", _cuts(len(events)))):
            _put_in_pieces(store, session, events, cuts)
        one, many = (_answers(store, s) for s in ("python:one", "python:many"))
        assert one == many


def _legal(store: Store, query: str) -> None:
    everywhere = recalled(store, query, limit=1000)
    filtered = recalled(store, query, within=Within(project="p"), limit=1000)
    assert {h.seq for h in filtered} <= {h.seq for h in everywhere}
    assert recalled(store, query, within=Within(project="nowhere")) == []
    texts = {m.seq: m.text for m in store.messages("python:a")}
    assert all(h.text == texts[h.seq] for h in everywhere)


def _story() -> list[tuple[int, Event]]:
    chance = random.Random(7)
    told: list[tuple[int, Event]] = [(2, Event("e2", Kind.SESSION_OPENED, "t0002", {"cwd": "/x", "project": "p"}))]
    for n in range(3, 200):
        turn = f"t{chance.randrange(12)}"
        kind = chance.choice([Kind.TURN_SUBMITTED, Kind.TURN_STARTED, Kind.TURN_SETTLED, Kind.MESSAGE_ADDED, Kind.TURN_RECORDED])
        body = {"turn": turn, "prompt": f"p{n}", "owner": "o", "state": "completed", "role": "assistant", "text": f"w{n % 9}"}
        told.append((n, Event(f"e{n}", kind, f"t{n:04d}", {**body, "messages": [{"role": "assistant", "text": f"r{n}"}]})))
    return told


def _cuts(total: int) -> list[int]:
    chance = random.Random(3)
    return [*sorted(chance.sample(range(1, total), 20)), total]


def _put_in_pieces(store: Store, session: str, events: list[tuple[int, Event]], cuts: list[int]) -> None:
    summary: Summary = empty(session)
    state: dict[str, Any] = {}
    start = 0
    for end in cuts:
        rows = RowCollector(summary, state, Stored(store, session, from_zero=False))
        for seq, event in events[start:end]:
            rows.add(seq, event)
        assert rows.strange == []
        summary, start = rows.seen(), end
        with store.writing():
            store.put(rows.batch(place(session, end), summary, []))
        state = json.loads(store.state(session))


def _answers(store: Store, session: str) -> object:
    summary = store.session(session)
    assert summary is not None
    hits = recalled(store, "w3", within=Within(session=session), limit=50)
    said = [h._replace(session="") for h in hits]
    assert said
    return (summary._replace(id="", native_id=""), store.turns(session), store.messages(session), said)
