"""The default backend: offline and deterministic. It proposes little, but with certainty. rules.toml has its words and patterns.

    a short sentence that the user typed or answered, with a word such as "always"    ─► constraint, or fact
    a command of the project that succeeded                                           ─► procedure; a note from two sessions on

It proposes nothing else. Pastes, questions, orders for this task and an agent's words make no notes, but they can be searched. To
understand a conversation takes a model.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from dreamkeep.dream.backends import steps as work
from dreamkeep.dream.backends.api import Answer, Given, GivenMessage, Proposal, TaskGiven
from dreamkeep.dream.backends.rules.dates import resolved
from dreamkeep.dream.backends.steps import AnswerStep, CommandStep, PromptStep, RefusalStep, Step
from dreamkeep.memory.insight import AGENT, CONSTRAINT, FACT, PROCEDURE, USER, normalise
from dreamkeep.session.reading.origin import TYPED, HeardWords, split_origins

#: The most proposals from one session; nobody says more in one.
MOST = 50
#: Limits of a standing sentence: the most characters, the most words, the least words.
LONGEST, _MOST_WORDS, _LEAST_WORDS = 220, 40, 3
#: A longer message counts as pasted.
_LONGEST_MESSAGE = 20_000
_LONGEST_COMMAND = 120

Redact = Callable[[str], str]


class Rules:
    """`redact`: removes secrets from a text (M12)."""

    name = "rules"

    def __init__(self, redact: Redact | None = None) -> None:
        self._redact = redact or (lambda text: text)

    def backfill(self, given: Given) -> Answer:
        if is_subagent(given):
            return Answer()
        steps = work.steps(given)
        found = [*_propose_own_words(steps, given), *_propose_commands(steps, given.cwd)]
        clean = [one._replace(text=self._redact(one.text)) for one in found]
        once = list(_merge_repeated(clean, given.tasks))
        more = len(once) - MOST
        return Answer(tuple(once[:MOST]), dropped={f"more than {MOST} of one session": more} if more > 0 else {})


def is_subagent(given: Given) -> bool:
    """Whether its prompts are another model's words. (If only lineage shows that, the caller leaves such sessions out.)"""
    return "/agent-" in given.session


def _merge_repeated(found: Iterable[Proposal], tasks: Sequence[TaskGiven]) -> Iterator[Proposal]:
    """Merges equal proposals: a repeated one is more evidence for the first (M7). Leaves out what the task has already."""
    known = {(kind, normalise(text)) for task in tasks[:1] for kind, text in task.insights}
    kept: dict[tuple[str, str], Proposal] = {}
    for one in found:
        key = one.type, normalise(one.text)
        if key in kept:
            first = kept[key]
            kept[key] = first._replace(more=(*first.more, (one.seq, one.quote))[:5])
        elif key not in known:
            kept[key] = one
    yield from kept.values()


# -- what the user said


class Standing(NamedTuple):
    """A sentence that holds beyond its task: `quote` as in the message, `text` as a note puts it."""

    type: str
    text: str
    quote: str


class OwnWords(NamedTuple):
    """The user's own words in a message."""

    words: str
    message: GivenMessage
    known: bool


def _propose_own_words(steps: Sequence[Step], given: Given) -> Iterator[Proposal]:
    """Proposals from what the user said, unless his next words take it back."""
    own: dict[str, list[OwnWords]] = {}
    for step in steps:
        if (words := _find_own_words(step)) is not None:
            own.setdefault(words.message.seq, []).append(words)
    heard = HeardWords()
    pending: list[Proposal] = []
    for message in (message for turn in given.turns for message in turn.messages):
        for words in own.get(message.seq, ()):
            if not _takes_back(words.words):
                yield from pending
            pending = [] if words.known else list(_propose_standing(words, heard))
        if message.role in ("assistant", "tool"):
            heard.add(message.text)
    yield from pending


def _find_own_words(step: Step) -> OwnWords | None:
    if isinstance(step, PromptStep):
        return OwnWords(step.said.text, step.said, step.known)
    if isinstance(step, AnswerStep):
        return OwnWords(step.answer, step.result, step.known)
    return OwnWords(step.words, step.result, step.known) if isinstance(step, RefusalStep) and step.words else None


def _propose_standing(own: OwnWords, heard: HeardWords) -> Iterator[Proposal]:
    """The quote is looked up in the message: in a tool's result the characters of an answer may be escaped."""
    for sentence in standing(own.words, own.message.at, heard.has):
        if quote := work.quoted(own.message, sentence.quote):
            yield Proposal(sentence.type, sentence.text, own.message.seq, quote, author=USER, confidence=0.9)


def _takes_back(words: str) -> bool:
    return len(words) <= 300 and _pattern("back", "any").search(words.lower()) is not None


