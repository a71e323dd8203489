"""Difficult sources: they shrink, move, come back, change while they are read, or are damaged."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import zstandard

from dreamkeep import Keep
from dreamkeep.agents.contract import Source
from dreamkeep.agents.registry import BUILT_IN as AGENTS
from dreamkeep.agents.registry import discovery
from dreamkeep.capture import find
from dreamkeep.capture import ingest as ingesting
from dreamkeep.capture.context import CaptureContext, IngestOutcome
from dreamkeep.capture.sources import content, copying, source_bytes
from dreamkeep.event import Event, Kind
from dreamkeep.host import FolderEntry, RealHost, Stat
from dreamkeep.index import build
from dreamkeep.index.store import Store
from dreamkeep.journal.places import folder_of
from dreamkeep.session import records
from dreamkeep.session.messages import Message
from dreamkeep.session.raw import pack
from dreamkeep.verbs import views
from dreamkeep.verbs.capture import open_ingest
from tests.helpers import channels
from tests.helpers.channels import SESSION, Heard
from tests.helpers.claude_home import SID, home_with, ingest, record, shown_texts

EVERY = sorted(AGENTS)
COMPACTED = (
    b'{"parentUuid":null,"logicalParentUuid":"u2","type":"system","subtype":"compact_boundary","content":"compacted",'
    b'"uuid":"c1","timestamp":"2026-11-01T10:01:00.000Z","sessionId":"x","compactMetadata":{"trigger":"manual","preTokens":100}}\n'
)
HIDDEN = {"DREAMKEEP_CAPTURE_EXCLUDE": "/home/dev/shop"}


def write_home(agent: str, home: Path) -> None:
    import_module(f"tests.agents.{agent.replace('-', '_')}").write(home)


def grow(file: Path, data: bytes) -> None:
    with file.open("ab") as source:
        source.write(data)


def take(keep: Keep, home: Path, agent: str) -> list[IngestOutcome]:
    return list(keep.ingest(home=home, agents=[agent]))


def folder(keep: Keep, session: str = f"claude:{SID}") -> str:
    return f"{keep.root}/{folder_of(session)}"


def sources(keep: Keep, session: str = f"claude:{SID}") -> dict[str, dict[str, Any]]:
    return source_bytes.sources(RealHost(), folder(keep, session))


def rejoined(keep: Keep, path: Path) -> bytes:
    [name] = [name for name, about in sources(keep).items() if about["path"] == str(path)]
    return b"".join(source_bytes.lines(RealHost(), folder(keep), name))


def line(role: str, uuid: str, parent: str | None, words: Any, at: int = 1, **message: Any) -> bytes:
    told = json.loads(channels.line(role, uuid, words, at % 60, **message))
    return json.dumps({**told, "parentUuid": parent}).encode()


def answer(uuid: str, parent: str | None, words: str, at: int = 1) -> bytes:
    return line("assistant", uuid, parent, [{"type": "text", "text": words}], at, id=f"m-{uuid}", stop_reason="end_turn")


def followed_and_rebuilt(heard: Heard) -> tuple[dict[str, Any], dict[str, Any]]:
    followed = heard.shown()
    heard.keep.reindex(from_zero=True)
    return followed, heard.shown()


def state_size(heard: Heard) -> int:
    heard.shown()
    return heard.keep.context.ask(lambda store: len(store.state(SESSION)))


# -- following gives what a rebuild gives


def test_equal_messages_pair_one_to_one_with_messages_that_were_indexed_before(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "keep")
    heard.lines(*channels.TRANSCRIPT)
    heard.shown()
    heard.hooks(*channels.HOOKS)
    followed, rebuilt = followed_and_rebuilt(heard)
    assert followed == rebuilt
    channels.assert_everything_once(heard)


def test_several_channels_give_the_same_view_wherever_a_batch_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(tmp_path / "keep")
    heard.lines(*channels.TRANSCRIPT)
    heard.frames(*channels.FRAMES)
    heard.hooks(*channels.HOOKS)
    at_once = heard.shown()
    for events in (1, 2):
        monkeypatch.setattr(build, "_BATCH_EVENTS", events)
        heard.keep.reindex(from_zero=True)
        assert heard.shown() == at_once


def test_the_old_words_of_a_changed_message_pair_with_nothing(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "keep")
    heard.hooks(("UserPromptSubmit", {"prompt": "hi"}))
    for told in (line("user", "u1", None, "hi"), answer("u2", "u1", "alpha"), answer("u2", "u1", "beta")):
        heard.lines(told)
        heard.shown()
    heard.hooks(("Stop", {"last_assistant_message": "alpha"}))
    followed, rebuilt = followed_and_rebuilt(heard)
    assert followed == rebuilt
    assert [m["text"] for m in rebuilt["messages"]] == ["hi", "beta", "alpha"]


def test_a_rewound_message_stays_rewound_when_it_is_repeated(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "keep")
    heard.lines(line("user", "u1", None, "one"), answer("u2", "u1", "first"))
    heard.lines(line("user", "u3", "u2", "two"), answer("u4", "u3", "second"))
    heard.shown()
    heard.lines(line("user", "u5", "u2", "three"), answer("u4", "u3", "second"))
    followed, rebuilt = followed_and_rebuilt(heard)
    assert [(m["text"], m.get("mark")) for m in followed["messages"]][2:4] == [("two", "rewound"), ("second", "rewound")]
    assert followed == rebuilt


def _talk(chance: random.Random) -> list[tuple[str, list[Any]]]:
    """One session on the channels transcript, tap and hooks, with few, repeated words and rewound prompts."""
    file: list[Any] = []
    tap: list[Any] = []
    hooks: list[Any] = []
    parent: str | None = None
    forks: list[str | None] = []
    n = 0
    for turn in range(1, chance.randint(2, 6)):
        words = chance.choice(("ok", "continue", "yes"))
        n += 1
        parent = chance.choice(forks) if forks and chance.random() < 0.25 else parent
        forks.append(parent)
        file.append(line("user", f"u{n}", parent, words, n))
        parent = f"u{n}"
        tap.append(channels.prompt(turn, words))
        hooks.append(("UserPromptSubmit", {"prompt": words}))
        for _ in range(chance.randint(0, 3)):
            words = chance.choice(("ok", "done", "done."))
            n += 1
            file += [answer(f"u{n}", parent, words, n)] * chance.choice((1, 1, 2))
            parent = f"u{n}"
            tap += [channels.chunk(words[:2]), channels.chunk(words[2:])]
            hooks.append(("Stop", {"last_assistant_message": words}))
        tap += [channels.rpc("a", id=turn, result={"stopReason": "end_turn"})] * chance.choice((0, 1))
    return chance.sample([("file", file), ("tap", tap), ("hooks", hooks)], chance.choice((2, 3)))


def test_following_gives_the_same_index_as_a_rebuild_in_any_order_of_channels_and_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(25):
        chance = random.Random(seed)
        heard = Heard(tmp_path / f"keep-{seed}")
        tell: dict[str, Any] = {"file": heard.lines, "tap": heard.frames, "hooks": heard.hooks}
        channels = _talk(chance)
        while channels := [(name, told) for name, told in channels if told]:
            name, told = chance.choice(channels)
            some = chance.randint(1, min(6, len(told)))
            tell[name](*told[:some])
            del told[:some]
            if chance.random() < 0.5:
                heard.shown()
        followed, rebuilt = followed_and_rebuilt(heard)
        with monkeypatch.context() as small:
            small.setattr(build, "_BATCH_EVENTS", 1)
            heard.keep.reindex(from_zero=True)
            one_by_one = heard.shown()
        heard.keep.close()
        assert followed == rebuilt == one_by_one, f"seed {seed}"
        assert rebuilt["session"]["messages"] == len(rebuilt["messages"])
        assert rebuilt["session"]["turns"] == len(rebuilt["turns"])


@pytest.mark.parametrize("agent", EVERY)
def test_an_index_that_stops_after_every_frame_gives_the_same_answers(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line a frame, one frame a batch. Counts equal what is listed, and every message is in exactly one segment."""
    write_home(agent, tmp_path / "home")
    monkeypatch.setattr(content, "FRAME", 1)
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, tmp_path / "home", agent)
        at_once = [keep.show(s.id) for s in keep.sessions()]
        monkeypatch.setattr(build, "_BATCH_EVENTS", 1)
        keep.reindex(from_zero=True)
        assert [keep.show(s.id) for s in keep.sessions()] == at_once
    for shown in at_once:
        session = shown["session"]
        assert session["messages"] == sum(m.get("mark") != "copied" for m in shown["messages"])
        assert (session["turns"], session["segments"]) == (len(shown["turns"]), len(shown["segments"]))
        for m in shown["messages"]:
            tool = m.get("tool") or {}
            if "file" in tool and "id" not in tool:
                continue  # more of a long output: with its beginning, wherever it was captured
            assert [s["id"] for s in shown["segments"] if _inside(m["seq"], s)] == [m["segment"]]


