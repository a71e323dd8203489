"""Do two statements say the same, or can't both hold? Rules over words: no model, no disk. Pure.

    same        every term agrees: only order, politeness, spelling, word forms and the reason given may differ
    fuller      one says all that the other says, and more, in clauses of its own
    contradicts they are about the same, and one denies, replaces or re-values what the other says

When in doubt they are two statements that both hold: a note too many costs a line, a wrong merge costs a fact. So there is no
measure of likeness in `same`: one word that differs, and it is another fact. How a statement is taken apart: form.py; tables of
words: words.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from dreamkeep.memory import words as w
from dreamkeep.memory.form import StatementForm, Term, Value, form, stem, words_of

_GENERIC = frozenset(map(stem, w.GENERIC))
_TAKING = frozenset(map(stem, w.TAKING))
_CHANGING = frozenset(map(stem, w.STRONG | w.SOFT))


# -- the questions


def key(text: str) -> frozenset[Term]:
    """What the text says; never empty: a text without a word that counts stands for itself."""
    return form(text).key or frozenset(((" ".join(text.casefold().split()), 0),))


def fuller(one: str, other: str) -> bool:
    """`one` says all of `other`, word for word of what counts, and something besides."""
    return form(one).clauses != form(other).clauses and covers(form(one), form(other)) and key(one) != key(other)


def covers(one: StatementForm, other: StatementForm) -> bool:
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
    if _of_another(new, old, new.changes or corrects) or _elsewhere(new, old):
        return ""
    if _flips(new, old):
        return "it says the opposite"
    if _revalues(new, old, changed=new.changes or corrects):
        return "it gives another value"
    if not (new.changes or corrects):
        return ""
    if _ends(new, old):
        return "it says that this is no longer so"
    if _replaces(new, old):
        return "it names what it replaces"
    # Without a strong word it was wrong in all of 11 pairs of real sentences.
    if new.strong and _returns(new, old):
        return "it takes up what was rejected"
    if (new.strong or new.takes_back) and _reframes(new, old):
        return "it changes what was settled"
    return ""


#: What follows the words that take something back, and says how it is to be.
_IN_PLACE = re.compile(
    r"[,;.:—–-]\s+(?:(?:it|that|this|they|we|you) (?:should|must|is|are|will|need|want|use|go)\b|(?:it|that|they)['’]s\b"
    r"|make (?:it|that)\b|use\b|return\b|rather\b)",
    re.IGNORECASE,
)


def takes_back(newer: str, older: str) -> bool:
    """It says that the older one does not hold any more, whatever it puts in its place."""
    if not form(newer).takes_back:
        return False
    about = form(_taken_back(newer)).stems - _TAKING
    old = form(older)
    if not about or not about <= old.stems:
        return False
    named = bool(about & exacts(old))  # "forget the 404": there is no other
    return bool(about - _GENERIC) and (named or len(about) >= 2 or len(old.stems) <= 3)


def only_takes_back(text: str) -> bool:
    """Nothing of it is worth remembering by itself."""
    found = form(text)
    return found.takes_back and len(found.clauses) == 1 and _taken_back(text) == text


def _taken_back(text: str) -> str:
    """ "Forget the 404, it should be 204": the part that takes back, without what takes its place."""
    place = _IN_PLACE.search(text)
    return text[: place.start()] if place and form(text[: place.start()]).takes_back else text


def is_taking_back(text: str) -> bool:
    return form(text).takes_back


def dated(text: str) -> bool:
    """What it says depends on the day on which it was said."""
    heard = list(words_of(text))
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
        for term in (said := _asserted(found)):
            if value.told and _ends_in(term[0], value) and not _names(found, value):
                clauses.add((said - {term}, term[0].removesuffix(value.number + value.unit), value.unit))
    return frozenset(clauses)


def speaks_of_change(text: str) -> bool:
    return form(text).changes


def telling(text: str) -> frozenset[str]:
    """Words by which one can see that two statements are about the same: others come up everywhere."""
    return form(text).stems - _GENERIC


# -- what makes two statements speak of different things


def _of_another(new: StatementForm, old: StatementForm, changed: bool) -> bool:
    """Of the third service, and of the fourth. But one who says `plan 4 instead` means: and not plan 3."""
    for of in {name.of for name in new.names} & {name.of for name in old.names}:
        mine, theirs = ({name for name in found.names if name.of == of} for found in (new, old))
        if {name.number for name in mine} & {name.number for name in theirs}:
            continue
        chosen = all(name.told for name in (*mine, *theirs)) and bool(new.stems & old.stems - _GENERIC)
        if not (chosen and (new.strong or (changed and _one_number_apart(new, old)))):
            return True
    return False


def _elsewhere(new: StatementForm, old: StatementForm) -> bool:
    """`In the frontend, …` and `in the backend, …`. Only what speaks of a change everywhere also means what held somewhere."""
    return new.scope != old.scope and (not new.changes or bool(new.scope))


def _names(found: StatementForm, value: Value) -> bool:
    """Whether the number is a name, and no value."""
    return any(name.number == value.number and name.of in value.by for name in found.names)


# -- what makes two statements exclude each other


def _flips(new: StatementForm, old: StatementForm) -> bool:
    """A clause of one is a clause of the other, negated."""
    flipped = {frozenset((stem, 1 - depth % 2) for stem, depth in clause) for clause in _free(old)}
    return any(frozenset((stem, depth % 2) for stem, depth in clause) in flipped for clause in _free(new))


def _free(found: StatementForm) -> Iterator[frozenset[Term]]:
    """Clauses that hold by themselves. `a jobs table in Postgres, not Redis` says nothing of Redis for other ends."""
    for n, clause in enumerate(found.clauses):
        bound = n > 0 and len(found.clauses[n - 1]) > 2 and all(depth % 2 for _, depth in clause)
        if not bound and not (len(clause) == 1 and n in found.telling_apart):
            yield clause


def _revalues(new: StatementForm, old: StatementForm, *, changed: bool) -> bool:
    return _one_number_apart(new, old) or (changed and _other_measure(new, old))


def _one_number_apart(new: StatementForm, old: StatementForm) -> bool:
    """The same words but for one number, which is what is said and not what is spoken of."""
    said, held = _asserted(new), _asserted(old)
    ours, theirs = said - held, held - said
    if len(ours) != 1 or len(theirs) != 1 or len(said & held) == 0:
        return False
    (mine, depth), (other, depth_of_other) = next(iter(ours)), next(iter(theirs))
    if depth != depth_of_other:
        return False
    for a in new.values:
        for b in old.values:
            if _names(new, a) != _names(old, b):
                continue  # `service 5` is one of its kind; `service 3.5` is none of them
            if _ends_in(mine, a) and _ends_in(other, b) and a.unit == b.unit and a.told and b.told:
                return mine.removesuffix(a.number + a.unit) == other.removesuffix(b.number + b.unit)
    return False


def _asserted(found: StatementForm) -> frozenset[Term]:
    """The key without `…, not 8:00`: who says which number it is not, says nothing else by that."""
    if len(found.clauses) == 1 or not found.values:
        return found.key
    return frozenset().union(*(clause for clause in found.clauses if not _denies_a_number(found, clause)))


def _denies_a_number(found: StatementForm, clause: frozenset[Term]) -> bool:
    return len(clause) == 1 and all(depth % 2 and any(_ends_in(stem, one) for one in found.values) for stem, depth in clause)


def _ends_in(term: str, value: Value) -> bool:
    return term.endswith(value.number + value.unit)


def _other_measure(new: StatementForm, old: StatementForm) -> bool:
    """Another number of the same unit, of the same thing: the same word next to it, or mostly the same words around it."""
    for a in new.values:
        for b in old.values:
            if a.unit != b.unit or a.number == b.number or _names(new, a) or _names(old, b):
                continue
            beside = a.by & b.by - _GENERIC
            if beside - (a.about & b.about):
                return True  # `60 Hz tick`, `the tick is 30 Hz`: behind the number it is what is counted
            if not _nested(a.about, b.about):
                continue  # the timeout of the one, and of the other
            theirs = _plain_terms(old.loose[b.clause]) - _GENERIC - {b.number + b.unit, b.unit}
            shared = theirs & _plain_terms(new.loose[a.clause])
            if beside or (len(shared) >= 2 and len(shared) * 5 >= len(theirs) * 3):
                return True
    return False


def _nested(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether what is spoken of may be the same: at most, one says it more exactly."""
    a, b = one - _GENERIC - _CHANGING, other - _GENERIC - _CHANGING
    return a <= b or b <= a


