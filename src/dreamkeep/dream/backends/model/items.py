"""Reads items, verdicts and operations from a model's answers, and checks each one. Pure.

Nothing in an answer is trusted. An item counts only if its quotes are at the places that it names, in lines that were shown. Who
said the words, and whether they were typed, is taken from our own record of that place. A note must not contain a name or number
that its session doesn't show, a command that nobody ran or typed, or a command that only a tool's output suggests. A note with a
tool's words is at most a suggestion. An item that fails is dropped and counted by reason; the others are not affected.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dreamkeep.dream.backends.api import Given, GivenMessage, TurnGiven
from dreamkeep.dream.backends.model.requests import KINDS, MOST_ITEMS, OPERATIONS, SCOPES, STRENGTHS, VERDICTS
from dreamkeep.dream.backends.tool_words import COMMAND, ToolWords
from dreamkeep.session.messages import Message
from dreamkeep.session.reading.digest import DigestLine, place_of
from dreamkeep.session.reading.origin import AGENT, ANSWER, OWN_WORDS, PASTED, TOOL, TYPED
from dreamkeep.session.reading.tools import find_words, texts_in

SHORTEST_NOTE, LONGEST_NOTE, LONGEST_QUOTE, MOST_QUOTES = 12, 500, 2000, 6
KEEP, SUGGEST, DROP = VERDICTS
#: Kinds of items for which the results of tools are enough evidence.
_SHOWN_BY_TOOLS = frozenset(("procedure", "failure_fix"))
#: How many lines before and after a quote count as beside it.
_BESIDE = 12
_TRIES = 20
#: If more words than these are capitalised, they are not taken for names: German capitalises all nouns.
_FEW_NAMES = 3
#: The key that each element of such a list must have.
_KEYS = {"items": "note", "verdicts": "verdict", "operations": "operation"}

_CODE = re.compile(r"`([^`\n]{1,200})`")
_NAME = re.compile(r"(?<![\w`])(?:--?\w[\w-]*|[\w.~/-]*[\w/][./_:@-][\w./_:@-]*\w|[a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*)(?![\w`])")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,.]*(?![\w])")
_WORD = re.compile(r"[\w'’-]+")
_PROPER = re.compile(r"(?<=[a-z,;:)] )([A-Z][a-z]{3,})\b")
_SHELL = re.compile(r"^[\w./-]+(?:\s+\S+)+$")


class UnreadableAnswer(ValueError):
    """A reply without an answer. The message says what it is, in our words and never in its own."""


class Quoted(NamedTuple):
    """Words that were found at `place`. `author` and `origin`: whose words they are, from our own record."""

    place: str
    words: str
    author: str
    origin: str


class Item(NamedTuple):
    """Something worth keeping. `typed`: a quote is the user's own words."""

    session: str
    kind: str
    note: str
    quotes: tuple[Quoted, ...]
    strength: str
    scope: str
    task: str = ""
    #: A tool printed its words first, so it is at most a suggestion.
    borrowed: bool = False

    @property
    def typed(self) -> bool:
        return any(one.origin in OWN_WORDS for one in self.quotes)

    def is_active(self, verdict: str) -> bool:
        """Whether it is kept without asking the user: his own words show it, and the reading or the challenge is sure."""
        return self.typed and not self.borrowed and (self.strength == "clear" or verdict == KEEP)


class Verdict(NamedTuple):
    verdict: str
    why: str
    note: str = ""


class Operation(NamedTuple):
    operation: str
    other: str = ""
    why: str = ""


