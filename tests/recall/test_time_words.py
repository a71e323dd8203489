"""Time words in a query, as people write them, against a given day."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamkeep.recall.query import read_query
from dreamkeep.recall.ranking import timely
from dreamkeep.recall.time_words import read

NOW = "2026-05-20T15:00:00Z"  # a Wednesday


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("what broke yesterday", "2026-05-19", "2026-05-20"),
        ("the plan of today", "2026-05-20", "2026-05-21"),
        ("decided last week", "2026-05-11", "2026-05-18"),
        ("this month", "2026-05-01", "2026-06-01"),
        ("last month", "2026-04-01", "2026-05-01"),
        ("last year", "2025-01-01", "2026-01-01"),
        ("3 days ago", "2026-05-17", "2026-05-18"),
        ("two weeks ago", "2026-05-03", "2026-05-10"),
        ("in the last two weeks", "2026-05-06", "2026-05-21"),
        ("last Tuesday", "2026-05-19", "2026-05-20"),
        ("on Friday", "2026-05-15", "2026-05-16"),
        ("2023-05-08", "2023-05-08", "2023-05-09"),
        ("8 May 2023", "2023-05-08", "2023-05-09"),
        ("on the 8th of May, 2023", "2023-05-08", "2023-05-09"),
        ("May 8th, 2023", "2023-05-08", "2023-05-09"),
        ("what happened in May 2023?", "2023-05-01", "2023-06-01"),
        ("31 February 2023", "2023-02-01", "2023-03-01"),
        ("in December", "2025-12-01", "2026-01-01"),
        ("in May", "2026-05-01", "2026-06-01"),
        ("during 2023", "2023-01-01", "2024-01-01"),
        ("two days before 8 May 2023", "2023-05-06", "2023-05-08"),
        ("a week after 8 May 2023", "2023-05-09", "2023-05-16"),
    ],
)
def test_a_time_is_understood(words: str, start: str, end: str) -> None:
    assert [(a[:10], b[:10]) for a, b in read(words, NOW).spans] == [(start, end)]


@pytest.mark.parametrize("words", ["may I ask", "31 February", "march on", "the second 2023 things", "v2023", "", "0 days"])
def test_no_time_is_read_into_other_words(words: str) -> None:
    assert read(words, NOW).spans == ()


def test_words_that_only_count_from_now_are_not_looked_for_in_texts() -> None:
    assert [term.word for term in read_query("deploy failed last week", NOW).terms] == ["deploy", "failed"]
    assert [term.word for term in read_query("yesterday", NOW).terms] == ["yesterday"]


def test_what_is_of_the_time_counts_most_what_came_later_less_and_what_came_before_not() -> None:
    spans = read("on 8 May 2023", NOW).spans
    inside, soon, late = (timely(at, spans) for at in ("2023-05-08T10:00:00Z", "2023-05-10T10:00:00Z", "2023-07-10T10:00:00Z"))
    assert inside == 1.0 and 0.5 < soon < 1.0 and late < 0.01
    assert timely("2023-05-07T10:00:00Z", spans) == timely(None, spans) == timely("no time", ()) == 0.0


@given(st.text(), st.text())
def test_any_text_and_any_now_is_legal(text: str, now: str) -> None:
    read(text, now)
    read(text, NOW)
    read_query(text, NOW)
