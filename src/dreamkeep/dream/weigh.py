"""How much a sentence weighs: is it worth keeping, and as what. Pure; learnt from written talk (tools/learn.py).

    a sentence and what stands around it ─► marks ("w:never", "asked", "rule:states") ─► sums of whole numbers

The weights are data (data/weights_*.txt), one mark a line, so that a person can read what speaks for what. Whole numbers, so that
every machine adds them up to the same. What the lexicon found is among the marks: rules and weights decide together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from math import sqrt
from typing import NamedTuple

from dreamkeep.dream import lexicon
from dreamkeep.dream.judge import hangs, judge, judged
from dreamkeep.dream.sentences import Sentence, plain
from dreamkeep.dream.worded import without_lead

#: What one unit of a learnt weight is written as.
UNIT = 64
_TOKEN = re.compile(r"[a-zA-Z_][\w'’]*(?:[-./@:]\w+)*|\d[\w.,:%/-]*|[?!.,;:()—–-]+|\S")
_NAME = re.compile(r"[/_@:]|\w\.\w")
_ENDINGS = ("ing", "ed", "ly", "tion", "ness", "ment", "able", "er", "s")
#: Marks that a sentence has the more of the longer it is, and how much they count for its type.
_SPREAD = ("w:", "b:")
SPREAD = 2.0
#: How long a sentence is, and where it stands.
_SHAPE = ("len:", "pos:", "n:")
_KEPT = 4096
_LOOK = 800
#: So few words may be an answer; what is looked at for what was offered, and of what the model says then.
_SHORT, _OFFER, _ANSWER = 6, 300, 120
_BARE = re.compile(r"[^\W_]+")


class Around(NamedTuple):
    """What stands around a user's message. `reply`: the model's words before it; `asked`: the question they end with. `after`:
    what the model did next, a letter each (A: it spoke, R: it ran something, E: it edited); `answer`: its first words."""

    first: bool = False
    reply: str = ""
    asked: str = ""
    after: str = ""
    answer: str = ""


class Within(NamedTuple):
    """What stands around words of the model: the user's before and after; what it did since, and then (letters as in Around)."""

    before: str = ""
    after: str = ""
    did: str = ""
    then: str = ""


class Weighed(NamedTuple):
    """`keep`: above 0 it is rather to be kept. `type`: as what; `types`: how much speaks for each."""

    keep: float
    type: str
    types: Mapping[str, float] = {}


# -- marks


@lru_cache(_KEPT)
def tokens(text: str) -> tuple[str, ...]:
    found = []
    for one in _TOKEN.findall(plain(text)):
        if one[0].isdigit():
            found.append("NUM")
        elif one[0].isalpha() and one not in ("CODE", "QUOTED") and _NAME.search(one):
            found.append("NAME")
        elif bare := one.rstrip(".,") or one[:1]:
            found.append(bare)
    return tuple(found)


def of_words(text: str) -> Iterator[str]:
    core = without_lead(text)
    words = tokens(core)
    bones = ["^", *(_bone(one) for one in words), "$"]
    yield from (f"w:{one}" for one in words if one[0].isalnum())
    yield from _runs(words, 2, "b:")
    for size in (2, 3, 4):
        yield from _runs(bones, size, f"s{size}:")
    if words:
        yield f"f1:{words[0]}"
        yield f"l1:{words[-1]}"
        yield f"f2:{'_'.join(words[:2])}"
        yield f"f3:{'_'.join(bones[1:4])}"
    yield f"len:{_step(len(words), (2, 4, 7, 11, 16, 24, 35))}"
    if re.search(r"[A-Z]{2}", core):
        yield "capitals"
    if core != text:
        yield f"lead:{'_'.join(tokens(text[: len(text) - len(core)])[:1])}"


def of_place(own: Sequence[Sentence], n: int) -> Iterator[str]:
    last = len(own) - 1
    yield f"pos:{'only' if not last else 'first' if not n else 'last' if n == last else 'mid'}"
    yield f"n:{_step(last + 1, (1, 2, 3, 5, 8))}"
    if n:
        before = tokens(own[n - 1].text)
        yield f"pf:{'_'.join(before[:1])}"
        if own[n - 1].text.endswith("?"):
            yield "pq"
        if len(own[n - 1].text.split()) <= 3:
            yield f"pshort:{'_'.join(before)}"
    if n < last:
        yield f"nf:{'_'.join(tokens(own[n + 1].text)[:1])}"
        if own[n + 1].text.endswith("?"):
            yield "nq"
    if own[n].item:
        yield "item"
        yield from (f"u:{one}" for one in tokens(own[n].under))


