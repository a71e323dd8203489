"""The default backend: offline, deterministic, by rules. What it knows of words is in data/*.toml.

It prefers to say nothing: an insight that was missed is in the session still, a false one is in everybody's way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from dreamkeep.dream import lexicon, rules_work, work
from dreamkeep.dream.choose import Message
from dreamkeep.dream.given import Answer, Given, Proposal, Said, TaskGiven
from dreamkeep.dream.offers import about, offers
from dreamkeep.dream.rules_said import Found, asked, said
from dreamkeep.dream.sentences import Sentence, plain, sentences
from dreamkeep.dream.tool_words import ToolWords
from dreamkeep.dream.weigh import Around, Weighed, Within, of_model, weighed
from dreamkeep.dream.worded import TEXT, shortened, worded
from dreamkeep.dream.work import Edited, Prompt, Ran, Refused, Reply, Step
from dreamkeep.memory.insight import normal

#: Of one session: what the user said before what an agent did, the surest, the latest. More than anybody says in one.
MOST = 200
_SAME = 0.8
#: Of a model's words so much is looked at, so many sentences, and so few are kept.
_LOOK, _MANY, _FEW = 6000, 40, 2
#: From which weight on.
MODEL = 0.25
#: What an agent says in words of its own.
_IN_ITS_WORDS = ("finding", "hypothesis", "evidence", "open_loop", "decision")
Redact = Callable[[str], str]


def _talk(part: str, name: str) -> re.Pattern[str]:
    return lexicon.pattern("talk", part, name)


class Rules:
    """`redact`: what takes secrets out of a text (M12)."""

    name = "rules"

    def __init__(self, redact: Redact | None = None) -> None:
        self._redact = redact or (lambda text: text)

    def backfill(self, given: Given) -> Answer:
        if is_subagent(given):
            return Answer()
        steps = work.steps(given)
        foreign = ToolWords(given)
        found = chain(
            _words(steps),
            rules_work.refusals(steps),
            rules_work.answers(steps),
            rules_work.plans(steps),
            rules_work.fixes(steps, given.cwd, lambda words: not foreign.refused([words])[0]),
            rules_work.commands(steps, given.cwd),
            rules_work.commits(steps),
            _causes(steps),
            rules_work.left_open(steps) if given.chunk[0] == given.chunk[1] else (),
        )
        own = _own_words(list(found), foreign)
        clean = (one._replace(text=shortened(self._redact(one.text)), task=_task(one, given.tasks)) for one in own)
        found_once = list(_once(clean, given.tasks))
        kept = _most(found_once)
        more = len(found_once) - len(kept)
        return Answer(tuple(kept), dropped={f"more than {MOST} of one session": more} if more else {})


def _own_words(found: Sequence[Proposal], foreign: ToolWords) -> list[Proposal]:
    """Without what the agent only repeats of a tool's output. What a command shows is worded by us."""
    repeats = [one for one in found if one.author == "agent" and one.type in _IN_ITS_WORDS]
    refused = foreign.refused([one.text for one in repeats])
    gone = {id(one) for one, why in zip(repeats, refused, strict=True) if why}
    return [one for one in found if id(one) not in gone]


def is_subagent(given: Given) -> bool:
    """Its prompts are another model's words. (Where only lineage tells, who gives the turns leaves such sessions out.)"""
    return "/agent-" in given.session


# -- what the user said


def _words(steps: Sequence[Step]) -> Iterator[Proposal]:
    """What was said stays until the user speaks again: he may take it back."""
    held: list[Proposal] = []
    for step in heard(steps):
        if isinstance(step, Refused):
            held += _why(step)
            continue
        yield from _kept(held, step.prompt.said.text)
        held = list(_of_prompt(step, steps))
    yield from held


class Heard(NamedTuple):
    """A user's message where it stands, with what the rules make of it. `n`: which step it is. `taken`: what the model had
    offered, and he took."""

    prompt: Prompt
    n: int
    found: list[Found]
    around: Around
    refused: Refused | None
    taken: list[Proposal]


def heard(steps: Sequence[Step]) -> Iterator[Heard | Refused]:
    """Message by message; refusals stand between. What is known is heard, and nothing is found in it."""
    refused: Refused | None = None
    reply, first = "", True
    taken = list(offers(steps))
    for n, step in enumerate(steps):
        if isinstance(step, Reply):
            reply = step.said.text
        elif isinstance(step, Refused) and not step.known:
            yield step
            refused = step if not step.words else None
        elif isinstance(step, Prompt):
            around = _around(steps, n, reply, first=first)
            found = said(step.said.text, step.said.at, refused=refused is not None, reply=reply, first=first)
            his = [one for one in taken if one.seq == step.said.seq]
            yield Heard(step, n, [] if step.known else found, around, refused, his)
            refused, reply, first = None, "", False


