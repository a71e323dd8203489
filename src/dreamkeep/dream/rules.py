"""The default backend: offline, deterministic, by rules. What it knows of words is in data/*.toml.

It prefers to say nothing: an insight that was missed is in the session still, a false one is in everybody's way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from dreamkeep.dream import lexicon, rules_work, work
from dreamkeep.dream.given import Answer, Given, Proposal, Said, TaskGiven
from dreamkeep.dream.rules_said import TEXT, Found, said, shortened, worded
from dreamkeep.dream.sentences import plain, sentences
from dreamkeep.dream.work import Prompt, Refused, Reply, Step
from dreamkeep.memory.insight import normal

#: Of one session; the surest.
MOST = 60
_SAME = 0.8
_WORDS = re.compile(r"[A-Za-z0-9_][\w./@:+#-]*[\w]|`[^`]+`|\w")
_YES = re.compile(
    r"^\W*(?:yes|yep|yeah|yup|sure|ok(?:ay)?|please do|do (?:it|that)|go ahead|go for it|sounds good|agreed|correct|exactly|absolutely|definitely|of course|👍)\b",
    re.IGNORECASE,
)
_NO = re.compile(r"^\W*(?:no|nope|nah|please don.?t|don.?t|rather not|i.?d rather not|not really)\b", re.IGNORECASE)
_LATER = re.compile(r"\b(?:now|yet|later|today|tomorrow|first|maybe|wait|hold)\b", re.IGNORECASE)
_CHOICE = r"use|keep|store|drop support for|stick with|go with|switch to|standardi[sz]e on|adopt|base (?:it|this) on|pin|require|rely on|target|support|default to|treat|model|name|call|split|make (?:it|the|this|them)"
_OFFER = re.compile(
    rf"\b(?:should|shall|do you want (?:me|us)|would you like (?:me|us)|want (?:me|us)|would you prefer)\s+(?:i|we|me|us|to|it|that)?\s*(?:to )?((?:{_CHOICE})\b[^?]{{4,160}})\?",
    re.IGNORECASE,
)
_PICK = re.compile(r"\b([^?.!\n]{3,160}?\bor\b[^?\n]{2,120})\?")
_OPTION = re.compile(
    r"(?:^|[\s(])(?:option |variant |approach )?\(?([a-dA-D1-5])[).:]\s+(.{4,200}?)(?=$|[;\n]|,? (?:or |and )?\(?(?:option )?[a-dA-D1-5][).:]\s)",
    re.MULTILINE,
)
_NAMED = re.compile(
    r"^\W*(?:(?:let.?s |please |ok,? |i.?d |we.?ll )*(?:go (?:with|for)|take|pick|do|use|choose|prefer)?\s*)?(?:option|variant|approach|plan|number|#)?\s*\(?([a-d1-5])\)?(?:\W|$)",
    re.IGNORECASE,
)
_CONFIRMED = re.compile(r"\b(?:confirmed|you (?:were|are) right|that was it|that(?: is|'s) it|indeed|verified)\b", re.IGNORECASE)
_REFUTED = re.compile(
    r"\b(?:not the (?:cause|reason|culprit|problem)|ruled out|refuted|does(?: not|n't) (?:hold|explain)|was(?: not|n't) (?:the|it)|is(?: not|n't) the (?:cause|reason|culprit|problem)|unrelated)\b",
    re.IGNORECASE,
)
_BACK = re.compile(r"\b(?:forget (?:it|that|about (?:it|that))|scratch that|never ?mind|nvm|on second thought|no wait|ignore (?:that|what i (?:said|wrote))|take (?:that|it) back|i take (?:that|it) back|undo that|bad idea|stupid idea)\b", re.IGNORECASE)
_WANTED = re.compile(r"\b(?:why|find out|look into|investigat\w+|check (?:if|whether|that)|verify|can you (?:look|check)|where does|what causes|is it that|is that it|slow|lags|guess|suspect\w*|suspicion|hunch|theory|hypothesis|figure out|debug|track down|shown)\b|\bfix\b|\beats\b", re.IGNORECASE)
_CAUSE = re.compile(r"\broot cause\b|\b(?:is|was|are|were)(?: not| n.t)? the (?:\w+ )?(?:cause|reason|culprit)\b|\b(?:the|its) (?:\w+ )?(?:cause|reason|culprit) (?:is|was)\b|^(?:so |yes,? |no,? |indeed,? )*(?:it|that) (?:was|is) (?:not )?(?:the|a|an) [\w .-]{2,40}[:;,]|\b(?:is|was|are|were) not to blame\b|\b(?:is|was|are) ruled out\b|\b(?:is|was) to blame\b|^confirmed ?[:,]")
_BECAUSE = re.compile(r"\b(?:caused|triggered) by\b|\beven (?:when|though|if) (?:no|nothing|the)\b|\b(?:fails?|failed|happens?|happened|breaks|broke|crash\w*|lost|spent|slow|dropped?|missing|wrong)\b.{0,60}\bbecause\b|\b(?:has|have|had) (?:no|nothing)\b|\bnothing is\b|\bcan not use\b|\b(?:made|compiled|loaded|built|read|computed|opened) anew\b|\b\d[\d.,]*(?: ?%| of the [\d.]+) .{0,40}\b(?:spent|is|are|goes|go)\b")
_MEASURED = re.compile(r"\bfrom \d[\d.,]* ?\w+ to \d|\d[\d.,]* ?\w+ before,? .{0,20}\d[\d.,]* ?\w+ after|\d[\d.,]* ?(?:ms|s|sec|seconds|minutes|mb|gb|kb|%) instead of \d")
_UNSURE = re.compile(r"\?$|\b(?:maybe|perhaps|might|could|probably|likely|i (?:think|is it that|is that it|slow|lags|guess|suspect|would|could)|should|would)\b")

Redact = Callable[[str], str]


class Rules:
    """`redact`: what takes secrets out of a text (M12)."""

    name = "rules"

    def __init__(self, redact: Redact | None = None) -> None:
        self._redact = redact or (lambda text: text)

    def backfill(self, given: Given) -> Answer:
        if is_subagent(given):
            return Answer()
        steps = work.steps(given)
        found = chain(
            _words(steps),
            _offers(steps),
            rules_work.answers(steps),
            rules_work.plans(steps),
            rules_work.fixes(steps),
            rules_work.commands(steps),
            rules_work.commits(steps),
            _causes(steps),
            rules_work.left_open(steps) if given.chunk[0] == given.chunk[1] else (),
        )
        clean = (one._replace(text=shortened(self._redact(one.text)), task=_task(one, given.tasks)) for one in found)
        return Answer(tuple(_most(_once(clean, given.tasks))))


def is_subagent(given: Given) -> bool:
    """Its prompts are another model's words. (Where only lineage tells, who gives the turns leaves such sessions out.)"""
    return "/agent-" in given.session