def of_user(own: Sequence[Sentence], n: int, around: Around, found: Sequence[tuple[str, str, float]]) -> frozenset[str]:
    """`found`: what the lexicon's rules make of it where it stands: (type, rule, how sure)."""
    # That it is what a session begins with speaks against what no rule knows: it tells what to do now.
    around = around._replace(first=around.first and not found)
    marks = frozenset((*_of_user(own, n, around), *_of_rules(own[n], around.first, found)))
    return _clean(marks) if found and not any(one.startswith("veto:") for one in marks) else marks | frozenset(_pairs(marks))


def _clean(marks: frozenset[str]) -> frozenset[str]:
    """Where a rule finds something that no veto speaks against, how short it is and where it stands means something else."""
    sure = next((one for one in marks if one.startswith("sure:")), "")
    apart = frozenset(one for one in marks if one.startswith(_SHAPE))
    return (marks - apart) | {"clean", f"clean&{sure}"} | {f"clean&{one}" for one in apart} | frozenset(_pairs(marks - apart))


def _pairs(marks: frozenset[str]) -> Iterator[str]:
    """Marks that mean something else together: a few words are a scrap, or, behind a question, an answer."""
    size, place, head = (next((one for one in marks if one.startswith(tag)), "") for tag in ("len:", "pos:", "f1:"))
    if size:
        yield f"{size}&{place}"
    yield f"{head}&{next((one for one in marks if one.startswith('next:')), '')}"
    if "asked" in marks:
        yield from (f"asked&{one}" for one in (size, place, head, size + place) if one)
    if "opening" in marks:
        yield from (f"opening&{one}" for one in (size, place) if one)
    if "found" in marks:
        yield from (f"found&{one}" for one in marks if one.startswith(("veto:", "len:", "pos:", "asked", "opening", "after:")))


def _of_user(own: Sequence[Sentence], n: int, around: Around) -> Iterator[str]:
    yield from of_words(own[n].text)
    yield from of_place(own, n)
    yield f"m1:{'_'.join(tokens(own[0].text)[:1])}"
    if around.first:
        yield "opening"
        yield f"opening:{min(n, 1)}"
    if around.asked:
        yield "asked"
        yield f"asked:{min(n, 2)}"
        yield f"askedf:{'_'.join(tokens(around.asked)[:1])}"
        if " or " in around.asked:
            yield "asked:or"
    if around.reply:
        shared = len(content(own[n].text) & content(around.reply[-_LOOK:]))
        yield f"ov:{_step(shared, (0, 1, 2, 4))}{':asked' if around.asked else ''}"
        yield from _of_answer(own, n, around)
    if around.after:
        yield f"after:{around.after[:3]}"
    yield from (f"after:{one}" for one in set(around.after))
    if around.answer:
        yield f"next:{'_'.join(tokens(around.answer)[:1])}"


def _of_answer(own: Sequence[Sentence], n: int, around: Around) -> Iterator[str]:
    """A few words behind what the model said: do they take up what it named, and does it say them again?"""
    words = bare(without_lead(own[n].text))
    if not 0 < len(words) <= _SHORT:
        return
    size = "1" if len(words) == 1 else "few" if len(words) <= 3 else "some"
    named = _part(words, bare(around.reply[-_LOOK:]))
    again = _part(words, bare(around.answer[:_ANSWER]))
    offered = lexicon.pattern("talk", "reply", "might").search(plain(around.reply[-_OFFER:])) or " or " in around.reply[-_OFFER:]
    how = "asked" if around.asked else "offered" if offered else "told"
    yield f"named:{named}"
    yield f"again:{again}"
    yield f"named:{named}&{how}&{size}"
    yield f"again:{again}&{how}&{size}"
    yield f"named:{named}&again:{again}&{how}"
    yield f"{how}&{size}&{'only' if len(own) == 1 else 'first' if not n else 'later'}"


@lru_cache(256)
def bare(text: str) -> tuple[str, ...]:
    """Its words as they are, numbers and names too; without the commonest."""
    return tuple(one for one in _BARE.findall(text.lower()) if one not in _common())


def _part(words: Sequence[str], others: Sequence[str]) -> str:
    shared = sum(one in others for one in words)
    return "all" if shared == len(words) else "some" if shared else "none"


def _of_rules(sentence: Sentence, first: bool, found: Sequence[tuple[str, str, float]]) -> Iterator[str]:
    vetoes, one = judge(sentence.text, first=first)
    yield from (f"veto:{name}" for name in vetoes)
    if one is not None:
        yield from ("rule", f"rule:{one.rule}", f"rule:{one.type}")
    for _, part in judged(sentence, first=first):
        yield from ("judged", f"judged:{part.rule}", f"judged:{part.type}")
    for kind, rule, sure in found:
        yield from ("found", f"found:{kind}", f"foundr:{rule}", f"sure:{round(sure * 20)}")
    if hangs(sentence.text):
        yield "hangs"


