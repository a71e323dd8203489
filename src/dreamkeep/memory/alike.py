"""Do two statements say the same, or can't both hold? Rules over words: no model, no disk. Pure.

    text ─► clauses ─► terms: (stem, how often negated), numbers, names, paths and flags as they are written
    same        every term agrees: only order, politeness, spelling, word forms and the reason given may differ
    fuller      one says all that the other says, and more, in clauses of its own
    contradicts they are about the same, and one denies, replaces or re-values what the other says

When in doubt they are two statements that both hold: a note too many costs a line, a wrong merge costs a fact. So there is no
measure of likeness in `same`: one word that differs, and it is another fact. Tables of words: words.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from dreamkeep.memory import words as w

_ENDS = ",;:.!?…)]}\"'`”’*"
_BEGINS = "([{\"'`“‘*"
_NUMBER = re.compile(r"^([$€£~]?)([-+]?\d[\d,_]*(?:\.\d+)*)([^\W\d_]*|%)$")
_PARTS = re.compile(r"^(.*?)([<>=!]=?|=>|->|→|≥|≤)(.+)$")
_PLAIN = re.compile(r"^[^\W\d_]+(?:['’][^\W\d_]+)*$")
_HYPHENED = re.compile(r"^[^\W\d_]{2,}(?:-[^\W\d_]{2,})+$")
_CAMEL = re.compile(r"[a-z][A-Z]")
_PIECES = re.compile(r"[^\W\d_]{3,}")
_SIGNS = frozenset(("<", ">", "=", "!=", "<=", ">=", "==", "=>", "->", "→", "≥", "≤", "!"))
_DASHES = frozenset(("-", "–", "—", "--", "=>", "->", "→"))
_LONGEST = 2000

Term = tuple[str, int]


class Value(NamedTuple):
    """A number in a statement. `by`: the words next to it. `told`: it is what is said (is 5), not what is spoken of (5 is)."""

    number: str
    unit: str
    by: frozenset[str]
    clause: int
    told: bool


class Form(NamedTuple):
    """A statement, taken apart."""

    clauses: tuple[frozenset[Term], ...]
    #: The same terms without what they relate to, and pieces of names: to see whether two are about the same.
    loose: tuple[frozenset[Term], ...]
    values: tuple[Value, ...]
    strong: bool
    soft: bool
    takes_back: bool
    heard: frozenset[str]

    @property
    def key(self) -> frozenset[Term]:
        """Statements with one key say the same."""
        return frozenset().union(*self.clauses)

    @property
    def stems(self) -> frozenset[str]:
        return frozenset(stem for clause in self.loose for stem, _ in clause)


# -- the questions


def same(one: str, other: str) -> bool:
    """The same fact, in other words at most."""
    return key(one) == key(other)


def key(text: str) -> frozenset[Term]:
    """What the text says; never empty: a text without a word that counts stands for itself."""
    return form(text).key or frozenset(((" ".join(text.casefold().split()), 0),))


def fuller(one: str, other: str) -> bool:
    """`one` says all of `other`, word for word of what counts, and something besides."""
    return form(one).clauses != form(other).clauses and covers(form(one), form(other)) and key(one) != key(other)


def covers(one: Form, other: Form) -> bool:
    return bool(other.clauses) and set(other.clauses) < set(one.clauses)


def near(one: str, other: str) -> bool:
    """Two lines that a reader would take for one: one has a word or two more, and none that matters."""
    a, b = key(one), key(other)
    less, more = (a, b) if len(a) <= len(b) else (b, a)
    if not less <= more or len(less) * 5 < len(more) * 4:
        return False
    return exacts(form(one)) == exacts(form(other)) and not any(stem in w.WEIGHTY or ">" in stem for stem, _ in more - less)


def contradicts(newer: str, older: str, *, corrects: bool = False) -> str:
    """Why both can't hold, in words; "" when they can. `corrects`: the newer one was said as a correction."""
    new, old = form(newer), form(older)
    if not new.clauses or not old.clauses or new.key == old.key:
        return ""
    if _flips(new, old):
        return "it says the opposite"
    if _revalues(new, old, changed=new.strong or new.soft or corrects):
        return "it gives another value"
    if not (new.strong or new.soft or corrects):
        return ""
    if _replaces(new, old):
        return "it names what it replaces"
    if _returns(new, old):
        return "it takes up what was turned down"
    if new.strong and _reframes(new, old):
        return "it changes what was settled"
    return ""