def standing(message: str, at: str | None = None, heard: Callable[[str], bool] = lambda piece: False) -> list[Standing]:
    """The standing sentences in a user's message of the time `at`. `heard`: whether an agent or a tool said something before."""
    if len(message) > _LONGEST_MESSAGE:
        return []
    typed = [message[span.start : span.end] for span in split_origins(message, heard) if span.origin == TYPED]
    quotes = [quote for text in typed for quote in _split_sentences(_QUOTED.sub(_blank_quoted, text)) if _is_standing(quote)]
    return [Standing(_find_type(quote), _phrase(quote, at), quote) for quote in quotes]


_ITEM = re.compile(r"\s*[-*•+–]\s+")
#: A numbered step of this task, a quotation, or a line that is indented as code.
_NOT_OWN_LINE = re.compile(r" {4}|\t|\s*(?:\(?\d{1,2}[.)]\s|[>|])")
_RULE = re.compile(r"\s*(?:-{3,}|={3,}|\*{3,}|_{3,}|~{3,})\s*$")
#: The end of a sentence: after a full stop, but not after "e.g." or a single letter.
_END = re.compile(r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\b\w\.)(?<!\betc\.)(?<!\bvs\.)(?<=[.!?])[)\"'”]?\s+|(?<=[。！？])")
#: A text in quotation marks is somebody else's, or the subject of the sentence. The last one may be unclosed.
_QUOTED = re.compile(r"""["“”„«「『][^"“”„«»」』]{3,2000}(?:["“”»」』]|\Z)|(?<!\w)['‘](?=\w)[^\n]{12,1000}?[.,!?\w]['’](?!\w)""")
#: Replaces such a text; a sentence with it is never kept.
_BLANK = "\N{OBJECT REPLACEMENT CHARACTER}"


def _blank_quoted(quoted: re.Match[str]) -> str:
    """Blanks of the same length. Up to three words in quotation marks, such as a name, stay."""
    return quoted[0] if len(quoted[0].split()) < 4 else _BLANK * len(quoted[0])


def _split_sentences(text: str) -> Iterator[str]:
    """The user's own sentences. A line ends a sentence, unless it is long and clearly goes on in the next line. Left out: a block
    after a line that ends with a colon, unless that line announces rules; and text between two horizontal rules ("---")."""
    led = foreign = ruled = False
    for line in _join_lines(text):
        if not line.strip():
            foreign = foreign and led
            continue
        ruled = ruled != (_RULE.match(line) is not None)
        if not foreign and not ruled and not _NOT_OWN_LINE.match(line):
            yield from (piece.strip() for piece in _END.split(line[_find_item_end(line) :]) if piece and piece.strip())
        led = line.rstrip().endswith((":", "："))
        foreign = foreign or (led and not _leads_to_rules(line))


def _leads_to_rules(line: str) -> bool:
    plain = _normalise(line)
    return _pattern("rules", "any").search(plain) is not None and not _pattern("never", "others").search(plain)


def _join_lines(text: str) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        goes_on = bool(lines) and len(lines[-1]) > 60 and lines[-1].rstrip()[-1:].isalnum() and line.lstrip()[:1].islower()
        if goes_on and not _ITEM.match(line) and not _NOT_OWN_LINE.match(line):
            lines[-1] += line
        else:
            lines.append(line)
    return lines


def _find_item_end(line: str) -> int:
    found = _ITEM.match(line)
    return found.end() if found else 0


def _is_standing(sentence: str) -> bool:
    plain = _normalise(sentence)
    if not plain or _BLANK in plain or len(plain) > LONGEST or len(plain.split()) > _MOST_WORDS or _is_short(plain):
        return False
    if any(_pattern("never", name).search(plain) for name in ("now", "unsure", "others", "hangs")):
        return False
    return any(_is_standing_in(plain, language) for language in _load_table()["standing"])


def _is_standing_in(plain: str, language: str) -> bool:
    if not _pattern("standing", language, "any").search(plain):
        return False
    unless = "unless" in _load_table()["standing"][language]
    return not (unless and _pattern("standing", language, "unless").search(plain))


_UNSPACED = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")


def _is_short(plain: str) -> bool:
    """Whether it has too few words; in scripts without spaces, too few characters."""
    return len(plain) < 6 if _UNSPACED.search(plain) else len(plain.split()) < _LEAST_WORDS


def _normalise(sentence: str) -> str:
    """As the patterns expect it: without a lead such as "ok so", in lower case, with straight apostrophes."""
    flat = " ".join(sentence.split()).replace("’", "'").lower().rstrip(".!。！ ")
    return _pattern("lead", "any").sub("", flat)


def _find_type(sentence: str) -> str:
    """What the user only wants to be remembered is a fact; everything else is a constraint."""
    return FACT if _pattern("remember", "any").match(_normalise(sentence)) else CONSTRAINT


def _phrase(quote: str, at: str | None) -> str:
    """One line, without a lead such as "ok so", and with words for days turned into dates."""
    flat = " ".join(quote.split())
    cut = _pattern("lead", "any").match(flat.lower())
    flat = flat[cut.end() :] if cut else flat
    text = resolved(flat, at)
    return text[:1].upper() + text[1:] if re.match(r"[a-zäöüéà]+\b(?![./_:@-]\w)", text) else text