def of_model(own: Sequence[Sentence], n: int, within: Within, *, found: bool) -> frozenset[str]:
    """A sentence of the model. `found`: a rule takes it for a cause."""
    return frozenset(_of_model(own, n, within, found))


def _of_model(own: Sequence[Sentence], n: int, within: Within, found: bool) -> Iterator[str]:
    text, before = own[n].text, within.before
    yield from of_words(text)
    yield from of_place(own, n)
    words = plain(text)
    yield from (f"talk:{name}" for name in ("cause", "because", "unsure") if lexicon.pattern("talk", "reply", name).search(words))
    for name in ("wanted", "fault"):
        if lexicon.pattern("talk", "answer", name).search(plain(before[:_LOOK])):
            yield name
            yield f"{name}&{min(n, 2)}"
    if before.rstrip().endswith("?"):
        yield "uq"
    yield f"nu:{'_'.join(tokens(within.after[:200])[:1])}"
    yield f"ov:{_step(len(content(text) & content(before[:_LOOK])), (0, 1, 2, 4))}"
    yield f"did:{within.did[-2:]}"
    yield f"then:{within.then[:2]}"
    if found:
        yield "found"


@lru_cache(_KEPT)
def content(text: str) -> frozenset[str]:
    return frozenset(one[:6] for one in tokens(text) if one.isalpha() and one not in _common() and len(one) > 2)


def _bone(word: str) -> str:
    """A common word as it is, any other as its ending: what is left is how the sentence is built."""
    if word in _common() or not word[0].isalpha():
        return word
    return next((f"X{end}" for end in _ENDINGS if len(word) > len(end) + 2 and word.endswith(end)), "X")


@cache
def _common() -> frozenset[str]:
    return frozenset(lexicon.table("talk")["text"]["common"])


def _runs(words: Sequence[str], size: int, tag: str) -> Iterator[str]:
    return (tag + "_".join(words[n : n + size]) for n in range(len(words) - size + 1))


def _step(number: int, steps: Iterable[int]) -> str:
    return next((str(one) for one in steps if number <= one), "more")


# -- weights


class Weights(NamedTuple):
    """`of`: for each mark, as text, its weight for keeping and for each type. Of thousands a session needs some hundreds."""

    types: tuple[str, ...]
    of: dict[str, str]


@cache
def weights(who: str) -> Weights:
    """`who`: user or model."""
    lines = files(__package__).joinpath("data", f"weights_{who}.txt").read_text(encoding="utf-8").splitlines()
    head, *told = (line for line in lines if not line.startswith("#"))
    of = {}
    for line in told:
        mark, _, of[mark] = line.partition("\t")
    return Weights(tuple(head.split("\t")[2:]), of)


@lru_cache(_KEPT)
def numbers(told: str, count: int) -> tuple[int, ...]:
    """Nothing is 0, and so is all that is missing at the end."""
    found = [int(one or 0) for one in told.split("\t")]
    return (*found, *(0 for _ in range(count - len(found))))


def spread(marks: Iterable[str]) -> dict[str, float]:
    """What each mark of these counts for the type: words and pairs of words count all together as much as `SPREAD` × √n of them,
    so that a long sentence is not what many words say a little for."""
    tags = [one[:2] for one in marks]
    return {tag: SPREAD / sqrt(count) for tag in _SPREAD if (count := tags.count(tag))}


def weighed(who: str, marks: Iterable[str]) -> Weighed:
    types, of = weights(who)
    count = len(types) + 1
    told = ("*", *marks)
    counts = spread(told)
    # By groups, each summed in whole numbers and multiplied once: the same on every machine, in whatever order marks come.
    groups: dict[str, list[tuple[int, ...]]] = {tag: [(0,) * count] for tag in ("", *counts)}
    for mark in told:
        if (found := of.get(mark)) is not None:
            groups[mark[:2] if mark[:2] in counts else ""].append(numbers(found, count))
    sums = {tag: [sum(column) for column in zip(*found, strict=True)] for tag, found in groups.items()}
    keep = sum(group[0] for group in sums.values())
    by_type = [sum(counts.get(tag, 1.0) * group[n + 1] for tag, group in sums.items()) / UNIT for n in range(len(types))]
    best = max(range(len(types)), key=lambda n: (by_type[n], -n)) if types else 0
    return Weighed(keep / UNIT, types[best] if types else "", dict(zip(types, by_type, strict=True)))
