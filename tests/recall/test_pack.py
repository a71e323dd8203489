"""Packs: what goes in, within which budget; never learned again; rendered beforehand, and gone with what is deleted."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamkeep import Keep, sample
from dreamkeep.agents.opencode.setup import plugin_text
from dreamkeep.capture import hook
from dreamkeep.capture.setup.program import Program
from dreamkeep.errors import BadConfig, BadUsage
from dreamkeep.host import read_file
from dreamkeep.memory.note import Note
from dreamkeep.memory.page import END, Size
from dreamkeep.recall import pack, pack_files
from dreamkeep.recall.hits import Hit
from dreamkeep.recall.pack import MARK, PackLine, fit
from dreamkeep.session.reading.packs import holds_pack, without_packs
from dreamkeep.session.summary import title_of
from tests.agents import claude, codex, copilot, gemini, kimi, qwen
from tests.helpers.cli import Cli
from tests.helpers.faults import LOSSES, FragileHost, PowerCut
from tests.helpers.hooked_agent import Agent
from tests.helpers.secrets import Planted, planted

# -- what goes in; pure

_TEXTS = st.text(max_size=80) | st.sampled_from([END, MARK, "<!--", "a\n### b\n- c", "&lt;!-- dreamkeep:end --&gt;", "\ud800"])
_LINES = st.lists(
    st.builds(
        lambda section, text, ref, is_note: PackLine(section, text, ref, {"kind": "note", "id": ref}, is_note),
        st.sampled_from(list(pack.SECTIONS)),
        _TEXTS,
        st.sampled_from(["", "n-1", "n-2", "claude:x 7.1"]),
        st.booleans(),
    ),
    max_size=30,
)


@given(_LINES, st.integers(1, 400), st.text(max_size=20))
def test_a_pack_never_takes_more_than_its_budget_and_is_one_marked_region(
    lines: list[PackLine], budget: int, project: str
) -> None:
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
    asked = pack.note_lines([_note(901, "finding", "Exports over 2 GB need the streaming writer.")], pack.TASK)
    made = fit("p", [*pack.note_lines(notes), *asked], 400)
    assert "streaming writer" in made.text and "last row" in made.text
    assert made.text.count("never touched by hand") > 5 and made.left_out > 200


def test_left_out_lines_are_counted_also_where_there_was_room() -> None:
    notes = [_note(n, "constraint", f"The {chr(97 + n // 26)}{chr(97 + n % 26)}omat is never painted.") for n in range(500)]
    made = fit("p", pack.note_lines(notes), 1_000_000)
    assert len(made.sources) + made.left_out == 500 and made.left_out >= 100


def test_pinned_notes_come_before_everything_and_notes_are_whole_or_not_there() -> None:
    long = "Deploys go through the release branch, " * 12 + "always."
    notes = [
        *_many(50),
        _note(900, "finding", "The staging host is slow on Mondays.", pinned=True),
        _note(901, "constraint", long),
    ]
    made = fit("p", pack.note_lines(notes), 150)
    lines = made.text.split("\n")
    assert lines[2:4] == ["### Pinned", "- The staging host is slow on Mondays. [n-0900]"]
    assert "Deploys go" not in made.text, "it has no room, so there is nothing of it"
    assert {line for line in lines if "never touched" in line} <= {f"- {one.text} [{one.id}]" for one in notes}


def test_two_similar_notes_give_one_line_and_no_lines_give_no_pack() -> None:
    twice = [_note(1, "constraint", "Never use floats for prices."), _note(2, "preference", "Never use floats for prices!")]
    assert fit("p", pack.note_lines(twice), 500).text.count("floats") == 1
    assert fit("p", [], 500) == pack.Pack("", 0, (), 0)
    assert fit("p", pack.note_lines(twice), 10) == pack.Pack("", 0, (), 2), "no room for anything: nothing at all is said"


def test_a_long_quote_is_cut_between_words_where_the_words_of_the_query_stand() -> None:
    text = "filler words here " * 100 + "the migration needs a lock on orders" + " and more filler" * 100
    shown = pack.excerpt(text, "migration lock")
    assert "migration needs a lock" in shown and len(shown) <= 282 and shown.startswith("…") and shown.endswith("…")
    assert pack.shorten("word " * 100).endswith("word…")


def _past(
    *answers: str, prompts: tuple[str, ...] = ("Move every price of the shop to cents, also in the old invoices.",)
) -> pack.PastSession:
    return pack.PastSession(
        "claude:x", "claude", "Prices", "2026-11-14T09:10:00Z", prompts, answers, "completed", ("shop/prices.py",)
    )


def test_how_the_last_session_stood_is_told_from_its_beginning_or_not_at_all() -> None:
    """What was said last, by nobody knows whom and where, is noise."""
    before = pack.PastSession("codex:y", "codex", "Labels", "2026-11-13T09:10:00Z")
    lines = pack.past_lines(_past("All prices are integers now, and the tests are green."), [before], str)
    seen = set()
    for budget in range(1, 400):
        shown = [line for line in fit("p", lines, budget).text.split("\n") if line.startswith("- ")]
        assert shown == [f"- {line.text} [{line.ref}]" if line.ref else f"- {line.text}" for line in lines][: len(shown)]
        seen.add(len(shown))
    assert seen == {0, 1, 2, 3, 4}
    assert "claude, 2026-11-14 09:10" in fit("p", [*pack.note_lines(_many(300)), *lines], 300).text, (
        "it has room beside many rules"
    )


def test_the_agents_last_answer_is_shown_and_a_mere_done_with_the_one_before_it() -> None:
    [_, said, _] = pack.past_lines(_past("The old invoices keep their floats, for the tax office.", "Done."), [], str)
    assert said.text == "The agent's last answer: “The old invoices keep their floats, for the tax office. … Done.”"
    [_, said, _] = pack.past_lines(
        _past("The old invoices keep their floats.", "All prices are integers now, everywhere."), [], str
    )
    assert said.text == "The agent's last answer: “All prices are integers now, everywhere.”"


def test_a_failed_last_command_is_shown_with_its_error() -> None:
    past = _past("Deployed.")._replace(failed="make deploy → exit 2: disk full")
    assert "The last command failed: make deploy → exit 2: disk full" in [line.text for line in pack.past_lines(past, [], str)]


def _matched(text: str, n: int = 1, role: str = "user", words: str = "prices", clean: pack.Mask = str) -> list[PackLine]:
    hit = Hit("message", "claude:x", n, 0, None, text, "2026-11-14T09:10:00Z", 1.0, "p", role=role)
    return pack.hit_lines([hit], words, {}, clean)


def test_a_quote_says_who_said_it_and_the_same_words_are_quoted_once() -> None:
    lines = [
        *_matched("Prices are in cents."),
        *_matched("Prices  are in cents.", 2),
        *_matched("The prices moved.", 3, "assistant"),
    ]
    made = fit("p", lines, 500)
    assert [line for line in made.text.split("\n") if line.startswith("- ")] == [
        "- 2026-11-14 09:10, user: “Prices are in cents.” [claude:x 1]",
        "- 2026-11-14 09:10, agent: “The prices moved.” [claude:x 3]",
    ]
    assert made.left_out == 0


def test_half_a_secret_where_a_long_text_is_cut_is_in_no_quote() -> None:
    from dreamkeep.secrets.redact import redact

    secret = "ghp_" + "a1B2" * 9
    for half in range(5, len(secret), 7):
        text = "filler " * 3000
        text = text[: 20_000 - half - 20] + " prices, the token " + secret + " more" * 2000
        [line] = _matched(text, clean=lambda text: redact(text)[0])
        assert "ghp_" not in line.text


@pytest.mark.parametrize("one", planted(), ids=lambda one: str(one.kind))
def test_no_planted_secret_is_in_a_title_a_prompt_an_answer_a_file_or_a_quote(one: Planted) -> None:
    from dreamkeep.secrets.redact import redact

    def clean(text: str) -> str:
        return redact(text)[0]

    past = pack.PastSession(
        "claude:x",
        "claude",
        one.text[:200],
        "2026-11-14T09:10:00Z",
        (one.text, "go on"),
        (one.text, "ok"),
        "open",
        (one.text,),
        one.text,
    )
    words = " ".join(one.text.split()[:3])
    told = pack.past_lines(past, [past], clean) + _matched(one.text, words=words, clean=clean)
    text = fit(one.text, told, 100_000, clean).text
    assert "For this task" in text and not [secret for secret in one.secrets if secret in text]
    named = past._replace(title=title_of(one.text))
    assert not [secret for secret in one.secrets if secret in fit("p", pack.past_lines(named, [], clean), 9_999).text]


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
    keep.add_insight("decision", words[2], session="s2", quote=words[2])
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
    assert "### Open items\n- The importer still drops the last row of a file. [n-" in made["text"]
    assert "“Move prices to cents”; interrupted at: “Now make the tests green; the token is [redacted]”" in made["text"]
    assert "The agent's last answer: “The prices are in cents now; the tests are next.”" in made["text"]
    assert "ghp_" not in json.dumps(made) and made["tokens"] <= made["budget"] == 2000
    for one in made["sources"]:
        assert one["kind"] in ("note", "session", "message", "insight") and (one.get("id") or one["session"])


def test_secrets_stay_where_the_user_wants_them_to(told: Keep, root: str, project: Path) -> None:
    with Keep.open(root, environment={"DREAMKEEP_RECALL_REDACT": "false"}) as other:
        assert "ghp_a1B2" in other.pack(project=str(project))["text"]


def test_the_last_session_is_where_somebody_talked_last_and_thanks_is_not_what_it_was_about(keep: Keep, project: Path) -> None:
    """Ending an old session, by hand or because it was quiet for long, does not make it the last one."""
    old = keep.session("old", cwd=project)
    old.record("Paint the shed in the colours of the fence.", ("assistant", "Painted, two coats, and the brushes are clean."))
    new = keep.session("new", cwd=project)
    new.record("Count the apples in the cellar.", ("assistant", "There are 41 apples; seven of them are bad."))
    new.record("thanks!", ("assistant", "You are welcome."))
    old.end()
    text = keep.pack(project=str(project))["text"]
    assert "answered: “Count the apples in the cellar. … thanks!” [python:new]" in text
    assert "The agent's last answer: “There are 41 apples; seven of them are bad. … You are welcome.”" in text
    assert "- Before that: python, " in text and text.index("the shed") > text.index("python:new")


def test_a_pack_holds_what_matches_the_query_or_the_task(told: Keep, project: Path) -> None:
    plain = told.pack(project=str(project), budget=140)
    asked = told.pack("which storage do we use?", project=str(project), budget=220)
    assert "PostgreSQL" not in plain["text"].partition("### Decisions")[0]
    assert "### For this task\n- Let's use PostgreSQL for storage, not MySQL. [n-" in asked["text"]
    task = next(one for one in told.tasks() if "PostgreSQL" in one["title"])
    assert "### For this task\n- Let's use PostgreSQL" in told.pack(project=str(project), task=task["id"][:9])["text"]
    assert "PostgreSQL" in told.pack(project=str(project), task="choose a storage", budget=220)["text"]
    said = told.pack("tests green", project=str(project))["sources"]
    assert {"kind": "message", "session": "python:last"}.items() <= next(o for o in said if o["kind"] == "message").items()


def test_only_what_somebody_said_is_quoted(tmp_path: Path) -> None:
    """Not a compaction's summary (D33), and not what a tool put out."""
    sample.lay_out(sample.SundayHost(), str(tmp_path / "home"))
    with Keep.open(tmp_path / "week", host=sample.SundayHost(), environment={}) as keep:
        list(keep.ingest(home=tmp_path / "home"))
        found, quoted = set(), set()
        for query in ("summary of the previous conversation", "output of make deploy", "restart the reminder timer"):
            found |= {_role(keep, hit.session, f"{hit.seq}.{hit.n}") for hit in keep.search(query, kinds=["message"], limit=30)}
            made = keep.pack(query, "example.org/you/toolshed", budget=100_000)
            quoted |= {_role(keep, one["session"], one["seq"]) for one in made["sources"] if one["kind"] == "message"}
    assert quoted == {"user", "assistant"} and {"summary", "tool"} < found, "search finds more"


