"""Sentences are weighed where they stand, by numbers learnt from the talk in data/talks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dreamkeep.dream import work
from dreamkeep.dream.given import Proposal
from dreamkeep.dream.rules import Rules
from dreamkeep.dream.sentences import sentences
from dreamkeep.dream.weigh import Around, numbers, of_user, spread, weighed, weights
from dreamkeep.dream.worded import TEXT
from dreamkeep.memory.insight import TYPES
from tests import talks
from tests.test_rules import found, given, model, ran, user


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


@pytest.mark.slow
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
    # Measured: 0.945 and 0.707. What is kept wrongly is in everybody's way, what is missed is in the session still.
    assert right / (right + wrong) >= 0.94
    assert right / (right + missed) >= 0.7


def test_a_sentence_of_a_bank_is_put_into_talk_in_several_ways_and_always_the_same() -> None:
    path = sorted(talks.FOLDER.glob("bank_*.txt"))[0]
    bank = talks.bank(path)
    assert bank.before and bank.then and {bool(types) for types, _ in bank.said} == {True, False}
    each = list(talks.composed(bank, 3))
    assert each == list(talks.composed(talks.bank(path), 3)) and len(each) == 3 * len(bank.said)
    for n, talk in enumerate(each):
        types, text = bank.said[n // 3]
        marked = [line.text[mark.start : mark.end] for line in talk for mark in line.marks]
        assert marked == ([text] if types else []) and any(text in line.text for line in talk if line.role == "U")
    assert len({tuple(line.text for line in talk) for talk in each}) > 2 * len(bank.said), "hardly ever twice the same way"


def test_many_words_count_less_each_for_the_type_and_what_else_is_known_of_a_sentence_counts_as_it_is() -> None:
    assert spread(["w:a", "w:b", "w:c", "w:d", "b:a_b", "asked"]) == {"w:": 1.0, "b:": 2.0}
    assert spread(["asked"]) == {}
    own = sentences("we never ship on fridays")
    marks = of_user(own, 0, Around(), ())
    types, of = weights("user")
    told = [(mark, numbers(of[mark], len(types) + 1)) for mark in ("*", *marks) if mark in of]
    counts = spread(marks)
    place = types.index("constraint") + 1
    summed = sum(counts.get(mark[:2], 1.0) * found[place] for mark, found in told) / 64
    assert abs(weighed("user", marks).types["constraint"] - summed) < 1e-9


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


_BEFORE = (
    (),
    (user("Please clear up the photo archive.", "1"), model("I will look for duplicates first.", "2")),
    (user("hi, can you look at the deploy script", "1"), model("Sure. It restarts the service. Anything in particular?", "2")),
)
_ROUND = ("{}", "{} It was too slow the other way.", "Thanks. {}", "{} Can you do that?")


def _heard(words: str) -> Iterator[list[Proposal]]:
    """In every surrounding, whatever the model does next: what comes of it."""
    for before in _BEFORE:
        for form in _ROUND:
            for then in ([model("OK.", "4")], [model("Done, I changed it in two places.", "4")], ran(4, "ls", "a", 0)):
                turns = [list(before)] if before else []
                told = found(*turns, [user(form.format(words), "3"), *then])
                yield [one for one in told if one.seq == "3" and one.author == "user" and _rests_on(one.quote, words)]


def _rests_on(quote: str, words: str) -> bool:
    return quote in words or words in quote


@pytest.mark.parametrize(
    "words",
    [
        "The albums folder must never be changed.",
        "Customer names must not appear in logs.",
        "We never deploy on Fridays.",
        "Never commit directly to main.",
        "Please don't use Lombok.",
        "Always run the linter before you commit.",
        "No new dependencies without asking me.",
        "I prefer short answers.",
        "I'd rather have one big file than ten small ones.",
        "We'll use pnpm instead of npm.",
        "Actually the limit is 50 MB, not 20.",
        "We still need to migrate the old invoices.",
        "I suspect the cache is stale.",
        "We release by tagging main and running ./release.sh.",
        "On this cluster everything goes through Slurm, please never start mpirun on the login node.",
        "The audio guide texts can wait until we have booked a speaker.",
        "UPS monitoring we'll do another day.",
        "The alarms for replica lag go into a separate MR later.",
        "Change of plan: make it 48 hours instead of 24.",
        "Make it 300 a minute per key, the dashboard alone does 150.",
        "Our MSRV is now 1.80, no longer 1.74.",
    ],
)
def test_what_is_said_plainly_is_kept_wherever_it_stands_and_whatever_comes_next(words: str) -> None:
    """Testers who knew the promise and not the code saw the same sentence kept or lost by what the model did afterwards."""
    assert all(_heard(words)), [[one.type for one in each] for each in _heard(words)]


@pytest.mark.parametrize(
    "words",
    [
        "the shop page crashes when theres no stock, pls fix",
        "I wonder whether we should support iPads at some point.",
        "we might want to add rate limiting someday, dunno",
        "the coffee machine on our floor is broken again",
        "Their docs say you must always call close.",
        "If it rained every day, we would never need a pump.",
        "You rock, never change.",
        "At work they insist that passwords must be rotated every month.",
        "Fix the typo in the readme, nothing else.",
        "Don't touch the tests for now.",
        "If it panics again I'll become a shepherd and never touch a keyboard.",
        "It can wait until tomorrow.",
        "Never mind, I found it.",
        "Make it 20, please.",
        "As they say, always look on the bright side.",
    ],
)
def test_what_only_sounds_like_it_is_not_kept_wherever_it_stands(words: str) -> None:
    assert not any(_heard(words)), [[one.type for one in each] for each in _heard(words)]


@pytest.mark.parametrize("aside", ["By the way: ", "btw, ", "For context: "])
def test_what_is_told_by_the_way_is_kept_also_beside_the_first_task(aside: str) -> None:
    fact = "amounts are integer cents everywhere in this project."
    task = "The invoice export is wrong for Norway. Please find out why."
    [one] = found([user(f"{task} {aside}{fact}"), *ran(2, "ls", "a", 0)])
    assert (one.type, one.text.lower()) == ("constraint", fact)
    assert found([user(f"{task} {aside}can you look at the footer, too?"), *ran(2, "ls", "a", 0)]) == []
    assert found([user(f"{task} {aside}the footer is broken, too, please fix it."), *ran(2, "ls", "a", 0)]) == []


@pytest.mark.parametrize("before", ["", "great. one more thing: "])
@pytest.mark.parametrize(
    "rule",
    [
        "The API must return JSON.",
        "Tests must never send real mail.",
        "Please always run the linter before you commit.",
        "We use pnpm here, not npm.",
        "I prefer short answers.",
        "Remember that staging has no TLS.",
        "The prod database is read only for us.",
        "We don't mock the database in tests.",
        "Error messages must say what to do next.",
        "Please never change the supplier's file itself, I need the original for my tax advisor.",
        "No LiveData in new code, that's StateFlow now.",
    ],
)
def test_a_rule_in_plain_words_is_kept_in_the_middle_of_a_talk(before: str, rule: str) -> None:
    """Writers who were asked for rules without signal words, and for look-alikes with them, taught it the contrary once."""
    talk = [user("the export page is broken, have a look", "1"), model("I fixed it: the column was misspelt.", "2")]
    proposals = found(talk, [user(before + rule, "3"), model("Understood.", "4")], [user("ok next the footer", "5")])
    [one] = [one for one in proposals if one.seq == "3"]
    assert one.quote.rstrip(".").endswith(rule.rstrip("."))


@pytest.mark.parametrize(
    "order", ["make the header sticky", "run the tests", "Fix the typo in the readme.", "show me the diff", "why is it slow?"]
)
def test_an_order_for_now_is_not_kept(order: str) -> None:
    talk = [user("the export page is broken, have a look", "1"), model("I fixed it: the column was misspelt.", "2")]
    assert [one for one in found(talk, [user(order, "3"), model("Done.", "4")]) if one.seq == "3"] == []


def test_a_few_words_that_choose_say_what_they_answer() -> None:
    offer = "Sliding log (exact), sliding counter (approximate) or token bucket (bursts allowed). Your choice."
    [one] = found(
        [user("the limiter is next", "1"), model(offer, "2")], [user("token bucket", "3"), model("Token bucket it is.", "4")]
    )
    assert (one.type, one.quote) == ("decision", "token bucket")
    assert one.text.startswith("Sliding log") and one.text.endswith("Token bucket")


@pytest.mark.parametrize("choice", ["Let's go with Postgres.", "we use postgres"])
def test_a_choice_that_is_a_sentence_is_the_same_whatever_the_model_said_before(choice: str) -> None:
    """Else the same, said in two sessions, would be two notes."""
    texts = set()
    for reply in (
        "We could use SQLite or Postgres for that.",
        "I put it into Postgres, as in the other service. All tests pass.",
    ):
        texts |= {
            one.text for one in found([user("the store is next", "1"), model(reply, "2")], [user(choice, "3"), model("Ok.", "4")])
        }
    assert len(texts) == 1 and "ostgres" in texts.pop()


def test_the_answer_is_never_what_is_cut() -> None:
    offer = f"There is a sliding log, {'which is exact and takes its memory, ' * 9}or a token bucket."
    [one] = found(
        [user("the limiter is next", "1"), model(offer, "2")], [user("token bucket then", "3"), model("Token bucket.", "4")]
    )
    assert one.text.startswith("There is a sliding log") and one.text.endswith("oken bucket then") and len(one.text) <= TEXT


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
