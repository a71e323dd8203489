"""Files beside transcripts: kept byte for byte, searchable, shown once, never sessions of their own."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from dreamkeep import Keep
from dreamkeep.agents import facts as f
from dreamkeep.agents.claude import files as claude_files
from dreamkeep.capture.context import IngestOutcome
from dreamkeep.capture.sources import source_bytes
from dreamkeep.event import Event, Kind, rfc3339
from dreamkeep.host import RealHost
from dreamkeep.journal.places import folder_of
from dreamkeep.session.raw import pack
from tests.agents import codex, copilot
from tests.helpers.claude_home import SID, home_with, record

SESSION = f"claude:{SID}"
TOOL = "toolu_x1"
WORDS = "quince first\n" + "filler of no meaning\n" * 300 + "medlar last"


def call() -> bytes:
    block = {"type": "tool_use", "id": TOOL, "name": "Bash", "input": {"command": "make"}}
    return record(2, message={"role": "assistant", "id": "msg_2", "model": "m", "content": [block], "stop_reason": "tool_use"})


def preview(path: object, words: str = WORDS) -> bytes:
    said = (
        f"<persisted-output>\nOutput too large (6KB). Full output saved to: {path}\n\nPreview (first 2KB):\n{words[:60]}\n...\n"
    )
    block = {"type": "tool_result", "tool_use_id": TOOL, "content": said + "</persisted-output>", "is_error": False}
    return record(3, message={"role": "user", "content": [block]}, parentUuid="u2")


def result_in(home: Path, name: str, data: bytes) -> Path:
    file = home / ".claude" / "projects" / "-home-dev-shop" / SID / "tool-results" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def take(keep: Keep, home: Path, **more: Any) -> list[IngestOutcome]:
    found = list(keep.ingest(home=home, **more))
    assert [one for one in found if one.problem] == []
    return found


def shown(keep: Keep) -> list[tuple[str, str]]:
    return [(one["role"], one["text"]) for one in keep.show(SESSION)["messages"]]


def bytes_of(keep: Keep, file: Path) -> bytes:
    folder = f"{keep.root}/{folder_of(SESSION)}"
    names = [name for name, about in source_bytes.sources(RealHost(), folder).items() if about["path"] == str(file)]
    return b"".join(b"".join(source_bytes.lines(RealHost(), folder, name)) for name in names)


@pytest.mark.parametrize("name", ["b7k2m9xq1.txt", f"{TOOL}.txt"])
def test_a_long_output_is_one_message_with_all_its_words_where_the_transcript_has_a_preview(name: str, tmp_path: Path) -> None:
    home, transcript = home_with(tmp_path, record(1) + call())
    file = result_in(home, name, WORDS.encode())
    transcript.write_bytes(record(1) + call() + preview(file) + record(4))
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, home)
        assert shown(keep) == [("user", "question 1"), ("assistant", ""), ("tool", WORDS), ("assistant", "answer 4")]
        (result,) = (one for one in keep.show(SESSION)["messages"] if one["role"] == "tool")
        assert (result["tool"]["id"], result["tool"]["error"]) == (TOOL, False)
        assert [len(keep.search(word)) for word in ("quince", "medlar", "filler")] == [1, 1, 1]
        assert len(keep.show(SESSION)["turns"]) == 1
        assert bytes_of(keep, file) == WORDS.encode()
        assert sum(one.new_events for one in take(keep, home, again=True)) == 0


def test_an_output_that_is_captured_before_its_transcript_gives_the_same_message(tmp_path: Path) -> None:
    home, transcript = home_with(tmp_path, record(1) + call())
    file = result_in(home, "b7k2m9xq1.txt", WORDS.encode())
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, home)
        assert ("tool", WORDS) in shown(keep)
        with transcript.open("ab") as out:
            out.write(preview(file) + record(4))
        take(keep, home)
        assert shown(keep) == [("user", "question 1"), ("assistant", ""), ("tool", WORDS), ("assistant", "answer 4")]
        (result,) = (one for one in keep.show(SESSION)["messages"] if one["role"] == "tool")
        assert result["tool"]["id"] == TOOL
        assert result["at"] and result["turn"]
        assert keep.sessions()[0].messages == 4


@pytest.mark.parametrize("file_first", [True, False])
def test_a_result_that_a_hook_reported_first_stays_one_message(file_first: bool, tmp_path: Path) -> None:
    """The tool's id joins the hook's and the transcript's result, and the transcript names the file."""
    home, transcript = home_with(tmp_path, record(1) + call())
    file = result_in(home, "b7k2m9xq1.txt", WORDS.encode())
    if not file_first:
        file.unlink()
    told = {"session_id": SID, "tool_name": "Bash", "tool_use_id": TOOL, "tool_input": {}, "tool_response": {"stdout": "quince"}}
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, home)
        payload = json.dumps({"hook_event_name": "PostToolUse", **told}).encode()
        at = rfc3339(RealHost().now())
        body = pack({"calls": [{"event": "PostToolUse", "at": at}]}, [payload])
        keep.context.journals().append(SESSION, [Event(keep.context.ids.new(), Kind.HOOK_FIRED, at, body)])
        assert ("tool", "quince") in shown(keep)
        file.write_bytes(WORDS.encode())
        with transcript.open("ab") as out:
            out.write(preview(file) + record(4))
        take(keep, home)
        assert [role for role, _ in shown(keep)] == ["user", "assistant", "tool", "assistant"]
        assert shown(keep)[2] == ("tool", WORDS)
        assert keep.sessions()[0].messages == 4
        before = keep.show(SESSION)
        keep.reindex(from_zero=True)
        assert keep.show(SESSION) == before


