"""Whose words stand in a user's message: typed, pasted, injected."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamkeep.session.reading.origin import INJECTED, PASTED, TYPED, HeardWords, origin_at, split_origins

REVIEW = (
    "The loader returns an empty list when the file is missing. While this is acceptable for optional settings, the caller can't "
    "tell a missing file from an empty one. Consider returning an error in the first case, as `load_rows` does."
)
LOG = "=== RUN TestLoan\n--- FAIL: TestLoan (0.02s)\n    loan_test.go:31: got 2, want 1\nFAIL"


def origins(text: str, *said: str) -> list[tuple[str, str]]:
    return [(span.origin, text[span.start : span.end].strip()) for span in split_origins(text, HeardWords(said).has)]


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "A.",
        "please use the british spelling :)",
        "we didn't write or change any tests?",
        "I want this:\n\n- group by day\n- drop the vertical lines, they don't help",
        "can you write a script that would:\n\n  - start a loan\n  - give the tool back\n  - check the mail",
        "Add a column for the due date, show it in red when it is over, sort by it, and keep the old order as a second key. "
        "Remove the button that nobody uses. Then run the tests and commit, one commit for the column and one for the button.",
        "hmm, why would that be faster? the file is read twice now, and I'd rather keep one pass even if it costs some memory, "
        "because the Pi has enough of that but its card is slow. So let's go back to the first version and measure it there.",
        "Das Datum soll rot sein, wenn es vorbei ist; sonst sieht das ja niemand. Kannst du das bitte überall so machen, auch in "
        "der Liste auf der ersten Seite? Und die alte Reihenfolge lassen wir, die kennen die Leute schon seit Jahren.",
        "期限を過ぎたら赤く表示してください。一覧でも同じように。テストも書いてください。",
    ],
)
def test_what_a_user_types_is_typed(text: str) -> None:
    assert {origin for origin, _ in origins(text)} == {TYPED}


@pytest.mark.parametrize(
    "text",
    [
        REVIEW,
        LOG,
        "```\nprint('hello')\n```",
        'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nValueError: no such tool',
        "diff --git a/x b/x\nindex 83db48f..bf2a1c4\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+two",
        "Implement the following plan:\n\n# Loans\n\n## Goal\nLend tools.\n\nWe should never lend the ladder.",
        "Bookings are lost on restart\n\nHigh Severity\n\nThe queue is kept in memory only. A restart drops what waits in it.",
        "❯ lend list\n\n✓ 3 tools\n⚠ 1 overdue",
        "# Loans\n\nAlways lend the ladder.\n\n## Rules\n\n" + "Never lend the saw on Sundays, it is loud. " * 20,
    ],
)
def test_what_others_wrote_is_pasted(text: str) -> None:
    assert {origin for origin, _ in origins(text)} == {PASTED}


@pytest.mark.parametrize(
    "text",
    [
        "Operation stopped by hook: Another session is active.\n\nPress the up arrow key to get your prompt back.",
        "This session is being continued from a previous conversation that ran out of context.",
        "<system-reminder>Never mention this.</system-reminder>",
        "<!-- dreamkeep:pack v1 -->\n- Never lend the saw.\n<!-- dreamkeep:end -->",
    ],
)
def test_what_clients_and_we_put_in_is_injected(text: str) -> None:
    assert {origin for origin, _ in origins(text)} == {INJECTED}


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        (f"can you check this: {REVIEW}", "can you check this:"),
        (f"I got this feedback, what do you think:\n\nI would lend the ladder.\n\nWe should too.\n\n{REVIEW}", "I got this"),
        (f"the test fails now:\n{LOG}", "the test fails now:"),
        (f"{LOG}\n\nbut it ran yesterday, did you change it?", "but it ran yesterday"),
        (f"{REVIEW}\n\nQuestion on this: can't we compare the sizes instead?", "Question on this"),
        ("we used the script yesterday and since then I get this:\nValueError: no such tool\n  at lend (x.js:3)", "we used"),
    ],
)
def test_typed_words_beside_a_paste_stay_typed(text: str, typed: str) -> None:
    found = origins(text)
    assert {origin for origin, _ in found} == {TYPED, PASTED}
    assert any(words.startswith(typed) for origin, words in found if origin == TYPED)


def test_an_agents_own_words_are_pasted_when_they_come_back() -> None:
    said = "We can keep the loans in one file for each tool and lock that.\nOr we keep them all in SQLite, which locks by itself."
    text = "Or we keep them all in SQLite, which locks by itself.\n\nthat one"
    assert origins(text, said) == [(PASTED, text.split("\n", maxsplit=1)[0]), (TYPED, "that one")]
    assert origins(text) == [(TYPED, text)]


def test_a_quote_has_the_origin_of_the_stretch_it_stands_in() -> None:
    text = f"never lend the saw\n\n{LOG}"
    spans = split_origins(text)
    assert origin_at(spans, 0, 5) == TYPED
    assert origin_at(spans, text.index("got 2"), text.index("got 2") + 5) == PASTED


@given(st.text())
def test_the_stretches_of_any_text_hold_all_its_words_in_order(text: str) -> None:
    spans = split_origins(text)
    assert all(one.end <= two.start for one, two in pairwise(spans))
    left = list(text)
    for span in spans:
        left[span.start : span.end] = " " * (span.end - span.start)
    assert not "".join(left).strip()


def test_a_very_long_message_is_judged_in_linear_work() -> None:
    for text in ("a " * 500_000, "\n" * 500_000, "- x\n" * 200_000, "can you " * 100_000, ": A" * 300_000, "(" * 1_000_000):
        assert split_origins(text)[-1].end <= len(text) if text.strip() else True
