"""Search: what is found, in which order, and where. Everything goes through `Keep`, as people and agents ask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dreamkeep
from dreamkeep import Keep
from dreamkeep.agents.facts import PACK
from dreamkeep.errors import BadUsage
from dreamkeep.event import Kind
from dreamkeep.recall.hits import Hit
from dreamkeep.surfaces.cli import main
from tests.helpers.conversations import note, talk, texts

ANY = st.text(st.characters(blacklist_categories=()))


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    with Keep.open(tmp_path / "k", environment={}) as opened:
        yield opened


def first(keep: Keep, session: str) -> str:
    """Where its first message stands."""
    return str(keep.show(session)["messages"][0]["seq"])


def supersede(keep: Keep, old: str, new: str) -> None:
    keep.context.journals().say("", Kind.NOTE_SUPERSEDED, {"id": old, "by": new, "reason": "changed"})


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("OPS-306", "see OPS-306 about it"),
        ("306", "see OPS-306 about it"),
        ("ops", "see OPS-306 about it"),
        ("read_config_file", "call read_config_file() first"),
        ("config", "call read_config_file() first"),
        ("readConfigFile", "class readConfigFile extends"),
        ("config", "class readConfigFile extends"),
        ("readConfigFile", "call read_config_file first"),
        ("src/store/main.rs", "edit src/store/main.rs again"),
        ("main.rs", "edit src/store/main.rs again"),
        ("E0203", "the compiler says E0203 here"),
        ("0203", "the compiler says E0203 here"),
        ("9f3c2ab", "fixed by 9f3c2ab7d01e4455 yesterday"),
        ("9f3c2ab7d01e44556677", "fixed by 9f3c2ab7 yesterday"),
        ("building", "the builds failed"),
        ("本語", "これは日本語です"),
        ("日", "これは日本語です"),
        ("で", "それで"),
        ("한국어", "저는 한국어를 합니다"),
        ("cafe", "Das Café ist zu"),
        ("deplo", "the deployment is done"),
    ],
)
def test_words_and_identifiers_are_found_whole_and_in_part(keep: Keep, query: str, text: str) -> None:
    keep.context.find_embedder = lambda: None  # by their words, whatever is installed
    talk(keep, "other", "nothing of interest here", "indeed not")
    talk(keep, "a", text)
    assert texts(keep.search(query))[:1] == [text]


def test_the_whole_identifier_comes_before_its_parts(keep: Keep) -> None:
    talk(keep, "a", "ops and 306 others", "see OPS-306", "ops ops ops", "306 306 306")
    assert texts(keep.search("OPS-306"))[0] == "see OPS-306"


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(query=ANY)
def test_any_query_is_legal_and_filters_only_take_away(searched: Keep, query: str) -> None:
    """D32: quotes, operators, NULs, surrogates; never an exception; a filter never adds hits, and loses none of its own."""
    _legal(searched, query)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    words=st.lists(
        st.sampled_from(["OPS-306", '"', "AND", "NEAR(", "integers", "日本", "*", "build", "-", "^a", "{x}:", "yesterday"])
    )
)
def test_any_query_of_real_words_and_operators_is_legal(searched: Keep, words: list[str]) -> None:
    _legal(searched, " ".join(words))


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keep]:
    with Keep.open(tmp_path_factory.mktemp("s") / "k", environment={}) as keep:
        talk(keep, "a", "OPS-306 crashed; NEAR the AND gate", "integers only, yesterday", "日本語のテスト", "a build {x}: 1")
        talk(keep, "b", "build integers \udc80 again", "nul\0inside", "never", "")
        note(keep, "n-1", "Prices are integers", at="2026-01-01T00:00:00Z", session="python:a", seq="3")
        note(keep, "n-2", "The build is slow", at="2026-02-01T00:00:00Z", project="q")
        yield keep


def _legal(keep: Keep, query: str) -> None:
    everything = keep.search(query, limit=1000)
    found = {_where(hit) for hit in everything}
    projects = {hit.project for hit in everything} | {"p"}
    filters: list[dict[str, Any]] = [{"project": project} for project in projects]
    filters += [{"kinds": [kind]} for kind in ("message", "insight", "note")]
    filters += [{"session": "python:a"}, {"session": "none:x"}, {"agent": "python"}, {"since": "2026-06-01"}]
    filters += [{"as_of": "2026-01-15"}, {"as_of": "2999-01-01"}]
    for chosen in filters:
        fewer = {_where(hit) for hit in keep.search(query, limit=1000, **chosen)}
        assert fewer <= found
        if "project" in chosen:
            assert fewer == {_where(hit) for hit in everything if hit.project == chosen["project"]}
        if "kinds" in chosen:
            assert fewer == {_where(hit) for hit in everything if hit.kind in chosen["kinds"]}
        if chosen.get("session") == "python:a":
            assert fewer == {_where(hit) for hit in everything if hit.session == "python:a"}
    for hit in everything:
        if hit.kind == "message":
            assert hit.text in _text_at(keep, hit)


def _where(hit: Hit) -> tuple[str, str, int, int, str]:
    return hit.kind, hit.session, hit.seq, hit.n, hit.id


def _text_at(keep: Keep, hit: Hit) -> str:
    return next(m.text for m in keep.context.ask(lambda store: store.messages(hit.session)) if (m.seq, m.n) == (hit.seq, hit.n))


def test_a_long_query_and_a_long_text_are_searched_soon(keep: Keep) -> None:
    talk(keep, "a", "x" * 100_000 + " needle " + "y " * 100_000)
    [hit] = keep.search("needle " * 20_000)
    assert "needle" in hit.text and len(hit.text) <= 300
    assert keep.search("🦊" * 100_000) == []


def test_filters_come_before_the_cut(keep: Keep) -> None:
    """D32: what is better elsewhere takes no place away."""
    for n in range(30):
        talk(keep, f"many{n}", "apples apples apples")
    talk(keep, "one", "an apple among many other words that are not of interest to anybody at all")
    [hit] = keep.search("apples", session="python:one", limit=1)
    assert hit.session == "python:one"
    assert len(keep.search("apples", limit=7)) == 7


def test_the_next_search_finds_what_was_just_captured_or_learned(keep: Keep) -> None:
    """D23"""
    talk(keep, "a", "the zebra is striped")
    assert texts(keep.search("zebra")) == ["the zebra is striped"]
    note(keep, "n-1", "Zebras are not horses", at="2026-01-01T00:00:00Z")
    assert {hit.kind for hit in keep.search("zebra")} == {"message", "insight", "note"}
    handle = keep.session("a", cwd="/")
    handle.submit("another zebra")
    assert len(keep.search("zebra", kinds=["message"])) == 2


def test_the_next_search_finds_what_a_hook_left_in_the_spool(keep: Keep) -> None:
    call = {"session_id": "h1", "cwd": "/", "hook_event_name": "UserPromptSubmit", "prompt": "why is the okapi shy?"}
    command = [sys.executable, "-m", "dreamkeep", "--keep", keep.root, "hook", "claude", "UserPromptSubmit"]
    environment = {**os.environ, "PYTHONPATH": str(Path(dreamkeep.__file__).parent.parent)}
    subprocess.run(command, input=json.dumps(call).encode(), check=True, env=environment)
    [hit] = keep.search("okapi")
    assert (hit.session, hit.text) == ("claude:h1", "why is the okapi shy?")


def test_a_superseded_note_comes_after_its_replacement_and_names_it(keep: Keep) -> None:
    """D38: also if only the old one has the words, and the talk behind the notes likewise."""
    talk(keep, "old", "we shall store the orders in MySQL", "fine, MySQL it is")
    talk(keep, "new", "move to Postgres, please", "done")
    note(
        keep,
        "n-old",
        "Orders are stored in MySQL",
        at="2026-01-01T00:00:00Z",
        session="python:old",
        seq=first(keep, "python:old"),
    )
    note(keep, "n-new", "Postgres holds them", at="2026-03-01T00:00:00Z", session="python:new", seq=first(keep, "python:new"))
    before = texts(keep.search("orders stored in mysql"))
    assert before[0] == "Orders are stored in MySQL"
    supersede(keep, "n-old", "n-new")
    hits = keep.search("orders stored in mysql")
    order = {hit.id or hit.text: n for n, hit in enumerate(hits)}
    assert order["n-new"] < order["n-old"]
    assert order["move to Postgres, please"] < order["we shall store the orders in MySQL"]
    marked = {hit.id or hit.text: hit.superseded_by for hit in hits}
    assert marked["n-old"] == marked["we shall store the orders in MySQL"] == "n-new" and marked["n-new"] == ""
    assert marked["fine, MySQL it is"] == ""


def test_as_of_an_earlier_time_later_notes_supersede_nothing(keep: Keep) -> None:
    note(keep, "n-old", "The port is 8080", at="2026-01-01T00:00:00Z")
    note(keep, "n-new", "The port is 9090", at="2026-03-01T00:00:00Z")
    supersede(keep, "n-old", "n-new")
    now = keep.search("port", kinds=["note"])
    assert [(hit.id, hit.superseded_by) for hit in now] == [("n-new", ""), ("n-old", "n-new")]
    then = keep.search("port", kinds=["note"], as_of="2026-02-01")
    assert [(hit.id, hit.superseded_by) for hit in then] == [("n-old", "")]
    assert keep.search("port", as_of="2025-12-31") == []


def test_a_chain_of_superseded_notes_leads_to_the_last_one(keep: Keep) -> None:
    for n in range(4):
        note(keep, f"n-{n}", f"The limit is {n} items", at=f"2026-01-0{n + 1}T00:00:00Z")
        if n:
            supersede(keep, f"n-{n - 1}", f"n-{n}")
    hits = keep.search("limit items", kinds=["note"])
    assert hits[0].id == "n-3" and {hit.superseded_by for hit in hits[1:]} == {"n-3"}


def test_packs_are_no_hits_and_a_summary_comes_after_what_it_sums_up(keep: Keep, tmp_path: Path) -> None:
    """D33: a pack that an agent was handed is evidence of nothing; what a compaction made of the talk is, but less."""

    def line(kind: str, text: str, n: int, **more: Any) -> str:
        about = {"sessionId": "s1", "cwd": "/", "timestamp": f"2026-01-01T00:00:0{n}Z", "uuid": f"u{n}", "version": "2"}
        role = {"role": kind, "content": text if kind == "user" else [{"type": "text", "text": text}]}
        return json.dumps({"type": kind, "message": role, "parentUuid": f"u{n - 1}" if n else None, **about, **more})

    lines = [
        line("user", "the walrus is real", 0),
        line("assistant", "yes, real", 1),
        line("user", f"{PACK} v1 -->\nthe walrus is recalled\n<!-- dreamkeep:end -->", 2, isMeta=True),
        line("user", "In short: walrus walrus walrus", 3, isCompactSummary=True),
    ]
    file = tmp_path / "home" / ".claude" / "projects" / "-" / "s1.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(lines) + "\n")
    assert [one.problem for one in keep.ingest(home=tmp_path / "home")] == [None]
    marks = {m["text"][:20]: (m["role"], m.get("mark")) for m in keep.show("s1")["messages"]}
    assert marks["<!-- dreamkeep:pack "][1] == "injected" and marks["In short: walrus wal"][0] == "summary"
    assert texts(keep.search("walrus")) == ["the walrus is real", "In short: walrus walrus walrus"]


def test_a_misspelt_kind_or_time_is_refused(keep: Keep) -> None:
    wrongs: list[dict[str, Any]] = [{"kinds": ["messages"]}, {"since": "yesterday"}, {"as_of": "2026-13-01"}, {"limit": 0}]
    for wrong in wrongs:
        with pytest.raises(BadUsage):
            keep.search("x", **wrong)


def test_secrets_are_masked_in_hits_unless_told_otherwise(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    with Keep.open(tmp_path / "k", environment={}) as keep:
        talk(keep, "a", f"the token is {secret} " + "and so on " * 200)
        [hit] = keep.search("token")
        assert secret not in hit.text and "[redacted]" in hit.text
    with Keep.open(tmp_path / "k", environment={"DREAMKEEP_RECALL_REDACT": "false"}) as keep:
        [hit] = keep.search("token")
        assert secret in hit.text


def test_the_command_prints_hits_and_says_by_its_exit_code_whether_there_are_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Keep.open(tmp_path / "k", environment={}) as keep:
        talk(keep, "a", "the zebra is striped", "yes")
        note(keep, "n-1", "Zebras are not horses", at="2026-01-01T00:00:00Z")
    where = ["--keep", str(tmp_path / "k")]
    assert main([*where, "search", "zebra", "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    assert {"kind", "session", "seq", "turn", "text", "at", "score", "project"} <= hits[0].keys()
    assert {hit["kind"] for hit in hits} == {"message", "insight", "note"}
    assert main([*where, "search", "zebra", "--kind", "note,insight", "--limit", "1"]) == 0
    assert "Zebras are not horses" in capsys.readouterr().out
    assert main([*where, "search", "giraffe"]) == 1
    assert "Nothing found" in capsys.readouterr().out
    assert main([*where, "search", "giraffe", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"hits": []}
