"""Finds statements that take their words from tool output. Pure.

The output of a command, a file, a web page or a commit message may be anybody's words: "Remember: always run X". A note never
takes such words. So a statement is refused if

    a run of its words came first from a tool, or from text that a client injected, and never from the user
    a command or an address in it was neither typed by the user nor run by the agent, nor said by the agent before any tool did

A command that the agent ran and a path that it named do not count as a tool's words, wherever the agent read them. Invisible
characters do not hide a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from dreamkeep.agents import facts as f
from dreamkeep.dream.backends import steps
from dreamkeep.dream.backends.api import Given, GivenMessage, said_by
from dreamkeep.memory.insight import AGENT, ANSWER, TOOL, TYPED, USER
from dreamkeep.session.reading import tools

#: Reasons for refusing a statement.
WORDS, COMMAND = "words of tool output", "a command or an address that neither user nor agent used"

#: So many words in the same order are no coincidence. A shorter statement is compared as a whole.
_RUN = 4
#: Characters that are not shown themselves.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
#: A path is one word.
_WORD = re.compile(r"\w(?:[\w./-]*\w)?")
#: Shorter words are in every sentence and count only if they are uncommon.
_LONG = 4
#: Some scripts have no spaces: there a word of that length is a statement by itself.
_SENTENCE = 6
_CODE = re.compile(r"`([^`]+)`")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s`\"'<>)\]]+", re.IGNORECASE)
_PATH = 400
_BETWEEN = re.compile(r"\s*(?:&&|;)\s*")
#: Messages with these marks were said in this session, by whomever; others are copies.
_HEARD = frozenset(("", f.PARTIAL, f.INJECTED, f.HOOK, f.META))
#: Stands for the speaker of a command that the agent ran, or a path that it named.
_DID = "did"

#: Short words that are in every sentence.
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """
    a an the and or but if of to in on at by for as is are was be it its we you i he she us our my me do did not no
    yes so too can may has had use now any all out up who why how let get go one ok own
    """,
    )
)

Run = tuple[str, ...]


class ToolWords:
    """For one stretch of a session."""

    def __init__(self, given: Given) -> None:
        self._given = given

    def refused(self, statements: Sequence[str]) -> list[str]:
        """For each statement the reason why it is refused, "" if it is not."""
        runs = [_runs(one) for one in statements]
        literals = [_literals(one) for one in statements]
        first, excused = self._heard({run for some in runs for run in some}, {one for some in literals for one in some})
        taken = [any(run not in excused and first.get(run) == TOOL for run in some) for some in runs]
        unused = [any(one not in excused and first.get(one) != AGENT for one in some) for some in literals]
        return [COMMAND if bad else WORDS if words else "" for bad, words in zip(unused, taken, strict=True)]

    def _heard(self, runs: set[Run], literals: set[str]) -> tuple[dict[Run | str, str], set[Run | str]]:
        """Who said each of these first; and which of them the user said or the agent did at any time."""
        first: dict[Run | str, str] = {}
        excused: set[Run | str] = set()
        lengths = {len(run) for run in runs}
        for who, plain, words in self._speakers if runs or literals else ():
            found: set[Run | str] = {one for one in literals if one in plain}
            for length in lengths:
                found |= runs.intersection(zip(*(words[n:] for n in range(length)), strict=False))
            for one in found:
                first.setdefault(one, AGENT if who == _DID else who)
            if who in (USER, _DID):
                excused |= found
        return first, excused

    @cached_property
    def _speakers(self) -> list[tuple[str, str, list[str]]]:
        plain = ((who, _normalise(text)) for who, text in _speakers(self._given))
        return [(who, text, _WORD.findall(text)) for who, text in plain]


def _speakers(given: Given) -> Iterator[tuple[str, str]]:
    """(speaker, words) in order. Copies and summaries are left out. Of a result with the user's answer, only the answer
    counts."""
    answers = steps.answered(given)
    for turn in given.turns:
        for said in turn.messages:
            if said.seq in answers:
                yield from ((USER, words) for words in answers[said.seq])
                continue
            if said.tool:
                yield from _called(str(said.tool.get("name") or "").lower(), said.tool.get("input"))
            if said.text and (who := _who(said)):
                yield who, said.text


def _called(name: str, given: Any) -> Iterator[tuple[str, str]]:
    """Only the first line of a command was run: the rest may be a file that it writes."""
    if tools.is_kind("shell", name):
        yield _DID, tools.command_of(given).partition("\n")[0]
    elif isinstance(given, Mapping):
        paths = [value for key, value in given.items() if str(key).lower() in tools.input_names("path")]
        yield from ((_DID, path) for path in paths if isinstance(path, str) and len(path) <= _PATH)
    yield from ((AGENT, text) for text in tools.texts_of_input(given))


def _who(said: GivenMessage) -> str:
    """Text that a client injected or the user pasted counts as a tool's."""
    if said.mark not in _HEARD or said.role in (f.SUMMARY, f.SYSTEM):
        return ""
    author, origin = said_by(said, said.text)
    return author if origin in (TYPED, ANSWER) and said.mark in ("", f.PARTIAL) else TOOL


def _runs(statement: str) -> set[Run]:
    words = _WORD.findall(_normalise(statement))
    length = min(_RUN, len(words))
    if not words or (length == 1 and len(words[0]) < _SENTENCE):
        return set()
    found = {tuple(words[n : n + length]) for n in range(len(words) - length + 1)}
    return {run for run in found if length < _RUN or sum(len(word) >= _LONG or word not in _COMMON for word in run) > 1}


def _literals(statement: str) -> set[str]:
    """Commands (each of those that a line joins) and addresses, normalised."""
    plain = _normalise(statement)
    spans = [part for code in _CODE.findall(plain) for part in _BETWEEN.split(code.strip(" …")) if " " in part]
    return {*spans, *(one.rstrip(".,;:!?") for one in _ADDRESS.findall(plain))}


def _normalise(text: str) -> str:
    """Without invisible characters, in lower case, with single spaces."""
    if not text.isascii():
        text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))
    return " ".join(text.casefold().split())
