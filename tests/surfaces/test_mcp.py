"""The MCP server, tested by plain messages on stdin and stdout. tests/surfaces/test_mcp_sdk.py uses the official client."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamkeep import Keep
from dreamkeep.memory.insight import TYPES
from dreamkeep.surfaces.mcp import protocol, tools
from dreamkeep.surfaces.mcp.arguments import check_arguments
from dreamkeep.surfaces.mcp.calls import Tools
from dreamkeep.surfaces.mcp.lanes import Lanes
from tests.helpers import secrets
from tests.helpers.mcp_talk import META, TOOLS, Wire, ask, call, found, greet, named, refused, slow_keep, talked, wire, words


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Wire]:
    """A server with a keep that holds one session."""
    talked(tmp_path / "keep", ("why is the lock file old?", "Because of the cache."), ("and now?", "Now it is new."))
    with wire(tmp_path / "keep") as made:
        yield made


def hook_words(agent: str, event: str, keep: Path) -> list[str]:
    from dreamkeep.capture import hook

    return [sys.executable, "-I", "-S", str(hook.__file__), agent, event, str(keep)]


# -- greeting


def test_a_client_is_greeted_and_gets_the_list_of_tools_without_a_keep(tmp_path: Path) -> None:
    with wire(tmp_path / "none") as server:
        hello = server.ask(greet(1, "2025-06-18"))["result"]
        server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        listed = server.ask(ask(2, "tools/list"))["result"]["tools"]
        assert server.close() == ([], "")
    assert hello["protocolVersion"] == "2025-06-18" and hello["capabilities"] == {"tools": {}}
    assert hello["serverInfo"]["name"] == "dreamkeep" and "search" in hello["instructions"]
    assert tuple(tool["name"] for tool in listed) == TOOLS
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("wanted", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_each_published_version_is_agreed_to(wanted: str) -> None:
    talk = protocol.McpConnection()
    reply = protocol.read_message(greet(version=wanted), talk)
    assert isinstance(reply, protocol.ProtocolReply) and reply.body["result"]["protocolVersion"] == talk.version == wanted


def test_an_unknown_version_is_answered_with_the_newest_that_greets() -> None:
    for wanted in ("2026-07-28", "1900-01-01", ""):
        reply = protocol.read_message(greet(version=wanted), protocol.McpConnection())
        assert isinstance(reply, protocol.ProtocolReply) and reply.body["result"]["protocolVersion"] == "2025-11-25"
    reply = protocol.read_message(ask(1, "initialize", protocolVersion=7), protocol.McpConnection())
    assert isinstance(reply, protocol.ProtocolReply) and reply.code == protocol.BAD_PARAMS


def test_the_tools_hints_say_correctly_whether_they_change_something() -> None:
    hints = {tool["name"]: tool["annotations"] for tool in tools.TOOLS}
    assert {name for name, one in hints.items() if one["readOnlyHint"]} == {
        *("search", "pack", "timeline", "why", "review", "dream_status")
    }
    assert {name for name, one in hints.items() if one.get("destructiveHint")} == {"note_retract"}
    assert {name for name, one in hints.items() if not one["idempotentHint"]} == {"dream_run", "dream_next"}
    assert tools.TYPES == TYPES, "what a model may choose from is what there is"


def test_a_read_only_tool_changes_no_byte_of_what_is_remembered(tmp_path: Path) -> None:
    root = tmp_path / "keep"
    talked(root, ("a question", "an answer"), end=True)
    with Keep.open(root) as keep:
        note = keep.note_add("tabs, not spaces")["id"]

    def journals() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(root.rglob("*.jsonl"))}

    before = journals()
    with wire(root) as server:
        for n, (name, arguments) in enumerate(
            {
                "search": {"query": "tabs"},
                "pack": {},
                "timeline": {"session": "chat"},
                "why": {"note": note},
                "dream_status": {},
            }.items()
        ):
            server.ask(call(n, name, **arguments))
        server.ask(call(9, "dream_run", dry_run=True))
    assert journals() == before


# -- 2026-07-28


def test_a_request_that_names_its_version_is_answered_without_a_greeting(chat: Wire) -> None:
    about = chat.ask(named(ask(1, "server/discover")))["result"]
    assert "2026-07-28" in about["supportedVersions"] and about["resultType"] == "complete" and about["capabilities"]
    listed = chat.ask(named(ask(2, "tools/list")))["result"]
    assert listed["resultType"] == "complete" and listed["ttlMs"] > 0 and listed["cacheScope"] == "public"
    assert listed["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "dreamkeep"
    got = chat.ask(named(call(3, "search", query="lock")))
    assert got["result"]["resultType"] == "complete" and found(got)["hits"]
    assert "resultType" not in chat.ask(call(4, "search", query="lock"))["result"], "an older client is answered as before"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (ask(1, "server/discover"), protocol.BAD_PARAMS),
        (ask(1, "tools/list", _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"}), protocol.BAD_PARAMS),
        (ask(1, "tools/list", _meta={**META, "io.modelcontextprotocol/protocolVersion": 7}), protocol.BAD_PARAMS),
        (ask(1, "tools/list", _meta={**META, "io.modelcontextprotocol/clientCapabilities": []}), protocol.BAD_PARAMS),
        (ask(1, "tools/list", _meta={**META, "io.modelcontextprotocol/protocolVersion": "2999-01-01"}), protocol.NO_SUCH_VERSION),
        (named(ask(1, "ping")), protocol.NO_METHOD),
        (named(ask(1, "subscriptions/listen")), protocol.NO_METHOD),
    ],
)
def test_the_error_names_what_a_request_with_a_version_lacks(message: dict[str, Any], code: int) -> None:
    reply = protocol.read_message(message, protocol.McpConnection())
    assert isinstance(reply, protocol.ProtocolReply) and reply.code == code
    if code == protocol.NO_SUCH_VERSION:
        assert set(reply.body["error"]["data"]["supported"]) == set(protocol.VERSIONS)


# -- what is no request


def test_invalid_messages_get_an_answer_and_do_not_end_the_connection(tmp_path: Path) -> None:
    with wire(tmp_path / "none") as server:
        server.send(b"nonsense", b"\xff\xfe{", b"[]", b"{}", b"7", b"null", b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}')
        codes = [server.next()["error"]["code"] for _ in range(7)]
        assert codes == [-32700, -32700, -32600, -32600, -32600, -32600, -32700]
        server.send(b"", b"   ", {"jsonrpc": "2.0", "id": 5, "result": {}}, {"jsonrpc": "2.0", "method": "notifications/else"})
        odd: list[Any] = [None, 1.5, True, [], {}]
        for id in odd:
            server.send({"jsonrpc": "2.0", "id": id, "method": "ping"})
            assert server.next() == protocol.make_error(None, -32600, "an id must be a string or an integer").body
        for message, code in (
            (ask("a", "no/such"), -32601),
            (ask("b", "resources/list"), -32601),
            ({"jsonrpc": "2.0", "id": "c", "method": "tools/list", "params": [1]}, -32602),
            (ask("d", "tools/list", cursor="2"), -32602),
            (ask("e", "tools/call"), -32602),
            (ask("f", "tools/call", name="drop", arguments={}), -32602),
            (ask("g", "tools/call", name="search", arguments=["x"]), -32602),
            ({"jsonrpc": "1.0", "id": "h", "method": "ping"}, -32600),
        ):
            assert server.ask(message)["error"]["code"] == code, message
        assert server.ask(ask(99, "ping")) == {"jsonrpc": "2.0", "id": 99, "result": {}}
        assert server.close() == ([], "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
methods = st.sampled_from(["initialize", "ping", "tools/list", "tools/call", "server/discover", "notifications/cancelled", ""])
params = st.fixed_dictionaries({}, optional=dict.fromkeys(("_meta", "name", "arguments", "requestId"), json_values))
requests = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "1.0"]), "method": methods | json_values},
    optional={"id": json_values, "params": json_values | params},
)


@given(message=requests | json_values)
def test_any_json_is_answered_by_at_most_one_line_of_json(message: Any) -> None:
    step = protocol.read_message(message, protocol.McpConnection())
    if isinstance(step, protocol.ProtocolReply):
        line = protocol.encode_message(step.body)
        assert json.loads(line) == step.body and b"\n" not in line


@given(arguments=st.dictionaries(st.sampled_from(["query", "kinds", "limit", "session", "around", "note", "x"]), json_values))
def test_arguments_are_either_as_the_schema_says_or_refused(arguments: dict[str, Any]) -> None:
    from dreamkeep.errors import BadUsage

    for tool in tools.TOOLS:
        try:
            told = check_arguments(tool["inputSchema"], arguments)
        except BadUsage as no:
            assert "The arguments are:" in str(no)
            continue
        assert set(told) <= set(tool["inputSchema"]["properties"])
        assert all(told[key] == value for key, value in arguments.items() if value is not None)


def test_a_message_that_is_too_long_is_refused_and_the_next_one_is_read(tmp_path: Path) -> None:
    with wire(tmp_path / "none") as server:
        server.send(b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * (17 << 20) + b'"}')
        assert "at most" in server.next()["error"]["message"]
        assert server.ask(ask(2, "ping"))["result"] == {}


def test_a_batch_is_accepted_only_in_versions_that_have_batches(chat: Wire) -> None:
    notice = {"jsonrpc": "2.0", "method": "notifications/x"}
    several = [ask(1, "ping"), notice, call(2, "search", query="lock"), ask(3, "no/such")]
    chat.send(several)
    assert chat.next()["error"]["code"] == -32600, "nobody has agreed on a version yet"
    chat.ask(greet(version="2025-03-26"))
    chat.send(several)
    answers = {one["id"]: one for one in chat.next()}
    assert set(answers) == {1, 2, 3} and found(answers[2])["hits"] and answers[3]["error"]["code"] == -32601
    chat.send([notice], [], [ask(1, "ping")] * 101)
    assert [chat.next()["error"]["code"] for _ in range(2)] == [-32600, -32600], "of notifications alone nothing is said"
    chat.ask(greet(version="2025-06-18"))
    chat.send(several)
    assert chat.next()["error"]["code"] == -32600


# -- tools


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("search", {}, "`query` is missing"),
        ("search", {"query": 5}, "`query` must be a text, not 5"),
        ("search", {"query": "x", "limit": 0}, "`limit` must be from 1 to 50, not 0"),
        ("search", {"query": "x", "limit": "3"}, "`limit` must be a whole number, not '3'"),
        ("search", {"query": "x", "limit": True}, "`limit` must be a whole number, not True"),
        ("search", {"query": "x", "kinds": ["note", "rumour"]}, "each item is one of message, insight, note"),
        ("search", {"query": "x", "kinds": "note"}, "`kinds` must be a list"),
        ("search", {"query": "x", "sort": "new", "page": 2}, "unknown argument 'sort'; unknown argument 'page'"),
        ("search", {"query": "y" * 20_000}, "at most 10000 characters, not a text of 20000 characters"),
        ("timeline", {"session": ""}, "`session` must be a non-empty text"),
        ("timeline", {"session": "chat", "around": 1.5}, "`around` must be a text or a whole number"),
        ("timeline", {"session": "chat", "around": 99}, "it has no message '99'"),
        ("timeline", {"session": "nobody"}, "no session 'nobody'"),
        ("timeline", {"session": "chat", "around": 3, "offset": 1}, "around and offset exclude each other"),
        ("note_pin", {"note": "n-1", "pinned": "yes"}, "`pinned` must be true or false"),
        ("note_pin", {"note": "n-1"}, "no note 'n-1'"),
        ("note_retract", {}, "`note` is missing"),
        ("note_add", {"text": "x", "kind": "gossip"}, "`kind` must be one of decision"),
        ("why", {"note": "n-1"}, "no note"),
        ("insight_add", {"type": "finding"}, "`text` is missing"),
        ("insight_add", {"type": "finding", "text": "x", "session": "nobody"}, "no session 'nobody'"),
        ("insight_add", {"type": "finding", "text": "x", "quote": "y"}, "a quote needs a session"),
        ("dream_run", {"sessions": ["nobody"]}, "no session 'nobody'"),
    ],
)
def test_errors_about_arguments_tell_a_model_what_to_change(tmp_path: Path, name: str, arguments: Any, told: str) -> None:
    talked(tmp_path / "keep", ("hello", "there"))
    server = Tools(lambda: Keep.open(tmp_path / "keep"))
    text = refused(json.loads(server.answer(protocol.ToolCall(1, name, arguments, False))))
    assert told in text and text.rstrip().endswith((".", "`")), text


def test_a_null_argument_counts_as_left_out(chat: Wire) -> None:
    assert found(chat.ask(call(1, "search", query="lock", limit=None, project=None)))["hits"]


def test_a_hit_is_found_and_read_around(chat: Wire) -> None:
    hit = found(chat.ask(call(1, "search", query="lock file", limit=1)))["hits"][0]
    assert (hit["kind"], hit["session"], hit["text"]) == ("message", "python:chat", "why is the lock file old?")
    read = found(chat.ask(call(2, "timeline", session="chat", around=hit["seq"])))
    assert [m["text"] for m in read["messages"]][:2] == ["why is the lock file old?", "Because of the cache."]
    assert read["session"]["id"] == "python:chat" and (read["first"], read["total"], read["next"]) == (0, 4, None)


def test_pages_of_a_timeline_give_every_message_once(chat: Wire) -> None:
    seen, at = [], 0
    for n in range(4):
        page = found(chat.ask(call(n, "timeline", session="chat", offset=at, limit=1)))
        seen += [m["text"] for m in page["messages"]]
        at = page["next"]
    assert at is None and seen == ["why is the lock file old?", "Because of the cache.", "and now?", "Now it is new."]
    assert found(chat.ask(call(9, "timeline", session="chat", offset=400)))["messages"] == []


def test_long_texts_are_cut_and_an_answer_is_never_endless(tmp_path: Path) -> None:
    root = tmp_path / "keep"
    with Keep.open(root) as keep:
        turn = keep.session("long").submit("go")
        turn.start()
        for n in range(30):
            turn.add("assistant", f"{n} " + "word " * 4_000)
        written = {"content": "line\n" * 20_000, "many": ["entry"] * 5_000}
        turn.add("assistant", "", tool={"id": "c1", "name": "Write", "input": written})
        turn.settle("completed")
    with wire(root) as server:
        page = found(server.ask(call(1, "timeline", session="long")))
        assert all(len(m["text"]) < 2_100 for m in page["messages"])
        assert page["messages"][1]["text"].endswith("more characters]")
        large = found(server.ask(call(2, "timeline", session="long", max_chars=20_000)))
        assert len(large["messages"]) < 10 and large["next"] == len(large["messages"])
        last = found(server.ask(call(3, "timeline", session="long", offset=31)))["messages"][0]
        assert len(last["tool"]["input"]) < 2_100


def test_a_note_that_quotes_the_user_is_added_pinned_and_explained(tmp_path: Path) -> None:
    root = tmp_path / "keep"
    talked(root, ("Please remember: deploys go out on Tuesdays only.", "I will."))
    with wire(root) as server:
        given = {"text": "Deploys go out on Tuesdays only.", "kind": "constraint", "quote": "deploys go out on Tuesdays only"}
        note = found(server.ask(call(1, "note_add", **given)))["note"]
        assert (note["kind"], note["state"], note["author"]) == ("constraint", "active", "user")
        [quote] = note["evidence"]
        assert (quote["session"], quote["author"], quote["origin"]) == ("python:chat", "user", "typed")
        again = found(server.ask(call(2, "note_add", **given)))["note"]
        assert again["id"] == note["id"]
        assert found(server.ask(call(3, "note_pin", note=note["id"])))["note"]["pinned"] is True
        assert found(server.ask(call(4, "note_pin", note=note["id"][:6], pinned=False)))["note"]["pinned"] is False
        told = found(server.ask(call(5, "why", note=note["id"])))
        assert told["note"]["text"] == note["text"] and told["insights"] and len(told["history"]) >= 3


def test_an_insight_added_by_an_agent_is_found_by_the_next_search(chat: Wire) -> None:
    made = found(
        chat.ask(
            call(
                1,
                "insight_add",
                type="finding",
                text="The parser drops trailing commas in fixtures.",
                session="chat",
                quote="Because of the cache.",
            )
        )
    )
    assert made["insight"]["author"] == "agent" and made["insight"]["evidence"][0]["session"] == "python:chat"
    hits = found(chat.ask(call(2, "search", query="trailing commas", kinds=["insight", "note"])))["hits"]
    assert any("trailing commas" in hit["text"] for hit in hits)


def test_a_dream_is_run_and_its_note_found_by_the_next_search(tmp_path: Path) -> None:
    root = tmp_path / "keep"
    talked(root, ("Always run the linter before a commit, never after.", "Understood."), end=True)
    with wire(root) as server:
        dry = found(server.ask(call(1, "dream_run", dry_run=True)))
        assert dry["dry_run"] and dry["processed"] == 1
        made = found(server.ask(call(2, "dream_run")))
        assert made["status"] == "completed" and made["notes"]["added"] >= 1
        told = found(server.ask(call(3, "dream_status")))
        assert told["counts"] == {"already_consolidated": 1} and not told["running"] and told["last_report"]["run"] == made["run"]
        hits = found(server.ask(call(4, "search", query="linter commit", kinds=["note"])))["hits"]
        assert hits and hits[0]["kind"] == "note"
        assert found(server.ask(call(5, "why", note=hits[0]["id"])))["note"]["evidence"][0]["session"] == "python:chat"


def test_a_message_captured_by_a_hook_is_found_by_the_next_search(chat: Wire, tmp_path: Path) -> None:
    """The hook as `init` installs it; nobody has drained its spool yet."""
    told_by = {"session_id": "live", "cwd": str(tmp_path), "hook_event_name": "UserPromptSubmit", "prompt": "paint the zebra"}
    subprocess.run(hook_words("claude", "UserPromptSubmit", tmp_path / "keep"), input=json.dumps(told_by).encode(), check=True)
    hits = found(chat.ask(call(1, "search", query="zebra")))["hits"]
    assert [(hit["session"], hit["text"]) for hit in hits] == [("claude:live", "paint the zebra")]
    told = found(chat.ask(call(2, "insight_add", type="decision", text="The zebra gets painted.", session="claude:live")))
    assert told["insight"]["evidence"][0]["session"] == "claude:live"


def test_a_pack_is_its_text_and_says_where_it_comes_from(tmp_path: Path) -> None:
    root = tmp_path / "keep"
    with Keep.open(root) as keep:
        keep.note_add("Deploys go out on Tuesdays only.", kind="constraint")
    with wire(root) as server:
        got = server.ask(call(1, "pack", query="deploy", budget=500))
        made = found(got)
        assert "Tuesdays" in made["text"] and made["tokens"] <= 500 and made["sources"]
        assert got["result"]["content"][0]["text"] == made["text"], "a model that reads only text gets the pack itself"
        assert "`budget` must be from 100 to 50000" in refused(server.ask(call(2, "pack", budget=1)))


def test_a_project_is_named_by_a_folder_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    (folder / "deep").mkdir()
    with Keep.open(tmp_path / "keep") as keep:
        keep.session("here", cwd=str(folder)).record("the zebra crossing", ("assistant", "yes"))
        keep.session("there", cwd=str(tmp_path)).record("the zebra stripes", ("assistant", "yes"))
    with wire(tmp_path / "keep") as server:
        hits = found(server.ask(call(1, "search", query="zebra", project=str(folder / "deep"))))["hits"]
        assert {hit["session"] for hit in hits} == {"python:here"}
        told = refused(server.ask(call(2, "search", query="zebra", project="WORK")))
        assert "unknown project 'WORK'" in told and f"{folder}" in told, "the full name is what it needs"
        assert found(server.ask(call(3, "search", query="zebra", project="/nobody/knows")))["hits"] == []
        name = hits[0]["project"]
        assert found(server.ask(call(4, "search", query="giraffe", project=name)))["hits"] == []
        server.ask(call(5, "note_add", text="Zoos close at six.", project="only/notes"))
        assert found(server.ask(call(6, "search", query="giraffe", project="only/notes")))["hits"] == []


# -- what leaves


def test_secrets_do_not_leave_and_ids_do(tmp_path: Path) -> None:
    """M12."""
    root = tmp_path / "keep"
    secret = f"ghp_{secrets.some(secrets.LETTERS, 36)}"
    with Keep.open(root) as keep:
        session = keep.session("chat")
        turn = session.submit(f"my zebra token is {secret}, use it")
        turn.start()
        asked_for = {"command": f"curl -H 'Authorization: Bearer {secret}' x", "env": {"API_PASSWORD": "hunter2xQ7pelican"}}
        turn.add("assistant", "", tool={"id": "c1", "name": "Bash", "input": asked_for})
        turn.add("assistant", "We are let in as hunter2xQ7pelican.")
        turn.settle("completed")

    def said(*arguments: Any) -> str:
        with wire(root) as server:
            server.ask(call(0, "note_add", text=f"the zebra key is {secret}"))
            return json.dumps([found(server.ask(call(n, name, **given))) for n, (name, given) in enumerate(arguments, 1)])

    asked = (("search", {"query": "zebra"}), ("timeline", {"session": "chat"}))
    masked = said(*asked)
    assert secret not in masked and "hunter2xQ7pelican" not in masked
    assert masked.count("[redacted]") >= 4 and "python:chat" in masked
    (root / "keep.toml").write_text("[recall]\nredact = false\n")
    assert secret in said(*asked)


def test_half_a_secret_does_not_leave_where_a_text_is_cut(tmp_path: Path) -> None:
    secret = f"ghp_{secrets.some(secrets.LETTERS, 36)}"
    texts = ["x " * 990 + secret + " y" * tail for tail in (50, 5_000)]
    talked(tmp_path / "keep", *((text, "yes") for text in texts))
    with wire(tmp_path / "keep") as server:
        for n, chars in enumerate((1_990, 2_000, 2_010, 2_030)):
            shown = json.dumps(found(server.ask(call(n, "timeline", session="chat", max_chars=chars))))
            assert secret[:8] not in shown


def test_an_answer_is_one_line_that_strict_parsers_read(tmp_path: Path) -> None:
    talked(tmp_path / "keep", ("zebra \u2028 \u2029 \u0085 \ud800 \x00 \U0001f980 end", "ok"))
    with wire(tmp_path / "keep") as server:
        server.send(call(1, "timeline", session="chat"))
        assert server.process.stdout
        line = server.process.stdout.readline()
        text = line.decode()
        assert text.splitlines() == [text[:-1]] and "\\ud800" not in text
        import orjson

        assert "\U0001f980 end" in orjson.loads(line)["result"]["structuredContent"]["messages"][0]["text"]


def test_only_the_protocol_is_on_stdout_whoever_prints(tmp_path: Path) -> None:
    talked(tmp_path / "keep", ("hello", "there"))
    program = f"""