@pytest.mark.parametrize(
    ("mark", "is_said"), [("", True), ("partial", True), ("rewound", False), ("injected", False), ("copied", False)]
)
def test_words_that_were_rewound_or_are_nobodys_own_are_not_quoted(mark: str, is_said: bool) -> None:
    assert pack.is_own_words("user", mark) is pack.is_own_words("assistant", mark) is is_said
    assert not any(pack.is_own_words(role, mark) for role in ("tool", "summary", "system", "reasoning"))


def _role(keep: Keep, session: str, seq: str) -> str:
    return str(next(one["role"] for one in keep.show(session)["messages"] if str(one["seq"]) == seq))


def test_an_agents_own_last_prompt_is_not_repeated_under_its_task(told: Keep, project: Path) -> None:
    now = told.session("now", cwd=project).submit("Make the prices page show cents, as the tests want it.")
    now.start()
    made = told.pack("prices page cents tests", project=str(project))
    task, _, rest = made["text"].partition("### Where the last session left off\n")
    assert "prices page" not in task and "The prices are in cents now; the tests are next." in task
    assert rest.startswith("- python, ") and "Make the prices page show cents" in rest.partition("\n")[0]


def test_a_note_that_ended_is_in_no_pack(told: Keep, project: Path) -> None:
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


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keep]:
    with Keep.open(tmp_path_factory.mktemp("asked") / "keep", environment={}) as keep:
        keep.session("s", cwd="/").record("We never use floats for prices.", ("assistant", "Understood."))
        keep.note_add("Prices are integers, in cents: OPS-306, 価格.", kind="constraint")
        yield keep


