"""Learns the weights of dream/weigh.py from written talk: `make weights` (with scikit-learn, in a place of its own).

    tests/data/talks/*.txt, tests/planted/{first,second,seventh,eighth} ─► src/dreamkeep/dream/data/weights_{user,model}.txt

Talks teach what is said in sessions; banks of single sentences, each put into several talks, what a plain sentence is wherever it
stands.

`--check`: five-fold, each talk weighed by what was learnt from others; prints precision and recall at several thresholds.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from tests import talks
from tests.planted import written

from dreamkeep.dream import rules, work
from dreamkeep.dream.choose import Message
from dreamkeep.dream.weigh import UNIT, spread

HERE = Path(__file__).parent.parent
OUT = HERE / "src" / "dreamkeep" / "dream" / "data"
TYPES = ("decision", "rejection", "finding", "constraint", "correction", "preference", "hypothesis", "procedure", "open_loop")
#: A mark that fewer sentences bear says nothing; a weight below this is left out.
SEEN, LEAST = 3, 5
#: Marks that come from the lexicon.
RULED = ("rule", "judged", "found", "veto", "hangs", "sure:", "clean")
#: How much of an example of a type is one of the types that are accepted beside it.
BESIDE = 0.5
#: How a sentence is built tells whether to keep it, and misleads about its type.
BONES = ("s2:", "s3:", "s4:")
#: What a look-alike counts.
DECOY = 0.5
#: In how many ways a sentence of a bank is put into talk, and what each of them counts.
WAYS, OF_BANK = 4, 0.25
#: The writers were asked to put the words of rules into what is none. People mostly mean them: what such a sentence counts,
#: where no veto tells it from a rule.
SIGNALS = re.compile(
    r"\b(?:must|never|always|have to|has to|had to|decided?|prefer|from now on|only|shall|may not|not allowed)\b", re.IGNORECASE
)
UNLIKELY = 0.2
STRENGTH = {"user": 0.3, "model": 0.3}


class Example(NamedTuple):
    who: str
    marks: frozenset[str]
    #: None: it may be kept or not.
    types: tuple[str, ...] | None
    text: str
    talk: int
    counts: float = 1.0


def talk_files(names: str = "[0-9]*.txt") -> Iterator[list[talks.Line]]:
    """`types_*.txt` hold little else than what is to be kept: they tell types, and not what to keep."""
    for path in sorted(talks.FOLDER.glob(names)):
        yield from talks.load(path)


def banked() -> Iterator[Example]:
    for path in sorted(talks.FOLDER.glob("bank_*.txt")):
        for n, lines in enumerate(talks.composed(talks.bank(path), WAYS)):
            for one in examples(lines, -n):
                if one.who == "user":
                    yield one._replace(counts=OF_BANK)


def planted(*folders: Path) -> Iterator[list[talks.Line]]:
    for folder in folders:
        for session in written.load(folder):
            if "/agent-" not in session.id:
                yield list(_lines(session))


def _lines(session: written.Written) -> Iterator[talks.Line]:
    wanted = [(one, False) for one in session.expect] + [(one, True) for one in session.optional]
    n = 0
    for turn in session.turns:
        for role, text in [("U", turn.prompt), *(_step(step) for step in turn.steps)]:
            if not role or not text:
                continue
            marks = []
            for one, optional in wanted:
                at = text.find(one.quote) if one.quote and role in "UA" else -1
                if at >= 0 and one.types != {"failure_fix"}:
                    marks.append(talks.Mark(tuple(sorted(one.types)), optional, at, at + len(one.quote)))
            yield talks.Line(role, text, tuple(marks), str(2 * n))
            n += 1


def _step(step: Any) -> tuple[str, str]:
    if isinstance(step, written.Say):
        return "A", step.text
    if isinstance(step, written.Run):
        return "R", f"{step.command} => {step.exit} {step.output[:300]}"
    return ("E", step.path) if isinstance(step, written.Edit) else ("", "")


def examples(lines: Sequence[talks.Line], talk: int) -> Iterator[Example]:
    by_seq = {line.seq: line for line in lines}
    steps = work.steps(talks.given(lines))
    for one in rules.heard(steps):
        if isinstance(one, rules.Heard) and one.prompt.said.seq in by_seq:
            place = one.prompt.said
            message = Message(place.text, None, one.found, one.around, [(each.type, each.quote) for each in one.taken])
            for sentence, marks in zip(message.own, message.marks(), strict=True):
                yield Example("user", marks, _types(by_seq[place.seq], sentence), sentence.text, talk)
    for spoken in rules.spoken(steps):
        if line := by_seq.get(spoken.reply.said.seq):
            for sentence, marks in spoken.marks():
                yield Example("model", marks, _types(line, sentence), sentence.text, talk)


def _types(line: talks.Line, sentence: Any) -> tuple[str, ...] | None:
    found = talks.met(line.marks, sentence.start, sentence.start + len(sentence.quote))
    types = tuple(dict.fromkeys(kind for one in found if not one.optional for kind in one.types))
    return types if types or not found else None


def blind(found: Iterable[Example]) -> Iterator[Example]:
    """The lexicon was fitted to the written sessions: what it finds there says nothing about how far to trust it elsewhere."""
    for one in found:
        yield one._replace(marks=frozenset(mark for mark in one.marks if not mark.startswith(RULED)) | {"blind"})


class Learnt(NamedTuple):
    weights: dict[str, tuple[int, ...]]

    def keep(self, marks: Iterable[str]) -> float:
        return (self.weights["*"][0] + sum(self.weights[one][0] for one in marks if one in self.weights)) / UNIT

    def type(self, marks: Iterable[str]) -> str:
        sums = np.array(self.weights["*"][1:], dtype=float)
        counts = spread(marks)
        for one in marks:
            if one in self.weights:
                sums += _counted(one, counts) * np.array(self.weights[one][1:])
        return TYPES[int(np.argmax(sums))]


def _counted(mark: str, counts: Mapping[str, float]) -> float:
    return next((count for tag, count in counts.items() if mark.startswith(tag)), 1.0)


def learn(found: Sequence[Example], who: str, typed: Sequence[Example] = ()) -> Learnt:
    told = [one for one in found if one.types is not None]
    seen = Counter(mark for marks in _by_text([*told, *typed]) for mark in marks)
    names = sorted(mark for mark, count in seen.items() if count >= SEEN)
    place = {mark: n for n, mark in enumerate(names)}
    keep = LogisticRegression(C=STRENGTH[who], max_iter=500, solver="liblinear")
    keep.fit(_matrix(told, place), [bool(one.types) for one in told], sample_weight=[_weight(one) for one in told])
    columns = [_numbers(keep.coef_[0], keep.intercept_[0]), *_by_type([*told, *typed], place)]
    bones = [n for mark, n in place.items() if mark.startswith(BONES)]
    for column in columns[1:]:
        for n in bones:
            column[n] = 0
    table = {"*": tuple(column[-1] for column in columns)}
    for mark, n in place.items():
        numbers = tuple(column[n] if abs(column[n]) >= LEAST else 0 for column in columns)
        if any(numbers):
            table[mark] = numbers
    return Learnt(table)


def _by_text(found: Iterable[Example]) -> Iterable[set[str]]:
    """The marks of each sentence: what is put into talk several times was said once."""
    marks: dict[str, set[str]] = {}
    for one in found:
        marks.setdefault(one.text, set()).update(one.marks)
    return marks.values()


def _weight(one: Example) -> float:
    """The writers were asked for many look-alikes: more sentences in which a rule is wrong than people really say."""
    if one.types:
        return one.counts
    vetoed = any(mark.startswith("veto:") for mark in one.marks)
    unlikely = not vetoed and not one.text.endswith("?") and SIGNALS.search(one.text)
    return one.counts * (DECOY if "found" in one.marks else 1.0) * (UNLIKELY if unlikely else 1.0)


def beside(found: Iterable[Example]) -> Any:
    """How often each type is accepted where another is: in the written sessions every fair type is named."""
    table = np.zeros((len(TYPES), len(TYPES)))
    for one in found:
        share = _share(one.types or ())
        table += np.outer(share, share > 0)
    return table / np.maximum(1e-9, table.diagonal()[:, None])


def _share(types: Sequence[str]) -> Any:
    share = np.array([float(kind in types) for kind in TYPES])
    return share / max(1.0, share.sum())


def _by_type(told: Sequence[Example], place: dict[str, int]) -> Iterator[list[int]]:
    """What may be one of several types is a part of an example for each."""
    accepted = beside(one for one in told if "blind" in one.marks)
    rows = []
    told = [one._replace(marks=frozenset(mark for mark in one.marks if not mark.startswith(BONES))) for one in told]
    for one in told:
        share = _share(one.types or ())
        if share.any():
            mixed = share * (1 - BESIDE) + BESIDE * (share @ accepted if accepted.any() else share)
            rows += [(one, kind, part) for kind, part in zip(TYPES, mixed / mixed.sum(), strict=True) if part > 0.02]
    model = LogisticRegression(C=0.3, max_iter=1000)
    ones, kinds, parts = zip(*rows, strict=True)
    model.fit(_matrix(ones, place, spreading=True), kinds, sample_weight=parts)
    known = {kind: _numbers(model.coef_[n], model.intercept_[n]) for n, kind in enumerate(model.classes_)}
    for kind in TYPES:
        yield known.get(kind, [0] * len(place) + [-UNIT * 20])


def _numbers(weights: Iterable[float], start: float) -> list[int]:
    return [round(float(one) * UNIT) for one in (*weights, start)]


def _matrix(rows: Sequence[Example], place: dict[str, int], *, spreading: bool = False) -> csr_matrix:
    """`spreading`: as it counts for the type."""
    columns = [sorted((mark for mark in one.marks if mark in place), key=place.__getitem__) for one in rows]
    ends = np.cumsum([0, *(len(one) for one in columns)]).astype(np.int32)
    flat = np.array([place[mark] for one in columns for mark in one], dtype=np.int32)
    how = (spread(one.marks) if spreading else {} for one in rows)
    counts = [_counted(mark, each) for one, each in zip(columns, how, strict=True) for mark in one]
    return csr_matrix((np.array(counts), flat, ends), shape=(len(rows), len(place)))


def write(learnt: Learnt, who: str) -> None:
    lines = [
        f"# Made by tools/learn.py of talk {talks.digest()}. In 1/{UNIT}: what a mark adds to keeping it, and to each type.",
        "\t".join(("mark", "keep", *TYPES)),
        *("\t".join((mark, *(str(one or "") for one in found))).rstrip("\t") for mark, found in sorted(learnt.weights.items())),
    ]
    (OUT / f"weights_{who}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def check(found: Sequence[Example], who: str, extra: Sequence[Example], types: Sequence[Example], parts: int = 5) -> None:
    judged: list[tuple[float, str, Example]] = []
    for part in range(parts):
        learnt = learn([*(one for one in found if one.talk % parts != part), *extra], who, types)
        mine = [one for one in found if one.talk % parts == part and one.types is not None]
        judged += [(learnt.keep(one.marks), learnt.type(one.marks), one) for one in mine]
    for least in (-0.5, 0.0, 0.5, 1.0, 1.5, 2.0):
        print(f"  from {least:4}: {_told([(kind, one) for keep, kind, one in judged if keep >= least], judged)}")


def _told(kept: Sequence[tuple[str, Example]], judged: Sequence[tuple[float, str, Example]]) -> str:
    right = sum(bool(one.types) for _, one in kept)
    typed = sum(kind in (one.types or ()) for kind, one in kept)
    wanted = sum(bool(one.types) for _, _, one in judged)
    precision, recall = right / max(1, len(kept)), right / max(1, wanted)
    return (
        f"precision {precision:.3f}, recall {recall:.3f}, of these the type right {typed / max(1, right):.3f} ({wanted} wanted)"
    )


def main(words: Sequence[str]) -> int:
    spoken = list(talk_files())
    random.Random(7).shuffle(spoken)
    found = [one for n, lines in enumerate(spoken) for one in examples(lines, n)]
    more = [one for n, lines in enumerate(planted(written.FIRST, written.SECOND)) for one in blind(examples(lines, -n))]
    more += [one for n, lines in enumerate(planted(*written.LEARNT)) for one in examples(lines, -n)]
    more += banked()
    typed = [one for n, lines in enumerate(talk_files("types_*.txt")) for one in examples(lines, -n)]
    for who in ("user", "model"):
        mine, extra, types = ([one for one in some if one.who == who] for some in (found, more, typed))
        print(f"{who}: {len(mine)} sentences in {len(spoken)} talks, {len(extra)} in written sessions and banks")
        if "--check" in words:
            check(mine, who, extra, types)
        else:
            write(learn([*mine, *extra], who, types), who)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
