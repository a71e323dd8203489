"""Sentences are weighed where they stand, by numbers learnt from the talk in data/talks."""

from __future__ import annotations

from dreamkeep.dream import work
from dreamkeep.dream.rules import Rules
from dreamkeep.dream.sentences import sentences
from dreamkeep.dream.weigh import Around, numbers, of_user, weighed, weights
from dreamkeep.memory.insight import TYPES
from tests import talks
from tests.test_rules import found, given, model, user


def test_the_weights_are_those_of_the_talks() -> None:
    """Else: make weights."""
    from importlib.resources import files

    for who in ("user", "model"):
        head = files("dreamkeep.dream").joinpath("data", f"weights_{who}.txt").read_text(encoding="utf-8").partition("\n")[0]
        assert talks.digest() in head


def test_every_weight_is_a_whole_number_and_every_type_one_of_ours() -> None:
    for who in ("user", "model"):
        known = weights(who)
        assert set(known.types) <= set(TYPES)
        each = [numbers(told, len(known.types) + 1) for told in known.of.values()]
        assert all(len(found) == len(known.types) + 1 and any(found) for found in each)


def test_in_the_talks_most_of_what_is_marked_is_kept_and_little_else() -> None:
    """They are what was learnt from: this says only that marks, weights and choice still fit each other."""
    right = wrong = missed = 0
    for path in sorted(talks.FOLDER.glob("[0-9]*.txt"))[:3]:
        for talk in talks.load(path):
            lines = {line.seq: line for line in talk if line.role in "UA"}
            rests: set[tuple[str, int]] = set()
            for one in Rules().backfill(talks.given(talk)).proposals:
                if (line := lines.get(one.seq)) is None:
                    continue
                start = line.text.find(one.quote)
                met = talks.met(line.marks, start, start + len(one.quote))
                rests |= {(one.seq, mark.start) for mark in met}
                right += bool(met)
                wrong += not met
            wanted = {(line.seq, mark.start) for line in lines.values() for mark in line.marks if not mark.optional}
            missed += len(wanted - rests)
    assert right / (right + wrong) >= 0.9
    assert right / (right + missed) >= 0.75


def test_the_same_words_weigh_less_as_an_order_than_as_an_answer() -> None:
    own = sentences("sort by date, newest on top")
    order = weighed("user", of_user(own, 0, Around(first=True), ()))
    reply = "Should the list be sorted by name or by date?"
    answer = weighed("user", of_user(own, 0, Around(reply=reply, asked=reply, after="EA", answer="Done."), ()))
    assert answer.keep > order.keep and answer.type == "decision"


def test_a_plain_rule_is_kept_whatever_the_model_answers() -> None:
    for text in ("We never use floats for prices.", "The port of the server is always 8080."):
        for answer in ("Understood.", "The cache was full, so I cleared it.", "Done, and tested."):
            assert [one.text for one in found([user(text), model(answer)]) if one.author == "user"] == [text]


def test_a_rule_that_is_all_that_was_said_is_kept_whatever_it_weighs() -> None:
    for words in (
        "never commit to main directly",
        "We never use floats for prices.",
        "Always run `make lint` before you commit.",
    ):
        assert [one.quote for one in found([user(words)])] == [words]


def test_what_the_model_found_out_is_a_finding_and_what_it_did_is_none() -> None:
    turns = [
        user("the export is empty on Mondays, why?", "1"),
        model("The cause is the cache: it is filled at midnight, before the new week's rows are there.", "2"),
        model("I changed two files. All tests pass.", "3"),
    ]
    assert [(one.type, one.seq, one.author) for one in found(turns)] == [("finding", "2", "agent")]
    assert found(turns, [user("no, that's wrong, look again", "4")]) == []


def test_heard_messages_have_what_was_done_after_them() -> None:
    from dreamkeep.dream.rules import Heard, heard

    turn = [user("rename it", "1"), model("Done.", "2")]
    [one] = [step for step in heard(work.steps(given(turn))) if isinstance(step, Heard)]
    assert one.around == Around(first=True, after="A", answer="Done.")