def test_a_short_result_stays_when_its_file_has_fewer_words(tmp_path: Path) -> None:
    """Some clients copy every output: then the transcript may have more text than the copy."""
    home, transcript = home_with(tmp_path, b"")
    block = {"type": "tool_result", "tool_use_id": TOOL, "content": "Exit code 1\nno such pear", "is_error": True}
    result = record(3, message={"role": "user", "content": [block]})
    transcript.write_bytes(record(1) + call() + result)
    result_in(home, f"{TOOL}.txt", b"no such pear")
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, home)
        assert [text for role, text in shown(keep) if role == "tool"] == ["Exit code 1\nno such pear"]


def test_parts_of_a_very_long_output_follow_each_other_in_the_place_of_its_message(tmp_path: Path) -> None:
    words = "".join(f"line {n} of the log\n" for n in range(40_000)) + "medlar"
    home, transcript = home_with(tmp_path, b"")
    file = result_in(home, "b7k2m9xq1.txt", words.encode())
    transcript.write_bytes(record(1) + call() + preview(file, words) + record(4) + record(5))
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, home)
        roles = [role for role, _ in shown(keep)]
        assert roles == ["user", "assistant", *["tool"] * 4, "assistant", "user"]
        assert "\n".join(text for role, text in shown(keep) if role == "tool") == words
        assert len(keep.search("medlar")) == 1
        assert bytes_of(keep, file) == words.encode()


def test_a_growing_output_is_read_on_and_its_last_line_is_found_whole(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1))
    file = result_in(home, "b7k2m9xq1.txt", b"first line\nthe yellow med")
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, home)
        assert len(keep.search("yellow")) == 1
        with file.open("ab") as out:
            out.write(b"lar is ripe\nlast")
        (grown,) = (one for one in take(keep, home) if one.new_bytes)
        assert grown.new_bytes == len(b"lar is ripe\nlast")
        assert len(keep.search("medlar")) == 1
        assert bytes_of(keep, file) == file.read_bytes()
        before = keep.show(SESSION)
        keep.reindex(from_zero=True)
        assert keep.show(SESSION) == before


def test_any_bytes_are_restored_and_only_text_becomes_a_message(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1))
    lines = b'{"type":"user","uuid":"not a record"}\n[1]\n'
    files = [
        result_in(home, "picture.png", bytes(range(256)) * 9 + b"\n\n\0"),
        result_in(home, "b1.txt", b"a\0b"),
        result_in(home, "b2.txt", lines),
        result_in(home, "b3.txt", b"caf\xe9 latin\r\n"),
    ]
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, home)
        assert [bytes_of(keep, file) for file in files] == [file.read_bytes() for file in files]
        assert [text for role, text in shown(keep) if role == "tool"] == [lines.decode().rstrip(), "caf\ufffd latin\r"]
        assert keep.show(SESSION)["unknown"] == {"tool-results/png": 1, "tool-results/txt": 1}
        assert keep.show(SESSION).get("odd", {}).get("count", 0) == 0


