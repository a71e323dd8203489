"""Packs: what goes in, within which budget; never learned again; rendered beforehand, and gone with what is deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamkeep import Keep
from dreamkeep.errors import BadConfig, BadUsage
from dreamkeep.memory.note import Note
from dreamkeep.memory.page import END, Size
from dreamkeep.recall import pack
from dreamkeep.recall.pack import MARK, Line, fit
from dreamkeep.session.packs import holds_pack, without_packs

from .test_cli import Cli

# -- what goes in; pure

_TEXTS = st.text(max_size=80) | st.sampled_from([END, MARK, "<!--", "a\n### b\n- c", "&lt;!-- dreamkeep:end --&gt;", "\ud800"])
_LINES = st.lists(
    st.builds(
        lambda section, text, ref, is_note: Line(section, text, ref, {"kind": "note", "id": ref}, is_note),
        st.sampled_from(list(pack.SECTIONS)),
        _TEXTS,
        st.sampled_from(["", "n-1", "n-2", "claude:x 7.1"]),
        st.booleans(),
    ),
    max_size=30,
)


@given(_LINES, st.integers(1, 400), st.text(max_size=20))
def test_a_pack_never_takes_more_than_its_budget_and_is_one_marked_region(lines: list[Line], budget: int, project: str) -> None:
    made = fit(project, lines, budget)
    assert made == fit(project, lines, budget), "the same in gives the same out"
    assert made.tokens == Size.of(made.text).tokens <= budget
    if not made.text:
        assert made.sources == () and made.tokens == 0
        return
    assert made.text.startswith(f"{MARK}\n") and made.text.endswith(f"\n{END}")
    assert without_packs(f"before {made.text} after").split() == ["before", "after"]
    escaped = made.text.replace("<", "&lt;").replace(">", "&gt;")
    assert holds_pack(escaped) and not without_packs(escaped).strip()
    shown = made.text.split("\n")[2:-1]
    assert all(line.startswith(("- ", "### ")) for line in shown)
    assert len(made.sources) == sum(line.startswith("- ") for line in shown)


def _note(n: int, kind: str, text: str, **more: Any) -> Note:
    return Note(f"n-{n:04}", kind, text, last_at="2026-01-01T00:00:00Z", **more)


_WORDS = ("harbour", "lantern", "velvet", "copper", "meadow", "thunder", "saffron", "glacier", "pepper", "walnut")


def _many(count: int, kind: str = "constraint") -> list[Note]:
    return [
        _note(n, kind, f"The {_WORDS[n % 10]} {_WORDS[n // 10 % 10]} module {_WORDS[n // 100 % 10]} is never touched by hand.")
        for n in range(count)
    ]


def test_many_rules_do_not_push_out_what_was_asked_for_and_what_is_open() -> None:
    notes = [*_many(300), _note(900, "open_loop", "The importer still drops the last row.")]
    asked = pack.of_task([_note(901, "finding", "Exports over 2 GB need the streaming writer.")])
    made = fit("p", [*pack.of_notes(notes), *asked], 400)
    assert "streaming writer" in made.text and "last row" in made.text
    assert made.text.count("never touched by hand") > 5 and made.left_out > 200


def test_pinned_notes_come_before_everything_and_notes_are_whole_or_not_there() -> None:
    long = "Deploys go through the release branch, " * 12 + "always."
    notes = [
        *_many(50),
        _note(900, "finding", "The staging host is slow on Mondays.", pinned=True),
        _note(901, "constraint", long),
    ]
    made = fit("p", pack.of_notes(notes), 150)
    lines = made.text.split("\n")
    assert lines[2:4] == ["### Pinned", "- The staging host is slow on Mondays. [n-0900]"]
    assert "Deploys go" not in made.text, "it has no room, so there is nothing of it"
    assert {line for line in lines if "never touched" in line} <= {f"- {one.text} [{one.id}]" for one in notes}


def test_what_two_notes_say_alike_is_said_once_and_nothing_is_no_pack() -> None:
    twice = [_note(1, "constraint", "Never use floats for prices."), _note(2, "preference", "Never use floats for prices!")]
    assert fit("p", pack.of_notes(twice), 500).text.count("floats") == 1
    assert fit("p", [], 500) == pack.Pack("", 0, (), 0)
    assert fit("p", pack.of_notes(twice), 10) == pack.Pack("", 0, (), 2), "no room for anything: nothing at all is said"


def test_a_long_quote_is_cut_between_words_where_the_words_of_the_query_stand() -> None:
    text = "filler words here " * 100 + "the migration needs a lock on orders" + " and more filler" * 100
    shown = pack.excerpt(text, "migration lock")
    assert "migration needs a lock" in shown and len(shown) <= 282 and shown.startswith("…") and shown.endswith("…")
    assert pack.shortened("word " * 100).endswith("word…")


# -- asked for


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def told(keep: Keep, project: Path) -> Keep:
    """Notes of every kind that a pack has, and sessions, the last of which was interrupted."""
    words = (
        "We never use floats for prices.",
        "Always run `make lint` before you commit.",
        "Let's use PostgreSQL for storage, not MySQL.",
    )
    for n, said in enumerate(words):
        session = keep.session(f"s{n}", cwd=project)
        session.record(said, ("assistant", "Understood."))
        session.end()
    keep.dream()
    keep.note_add("The importer still drops the last row of a file.", kind="open_loop", project=keep.sessions()[0].project)
    last = keep.session("last", cwd=project, title="Move prices to cents")
    last.record("Move the prices to cents.", ("assistant", "The prices are in cents now; the tests are next."))
    turn = last.submit("Now make the tests green; the token is ghp_" + "a1B2" * 9)
    turn.start()
    turn.settle("interrupted")
    return keep


def test_a_pack_has_rules_open_ends_and_where_the_last_session_stood(told: Keep, project: Path) -> None:
    """A2 M12: and no secret."""
    made = told.pack(project=str(project))
    assert "We never use floats for prices. [n-" in made["text"] and "make lint" in made["text"]
    assert "### Open\n- The importer still drops the last row of a file. [n-" in made["text"]
    assert "“Move prices to cents”; interrupted while at: “Now make the tests green; the token is [redacted]”" in made["text"]
    assert "What the agent said last: “The prices are in cents now; the tests are next.”" in made["text"]
    assert "ghp_" not in json.dumps(made) and made["tokens"] <= made["budget"] == 2000
    for one in made["sources"]:
        assert one["kind"] in ("note", "session", "message", "insight") and (one.get("id") or one["session"])


def test_secrets_stay_where_the_user_wants_them_to(told: Keep, root: str, project: Path) -> None:
    with Keep.open(root, environment={"DREAMKEEP_RECALL_REDACT": "false"}) as other:
        assert "ghp_a1B2" in other.pack(project=str(project))["text"]


def test_what_matches_the_query_or_the_task_comes_along(told: Keep, project: Path) -> None:
    plain = told.pack(project=str(project), budget=140)
    asked = told.pack("which storage do we use?", project=str(project), budget=220)
    assert "PostgreSQL" not in plain["text"].partition("### Decisions")[0]
    assert "### For this task\n- Let's use PostgreSQL for storage, not MySQL. [n-" in asked["text"]
    task = next(one for one in told.tasks() if "PostgreSQL" in one["title"])
    assert "### For this task\n- Let's use PostgreSQL" in told.pack(project=str(project), task=task["id"][:9])["text"]
    assert "PostgreSQL" in told.pack(project=str(project), task="choose a storage", budget=220)["text"]
    said = told.pack("tests green", project=str(project))["sources"]
    assert {"kind": "message", "session": "python:last"}.items() <= next(o for o in said if o["kind"] == "message").items()


def test_what_does_not_hold_any_more_is_in_no_pack(told: Keep, project: Path) -> None:
    floats = next(one for one in told.notes() if "floats" in one["text"])
    told.note_change(floats["id"], "retract")
    told.note_add("Let's use SQLite for storage.", kind="decision", project=floats["project"])
    text = told.pack(project=str(project))["text"]
    for one in told.notes(state=None):
        assert (one["id"] in text) <= (one["state"] == "active"), one
    assert "never use floats" not in text.partition("### Where")[0]


def test_another_project_gets_only_what_holds_everywhere(told: Keep, tmp_path: Path) -> None:
    told.note_add("Answer in plain words.", kind="preference")
    for where in (str(tmp_path / "elsewhere"), ""):
        made = told.pack(project=where)
        assert [one["kind"] for one in made["sources"]] == ["note"] and "plain words" in made["text"]


def test_the_same_keep_gives_the_same_bytes_however_its_index_came_to_be(told: Keep, root: str, project: Path) -> None:
    first = told.pack("storage prices", project=str(project))
    told.reindex(from_zero=True)
    with Keep.open(root) as again:
        assert again.pack("storage prices", project=str(project)) == first


def test_the_command_line_says_the_contracts_json(told: Keep, cli: Cli, project: Path) -> None:
    made = cli("pack", "--project", str(project), "--budget", "300", "--query", "storage", "--json")
    assert made.code == 0 and {"text", "tokens", "sources"} <= set(made.json) and made.json["tokens"] <= 300
    assert cli("pack", "--project", str(project), "--budget", "300", "--query", "storage").out.strip() == made.json["text"]
    nothing = cli("pack", "--project", "nobody/knows")
    assert nothing.code == 1 and "nothing to say" in nothing.out
    assert "fits into 5 tokens" in cli("pack", "--project", str(project), "--budget", "5").out
    assert cli("pack", "--budget", "0").code == 2
    assert cli("pack", environment={"DREAMKEEP_RECALL_BUDGET": "7"}).code == 2


def test_a_budget_that_is_none_is_refused(keep: Keep, root: str) -> None:
    for budget in (0, -1, True, 10**9):
        with pytest.raises(BadUsage):
            keep.pack(budget=budget)
    with pytest.raises(BadConfig):
        Keep.open(root, environment={"DREAMKEEP_RECALL_BUDGET": "many"})
    assert keep.pack(project="")["text"] == "" and not os.path.exists(root), "asking makes no keep"
