"""What was done → what it shows: commands that work here, failures and their fixes, plans, answers, what is left open. Pure.

Of a tool's output a note says only how a command ended: the kind of the error in our own words (tools.error_kind), or the exit
code. The output itself is quoted as evidence, and never worded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from dreamkeep.dream import lexicon, work
from dreamkeep.dream.given import Proposal, Said
from dreamkeep.dream.sentences import plain, sentences
from dreamkeep.dream.worded import TEXT, shortened, worded
from dreamkeep.dream.work import Answered, Approved, Committed, Edited, Ran, Refused, Reply, Step, Todos
from dreamkeep.session import tools

Own = Callable[[str], bool]
_COMMAND = 120
_PATH = 60
_WHY = 110
#: Of a path: a name with other signs in it may be a sentence, and is left out.
_SHAPE = re.compile(r"[\w@.+~=,()\[\]{}$#%/\\-]{1,200}")


def _talk(part: str, name: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    return lexicon.pattern("talk", part, name, flags)


# -- commands


@cache
def _kinds() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((kind, lexicon.any_of(patterns, flags=0)) for kind, patterns in lexicon.table("commands")["commands"].items())


def kind_of(key: str) -> str:
    """test, build, lint …; "" for a command that is none of them."""
    last = _inner(key)
    if is_look(last) or lexicon.pattern("commands", "handles", "only").match(last):
        return ""
    called = (last, lexicon.pattern("commands", "starts", "only").sub("", last, count=1))
    named = next((kind for words in called for kind, pattern in _kinds() if pattern.match(words)), "")
    if named == "build" and lexicon.pattern("commands", "outward", "only").match(last):
        return ""
    if named:
        return named
    said: dict[str, list[str]] = lexicon.table("commands")["says"]
    words = [word.rpartition("/")[2] for word in last.split()[:4] if not word.startswith("-")]
    return next((kind for word in words for kind, names in said.items() if word in names), "")


_SIGN = re.compile(r"""&&|;|\|\||["']""")


def parts(key: str) -> list[str]:
    """The commands in one line; what stands in quotes is not looked into."""
    found, start, quote = [], 0, ""
    for sign in _SIGN.finditer(key):
        if sign[0] in ("'", '"'):
            quote = "" if quote == sign[0] else quote or sign[0]
        elif not quote:
            found.append(key[start : sign.start()])
            start = sign.end()
    return [one.strip() for one in (*found, key[start:]) if one.strip()] or [key]


def _last_part(key: str) -> str:
    return parts(key)[-1]


def _inner(key: str) -> str:
    """What is run in a container or by another's rights: `docker compose run --rm api pytest` tests as `pytest` does."""
    last = _last_part(key)
    inner = lexicon.pattern("commands", "around", "only").sub("", last, count=1)
    return inner or last


def program_of(key: str) -> str:
    """Which one does it in the end: `pytest` also where that is started by `python -m` or `uv run`."""
    started = lexicon.pattern("commands", "starts", "only").sub("", _inner(key), count=1)
    return (started.split() or [key])[0].rpartition("/")[2]


#: What is called, without what it is given: `python manage.py test` tests everything, though a file is named in it.
_PROGRAM = re.compile(
    r"^(?:python[\d.]{0,5} (?:-\w{1,9} ){0,3}[\w./-]{0,60}?\b(?:manage|setup|runtests|run_tests|tasks|build|make)\.py|\S+)"
)


def is_narrow(key: str) -> bool:
    """For one file, one test, one package; or not for real."""
    arguments = _PROGRAM.sub("", lexicon.pattern("commands", "starts", "only").sub("", _inner(key), count=1), count=1)
    return _talk("command", "narrow").search(f" {arguments}") is not None


def is_look(key: str) -> bool:
    return all(lexicon.pattern("commands", "look", "only").match(part) for part in parts(key))


_WORKS = {
    "test": "Tests run with",
    "build": "It builds with",
    "lint": "The linter runs with",
    "typecheck": "Types are checked with",
    "format": "Code is formatted with",
    "migrate": "The database is migrated with",
    "deploy": "It is deployed with",
}


