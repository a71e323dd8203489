"""Answers of a model that were given once, and are given again wherever the same words are asked about.

answers.json holds what a model answered to the requests of the sample week, one after the other, from what each of them shows.
Its items are known by the words that they quote, its verdicts and operations by their notes. So no id and no place stands in the
file, and an answer stays good when the prompts are worded anew.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from dreamkeep.host import Host, read_file, replace_file

#: A request, as its file has it → the JSON object that answers it.
Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_FILE = "answers.json"
#: A line of a session, as a request shows it: its place, and whose words follow.
_SHOWN = re.compile(r"\[(?P<place>[^\]\s]+)\] (?P<whose>[^:\n]+?)(?: \(read before\))?: (?P<text>.*)", re.S)


class RequestLine(NamedTuple):
    """`speaker`: user, agent or tool."""

    place: str
    speaker: str
    text: str


class Answers:
    """What a model said: `items` without places, `verdicts` and `operations` by their notes.

    A note without a verdict is kept, or suggested where the reader was not sure of it. One without an operation is new. An
    operation names the other note by its text, or by its name in the request.
    """

    def __init__(
        self,
        items: Iterable[Mapping[str, Any]] = (),
        verdicts: Mapping[str, Mapping[str, str]] | None = None,
        operations: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.items = list(items)
        self.verdicts = dict(verdicts or {})
        self.operations = dict(operations or {})

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """`request`: as its file has it."""
        shown = str(request["user"])
        if request["kind"] == "read":
            return {"items": list(self._found_in(shown))}
        if request["kind"] == "challenge":
            return {"verdicts": [self._verdict(n, note) for n, note in _numbered(shown, " note ")]}
        return {"operations": [self._operation(n, note, shown) for n, note in _numbered(shown, " new note ")]}

    def _found_in(self, shown: str) -> Iterator[dict[str, Any]]:
        """The items whose decisive words are there, each quote with its place."""
        lines = list(lines_in(shown))
        for one in self.items:
            quotes = [{**quote, "place": place} for quote in one["quotes"] if (place := _place_of(quote, lines))]
            if quotes and quotes[0]["words"] == one["quotes"][0]["words"]:
                yield {"task": "", **one, "quotes": quotes}

    def _verdict(self, n: int, note: str) -> dict[str, Any]:
        unsure = any(one["note"] == note and one["strength"] == "maybe" for one in self.items)
        known = {"verdict": "suggest" if unsure else "keep", "why": "", "note": ""}
        return {"item": n, **known, **self.verdicts.get(note, {})}

    def _operation(self, n: int, note: str, shown: str) -> dict[str, Any]:
        made = {"operation": "new", "other": "", "why": "", **self.operations.get(note, {})}
        names = {text: line.partition(" near it: ")[2].partition(",")[0] for line, text in _find_notes(shown, " near it: ")}
        return {"item": n, **made, "other": names.get(made["other"], made["other"])}


def load(host: Host) -> Answers:
    """Those of the sample week."""
    return Answers(**json.loads(read_file(host, f"{os.path.dirname(os.path.abspath(__file__))}/{_FILE}")))


def lay_answers(host: Host, folder: str, answer: Answer) -> Counter[str]:
    """An answer to each request in a folder of `dream --export`: so many of each kind."""
    kinds: Counter[str] = Counter()
    for name in sorted(name for name in host.names(f"{folder}/requests") if name.endswith(".json")):
        request = json.loads(read_file(host, f"{folder}/requests/{name}"))
        replace_file(host, f"{folder}/answers/{name}", json.dumps(answer(request), ensure_ascii=False).encode())
        kinds[request["kind"]] += 1
    return kinds


def lines_in(shown: str) -> Iterator[RequestLine]:
    """A session's lines, of a request that shows it."""
    for block in re.split(r"\n(?=\[|==)", shown):
        if found := _SHOWN.match(block):
            speaker = next((one for one in ("user", "agent") if found["whose"].startswith(one)), "tool")
            yield RequestLine(found["place"], speaker, found["text"])


def _place_of(quote: Mapping[str, str], lines: Iterable[RequestLine]) -> str:
    return next((one.place for one in lines if one.speaker == quote["speaker"] and quote["words"] in one.text), "")


def _numbered(shown: str, sign: str) -> list[tuple[int, str]]:
    return [(int(line.partition(sign)[2].partition(",")[0]), text) for line, text in _find_notes(shown, sign)]


def _find_notes(shown: str, sign: str) -> Iterator[tuple[str, str]]:
    """Lines of the request's own with this sign, each with the note below it."""
    return ((line, text) for line, text in pairwise(shown.splitlines()) if line.startswith("==") and sign in line)