@given(st.text(max_size=60), st.text(max_size=20), st.integers(1, 300))
def test_any_query_and_any_task_are_legal(asked: Keep, query: str, task: str, budget: int) -> None:
    """D32"""
    made = asked.pack(query, "", task, budget)
    assert made["tokens"] == Size.of(made["text"]).tokens <= budget


def test_the_command_line_says_the_contracts_json(told: Keep, cli: Cli, project: Path) -> None:
    made = cli("pack", "--project", str(project), "--budget", "300", "--query", "storage", "--json")
    assert made.code == 0 and {"text", "tokens", "sources"} <= set(made.json) and made.json["tokens"] <= 300
    assert cli("pack", "--project", str(project), "--budget", "300", "--query", "storage").out.strip() == made.json["text"]
    nothing = cli("pack", "--project", "nobody/knows")
    assert nothing.code == 1 and "Nothing to say" in nothing.out
    assert "fits into 5 tokens" in cli("pack", "--project", str(project), "--budget", "5").out
    assert cli("pack", "--budget", "0").code == 2
    assert cli("pack", environment={"DREAMKEEP_RECALL_BUDGET": "7"}).code == 2


def test_an_invalid_budget_is_refused(keep: Keep, root: str) -> None:
    for budget in (0, -1, True, 10**9):
        with pytest.raises(BadUsage):
            keep.pack(budget=budget)
    with pytest.raises(BadConfig):
        Keep.open(root, environment={"DREAMKEEP_RECALL_BUDGET": "many"})
    assert keep.pack(project="")["text"] == "" and not os.path.exists(root), "asking makes no keep"


