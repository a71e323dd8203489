"""Hermes WebUI's documents and journals, read alone: versions as capture would cut them, only what is new in each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dreamkeep.agents import facts as f
from dreamkeep.agents.hermes_webui import discovery
from dreamkeep.agents.hermes_webui.reader import Reader
from dreamkeep.capture.sources.document import Insert, delta, mark, split
from dreamkeep.host import RealHost
from tests.agents import anything
from tests.agents import hermes_webui as webui
from tests.agents.crude import fold, read

_ESSENTIAL = ("turns", "roles", "tool_calls", "compactions", "marks", "unknown")


def _versions(*documents: str, source: str = "main", rest: bool = False) -> list[list[f.Fact]]:
    """The facts of each version of a document; of all but the first only the inserted pieces are read."""
    reader = Reader({})
    before: list[bytes] = []
    told: list[list[f.Fact]] = []
    for document in documents:
        after = split(document.encode("utf-8", "surrogatepass"))
        told.append([])
        for op in delta([mark(one) for one in before], after):
            if isinstance(op, Insert):
                told[-1] += reader.read(f.Record("piece", None, op.piece.decode("utf-8", "surrogatepass"), source=source))
                reader = Reader(anything.resumed(reader.state)) if rest else reader
        before = after
    return told


def _all(told: Iterable[list[f.Fact]]) -> list[f.Fact]:
    return [fact for facts in told for fact in facts]


def _said(facts: Iterable[f.Fact], role: str = "") -> list[f.MessageSaid]:
    return [x for x in facts if isinstance(x, f.MessageSaid) and role in ("", x.role)]


def _turns(facts: Iterable[f.Fact]) -> list[tuple[str, str]]:
    return [(one["prompt"], one["state"]) for one in fold(facts)["turns"]]


@pytest.mark.parametrize("session", [webui.MAIN, webui.SPLIT_FROM, webui.SPLIT_TO, webui.FORK])
def test_a_session_is_read_as_expected_wherever_reading_stops(tmp_path: Path, session: str) -> None:
    webui.write(tmp_path)
    document = (tmp_path / f".hermes/webui/sessions/{session}.json").read_text()
    facts = _all(_versions(document))
    assert facts == _all(_versions(document, rest=True))
    found = fold(facts)
    expected = next(one for one in webui.EXPECTED["sessions"] if one["id"] == f"hermes-webui:{session}")
    assert {name: found[name] for name in _ESSENTIAL} == {name: expected[name] for name in _ESSENTIAL}
    edges = [{"kind": x.kind, "session": f"hermes-webui:{x.session}"} for x in facts if isinstance(x, f.Edge)]
    assert edges == expected["lineage"]


def test_seen_version_by_version_a_session_is_the_same_as_seen_at_the_end() -> None:
    """W14: what is saved again is told once."""
    messages = webui.main_messages()
    versions = [webui.document(webui.MAIN, messages[:n]) for n in range(len(messages) + 1)]
    live, late = _all(_versions(*versions, rest=True)), _all(_versions(versions[-1]))
    assert [x.key for x in _said(live)] == [x.key for x in _said(late)]
    assert _turns(live) == _turns(late)


def test_the_models_copy_of_the_messages_adds_none() -> None:
    first = webui.document("a", webui.main_messages(), context=[])
    second = webui.document("a", webui.main_messages(), context=[webui.said("user", "only the model reads this", 5.0)])
    assert not [x for x in _said(_all(_versions(first, second))) if "only the model" in x.text]


def test_identical_prompts_at_two_times_are_two_turns() -> None:
    """T3: "continue" typed twice is two turns."""
    messages = [webui.said("user", "continue", 1.0), webui.said("user", "continue", 2.0)]
    assert len(_turns(_all(_versions(webui.document("a", messages))))) == 2


def test_a_pending_prompt_is_an_open_turn_and_becomes_the_turn_of_its_message() -> None:
    """T1: a prompt is there before it is among the messages, and is one turn afterwards."""
    old = [webui.said("user", "go", 50.0), webui.said("assistant", "gone", 51.0)]
    pending = webui.document("a", old, pending_user_message="go", pending_started_at=100.0, active_stream_id="s")
    streaming = [*old, webui.said("user", "go", 100.0), webui.said("assistant", "I am", 101.0)]
    half = webui.document("a", streaming, pending_user_message="go", pending_started_at=100.0, active_stream_id="s")
    done = webui.document("a", streaming)
    told = _versions(pending, half, done, rest=True)
    assert _turns(_all(told[:1])) == [("go", "completed"), ("go", "open")]
    assert _turns(_all(told[:2])) == [("go", "completed"), ("go", "open")]
    assert _turns(_all(told)) == [("go", "completed"), ("go", "completed")]


def test_a_prompt_saved_at_once_is_not_pending_a_second_time() -> None:
    messages = [webui.said("user", "go", 100.4)]
    both = webui.document("a", messages, pending_user_message="go", pending_started_at=100.2, active_stream_id="s")
    assert _turns(_all(_versions(both))) == [("go", "open")]


def test_an_answer_missed_between_two_versions_still_belongs_to_its_own_turn() -> None:
    asked = [webui.said("user", "one", 1.0)]
    answered = [*asked, webui.said("assistant", "uno", 2.0)]
    next_one = {"pending_user_message": "two", "pending_started_at": 3.0, "active_stream_id": "s"}
    told = _versions(webui.document("a", asked, active_stream_id="s"), webui.document("a", answered, **next_one))
    assert _turns(_all(told)) == [("one", "completed"), ("two", "open")]


def test_a_compaction_stands_behind_the_message_that_its_anchor_names(tmp_path: Path) -> None:
    webui.write(tmp_path)
    facts = _all(_versions((tmp_path / f".hermes/webui/sessions/{webui.MAIN}.json").read_text()))
    place = next(n for n, x in enumerate(facts) if isinstance(x, f.Signal))
    assert [x.text for x in _said(facts[:place], f.ASSISTANT)][-1] == "Two sacks."
    assert next(x.text for x in _said(facts[place:], f.USER)) == "Order more."
    signal = facts[place]
    assert isinstance(signal, f.Signal)
    assert (signal.before, signal.after) == ({"messages": 4}, {"messages": 1})


def test_a_compaction_counts_once_however_often_the_document_is_saved() -> None:
    """S14: the same anchor again is no second compaction."""
    messages = webui.main_messages()
    anchor = {"compression_anchor_message_key": {"role": "assistant", "ts": 1778573703.0}, "compression_anchor_mode": "auto"}
    plain, compacted = webui.document("a", messages[:6]), webui.document("a", messages[:6], **anchor)
    longer = webui.document("a", messages, **anchor)
    told = _versions(plain, compacted, longer, rest=True)
    assert [sum(isinstance(x, f.Signal) for x in facts) for facts in told] == [0, 1, 0]


def test_an_undo_takes_back_what_is_newer_than_its_watermark() -> None:
    """K3: intent is kept as what it is; the words stay."""
    messages = webui.undone_messages()
    shrunk = {"truncation_watermark": 1778573801.0, "intentional_shrink_generation": "a" * 32}
    told = _versions(webui.document("a", messages), webui.document("a", messages[:2], **shrunk), rest=True)
    latin = next(x.key for x in _said(told[0]) if x.text == "In Latin.")
    assert [x.key for x in told[1] if isinstance(x, f.MessagesRewound)] == [latin]
    assert [x.reason for x in told[1] if isinstance(x, f.Boundary)] == ["rewind"]


def test_a_clear_is_a_boundary_and_loses_no_word() -> None:
    cleared = webui.document("a", [], truncation_watermark=0.0, clear_generation="c" * 32)
    told = _versions(webui.document("a", webui.undone_messages()), cleared, cleared.replace("900.5", "901.5"))
    assert [[x.reason for x in facts if isinstance(x, f.Boundary)] for facts in told] == [[], ["clear"], []]
    assert not any(isinstance(x, f.MessagesRewound) for x in _all(told))


def test_a_backup_has_the_same_messages_and_no_turns(tmp_path: Path) -> None:
    """K1, K4: what only the backup has is there; what both have is there once."""
    webui.write(tmp_path)
    folder = tmp_path / ".hermes/webui/sessions"
    live = _all(_versions((folder / f"{webui.UNDONE}.json").read_text()))
    backup = _all(_versions((folder / f"{webui.UNDONE}.json.bak").read_text(), source="backup"))
    assert {x.key for x in _said(live)} < {x.key for x in _said(backup)}
    assert not any(isinstance(x, (f.TurnBegan, f.TurnSettled, f.SessionTitled, f.SessionPlaced)) for x in backup)


def test_all_events_of_a_turn_count() -> None:
    """T8: a turn whose first event is lost is still a turn; how it ended is told whatever comes after."""
    lines = webui.turn_lines()
    assert _turns(read(Reader, lines, source="turns", rest=True)) == [
        ("Is the oven on?", "completed"),
        ("Bake forty rolls.", "interrupted"),
    ]
    assert _turns(read(Reader, lines[1:3], source="turns")) == [("", "open")]
    [reason] = [
        x.reason for x in read(Reader, lines, source="turns") if isinstance(x, f.TurnSettled) and x.state == "interrupted"
    ]
    assert reason == "server_restart"


def test_of_a_torn_document_everything_readable_is_read() -> None:
    """B2: one bad byte does not hide the rest."""
    whole = webui.document("a", webui.main_messages())
    facts = _all(_versions(whole[: whole.index("Order more.")]))
    assert [x.text for x in _said(facts, f.ASSISTANT)] == ["", "Two sacks."]
    assert any(isinstance(x, f.OddRecord) for x in facts)


@pytest.mark.parametrize(
    "document", ["[]", "[1, 2]", "null", '"x"', "", "\0\0", '{"messages": {"a": 1}}', '{"messages": [1, null, []]}']
)
def test_a_document_of_another_shape_raises_nothing_and_has_no_messages(document: str) -> None:
    """B1: a list where an object should be."""
    assert not _said(_all(_versions(document)))


def test_files_beside_sessions_are_no_sessions(tmp_path: Path) -> None:
    """B1, B2: `_*` files and left-overs are no sessions, whatever is in them; an id may have dots."""
    webui.write(tmp_path)
    [place] = discovery.homes(str(tmp_path), {})
    (Path(place) / "_turn_journal" / "sess.1.2.jsonl").write_text("")
    (Path(place) / "_turn_journal" / "sess.1.2~99.jsonl").write_text("")
    (Path(place) / "x.json.reconcile.tmp.1.2").write_text("")
    (Path(place) / "_drafts").mkdir()
    (Path(place) / "_drafts" / f"{webui.MAIN}.json").write_text("{}")
    found = [(one.session, one.role) for one in discovery.discover(RealHost(), place)]
    documents = (webui.MAIN, webui.CRASHED, webui.SPLIT_FROM, webui.SPLIT_TO, webui.UNDONE, webui.FORK)
    beside = [(webui.UNDONE, "backup"), (webui.CRASHED, "turns"), (webui.CRASHED, "run")]
    assert sorted(found) == sorted([(one, "main") for one in documents] + beside + [("sess.1.2", "turns")] * 2)
    assert [role for _, role in found][:3] == ["turns"] * 3


def test_a_session_is_known_by_its_place_or_by_its_id() -> None:
    assert discovery.homes("/h", {"HERMES_WEBUI_STATE_DIR": "/s", "HERMES_HOME": "/a"}) == [
        "/s/sessions",
        "/a/webui/sessions",
        "/h/.hermes/webui/sessions",
    ]
    claimed = discovery.claims("/h/.hermes/webui/sessions/any-name.json")
    assert claimed is not None and claimed.session == "any-name"
    assert discovery.claims(f"/s/sessions/{webui.MAIN}.json") is not None
    assert discovery.claims("/h/.codex/sessions/any-name.json") is None
    assert discovery.claims("/h/.hermes/webui/sessions/_index.json") is None
    assert discovery.claims("/h/.hermes/webui/sessions/_drafts/a.json") is None
    assert discovery.identify("/x/y.json", b'{\n  "session_id": "abc",\n  "messages": []') == "abc"


_NAMES = (
    *("role", "content", "timestamp", "tool_calls", "tool_call_id", "function", "name", "arguments", "reasoning", "_partial"),
    *("_error", "messages", "context_messages", "title", "workspace", "pending_user_message", "pending_started_at"),
    *("compression_anchor_message_key", "compression_anchor_summary", "clear_generation", "intentional_shrink_generation"),
    *("truncation_watermark", "parent_session_id", "event", "turn_id", "created_at", "text", "type", "ts", "updated_at", "id"),
)
_WORDS = (
    "user",
    "assistant",
    "tool",
    "system",
    "submitted",
    "completed",
    "interrupted",
    1778573700.5,
    12,
    "[CONTEXT COMPACTION]",
)


def test_no_input_makes_the_reader_raise() -> None:
    random = Random(10)
    readers = {name: Reader({}) for name in ("main", "backup", "turns", "run")}
    whole = webui.document("a", webui.main_messages())
    for n in range(600):
        strange = anything.record(random, _NAMES, _WORDS)
        text = json.dumps(strange, indent=random.choice((None, 2))) if n % 3 else anything.damaged(random, whole)
        for name, reader in readers.items():
            list(reader.read(f.Record("file", strange, source=name)))
            for piece in split(text.encode("utf-8", "surrogatepass")):
                list(reader.read(f.Record("piece", None, piece.decode("utf-8", "replace"), source=name)))
            readers[name] = Reader(anything.resumed(reader.state))
    sizes: dict[str, Any] = {name: len(json.dumps(reader.state)) for name, reader in readers.items()}
    assert max(sizes.values()) < 20_000