def _inside(seq: int | str, segment: dict[str, Any]) -> bool:
    last = segment["closed_seq"]
    if _place(seq) < _place(segment["opened_seq"]):
        return False
    return last is None or _place(seq) <= (_place(last) if "." in str(last) else (int(last), 1 << 30))


def _place(written: int | str) -> tuple[int, int]:
    seq, _, n = str(written).partition(".")
    return int(seq), int(n or 0)


@pytest.mark.parametrize("lines", [[[]], [["a"]]])
def test_a_frame_with_invalid_lines_hides_nothing(lines: list[Any], tmp_path: Path) -> None:
    heard = Heard(tmp_path / "keep")
    heard.lines(*channels.TRANSCRIPT)
    heard.say(Kind.SOURCE_READ, {"source": "main-1", "role": "main", "gen": 1, "at": 0, "sizes": [2], "lines": lines})
    assert len(heard.shown()["messages"]) == 6


def test_rereading_the_keeps_own_journal_hides_no_session_from_an_answer(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        keep.delete(SID)
        keep.undelete(SID)
        ingest(keep, home)
        assert len(keep.sessions()) == 1
        for part in Path(keep.root, "journal", "keep").glob("*.jsonl"):
            os.utime(part)  # a backup that was put back looks like this
        assert len(keep.sessions()) == 1


class Meanwhile:
    """A store that another process writes to: just before the messages are read, it indexes more of them."""

    def __init__(self, store: Store, act: Callable[[], object]) -> None:
        self._store = store
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def messages(self, session: str) -> list[Message]:
        self._act()
        return self._store.messages(session)


def test_show_answers_from_a_single_state_of_the_index(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1))
    with Keep.open(tmp_path / "keep") as keep, Keep.open(tmp_path / "keep") as other:
        ingest(keep, home)
        keep.sessions()

        def more() -> None:
            grow(file, record(2))
            ingest(other, home)
            other.sessions()

        def ask(store: Store) -> dict[str, Any]:
            known: Any = Meanwhile(store, more)
            return views.show_whole_session(known, f"claude:{SID}", lambda owner: True, "2026-11-01T10:00:00.000000Z")

        shown = keep.context.ask(ask)
        assert shown["session"]["messages"] == len(shown["messages"])


