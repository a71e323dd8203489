"""Replaces relative days ("tomorrow", "next week") by dates, counted from the day on which it was said. Pure.

A note is read on a later day than it was said. A recurring day ("every friday", "the last friday of the month") is no date and
stays. "Today" may mean nowadays, so the word stays, too, with the date after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "ten": 10}
_NUMBERS["couple of"] = 2
_NUMBER = r"(?:\d{1,3}|an?|one|two|three|four|five|six|seven|ten|a couple of)"
_PREPOSITION = re.compile(
    r"\b(?:on|by|until|till|til|before|after|since|from|for|of|due|as of|between|than|to|or|and|in|through)\s+$", re.IGNORECASE
)
#: "The last friday of the month", "the last year", "every last monday": not a single day.
_COMES_AGAIN = re.compile(r"\b(?:the|every|each|any|a|their|its|our)\s+$", re.IGNORECASE)
_OF_PERIOD = re.compile(r"\s+(?:of|in) (?:the|a|each|every|any) (?:month|quarter|year|week|sprint)\b", re.IGNORECASE)
_HABIT = re.compile(r"\b(?:always|every|each|whenever)\b", re.IGNORECASE)
#: Not inside a word, a name or a path.
_EDGES = (r"(?<![\w./@-])", r"(?![\w@'’-]|[./]\w)")
_CODE = re.compile(r"`[^`]*`")


def resolved(text: str, at: str | None) -> str:
    """`text` with dates, as said at the time `at`. Unchanged without a valid time, or beyond the ends of the calendar."""
    said_on = _read_day(at)
    try:
        return _resolve_outside_code(text, said_on) if said_on else text
    except OverflowError:
        return text


def _resolve_outside_code(text: str, said_on: date) -> str:
    pieces, last = [], 0
    for code in _CODE.finditer(text):
        pieces += [_resolve_days(text[last : code.start()], said_on), code[0]]
        last = code.end()
    return "".join([*pieces, _resolve_days(text[last:], said_on)])


def _read_day(at: str | None) -> date | None:
    try:
        return datetime.fromisoformat(at).date() if at else None
    except ValueError:
        return None


def _resolve_days(text: str, said_on: date) -> str:
    # "We always close by next monday" is about a habit, not this week.
    habit = _HABIT.search(text) is not None
    if not habit:
        text = _KEPT_PREPOSITION.sub(lambda match: f"{match[1]} {_weekday(match, said_on)}", text)
    for pattern, what in _FROM_TODAY if habit else (*_FROM_TODAY, *_NEXT_AND_LAST):
        text = _replace_each(pattern, what, text, said_on)
    return text


def _replace_each(pattern: re.Pattern[str], what: Callable[[re.Match[str], date], str], text: str, said_on: date) -> str:
    return pattern.sub(lambda match: _phrase_date(match, what(match, said_on)), text)


def _phrase_date(match: re.Match[str], when: str) -> str:
    before = match.string[: match.start()]
    if not when or _COMES_AGAIN.search(before) or _OF_PERIOD.match(match.string[match.end() :]):
        return match[0]
    if match[0].lower() == "today":
        return f"{match[0]} ({when})"
    if _PREPOSITION.search(before):
        return when
    word = "in" if len(when) == 7 or len(when) == 4 else "on"
    if when.startswith("the week"):
        word = "in"
    lead = word.capitalize() if not before.strip() and match[0][:1].isupper() else word
    return f"{lead} {when}"


def _add_days(count: int) -> Callable[[re.Match[str], date], str]:
    return lambda match, said_on: (said_on + timedelta(days=count)).isoformat()


def _read_count(words: str) -> int:
    words = words.lower().strip()
    return int(words) if words.isdigit() else _NUMBERS.get(words.removeprefix("a ") if words != "a" else "a", 0)


def _count_from(match: re.Match[str], said_on: date, sign: int) -> str:
    unit, count = match[2].lower(), _read_count(match[1])
    if not count:
        return ""
    if unit.startswith("day"):
        return (said_on + timedelta(days=sign * count)).isoformat()
    if unit.startswith("week"):
        return (said_on + timedelta(days=sign * 7 * count)).isoformat()
    if unit.startswith("month"):
        return _add_months(said_on, sign * count)
    return str(said_on.year + sign * count)


def _add_months(said_on: date, by: int) -> str:
    whole = said_on.year * 12 + said_on.month - 1 + by
    return f"{whole // 12:04}-{whole % 12 + 1:02}"


def _span(match: re.Match[str], said_on: date) -> str:
    by = {"next": 1, "last": -1, "this": 0}[match[1].lower()]
    unit = match[2].lower()
    if unit == "week":
        return f"the week of {(said_on - timedelta(days=said_on.weekday()) + timedelta(days=7 * by)).isoformat()}"
    return _add_months(said_on, by) if unit == "month" else str(said_on.year + by)


def _weekday(match: re.Match[str], said_on: date) -> str:
    word, day = match[1].lower(), _DAYS.index(match[2].lower())
    if word in ("last", "since", "past"):
        back = (said_on.weekday() - day) % 7 or 7
        return (said_on - timedelta(days=back)).isoformat()
    on = (day - said_on.weekday()) % 7 or 7
    # "Next friday", said earlier in a week, is in the following week; "this" and "by" mean the coming one.
    if word == "next" and said_on.weekday() < day:
        on += 7
    return (said_on + timedelta(days=on)).isoformat()


def _compile_phrase(words: str) -> re.Pattern[str]:
    return re.compile(f"{_EDGES[0]}{words}{_EDGES[1]}", re.IGNORECASE)


_WEEKDAY = f"({'|'.join(_DAYS)})"
_Phrases = tuple[tuple[re.Pattern[str], Callable[[re.Match[str], date], str]], ...]
_FROM_TODAY: _Phrases = (
    (_compile_phrase(r"the day after tomorrow"), _add_days(2)),
    (_compile_phrase(r"the day before yesterday"), _add_days(-2)),
    (_compile_phrase(r"(?:today|tonight|this (?:morning|afternoon|evening))"), _add_days(0)),
    (_compile_phrase(r"tomorrow(?: (?:morning|afternoon|evening|night))?"), _add_days(1)),
    (_compile_phrase(r"(?:yesterday(?: (?:morning|afternoon|evening))?|last night)"), _add_days(-1)),
    (_compile_phrase(rf"in ({_NUMBER}) (days?|weeks?|months?|years?)"), lambda match, said_on: _count_from(match, said_on, 1)),
    (_compile_phrase(rf"({_NUMBER}) (days?|weeks?|months?|years?) ago"), lambda match, said_on: _count_from(match, said_on, -1)),
)
_NEXT_AND_LAST: _Phrases = (
    (_compile_phrase(r"(next|last|this) (week|month|year)"), _span),
    (_compile_phrase(rf"(next|last|this|past) {_WEEKDAY}"), _weekday),
)
#: "By friday", "from monday on": the preposition stays.
_KEPT_PREPOSITION = _compile_phrase(rf"(by|until|till|since|before|starting|from(?= \w{{6,9}} on\b)) {_WEEKDAY}")