# -- never learned again


WORDS = "We always squash commits before merging."
PACK = f"{MARK}\nFrom earlier sessions.\n### Rules and preferences\n- We never deploy on Fridays. [n-1]\n{END}"
ESCAPED = PACK.replace("<", "&lt;").replace(">", "&gt;")


def _claude(how: str) -> dict[str, str]:
    talk = claude.Talk(claude.MAIN)
    answer = json.dumps({"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": PACK}})
    more = {"hookName": "SessionStart", "hookEvent": "SessionStart"}
    if how == "hook":
        talk.attachment("hook_success", toolUseID="SessionStart", content="", stdout=answer, stderr="", exitCode=0, **more)
        talk.attachment("hook_additional_context", content=[PACK], **more)
    talk.prompt(WORDS)
    if how == "shell":
        talk.answer(
            {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "dreamkeep pack"}}, stop="tool_use"
        )
        talk.result("toolu_1", PACK)
    if how == "reminder":
        talk.user(f"<system-reminder>\nSessionStart hook additional context: {PACK}\n</system-reminder>", isMeta=True)
    talk.answer({"type": "text", "text": "Understood."})
    return {f".claude/projects/-home-dev-shop/{claude.MAIN}.jsonl": "".join(json.dumps(one) + "\n" for one in talk.lines)}


def _codex() -> dict[str, str]:
    rollout, turn = codex.Rollout(), codex.turn_id(1)
    rollout.meta(codex.MAIN)
    rollout.said(turn, "developer", "msg_pack", PACK, "hooks.additional_context", hook=True)
    rollout.asks(turn, WORDS)
    rollout.answers(turn, "Understood.")
    rollout.ends(turn)
    return {f".codex/sessions/2026/10/03/rollout-2026-10-03T11-00-00-{codex.MAIN}.jsonl": "\n".join(rollout.lines) + "\n"}


def _gemini(pack: str) -> dict[str, str]:
    chat = gemini.Chat(gemini.MAIN)
    chat.prompt(WORDS, pack)
    chat.answer("Understood.")
    name = f".gemini/tmp/barometer/chats/session-2026-03-02T09-14-{gemini.MAIN[:8]}.jsonl"
    return {name: "\n".join(chat.lines) + "\n", ".gemini/projects.json": json.dumps({"projects": {gemini.FOLDER: "barometer"}})}


def _qwen(tag: str) -> dict[str, str]:
    chat = qwen.Chat(qwen.MAIN)
    chat.add("user", [{"text": WORDS}, {"text": f"<qwen:{tag}-context>\n{ESCAPED}\n</qwen:{tag}-context>"}])
    chat.answer({"text": "Understood."})
    return {f".qwen/projects/-home-mira-orchard/chats/{qwen.MAIN}.jsonl": chat.text()}


def _kimi() -> dict[str, str]:
    wire = kimi.Wire()
    wire.message(PACK, {"kind": "hook_result", "event": "SessionStart"})
    wire.asks(WORDS)
    wire.step("s1", 1, kimi.text("Understood."))
    folder = f".kimi-code/sessions/wd_bread_0123456789ab/{kimi.MAIN}"
    state = {"title": "x", "cwd": kimi.CWD, "agents": {"main": {"type": "main"}}}
    return {f"{folder}/agents/main/wire.jsonl": "\n".join(wire.lines) + "\n", f"{folder}/state.json": json.dumps(state)}