# -- what the fold remembers


def test_killed_taps_leave_nothing_in_the_folds_state(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "keep")
    sizes = []
    for n in range(140):
        heard.say(Kind.TAP_OPENED, {"conn": f"c{n}", "owner": f"o{n}"})
        heard.frames(channels.prompt(1, f"p{n}"), channels.rpc("a", id=1, result={"stopReason": "end_turn"}), conn=f"c{n}")
        if n in (99, 139):
            sizes.append(state_size(heard))
    assert sizes[1] < sizes[0] + 1_000


def test_a_connection_that_continues_after_many_others_reads_the_same_wherever_a_batch_ends(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "keep")
    for n in range(12):
        heard.say(Kind.TAP_OPENED, {"conn": f"c{n}", "owner": f"o{n}"})
        heard.frames(channels.prompt(1, f"p{n}"), channels.chunk(f"be{n}"), conn=f"c{n}")
        heard.shown()
    heard.frames(channels.chunk("gin"), channels.rpc("a", id=1, result={"stopReason": "end_turn"}), conn="c0")
    followed, rebuilt = followed_and_rebuilt(heard)
    assert followed == rebuilt


@pytest.mark.slow
def test_the_folds_state_does_not_grow_with_messages_or_unknown_kinds(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "keep")
    sizes = []
    for size in (500, 10_000):
        many = [line("user" if n % 2 else "assistant", f"u{n}", f"u{n - 1}", f"text {n}") for n in range(size)]
        many += [json.dumps({"type": f"kind-{n}"}).encode() for n in range(size)]
        for at in range(0, len(many), 500):
            heard.lines(*many[at : at + 500])
        sizes.append(state_size(heard))
    assert sizes[1] < sizes[0] + 2_000


