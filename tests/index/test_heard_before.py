"""Words that an agent wrote first, in another session, were pasted; words that a user typed first stay the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dreamkeep import Keep
from dreamkeep.index.heard_before import find_heard
from tests.helpers.answering import Reader, dream, item

LINE = "The deposit of a tool is always a quarter of its price, rounded up."
RULE = "Always back up app.db before you deploy, that file is all we have"


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    return Keep.open(tmp_path / "keep")


def tell(keep: Keep, name: str, user: str, agent: str = "Done.") -> None:
    session = keep.session(name, cwd=keep.root)
    session.record(user, ("assistant", agent))
    session.end()


def origins(keep: Keep, session: str) -> list[tuple[str, str]]:
    return [(line["origin"], line["text"]) for line in keep.digest(session)["digest"] if line["role"] == "user"]


@pytest.mark.parametrize(
    "line",
    [LINE, "工具を借りる人は必ず写真を撮ってから返却してください。例外はありません。雨の日も同じです。忘れずにお願いします。"],
)
def test_what_an_agent_wrote_in_another_session_was_pasted(keep: Keep, line: str) -> None:
    with keep:
        tell(keep, "first", "what would you charge?", f"I would say this:\n\n{line}\n\nShall I?")
        tell(keep, "second", f"put this on the page\n\n{line}")
        assert origins(keep, "second") == [("typed", "put this on the page"), ("pasted", line)]


def test_what_is_pasted_behind_a_lead_is_known_again(keep: Keep) -> None:
    long = f"{LINE} Who brings it back late pays a tenth more for each day."
    with keep:
        tell(keep, "first", "what would you charge?", long)
        tell(keep, "second", f"can you check: {long}")
        assert origins(keep, "second") == [("typed", "can you check:"), ("pasted", long)]


def test_what_a_user_typed_first_stays_typed_however_often_agents_repeat_it(keep: Keep) -> None:
    with keep:
        tell(keep, "first", LINE, f"Understood:\n\n{LINE}")
        tell(keep, "second", "go on", LINE)
        tell(keep, "third", LINE)
        assert origins(keep, "third") == [("typed", LINE)]


def test_a_short_line_proves_nothing(keep: Keep) -> None:
    with keep:
        tell(keep, "first", "and now?", "Run the tests first.")
        tell(keep, "second", "Run the tests first.")
        assert origins(keep, "second") == [("typed", "Run the tests first.")]


def test_the_rules_keep_nothing_that_an_agent_wrote_in_another_session(keep: Keep) -> None:
    with keep:
        tell(keep, "first", "what would you charge?", f"One proposal\n\n{RULE}")
        tell(keep, "second", RULE)
        made = keep.dream()
        assert keep.notes() == []
        assert [(one["why"], one["count"]) for one in made["dropped"]] == [("an agent's words from another session", 1)]


def test_the_rules_keep_what_the_user_typed_first(keep: Keep) -> None:
    with keep:
        tell(keep, "first", RULE, f"Understood.\n\n{RULE}")
        keep.dream()
        assert [one["text"] for one in keep.notes()] == [RULE]


def test_a_models_item_that_rests_on_pasted_words_is_not_active(keep: Keep, tmp_path: Path) -> None:
    with keep:
        tell(keep, "first", "what would you charge?", f"One proposal\n\n{LINE}")
        tell(keep, "second", f"put it on the page please\n\n{LINE}")
        note = "The deposit of a tool is a quarter of its price."
        dream(keep, tmp_path / "x", Reader(item(note, LINE)))
        assert keep.notes() == []


@pytest.mark.parametrize(
    "line", ["", " ", "…—…", '"OR" NEAR(a, b) *', "a" * 500, "\0", "\ud800 half a sign, and then some more words"]
)
def test_any_text_may_be_looked_for(keep: Keep, line: str) -> None:
    with keep:
        tell(keep, "first", "hello")
        assert keep.context.ask(lambda store: find_heard(store, [line])) == frozenset()