def _is_own(name: str) -> bool:
    """A project's own way to call other programs: what it has one for is not called by hand there."""
    return lexicon.pattern("commands", "own", "only").fullmatch(name) is not None


def commands(steps: Sequence[Step], cwd: str = "") -> Iterator[Proposal]:
    """Of each kind, program and folder the most general command that worked, if none failed behind it."""
    best: dict[tuple[str, str, str], Ran] = {}
    for step in steps:
        if not isinstance(step, Ran) or step.failed is not False or step.result is None:
            continue
        kind = kind_of(step.key)
        if not kind or is_narrow(step.key) or len(step.key) > _COMMAND:
            continue
        way = kind, program_of(step.key), work.folder_in(step.command, cwd)
        if way not in best or len(_last_part(step.key)) <= len(_last_part(best[way].key)):
            best[way] = step
    own = {(kind, folder) for kind, program, folder in best if _is_own(program)}
    for (kind, name, folder), step in best.items():
        if step.known or ((kind, folder) in own and not _is_own(name)):
            continue
        place, quote = _shown(step)
        if quote:
            yield Proposal(
                "procedure",
                f"{_WORKS[kind]} `{step.key}`{f' in `{folder}`' if folder else ''}.",
                place.seq,
                quote,
                author="agent",
                confidence=0.6 if step.exit_code == 0 else 0.5,
            )


def _shown(step: Ran) -> tuple[Said, str]:
    """The command itself where it was called; that is what a reader wants to see."""
    return step.call, step.command[:300].partition("\n")[0]


# -- failures and fixes


def fixes(steps: Sequence[Step], cwd: str = "", own: Own = lambda words: True) -> Iterator[Proposal]:
    """`own`: whether words of the agent are its own, and not a tool's."""
    failed: dict[str, list[Ran]] = {}
    told: set[str] = set()
    for n, step in enumerate(steps):
        if not isinstance(step, Ran) or step.failed is None or is_look(step.key):
            continue
        if step.failed:
            failed.setdefault(step.key, []).append(step)
            continue
        for key in [key for key in failed if _same(key, step.key)]:
            before = failed.pop(key)
            if not step.known and (one := _fixed(steps, before, step, n, cwd, own)) is not None:
                yield _by_its_line(one) if one.quote in told else one
                told.add(one.quote)
        if (one := _otherwise(steps, failed, step, n)) is not None:
            yield one


def _by_its_line(one: Proposal) -> Proposal:
    """The same command failed before, of another cause: what it said tells the two apart (an insight is known by its quote)."""
    (seq, quote), *more = one.more
    return one._replace(seq=seq, quote=quote, more=((one.seq, one.quote), *more))


def _same(failed: str, passed: str) -> bool:
    """The same command, or the same for more: what passes for all passes for one."""
    if failed == passed or _last_part(passed) == failed:
        return True
    narrow = _talk("command", "narrow").sub("", failed).strip()
    return narrow == passed and narrow != failed


def _fixed(steps: Sequence[Step], before: Sequence[Ran], passed: Ran, n: int, cwd: str, own: Own) -> Proposal | None:
    last = before[-1]
    between = [step for step in steps if before[0].n < step.n < passed.n]
    after = [step for step in between if step.n > last.n]
    paths = _paths(after, cwd) or _paths(between, cwd)
    prepared = _prepared(last.key, passed.key) or _ran(after, kind_of(last.key))
    if (not paths and not prepared) or any(
        isinstance(one, Reply) and _talk("reply", "expected").search(one.said.text) for one in between
    ):
        return None
    line = tools.error_line(last.result) if last.result else ""
    shown = work.quoted(last.result, line) if last.result else ""
    # What was given before may not be quoted again.
    place, quote = _shown(passed if last.known else last)
    what = f"editing {', '.join(paths[:3])}{' and more' if len(paths) > 3 else ''}" if paths else f"`{' && '.join(prepared)}`"
    why = _explained([step for step in steps if last.n < step.n < passed.n], steps[n + 1 : n + 4])
    return Proposal(
        "failure_fix",
        _told(last.key, tools.error_kind(last.result, last.exit_code), what, why if why and own(why) else ""),
        place.seq,
        quote,
        author="agent",
        confidence=0.7 if passed.exit_code == 0 or last.exit_code else 0.6,
        more=(*(((last.result.seq, shown),) if last.result and shown else ()), (passed.call.seq, _shown(passed)[1])),
    )