def test_a_tap_that_closes_late_does_not_take_the_session_from_the_one_that_follows_it(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "keep")
    heard.say(Kind.TAP_OPENED, {"conn": "c1", "owner": "o1"})
    heard.frames(channels.prompt(1, "first"), channels.rpc("a", id=1, result={"stopReason": "end_turn"}), conn="c1")
    heard.say(Kind.TAP_OPENED, {"conn": "c2", "owner": "o2"})
    heard.say(Kind.TAP_CLOSED, {"conn": "c1", "reason": "eof"})
    heard.frames(channels.prompt(1, "second"), conn="c2")
    assert [t.owner for t in heard.keep.context.ask(lambda store: store.turns(SESSION))] == ["o1", "o2"]


def test_a_hooks_message_outside_of_any_turn_gets_its_turn_from_the_transcript(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "keep")
    heard.hooks(channels.HOOKS[2])
    heard.lines(*channels.TRANSCRIPT)
    assert [m["turn"] for m in heard.shown()["messages"] if m.get("tool")] == ["u1", "u1"]


def test_a_session_does_not_end_before_it_begins_because_a_hook_was_journaled_late(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "keep")
    heard.lines(*channels.TRANSCRIPT)
    late = Event("late", Kind.SESSION_ENDED, "2026-11-01T10:00:03.000000Z", {}, {"state": "ended"})
    heard.keep.context.journals().append(SESSION, [late])
    assert heard.shown()["session"]["last_at"] == "2026-11-01T10:00:06.000000Z"


def test_records_that_a_fork_copied_do_not_count_as_its_own(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "keep")
    heard.hooks(("UserPromptSubmit", {"prompt": "continue"}))
    about = {"source": "main-1", "role": "main", "gen": 1, "at": 0}
    heard.say(Kind.SOURCE_READ, pack({**about, "copied": 1}, [line("user", "u1", None, "continue"), answer("u2", "u1", "yes")]))
    heard.say(Kind.SOURCE_READ, pack(about, [line("user", "u3", "u2", "continue", 9)]))
    shown = heard.shown()
    assert sorted((m["text"], m.get("mark", "")) for m in shown["messages"]) == [
        ("continue", ""),
        ("continue", "copied"),
        ("yes", "copied"),
    ]
    assert (shown["session"]["messages"], shown["session"]["turns"]) == (1, 1)


# -- what is excluded


def test_an_excluded_session_with_a_long_first_line_is_not_captured(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1, "x" * (1 << 20)))
    with Keep.open(tmp_path / "keep", environment=HIDDEN) as keep:
        ingest(keep, home)
        assert keep.sessions() == []


def test_a_session_with_a_long_first_line_has_its_project(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1, "x" * (1 << 20)))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        assert [s.project.endswith("/home/dev/shop") for s in keep.sessions()] == [True]


@pytest.mark.parametrize(
    "first",
    [b'{"type":"summary","summary":"secret","leafUuid":"x"}\n', record(1, "secret")[:40], b"\n"],
    ids=["title", "torn", "blank"],
)
def test_an_excluded_session_is_not_captured_before_it_says_where_it_runs(first: bytes, tmp_path: Path) -> None:
    home, file = home_with(tmp_path, first)
    with Keep.open(tmp_path / "keep", environment=HIDDEN) as keep:
        ingest(keep, home)
        file.write_bytes((first if first.endswith(b"\n") else b"") + record(1, "secret"))
        ingest(keep, home)
        assert keep.sessions() == []


def test_a_session_that_becomes_excluded_grows_no_more(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
    grow(file, record(2, "secret"))
    with Keep.open(tmp_path / "keep", environment=HIDDEN) as keep:
        ingest(keep, home)
        assert shown_texts(keep) == ["question 1"]


def test_a_session_in_a_database_is_captured_once_it_is_no_longer_excluded(tmp_path: Path) -> None:
    write_home("goose", tmp_path / "home")
    with Keep.open(tmp_path / "other") as keep:
        take(keep, tmp_path / "home", "goose")
        wanted = {s.id for s in keep.sessions()}
        cwd = keep.sessions()[0].cwd
    with Keep.open(tmp_path / "keep", environment={"DREAMKEEP_CAPTURE_EXCLUDE": cwd}) as keep:
        take(keep, tmp_path / "home", "goose")
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, tmp_path / "home", "goose")
        assert {s.id for s in keep.sessions()} == wanted


