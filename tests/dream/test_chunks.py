"""Chunks: every message is in one where it is to be read, no word of user or assistant is lost, and none is too large."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamkeep.dream.backends.api import GivenMessage, TurnGiven
from dreamkeep.dream.backends.chunks import chunks, head_and_tail, message_tokens, turn_tokens


def turn(n: int, *messages: tuple[str, str], known: bool = False) -> TurnGiven:
    return TurnGiven(
        f"t{n}", "completed", tuple(GivenMessage(f"{n}.{i}", role, text) for i, (role, text) in enumerate(messages)), known
    )


def words(n: int, count: int) -> str:
    return " ".join(f"w{n}x{i}" for i in range(count))


def test_what_fits_is_one_chunk() -> None:
    turns = [turn(n, ("user", "hi"), ("assistant", "hello")) for n in range(5)]
    assert chunks(turns, 1000) == [tuple(turns)]
    assert chunks([], 1000) == []
    assert chunks([turn(1, ("user", "old"), known=True)], 1000) == []


def test_each_turn_is_measured_a_few_times_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a session is not the square of its turns."""
    measured = 0

    def counting(one: TurnGiven) -> int:
        nonlocal measured
        measured += 1
        return turn_tokens(one)

    monkeypatch.setattr("dreamkeep.dream.backends.chunks.turn_tokens", counting)
    assert len(chunks([turn(n, ("user", "hi"), ("assistant", "hello")) for n in range(500)], 400_000)) == 1
    assert 500 <= measured <= 2500


def test_each_chunk_begins_with_the_last_turn_of_the_one_before_as_known() -> None:
    turns = [turn(n, ("user", f"do {n}"), ("assistant", words(n, 150))) for n in range(6)]
    made = chunks(turns, 600)
    assert len(made) > 2
    for before, after in pairwise(made):
        assert after[0].known and after[0].id == before[-1].id and not after[1].known
    fresh = [one.id for chunk in made for one in chunk if not one.known]
    assert fresh == [one.id for one in turns]


def test_turns_known_before_are_context_of_the_first_chunk() -> None:
    made = chunks([turn(0, ("user", "before"), known=True), turn(1, ("user", "now"))], 1000)
    assert [(one.id, one.known) for one in made[0]] == [("t0", True), ("t1", False)]


def test_a_turn_that_is_too_long_is_cut_inside_and_keeps_its_prompt() -> None:
    long = turn(1, ("user", "make it faster"), *(("assistant", words(i, 150)) for i in range(12)))
    made = chunks([turn(0, ("user", "a")), long, turn(2, ("user", "z"))], 800)
    assert len(made) > 2
    for chunk in made[1:-1]:
        assert chunk[0].known and chunk[0].messages[0].text == "make it faster" and chunk[0].id == "t1"
    seqs = [said.seq for chunk in made for one in chunk if not one.known for said in one.messages]
    assert seqs == ["0.0", *(f"1.{i}" for i in range(13)), "2.0"]


def test_a_tools_long_output_keeps_head_and_tail_and_says_what_is_missing() -> None:
    text = "FIRST " + "noise " * 20_000 + "LAST"
    made = chunks([turn(1, ("user", "run it"), ("tool", text))], 1000)
    [said] = [said for chunk in made for one in chunk if not one.known for said in one.messages if said.role == "tool"]
    assert said.text.startswith("FIRST ") and said.text.endswith("LAST") and "signs left out" in said.text
    left_out = int(said.text.partition("[… ")[2].partition(" ")[0])
    assert len(said.text.replace(f"\n[… {left_out} signs left out …]\n", "")) + left_out == len(text)


def test_a_long_prompt_goes_on_in_the_next_chunk_word_by_word() -> None:
    text = words(1, 5000)
    made = chunks([turn(1, ("user", text), ("assistant", "ok"))], 1000)
    seen: set[str] = set()
    for chunk in made:
        for one in chunk:
            if not one.known:
                seen.update(word for said in one.messages for word in said.text.split())
    assert set(text.split()) <= seen and "ok" in seen


def test_a_tools_input_of_a_megabyte_is_shortened() -> None:
    tool = {"id": "x", "name": "Write", "input": {"path": "/a/b.py", "content": "line\n" * 200_000}}
    said = GivenMessage("1.1", "assistant", "", None, tool)
    made = chunks([TurnGiven("t1", "completed", (GivenMessage("1.0", "user", "write"), said))], 1000)
    [kept] = [one for chunk in made for t in chunk if not t.known for one in t.messages if one.tool]
    assert message_tokens(kept) <= 1000 and kept.tool is not None and kept.tool["input"]["path"] == "/a/b.py"
    assert tool["input"]["content"] == "line\n" * 200_000  # type: ignore[index]  # the given one is not changed


ROLES = st.sampled_from(["user", "assistant", "tool", "reasoning"])
TEXTS = st.one_of(
    st.text(max_size=60),
    st.integers(0, 4000).map(lambda n: "ab c" * n),
    st.integers(0, 1500).map(lambda n: "漢字" * n),
    st.integers(0, 800).map(lambda n: "😀" * n),
)
TURNS = st.lists(st.tuples(st.lists(st.tuples(ROLES, TEXTS), min_size=1, max_size=6), st.booleans()), max_size=8)


@given(TURNS, st.integers(500, 4000))
@settings(max_examples=150)
def test_every_message_is_read_once_and_no_chunk_is_too_large(made: list[tuple[list[tuple[str, str]], bool]], most: int) -> None:
    before = sum(known for _, known in made[:2])
    turns = [turn(n, *messages, known=n < before) for n, (messages, _) in enumerate(made)]
    found = chunks(turns, most)
    fresh = {(one.id, said.seq) for chunk in found for one in chunk if not one.known for said in one.messages}
    assert fresh == {(one.id, said.seq) for one in turns if not one.known for said in one.messages}
    for chunk in found:
        assert any(not one.known for one in chunk)
        assert sum(map(turn_tokens, chunk)) <= most * 1.1
    for one in turns:
        for said in one.messages:
            if not one.known and said.role in ("user", "assistant"):
                pieces = [s.text for chunk in found for t in chunk if not t.known for s in t.messages if s.seq == said.seq]
                assert _covers(pieces, said.text)


def _covers(pieces: list[str], text: str) -> bool:
    """The pieces, laid over each other in order, are the text."""
    at = 0
    for piece in pieces:
        start = text.rfind(piece, 0, at + len(piece))
        if start < 0 or start > at:
            return False
        at = max(at, start + len(piece))
    return at == len(text)


@given(st.text(max_size=3000), st.integers(10, 400))
def test_head_and_tail_never_grow_a_text(text: str, most: int) -> None:
    short = head_and_tail(text, most)
    assert short == text or ("signs left out" in short and len(short) <= len(text) + 40)