# -- commands


_TEXTS = {
    "test": "Tests run with",
    "build": "It builds with",
    "lint": "The linter runs with",
    "typecheck": "Types are checked with",
    "format": "Code is formatted with",
    "migrate": "The database is migrated with",
    "deploy": "It is deployed with",
}


def _propose_commands(steps: Sequence[Step], cwd: str) -> Iterator[Proposal]:
    """For each kind, program and folder: the shortest command that worked. A project's own script wins over other programs."""
    best = _find_shortest_commands(steps, cwd)
    scripted = {(kind, folder) for kind, program, folder in best if _is_project_script(program)}
    for (kind, program, folder), (command, step) in best.items():
        if step.known or ((kind, folder) in scripted and not _is_project_script(program)):
            continue
        text = f"{_TEXTS[kind]} `{command}`{f' in `{folder}`' if folder else ''}."
        quote = step.command[:300].partition("\n")[0]
        yield Proposal(PROCEDURE, text, step.call.seq, quote, author=AGENT, confidence=0.6)


def _find_shortest_commands(steps: Sequence[Step], cwd: str) -> dict[tuple[str, str, str], tuple[str, CommandStep]]:
    """By (kind, program, folder). Of two that are equally short the later one."""
    best: dict[tuple[str, str, str], tuple[str, CommandStep]] = {}
    succeeded = [one for one in steps if isinstance(one, CommandStep) and one.failed is False and one.result is not None]
    for step, command in ((one, command) for one in succeeded for command in parts(one.key)):
        kind = kind_of(command)
        if not kind or is_narrow(command) or len(command) > _LONGEST_COMMAND:
            continue
        key = kind, program_of(command), work.folder_in(step.command, cwd)
        if key not in best or len(command) <= len(best[key][0]):
            best[key] = command, step
    return best


_SIGN = re.compile(r"""&&|;|\|\||\||["']""")


def parts(key: str) -> list[str]:
    """The commands of a line that succeeded, if it is certain that all of them did; else none. Quoted text is skipped."""
    found, start, quote = [], 0, ""
    for sign in _SIGN.finditer(key):
        if sign[0] in ("'", '"'):
            quote = "" if quote == sign[0] else quote or sign[0]
        elif not quote and sign[0] != "&&":
            return []
        elif not quote:
            found.append(key[start : sign.start()])
            start = sign.end()
    each = [one.strip() for one in (*found, key[start:]) if one.strip()]
    return [] if any(one.startswith("cd ") for one in each) else each


def kind_of(command: str) -> str:
    """test, build, lint …; "" for any other command."""
    inner = _unwrap(command)
    if _pattern("look", "only").match(inner) or _pattern("handles", "only").match(inner):
        return ""
    called = (inner, _pattern("starts", "only").sub("", inner, count=1))
    named = next((kind for words in called for kind in _load_table()["commands"] if _pattern("commands", kind).match(words)), "")
    if named == "build" and _pattern("outward", "only").match(inner):
        return ""
    words = [word.rpartition("/")[2].partition(":")[0] for word in inner.split()[:4] if not word.startswith("-")]
    return named or next((kind for word in words for kind, names in _load_table()["says"].items() if word in names), "")


def program_of(command: str) -> str:
    """The program that does the work: `pytest`, also if it is started by `python -m` or `uv run`."""
    started = _pattern("starts", "only").sub("", _unwrap(command), count=1)
    return (started.split() or [command])[0].rpartition("/")[2]


#: The program without its arguments: `python manage.py test` tests everything, though it names a file.
_PROGRAM = re.compile(
    r"^(?:python[\d.]{0,5} (?:-\w{1,9} ){0,3}[\w./-]{0,60}?\b(?:manage|setup|runtests|run_tests|tasks|build|make)\.py|\S+)"
)


def is_narrow(command: str) -> bool:
    """Whether it is for one file, one test or one package only; or a dry run."""
    arguments = _PROGRAM.sub("", _pattern("starts", "only").sub("", _unwrap(command), count=1), count=1)
    return _pattern("narrow", "only").search(f" {arguments}") is not None


def _unwrap(command: str) -> str:
    """The command without what runs it in a container or as another user: `docker compose run --rm api pytest` → `pytest`."""
    return _pattern("around", "only").sub("", command, count=1) or command


def _is_project_script(program: str) -> bool:
    """A project's own way to call other programs, such as `make`: where it has one, nobody calls the others by hand."""
    return _pattern("own", "only").fullmatch(program) is not None


# -- the data


@cache
def _load_table() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("rules.toml").read_text(encoding="utf-8"))


@cache
def _pattern(*path: str) -> re.Pattern[str]:
    """A list of patterns as one pattern, for a single sentence or command. Names in braces refer to the table `[words]`."""
    listed: Any = _load_table()
    for name in path:
        listed = listed[name]
    words = _load_table()["words"]
    return re.compile("|".join(f"(?:{re.sub(r'{([a-z]+)}', lambda found: words[found[1]], one)})" for one in listed))