def _around(steps: Sequence[Step], n: int, reply: str, *, first: bool) -> Around:
    answer = ""
    for step in steps[n + 1 :]:
        if isinstance(step, Prompt):
            break
        if isinstance(step, Reply):
            answer = step.said.text[:200]
            break
    return Around(first, reply, asked(reply), _then(steps[n + 1 :])[0], answer)


def _of_prompt(one: Heard, steps: Sequence[Step]) -> Iterator[Proposal]:
    place = one.prompt.said
    if one.prompt.known:
        return
    message = Message(place.text, place.at, one.found, one.around, [(each.type, each.quote) for each in one.taken])
    for each in message.chosen() if one.refused is None else _to_refusal(one.found, message.chosen()):
        yield _proposed(_tested(_to_what(each, one.refused), steps, one.n), place)
    yield from (each for each in one.taken if message.holds(each.quote))


def _to_refusal(found: Sequence[Found], chosen: Sequence[Found]) -> list[Found]:
    """What is said to a refusal was looked at as such; what weighs enough besides counts, and rather than a mere reason."""
    kept = [one for one in found if one.rule != "reason" or not chosen]
    more = [one for one in chosen if not any(_overlap(one, other) for other in kept)]
    return sorted((*kept, *more), key=lambda one: one.start)


def _overlap(one: Found, other: Found) -> bool:
    return one.start < other.start + len(other.quote) and other.start < one.start + len(one.quote)


def _kept(held: Sequence[Proposal], message: str) -> Iterator[Proposal]:
    """Without what the user takes back with his next words: "nah, forget it, tview stays"."""
    if not _talk("answer", "back").search(message[:300]) or len(message) > 300:
        yield from held
        return
    words = set(about(message).split())
    short = len(message.split()) <= 6
    for one in held:
        if not short and not words & set(about(one.text).split()):
            yield one


def _to_what(one: Found, refused: Refused | None) -> Found:
    if one.rule != "reason" or refused is None:
        return one
    return one._replace(text=shortened(f"Rejected {_brief(refused.what)}: {one.text}"))


def _why(step: Refused) -> Iterator[Proposal]:
    """What the user said to a call that he did not allow. Short words are one reason; long ones are looked through. He had it
    stopped for that: whatever else it may be, it is how it must be, and not merely how it is."""
    at, words = step.result.at, " ".join(step.words.split())
    found = said(step.words, at, refused=True, first=True)
    if len(words) <= TEXT and (found or _tells_why(words)) and (quote := work.quoted(step.result, step.words)):
        kind, text = found[0].type if found else "rejection", worded(words, at)
        if not found or found[0].rule == "reason":
            kind, text = "rejection", shortened(f"Rejected {_brief(step.what)}: {text}")
        yield Proposal(_as_reason(kind), text, step.result.seq, quote, author="user", confidence=0.85)
        return
    for one in found:
        if quote := work.quoted(step.result, one.quote):
            sure = min(0.9, one.sure + 0.1)
            yield Proposal(_as_reason(one.type), one.text, step.result.seq, quote, author="user", confidence=sure)


def _tells_why(words: str) -> bool:
    """More than that it is to stop, or to wait."""
    return len(words.split()) >= 4 and not words.endswith("?") and not _talk("answer", "later").search(words)


def _as_reason(kind: str) -> str:
    return "constraint" if kind in ("finding", "hypothesis", "evidence") else kind


def _brief(what: str) -> str:
    line = what.split("\n", maxsplit=1)[0]
    return what if what == "the plan" else f"`{shortened(line, 80)}`"


def _proposed(one: Found, place: Said) -> Proposal:
    return Proposal(one.type, one.text, place.seq, one.quote, author="user", confidence=one.sure)


def _tested(one: Found, steps: Sequence[Step], n: int) -> Found:
    """A hypothesis that the model's work confirmed or refuted before the user spoke again."""
    if one.type != "hypothesis":
        return one
    for step in steps[n + 1 :]:
        if isinstance(step, Prompt):
            break
        if isinstance(step, Reply):
            head = step.said.text[:400]
            if _talk("reply", "refuted").search(head):
                return one._replace(type="finding", text=shortened(f"Ruled out: {one.text}"), sure=0.6)
            if _talk("reply", "confirmed").search(head):
                return one._replace(type="finding", sure=0.8)
    return one


# -- what the model found out


def _causes(steps: Sequence[Step]) -> Iterator[Proposal]:
    """What the model found out; not if the user says at once that it is wrong."""
    for one in spoken(steps):
        if _talk("answer", "no").match(one.after):
            continue
        place = one.reply.said
        for sentence, kind in one.kept():
            text = worded(sentence.text, place.at)
            sure = 0.5 if kind.keep < 2 else 0.6
            yield Proposal(kind.type, text, place.seq, sentence.quote, author="agent", confidence=sure)


