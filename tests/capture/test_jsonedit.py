"""Edits of JSON text: in any file, an edit changes only its member, and undoing it restores every byte."""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamkeep.capture.setup import jsonedit
from dreamkeep.capture.setup.jsonedit import STRICT, Syntax
from dreamkeep.capture.setup.text import UnreadableFile
from tests.helpers.json_texts import json_objects, json_text

JSONC = Syntax(comments=True, last_comma=True)
ENTRY = {"hooks": [{"type": "command", "command": "x y", "timeout": 10}]}


@given(json_objects, st.randoms(use_true_random=False), st.booleans(), st.sampled_from(["  ", "\t", "    ", ""]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_removing_an_added_member_restores_every_byte(
    value: dict[str, Any], chance: random.Random, comments: bool, unit: str, crlf: bool
) -> None:
    syntax = JSONC if comments else Syntax()
    eol = "\r\n" if crlf else "\n"
    text = json_text(value, chance, comments, "", unit, eol) + chance.choice(["", eol])
    assert jsonedit.value_of(text, jsonedit.parse(text, syntax)) == value
    added = jsonedit.append(text, ("hooks", "Stop"), ENTRY, syntax)
    assert jsonedit.value_of(added, jsonedit.parse(added, syntax)) == {**value, "hooks": {"Stop": [ENTRY]}}
    twice = jsonedit.append(added, ("hooks", "Stop"), {"hooks": []}, syntax)
    assert jsonedit.remove(twice, ("hooks", "Stop", 1), syntax) == added
    third = jsonedit.put(twice, ("mcp", "a"), {"command": "ü"}, syntax)
    assert list(jsonedit.value_of(third, jsonedit.parse(third, syntax)))[-1] == "mcp"
    assert jsonedit.put(third, ("mcp", "a"), {"command": "ü"}, syntax) == third
    assert jsonedit.remove(third, ("mcp",), syntax) == twice
    hasty = syntax._replace(inside=frozenset(("hooks", "mcp")))
    assert jsonedit.append(text, ("hooks", "Stop"), ENTRY, hasty) == added, "passing over the rest makes no difference"
    assert jsonedit.put(twice, ("mcp", "a"), {"command": "ü"}, hasty) == third
    assert jsonedit.value_of(third, jsonedit.parse(third, hasty)) == jsonedit.value_of(third, jsonedit.parse(third, syntax))
    if value or not re.search(r"[^{}]", text.strip()):
        assert jsonedit.remove(added, ("hooks",), syntax) == text


@given(json_objects, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_removing_a_member_leaves_the_others_unchanged(value: dict[str, Any], chance: random.Random) -> None:
    text = json_text(value, chance, True)
    for key in value:
        left = jsonedit.remove(text, (key,), JSONC)
        assert jsonedit.value_of(left, jsonedit.parse(left, JSONC)) == {k: v for k, v in value.items() if k != key}
        kept = "".join(re.findall(r"/\*.*?\*/|//[^\n]*", left))
        assert kept.count("/*") <= text.count("/*")


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:/* \n0a', max_size=40).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_invalid_json_is_refused(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        wanted = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        for syntax in (STRICT, STRICT._replace(inside=frozenset())):
            with pytest.raises(UnreadableFile):
                jsonedit.parse(text, syntax)
    else:
        assert jsonedit.value_of(text, jsonedit.parse(text)) == wanted


def _no_constant(name: str) -> None:
    raise ValueError(name)  # NaN and Infinity, which Python takes and nobody else does


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("{}", '{\n  "a": [\n    {\n      "b": 1\n    }\n  ]\n}'),
        ('{"x":1}', '{"x":1,"a":[{"b":1}]}'),
        ('{"x": 1}\n', '{"x": 1, "a": [{"b": 1}]}\n'),
        ('{\n\t"x": 1 // one\n}\n', '{\n\t"x": 1, // one\n\t"a": [\n\t\t{\n\t\t\t"b": 1\n\t\t}\n\t]\n}\n'),
        ('{\n  "x": 1, // one\n  // end\n}', '{\n  "x": 1, // one\n  "a": [\n    {\n      "b": 1\n    }\n  ],\n  // end\n}'),
        ('{\r\n  "a": []\r\n}', '{\r\n  "a": [\r\n    {\r\n      "b": 1\r\n    }\r\n  ]\r\n}'),
    ],
)
def test_an_added_member_has_the_format_of_its_neighbours(text: str, added: str) -> None:
    assert jsonedit.append(text, ("a",), {"b": 1}, JSONC) == added


@pytest.mark.parametrize(
    "text", ['{"a": 1,}', "{'a': 1}", '{"a": 1} x', '{"a" 1}', "[1 2]", '{"a": NaN}', "", "{", '{"a": "\n"}', "{// c\n}"]
)
def test_strict_json_allows_no_comments_and_no_trailing_comma(text: str) -> None:
    with pytest.raises(UnreadableFile, match=r"line 1|line 2"):
        jsonedit.parse(text)


def test_only_an_edit_of_a_key_that_exists_twice_is_refused() -> None:
    text = '{"hooks": {}, "x": {"y": 1, "y": 2}, "hooks": {}}'
    with pytest.raises(UnreadableFile, match="`hooks` occurs 2 times"):
        jsonedit.append(text, ("hooks", "Stop"), 1)
    assert jsonedit.put(text, ("x", "z"), 3) == '{"hooks": {}, "x": {"y": 1, "y": 2, "z": 3}, "hooks": {}}'


def test_endless_nesting_is_refused_and_crashes_nothing() -> None:
    for syntax in (STRICT, STRICT._replace(inside=frozenset())):
        with pytest.raises(UnreadableFile, match="too deep"):
            jsonedit.parse('{"a":' * 100_000, syntax)


def test_a_state_file_of_many_megabytes_is_edited_quickly() -> None:
    """Claude keeps its MCP servers in a file that also holds the history of every project."""
    lines = [{"display": "x" * 200, "n": n} for n in range(100)]
    text = json.dumps({"projects": {f"/p{n}": {"history": lines} for n in range(500)}, "z": 1}, indent=2)
    assert len(text) > 10 << 20
    began = time.process_time()
    after = jsonedit.put(text, ("mcpServers", "a"), {}, Syntax(inside=frozenset(("mcpServers",))))
    assert time.process_time() - began < 3
    assert jsonedit.remove(after, ("mcpServers",), Syntax(inside=frozenset(("mcpServers",)))) == text


def test_a_line_comment_does_not_swallow_the_text_behind_a_removed_member() -> None:
    """Otherwise the result is valid JSON that lacks a member."""
    text = '{"a":1,// a comment\n"ours":{},"theirs":null,// another\n}'
    left = jsonedit.remove(text, ("ours",), JSONC)
    assert jsonedit.value_of(left, jsonedit.parse(left, JSONC)) == {"a": 1, "theirs": None}
