"""A statement, taken apart: clauses, terms, numbers, and what it speaks of. Pure. What follows from that: alike.py.

text ─► clauses ─► terms: (stem, how often negated); `a before b` gives `a` and `before>b`; names, paths and flags as they are
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from dreamkeep.memory import words as w

_ENDS = ",;:.!?…)]}\"'`”’*"
_BEGINS = "([{\"'`“‘*"
_NUMBER = re.compile(r"^([$€£~]?)([-+]?\d[\d,_]*(?:\.\d+)*)([^\W\d_]*|%)$")
#: A time of day: `18:00`, `8am`, `3:30pm`; and what stands behind one that is written as two words.
_CLOCK = re.compile(r"^(?:([01]?\d|2[0-3])[:.]([0-5]\d)([ap]m)?|(1[0-2]|0?[1-9])([ap]m))$")
_HOUR = re.compile(r"^(?:1?\d|2[0-3])$")
_HALVES = {"am": "am", "a.m": "am", "pm": "pm", "p.m": "pm", "oclock": ":00"}
#: The unit of a time of day: minutes since midnight, however it was written.
CLOCK = "oclock"
_PARTS = re.compile(r"^(.*?)([<>=!]=?|=>|->|→|≥|≤)(.+)$")
_PLAIN = re.compile(r"^[^\W\d_]+(?:['’][^\W\d_]+)*$")
_HYPHENED = re.compile(r"^[^\W\d_]{2,}(?:-[^\W\d_]{2,})+$")
#: `cache-3`, `sess_12`, `#7`, `shard4`: which one of its kind.
_NUMBERED = re.compile(r"^(#|[^\W\d_][^\W_]*[-_#]|[^\W\d_]{3,})(\d+)$")
_CAMEL = re.compile(r"[a-z][A-Z]")
_PIECES = re.compile(r"[^\W\d_]{3,}")
_SIGNS = frozenset(("<", ">", "=", "!=", "<=", ">=", "==", "=>", "->", "→", "≥", "≤", "!"))
_DASHES = frozenset(("-", "–", "—", "--", "=>", "->", "→"))
_LONGEST = 2000

Term = tuple[str, int]


class Value(NamedTuple):
    """A number in a statement. `by`: the words next to it. `told`: it is what is said (is 5), not what is spoken of (5 is).

    `about`: the words before it in its clause.
    """

    number: str
    unit: str
    by: frozenset[str]
    clause: int
    told: bool
    about: frozenset[str] = frozenset()


class Name(NamedTuple):
    """A number that tells one thing from others of its kind: `service 3`, `the 3rd test`, `cache-3`. No value, which may change.

    `told`: it is what is said (use plan 3), not what is spoken of (plan 3 is), and not where (in plan 3).
    """

    of: str
    number: str
    told: bool


class StatementForm(NamedTuple):
    """A statement, taken apart."""

    clauses: tuple[frozenset[Term], ...]
    #: The same terms without what they relate to, and pieces of names: to see whether two are about the same.
    loose: tuple[frozenset[Term], ...]
    values: tuple[Value, ...]
    strong: bool
    soft: bool
    takes_back: bool
    heard: frozenset[str]
    #: Clauses that say what something is not (`it was not the cache`): that forbids nothing.
    telling_apart: frozenset[int]
    names: frozenset[Name]
    #: What stands before the first verb that we know, and for what alone it is said (`in the frontend, …`).
    subject: frozenset[str]
    scope: frozenset[Term]

    @property
    def key(self) -> frozenset[Term]:
        """Statements with one key say the same."""
        return frozenset().union(*self.clauses)

    @property
    def changes(self) -> bool:
        """It speaks of something that was otherwise before."""
        return self.strong or self.soft or self.takes_back

    @property
    def stems(self) -> frozenset[str]:
        return frozenset(stem for clause in self.loose for stem, _ in clause)


@lru_cache(maxsize=1 << 15)
def form(text: str) -> StatementForm:
    parse = _Parse()
    for clause in _clauses(text):
        parse.clause(clause)
    return parse.made()


def words_of(text: str) -> Iterator[tuple[str, str]]:
    """(word, the punctuation behind it)."""
    for raw in text[:_LONGEST].split():
        bare = raw.lstrip(_BEGINS)
        word = bare.rstrip(_ENDS)
        if "(" in word:
            word = bare.rstrip(_ENDS.replace(")", ""))  # `t()` is a name
        behind = bare[len(word) :]
        if word or behind:
            yield word, behind


def _clauses(text: str) -> Iterator[list[str]]:
    """Words of each clause, with pairs that are one word joined. A clause that narrows the one before it is a part of it."""
    clause: list[str] = []
    found: list[list[str]] = []
    for word, behind in words_of(text):
        if word in _DASHES:
            found.append(clause)
            clause = []
            continue
        if word:
            clause.append(word)
        if any(sign in behind for sign in ",;:.!?"):
            found.append(clause)
            clause = []
    found.append(clause)
    joined: list[list[str]] = []
    for words in (_joined(words) for words in found if words):
        first = _fold(words[0])
        if joined and (first in w.NARROWS or len(_counting(words)) <= 1) and first not in w.NEGATES and first != "insteadof":
            joined[-1] += words
        else:
            joined.append(words)
    yield from joined


def _counting(words: list[str]) -> list[str]:
    return [word for word in words if _fold(word) not in w.LIGHT]


def _joined(words: list[str]) -> list[str]:
    made: list[str] = []
    at = 0
    folded = [_fold(word) for word in words]
    while at < len(words):
        if folded[at].replace("-", "") in w.COMPOUNDS or "".join(folded[at : at + 2]) in w.COMPOUNDS:
            whole = folded[at].replace("-", "") in w.COMPOUNDS
            made.append(folded[at].replace("-", "") if whole else "".join(folded[at : at + 2]))
            at += 1 if whole else 2
            continue
        if at + 1 < len(words) and (time := _time_of_day(words[at], folded[at + 1])):
            made.append(time)
            at += 2
            continue
        for length in (3, 2):
            pair = w.PAIRS.get(tuple(folded[at : at + length]))
            if pair and at + length <= len(words):
                made.append(pair)
                at += length
                break
        else:
            made += _contraction(words[at])
            at += 1
    return made


def _time_of_day(word: str, behind: str) -> str:
    """`8 am`, `3:30 p.m.`, `9 o'clock` as one word; "" for anything else."""
    half = _HALVES.get(behind, "")
    whole = word + half if half and _HOUR.match(word) else word + half.removeprefix(":00") if half else ""
    return whole if whole and _CLOCK.match(whole) else ""


def _contraction(word: str) -> list[str]:
    folded = word.casefold().replace("’", "'")
    if folded.endswith("n't") or folded == "cannot":
        return ["can" if folded in ("can't", "cannot") else folded[:-3], "not"]
    if folded.replace("'", "") in w.NEGATES and folded.replace("'", "").endswith("nt") and len(folded) > 3:
        return [folded.replace("'", "")[:-2], "not"]
    head, _, tail = folded.partition("'")
    if tail in ("re", "ll", "ve", "d", "m", "s"):
        return [word[: len(head)]]
    return [word]


def _fold(word: str) -> str:
    return word.casefold().replace("’", "'").replace("'", "")


class _Parse:
    """One statement on its way: clauses so far, and what was heard."""

    def __init__(self) -> None:
        self._strict: list[set[Term]] = []
        self._loose: list[set[Term]] = []
        self._values: list[Value] = []
        self._heard: list[str] = []
        self._depth = 0
        self._relation = ""
        self._head = ""
        self._before = ""
        self._preferred = False
        self._apart: set[int] = set()
        self._told = False
        self._after_number = False
        self._names: list[Name] = []
        #: The noun right before the word that comes, and the relation in which it stands: `in the service` 3.
        self._next_to = ""
        self._under = ""
        self._subject: frozenset[str] | None = None
        self._scoped = False

    def made(self) -> StatementForm:
        kept = [n for n, clause in enumerate(self._strict) if clause]
        # A command has its own words (`switch`, `drop`): only who says something in a sentence speaks of a change.
        heard = frozenset(self._heard)
        spoken = bool(heard & w.LIGHT) or not any(word.startswith("-") for word in heard)
        places = {n: at for at, n in enumerate(kept)}
        return StatementForm(
            tuple(frozenset(self._strict[n]) for n in kept),
            tuple(frozenset(self._loose[n]) for n in kept),
            tuple(value._replace(clause=places[value.clause]) for value in self._values),
            spoken and bool(heard & w.STRONG),
            spoken and bool(heard & w.SOFT),
            any(_within(phrase, self._heard) for phrase in w.TAKES_BACK),
            heard,
            frozenset(places[n] for n in self._apart if n in places),
            frozenset(self._names),
            self._subject or frozenset(),
            frozenset(self._strict[0]) if self._scoped and len(kept) > 1 else frozenset(),
        )

    def clause(self, words: list[str]) -> None:
        self._begin()
        folded = [_fold(word) for word in words]
        if folded[0] in w.REASONS_AT_START and self._strict[:-1] and any(self._strict[:-1]):
            return  # why, and not what
        self._scoped = self._scoped or (len(self._strict) == 1 and folded[0] in w.SCOPES)
        for n, word in enumerate(words):
            name = folded[n]
            if name in w.REASONS and n:
                return
            self._meet(name)
            self._heard.append(name)
            self._word(word, name, folded[n + 1] if n + 1 < len(folded) else "")
            self._told = self._told or name in w.TELLS
            self._before = name

    def _meet(self, name: str) -> None:
        """Before a word is taken in: where in its clause we are."""
        if name in w.VERBS and self._subject is None and len(self._strict) == 1:
            self._subject = frozenset(stem for stem, _ in self._loose[-1])
        if name in w.RELATES:
            self._under = name
        elif name in w.VERBS:
            self._under = ""

    def _begin(self, depth: int = 0) -> None:
        self._strict.append(set())
        self._loose.append(set())
        self._depth = depth
        self._relation = self._head = self._before = self._next_to = self._under = ""
        self._told = self._after_number = False

    def _word(self, word: str, name: str, following: str) -> None:
        next_to, self._next_to = self._next_to, ""
        if name in w.NEGATES or name in ("nolonger", "insteadof", "notyet"):
            self._negate(name, following)
        elif name in w.FORBIDS:
            self._all_deeper()
        elif name == "anymore":
            return
        elif name == "over" and self._preferred and self._strict[-1]:
            self._begin(1)
        elif name in w.RELATES:
            self._relation = name
        elif name in w.PLACES:
            self._relation = ""
        elif name in w.LIGHT or name in w.STRONG & {"instead", "afterall"} or name == "fromnowon":
            self._preferred = self._preferred or name.startswith("prefer") or name == "rather"
        else:
            for term, loose in _terms(word, name):
                if term in _SIGNS:
                    self._relation, self._told = term, True
                else:
                    self._add(term, loose, next_to)
                    next_to = self._next_to

    def _negate(self, name: str, following: str) -> None:
        if following in w.WHOLE:
            self._add("all", (), "")
        contrast = name == "insteadof" or (name == "not" and self._before not in w.AUXILIARY)
        if contrast and self._strict[-1]:
            self._begin(1)
        elif name == "without":
            self._depth += 1
        else:
            if name == "not" and self._before in w.COPULAS:
                self._apart.add(len(self._strict) - 1)
            self._all_deeper()
            self._depth += 1

    def _all_deeper(self) -> None:
        """The whole clause is negated, also what stands before: `on main we never force-push`."""
        for clause in (self._strict[-1], self._loose[-1]):
            deeper = {(stem, depth + 1) for stem, depth in clause}
            clause.clear()
            clause.update(deeper)

    def _add(self, term: str, loose: Iterable[str], next_to: str) -> None:
        number = _NUMBER.match(term)
        if number:
            self._number(number, next_to)
        elif self._after_number and term in _UNIT_STEMS and not self._values[-1].unit:
            self._unit(term)
            return
        elif self._after_number:
            self._behind_number(term)
        elif (numbered := _NUMBERED.match(term)) and numbered[1].rstrip("-_") not in w.VERSIONED:
            self._name(numbered[1], numbered[2])
        self._strict[-1].add((f"{self._relation}>{term}" if self._relation else term, self._depth))
        self._loose[-1].update((one, self._depth) for one in (term, *loose))
        self._relation = ""
        self._after_number = bool(number)
        if not number and term not in w.DIRECTIONS:
            self._head = self._next_to = term

    def _number(self, number: re.Match[str], next_to: str) -> None:
        told = (self._told or len(self._strict) > 1) and not (number[3] == CLOCK and self._happened())
        by = frozenset((self._head,)) - {""}
        about = frozenset(stem for stem, _ in self._loose[-1])
        self._values.append(Value(number[2], number[3], by, len(self._strict) - 1, told, about))
        if next_to and number[0].isdecimal() and next_to not in _VALUED:
            self._name(next_to, number[2])

    def _happened(self) -> bool:
        """When something came about (`it crashed at 8:00`) says nothing of when else it does."""
        ruled = any(name in w.RULES for name in self._heard)
        return not ruled and any(name in w.HAPPENED or (name.endswith("ed") and len(name) > 4) for name in self._heard)

    def _behind_number(self, term: str) -> None:
        value = self._values[-1]
        self._values[-1] = value._replace(by=value.by | {term})
        if value.unit in w.ORDINAL:
            self._name(term, value.number)

    def _name(self, of: str, number: str) -> None:
        self._names.append(Name(of, number, self._told and self._under not in w.SCOPES))

    def _unit(self, term: str) -> None:
        """`30 s`: one term with its number."""
        value = self._values[-1]
        unit = _UNIT_STEMS[term]
        if self._names and self._names[-1].number == value.number:
            self._names.pop()  # `timeout 30 s` is a measure
        for clause in (self._strict[-1], self._loose[-1]):
            for stem, depth in [one for one in clause if one[0] == value.number or one[0].endswith(f">{value.number}")]:
                clause.discard((stem, depth))
                clause.add((stem + unit, depth))
        self._loose[-1].add((unit, self._depth))
        self._values[-1] = value._replace(unit=unit)


def _within(phrase: tuple[str, ...], heard: list[str]) -> bool:
    return all(one in heard for one in phrase)


def _terms(word: str, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(term, what else it is known by)."""
    parts = _PARTS.match(word)
    if parts and (parts[1] or parts[2] not in ("<", ">")) and not word.startswith("<"):
        if parts[1]:
            yield from _terms(parts[1], _fold(parts[1]))
        yield parts[2], ()
        yield from _terms(parts[3], _fold(parts[3]))
        return
    if _HYPHENED.match(word) and not _CAMEL.search(word):
        for piece in word.split("-"):
            yield stem(_fold(piece)), ()
    elif _CLOCK.match(name) and (":" in name or name.endswith("m")):
        yield _minutes(name), ()
    elif name in w.NUMBERS:
        yield w.NUMBERS[name], ()
    elif _NUMBER.match(word):
        yield _number(word), ()
    elif _PLAIN.match(word) and not _CAMEL.search(word):
        yield stem(name), ()
    else:
        plain = word.casefold() if re.fullmatch(r"[A-Z]?[a-z]*\d+|[A-Z]+\d+", word) else word
        yield plain, tuple(stem(piece.casefold()) for piece in _PIECES.findall(word))