class Material:
    """What answers about a session are checked against: the lines that were shown, and the messages they come from."""

    def __init__(
        self,
        session: str,
        lines: Sequence[DigestLine],
        messages: Iterable[Message],
        *,
        known: Collection[str] = (),
        tasks: Collection[str] = (),
        beside: Iterable[str] = (),
        tool_words: ToolWords | None = None,
    ) -> None:
        """`messages`: without secrets, like the lines. `known`: places that were read before. `beside`: title, project, folder.
        `tool_words`: those of the whole session."""
        self._tool_words = tool_words or ToolWords(given_of(()))
        self.session, self.lines, self.known, self.tasks = session, tuple(lines), frozenset(known), frozenset(tasks)
        self._texts_at = {place_of(one): tuple(texts_in(one)) for one in messages}
        self._lines_at: dict[str, list[int]] = {}
        for n, line in enumerate(self.lines):
            self._lines_at.setdefault(line.seq, []).append(n)
        self._shown_text = _normalise("\n".join((*beside, *(line.text for line in self.lines))))
        self._commands = _normalise("\n".join(self._list_said_or_run()))

    def quoted(self, place: str, words: str) -> Quoted | str:
        """The quote as the session has it, or why it is rejected."""
        wanted = words.strip()
        if place not in self._lines_at:
            return "a place that was not shown"
        if place in self.known:
            return "a place that was read before"
        if not wanted or len(wanted) > LONGEST_QUOTE:
            return "a quote that is too short or too long"
        found = find_words(wanted, self._texts_at.get(place, ()))
        if not found:
            return "a quote that is not there"
        line = self._find_line(place, found)
        return Quoted(place, found, *_find_author(line))

    def _find_line(self, place: str, words: str) -> DigestLine:
        """The line that shows these words. If no line does, the paste, since pastes are shortened."""
        lines = [self.lines[n] for n in self._lines_at[place]]
        short = "".join(words.split())
        holding = [line for line in lines if short in "".join(line.text.split())]
        folded = [line for line in lines if line.origin == PASTED]
        return (holding or folded or lines)[0]

    def around(self, places: Collection[str], width: int) -> tuple[DigestLine, ...]:
        near = {n for place in places for at in self._lines_at.get(place, ()) for n in range(at - width, at + width + 1)}
        return tuple(line for n, line in enumerate(self.lines) if n in near)

    def shows(self, name: str) -> bool:
        return _normalise(name) in self._shown_text

    def shows_beside(self, number: str, places: Collection[str]) -> bool:
        beside = "\n".join(line.text for line in self.around(places, _BESIDE))
        return re.search(rf"(?<!\d){re.escape(number)}(?!\d)", beside) is not None

    def taken_from_tools(self, note: str) -> str:
        """The reason, if this note has a tool's words; else ""."""
        return self._tool_words.refused([note])[0]

    def was_said_or_run(self, command: str) -> bool:
        return _normalise(command) in self._commands

    def _list_said_or_run(self) -> Iterator[str]:
        """What the user typed or pasted, and what the agent said and ran; nothing that a tool printed."""
        for line in self.lines:
            if line.origin in (TYPED, ANSWER, AGENT, PASTED):
                yield line.text
            elif line.origin == TOOL:
                yield line.text.partition(" → ")[0]
            yield from self._texts_at.get(line.seq, ())[1:]


def given_of(messages: Iterable[Message]) -> Given:
    """A whole session as one turn, to look up who said what."""
    given = tuple(GivenMessage(place_of(one), one.role, one.text, one.at, one.tool, one.mark) for one in messages)
    return Given("", "", "", "", "", (), (TurnGiven("", "completed", given),))


def _find_author(line: DigestLine) -> tuple[str, str]:
    if line.role == "user":
        return "user", line.origin
    return ("tool", TOOL) if line.origin == TOOL else ("agent", AGENT)