def _replaces(new: StatementForm, old: StatementForm) -> bool:
    """It denies in a clause of its own, or moves away from, something that the older one is for; of the same matter."""
    mine = {stem for clause in new.loose for stem, depth in clause if depth == 0}
    for clause in old.loose:
        theirs = {stem for stem, depth in clause if depth == 0}
        for denied in _denied(new):
            rest = theirs - denied - _GENERIC
            if denied <= theirs and denied - _GENERIC and (rest & mine or (new.strong and len(rest) <= 1)):
                return True
    return False


def _denied(new: StatementForm) -> Iterator[frozenset[str]]:
    for clause in new.loose if len(new.loose) > 1 else ():
        if clause and all(depth == 1 for _, depth in clause):
            yield _plain_terms(clause)
    if new.heard & w.MOVES:
        yield from (
            frozenset((stem.removeprefix("from>"),))
            for clause in new.clauses
            for stem, depth in clause
            if depth == 0 and stem.startswith("from>")
        )


def _ends(new: StatementForm, old: StatementForm) -> bool:
    """`no longer`, and what is said then, or all of what was said before, is the other one's."""
    if not new.heard & w.NO_LONGER:
        return False
    for clause in new.clauses:
        denied = {stem for stem, depth in clause if depth == 1}
        for before in old.clauses:
            held = {stem for stem, depth in before if depth == 0}
            if len(denied & held) >= 2 and (denied <= held or held <= denied) and denied & held - _GENERIC:
                return True
    return False


def _returns(new: StatementForm, old: StatementForm) -> bool:
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


def _reframes(new: StatementForm, old: StatementForm) -> bool:
    """All but one of the older one's words come again in a statement that speaks of a change."""
    if new.subject - _GENERIC and old.subject - _GENERIC and not new.subject & old.subject and not new.heard & w.INSTEAD:
        return False  # the one moved; the other did not
    first = old.loose[0]
    again = {stem for stem, depth in first if (stem, depth) in frozenset().union(*new.loose)}
    left = {stem for stem, _ in first} - again
    return len(left) <= 1 and len(again) >= 2 and bool(again - _GENERIC)


def _plain_terms(clause: Iterable[Term]) -> frozenset[str]:
    return frozenset(stem for stem, _ in clause)


def exacts(found: StatementForm) -> frozenset[str]:
    """Numbers, names, paths, flags: what must agree to the letter."""
    return frozenset(stem for stem in found.stems if not stem.isalpha() or stem != stem.casefold())
