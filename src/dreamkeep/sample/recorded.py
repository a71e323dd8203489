"""Recorded answers of a model, replayed wherever a request shows the same words.

answers.json holds what a model answered to the requests of the sample week, one after the other, from what each of them shows.
Its items are found by the words that they quote, its verdicts and operations by their notes. So the file holds no ids and no
places, and an answer stays valid when the prompts change.
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

#: A request as in its file → the JSON object that answers it.
Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_FILE = "answers.json"
#: A line of a session in a request: its place, its speaker, its words.
_SHOWN = re.compile(r"\[(?P<place>[^\]\s]+)\] (?P<whose>[^:\n]+?)(?: \(read before\))?: (?P<text>.*)", re.S)


class RequestLine(NamedTuple):
    """`speaker`: user, agent or tool."""

    place: str
    speaker: str
    text: str


class Answers:
    """A model's answers: `items` without places, `verdicts` and `operations` by their notes.

    A note without a verdict is kept, or suggested where the reader was not sure of it. A note without an operation is new. An
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
        """`request`: as in its file."""
        shown = str(request["user"])
        if request["kind"] == "read":
            return {"items": list(self._items_in(shown))}
        if request["kind"] == "challenge":
            return {"verdicts": [self._verdict(n, note) for n, note in _numbered(shown, " note ")]}
        return {"operations": [self._operation(n, note, shown) for n, note in _numbered(shown, " new note ")]}

    def _items_in(self, shown: str) -> Iterator[dict[str, Any]]:
        """The items whose first quote is shown, each quote with its place."""
        lines = list(lines_in(shown))
        for one in self.items:
            quotes = [{**quote, "place": place} for quote in one["quotes"] if (place := _place_of(quote, lines))]
            if quotes and quotes[0]["words"] == one["quotes"][0]["words"]:
                yield {"task": "", **one, "quotes": quotes}

    def _verdict(self, n: int, note: str) -> dict[str, Any]:
        unsure = any(one["note"] == note and one["strength"] == "maybe" for one in self.items)
        default = {"verdict": "suggest" if unsure else "keep", "why": "", "note": ""}
        return {"item": n, **default, **self.verdicts.get(note, {})}

    def _operation(self, n: int, note: str, shown: str) -> dict[str, Any]:
        made = {"operation": "new", "other": "", "why": "", **self.operations.get(note, {})}
        names = {text: line.partition(" near it: ")[2].partition(",")[0] for line, text in _find_notes(shown, " near it: ")}
        return {"item": n, **made, "other": names.get(made["other"], made["other"])}


def load(host: Host) -> Answers:
    """The answers for the sample week."""
    return Answers(**json.loads(read_file(host, f"{os.path.dirname(os.path.abspath(__file__))}/{_FILE}")))


def lay_answers(host: Host, folder: str, answer: Answer) -> Counter[str]:
    """Writes an answer to each request in a folder of `dream --export`; returns how many of each kind."""
    kinds: Counter[str] = Counter()
    for name in sorted(name for name in host.names(f"{folder}/requests") if name.endswith(".json")):
        request = json.loads(read_file(host, f"{folder}/requests/{name}"))
        replace_file(host, f"{folder}/answers/{name}", json.dumps(answer(request), ensure_ascii=False).encode())
        kinds[request["kind"]] += 1
    return kinds


def lines_in(shown: str) -> Iterator[RequestLine]:
    """The session's lines in a request."""
    for block in re.split(r"\n(?=\[|==)", shown):
        if found := _SHOWN.match(block):
            speaker = next((one for one in ("user", "agent") if found["whose"].startswith(one)), "tool")
            yield RequestLine(found["place"], speaker, found["text"])


def _place_of(quote: Mapping[str, str], lines: Iterable[RequestLine]) -> str:
    return next((one.place for one in lines if one.speaker == quote["speaker"] and quote["words"] in one.text), "")


def _numbered(shown: str, sign: str) -> list[tuple[int, str]]:
    return [(int(line.partition(sign)[2].partition(",")[0]), text) for line, text in _find_notes(shown, sign)]


def _find_notes(shown: str, sign: str) -> Iterator[tuple[str, str]]:
    """The request's own lines with this sign, each with the note below it."""
    return ((line, text) for line, text in pairwise(shown.splitlines()) if line.startswith("==") and sign in line)