import os, sys
from dreamkeep import Keep
from dreamkeep.surfaces.mcp.calls import Tools
from dreamkeep.surfaces.mcp.lanes import Lanes
from dreamkeep.surfaces.mcp.stdio import run
def opened():
    print("noise of ours", flush=True)
    os.system("echo noise of a child; cat")
    return Keep.open({str(tmp_path / "keep")!r})
sys.exit(run(Tools(opened)))
"""
    server = Wire([sys.executable, "-c", program])
    assert found(server.ask(call(1, "search", query="hello")))["hits"]
    rest, err = server.close()
    assert rest == [] and "noise of ours" in err and "noise of a child" in err and server.process.returncode == 0


# -- a keep that can't be used


def test_reading_reports_a_missing_keep_and_writing_creates_it(tmp_path: Path) -> None:
    with wire(tmp_path / "keep") as server:
        for n, (name, arguments) in enumerate(
            {"search": {"query": "x"}, "timeline": {"session": "x"}, "dream_status": {}, "dream_run": {}}.items()
        ):
            assert "there is no keep yet" in refused(server.ask(call(n, name, **arguments)))
        assert not (tmp_path / "keep").exists()
        found(server.ask(call(8, "note_add", text="tabs, not spaces")))
        assert found(server.ask(call(9, "search", query="tabs", kinds=["insight"])))["hits"]


def test_a_broken_keep_is_reported_and_used_once_it_is_mended(tmp_path: Path) -> None:
    root = tmp_path / "keep"
    root.write_text("a file")
    with wire(root) as server:
        assert "a keep is a folder" in refused(server.ask(call(1, "search", query="x")))
        root.unlink()
        talked(root, ("hello", "there"))
        (root / "keep.toml").write_text("[dream]\nnonsense = 1\n")
        assert "unknown setting `dream.nonsense`" in refused(server.ask(call(2, "search", query="x")))
        (root / "keep.toml").unlink()
        assert found(server.ask(call(3, "search", query="hello")))["hits"]
        (root / "index.sqlite").write_bytes(b"no database" * 100)
        assert found(server.ask(call(4, "search", query="hello")))["hits"], "the index is only a view"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_keep_is_reported(tmp_path: Path) -> None:
    talked(tmp_path / "keep", ("hello", "there"))
    (tmp_path / "keep").chmod(0)
    try:
        with wire(tmp_path / "keep") as server:
            assert "can't be read" in refused(server.ask(call(1, "search", query="x")))
            assert server.ask(ask(2, "ping"))["result"] == {}
    finally:
        (tmp_path / "keep").chmod(0o700)


def test_a_locked_keep_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "keep"
    talked(root, ("hello", "there"))
    with Keep.open(root) as keep:
        keep.status()
    monkeypatch.setattr("dreamkeep.context.INDEX_WAIT_S", 0.1)
    server = Tools(lambda: Keep.open(root))
    with open(root / "state" / "index.lock", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        text = refused(json.loads(server.answer(protocol.ToolCall(1, "search", {"query": "hello"}, False))))
        assert "another process has held the lock" in text and "Wait for it" in text
    assert found(json.loads(server.answer(protocol.ToolCall(2, "search", {"query": "hello"}, False))))["hits"]


def test_an_internal_error_gives_an_answer_and_a_trace_on_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> Keep:
        raise KeyError("oops")

    text = refused(json.loads(Tools(broken).answer(protocol.ToolCall(1, "search", {"query": "x"}, False))))
    assert "KeyError" in text and "internal error" in text
    assert "oops" in capfd.readouterr().err


# -- many at once, and the end


def test_a_slow_call_delays_no_other_and_is_answered_when_it_ends(tmp_path: Path) -> None:
    root, go = tmp_path / "keep", tmp_path / "go"
    slow_keep(root, go)
    with wire(root) as server:
        server.send(*(call(f"slow {n}", "dream_run") for n in range(4)))
        for n in range(20):
            server.send(call(n, "search", query="tabs"), ask(f"ping {n}", "ping"))
        assert all(found(server.get(n))["hits"] for n in range(20))
        assert all(server.get(f"ping {n}")["result"] == {} for n in range(20))
        go.touch()
        ended = [server.get(f"slow {n}")["result"] for n in range(4)]
        assert sum(not one["isError"] and one["structuredContent"]["status"] == "completed" for one in ended) >= 1
        assert all("another dream is running" in one["content"][0]["text"] for one in ended if one["isError"])


def test_slow_calls_never_take_the_threads_of_quick_ones() -> None:
    go, told = threading.Event(), queue.SimpleQueue[bytes | None]()

    def answer(one: protocol.ToolCall) -> bytes:
        if one.tool == "dream_run":
            assert go.wait(60)
        return str(one.id).encode()

    lanes = Lanes(answer)
    for n in range(20):
        lanes.put(protocol.ToolCall(f"slow {n}", "dream_run", {}, False), lambda data: None)
    for n in range(20):
        lanes.put(protocol.ToolCall(n, "search", {}, False), told.put)
    assert {told.get(timeout=60) for _ in range(20)} == {str(n).encode() for n in range(20)}
    assert not lanes.done(0)
    go.set()
    assert lanes.done(60)


def test_at_the_end_the_server_waits_longer_for_quick_calls_than_for_a_dream() -> None:
    """On a busy machine ten searches took more than the five seconds that a dream is given, and none was answered."""
    go, dream = threading.Event(), threading.Event()
    told: list[bytes | None] = []

    def answer(one: protocol.ToolCall) -> bytes:
        assert (dream if one.tool == "dream_run" else go).wait(60)
        return b""

    lanes = Lanes(answer)
    lanes.put(protocol.ToolCall("slow", "dream_run", {}, False), lambda data: None)
    lanes.put(protocol.ToolCall("quick", "search", {}, False), told.append)
    threading.Timer(0.3, go.set).start()
    assert not lanes.done(0.0, 60), "the dream goes on"
    assert told == [b""]
    dream.set()
    assert lanes.done(60)


def test_a_cancelled_call_is_not_answered(tmp_path: Path) -> None:
    root, go = tmp_path / "keep", tmp_path / "go"
    slow_keep(root, go)

    def cancel(id: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "too slow"}}

    with wire(root) as server:
        server.send(call(1, "dream_run"), cancel(1), cancel("never asked"), cancel([]))
        assert server.ask(ask(2, "ping"))["result"] == {}
        go.touch()
        assert server.ask(call(1, "search", query="tabs"))["id"] == 1, "an id may be used again"
        rest, err = server.close()
    assert [one["id"] for one in rest] == [] and err == ""


def test_the_server_ends_with_its_stdin_even_in_the_middle_of_a_dream(tmp_path: Path) -> None:
    root, go = tmp_path / "keep", tmp_path / "go"
    slow_keep(root, go)
    with wire(root) as server:
        server.send(call(1, "dream_run"))
        server.ask(call(2, "search", query="tabs"))
        rest, err = server.close()
        assert rest == [] and server.process.returncode == 0, err
    go.touch()
    with Keep.open(root) as keep:
        assert keep.dream()["lock"] == "acquired", "a dream that was left is nobody's any more"


def test_requests_from_before_the_end_are_answered(tmp_path: Path) -> None:
    talked(tmp_path / "keep", ("hello", "there"))
    lines = "".join(json.dumps(call(n, "search", query="hello")) + "\n" for n in range(10))
    done = subprocess.run(words(tmp_path / "keep"), input=lines.rstrip("\n"), capture_output=True, text=True)
    assert {json.loads(line)["id"] for line in done.stdout.splitlines()} == set(range(10)), done.stderr