@pytest.mark.parametrize("agent", ["goose", "hermes", "opencode"])
def test_a_session_in_a_database_is_captured_again_once_it_is_undeleted(agent: str, tmp_path: Path) -> None:
    write_home(agent, tmp_path / "home")
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, tmp_path / "home", agent)
        session = keep.sessions()[0].id
        keep.delete(session)
        assert "deleted" in [one.state for one in take(keep, tmp_path / "home", agent)]
        keep.undelete(session)
        take(keep, tmp_path / "home", agent)
        assert session in [s.id for s in keep.sessions()]


def test_a_watcher_captures_an_undeleted_session_again(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1))
    _, other = home_with(tmp_path, record(1), "another")
    with Keep.open(tmp_path / "keep") as watching, Keep.open(tmp_path / "keep") as keep:
        watcher = open_ingest(watching.context)

        def look() -> None:
            found = find.everywhere(RealHost(), str(home), {}, ["claude"])
            list(watcher.run(one for one in found if isinstance(one, Source)))

        look()
        keep.delete(SID)
        keep.undelete(SID)
        grow(other, record(2))
        look()
        ingest(keep, home)
        assert f"claude:{SID}" in [s.id for s in keep.sessions()]


@pytest.mark.parametrize("blank", [b"\n\n\n", b"\r\n", b" \n"])
def test_a_file_of_blank_lines_is_not_a_session(blank: bytes, tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, blank)
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        assert keep.sessions() == []


# -- what agents do to their files


def test_a_line_that_is_finished_after_a_rewrite_is_read(tmp_path: Path) -> None:
    last = record(3)
    home, file = home_with(tmp_path, record(1) + record(2) + last[:100])
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        file.write_bytes(record(1, "changed") + record(2) + last[:100])
        ingest(keep, home)
        grow(file, last[100:] + record(4))
        ingest(keep, home)
        assert rejoined(keep, file) == file.read_bytes()
        assert shown_texts(keep) == ["changed", "answer 2", "question 3", "answer 4"]


def test_a_line_that_is_finished_after_a_move_is_read(tmp_path: Path) -> None:
    last = record(3)
    home, file = home_with(tmp_path, record(1) + record(2) + last[:100])
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        file = _moved(file)
        ingest(keep, home)
        grow(file, last[100:] + record(4))
        ingest(keep, home)
        assert shown_texts(keep) == ["question 1", "answer 2", "question 3", "answer 4"]


def _moved(file: Path) -> Path:
    elsewhere = file.parent.parent / "-home-dev-other" / file.name
    elsewhere.parent.mkdir(exist_ok=True)
    return file.rename(elsewhere)


def test_a_moved_source_stays_one_source(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        file = _moved(file)
        ingest(keep, home)
        assert [about["path"] for about in sources(keep).values()] == [str(file)]


def test_a_file_that_moved_there_and_back_is_kept_byte_for_byte(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1) + record(2))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        elsewhere = _moved(file)
        grow(elsewhere, record(3))
        ingest(keep, home)
        elsewhere.rename(file)
        grow(file, record(4))
        ingest(keep, home)
        for name in sources(keep):
            assert file.read_bytes().startswith(b"".join(source_bytes.lines(RealHost(), folder(keep), name)))


def test_a_copy_is_not_taken_for_a_move_if_the_path_is_not_utf_8(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"h\xff")
    _, file = home_with(odd, record(1))
    home, copy = home_with(tmp_path, record(1) + record(2))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, odd / "home")
        assert [one.state for one in ingest(keep, home) if one.path == str(copy)] == ["new"]
        assert file.exists()


def test_an_ended_session_continues_in_a_rewritten_file(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1) + record(2))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        keep.end(SID)
        file.write_bytes(record(1, "changed") + record(2) + record(5, timestamp="2030-01-01T00:00:00.000Z"))
        ingest(keep, home)
        assert keep.summary(f"claude:{SID}").state == "active"