# -- what the user said


def _words(steps: Sequence[Step]) -> Iterator[Proposal]:
    """What was said stays until the user speaks again: he may take it back."""
    refused: Refused | None = None
    held: list[Proposal] = []
    reply, first = "", True
    for n, step in enumerate(steps):
        if isinstance(step, Reply):
            reply = step.said.text
        elif isinstance(step, Refused) and not step.known:
            held += _why(step)
            refused = step if not step.words else None
        elif isinstance(step, Prompt):
            yield from _kept(held, step.said.text)
            held = []
            if not step.known:
                found = said(step.said.text, step.said.at, refused=refused is not None, reply=reply, first=first)
                held = [_proposed(_tested(_to_what(one, refused), steps, n), step.said) for one in found]
            refused, reply, first = None, "", False
    yield from held


def _kept(held: Sequence[Proposal], message: str) -> Iterator[Proposal]:
    """Without what the user takes back with his next words: "nah, forget it, tview stays"."""
    if not _BACK.search(message[:300]) or len(message) > 300:
        yield from held
        return
    words = set(_about(message).split())
    short = len(message.split()) <= 6
    for one in held:
        if not short and not words & set(_about(one.text).split()):
            yield one


def _to_what(one: Found, refused: Refused | None) -> Found:
    if one.rule != "reason" or refused is None:
        return one
    return one._replace(text=shortened(f"Rejected {_brief(refused.what)}: {one.text}"))


def _why(step: Refused) -> Iterator[Proposal]:
    """What the user said to a call that he did not allow. Short words are one reason; long ones are looked through."""
    at, words = step.result.at, " ".join(step.words.split())
    found = said(step.words, at, refused=True, first=True)
    if not found:
        return
    if len(words) <= TEXT and (quote := work.quoted(step.result, step.words)):
        text = worded(words, at)
        if found[0].rule == "reason":
            text = shortened(f"Rejected {_brief(step.what)}: {text}")
        yield Proposal("correction", text, step.result.seq, quote, author="user", confidence=0.85, about=_about(text))
        return
    for one in found:
        if quote := work.quoted(step.result, one.quote):
            sure = min(0.9, one.sure + 0.1)
            yield Proposal(one.type, one.text, step.result.seq, quote, author="user", confidence=sure, about=_about(one.text))


def _brief(what: str) -> str:
    line = what.split("\n", maxsplit=1)[0]
    return what if what == "the plan" else f"`{shortened(line, 80)}`"


def _proposed(one: Found, place: Said) -> Proposal:
    return Proposal(one.type, one.text, place.seq, one.quote, author="user", confidence=one.sure, about=_about(one.text))


def _tested(one: Found, steps: Sequence[Step], n: int) -> Found:
    """A hypothesis that the model's work confirmed or refuted before the user spoke again."""
    if one.type != "hypothesis":
        return one
    for step in steps[n + 1 :]:
        if isinstance(step, Prompt):
            break
        if isinstance(step, Reply):
            head = step.said.text[:400]
            if _REFUTED.search(head):
                return one._replace(type="finding", text=shortened(f"Ruled out: {one.text}"), sure=0.6)
            if _CONFIRMED.search(head):
                return one._replace(type="finding", sure=0.8)
    return one