def _copilot() -> dict[str, str]:
    events = copilot.Events(copilot.MAIN)
    events.start()
    events.put("hook.start", hookInvocationId="h", hookType="sessionStart", input={})
    events.put("hook.end", hookInvocationId="h", hookType="sessionStart", output={"additionalContext": PACK}, success=True)
    events.put("user.message", content=WORDS, transformedContent=f"{PACK}\n\n{WORDS}", attachments=[])
    events.step(1, "Understood.")
    events.end(1)
    return {f".copilot/session-state/{copilot.MAIN}/events.jsonl": "\n".join(events.lines) + "\n"}


FORMS: dict[str, Callable[[], dict[str, str]]] = {
    "claude, a hook": lambda: _claude("hook"),
    "claude, a reminder": lambda: _claude("reminder"),
    "claude, the command": lambda: _claude("shell"),
    "codex": _codex,
    "copilot": _copilot,
    "gemini": lambda: _gemini(ESCAPED),
    "gemini, an older one": lambda: _gemini(PACK),
    "kimi": _kimi,
    "qwen, at a prompt": lambda: _qwen("user-prompt-submit"),
    "qwen, at the start": lambda: _qwen("session-start"),
}


def _learned(keep: Keep) -> str:
    for one in keep.sessions():
        keep.end(one.id)
    keep.dream()
    return " ".join(one["text"] for one in keep.notes())


@pytest.mark.parametrize("form", FORMS)
def test_a_pack_in_an_agents_transcript_is_neither_learned_nor_found(form: str, keep: Keep, tmp_path: Path) -> None:
    """D33: whichever way a hook's words come back in a transcript."""
    for name, text in FORMS[form]().items():
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_text(text)
    [*done] = keep.ingest(home=tmp_path / "home")
    assert [one.problem for one in done if one.problem] == [] and len(keep.sessions()) == 1
    assert "Fridays" in json.dumps(keep.show(keep.sessions()[0].id)) or form == "copilot", "it is there to be mistaken"
    learned = _learned(keep)
    assert "squash" in learned and "Friday" not in learned
    assert [hit.text for hit in keep.search("deploy on Fridays")] == []


@pytest.mark.parametrize(
    "shape", ["{pack}\n\n{words}", "{words}\n\n{pack}", "{words}\n{escaped}", "<memory>\n{pack}\n</memory>\n\n{words}"]
)
def test_a_pack_inside_a_prompt_is_not_the_users_word_and_what_is_around_it_is(shape: str, keep: Keep) -> None:
    """D33: one's own agent may put it anywhere."""
    session = keep.session("s", cwd="/")
    session.record(shape.format(pack=PACK, escaped=ESCAPED, words=WORDS), ("assistant", "Understood."))
    learned = _learned(keep)
    assert "squash" in learned and "Friday" not in learned
    assert "Fridays" not in keep.pack(project="/")["text"], "nor is it told as what the user asked"
    assert keep.search("Fridays", kinds=("message",)) == [] and keep.search("squash", kinds=("message",))


def test_the_words_themselves_are_learned_when_a_user_says_them(keep: Keep) -> None:
    """Else the tests above could not fail."""
    keep.session("s", cwd="/").record("We never deploy on Fridays.", ("assistant", "Understood."))
    assert "Friday" in _learned(keep) and keep.search("deploy on Fridays")


# -- rendered beforehand, and handed in by hooks


@pytest.fixture
def agent(root: str, project: Path) -> Agent:
    return Agent(root, project)


def packs(root: str) -> dict[str, str]:
    folder = Path(root) / pack_files.FOLDER
    return {one.name: one.read_text() for one in sorted(folder.iterdir())} if folder.exists() else {}


def test_the_next_session_reads_where_the_last_one_left_off(keep: Keep, root: str, agent: Agent, project: Path) -> None:
    """After a drain alone: nothing was dreamed yet."""
    assert agent.starts() == ""
    agent.says("Rename the price column.", "The column is renamed; the view still has the old name.")
    keep.drain()
    said = Agent(root, project, "another").starts()
    assert said.startswith(MARK) and said.endswith(END) and Size.of(said).tokens <= 2000
    assert "Rename the price column." in said and "the view still has the old name" in said
    assert said == keep.pack(project=str(project))["text"], "what is handed in is what the command says"
    assert agent.starts("resume") == agent.starts("fork") == "", "it has before it what it read when it began"
    assert agent.starts("clear") == said


def test_a_note_is_in_the_next_pack_at_once_and_leaves_it_at_once(keep: Keep, root: str, agent: Agent, project: Path) -> None:
    agent.says("Rename the price column.")
    keep.drain()
    name = keep.sessions()[0].project
    note = keep.note_add("Prices are integers, in cents.", kind="constraint", project=name)
    keep.note_add("Answer in plain words.")
    assert "in cents. [n-" in agent.starts() and "plain words" in agent.starts()
    keep.note_change(note["id"], "edit", text="Prices are integers, in tenths of a cent.")
    assert "tenths of a cent" in agent.starts()
    keep.note_change(note["id"], "retract")
    assert "cent" not in agent.starts()