def takes_back(newer: str, older: str) -> bool:
    """It says that the older one does not hold any more, and puts nothing in its place."""
    new = form(newer)
    if not new.takes_back:
        return False
    about = new.stems - _TAKING
    theirs = form(older).stems
    if not about or not about <= theirs:
        return False
    return bool(about - _GENERIC) and (len(about) >= 2 or len(theirs) <= 3)


def only_takes_back(text: str) -> bool:
    """Nothing of it is worth remembering by itself."""
    found = form(text)
    return found.takes_back and len(found.clauses) == 1


def closes(later: str, loop: str) -> bool:
    """The later statement shows that what the loop left open is done."""
    done, left = form(later), form(loop)
    if not done.heard & w.DONE or done.heard & w.PENDING:
        return False
    wanted = left.stems - _LOOPING
    got = frozenset(stem for clause in done.loose for stem, depth in clause if depth == 0)
    if len(wanted) < 2 or not (exacts(left) & wanted) <= got:
        return False
    return len(wanted & got) * 4 >= len(wanted) * 3 and bool((wanted & got) - _GENERIC)


def shakes(text: str) -> bool:
    """It may close or take back something."""
    found = form(text)
    return found.takes_back or bool(found.heard & w.DONE)


def general(text: str) -> bool:
    """It could hold in any project: it names no path, no number, no command, and no place."""
    found = form(text)
    local = found.heard & (w.PLACES | {"this", "our"}) - {"everywhere", "anywhere"}
    return bool(found.clauses) and not exacts(found) and not found.values and not local


def dated(text: str) -> bool:
    """What it says depends on the day on which it was said."""
    heard = list(_words(text[:_LONGEST]))
    plain = [word.casefold() for word, _ in heard]
    if w.RELATIVE_DATES & set(plain):
        return True
    return any(a in ("this", "next", "last") and b in w.RELATIVE_AFTER for a, b in pairwise(plain))


# -- where to look for what a statement may exclude


def marks(text: str) -> frozenset[object]:
    """Two statements that exclude each other without saying so (neither speaks of a change) have one of these in common."""
    found = form(text)
    clauses: set[object] = {frozenset(stem for stem, _ in clause) for clause in found.clauses}
    for value in found.values:
        for term in found.key:
            if value.told and _ends_in(term[0], value):
                clauses.add((found.key - {term}, term[0].removesuffix(value.number + value.unit), value.unit))
    return frozenset(clauses)


def speaks_of_change(text: str) -> bool:
    found = form(text)
    return found.strong or found.soft


def telling(text: str) -> frozenset[str]:
    """Words by which one can see that two statements are about the same: others come up everywhere."""
    return form(text).stems - _GENERIC


# -- what makes two statements exclude each other


def _flips(new: Form, old: Form) -> bool:
    """A clause of one is a clause of the other, negated."""
    flipped = {frozenset((stem, 1 - depth % 2) for stem, depth in clause) for clause in _free(old)}
    return any(frozenset((stem, depth % 2) for stem, depth in clause) in flipped for clause in _free(new))


def _free(found: Form) -> Iterator[frozenset[Term]]:
    """Clauses that hold by themselves. `a jobs table in Postgres, not Redis` says nothing of Redis for other ends."""
    for n, clause in enumerate(found.clauses):
        if n == 0 or len(found.clauses[n - 1]) <= 2 or not all(depth % 2 for _, depth in clause):
            yield clause


def _revalues(new: Form, old: Form, *, changed: bool) -> bool:
    return _one_number_apart(new, old) or (changed and _other_measure(new, old))