class Spoken(NamedTuple):
    """Words of the model where they stand. `before`, `after`: the user's; `did`, `then`: what the model did between, a letter
    each (see weigh.Around); `cause`: the sentence that a rule takes for a reason."""

    reply: Reply
    before: str
    after: str
    did: str
    then: str
    cause: str

    def marks(self) -> Iterator[tuple[Sentence, frozenset[str]]]:
        """For each sentence; what the weights are learnt from, too."""
        own = sentences(self.reply.said.text[:_LOOK])[:_MANY]
        for n, one in enumerate(own):
            cause = bool(self.cause) and one.quote == self.cause
            yield one, of_model(own, n, Within(self.before, self.after, self.did, self.then), found=cause)

    def kept(self) -> list[tuple[Sentence, Weighed]]:
        each = [(one, weighed("model", marks)) for one, marks in self.marks()]
        heavy = [(one, kind) for one, kind in each if kind.keep >= MODEL and len(one.text) <= TEXT and not _suggests(one)]
        return sorted(heavy, key=lambda pair: (-pair[1].keep, pair[0].start))[:_FEW]


def _suggests(one: Sentence) -> bool:
    return _talk("reply", "suggests").search(plain(one.text)) is not None


def spoken(steps: Sequence[Step]) -> Iterator[Spoken]:
    """What the user guessed himself is proposed in his words, see `_tested`: then no cause of the model's."""
    before, guessed, did = "", False, ""
    for n, step in enumerate(steps):
        if isinstance(step, Prompt):
            before, did = step.said.text, ""
            guessed = any(one.type == "hypothesis" for one in said(before))
        elif isinstance(step, Reply) and not step.known:
            wanted = _talk("answer", "wanted").search(before[:2000]) is not None
            found = None if guessed else _cause(step.said, wanted=wanted)
            then, after = _then(steps[n + 1 :])
            yield Spoken(step, before, after, did, then, found[1] if found else "")
        did = (did + _letter(step))[-8:]


def _then(steps: Sequence[Step]) -> tuple[str, str]:
    """What is done until the user speaks again, and what he says."""
    done = ""
    for step in steps:
        if isinstance(step, Prompt):
            return done, step.said.text
        done = (done + _letter(step))[:8]
    return done, ""


def _letter(step: Step) -> str:
    return "A" if isinstance(step, Reply) else "R" if isinstance(step, Ran) else "E" if isinstance(step, Edited) else ""


def _cause(place: Said, *, wanted: bool) -> tuple[Said, str] | None:
    for sentence in sentences(place.text[:6000]):
        words = plain(sentence.text)
        told = _talk("reply", "cause").search(words) or (wanted and _talk("reply", "because").search(words))
        if told and not _talk("reply", "unsure").search(words) and len(sentence.text) <= 240:
            return place, sentence.quote
    return None


# -- once each


def _once(found: Iterable[Proposal], tasks: Sequence[TaskGiven]) -> Iterator[Proposal]:
    """The same again is more evidence for the first (M7); what the task knows already is not proposed again."""
    known = {(kind, normal(text)) for task in tasks[:1] for kind, text in task.insights}
    kept: list[Proposal] = []
    for one in found:
        if (one.type, normal(one.text)) in known or not one.text.strip():
            continue
        again = next((n for n, other in enumerate(kept) if _alike(one, other)), None)
        if again is None:
            kept.append(one)
        elif (one.seq, one.quote) != (kept[again].seq, kept[again].quote):
            kept[again] = kept[again]._replace(more=(*kept[again].more, (one.seq, one.quote))[:5])
    yield from kept


def _alike(one: Proposal, other: Proposal) -> bool:
    if one.type != other.type and not {one.type, other.type} <= {
        "constraint",
        "preference",
        "correction",
        "decision",
        "procedure",
    }:
        return False
    if (one.seq, one.quote) == (other.seq, other.quote) and one.type == other.type:
        return True
    a, b = _set(one.text), _set(other.text)
    return bool(a and b) and len(a & b) >= _SAME * max(len(a), len(b))


def _set(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w./-]+", text.lower()))


def _most(found: Iterable[Proposal]) -> list[Proposal]:
    kept = list(found)
    best = sorted(range(len(kept)), key=lambda n: (kept[n].author != "user", -kept[n].confidence, -n))[:MOST]
    return [kept[n] for n in sorted(best)]


def _task(one: Proposal, tasks: Sequence[TaskGiven]) -> str:
    if len(tasks) <= 1:
        return tasks[0].id if tasks else ""
    words = _set(one.text)
    shared = [(len(words & _set(task.title)), -n) for n, task in enumerate(tasks)]
    best = max(shared)
    return tasks[-best[1]].id if best[0] else ""