def _about(text: str) -> str:
    stop = set(lexicon.table("said")["text"]["stop"])
    found: list[str] = []
    for word in _WORDS.findall(text):
        bare = word.strip("`'").lower()
        if bare not in stop and len(bare) > 2 and bare not in found:
            found.append(bare)
    return " ".join(found[:6])


# -- what the model offered, and the user took or not


def _offers(steps: Sequence[Step]) -> Iterator[Proposal]:
    reply: Reply | None = None
    for step in steps:
        if isinstance(step, Reply):
            reply = step
        elif isinstance(step, Prompt):
            if reply is not None and not step.known and len(step.said.text) <= 300:
                yield from _taken(reply.said, step.said)
            reply = None


def _taken(offer: Said, answer: Said) -> Iterator[Proposal]:
    words = answer.text.strip()
    first = words.split("\n")[0][:200]
    tail = offer.text[-1500:]
    if (named := _NAMED.match(first)) and len(first.split()) <= 8 and not _LATER.search(first):
        options = {label.lower(): text for label, text in _OPTION.findall(tail)}
        if len(options) > 1 and (chosen := options.get(named[1].lower())):
            yield _decided(f"Chosen: {chosen.strip()}", offer, answer, first, chosen)
            return
    asked = _OFFER.search(tail)
    if asked and not _LATER.search(first) and len(first.split()) <= 14 and "?" not in first:
        what = worded(asked[1], answer.at)
        if _YES.match(first):
            yield _decided(what, offer, answer, first, asked[0])
        elif _NO.match(first) and not said(words):
            yield _decided(f"Not wanted: {what[:1].lower()}{what[1:]}", offer, answer, first, asked[0], kind="rejection")
        return
    yield from _picked(tail, offer, answer, first)


def _picked(tail: str, offer: Said, answer: Said, first: str) -> Iterator[Proposal]:
    """ "Postgres or SQLite?" — "sqlite"."""
    questions = _PICK.findall(tail)
    bare = first.strip(" .!,")
    if (
        not questions
        or not 0 < len(bare.split()) <= 4
        or said(answer.text)
        or _YES.match(bare)
        or _NO.match(bare)
        or "?" in first
    ):
        return
    question = questions[-1].strip()
    if bare.lower() not in question.lower() or len(bare) < 3 or rules_work._PROCEDURAL.search(question):
        return
    yield _decided(f"{question[:1].upper()}{question[1:]}? {bare}", offer, answer, first, question)


def _decided(text: str, offer: Said, answer: Said, quote: str, offered: str, kind: str = "decision") -> Proposal:
    more = ((offer.seq, offered),) if offered in offer.text else ()
    return Proposal(kind, shortened(text), answer.seq, quote, author="user", confidence=0.75, about=_about(text), more=more)


# -- what the model found out


def _causes(steps: Sequence[Step]) -> Iterator[Proposal]:
    """What the model says was the reason, where the user wanted to know; not if he says at once that it is wrong."""
    found: tuple[Said, str] | None = None
    wanted = guessed = False
    for step in [*steps, None]:
        if isinstance(step, Reply):
            # What the user guessed himself is proposed in his words, see `_tested`.
            found = found or (None if step.known or guessed else _cause(step.said, wanted=wanted))
        elif step is None or isinstance(step, Prompt):
            if found is not None and not (step is not None and _NO.match(step.said.text)):
                place, quote = found
                text = worded(quote, place.at)
                yield Proposal("finding", text, place.seq, quote, author="agent", confidence=0.5, about=_about(quote))
            found = None
            wanted = step is not None and _WANTED.search(step.said.text[:2000]) is not None
            guessed = step is not None and any(one.type == "hypothesis" for one in said(step.said.text))


def _cause(place: Said, *, wanted: bool) -> tuple[Said, str] | None:
    for sentence in sentences(place.text[:6000]):
        words = plain(sentence.text)
        told = _CAUSE.search(words) or _MEASURED.search(words) or (wanted and _BECAUSE.search(words))
        if told and not _UNSURE.search(words) and len(sentence.text) <= 240:
            return place, sentence.quote
    return None


# -- once each


def _once(found: Iterable[Proposal], tasks: Sequence[TaskGiven]) -> Iterator[Proposal]:
    """The same again is more evidence for the first (M7); what the task knows already is not proposed again."""
    known = {(kind, normal(text)) for task in tasks for kind, text in task.insights}
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
    best = sorted(range(len(kept)), key=lambda n: (-kept[n].confidence, n))[:MOST]
    return [kept[n] for n in sorted(best)]


def _task(one: Proposal, tasks: Sequence[TaskGiven]) -> str:
    if len(tasks) <= 1:
        return tasks[0].id if tasks else ""
    words = _set(one.text)
    shared = [(len(words & _set(task.title)), -n) for n, task in enumerate(tasks)]
    best = max(shared)
    return tasks[-best[1]].id if best[0] else ""