def test_a_fork_is_recognised_before_its_first_own_record(tmp_path: Path) -> None:
    """S28: the SessionStart hook makes us read at just that moment."""
    shown = _forked(tmp_path, 4)
    assert shown["session"]["lineage"] == [{"kind": "fork", "session": f"claude:{SID}"}]
    assert (shown["session"]["messages"], shown["session"]["turns"]) == (1, 1)


def test_a_fork_that_is_read_while_it_is_being_copied_counts_nothing_twice(tmp_path: Path) -> None:
    """S28."""
    shown = _forked(tmp_path, 2)
    assert (shown["session"]["messages"], shown["session"]["turns"]) == (1, 1)


def _forked(tmp_path: Path, first: int) -> dict[str, Any]:
    """A fork that is read after `first` of its four copied records, and again after its own records."""
    shared = [record(n) for n in range(1, 5)]
    fork = "f0000000-0000-4000-8000-00000000000f"
    home, _ = home_with(tmp_path, b"".join(shared) + record(5, "the parent goes on"))
    copied = [one.replace(SID.encode(), fork.encode()) for one in shared]
    _, file = home_with(tmp_path, b"".join(copied[:first]), fork)
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        grow(file, b"".join(copied[first:]) + record(7, "its own way", timestamp="2026-11-02T10:00:00.000Z", uuid="f1"))
        ingest(keep, home)
        return keep.show(fork)


def test_a_vanished_file_of_a_subagent_is_reported(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, record(1))
    sub = file.parent / SID / "subagents" / "agent-a1.jsonl"
    sub.parent.mkdir(parents=True)
    sub.write_bytes(record(1, "a task", isSidechain=True, agentId="a1", uuid="s1"))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        sub.unlink()
        ingest(keep, home)
        assert [about.get("what") for about in sources(keep, f"claude:{SID}/agent-a1").values()] == ["vanished"]


class DyingContext(CaptureContext):
    """Fails before an append, like a process that dies."""

    dies_in = 0

    def append_if(self, session: str, events: Any, expect: Any, source: Any = None) -> None:
        DyingContext.dies_in -= 1
        if DyingContext.dies_in == 0:
            raise KeyboardInterrupt
        super().append_if(session, events, expect, source)