def _told(command: str, kind: str, what: str, why: str) -> str:
    """What mended it is never cut off: rather the reason, then the command."""
    for most in (_COMMAND, 70, 40):
        head = f"`{shortened(command, most)}` failed" + (f" ({kind})" if kind else "")
        found = f"{head}; fixed by {what}"
        if len(found) < TEXT:
            return f"{found}: {why}" if why and len(found) + len(why) + 2 <= TEXT else f"{found}."
    return shortened(f"{found}.")


def _paths(steps: Sequence[Step], cwd: str = "") -> list[str]:
    """As one would name them where the session was; of what lies elsewhere, or deep, the end."""
    found: list[str] = []
    for step in steps:
        if isinstance(step, Edited):
            inside = bool(cwd) and step.path.startswith(f"{cwd.rstrip('/')}/")
            own = step.path[len(cwd.rstrip("/")) + 1 :] if inside else step.path
            name = own if inside and len(own) <= _PATH else "/".join(own.rstrip("/").split("/")[-2:])
            if name not in found and _SHAPE.fullmatch(name):
                found.append(name)
    return found


def _prepared(failed: str, passed: str) -> list[str]:
    """What the passing command does before the one that failed: `docker compose up -d db && make migrate`."""
    each = parts(passed)
    return [" && ".join(each[:-1])] if len(each) > 1 and each[-1] == failed else []


#: Kinds of commands that leave things otherwise than they were.
_CHANGING = ("", "build", "format", "migrate")
#: Of so many commands all may have been needed; of more nobody knows which.
_MENDING = 3


def _ran(steps: Sequence[Step], of: str) -> list[str]:
    """The commands that were run in between, if it can only have been they. `of`: the kind of the one that failed."""
    ran = [step.key for step in steps if isinstance(step, Ran) and step.failed is False]
    done = list(dict.fromkeys(key for key in ran if _changes(key, of)))
    return done if len(done) <= _MENDING and all(len(key) <= _COMMAND for key in done) else []


def _changes(key: str, of: str) -> bool:
    kind = kind_of(key)
    if is_look(key) or kind not in _CHANGING or (kind and kind == of):
        return False
    return all(_mends(part) for part in parts(key))


def _mends(part: str) -> bool:
    return not re.match(r"(?:git|gh|glab)\b", part) or lexicon.pattern("commands", "handles", "mends").match(part) is not None


def _otherwise(steps: Sequence[Step], failed: dict[str, list[Ran]], passed: Ran, n: int) -> Proposal | None:
    """Another way of the same: `pytest` is not there, `python3 -m pytest` is. Only directly behind."""
    kind = kind_of(passed.key)
    if not kind or passed.known:
        return None
    near = [step for step in steps[max(0, n - 4) : n] if isinstance(step, Ran) and step.failed and step.key in failed]
    for step in near:
        if kind_of(step.key) != kind or step.result is None or step.key == passed.key:
            continue
        found = _talk("command", "absent").search(tools.output_of(step.result))
        if found and not _paths([one for one in steps if step.n < one.n < passed.n]):
            line = next((one.strip() for one in tools.output_of(step.result).split("\n") if found[0] in one), found[0])
            shown = work.quoted(step.result, line) or work.quoted(step.result, found[0])
            del failed[step.key]
            if shown:
                kind_of_error = tools.error_kind(step.result, step.exit_code) or "not found"
                text = f"`{step.key}` fails here ({kind_of_error}); `{_last_part(passed.key)}` works."
                place, quote = _shown(passed)
                more = ((step.result.seq, shown),)
                return Proposal("failure_fix", shortened(text), place.seq, quote, author="agent", confidence=0.6, more=more)
    return None