def test_a_dream_is_in_the_next_pack(keep: Keep, agent: Agent) -> None:
    agent.says("We never use floats for prices.")
    agent.fires("SessionEnd", reason="other")
    keep.drain()
    assert "### Rules" not in agent.starts()
    keep.dream()
    assert "### Rules and preferences\n- We never use floats for prices. [n-" in agent.starts()


def test_only_what_changed_is_written(keep: Keep, root: str, agent: Agent, tmp_path: Path) -> None:
    agent.says("Rename the price column.")
    other = Agent(root, tmp_path / "other", "other")
    other.says("Paint the shed.")
    keep.drain()
    folder = Path(root) / pack_files.FOLDER

    def looks() -> dict[str, tuple[int, int]]:
        return {one.name: (one.stat().st_ino, one.stat().st_mtime_ns) for one in folder.iterdir()}

    first = looks()
    keep.render_packs()
    assert looks() == first and len(first) == 4
    agent.says("And the index.")
    keep.drain()
    changed = {name for name, look in looks().items() if first.get(name) != look}
    assert changed == {pack_files.pack_file(keep.summary(f"claude:{agent.session}").project), "made"}


def test_no_pack_is_rendered_where_no_hook_is_set_up(keep: Keep, root: str) -> None:
    keep.session("s", cwd="/").record("Hello")
    keep.note_add("Answer in plain words.")
    keep.render_packs()
    assert packs(root) == {}


def test_which_pack_is_found_by_the_folder_and_never_another_projects(keep: Keep, root: str, tmp_path: Path) -> None:
    """A repository with all below it and its worktrees; a plain folder alone; what is nobody's gets what holds everywhere."""
    repository, plain = tmp_path / "repo", tmp_path / "plain"
    (repository / ".git" / "worktrees" / "w").mkdir(parents=True)
    (repository / "src" / "deep").mkdir(parents=True)
    (repository / "vendor" / ".git").mkdir(parents=True)
    (plain / "below").mkdir(parents=True)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {repository}/.git/worktrees/w\n")
    (repository / ".git" / "worktrees" / "w" / "commondir").write_text("../..\n")
    Agent(root, repository / "src", "a").says("Work in the repository.")
    Agent(root, plain, "b").says("Work in the plain folder.")
    keep.drain()
    keep.note_add("Answer in plain words.")
    told = {
        **dict.fromkeys((repository, repository / "src" / "deep", tmp_path / "tree"), "in the repository"),
        plain: "in the plain folder",
        **dict.fromkeys((plain / "below", repository / "vendor", tmp_path, Path("/")), "everywhere"),
    }
    for folder, what in told.items():
        said = Agent(root, folder, "new").starts()
        assert "plain words" in said, folder
        assert [w for w in ("in the repository", "in the plain folder") if w in said] == [what] * (what != "everywhere"), folder


def test_a_folder_that_became_another_project_gets_no_pack_of_the_old_one(keep: Keep, root: str, agent: Agent) -> None:
    agent.says("Work in the repository.")
    keep.drain()
    assert "in the repository" in agent.starts()
    (agent.cwd / ".git" / "config").write_text('[remote "origin"]\n  url = https://example.com/new/one.git\n')
    keep.render_packs()
    assert agent.starts() == ""


# -- after a compaction


def test_a_pack_after_a_compaction_holds_what_the_session_said_before(keep: Keep, agent: Agent) -> None:
    """A2: constraints, decisions and open ends of this very session, which no dream has read."""
    agent.starts()
    agent.says("Money is integer cents everywhere, we never use floats for prices. My password is hunter2pass!")
    agent.says("From now on use PostgreSQL for storage, not MySQL.")
    agent.says("Rename the price column.")
    keep.drain()
    assert "### Said in this session" not in agent.starts("compact"), "nothing was compacted yet"
    agent.fires("PreCompact", trigger="auto", custom_instructions=None)
    before = {one: Path(one).read_bytes() for one in map(str, Path(keep.root, "journal").rglob("*.jsonl"))}
    keep.drain()
    said = agent.starts("compact")
    head = said.partition("### Said in this session before its context was compacted\n")[2].partition("###")[0]
    assert "we never use floats for prices." in head and "PostgreSQL" in head and "hunter2pass" not in said
    assert "Rename the price column." in said and Size.of(said).tokens <= 2000
    assert "### Where this session left off\n- claude, " in said and "last session left off" not in said
    for session, seq in re.findall(r"\[(claude:\S+) ([\d.]+)\]$", head, re.MULTILINE):
        assert any(str(one["seq"]) == seq for one in keep.show(session)["messages"])
    assert "[n-" not in head and head.count(f"[claude:{agent.session} ") == head.count("\n- ") + 1, "looked up where it was said"
    assert keep.notes() == [] and not any("insight" in line for line in _kinds(before, keep.root)), "nothing was concluded"
    assert "### Said in this session" not in agent.starts("startup"), "only for who was compacted"
    assert "### Said in this session" not in Agent(keep.root, agent.cwd, "another").starts("compact")
    agent.fires("SessionEnd", reason="other")
    keep.drain()
    assert not any(name.startswith("after~") for name in packs(keep.root)), "nobody asks for it any more"