def test_no_change_of_an_agents_file_loses_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends, half lines, rewrites, truncations, replacements, removals; small limits; and our process dies in between."""
    monkeypatch.setattr(ingesting, "CaptureContext", DyingContext)
    for seed in range(24):
        with monkeypatch.context() as limits:
            if seed % 2:
                limits.setattr(content, "FRAME", 300)
                limits.setattr(content, "BLOCK", 256)
            if seed % 4 >= 2:
                limits.setattr(content, "PIECE", 200)
                for module in (content, records):
                    limits.setattr(module, "LONGEST_LINE", 700)
            if seed % 8 >= 4:
                limits.setattr(copying, "_APPEND", 1)
            _Agent(seed, tmp_path / str(seed), longest=700 if seed % 4 >= 2 else 1 << 30).live(30)


class _Agent:
    def __init__(self, seed: int, root: Path, longest: int) -> None:
        self.chance = random.Random(seed)
        self.longest = longest
        self.root = root
        self.lines = [record(1)]
        self.half = b""
        self.n = 1
        self.home, self.file = home_with(root, record(1))
        self.must: set[str] = set()

    def live(self, steps: int) -> None:
        keep = Keep.open(self.root / "keep")
        ingest(keep, self.home)
        for _ in range(steps):
            self.act()
            DyingContext.dies_in = self.chance.choice((0, 0, 0, 1, 2, 4))
            try:
                if self.chance.random() < 0.8:
                    ingest(keep, self.home)
                    self.check(keep)
            except KeyboardInterrupt:
                keep.close()
                keep = Keep.open(self.root / "keep")
        DyingContext.dies_in = 0
        ingest(keep, self.home)
        followed = keep.show(SID)
        keep.reindex(from_zero=True)
        assert keep.show(SID) == followed
        assert self.must <= set(shown_texts(keep))
        keep.close()

    def act(self) -> None:
        chance, lines = self.chance, self.lines
        what = chance.choice(
            ("append", "append", "half", "finish", "change", "drop", "double", "replace", "empty", "gone", "cut")
        )
        if what in ("append", "half") and not self.half:
            self.n += 1
            new = record(self.n, f"t{self.n}" + " x" * chance.choice((0, 0, 1000)))
            new = chance.choice((new, new, new[:-1] + b"\r\n", b"\0\0" + new))
            self.half = new[: chance.randrange(1, len(new))] if what == "half" else b""
            lines += [] if self.half else [new]
            self.whole = new
        elif what == "finish" and self.half:
            lines.append(self.whole)
            self.half = b""
        elif what == "cut" and lines and not self.half:
            self.whole = lines.pop()
            self.half = self.whole[: chance.randrange(1, len(self.whole))]
        elif what == "change" and lines:
            self.n += 1
            lines[chance.randrange(len(lines))] = record(self.n, f"t{self.n}")
        elif what == "drop" and lines:
            del lines[chance.randrange(len(lines))]
        elif what == "double" and lines:
            lines.insert(chance.randrange(len(lines)), chance.choice(lines))
        elif what == "empty":
            lines.clear()
            self.half = b""
        elif what == "replace":
            self.file.unlink(missing_ok=True)
        if what == "gone":
            self.file.unlink(missing_ok=True)
        else:
            self.file.write_bytes(b"".join(lines) + self.half)

    def check(self, keep: Keep) -> None:
        if not self.file.exists():
            return
        assert rejoined(keep, self.file) == self.file.read_bytes()
        for one in self.lines:
            if len(one) <= self.longest:
                words = json.loads(one.replace(b"\0", b""))["message"]["content"]
                self.must.add(words if isinstance(words, str) else words[0]["text"])


@pytest.mark.parametrize("agent", EVERY)
def test_the_watcher_finds_the_same_sources_as_the_search(agent: str, tmp_path: Path) -> None:
    """Another role or session for the same path would journal it twice."""
    write_home(agent, tmp_path / "home")
    found = list(find.everywhere(RealHost(), str(tmp_path / "home"), {}, [agent]))
    assert found
    assert [discovery(agent).claims(one.path) for one in found] == found


def test_a_file_with_a_second_name_is_journaled_once(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1) + record(2))
    (tmp_path / "link").symlink_to(home)
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        assert [one.new_bytes for one in ingest(keep, tmp_path / "link")] == [0]


# -- a bad source does not stop the others


def test_a_damaged_compressed_transcript_does_not_stop_the_others(tmp_path: Path) -> None:
    """B2."""
    day = tmp_path / "home" / ".codex" / "sessions" / "2026" / "11" / "01"
    day.mkdir(parents=True)
    good = "5f0c2d1e-0000-4000-8000-000000000002"
    told = {"timestamp": "2026-11-01T10:00:00.000Z", "type": "session_meta", "payload": {"id": good, "cwd": "/x"}}
    name = "rollout-2026-11-01T10-00-00-{}.jsonl.zst".format
    (day / name(good[:-1] + "1")).write_bytes(b"this is no zstd" * 10)
    (day / name(good)).write_bytes(zstandard.ZstdCompressor().compress(json.dumps(told).encode() + b"\n"))
    states = []
    with Keep.open(tmp_path / "keep") as keep, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the damaged file is left open, too
        try:
            states = [one.state for one in take(keep, tmp_path / "home", "codex")]
        except zstandard.ZstdError:
            gc.collect()
    assert states == ["failed", "new"]


class Locked(RealHost):
    """A folder that became unreadable (a test that runs as root can't create one)."""

    folder = ""

    def _check(self, path: str) -> None:
        if self.folder and f"{path}/".startswith(f"{self.folder}/") and path != self.folder:
            raise PermissionError(13, "Permission denied", path)

    def stat(self, path: str) -> Stat | None:
        self._check(path)
        return super().stat(path)

    def entries(self, folder: str) -> list[FolderEntry]:
        self._check(f"{folder}/.")
        return super().entries(folder)


def test_an_unreadable_folder_does_not_stop_the_others(tmp_path: Path) -> None:
    """B2."""
    home, file = home_with(tmp_path, record(1))
    other = file.parent.parent / "-home-dev-other" / "other.jsonl"
    other.parent.mkdir()
    other.write_bytes(record(1))
    host = Locked()
    with Keep.open(tmp_path / "keep", host=host) as keep:
        ingest(keep, home)
        host.folder = str(other.parent)
        grow(file, record(2))
        assert sorted(one.state for one in ingest(keep, home)) == ["failed", "grew"]


def test_invalid_entries_in_the_cache_only_cause_another_read(tmp_path: Path) -> None:
    write_home("goose", tmp_path / "home")
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, tmp_path / "home", "goose")
        cache = Path(keep.root, "state", "sources.json")
        found = json.loads(cache.read_bytes())
        for entry in found["sources"].values():
            entry[2], entry[5] = None, [1]
        cache.write_text(json.dumps(found))
        assert not [one for one in take(keep, tmp_path / "home", "goose") if one.problem]