def _explained(between: Sequence[Step], after: Sequence[Step]) -> str:
    """Why it had failed, in the model's words: what it says right after it passed, if that is more than that it passed; else the
    cause that it named before it mended it."""
    told = next((step for step in after if isinstance(step, Reply)), None)
    for step in (told, *reversed(between)):
        if isinstance(step, Reply):
            short = [one.text for one in sentences(step.said.text[:2000]) if len(one.text) <= _WHY]
            causes = [one for one in short if _talk("reply", "cause").search(plain(one))]
            if found := next(iter(causes or ([one for one in short if _tells(one)] if step is told else [])), ""):
                return found
    return ""


def _tells(sentence: str) -> bool:
    """More than that it passes, or how fast."""
    words = plain(sentence)
    if _talk("reply", "passes").search(words) or len(words.split()) < 5:
        return False
    return _talk("reply", "tells").search(words) is not None


# -- commits, plans, answers, lists


def commits(steps: Sequence[Step]) -> Iterator[Proposal]:
    for step in steps:
        if not isinstance(step, Committed) or step.known:
            continue
        words = step.message
        if len(words.split()) < 3 or _talk("command", "trivial").match(words) or not (quote := _in_call(step.call, words)):
            continue
        yield Proposal("evidence", shortened(f"Committed: {words}"), step.call.seq, quote, author="agent", confidence=0.3)


def _in_call(call: Said, words: str) -> str:
    command = tools.command_of((call.tool or {}).get("input"))
    return words if words in command else ""


def refusals(steps: Sequence[Step]) -> Iterator[Proposal]:
    """A command that the user did not allow, and said nothing to it. (What he says is kept in his words; and that an edit was
    refused without a word says only that it was not to be that one.)"""
    for step in steps:
        if not isinstance(step, Refused) or step.known or step.words or not tools.is_kind("shell", step.tool):
            continue
        command = step.what.strip().split("\n", maxsplit=1)[0].strip()
        if len(command.split()) > 1 and (quote := _in_call(step.call, command)):
            text = shortened(f"Not allowed: `{command}`")
            yield Proposal("rejection", text, step.call.seq, quote, author="user", confidence=0.4)


_STEP = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+(?:\[[ x]\]\s*)?(.{4,200}?)\s*$")


def plans(steps: Sequence[Step]) -> Iterator[Proposal]:
    for step in steps:
        if not isinstance(step, Approved) or step.known or not step.plan.strip():
            continue
        lines = step.plan[:6000].split("\n")
        parts = [found[1] for line in lines if (found := _STEP.match(line))]
        if not parts:
            parts = [line.strip("# ").strip() for line in lines if line.strip()][:2]
        text = shortened(f"Plan agreed: {'; '.join(one.rstrip('.') for one in parts)}")
        first = parts[0]
        place = step.result if first in step.result.text else step.call
        yield Proposal("decision", text, place.seq, first, author="user", confidence=0.7)


def answers(steps: Sequence[Step]) -> Iterator[Proposal]:
    for step in steps:
        if (
            not isinstance(step, Answered)
            or step.known
            or _talk("answer", "none").match(step.answer)
            or _talk("reply", "procedural").search(step.question)
        ):
            continue
        quote = work.quoted(step.result, step.answer)
        if not quote:
            continue
        question = " ".join(step.question.split())
        text = shortened(f"{question} {worded(step.answer, step.result.at)}")
        yield Proposal("decision", text, step.result.seq, quote, author="user", confidence=0.85)


def left_open(steps: Sequence[Step]) -> Iterator[Proposal]:
    """Of the last list of things to do, what was not done; only at a session's end."""
    last = next((step for step in reversed(steps) if isinstance(step, Todos)), None)
    if last is None or last.known:
        return
    words = " ".join(step.said.text for step in steps if isinstance(step, Reply) and step.n > last.n)[-4000:]
    done = _talk("reply", "done").search(words) is not None
    worked = any(isinstance(step, (Ran, Edited)) and step.n > last.n for step in steps)
    for text, is_open, call in last.entries:
        if not is_open or (done and worked):
            continue
        clean = " ".join(text.split())
        yield Proposal("open_loop", worded(clean, call.at), call.seq, text, author="agent", confidence=0.6)