def _minutes(time: str) -> str:
    found = _CLOCK.match(time)
    assert found
    hour, half = int(found[1] or found[4]), found[3] or found[5]
    if half and hour <= 12:
        hour = hour % 12 + (12 if half == "pm" else 0)
    return f"{hour * 60 + int(found[2] or 0)}{CLOCK}"


def _number(word: str) -> str:
    found = _NUMBER.match(word)
    assert found
    unit = found[3].casefold()
    digits = found[2].replace(",", "").replace("_", "")
    return f"{found[1].replace('~', '')}{digits}{w.UNITS.get(unit, unit)}"


@lru_cache(maxsize=1 << 14)
def stem(word: str) -> str:
    """Word forms that mean the same have one stem. Lite: endings of plural, -ing and -ed; a table for the rest."""
    if word in w.HEDGES:
        return w.HEDGES[word]
    plain = w.SAME.get(word, word)
    cut = _cut(plain) if len(plain) >= 4 and plain.isascii() else plain
    return _spelt(_cut(w.SAME[cut]) if cut in w.SAME and len(w.SAME[cut]) >= 4 else cut)


def _spelt(cut: str) -> str:
    """British and American spelling are one: behaviour, organise, cancelled, centre, defence, catalogue. The result need not be a
    word, only one for both: no two words of different meaning may come together."""
    for british, american, least in _SPELLINGS:
        if len(cut) >= least and cut.endswith(british):
            return cut[: -len(british)] + american
    return cut


def _cut(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and re.search("[aeiouy]", word[: -len(ending)]):
            return _whole(word[: -len(ending)])
    return word.removesuffix("e") if len(word) > 4 else word


def _whole(cut: str) -> str:
    """`runn` is run, `us` of `used` has lost its e: both ways lead to one stem."""
    if len(cut) > 3 and cut[-1] == cut[-2] and cut[-1] not in "ls":
        return cut[:-1]
    return cut.removesuffix("e") if len(cut) > 4 else cut


#: Endings of stems (their last e is gone), and how long a stem must be: `scour` is no score.
_SPELLINGS = (
    *(("iser", "izer", 6), ("isation", "ization", 6), ("is", "iz", 6), ("yser", "yzer", 6), ("ys", "yz", 6), ("our", "or", 6)),
    *(("ourit", "orit", 6), ("tr", "ter", 5), ("enc", "ens", 6), ("ogu", "og", 6), ("ll", "l", 6), ("mm", "m", 6)),
)
_VALUED = frozenset(map(stem, w.VALUED | w.VERSIONED))
_UNIT_STEMS = {**{stem(name): unit for name, unit in w.UNITS.items()}, **w.UNITS}