def test_a_session_whose_journal_is_gone_is_captured_again(tmp_path: Path) -> None:
    """A lost or wrong cache only makes ingest open more files. A keep from a backup has an older journal, too."""
    home, _ = home_with(tmp_path, record(1))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        shutil.rmtree(folder(keep))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        assert shown_texts(keep) == ["question 1"]


def test_a_compressed_transcript_is_unpacked_only_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """48 MB took 7 seconds, 16 MB one: it grows with the square."""
    packed = tmp_path / "file.zst"
    packed.write_bytes(zstandard.ZstdCompressor().compress(b"a line of some length\n" * 50_000))
    begun = []

    class Unpacked(content.Unpacked):
        def _begin(self) -> None:
            begun.append(1)
            super()._begin()

    monkeypatch.setattr(content, "FRAME", 1 << 15)
    source = Unpacked(RealHost(), str(packed))
    offset = 0
    for cut in content.cuts(source, 0, False):
        offset += cut.size
        content.cursor_at(source, 1, offset, cut.more, 0)
    source.close()
    assert len(begun) < 10


# -- what commands show


def test_an_open_turn_is_not_counted_as_running(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        assert [t["state"] for t in keep.show(SID)["turns"]] == ["open"]
        assert keep.status()["turns_running"] == 0


def _run(keep: Path, *words: str, for_s: float = 60, **environment: str) -> tuple[int, bytes, bytes]:
    command = [sys.executable, "-m", "dreamkeep", "--keep", str(keep), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment}) as running:
        try:
            out, err = running.communicate(timeout=for_s)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=30)
    return running.returncode, out, err


def test_a_turns_id_moves_no_cursor(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1, promptId="\x1b[31mEVIL\x07x") + record(2))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
    _, out, _ = _run(tmp_path / "keep", "show", SID, "--live")
    assert b"question 1" in out
    assert not {0x1B, 0x07} & set(out)


def test_a_segment_that_is_not_a_number_is_bad_usage(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
    code, _, err = _run(tmp_path / "keep", "show", SID, "--segment", "²")
    assert (code, b"Traceback" in err) == (2, False)


def test_following_a_segment_shows_only_that_segment(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1) + record(2) + COMPACTED + record(3, parentUuid="c1"))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        assert len(keep.show(SID)["segments"]) == 2
    _, out, _ = _run(tmp_path / "keep", "show", SID, "--segment", "current", "--follow", for_s=5)
    assert b"question 3" in out
    assert b"question 1" not in out


def test_following_never_fails_on_characters_that_a_terminal_cannot_show(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1, "gr\u00fc\u00dfe"))
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
    code, out, err = _run(tmp_path / "keep", "show", SID, "--follow", for_s=5, PYTHONIOENCODING="ascii")
    assert (code, b"Traceback" in err) == (0, False)
    assert b"gr\\xfc" in out


def test_lone_surrogates_survive_index_search_and_every_form_of_show(tmp_path: Path) -> None:
    home, _ = home_with(
        tmp_path, record(1, "lone \ud800 word", cwd="/home/\ud800/x", uuid="k\udcff", promptId="p\udc80") + record(2)
    )
    with Keep.open(tmp_path / "keep") as keep:
        ingest(keep, home)
        followed = keep.show(SID)
        assert followed["messages"][0]["text"] == "lone \ud800 word"
        assert [hit.text for hit in keep.search("lone")] == ["lone \ud800 word"]
        keep.reindex(from_zero=True)
        assert keep.show(SID) == followed
    for form in ((), ("--json",), ("--markdown",), ("--live",)):
        assert _run(tmp_path / "keep", "show", SID, *form)[0] == 0