def _kinds(before: dict[str, bytes], root: str) -> list[str]:
    new = []
    for path in Path(root, "journal").rglob("*.jsonl"):
        lines = path.read_bytes()[len(before.get(str(path), b"")) :].splitlines()
        new += [json.loads(line)["kind"] for line in lines]
    return new


def test_a_pack_after_a_compaction_lacks_what_the_user_rewound(keep: Keep, agent: Agent) -> None:
    agent.says("We never use floats for prices.")
    agent.says("We always squash commits before merging.")
    agent.fires("SessionEnd", reason="other")
    keep.drain()
    keep.dream()
    keep.note_change(next(one["id"] for one in keep.notes() if "floats" in one["text"]), "retract")
    agent.starts("resume")
    agent.fires("PreCompact", trigger="auto")
    keep.drain()
    head = agent.starts("compact").partition("### Said in this session")[2].partition("###")[0]
    assert "squash" in head and "floats" not in head


def test_a_session_that_ended_and_goes_on_is_told_though_its_agent_compacts_before_it_says_so(keep: Keep, agent: Agent) -> None:
    """Codex compacts a resumed session before it fires SessionStart."""
    agent.says("We never use floats for prices.")
    agent.fires("SessionEnd", reason="other")
    keep.drain()
    agent.fires("PreCompact", trigger="auto")
    keep.drain()
    assert "floats" in agent.starts("compact").partition("### Said in this session")[2].partition("###")[0]


def test_an_id_that_is_no_files_name_gets_its_projects_pack(keep: Keep, root: str, project: Path) -> None:
    odd = Agent(root, project, "../../odd")
    assert pack_files.session_file(f"claude:{odd.session}") is None
    odd.says("We never use floats for prices.")
    odd.fires("PreCompact", trigger="auto")
    keep.drain()
    assert not any(name.startswith("after~") for name in packs(root))
    odd.starts("compact")


def test_the_drainer_is_started_before_a_compaction(root: str, agent: Agent, keep: Keep) -> None:
    """By the hook itself: nobody else would read the session before the agent forgets it."""
    agent.says("We never use floats for prices.")
    agent.says("Rename the price column.")
    said = json.dumps({"session_id": agent.session, "cwd": str(agent.cwd), "trigger": "auto"}).encode()
    subprocess.run([sys.executable, "-I", "-S", hook.__file__, "claude", "PreCompact", root], input=said, check=True, timeout=60)
    name = pack_files.session_file(f"claude:{agent.session}")
    for _ in range(600):
        if name in packs(root):
            break
        time.sleep(0.1)
    assert "never use floats" in agent.starts("compact").partition("### Said in this session")[2].partition("###")[0]


# -- deleted


def test_a_deleted_session_leaves_the_rendered_packs(keep: Keep, root: str, agent: Agent, project: Path) -> None:
    """R5: also where no page was ever written, and the packs for other sessions that quote what was learned in it."""
    agent.says("We never use xylophones for prices.")
    agent.fires("SessionEnd", reason="other")
    keep.drain()
    keep.dream()
    other = Agent(root, project, "other")
    other.says("Paint the shed.")
    other.fires("PreCompact", trigger="auto")
    keep.drain()
    assert sum("xylophones" in text for text in packs(root).values()) == 2
    keep.delete(f"claude:{agent.session}")
    assert packs(root) and not any("xylophone" in text for text in packs(root).values())
    assert "Paint the shed" in Agent(root, project, "third").starts()
    keep.delete("claude:other")
    assert not any("shed" in text for text in packs(root).values())


def test_packs_that_can_not_be_written_stop_nothing(keep: Keep, root: str, agent: Agent) -> None:
    warned: list[str] = []
    keep.warn = warned.append
    Path(root, "state").mkdir(parents=True)
    Path(root, pack_files.FOLDER).write_text("no folder")
    agent.says("Rename the price column.")
    assert keep.drain()["calls"] == 2 and "packs" in warned[0]
    assert keep.note_add("Answer in plain words.")["text"] == "Answer in plain words."