def _one_number_apart(new: Form, old: Form) -> bool:
    """The same words but for one number, which is what is said and not what is spoken of."""
    ours, theirs = new.key - old.key, old.key - new.key
    if len(ours) != 1 or len(theirs) != 1 or len(new.key & old.key) == 0:
        return False
    (mine, depth), (other, depth_of_other) = next(iter(ours)), next(iter(theirs))
    if depth != depth_of_other:
        return False
    for a in new.values:
        for b in old.values:
            if _ends_in(mine, a) and _ends_in(other, b) and a.unit == b.unit and a.told and b.told:
                return mine.removesuffix(a.number + a.unit) == other.removesuffix(b.number + b.unit)
    return False


def _ends_in(term: str, value: Value) -> bool:
    return term.endswith(value.number + value.unit)


def _other_measure(new: Form, old: Form) -> bool:
    """Another number of the same unit, of the same thing: the same word next to it, or mostly the same words around it."""
    for a in new.values:
        for b in old.values:
            if a.unit != b.unit or a.number == b.number:
                continue
            if a.by & b.by - _GENERIC:
                return True
            theirs = _plain(old.loose[b.clause]) - _GENERIC - {b.number + b.unit, b.unit}
            shared = theirs & _plain(new.loose[a.clause])
            if len(shared) >= 2 and len(shared) * 5 >= len(theirs) * 3:
                return True
    return False


def _replaces(new: Form, old: Form) -> bool:
    """It denies, in a clause of its own, something that the older one is for; and they are about the same."""
    theirs = {stem for clause in old.loose for stem, depth in clause if depth == 0}
    mine = {stem for clause in new.loose for stem, depth in clause if depth == 0}
    for clause in new.loose:
        denied = {stem for stem, depth in clause if depth == 1}
        if not denied or len(denied) < len(clause) or not denied <= theirs or not denied - _GENERIC or len(new.loose) == 1:
            continue
        rest = theirs - denied - _GENERIC
        if rest & mine or (new.strong and len(rest) <= 1):
            return True
    return False


def _returns(new: Form, old: Form) -> bool:
    """What the older one turned down is now said, of the same matter."""
    mine = {stem for clause in new.loose for stem, depth in clause if depth == 0}
    shared = mine & {stem for clause in old.loose for stem, depth in clause if depth == 0} - _GENERIC
    for strict, clause in zip(old.clauses, old.loose, strict=True):
        denied = {stem for stem, depth in clause if depth == 1}
        if not denied or len(denied) < len(clause) or not denied <= mine or not denied - _GENERIC:
            continue
        said = {(stem, 0) for stem, _ in strict}
        if shared or (len(old.clauses) == 1 and any(said <= one and len(one) <= len(said) + 1 for one in new.clauses)):
            return True
    return False


def _reframes(new: Form, old: Form) -> bool:
    """All but one of the older one's words come again in a statement that speaks of a change."""
    first = old.loose[0]
    again = {stem for stem, depth in first if (stem, depth) in frozenset().union(*new.loose)}
    left = {stem for stem, _ in first} - again
    return len(left) <= 1 and len(again) >= 2 and bool(again - _GENERIC)


def _plain(clause: Iterable[Term]) -> frozenset[str]:
    return frozenset(stem for stem, _ in clause)


def exacts(found: Form) -> frozenset[str]:
    """Numbers, names, paths, flags: what must agree to the letter."""
    return frozenset(stem for stem in found.stems if not stem.isalpha() or stem != stem.casefold())


# -- a text, taken apart


@lru_cache(maxsize=1 << 15)
def form(text: str) -> Form:
    parse = _Parse()
    for clause in _clauses(text[:_LONGEST]):
        parse.clause(clause)
    return parse.made()