def test_outputs_without_their_session_wait_for_it(tmp_path: Path) -> None:
    home, transcript = home_with(tmp_path, record(1))
    transcript.rename(home / "elsewhere")
    result_in(home, f"{TOOL}.txt", WORDS.encode())
    with Keep.open(tmp_path / "keep") as keep:
        assert [one.state for one in take(keep, home)] == ["waiting"]
        assert keep.sessions() == []
        (home / "elsewhere").rename(transcript)
        assert {one.state for one in take(keep, home)} == {"new"}
        assert len(keep.search("medlar")) == 1


def test_outputs_of_an_excluded_session_are_not_captured(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1))
    result_in(home, f"{TOOL}.txt", WORDS.encode())
    (tmp_path / "keep").mkdir(mode=0o700)
    (tmp_path / "keep" / "keep.toml").write_text('[capture]\nexclude = ["/home/dev/shop"]\n')
    with Keep.open(tmp_path / "keep") as keep:
        assert {one.state for one in take(keep, home)} == {"excluded", "waiting"}
        assert keep.sessions() == []


def test_a_vanished_output_is_reported_and_kept(tmp_path: Path) -> None:
    home, transcript = home_with(tmp_path, record(1) + call())
    file = result_in(home, f"{TOOL}.txt", WORDS.encode())
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, home)
        file.unlink()
        assert [one.path for one in take(keep, home) if one.state == "vanished"] == [str(file)]
        folder = f"{keep.root}/{folder_of(SESSION)}"
        (about,) = (one for one in source_bytes.sources(RealHost(), folder).values() if one["role"] == "result")
        assert about["what"] == "vanished"
        assert bytes_of(keep, file) == WORDS.encode()
        assert [one.state for one in take(keep, home) if one.state != "unchanged"] == []
        assert transcript.exists()


def test_naming_a_transcript_also_captures_its_outputs(tmp_path: Path) -> None:
    """As the drainer does when a hook names a transcript."""
    home, transcript = home_with(tmp_path, record(1) + call())
    result_in(home, f"{TOOL}.txt", WORDS.encode())
    with Keep.open(tmp_path / "keep") as keep:
        assert [one.state for one in keep.ingest(paths=[transcript])] == ["new", "new"]
        assert len(keep.search("medlar")) == 1


def test_moving_a_project_folder_doubles_nothing(tmp_path: Path) -> None:
    home, transcript = home_with(tmp_path, record(1) + call())
    result_in(home, f"{TOOL}.txt", WORDS.encode())
    result_in(home, "b2.txt", b"another")
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, home)
        before = shown(keep)
        transcript.parent.rename(transcript.parent.with_name("-home-dev-store"))
        assert sorted(one.state for one in take(keep, home) if one.state != "vanished") == ["moved"] * 3
        assert shown(keep) == before


@pytest.mark.slow
def test_outputs_are_read_in_bounded_memory(tmp_path: Path) -> None:
    home, _ = home_with(tmp_path, record(1))
    line = b"0123456789 abcdefghij " * 50 + b"\n"
    file = result_in(home, f"{TOOL}.txt", line * (50 * (1 << 20) // len(line)))
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, home, agents=["codex"])  # what is loaded once does not count
        tracemalloc.start()
        take(keep, home)
        captured = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        keep.reindex()
        indexed = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert captured < file.stat().st_size // 3
        assert indexed < file.stat().st_size * 2 // 3


# -- the reader of such files


def read(name: str, text: str) -> list[f.Fact]:
    return list(claude_files.read_stretch(f.Record("text", None, text, name, "result")))


def test_a_list_of_blocks_is_read_as_its_text() -> None:
    blocks = json.dumps([{"type": "text", "text": 'first\n"second"'}, {"type": "text", "text": "third"}], indent=2)
    (said,) = read("toolu_1.json", blocks)
    assert isinstance(said, f.MessageSaid)
    assert 'first\n"second"\n' in said.text and said.tool == {"id": "toolu_1", "file": "toolu_1.json"}


def test_the_output_of_a_hook_is_marked_as_a_hooks() -> None:
    (said,) = read("hook-1-stdout.txt", "Be brief.")
    assert isinstance(said, f.MessageSaid)
    assert (said.role, said.mark, said.tool) == (f.SYSTEM, f.HOOK, None)


def test_an_endless_line_is_cut_into_messages() -> None:
    found = read("toolu_1.txt", "x" * (claude_files.LONGEST + 5))
    assert [len(one.text) for one in found if isinstance(one, f.MessageSaid)] == [claude_files.LONGEST, 5]
    assert len({one.key for one in found if isinstance(one, f.MessageSaid)}) == 2


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("<persisted-output>\nOutput too large (4.8MB). Full output saved to: /a b/tool-results/x.txt\n\nPreview", "x.txt"),
        ("<persisted-output>\nOutput too large (6.6MB). Full output saved to: C:\\u\\tool-results\\x.txt\n\n", "x.txt"),
        (
            "Error: result (7 characters) exceeds maximum allowed tokens. Output has been saved to /t/tool-results/m-1.txt.\nF",
            "m-1.txt",
        ),
        ("cat: <persisted-output>\nFull output saved to: /a/tool-results/x.txt\n", ""),
        ("<persisted-output>\nOutput too large. Full output saved to: /tmp/x.txt\n", ""),
        ("<persisted-output>" + "saved to: /tool-results/" * 100_000, ""),
    ],
)
def test_a_preview_names_its_file_but_a_quoted_preview_does_not(said: str, name: str) -> None:
    assert claude_files.previewed_file(said) == name