def test_packs_that_can_not_be_read_cost_a_pack_and_doctor_says_just_that(keep: Keep, root: str, agent: Agent) -> None:
    warned: list[str] = []
    keep.warn = warned.append
    Path(root, pack_files.FOLDER, "index").mkdir(parents=True)
    assert agent.starts() == ""
    [told] = [one for one in keep.doctor() if one["check"] == "hook"]
    assert told["what"].startswith("an agent got no pack: ") and "directory" in told["what"]
    assert keep.drain()["calls"] == 1 and "packs" in warned[0]


def test_a_folder_name_that_no_file_system_allows_does_no_harm(keep: Keep, root: str, agent: Agent) -> None:
    keep.note_add("Answer in plain words.", kind="preference")
    agent.says("Rename the price column.")
    keep.drain()
    assert "plain words" in agent.fires("SessionStart", cwd="/a\0b", source="startup")
    assert not [one for one in keep.doctor() if one["check"] == "hook"]


def test_a_power_cut_at_every_step_leaves_packs_whole_and_the_next_render_mends_the_rest() -> None:
    def wanted_now(version: str) -> list[pack_files.WantedPack]:
        return [pack_files.WantedPack(name, ((f"/{name}", True),), version) for name in ("one", "two")]

    def render(host: FragileHost, version: str) -> None:
        with pack_files.lock_packs(host, "/keep"):
            pack_files.PackFolder(host, "/keep").update(wanted_now(version), lambda name: f"{name} {version} " * 200)

    def found(host: FragileHost) -> dict[str, str]:
        folder = f"/keep/{pack_files.FOLDER}"
        names = host.names(folder) if host.stat(folder) else []
        return {name: read_file(host, f"{folder}/{name}").decode() for name in names}

    for fail_at in count(1):
        for loss in LOSSES:
            host = FragileHost()
            render(host, "old")
            host.plan(fail_at, "cut")
            try:
                render(host, "new")
            except PowerCut:
                pass
            steps = host.calls
            host = host.reboot(loss)
            left = found(host)
            for line in left.get("index", "").splitlines():
                folder, name = line.split("\t")
                assert left[name] in (f"{folder[1:]} {version} " * 200 for version in ("old", "new")), (fail_at, loss)
            render(host, "new")
            good = found(host)
            assert {text[:7] for name, text in good.items() if name.endswith(".md")} == {"one new", "two new"} and len(good) == 4
        if steps < fail_at:
            break


def test_a_dead_processs_files_are_swept_and_a_damaged_list_of_packs_is_rebuilt(keep: Keep, root: str, agent: Agent) -> None:
    agent.says("Rename the price column.")
    keep.drain()
    good = packs(root)
    folder = Path(root, pack_files.FOLDER)
    (folder / "shop-1.md.0011223344556677.tmp").write_text("half")
    (folder / "made").write_text("[[[")
    (folder / "index").unlink()
    keep.render_packs()
    assert packs(root) == good


@pytest.mark.skipif(shutil.which("node") is None, reason="needs a JavaScript engine")
def test_opencode_gets_the_pack_with_its_system_words_and_another_one_after_a_compaction(
    keep: Keep, root: str, project: Path, tmp_path: Path
) -> None:
    """Once in a session, so that what the model is told stays the same from request to request."""
    opencode = Agent(root, project, "ses1", "opencode")
    Agent(root, project, "before").says("Rename the price column.")
    keep.drain()
    program = Program(sys.executable, hook.__file__, root)
    (tmp_path / "plugin.mjs").write_text(plugin_text(program))
    (tmp_path / "main.mjs").write_text(
        """
import { createInterface } from "node:readline"
const on = await Object.values(await import("./plugin.mjs"))[0]({ directory: process.argv[2] })
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "compacted") await on.event({ event: { type: "session.compacted", properties: { sessionID: "ses1" } } })
  const output = { system: line.startsWith("You") ? [line] : [] }
  await on["experimental.chat.system.transform"]({ sessionID: "ses1" }, output)
  console.log(JSON.stringify(output.system))
}
"""
    )
    words = ["node", str(tmp_path / "main.mjs"), str(project)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdin and node.stdout

        def asks(line: str) -> list[str]:
            print(line, file=node.stdin, flush=True)
            assert node.stdout
            found: list[str] = json.loads(node.stdout.readline())
            return found

        [first] = asks("")
        assert asks("You are a title generator.") == ["You are a title generator."]
        assert first == keep.pack(project=str(project))["text"] and "Rename the price column." in first
        opencode.fires("chat.message", parts=[{"type": "text", "text": "We never use floats for prices.", "messageID": "m1"}])
        opencode.fires("experimental.session.compacting")
        keep.drain()
        assert asks("") == [first]
        [after] = asks("compacted")
        assert "never use floats" in after.partition("### Said in this session")[2].partition("###")[0]
        node.stdin.close()
