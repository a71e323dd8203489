"""Sessions converted for another agent: our readers read the same messages in the same order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dreamkeep import Keep
from dreamkeep.agents import facts as f
from dreamkeep.agents.claude import writer as claude
from dreamkeep.agents.codex import writer as codex
from dreamkeep.agents.gemini import writer as gemini
from dreamkeep.agents.hermes import writer as hermes
from dreamkeep.agents.hermes_webui import writer as hermes_webui
from dreamkeep.agents.registry import BUILT_IN as AGENTS
from dreamkeep.agents.registry import reader_for
from dreamkeep.agents.shared import talk
from dreamkeep.capture.sources.document import split
from dreamkeep.index.store import Store
from dreamkeep.recovery.restore import convert
from dreamkeep.recovery.restore.restore import StoredSession, list_targets, load_session
from dreamkeep.session.messages import Message
from dreamkeep.session.summary import Summary
from tests.agents.described import described
from tests.helpers.agent_samples import REAL_TRANSCRIPTS, load_generator

Told = list[tuple[str, ...]]


def told(steps: Iterable[talk.TalkStep]) -> Told:
    """The messages without what a format may change: blanks around words, and the words before a summary."""
    found: Told = []
    for step in steps:
        if step.kind in (talk.USER, talk.ASSISTANT, talk.SUMMARY):
            found.append((step.kind, without_beginning(step.kind, step.text).strip()))
        elif step.kind == talk.CALL:
            found.append(("call", step.id, step.name, json.dumps(step.input, sort_keys=True)))
        elif step.kind == talk.RESULT:
            found.append(("result", step.id, step.text.strip()))
    return found


def shown(messages: Iterable[dict[str, Any]]) -> Told:
    found: Told = []
    for message in messages:
        if message.get("mark"):
            continue
        tool = message.get("tool") or {}
        if message["role"] == "assistant" and tool:
            found.append(("call", tool["id"], tool["name"], json.dumps(tool["input"], sort_keys=True)))
        elif message["role"] == "tool":
            found.append(("result", tool["id"], message["text"].strip()))
        elif message["role"] in ("user", "assistant", "summary"):
            found.append((message["role"], without_beginning(message["role"], message["text"]).strip()))
    return found


def without_beginning(role: str, text: str) -> str:
    return text.removeprefix("[CONTEXT COMPACTION — REFERENCE ONLY]") if role == "summary" else text


def without_results(said: Told) -> Told:
    """Where a format has the results in its calls, their order among each other is all that can be compared."""
    return [one for one in said if one[0] != "result"]


def check(said: Told, read: Told) -> None:
    assert without_results(read) == without_results(said)
    assert sorted(one for one in read if one[0] == "result") == sorted(one for one in said if one[0] == "result")


# -- whole sessions, through files


def sessions_of(keep: Keep, agent: str, home: Path) -> list[str]:
    list(keep.ingest(agents=[agent], home=home))
    return [session.id for session in keep.sessions() if session.turns]


@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_every_session_reads_the_same_after_conversion_to_every_agent(agent: str, keep: Keep, tmp_path: Path) -> None:
    load_generator(agent).write(tmp_path / "home")
    converted(keep, sessions_of(keep, agent, tmp_path / "home"), tmp_path)


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "hermes", "opencode", "pi"])
def test_real_sessions_read_the_same_after_conversion_to_every_agent(agent: str, keep: Keep, tmp_path: Path) -> None:
    if not (REAL_TRANSCRIPTS / agent).is_dir():
        pytest.skip("no real transcripts on this machine; set DREAMKEEP_TRANSCRIPTS")
    converted(keep, sessions_of(keep, agent, REAL_TRANSCRIPTS / agent), tmp_path)


def _story(store: Store, session: str) -> StoredSession:
    messages = store.messages(session)
    return load_session(store, session, lambda: messages)


def converted(keep: Keep, sessions: list[str], tmp_path: Path) -> None:
    assert sessions
    for session in sessions:
        known = keep.context.ask(partial(_story, session=session))
        said, _ = convert.build_talk(known.summary, known.messages(), known.about)
        for to in list_targets():
            place = tmp_path / f"{to} {abs(hash(session))}"
            done = keep.restore(session, to, home=place / "home", convert=True)
            assert not done["exact"]
            with Keep.open(place / "keep") as second:
                found = list(second.ingest(agents=[to], home=place / "home"))
                assert [one.problem for one in found if one.problem] == []
                back = second.show(f"{to}:{done['native_id']}")
            seen = described(back)
            assert (seen["unknown"], seen["odd"]) == ({}, 0), (to, session)
            # What a fork copied is marked as that alone; as rows of its own, Hermes' own words are known again.
            own = [step for step in said.steps if not step.text.startswith("[Your active task list")]
            check(told(own if to == "hermes" else said.steps), shown(back["messages"]))
            assert back["session"]["cwd"] == (known.summary.cwd or str(place / "home"))
            summaries = sum(step.kind == talk.SUMMARY for step in said.steps)
            assert len(seen["compactions"]) == summaries, (to, session)
            if known.summary.title:
                assert back["session"]["title"][:40] == known.summary.title[:40], (to, session)
            again = keep.restore(session, to, home=place / "home", convert=True)
            assert {file["action"] for file in again["files"]} == {"unchanged"}, "the same session, the same ids"


# -- any talk at all, through the readers


def records(to: str, said: talk.Talk) -> Iterator[f.Record]:
    if to == "hermes":
        made = hermes.write(said)
        yield f.Record("row", dict(made.session), "", "sessions")
        for n, row in enumerate(made.messages, 1):
            yield f.Record("row", {"id": n, **row}, "", "messages")
    elif to == "hermes-webui":
        for piece in split(hermes_webui.write(said).written.data):
            yield f.Record("piece", None, piece.decode(), "", "main")
    else:
        made_as: dict[str, Callable[[talk.Talk], talk.WrittenFile]]
        made_as = {"claude": claude.write, "codex": codex.write, "gemini": partial(gemini.write, project="p")}
        data = made_as[to](said).data
        assert data.endswith(b"\n")
        for line in data[:-1].split(b"\n"):
            yield f.Record("file", json.loads(line), "", "", "main")


def read_back(to: str, said: talk.Talk) -> Told:
    channel = {"hermes": "row", "hermes-webui": "piece"}.get(to, "file")
    reader = reader_for(to, channel, {})
    found: dict[str, f.MessageSaid] = {}
    for record in records(to, said):
        for fact in reader.read(record):
            assert not isinstance(fact, (f.UnknownRecord, f.OddRecord, f.MessagesRewound)), fact
            if isinstance(fact, f.MessageSaid):
                assert fact.key not in found or found[fact.key]._replace(at=None) == fact._replace(at=None)
                found[fact.key] = fact
    return shown({"role": one.role, "text": one.text, "tool": one.tool, "mark": one.mark} for one in found.values())


#: Words that no client takes for its own: what a user may quote of these is another matter.
words = st.text(st.characters(), max_size=40).map(lambda said: f"w{said}") | st.sampled_from(
    ["", " ", "w" * 100_000, "w\0\u2028\ud800"]
)
ids = st.sampled_from(["", "a", "b", "toolu_0123456789abcdef", "no good id!", "x" * 200])
json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
calls = st.fixed_dictionaries({"id": ids, "name": st.sampled_from(["Bash", "mcp__x__y", "bad name", ""]), "input": json_data})
results = st.fixed_dictionaries({"id": ids, "error": st.booleans()})
times = st.none() | st.sampled_from([f"2026-01-01T00:00:{n:02d}.000000Z" for n in range(5)])
marks = st.sampled_from(["", "", "", "", f.REWOUND, f.META, f.COPIED, f.PARTIAL])


@st.composite
def messages(draw: st.DrawFn) -> list[Message]:
    found = []
    for seq in range(draw(st.integers(0, 12))):
        role = draw(st.sampled_from(["user", "assistant", "call", "tool", "reasoning", "summary", "system", "narrator"]))
        tool = draw(calls) if role == "call" else draw(results) if role == "tool" else None
        said = "" if role == "call" else draw(words)
        said = f"{said} {seq}" if role == "summary" else said  # an equal one would count as a repetition
        role = "assistant" if role == "call" else role
        found.append(Message(seq, 0, role, said, draw(times), None, tool, draw(marks)))
    return found


SUMMARY = Summary("python:any", "python", "any", cwd="/w", title="t", started_at="2026-01-01T00:00:00.000000Z")


def looks_like_a_kept_head(said: talk.Talk) -> bool:
    """Earlier words once more, right before a summary: just so a compaction in Hermes looks that kept its head."""
    words_said = [step.text for step in said.steps]
    pairs = zip(said.steps, said.steps[1:], strict=False)
    return any(next_.kind == talk.SUMMARY and words_said.count(one.text) > 1 for one, next_ in pairs if one.kind == talk.USER)


#: A long prompt, typed again before the context was squeezed.
TYPED_TWICE = ("w" * 5000, "w", "w", "w", "w", "w" * 5000, "w0", "w 7")


@pytest.mark.parametrize("to", list_targets())
@given(said=messages())
@example(said=[Message(n, 0, "user", "w same", None, None) for n in range(3)])
@example(
    said=[
        Message(1, 0, "user", "w", None, None),
        Message(2, 0, "summary", "w", None, None),
        Message(3, 0, "user", "w", None, None),
    ]
)
@example(said=[Message(n, 0, "summary" if n == 7 else "user", text, None, None) for n, text in enumerate(TYPED_TWICE)])
def test_any_converted_talk_is_read_back_unchanged(to: str, said: list[Message]) -> None:
    plain, lost = convert.build_talk(SUMMARY, said, {})
    assume(to != "hermes" or not looks_like_a_kept_head(plain))
    check(told(plain.steps), read_back(to, plain))
    assert not any(count < 0 for count in lost.values())
    twice, _ = convert.build_talk(SUMMARY, said, {})
    assert list(records(to, twice)) == list(records(to, plain)), "deterministic"


@given(said=messages())
def test_every_converted_talk_keeps_the_rules_of_all_models(said: list[Message]) -> None:
    plain, lost = convert.build_talk(SUMMARY, said, {})
    open_calls: list[str] = []
    used: set[str] = set()
    for step in plain.steps:
        step.text.encode()
        if step.kind == talk.CALL:
            assert step.id not in used and step.id.replace("_", "").replace("-", "").isalnum() and step.name
            json.dumps(step.input, allow_nan=False).encode()
            used.add(step.id)
            open_calls.append(step.id)
        elif step.kind == talk.RESULT:
            open_calls.remove(step.id)
        else:
            assert step.text.strip() and not open_calls, "a result stands right behind the calls that were made with it"
    assert open_calls == []
    assert sorted({step.at for step in plain.steps}) == [step.at for step in plain.steps], "times only grow"
    # Each message is there, or counted.
    made_up = lost[convert.UNANSWERED] + lost[convert.UNCALLED]
    left_out = lost[convert.REWOUND] + lost[convert.CLIENT] + lost[convert.EMPTY] + lost[convert.ROLES]
    both = sum(bool(m.text.strip() and m.tool) for m in said if m.role == "assistant")
    assert len(plain.steps) == len(said) + both + made_up - left_out


def test_everything_that_a_conversion_loses_is_counted() -> None:
    said = [
        Message(1, 0, "user", "do it", None, None),
        Message(2, 0, "user", "no, not that", None, None, mark=f.REWOUND),
        Message(3, 0, "system", "you are in a folder", None, None, mark=f.META),
        Message(4, 0, "reasoning", "hm", None, None),
        Message(5, 0, "assistant", "", None, None, {"id": "a b", "name": "do it!", "input": [1]}),
        Message(6, 0, "tool", "42", None, None, {"id": "nobody's"}),
        Message(7, 0, "assistant", "\ud800", None, None),
        Message(8, 0, "user", "copied", None, None, mark=f.COPIED),
    ]
    plain, lost = convert.build_talk(SUMMARY, said, {})
    assert [step.text for step in plain.steps if step.kind == talk.USER] == ["do it", "copied"]
    kept = +lost
    kept.pop(convert.TIMES)
    assert dict(kept) == {
        convert.REWOUND: 1,
        convert.CLIENT: 1,
        convert.IDS: 2,
        convert.NAMES: 2,
        convert.INPUTS: 1,
        convert.UNCALLED: 1,
        convert.UNANSWERED: 1,
        convert.SURROGATES: 1,
    }
    assert claude.write(plain).lost[claude.THOUGHTS] == 1 and codex.write(plain).lost[codex.THOUGHTS] == 1


def _called(name: str) -> Message:
    return Message(0, 0, "assistant", "", None, None, {"id": name, "name": "Bash", "input": {"for": name}})


def _answered(name: str) -> Message:
    return Message(0, 0, "tool", f"result of {name}", None, None, {"id": name})


def test_calls_made_one_after_the_other_stay_so_and_calls_made_together_do_too() -> None:
    """What the second call does may rest on what the first one gave."""
    one_by_one = [_called("a"), _answered("a"), _called("b"), _answered("b")]
    together = [_called("c"), _called("d"), _answered("d"), _answered("c"), _called("e"), _answered("e")]
    said = [Message(0, 0, "user", "go", None, None), *one_by_one, *together, Message(0, 0, "assistant", "done", None, None)]
    plain, _ = convert.build_talk(SUMMARY, said, {})
    assert "".join(step.id if step.kind == talk.CALL else step.id.upper() for step in plain.steps) == "aAbBcdCDeE"
    wanted = [["a"], ["b"], ["c", "d"], ["e"]]
    assert [
        [call["id"] for call in json.loads(row["tool_calls"])] for row in hermes.write(plain).messages if "tool_calls" in row
    ] == wanted
    document = json.loads(hermes_webui.write(plain).written.data)
    assert [[call["id"] for call in one["tool_calls"]] for one in document["messages"] if "tool_calls" in one] == wanted
    chat = [json.loads(line) for line in gemini.write(plain, "p").data.splitlines()]
    assert [[call["id"] for call in one["toolCalls"]] for one in chat if "toolCalls" in one] == wanted
    by_message: dict[str, list[str]] = {}
    for line in map(json.loads, claude.write(plain).data.splitlines()):
        for block in line["message"]["content"] if line.get("type") == "assistant" else ():
            by_message.setdefault(line["message"]["id"], []).extend([block["id"]] if block["type"] == "tool_use" else [])
    assert [ids for ids in by_message.values() if ids] == wanted
    items = [json.loads(line)["payload"] for line in codex.write(plain).data.splitlines() if b'"call_id"' in line]
    assert "".join(one["call_id"] if one["type"] == "function_call" else one["call_id"].upper() for one in items) == "aAbBcdCDeE"


def test_resume_sees_the_summary_and_what_follows() -> None:
    """In each form as its client reads it: older turns stay in the file, out of the model's sight."""
    said = [Message(n, 0, "user" if n != 2 else "summary", f"words {n}", None, None) for n in range(4)]
    plain, _ = convert.build_talk(SUMMARY, said, {})
    lines = [json.loads(line) for line in claude.write(plain).data.splitlines()]
    by_uuid = {line["uuid"]: line for line in lines if "uuid" in line}
    chain, at = [], [line for line in lines if "uuid" in line][-1]
    while at:
        chain.append(at)
        at = by_uuid.get(at["parentUuid"] or "")
    assert [line.get("subtype") or line["message"]["content"] for line in reversed(chain)] == [
        "compact_boundary",
        "words 2",
        "words 3",
    ]
    assert "words 0" in claude.write(plain).data.decode()
    [squeezed] = [json.loads(line) for line in codex.write(plain).data.splitlines() if b'"compacted"' in line]
    assert "words 2" in json.dumps(squeezed["payload"]["replacement_history"])
    [anew] = [json.loads(line) for line in gemini.write(plain, "p").data.splitlines() if b'"$set"' in line]
    assert anew["$set"]["messages"][0]["content"] == [{"text": "words 2"}]
    rows = hermes.write(plain).messages
    assert [row["content"][-7:] for row in rows if row["active"]] == ["words 2", "words 3"]
    document = json.loads(hermes_webui.write(plain).written.data)
    assert len(document["messages"]) == 4 and [m["content"][-7:] for m in document["context_messages"]] == ["words 2", "words 3"]


def test_thoughts_stand_beside_claudes_chain() -> None:
    said = [Message(n, 0, role, f"words {n}", None, None) for n, role in enumerate(["user", "reasoning", "assistant"])]
    plain, _ = convert.build_talk(SUMMARY, said, {})
    question, thought, answer, *_ = [json.loads(line) for line in claude.write(plain).data.splitlines()]
    assert answer["parentUuid"] == question["uuid"] == thought["parentUuid"]
    assert answer["message"]["id"] != thought["message"]["id"]