def _normalise(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").split())


# -- items


class CheckedItems(NamedTuple):
    found: list[Item]
    dropped: Counter[str]


def read_items(answer: object, materials: Mapping[str, Material], *, cut: bool = False) -> CheckedItems:
    """`materials`: by the label of their places, which is "" for a single session. `cut`: the answer was cut off."""
    found: list[Item] = []
    dropped: Counter[str] = Counter()
    for one in listed(answer, "items", cut=cut):
        item = _read_item(one, materials)
        if isinstance(item, str):
            dropped[item] += 1
        elif any(_is_same(item, other) for other in found):
            dropped["said twice in one answer"] += 1
        elif len(found) >= MOST_ITEMS:
            dropped["more than were asked for"] += 1
        else:
            found.append(item)
    return CheckedItems(found, dropped)


def _is_same(item: Item, other: Item) -> bool:
    """Two sessions that share a request may say the same; each is evidence, so they are not the same item."""
    same_words = item.quotes[0] == other.quotes[0] and item.kind == other.kind
    return item.session == other.session and (item.note == other.note or same_words)


def _read_item(one: Any, materials: Mapping[str, Material]) -> Item | str:
    """The item, or why it is dropped."""
    if not isinstance(one, Mapping) or not isinstance(one.get("quotes"), list) or not isinstance(one.get("note"), str):
        return "not an item"
    kind, strength, scope = one.get("kind"), one.get("strength"), one.get("scope")
    if kind not in KINDS or strength not in STRENGTHS or scope not in SCOPES:
        return "an unknown kind, strength or scope"
    if scope == "branch":
        return "it applies to this piece of work only"
    quotes, material = _read_quotes(one["quotes"], materials)
    if isinstance(quotes, str):
        return quotes
    assert material is not None
    task = one.get("task")
    made = Item(material.session, kind, "", quotes, strength, scope, task if task in material.tasks else "")
    return reworded(made, one["note"], material)


def reworded(item: Item, note: str, material: Material) -> Item | str:
    """The item with another note, or why its evidence doesn't support that note."""
    words = one_line(note)
    if not SHORTEST_NOTE <= len(words) <= LONGEST_NOTE:
        return "a note that is too short or too long"
    places = [one.place for one in item.quotes]
    if not item.typed and item.kind not in _SHOWN_BY_TOOLS and all(one.origin == TOOL for one in item.quotes):
        return "only a tool's output shows it"
    for command in _find_commands(words):
        if not material.was_said_or_run(command):
            return "a command that nobody ran or typed"
    if any(not material.shows(name) for name in _find_names(words)):
        return "a name that the session does not show"
    if any(not material.shows_beside(number, places) for number in _find_numbers(words)):
        return "a number that the evidence does not show"
    taken = material.taken_from_tools(words)
    if taken == COMMAND:
        return taken
    # Anybody may have written what a tool printed, so the user must accept such a note.
    return item._replace(note=words, borrowed=bool(taken))


def _read_quotes(quotes: list[Any], materials: Mapping[str, Material]) -> tuple[tuple[Quoted, ...] | str, Material | None]:
    """The valid quotes, all of one session. The first quote is decisive: if it is not valid, there is no item."""
    found: list[Quoted] = []
    material: Material | None = None
    for n, one in enumerate(quotes[:MOST_QUOTES]):
        made, own = _read_quote(one, materials, material)
        if isinstance(made, str):
            if n == 0:
                return made, None
            continue
        material = own
        if made not in found:
            found.append(made)
    return (tuple(found), material) if found else ("an item without a quote", None)


def _read_quote(one: object, materials: Mapping[str, Material], only: Material | None) -> tuple[Quoted | str, Material | None]:
    """A quote and its session, or why it is rejected. `only`: the session that it must belong to."""
    place, words = (one.get("place"), one.get("words")) if isinstance(one, Mapping) else (None, None)
    if isinstance(place, (int, float)) and not isinstance(place, bool):
        place = str(place)
    if not isinstance(place, str) or not isinstance(words, str):
        return "a quote without a place or text", None
    label, seq = _split_label(place, materials)
    own = materials.get(label)
    if own is None or (only is not None and own is not only):
        return "a place that was not shown", None
    return own.quoted(seq, words), own


def _split_label(place: str, materials: Mapping[str, Material]) -> tuple[str, str]:
    place = place.strip().strip("[]").strip()
    letters = re.match(r"[A-Z]*", place)
    label = letters[0] if letters else ""
    return (label, place[len(label) :]) if label in materials else ("", place)


def one_line(text: str) -> str:
    """One line, without characters that a terminal or a page would act upon."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _find_commands(note: str) -> list[str]:
    return [code for code in _CODE.findall(note) if _SHELL.match(code)]


def _find_names(note: str) -> list[str]:
    """What must appear in the session: code, paths, identifiers, names of people and things."""
    code = [one for one in _CODE.findall(note) if not _SHELL.match(one)]
    bare = _CODE.sub(" ", note)
    return [*code, *(one.strip(".:") for one in _NAME.findall(bare) if not _is_plain_word(one)), *_find_proper_names(bare)]


def _find_proper_names(text: str) -> list[str]:
    """Names of people and things, without a plural or possessive "s". None if many are capitalised: that says nothing."""
    found: list[str] = _PROPER.findall(text)
    return [one[:-1] if one.endswith("s") else one for one in found] if len(found) <= _FEW_NAMES else []


def _is_plain_word(name: str) -> bool:
    """Ordinary words that are only joined: read-only, and/or, e.g."""
    if name.lower().strip(".") in ("e.g", "i.e"):
        return True
    parts = re.split(r"[-/]", name)
    return len(parts) <= 3 and all(part.isalpha() and (part.islower() or part.istitle()) for part in parts)


def _find_numbers(note: str) -> list[str]:
    return [one.strip(".,") for one in _NUMBER.findall(_CODE.sub(" ", note)) if len(one.strip(".,")) > 1]


# -- verdicts and operations


def read_verdicts(answer: object, count: int, *, cut: bool = False) -> list[Verdict | None]:
    """One for each item, None if the answer has none. Of two verdicts for an item the stricter one counts."""
    found: list[Verdict | None] = [None] * count
    for one in listed(answer, "verdicts", cut=cut):
        if not isinstance(one, Mapping) or one.get("verdict") not in VERDICTS:
            continue
        at = _read_number(one.get("item"), count)
        if at is None:
            continue
        made = Verdict(one["verdict"], _shorten(one.get("why")), one_line(_shorten(one.get("note"), LONGEST_NOTE)))
        before = found[at]
        if before is None or VERDICTS.index(made.verdict) > VERDICTS.index(before.verdict):
            found[at] = made
    return found


def read_operations(answer: object, near: Sequence[Collection[str]]) -> list[Operation]:
    """One for each new note. `near`: the names that it may refer to. One that can't be read, or names another, is `new`."""
    found = [Operation("new")] * len(near)
    for one in listed(answer, "operations"):
        if not isinstance(one, Mapping) or one.get("operation") not in OPERATIONS:
            continue
        at = _read_number(one.get("item"), len(near))
        other = str(one.get("other") or "").strip()
        if at is not None and one["operation"] != "new" and other in near[at]:
            found[at] = Operation(one["operation"], other, _shorten(one.get("why")))
    return found


def _read_number(value: object, count: int) -> int | None:
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    return value - 1 if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= count else None


def _shorten(value: object, longest: int = 300) -> str:
    return one_line(value)[: longest + 1] if isinstance(value, str) else ""


# -- where the answer is


def listed(answer: object, name: str, *, cut: bool = False) -> list[Any]:
    """The list that was asked for, whatever is around it."""
    found: Any = answer
    if isinstance(found, str):
        found = _parse_json(found, name, cut)
    if isinstance(found, Mapping) and isinstance(found.get(name), str):
        found = _parse_json(found[name], name, cut)  # some models return the list as a string
    inner = found.get(name) if isinstance(found, Mapping) else found
    if not isinstance(inner, list):
        raise UnreadableAnswer(f"an answer without a list of {name}")
    if inner and not any(_has_key(one, name) for one in inner):
        # An agent's own events, an error, or prose don't say that there is nothing to find, so the request is repeated.
        raise UnreadableAnswer(f"an answer whose list holds no {name}")
    return inner


def _has_key(one: object, name: str) -> bool:
    """Whether it is meant as an element of the list that was asked for, right or wrong."""
    return isinstance(one, Mapping) and _KEYS[name] in one


def _parse_json(text: str, name: str, cut: bool) -> Any:
    stripped = text.strip()
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError):
        pass  # there is prose or a Markdown fence around it, or it is cut off
    decoder = json.JSONDecoder()
    at = -1
    for _ in range(_TRIES):
        at = min((place for sign in "{[" if (place := stripped.find(sign, at + 1)) >= 0), default=-1)
        if at < 0:
            break
        try:
            value, _end = decoder.raw_decode(stripped, at)
        except (ValueError, RecursionError):
            continue
        if (isinstance(value, dict) and name in value) or (isinstance(value, list) and value and _has_key(value[0], name)):
            return value
    if cut:
        return _read_complete_objects(stripped)
    raise UnreadableAnswer("an answer that is not JSON" if stripped else "an empty answer")


def _read_complete_objects(text: str) -> list[Any]:
    """The complete objects of a list that was cut off."""
    decoder = json.JSONDecoder()
    at = text.find("[")
    found: list[Any] = []
    while at >= 0:
        at = text.find("{", at)
        if at < 0:
            break
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        found.append(value)
    return found
