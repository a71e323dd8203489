"""MEMORY.md: outside the fence not a byte changes, inside it hand edits are understood, and what is best fits the budget."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dreamkeep import Keep
from dreamkeep.dream.consolidate.consolidate import Consolidating, plan
from dreamkeep.errors import Refused
from dreamkeep.event import Event, Kind
from dreamkeep.memory import alike, page
from dreamkeep.memory.insight import TYPES, Insight, Quote, note_id
from dreamkeep.memory.memory import Memory
from dreamkeep.memory.note import RETRACTED, SUPERSEDED, Note
from dreamkeep.memory.page import BEGIN, END, PageBudget, parse, remaining_budget, render, replace_region
from dreamkeep.memory.page_edits import ADDED, CHANGED, DELETED, PageEdit, find_edits
from dreamkeep.memory.score import score


def noted(text: str, kind: str = "constraint", **more: Any) -> Note:
    project = more.pop("project", "p")
    return Note(note_id(project, kind, text), kind, text, project, **{"sessions": 1, "first_at": "2026-01-01T00:00:00Z", **more})


def region(*lines: str) -> str:
    return "\n".join((BEGIN, *lines, END))


# -- the fence


ODD = st.sampled_from(
    ["\n", "\r\n", "# T\n", "```\n", "~~~\n", "text", "| a | b |\n", "    code\n", "- x\n", "=======\n", "\x85", "\u2028", "\0"]
)
AROUND = st.lists(st.one_of(ODD, st.text(max_size=8)), max_size=12).map("".join)


@settings(max_examples=300)
@given(AROUND, AROUND, st.lists(st.text(max_size=20), max_size=4))
def test_not_a_byte_outside_the_fence_changes(before: str, after: str, texts: list[str]) -> None:
    """D16: headings, lists, code, tables, odd line ends; whatever stands around."""
    made = render([noted(text) for text in texts], "p").text
    first = replace_region(before, made)
    assert first.startswith(before) and parse(first).problem == ""
    assume(parse(first).region is not None)  # not where the user's text hides it in a code block
    file = first + after
    found = parse(file)
    assume(found.region is not None)
    other = render([noted("another text")], "p").text
    now = replace_region(file, other)
    assert now in [found.before + other.replace("\n", line_end) + found.after for line_end in ("\n", "\r\n")]
    assert now.startswith(before) and now.endswith(after)
    assert replace_region(now, other) == now
    assert parse(now).region is not None and parse(now).after == found.after


def test_a_page_written_by_hand_survives_byte_for_byte() -> None:
    """D16"""
    hand = "# Ours\n\n* list\n  1. deep\n\n```sh\nrm -rf x\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\ntext  \nwithout end"
    once = replace_region(hand, region("- a [n-111111]"))
    assert once == hand + "\n\n" + region("- a [n-111111]") + "\n"
    moved = once + "more of mine\n"
    assert replace_region(moved, region("- b [n-222222]")) == hand + "\n\n" + region("- b [n-222222]") + "\nmore of mine\n"


def test_a_file_with_windows_line_ends_keeps_them() -> None:
    once = replace_region("# Title\r\n", region("- a [n-111111]"))
    assert once == "# Title\r\n\r\n" + region("- a [n-111111]").replace("\n", "\r\n") + "\r\n"
    assert replace_region(once, region("- a [n-111111]")) == once
    assert find_edits(region("- a [n-111111]"), parse(once).region or "") == []


def test_a_region_may_end_the_file_without_a_line_feed() -> None:
    assert replace_region(region("- a [n-111111]"), region()) == region()
    assert parse(region()) == ("", region(), "", "")


@pytest.mark.parametrize(
    "text",
    [
        BEGIN + "\n- a\n",
        "x\n" + END + "\n",
        region() + "\n" + region(),
        region(BEGIN),
        region() + "\n" + END,
        END + "\n" + BEGIN,
    ],
)
def test_unclear_fences_are_a_problem_and_nothing_is_written(text: str) -> None:
    found = parse(text)
    assert found.problem and found.region is None and found.before == text
    with pytest.raises(Refused) as told:
        replace_region(text, region())
    assert told.value.next


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{BEGIN}\n{END}\n```\n",
        f"~~~~ html\n{BEGIN}\n~~~\n{END}\n~~~~\n",
        f"say {BEGIN}\n and {END}\n",
        f"> {BEGIN}\n> {END}\n",
        f"    {BEGIN}\n    {END}\n",
        "<!-- dreamkeep:beginning -->\n",
        "",
    ],
)
def test_a_lookalike_of_a_fence_is_no_fence(text: str) -> None:
    assert parse(text) == (text, None, "", "")
    once = replace_region(text, region())
    assert once.startswith(text) and parse(once).region == region()


def test_an_unclosed_code_block_hides_nothing() -> None:
    text = "```\nnever closed\n" + region("- a [n-111111]") + "\n"
    assert parse(text).region == region("- a [n-111111]")


def test_fences_of_other_versions_are_recognised() -> None:
    text = "  <!-- dreamkeep:begin -->\n- a\n<!-- dreamkeep:end v9 -->\t\n"
    assert parse(text).region == text[:-1] and parse(text).after == "\n"


# -- notes → region


EVIL = [
    "two\nlines",
    END,
    f"x\n{END}\ny",
    BEGIN,
    "<!-- hidden",
    "-->",
    "``` code",
    "~~~",
    "# heading",
    "- item",
    "ends in [n-abcdef]",
    "\x1b[31mred\x07",
    "\u2028\u2029\x85\x0b\x0c",
    "\ud800",
    "\u202egnp.exe",
    "<<<<<<< HEAD",
    "&lt;!--",
    "   ",
]


@pytest.mark.parametrize("text", EVIL)
def test_a_notes_text_can_not_break_the_page(text: str) -> None:
    """X1: text is data."""
    made = render([noted(text), noted("a decent note")], "p")
    file = replace_region("before\n", made.text)
    found = parse(file + "after\n")
    assert (found.before, found.region, found.after) == ("before\n\n", made.text, "\nafter\n")
    assert len(made.text.split("\n")) == 3 + len(made.notes) and len(made.text.splitlines()) == 3 + len(made.notes)
    assert "<!--" not in made.text[len(BEGIN) : -len(END)] and "\x1b" not in made.text
    made.text.encode()
    assert find_edits(made.text, made.text) == []


@given(st.text(max_size=40))
def test_any_text_is_flattened_to_one_line_and_read_back(text: str) -> None:
    made = render([noted(text, pinned=True)], "p")
    assert len(made.text.split("\n")) == (3 + len(made.notes) if made.notes else 2)
    assert find_edits(made.text, made.text) == [] and parse(replace_region("", made.text)).region == made.text


def test_notes_are_grouped_by_kind_and_each_ends_with_its_id() -> None:
    notes = [noted("b", "decision"), noted("later", first_at="2026-02-01T00:00:00Z"), noted("a", first_at="2026-01-05T00:00:00Z")]
    made = render(notes, "p")
    lines = made.text.split("\n")
    assert lines == [
        BEGIN,
        "### Constraints",
        f"- a [{notes[2].id}]",
        f"- later [{notes[1].id}]",
        "### Decisions",
        f"- b [{notes[0].id}]",
        END,
    ]
    assert made.notes == (notes[2].id, notes[1].id, notes[0].id) and made.left_out == ()


def test_only_active_notes_of_the_project_and_of_all_projects_are_shown() -> None:
    notes = [noted("mine"), noted("all", project=""), noted("theirs", project="q"), noted("old", state=SUPERSEDED)]
    made = render([*notes, noted("gone", state=RETRACTED)], "p")
    assert set(made.notes) == {notes[0].id, notes[1].id} and made.left_out == ()


def test_a_new_note_is_one_new_line() -> None:
    """M10: small diffs from run to run, though every score has changed."""
    notes = [noted(f"rule number {n} of the house", last_at=f"2026-01-{n:02d}T00:00:00Z") for n in range(1, 20)]
    more = noted("something new", last_at="2026-06-01T00:00:00Z", first_at="2026-06-01T00:00:00Z")
    old, new = (render(some, "p").text.split("\n") for some in (notes, [*notes, more]))
    assert [line for line in new if line not in old] == [page.note_line(more)]
    assert [line for line in new if line in old] == old


def test_the_best_are_kept_and_what_is_left_out_is_listed() -> None:
    """D18 D19: not the tail, not by id."""
    notes = [noted(f"fact{n} holds", last_at=f"2026-{1 + n // 28:02d}-{1 + n % 28:02d}T00:00:00Z") for n in range(100)]
    strong = noted("said often", sessions=9, last_at="2026-01-01T00:00:00Z", author="user")
    pinned = noted("pinned guess", "hypothesis", pinned=True)
    made = render([*notes, strong, pinned], "p", PageBudget(lines=16))
    assert strong.id in made.notes and pinned.id in made.notes
    assert len(made.notes) == 12 and set(made.notes) - {strong.id, pinned.id} == {one.id for one in notes[-10:]}
    assert {left.note for left in made.left_out} == {one.id for one in notes[:-10]}
    assert {left.why for left in made.left_out} == {"no room"}


def test_a_note_is_shown_whole_or_not_at_all() -> None:
    long, short = noted("long " * 100, pinned=True), noted("short")
    made = render([long, short], "p", PageBudget(bytes=300))
    assert made.notes == (short.id,) and [left.note for left in made.left_out] == [long.id]


NOTES = st.lists(
    st.builds(
        noted,
        st.text(max_size=60),
        st.sampled_from([*TYPES, "unheard-of"]),
        sessions=st.integers(0, 20),
        pinned=st.booleans(),
        author=st.sampled_from(["user", "agent"]),
        last_at=st.sampled_from(["2026-01-01T00:00:00Z", "2026-05-01T00:00:00Z", None]),
    ),
    max_size=12,
    unique_by=lambda one: one.id,
)


@settings(max_examples=300)
@given(NOTES, st.integers(0, 20), st.integers(0, 1500), st.none() | st.integers(0, 400))
def test_a_page_fits_any_budget_and_every_note_is_shown_or_listed(
    notes: list[Note], lines: int, size: int, tokens: int | None
) -> None:
    """D17"""
    made = render(notes, "p", PageBudget(lines, size, tokens))
    assert len(made.text.encode()) <= size
    assert len(made.text.split("\n")) <= max(lines, 1)
    if tokens is not None:
        assert page.Size.of(made.text).tokens <= tokens
    assert sorted((*made.notes, *(left.note for left in made.left_out))) == sorted(one.id for one in notes)
    assert render(list(reversed(notes)), "p", PageBudget(lines, size, tokens)).text == made.text


def test_the_region_ends_within_the_files_budget() -> None:
    """D18: what stands before the region takes its part of the budget."""
    before = "mine\n" * 150
    made = render([noted(f"fact{n} holds") for n in range(300)], "p", remaining_budget(before, PageBudget()))
    file = replace_region(before, made.text)
    assert len(made.notes) > 40 and file[: file.index(END)].count("\n") < 200
    assert (
        remaining_budget("x" * 30_000, PageBudget()).bytes == 0
        and render([noted("a")], "p", remaining_budget("x" * 30_000, PageBudget())).text == ""
    )
    assert replace_region("unchanged", "") == "unchanged"


def test_no_two_lines_of_a_page_say_nearly_the_same() -> None:
    twice = [noted("the nightly report goes to the finance bucket"), noted("the nightly sales report goes to the finance bucket")]
    made = render([*twice, noted("the nightly report goes to the sales bucket")], "p")
    assert len(made.notes) == 2 and made.left_out[0].why.endswith("says nearly the same")


# -- hand edits


A, B, C = "n-aaaaaaaaaaaa", "n-bbbbbbbbbbbb", "n-cccccccccccc"
PUBLISHED = region(
    "### Constraints", f"- use tabs [{A}]", f"- never force-push [{B}]", "### Decisions", f"- jobs in Postgres [{C}]"
)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (f"- use tabs [{A}]", f"- use two spaces [{A}]", [PageEdit(CHANGED, A, "use tabs", "use two spaces")]),
        (f"- use tabs [{A}]\n", "", [PageEdit(DELETED, A, "use tabs", "")]),
        (f"- use tabs [{A}]", f"- [{A}]", [PageEdit(DELETED, A, "use tabs", "")]),
        (f"- use tabs [{A}]", f"- use tabs [{A}]\n- sign commits", [PageEdit(ADDED, None, "", "sign commits")]),
        (END, f"Sign the commits.\n{END}", [PageEdit(ADDED, None, "", "Sign the commits.")]),
        (f"- use tabs [{A}]", f"*   use\ttabs   [{A}]  ", []),
        (f"- never force-push [{B}]", f"- never\n  force-push\n  [{B}]", []),
        (f"- use tabs [{A}]", "- use tabs", []),
        (f"- use tabs [{A}]", "- use tabs, always", [PageEdit(CHANGED, A, "use tabs", "use tabs, always")]),
        (
            f"- use tabs [{A}]",
            "- something else entirely",
            [
                PageEdit(DELETED, A, "use tabs", ""),
                PageEdit(ADDED, None, "", "something else entirely"),
            ],
        ),
        ("### Decisions", "\n## My own heading\n\n<!-- a remark -->", []),
        (
            f"- use tabs [{A}]",
            f"- use tabs [{A}]\n- use tabs everywhere [{A}]",
            [PageEdit(ADDED, None, "", "use tabs everywhere")],
        ),
        (f"- use tabs [{A}]", f"- use tabs [{A}]\n- use tabs", []),
        (
            f"- use tabs [{A}]",
            f"- use tabs [{A}]\n- from afar [n-123456789abc]",
            [PageEdit(ADDED, "n-123456789abc", "", "from afar")],
        ),
        (f"- use tabs [{A}]", f"- use tabs [{A}]\n  but not in Makefiles", [PageEdit(ADDED, None, "", "but not in Makefiles")]),
        (f"- use tabs [{A}]", f"1. use tabs [{A}]", []),
        ("use tabs", "use &lt;!-- tabs --&gt;", [PageEdit(CHANGED, A, "use tabs", "use <!-- tabs -->")]),
    ],
)
def test_a_hand_edit_is_understood(old: str, new: str, expected: list[PageEdit]) -> None:
    assert old in PUBLISHED
    now = PUBLISHED.replace(old, new)
    assert find_edits(PUBLISHED, now) == expected
    assert find_edits(PUBLISHED, now.replace("\n", "\r\n")) == expected


def test_an_unfinished_merge_loses_no_line() -> None:
    """X3: both sides are there, markers and the common base are not."""
    now = region(
        "### Constraints",
        "<<<<<<< HEAD",
        f"- use two spaces [{A}]",
        "- mine only",
        "||||||| base",
        f"- use tabs [{A}]",
        "- gone in both",
        "=======",
        f"- use tabs [{A}]",
        "- theirs [n-123456789abc]",
        ">>>>>>> other",
        f"- never force-push [{B}]",
        "### Decisions",
        f"- jobs in Postgres [{C}]",
    )
    assert parse(f"mine\n{now}\n").region == now
    assert find_edits(PUBLISHED, now) == [
        PageEdit(CHANGED, A, "use tabs", "use two spaces"),
        PageEdit(ADDED, None, "", "mine only"),
        PageEdit(ADDED, "n-123456789abc", "", "theirs"),
    ]
    both = PUBLISHED.replace(f"- use tabs [{A}]", f"<<<<<<< a\n- use 2 spaces [{A}]\n=======\n- use 4 spaces [{A}]\n>>>>>>> b")
    assert find_edits(PUBLISHED, both) == [
        PageEdit(CHANGED, A, "use tabs", "use 2 spaces"),
        PageEdit(ADDED, None, "", "use 4 spaces"),
    ]
    assert find_edits(PUBLISHED, PUBLISHED.replace("### Decisions", "Title\n=======")) == [PageEdit(ADDED, None, "", "Title")]


WORDS = st.text("abcdefgh ", min_size=1, max_size=12).filter(lambda text: text.strip() != "")


@settings(max_examples=300)
@given(
    st.lists(WORDS, min_size=1, max_size=8, unique_by=lambda text: " ".join(text.split())),
    st.randoms(use_true_random=False),
)
def test_any_mixture_of_hand_edits_is_understood(texts: list[str], chance: random.Random) -> None:
    """M10: changed, deleted, added, moved, spaced, wrapped: in any mixture."""
    texts = [f"{n} " + " ".join(text.split()) for n, text in enumerate(texts)]
    kinds = [chance.choice(TYPES) for _ in texts]
    notes = [noted(text, kind) for text, kind in zip(texts, kinds, strict=True)]
    published = render(notes, "p")
    assume(len(published.notes) == len(notes))
    lines = [line for line in published.text.split("\n")[1:-1] if line.startswith("- ")]
    by_line = {page.note_line(one): one for one in notes}
    expected: set[PageEdit] = set()
    now: list[str] = []
    for n, line in enumerate(lines):
        one = by_line[line]
        act = chance.choice(["keep", "change", "delete", "space", "wrap", "unmark"])
        if act == "change":
            now.append(f"- ZZZ{n} other words [{one.id}]")
            expected.add(PageEdit(CHANGED, one.id, one.text, f"ZZZ{n} other words"))
        elif act == "delete":
            expected.add(PageEdit(DELETED, one.id, one.text, ""))
        elif act == "unmark":
            now.append(f"- {one.text}")
        else:
            now.append({"keep": line, "space": line.replace(" ", "   ") + "  ", "wrap": line.replace(" ", "\n  ")}[act])
    now = [line.replace("-\n  ", "- ", 1) for line in now]
    for n in range(chance.randint(0, 2)):
        now.append(f"- XXXXXXXX{n} YYYYYYYY QQQQQQQQ")
        expected.add(PageEdit(ADDED, None, "", f"XXXXXXXX{n} YYYYYYYY QQQQQQQQ"))
    chance.shuffle(now)
    found = find_edits(published.text, region("### Any", *now))
    assert set(found) == expected and len(found) == len(expected)


# -- after many sessions


def test_five_hundred_sessions_later_the_pinned_and_the_strongest_are_on_the_page() -> None:
    """D17 D1 D37: within the budget, and no two lines say nearly the same."""
    memory, dream, chance = Memory(), Consolidating(), random.Random(7)
    count = iter(range(10**9))

    def tell(kind: str, body: dict[str, Any]) -> None:
        memory.apply(Event(f"e-{next(count)}", kind, "2027-01-01T00:00:00Z", body))

    def said(session: int, text: str, type: str, author: str) -> Insight:
        at = f"2026-{1 + session // 42:02d}-{1 + session % 28:02d}T{session % 24:02d}:00:00Z"
        quote = Quote(f"python:{session}", str(next(count)), None, text)
        return Insight(f"i-{next(count)}", type, text, "p", (quote,), at, author=author, confidence=0.8)

    strongest = ["Never force-push to main", "All money amounts are integer cents", "raw/ is immutable, we only ever add"]
    politely = ["{}", "please: {}", "{}!", "remember, {}"]
    nouns = ["parser", "cache", "login page", "report", "worker", "menu", "index", "mailer", "importer", "scheduler"]
    verbs = ["retries", "logs to", "is slow without", "needs", "reads from", "is tested with", "fails without"]
    for session in range(500):
        insights = [
            said(session, f"the {chance.choice(nouns)} {chance.choice(verbs)} part{chance.randint(1, 400)}", type, author)
            for type, author in [("finding", "agent"), ("procedure", "agent"), ("decision", "user"), ("constraint", "user")]
        ]
        if session == 0:
            insights.append(said(session, "ask Wanda before you touch the billing tables", "preference", "user"))
        if session % 40 == 3:
            insights += [said(session, chance.choice(politely).format(text), "constraint", "user") for text in strongest]
        for one in insights:
            tell(Kind.INSIGHT_ADDED, one.as_json())
        for kind, body in dream.plan(memory, insights, now="2027-01-01T00:00:00Z", run=f"r-{session}"):
            tell(kind, body)
        if session == 0:
            wanda = next(one for one in memory.notes.values() if "Wanda" in one.text)
            tell(Kind.NOTE_PINNED, {"id": wanda.id})
    assert memory.malformed == 0 and len(memory.notes) > 500
    made = render(memory.notes.values(), "p")
    shown = [memory.notes[id].text for id in made.notes]
    assert "ask Wanda before you touch the billing tables" in shown
    for text in strongest:
        assert any(alike.key(text) == alike.key(one) for one in shown), text
    assert len(made.text.split("\n")) <= 200 and len(made.text.encode()) <= 25_600
    assert not [(a, b) for n, a in enumerate(shown) for b in shown[:n] if alike.near(a, b)]
    newest = max(one.last_at or "" for one in memory.notes.values())
    worst = min(score(memory.notes[id], newest) for id in made.notes)
    assert all(score(memory.notes[left.note], newest) <= worst for left in made.left_out if left.why == "no room")
    assert plan(memory, list(memory.insights.values()), now="2027-01-01T00:00:00Z", run="r") == []


@pytest.mark.slow
def test_five_hundred_sessions_later_the_page_on_the_disk_is_as_good(tmp_path: Path) -> None:
    """D17 D1 D37: the same from the sessions on, by the rules as people use them, dreamed bit by bit."""
    strongest = [
        "We never force-push to main.",
        "Always keep money amounts in integer cents.",
        "Always run `make lint` before you commit.",
    ]
    again = [
        "Please never force-push to main!",
        "Please always keep money amounts in integer cents!",
        "Before you commit, always run `make lint`.",
    ]
    things = ["parser", "cache", "login page", "report", "worker", "menu", "index", "mailer", "importer", "scheduler"]
    rules = ["We never let the {} call {}.", "Always test the {} against {}.", "Never let the {} write to {}.", "Use {} with {}."]
    chance = random.Random(11)
    with Keep.open(tmp_path / "k") as keep:
        for n in range(500):
            session = keep.session(f"s{n}", cwd="/")
            session.record(chance.choice(rules).format(chance.choice(things), f"module_{chance.choice('abcdefgh')}{n % 61}"))
            if n % 50 == 7:
                for text in chance.choice((strongest, again)):
                    session.record(text, ("assistant", "Understood."))
            session.end()
            if n == 0:
                pinned = keep.note_add("Ask before you touch the billing tables.", project=keep.summary("python:s0").project)
                keep.note_change(pinned["id"], "pin")
            if n % 100 == 99:
                assert keep.dream()["failed"] == 0
        known = keep.notes()
    [file] = (tmp_path / "k" / "pages").rglob("MEMORY.md")
    text = file.read_text()
    shown = [line[2:].rsplit(" [n-", 1)[0] for line in text.splitlines() if line.startswith("- ")]
    assert len(known) > 250 > len(shown) > 100, "there was more to say than there is room"
    for wanted in (pinned["text"], *strongest):
        assert sum(alike.key(wanted) == alike.key(one) for one in shown) == 1, wanted
    assert len(text.splitlines()) <= 200 and len(text.encode()) <= 25_600
    assert not [(a, b) for n, a in enumerate(shown) for b in shown[:n] if alike.near(a, b)]