def _words(text: str) -> Iterator[tuple[str, str]]:
    """(word, the punctuation behind it)."""
    for raw in text.split():
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
    for word, behind in _words(text):
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
        self._told = False
        self._after_number = False

    def made(self) -> Form:
        kept = [n for n, clause in enumerate(self._strict) if clause]
        heard = frozenset(self._heard)
        places = {n: at for at, n in enumerate(kept)}
        return Form(
            tuple(frozenset(self._strict[n]) for n in kept),
            tuple(frozenset(self._loose[n]) for n in kept),
            tuple(value._replace(clause=places[value.clause]) for value in self._values),
            bool(heard & w.STRONG),
            bool(heard & w.SOFT),
            any(_within(phrase, self._heard) for phrase in w.TAKES_BACK),
            heard,
        )

    def clause(self, words: list[str]) -> None:
        self._begin()
        folded = [_fold(word) for word in words]
        if folded[0] in w.REASONS_AT_START and self._strict[:-1] and any(self._strict[:-1]):
            return  # why, and not what
        for n, word in enumerate(words):
            name = folded[n]
            if name in w.REASONS and n:
                return
            self._heard.append(name)
            self._word(word, name, folded[n + 1] if n + 1 < len(folded) else "")
            self._told = self._told or name in w.TELLS
            self._before = name

    def _begin(self, depth: int = 0) -> None:
        self._strict.append(set())
        self._loose.append(set())
        self._depth = depth
        self._relation = self._head = self._before = ""
        self._told = self._after_number = False

    def _word(self, word: str, name: str, following: str) -> None:
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
                    self._add(term, loose)

    def _negate(self, name: str, following: str) -> None:
        if following in w.WHOLE:
            self._add("all", ())
        contrast = name == "insteadof" or (name == "not" and self._before not in w.AUXILIARY)
        if contrast and self._strict[-1]:
            self._begin(1)
        elif name == "without":
            self._depth += 1
        else:
            self._all_deeper()
            self._depth += 1

    def _all_deeper(self) -> None:
        """The whole clause is negated, also what stands before: `on main we never force-push`."""
        for clause in (self._strict[-1], self._loose[-1]):
            deeper = {(stem, depth + 1) for stem, depth in clause}
            clause.clear()
            clause.update(deeper)

    def _add(self, term: str, loose: Iterable[str]) -> None:
        number = _NUMBER.match(term)
        if number:
            told = self._told or len(self._strict) > 1
            by = frozenset((self._head,)) - {""}
            self._values.append(Value(number[2], number[3], by, len(self._strict) - 1, told))
        elif self._after_number and term in _UNIT_STEMS and not self._values[-1].unit:
            self._unit(term)
            return
        elif self._after_number:
            self._values[-1] = self._values[-1]._replace(by=self._values[-1].by | {term})
        self._strict[-1].add((f"{self._relation}>{term}" if self._relation else term, self._depth))
        self._loose[-1].update((one, self._depth) for one in (term, *loose))
        self._relation = ""
        self._after_number = bool(number)
        if not number and term not in w.DIRECTIONS:
            self._head = term

    def _unit(self, term: str) -> None:
        """`30 s`: one term with its number."""
        value = self._values[-1]
        unit = _UNIT_STEMS[term]
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
    elif name in w.NUMBERS:
        yield w.NUMBERS[name], ()
    elif _NUMBER.match(word):
        yield _number(word), ()
    elif _PLAIN.match(word) and not _CAMEL.search(word):
        yield stem(name), ()
    else:
        plain = word.casefold() if re.fullmatch(r"[A-Z]?[a-z]*\d+|[A-Z]+\d+", word) else word
        yield plain, tuple(stem(piece.casefold()) for piece in _PIECES.findall(word))


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
    return _cut(w.SAME[cut]) if cut in w.SAME and len(w.SAME[cut]) >= 4 else cut


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


_GENERIC = frozenset(map(stem, w.GENERIC))
_TAKING = frozenset(map(stem, w.TAKING))
_LOOPING = frozenset(map(stem, w.LOOPING))
_UNIT_STEMS = {**{stem(name): unit for name, unit in w.UNITS.items()}, **w.UNITS}
