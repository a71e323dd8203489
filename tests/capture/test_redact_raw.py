"""`capture.redact_raw`: secrets are masked in the raw journal, too, and everything that relies on its bytes still works."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamkeep import Keep
from dreamkeep.agents.facts import Record
from dreamkeep.capture.sources import source_bytes
from dreamkeep.capture.sources.content import Bytes, Slice, SourceCursor
from dreamkeep.capture.sources.masked import kept_lines, mask_event
from dreamkeep.event import Event, Kind, RawChunk
from dreamkeep.host import RealHost
from dreamkeep.journal.places import folder_of
from dreamkeep.recovery.audit.compare_source import lost_messages
from dreamkeep.recovery.restore.exact import add_lines
from dreamkeep.secrets.masking import mask_data, mask_line, mask_row, mask_text, matches_masked
from dreamkeep.session.raw import pack, unpack
from dreamkeep.session.records import records
from tests.agents.hermes import Hermes
from tests.agents.hermes_webui import said as web_said
from tests.agents.webui_home import Web
from tests.helpers.agent_samples import WITH_FILES, load_generator
from tests.helpers.claude_home import SID, home_with, ingest, record
from tests.helpers.cli import Ran
from tests.helpers.hook_calls import HookCalls
from tests.helpers.leaks import every_byte, leaks
from tests.helpers.secrets import INNOCENT, Planted, planted
from tests.helpers.tapped import Tapped

HOST = RealHost()
SESSION = f"claude:{SID}"
#: Two kinds: one is known by its form, the other only by the words before it.
FORM, NAMED = "ghp_" + "a1B2c3D4" * 5, "Tr0ub4dor&3x"
SAYS = f"use {FORM}, and the password is {NAMED} for now"
PLANTED = planted()


@pytest.fixture
def root(tmp_path: Path) -> str:
    place = tmp_path / "keep"
    place.mkdir(mode=0o700)
    (place / "keep.toml").write_text("[capture]\nredact_raw = true\n")
    return str(place)


def faults(keep: Keep, home: Path, **how: Any) -> list[str]:
    return [one["class"] for one in keep.audit(home=home, **how)["faults"]]


# -- masking


@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one.kind)
def test_a_record_with_a_secret_stays_a_record_of_its_length(one: Planted) -> None:
    """M12"""
    for ascii_only in (True, False):
        line = json.dumps({"type": "user", "text": f"First.\n{one.text}\nThen it worked."}, ensure_ascii=ascii_only).encode()
        kept = mask_line(line)
        said = json.loads(kept)
        assert not [secret for secret in one.secrets if secret in said["text"]], said["text"]
        assert said["text"].startswith("First.\n") and said["text"].endswith("\nThen it worked.")
        assert len(kept) == len(line) and matches_masked(kept, line)
        assert mask_line(kept) == kept


def test_text_without_a_secret_is_unchanged() -> None:
    lines = [json.dumps({"type": "user", "text": text}).encode() for text in INNOCENT]
    assert all(mask_line(line) is line for line in lines)


def test_a_members_name_marks_a_secret_and_structure_is_not_masked() -> None:
    plain = b'"type":"user","role":"assistant","signature":"EqQBCkYIBxgCKkAx9zZ0a1"'
    line = b'{%b,"input":{"password":"hunter2","apiKey":"x9Kd83hfKq02"}}' % plain
    kept = mask_line(line)
    assert json.loads(kept) == {
        "type": "user",
        "role": "assistant",
        "signature": "EqQBCkYIBxgCKkAx9zZ0a1",
        "input": {"password": "⁂****", "apiKey": "[redacted]**"},
    }
    # A password that is also a word of the format stays readable where the format uses it.
    kept = mask_line(b'{"role":"agent47x","text":"password=agent47x, says agent47x"}')
    assert json.loads(kept) == {"role": "agent47x", "text": "password=⁂*****, says ⁂*****"}


def test_a_secret_that_is_found_in_a_text_is_masked_in_its_neighbours_too() -> None:
    line = json.dumps({"env": f"DB_PASSWORD={NAMED}", "text": f"log: {NAMED} was refused"}).encode()
    assert NAMED.encode() not in mask_line(line)


def test_a_word_that_is_also_a_password_stays_a_word_elsewhere() -> None:
    line = b'{"input":{"user":"postgres","password":"postgres"},"text":"we use postgres 16 in /var/lib/postgresql"}'
    kept = json.loads(mask_line(line))
    assert kept["text"] == "we use postgres 16 in /var/lib/postgresql" and kept["input"]["password"] == "⁂*****"
    line = b'{"timestamp":"2026-11-01T10:00:00.123456Z","input":{"password":"123456"}}'
    assert json.loads(mask_line(line))["timestamp"] == "2026-11-01T10:00:00.123456Z"


@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one.kind)
def test_json_inside_a_text_stays_json_without_the_secret(one: Planted) -> None:
    """As arguments of a call, as a column of a database."""
    inner = json.dumps({"cmd": f"First.\n{one.text}\nThen."})
    line = json.dumps({"row": {"data": json.dumps({"arguments": inner, "n": 1})}}).encode()
    kept = mask_line(line)
    said = json.loads(json.loads(json.loads(kept)["row"]["data"])["arguments"])["cmd"]
    assert not [secret for secret in one.secrets if secret in said], said
    assert said.startswith("First.\n") and said.endswith("\nThen.") and len(kept) == len(line) and matches_masked(kept, line)


def test_a_key_as_a_list_of_lines_is_masked() -> None:
    body = "MIIEpAIBAAKCAQEAabcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL"
    source = ["import os\n", "-----BEGIN RSA PRIVATE KEY-----\n", *[f"{body}\n"] * 3, "-----END RSA PRIVATE KEY-----\n", "done\n"]
    for line in (json.dumps({"source": source}), json.dumps({"file": json.dumps({"cells": [{"source": source}]})})):
        kept = mask_line(line.encode())
        assert b"MIIE" not in kept and b"import os" in kept and b"done" in kept
        json.loads(kept)


def test_a_secret_behind_an_option_of_a_command_is_masked() -> None:
    line = b'{"argv":["mysql","--password","Hunter2abcX","--user","root77abc"]}'
    assert json.loads(mask_line(line))["argv"] == ["mysql", "--password", "[redacted]*", "--user", "root77abc"]


def test_a_name_with_the_form_of_a_secret_is_masked() -> None:
    line = json.dumps({"answers": {f"Shall I use {FORM}?": "yes"}}).encode()
    kept = mask_line(line)
    assert FORM.encode() not in kept and len(kept) == len(line) and "yes" in json.loads(kept)["answers"].values()
    assert FORM not in json.dumps(mask_data({f"use {FORM}": {"a": 1}}))


def test_text_that_only_looks_like_a_mask_hides_nothing() -> None:
    """Stars also occur in ordinary text."""
    assert not matches_masked(b'{"t":"2*3 is *this*"}', b'{"t":"2+3 is *this*"}')
    kept = mask_line(b'{"t":"* done","key":"%b"}' % FORM.encode())
    assert not matches_masked(kept, b'{"t":"- done","key":"%b"}' % FORM.encode())


def test_the_lines_of_a_key_stay_lines() -> None:
    key = b"-----BEGIN RSA PRIVATE KEY-----\n" + b"MIIEpAIBAAKCAQEAabcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL\n" * 3
    text = b"see\n" + key + b"-----END RSA PRIVATE KEY-----\nthat was it\n"
    kept = mask_text(text)
    assert len(kept) == len(text) and kept.count(b"\n") == text.count(b"\n") and b"MIIE" not in kept
    assert kept.startswith(b"see\n[redacted]") and kept.endswith(b"\nthat was it\n")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([SAYS, f"é{SAYS}\U0001f600", f'"{FORM}"\\n', "a**"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.just("token"), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(JSON, st.booleans())
def test_any_json_keeps_its_shape_and_length_but_no_secret(value: Any, ascii_only: bool) -> None:
    line = json.dumps({"it": value}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    kept = mask_line(line)
    assert len(kept) == len(line) and (kept == line or matches_masked(kept, line)) and FORM.encode() not in kept
    try:
        line.decode()
    except UnicodeDecodeError:
        return  # lone surrogates, written as bytes: no JSON, but a text
    assert _shape(json.loads(kept)) == _shape(json.loads(line))
    assert _shape(mask_data(value)) == _shape(value)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(one) for key, one in value.items()}
    return [_shape(one) for one in value] if isinstance(value, list) else type(value)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=30))
def test_any_bytes_keep_their_length(before: bytes, after: bytes) -> None:
    line = before + b" token=" + FORM.encode() + b" " + after
    kept = mask_line(line)
    assert len(kept) == len(line) and FORM.encode() not in kept and mask_text(line).count(b"\n") == line.count(b"\n")


# -- every channel


def _inject(home: Path) -> int:
    """The text with which every transcript below begins."""
    count = 0
    for path in sorted(home.rglob("*")):
        if path.is_file() and path.suffix in (".json", ".jsonl"):
            data = path.read_bytes()
            new = re.sub(rb'("(?:text|content|display|message)": ?")', lambda m: m[1] + SAYS.encode() + b" ", data, count=2)
            count += new != data
            path.write_bytes(new)
    return count


@pytest.mark.parametrize("agent", WITH_FILES)
def test_no_secret_of_a_transcript_reaches_the_keep_and_everything_else_does(agent: str, tmp_path: Path, root: str) -> None:
    """M12"""
    home, plain = tmp_path / "home", str(tmp_path / "plain")
    load_generator(agent).write(home)
    assert _inject(home), "the samples have no such text any more"
    with Keep.open(root) as keep, Keep.open(plain) as other:
        for one in (keep, other):
            assert [done.problem for done in one.ingest(agents=[agent], home=home) if done.problem] == []
        assert leaks(plain, FORM, NAMED) and not leaks(root, FORM, NAMED)
        shown, theirs = ([one.show(session.id) for session in one.sessions()] for one in (keep, other))
        assert [len(one["messages"]) for one in shown] == [len(one["messages"]) for one in theirs]
        assert "[redacted]" in json.dumps(shown) and FORM not in json.dumps(shown)
        assert not [done for done in keep.ingest(agents=[agent], home=home) if done.new_events]
        assert faults(keep, home) == faults(other, home)
        assert faults(keep, home, deep=True) == faults(other, home, deep=True)


def test_rows_of_a_database_are_masked_and_not_journaled_again(tmp_path: Path, root: str) -> None:
    home = tmp_path / "home"
    load_generator("hermes").write(home)
    [file] = home.rglob("state.db")
    with apsw.Connection(str(file)) as db:
        db.execute("UPDATE messages SET content = content || ? WHERE role = 'user'", (SAYS,))
    with Keep.open(root) as keep:
        assert [one.problem for one in keep.ingest(agents=["hermes"], home=home) if one.problem] == []
        assert not leaks(root, FORM, NAMED)
        shown = json.dumps([keep.show(session.id) for session in keep.sessions()])
        assert "[redacted]" in shown
        with apsw.Connection(str(file)) as db:
            db.execute("UPDATE sessions SET title = 'another ' || id")
        again = list(keep.ingest(agents=["hermes"], home=home))
        assert sum(one.new_bytes for one in again) < file.stat().st_size / 8, "rows that did not change were journaled again"
        back = [keep.restore(one.id, "hermes", home=tmp_path / "back") for one in keep.sessions() if one.agent == "hermes"]
        assert any(not one["exact"] and any("masked" in note for note in one["notes"]) for one in back)


def test_text_of_a_database_that_is_not_utf8_is_masked_too(tmp_path: Path, root: str) -> None:
    home = tmp_path / "home"
    load_generator("hermes").write(home)
    [file] = home.rglob("state.db")
    said = b"caf\xe9: the token is " + FORM.encode() + b" ok"
    with apsw.Connection(str(file)) as db:
        db.execute("UPDATE messages SET content = CAST(? AS TEXT) WHERE role = 'user'", (said,))
    with Keep.open(root) as keep:
        assert [one.problem for one in keep.ingest(agents=["hermes"], home=home) if one.problem] == []
        raw = b"".join(data for _, data in every_byte(root))
        held = [base64.b64decode(found) for found in re.findall(rb'"\$text":"([A-Za-z0-9+/=]+)"', raw)]
        assert held and all(FORM.encode() not in one and len(one) == len(said) for one in held)
        shown = json.dumps([keep.show(session.id) for session in keep.sessions()])
        assert "the token is [redacted]**" in shown and FORM not in shown
        assert not any(one.new_events for one in keep.ingest(agents=["hermes"], home=home))


def test_a_blob_is_masked_only_where_it_reads_like_text() -> None:
    noise = random.Random(4).randbytes(200_000)
    for raw in (noise, noise + b"\0password=hunter2 and so on\0", f"password={NAMED} é".encode()):
        line = b'{"row":{"id":1,"data":{"$blob":"%b"}}}' % base64.b64encode(raw)
        kept = mask_row(line)
        held = base64.b64decode(json.loads(kept)["row"]["data"]["$blob"])
        assert len(kept) == len(line) and b"hunter2" not in held and NAMED.encode() not in held
        assert held[: len(noise)] == noise if raw is not noise and raw.startswith(noise) else (kept is line) == (raw is noise)


def test_the_payload_of_a_hook_is_masked(tmp_path: Path, root: str) -> None:
    calling = HookCalls(tmp_path)
    assert calling.keep == root
    payload = {"session_id": "a", "cwd": "/home/dev/work", "prompt": SAYS}
    calling.call(said=json.dumps(payload).encode())
    with Keep.open(root) as keep:
        keep.drain()
        assert not leaks(root, FORM, NAMED)
        assert "[redacted]" in keep.show("claude:a")["messages"][0]["text"]


def test_frames_of_the_tap_are_masked(root: str) -> None:
    with Tapped(root, environment={"TAP_MASKS": "1"}) as tapped:
        session = tapped.greet()
        tapped.prompt(session, SAYS)
        tapped.stdin.close()
        tapped.process.wait(timeout=60)
    assert not leaks(root, FORM, NAMED)
    with Keep.open(root) as keep:
        assert any("[redacted]" in m["text"] for one in keep.sessions() for m in keep.show(one.id)["messages"])


def test_events_of_a_users_own_program_are_masked(root: str) -> None:
    with Keep.open(root) as keep:
        session = keep.session("chat", agent="python", title=f"about {FORM}")
        with session.submit(SAYS) as turn:
            turn.add("assistant", f"{FORM} is there", tool={"name": "env", "input": {"password": "hunter2"}})
        session.record(SAYS, ("assistant", "done"))
        session.end(reason=f"{FORM} was revoked")
        assert not leaks(root, FORM, NAMED, "hunter2")
        assert keep.show("python:chat")["messages"][0]["text"].startswith("use [redacted]*")


# -- what relies on the bytes


def lines_with(*texts: str) -> bytes:
    return b"".join(record(n, text) for n, text in enumerate(texts, 1))


def test_a_line_that_is_being_written_waits_until_it_is_whole(tmp_path: Path, root: str) -> None:
    whole = lines_with("hello", "hi", SAYS)
    cut = whole.index(FORM.encode()) + 12
    home, file = home_with(tmp_path, whole[:cut])
    with Keep.open(root) as keep:
        ingest(keep, home)
        assert not leaks(root, FORM[:8]) and len(keep.show(SESSION)["messages"]) == 2
        [again] = ingest(keep, home)
        assert (again.state, again.new_events) == ("unchanged", 0) and faults(keep, home) == []
        file.write_bytes(whole.removesuffix(b"\n"))  # a record needs no line feed to be whole
        [again] = ingest(keep, home)
        assert again.new_events == 1 and not leaks(root, FORM, NAMED)
        with file.open("ab") as grows:
            grows.write(b"\n" + record(4, f"and {FORM}"))
        ingest(keep, home)
        assert not leaks(root, FORM, NAMED) and len(keep.show(SESSION)["messages"]) == 4
        assert faults(keep, home) == [] and faults(keep, home, deep=True) == []


def test_a_file_with_half_a_line_is_not_a_session_yet(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, record(1, SAYS)[:-9])
    with Keep.open(root) as keep:
        [one] = ingest(keep, home)
        assert one.state == "waiting" and list(keep.sessions()) == []
        file.write_bytes(record(1, SAYS))
        ingest(keep, home)
        assert len(keep.show(SESSION)["messages"]) == 1 and not leaks(root, FORM, NAMED)


def test_a_rewritten_transcript_repeats_no_message(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two", SAYS, "four", f"password={NAMED}", "six"))
    with Keep.open(root) as keep:
        ingest(keep, home)
        # Without the line that reveals the secret, the other lines would be masked differently.
        data = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join([data[0], data[2], data[3], data[4], data[5], record(7, "seven")]))
        ingest(keep, home)
        assert not leaks(root, FORM, NAMED)
        [name] = source_bytes.sources(HOST, f"{root}/{folder_of(SESSION)}")
        kept = source_bytes.lines(HOST, f"{root}/{folder_of(SESSION)}", name)
        assert [len(line) for line in kept] == [len(line) for line in file.read_bytes().splitlines(keepends=True)]
        assert [m["text"] for m in keep.show(SESSION)["messages"]].count("four") == 1
        assert faults(keep, home) == ["source_shrank"]  # the second line is gone, and nothing else is told to be


def test_a_restored_transcript_is_as_long_as_it_was_and_says_that_it_is_not_the_same(tmp_path: Path, root: str, cli: Any) -> None:
    """M12: then restore is not exact and says so."""
    home, file = home_with(tmp_path, lines_with("one", "two", SAYS, "four"))
    before = file.read_bytes()
    with Keep.open(root) as keep:
        ingest(keep, home)
        file.unlink()
        done = keep.restore(SESSION, "claude", home=home)
        assert done["exact"] is False and [one["exact"] for one in done["files"]] == [False]
        assert "masked" in done["notes"][0] and done["files"][0]["masked"] is True
        after = file.read_bytes()
        assert len(after) == len(before) and after != before
        assert [
            matches_masked(kept, line) or kept == line for kept, line in zip(after.split(b"\n"), before.split(b"\n"), strict=True)
        ]
    ran: Ran = cli("--keep", root, "restore", SESSION, "--to", "claude", "--home", tmp_path / "there")
    assert ran.code == 0 and "B, masked)" in ran.out and "secrets in it were masked" in ran.out + ran.err


def test_a_masked_transcript_is_not_restored_over_the_original(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two", SAYS))
    before = file.read_bytes()
    with Keep.open(root) as keep:
        ingest(keep, home)
        with pytest.raises(Exception, match="another file is there"):
            keep.restore(SESSION, "claude", home=home)
    assert file.read_bytes() == before


def test_a_lost_line_with_a_secret_is_reported_as_lost(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two", SAYS, "four"))
    with Keep.open(root) as keep:
        ingest(keep, home)
        data = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(data[:2]))
        found = keep.audit(home=home)["faults"]
        assert [one["class"] for one in found] == ["source_shrank"] and "2 of 4" in found[0]["what"]
        assert "--home DIR" in found[0]["next"], "over the file itself it would be refused"


def test_no_masked_line_is_filled_into_a_blanked_transcript(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two", SAYS, "four"))
    before = file.read_bytes()
    with Keep.open(root) as keep:
        ingest(keep, home)
        file.write_bytes(before[:40] + b"\0" * (len(before) - 40))
        [fault] = keep.audit(home=home)["faults"]
        assert (fault["class"], fault["repairable"]) == ("source_blanked", False) and "masked" in fault["next"]
        keep.repair(apply=True, home=home)
    assert file.read_bytes()[40:] == b"\0" * (len(before) - 40)


def test_a_line_that_the_journal_lost_is_read_again_and_masked(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two", SAYS, "four"))
    with Keep.open(root) as keep:
        ingest(keep, home)
        with file.open("ab") as grows:
            grows.write(record(5, SAYS) + record(6, "six"))
        ingest(keep, home)
    [part] = Path(root, folder_of(SESSION)).glob("*.jsonl")
    data = part.read_bytes()
    hit = data.index(b'"four"') if b'"four"' in data else data.index(b"four")
    part.write_bytes(data[:hit] + b"\x01" + data[hit + 1 :])
    with Keep.open(root) as keep:
        assert "journal_damage" in faults(keep, home)
        done = keep.repair(apply=True, home=home)
        assert done["audit"]["faults"] == [], done
        assert not leaks(root, FORM, NAMED)
        said = [m["text"][:4] for m in keep.show(SESSION)["messages"]]
        assert sorted(said) == ["four", "one", "six", "two", "use ", "use "]
        assert keep.restore(SESSION, "claude", home=tmp_path / "back")["exact"] is False


def test_merging_a_masked_snapshot_into_an_unmasked_keep_doubles_no_line(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two", SAYS, "four"))
    plain = str(tmp_path / "plain")
    with Keep.open(root) as keep, Keep.open(plain) as other:
        ingest(keep, home)
        with file.open("ab") as grows:
            grows.write(record(5, "five"))
        ingest(other, home)
        for one, name in ((keep, "masked"), (other, "plain")):
            one.export(tmp_path / f"{name}.snap")
        other.import_(tmp_path / "masked.snap")
        assert [m["text"] for m in other.show(SESSION)["messages"]] == ["one", "two", SAYS, "four", "five"]
        keep.import_(tmp_path / "plain.snap")
        assert [m["text"][:4] for m in keep.show(SESSION)["messages"]] == ["one", "two", "use ", "four", "five"]
        assert not leaks(root, FORM, NAMED)
        assert keep.restore(SESSION, "claude", home=tmp_path / "back")["exact"] is False


def test_masking_that_is_switched_on_later_masks_later_lines(tmp_path: Path) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two", SAYS))
    root = str(tmp_path / "keep")
    with Keep.open(root) as keep:
        ingest(keep, home)
    Path(root, "keep.toml").write_text("[capture]\nredact_raw = true\n")
    other = "ghp_" + "z9Y8x7W6" * 5
    with file.open("ab") as grows:
        grows.write(record(4, f"use {other}") + record(5, "five"))
    with Keep.open(root) as keep:
        ingest(keep, home)
        assert not leaks(root, other) and leaks(root, FORM)
        assert faults(keep, home) == [] and keep.restore(SESSION, "claude", home=tmp_path / "back")["exact"] is False
        data = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(data[2:]))
        ingest(keep, home)
        assert not leaks(root, other)
        assert [m["text"] for m in keep.show(SESSION)["messages"]].count(SAYS) == 1
    Path(root, "keep.toml").unlink()
    with Keep.open(root) as keep:
        assert faults(keep, home) == ["source_shrank"]


def test_deleting_undeleting_and_ingesting_masks_what_was_captured_before(tmp_path: Path, root: str) -> None:
    """How to mask sessions that were captured before masking was switched on."""
    home, _ = home_with(tmp_path, lines_with("one", "two", SAYS))
    Path(root, "keep.toml").unlink()
    with Keep.open(root) as keep:
        ingest(keep, home)
        assert leaks(root, FORM)
    Path(root, "keep.toml").write_text("[capture]\nredact_raw = true\n")
    with Keep.open(root) as keep:
        keep.delete(SESSION)
        keep.undelete(SESSION)
        ingest(keep, home)
        assert not leaks(root, FORM, NAMED) and len(keep.show(SESSION)["messages"]) == 3


def test_a_cursor_without_masks_has_its_old_form() -> None:
    word = SourceCursor(1, 20, 0, 7, 20, "aa", "bb", 99, "")
    assert str(word) == "1 20 0 7 20 aa bb 99 " and SourceCursor.parse(str(word)) == word
    masked = word._replace(masked_crc=5)
    assert SourceCursor.parse(str(masked)) == masked and (word.kept_crc, masked.kept_crc) == (99, 5)
    assert SourceCursor.parse(f"{masked} 6") is None


def test_a_secret_over_several_lines_of_a_companion_file_is_masked(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two"))
    beside = file.with_suffix("") / "tool-results" / "toolu_1.txt"
    beside.parent.mkdir(parents=True)
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEAabcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL\n" * 6
    beside.write_text(f"see\n{key}")
    with Keep.open(root) as keep:
        ingest(keep, home)
        with beside.open("a") as grows:
            grows.write("MIIEpAIBAAKCAQEAabcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL\n-----END RSA PRIVATE KEY-----\nend")
        ingest(keep, home)
        assert not leaks(root, "MIIEpAIBAAKCAQEA") and faults(keep, home) == []
        shutil.rmtree(file.with_suffix(""))
        keep.restore(SESSION, "claude", home=tmp_path / "back")
        [back] = (tmp_path / "back").rglob("toolu_1.txt")
        assert back.read_text().startswith("see\n[redacted]") and back.read_text().endswith("end")


def test_a_payload_that_is_not_text_is_masked_too(root: str) -> None:
    event = Event("1", Kind.HOOK_FIRED, "2026-11-01T10:00:00Z", pack({"calls": []}, [b"\xff token=" + FORM.encode(), b"{}"]))
    masked = mask_event(event).body
    assert isinstance(masked, RawChunk)
    first, second = unpack(masked.raw)
    assert first.startswith(b"\xff token=[redacted]*") and second == b"{}" and FORM.encode() not in first


def test_an_event_that_comes_from_another_keep_is_masked_in_place() -> None:
    """Merging a snapshot passes its events on as they are."""
    raw = json.dumps({"turn": "t", "prompt": SAYS}).encode()
    masked = mask_event(Event("1", Kind.TURN_SUBMITTED, "2026-11-01T10:00:00Z", RawChunk(raw))).body
    assert isinstance(masked, RawChunk) and len(masked.raw) == len(raw)
    assert json.loads(masked.raw)["turn"] == "t" and json.loads(masked.raw)["prompt"].startswith("use [redacted]*")


def test_words_that_changed_around_stars_are_journaled(tmp_path: Path, root: str) -> None:
    """There is no secret, and stars are not masks."""
    home, file = home_with(tmp_path, lines_with("what is 2*3?", "* done"))
    with Keep.open(root) as keep:
        ingest(keep, home)
        file.write_bytes(lines_with("what is 2+3?", "- done"))
        ingest(keep, home)
        assert [m["text"] for m in keep.show(SESSION)["messages"]][-2:] == ["what is 2+3?", "- done"]
        assert faults(keep, home) == ["source_changed"] and keep.restore(SESSION, "claude", home=tmp_path / "b")["exact"]


def test_a_message_without_an_id_stays_one_message_when_masking_is_switched(tmp_path: Path) -> None:
    for on in (True, False):
        place = tmp_path / str(on)
        home, settings_file = place / "home", place / "keep" / "keep.toml"
        settings_file.parent.mkdir(parents=True, mode=0o700)
        web = Web(home, database=False)
        said = [web_said("user", SAYS, 1778573700.0), web_said("assistant", "done", 1778573703.0)]
        for switched in (on, not on):
            settings_file.write_text(f"[capture]\nredact_raw = {str(switched).lower()}\n")
            web.save("abc", said)
            with Keep.open(place / "keep") as keep:
                list(keep.ingest(home=home))
                assert len(keep.show("hermes-webui:abc")["messages"]) == len(said)
                assert faults(keep, home) == []
            said.append(web_said("user", "more", 1778573800.0))


def test_with_masking_switched_on_in_the_middle_of_a_line_the_rest_waits(tmp_path: Path) -> None:
    whole = lines_with("hello", "hi", f"use {FORM} now")
    home, file = home_with(tmp_path, whole[: whole.index(FORM.encode())])
    root = str(tmp_path / "keep")
    with Keep.open(root) as keep:
        ingest(keep, home)
    Path(root, "keep.toml").write_text("[capture]\nredact_raw = true\n")
    file.write_bytes(whole[: whole.index(FORM.encode()) + 20])
    with Keep.open(root) as keep:
        ingest(keep, home)
        assert not leaks(root, FORM[:12])
        file.write_bytes(whole)
        ingest(keep, home)
        assert not leaks(root, FORM[:12]) and "[redacted]" in keep.show(SESSION)["messages"][2]["text"]
        assert faults(keep, home) == []


def test_a_half_written_document_waits(tmp_path: Path, root: str) -> None:
    home = tmp_path / "home"
    load_generator("hermes-webui").write(home)
    file = next(
        path for path in sorted(home.rglob("*.json")) if not path.name.startswith("_") and b'"content": "' in path.read_bytes()
    )
    data = re.sub(rb'("content": ")', lambda m: m[1] + SAYS.encode(), file.read_bytes(), count=1)
    file.write_bytes(data[: data.index(FORM.encode()) + 20])
    with Keep.open(root) as keep:
        states = {one.path: one.state for one in keep.ingest(home=home)}
        assert states[str(file)] == "waiting" and not leaks(root, FORM[:12])
        file.write_bytes(data)
        list(keep.ingest(home=home))
        assert not leaks(root, FORM[:12]) and leaks(root, "[redacted]")
        os.utime(file, (1, 1))  # nobody writes it any more: then what is there counts
        file.write_bytes(data[:-9])
        os.utime(file, (1, 1))
        assert {one.path: one.state for one in keep.ingest(home=home)}[str(file)] == "shrank"


def test_a_masked_transcript_that_is_restored_and_recaptured_still_counts_as_masked(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two", SAYS))
    with Keep.open(root) as keep:
        ingest(keep, home)
        file.unlink()
        keep.restore(SESSION, "claude", home=home)
        ingest(keep, home)
        assert keep.restore(SESSION, "claude", home=tmp_path / "back")["exact"] is False and faults(keep, home) == []


def test_masked_rows_of_a_snapshot_are_reported_as_masked(tmp_path: Path, root: str) -> None:
    home = tmp_path / "home"
    (home / ".hermes").mkdir(parents=True)
    db = Hermes(home / ".hermes" / "state.db")
    native = "20261101_100000_abcdef"
    db.session(native)
    db.ask(native, "hello")
    with Keep.open(tmp_path / "plain") as plain:
        list(plain.ingest(home=home, agents=["hermes"]))
    db.ask(native, SAYS)
    with Keep.open(root) as keep:
        list(keep.ingest(home=home, agents=["hermes"]))
        keep.export(tmp_path / "s")
    with Keep.open(tmp_path / "plain") as plain:
        plain.import_(tmp_path / "s")
        back = plain.restore(f"hermes:{native}", "hermes", home=tmp_path / "back")
        assert back["exact"] is False and any("masked" in note for note in back["notes"])


def test_a_masked_line_is_not_added_to_a_file_that_has_the_original() -> None:
    line = json.dumps({"id": "1", "thread_name": f"deploy with {FORM}"}).encode()
    assert add_lines(line + b"\n", [mask_line(line) + b"\n"]) is None
    assert add_lines(b"other\n", [line]) == b"other\n" + line + b"\n"


def test_a_payload_whose_base64_looks_like_a_key_stays_what_it_was() -> None:
    payload = b"-----BEGIN CERTIFICATE----- \xff and words"
    event = Event("1", Kind.HOOK_FIRED, "2026-11-01T10:00:00Z", pack({"calls": []}, [payload]))
    masked = mask_event(event).body
    assert isinstance(masked, RawChunk) and unpack(masked.raw) == [payload]


def test_values_that_every_part_repeats_are_masked() -> None:
    carry: dict[str, int | str] = {"cwd": f"/x?token={FORM}", "opened": 1, "src:main-0123456789": "1 2 0 3 4 aa bb 5 "}
    masked = mask_event(Event("1", Kind.SESSION_OPENED, "2026-11-01T10:00:00Z", {"cwd": f"/x?token={FORM}"}, carry))
    assert masked.carry and FORM not in str(masked) and masked.carry["opened"] == 1
    assert masked.carry["src:main-0123456789"] == carry["src:main-0123456789"]


def test_a_lost_session_file_is_not_rebuilt_with_masks_where_its_database_has_the_words(tmp_path: Path, root: str) -> None:
    web = Web(tmp_path / "home")
    web.save("def", [web_said("user", SAYS, 1778573700.0), web_said("assistant", "done", 1778573703.0)])
    with Keep.open(root) as keep:
        list(keep.ingest(home=tmp_path / "home"))
        assert faults(keep, tmp_path / "home", deep=True) == []
        web.file("def").unlink()
        keep.repair(apply=True, home=tmp_path / "home")
        said = json.loads(web.file("def").read_bytes())["messages"]
        assert said[0]["content"] == SAYS and not leaks(root, FORM)


def test_a_message_without_an_id_and_with_a_non_ascii_secret_is_not_a_loss(tmp_path: Path) -> None:
    said: list[Mapping[str, Any]] = [
        {"role": "user", "content": "password=Schlüssel99xq"},
        {"role": "user", "content": "zwei"},
    ]
    kept = json.loads(mask_line(json.dumps({"messages": said}, ensure_ascii=False).encode()))["messages"]
    assert kept[0] != said[0] and lost_messages(said, kept) == [] and len(lost_messages(said[1:], kept)) == 1


# -- plain words are never taken for a secret that was masked

#: As long as `FORM`.
PLAIN = "the tests pass, deploy on Monday as planned."


def test_a_rewritten_text_keeps_words_as_long_as_a_former_secret(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two"))
    beside = file.with_suffix("") / "tool-results" / "toolu_1.txt"
    beside.parent.mkdir(parents=True)
    with Keep.open(root) as keep:
        beside.write_text(f"$ gh auth token\n{FORM}\n$ next\n")
        ingest(keep, home)
        beside.write_text(f"$ report\n{PLAIN}\n$ end of it\n")
        ingest(keep, home)
        assert PLAIN in keep.show(SESSION)["messages"][-1]["text"] and not leaks(root, FORM)


def test_a_message_edited_to_words_as_long_as_its_secret_is_kept(tmp_path: Path, root: str) -> None:
    web = Web(tmp_path / "home", database=False)
    with Keep.open(root) as keep:
        for words in (FORM, PLAIN):
            web.save("abc", [web_said("user", "hello", 1778573700.0), web_said("user", words, 1778573703.0)])
            list(keep.ingest(home=tmp_path / "home"))
        assert leaks(root, PLAIN) and not leaks(root, FORM) and faults(keep, tmp_path / "home", deep=True) == []


def test_a_plain_line_of_a_snapshot_is_not_taken_for_a_masked_line_here(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two"))
    beside = file.with_suffix("") / "tool-results" / "toolu_1.txt"
    beside.parent.mkdir(parents=True)
    beside.write_text(f"$ one\n{FORM}\n")
    with Keep.open(root) as keep, Keep.open(tmp_path / "plain") as other:
        ingest(keep, home)
        beside.write_text(f"$ one\n{FORM}\n$ two\n{PLAIN}\n")
        ingest(other, home)
        other.export(tmp_path / "s")
        keep.import_(tmp_path / "s")
        assert leaks(root, PLAIN) and not leaks(root, FORM)


def test_a_rewritten_text_keeps_no_line_of_a_key(tmp_path: Path, root: str) -> None:
    home, file = home_with(tmp_path, lines_with("one", "two"))
    beside = file.with_suffix("") / "tool-results" / "toolu_1.txt"
    beside.parent.mkdir(parents=True)
    body = "MIIEpAIBAAKCAQEAabcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL\n"
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + body * 6 + "-----END RSA PRIVATE KEY-----\n"
    with Keep.open(root) as keep:
        for words in ("starting the job\nplease wait\n", f"job done, its key:\n{key}bye\n", f"again:\n{key}bye\nthat is all\n"):
            beside.write_text(words)
            ingest(keep, home)
            assert not leaks(root, "MIIEpAIBAAKCAQEA") and faults(keep, home, deep=True) in ([], ["source_changed"])
        Path(root, "keep.toml").unlink()
    with Keep.open(root) as keep:  # switched off, a line that is masked here is still that line
        beside.write_text(f"more:\n{key}bye\nthat is all\n")
        ingest(keep, home)
        assert not leaks(root, "MIIEpAIBAAKCAQEA") and leaks(root, "more:")


def test_a_secret_over_the_border_of_two_pieces_of_a_very_long_line_is_masked_in_both() -> None:
    before = b'{"content":"' + b"word " * (1 << 18) + b"then "
    line = before + FORM.encode() + b" " + b"word " * 2000 + b'"}'
    for half in (len(before) + 9, len(before) + 30):
        content = Bytes(line)
        first = kept_lines(content, 0, Slice([line[:half]], False, True, half), text=False)
        second = kept_lines(content, half, Slice([line[half:]], True, False, len(line) - half), text=False)
        kept = first[0] + second[0]
        assert len(kept) == len(line) and kept == line.replace(FORM.encode(), kept[len(before) : len(before) + len(FORM)])
        assert b"[redacted]" in kept and not any(FORM[n : n + 8].encode() in kept for n in range(len(FORM) - 8))


def test_masking_needs_a_few_times_the_memory_of_its_line() -> None:
    line = json.dumps({"content": ["Ein Schlüssel, kein Wort.\n" * 40_000, SAYS]}, ensure_ascii=False).encode()
    mask_line(line)
    tracemalloc.start()
    try:
        kept = mask_line(line)
        assert tracemalloc.get_traced_memory()[1] < 16 * len(line) and FORM.encode() not in kept
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one.kind)
def test_a_damaged_line_is_masked_like_the_whole_line(one: Planted) -> None:
    line = json.dumps({"type": "user", "content": f"Schlüssel:\n{one.text}\nThen."}, ensure_ascii=False).encode()
    half = line.index(b"Then")
    damaged = {
        "a BOM": b"\xef\xbb\xbf" + line,
        "NULs before it": b"\0" * 8 + line + b"\r",
        "NULs in it": line[:20] + b"\0\0" + line[20:half].replace(b"\\", b"\0\\", 1) + b"\0" + line[half:],
        "torn": line[:18] + line,
        "torn behind its secrets": line[:half] + line[:30] + line,
    }
    for what, bad in damaged.items():
        kept = mask_line(bad)
        said = _read_as_record(kept)
        assert len(kept) == len(bad) and mask_line(kept) == kept and said == json.loads(mask_line(line)), what
        assert not [form for form in one.secrets if json.dumps(form, ensure_ascii=False)[1:-1].encode() in kept], what


def _read_as_record(line: bytes) -> Any:
    body = {"source": "main-1", "role": "main", **json.loads(pack({}, [line]).raw)}
    found = [one for _, one in records(Event("1", Kind.SOURCE_READ, "2026-11-01T10:00:00Z", body), {})]
    [data] = [one.data for one in found if isinstance(one, Record)]
    return data


def test_the_beginning_of_a_secret_that_a_torn_record_ends_with_is_masked() -> None:
    line = json.dumps({"type": "user", "content": SAYS}).encode()
    for of in (FORM, NAMED):
        torn = line[: line.index(of.encode()) + 7]
        kept = mask_line(torn + line)
        assert of[:7].encode() not in kept and _read_as_record(kept) == json.loads(mask_line(line))


def test_two_secrets_as_names_stay_two_names() -> None:
    other = "ghp_" + "b1B2c3D4" * 5
    for one, two in (
        (FORM, other),
        (f"Shall I use {FORM}?", f"Shall I use {other}?"),
        ("DB_PASSWORD=Tr0ub4d", "DB_PASSWORD=Tr1ub4d"),
        (f"é\n{FORM}", f"é\n{other}"),
    ):
        value = {one: "belongs to alice", two: {two: "belongs to bob", one: "to alice"}}
        for ascii_only in (True, False):
            line = json.dumps({"a": value, "b": json.dumps([value, {one: "again"}])}, ensure_ascii=ascii_only).encode()
            kept = mask_line(line)
            assert len(kept) == len(line) and matches_masked(kept, line) and mask_line(kept) == kept
            said = json.loads(kept)
            first, second = said["a"]
            assert said["a"] == {first: "belongs to alice", second: {second: "belongs to bob", first: "to alice"}}
            assert json.loads(said["b"]) == [said["a"], {first: "again"}], "one name is masked alike wherever it stands"
            assert one not in said["a"] and two not in said["a"]
        assert next(iter(mask_data(value).values())) == "belongs to alice" and len(mask_data(value)) == 2


def test_a_damaged_line_is_masked_by_its_names_and_lists_too() -> None:
    line = b'{"type":"user","argv":["mysql","--password","Hunter2abcX"],"input":{"password":"correct horse"}}'
    assert mask_line(b'{"%b":"a\0\\\\ b\\n"}' % FORM.encode()).endswith(b'":"a\0\\\\ b\\n"}')
    for bad in (b"\xef\xbb\xbf" + line, b"\0\0" + line, line[:20] + b"\0" + line[20:], line[:12] + line):
        kept = mask_line(bad)
        assert b"Hunter2abcX" not in kept and _read_as_record(kept) == json.loads(mask_line(line))