# -- names and workspaces


def test_renaming_a_thread_changes_the_title_of_no_other_session(tmp_path: Path) -> None:
    codex.write(tmp_path / "home")
    index = tmp_path / "home" / ".codex" / "session_index.jsonl"
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, tmp_path / "home")
        assert sum(one.new_events for one in take(keep, tmp_path / "home")) == 0
        line = json.dumps({"id": codex.COLD, "thread_name": "Spring tides", "updated_at": "2026-10-05T10:00:00Z"})
        index.write_text(index.read_text() + f'me":"torn"}}\n{line}\n')
        (renamed,) = (one for one in take(keep, tmp_path / "home") if one.new_events)
        assert renamed.session == f"codex:{codex.COLD}"
        titles = {one.native_id: one.title for one in keep.sessions()}
        assert (titles[codex.COLD], titles[codex.LEGACY]) == ("Spring tides", "A greeting")
        assert "Gone" not in titles.values()
        folder = f"{keep.root}/{folder_of(f'codex:{codex.LEGACY}')}"
        (name,) = (name for name, about in source_bytes.sources(RealHost(), folder).items() if about["role"] == "names")
        kept = b"".join(source_bytes.lines(RealHost(), folder, name)).decode().splitlines()
        assert [json.loads(line)["thread_name"] for line in kept] == ["Greetings", "A greeting"]


def test_a_thread_gets_its_name_even_if_the_name_came_first(tmp_path: Path) -> None:
    codex.write(tmp_path / "home")
    (rollout,) = (tmp_path / "home" / ".codex").rglob(f"*{codex.LEGACY}.jsonl")
    rollout.rename(tmp_path / "later")
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, tmp_path / "home")
        (tmp_path / "later").rename(rollout)
        list(keep.ingest(paths=[rollout]))
        assert {one.native_id: one.title for one in keep.sessions()}[codex.LEGACY] == "A greeting"


def test_a_name_does_not_bring_a_deleted_thread_back(tmp_path: Path) -> None:
    codex.write(tmp_path / "home")
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, tmp_path / "home")
        keep.delete(f"codex:{codex.LEGACY}")
        take(keep, tmp_path / "home")
        assert codex.LEGACY not in {one.native_id for one in keep.sessions()}


def test_a_renamed_workspace_gets_its_new_title_and_every_version_is_kept(tmp_path: Path) -> None:
    copilot.write(tmp_path / "home")
    file = tmp_path / "home" / ".copilot" / "session-state" / copilot.MAIN / "workspace.yaml"
    first = file.read_bytes()
    with Keep.open(tmp_path / "keep") as keep:
        take(keep, tmp_path / "home")
        file.write_text(f"id: {copilot.MAIN}\nname: 'Bees'' needs'\nuser_named: true\ncwd: /somewhere/else\nbranch: {'x' * 99}\n")
        assert [one.state for one in take(keep, tmp_path / "home") if one.new_events] == ["rewritten"]
        (session,) = (one for one in keep.sessions() if one.native_id == copilot.MAIN)
        assert (session.title, session.cwd) == ("Bees' needs", copilot.CWD)
        folder = f"{keep.root}/{folder_of(session.id)}"
        (name,) = (name for name, about in source_bytes.sources(RealHost(), folder).items() if about["role"] == "workspace")
        assert b"".join(source_bytes.lines(RealHost(), folder, name)) == file.read_bytes()
        assert b"".join(source_bytes.lines(RealHost(), folder, name, 1)) == first
