"""Time words in a query → stretches of time. Pure: `now` is handed in.

    yesterday · today · last week · this month · last Tuesday · 3 days ago · in the last two weeks
    2023-05-08 · 2023-05 · 8 May 2023 · May 8th, 2023 · in May 2023 · in May · in 2023
    two days before 8 May 2023 · a week after last Monday

They make what was said then more likely; they exclude nothing, for people misremember. A month without a year, or a weekday, is
the last one before now. Times are UTC, as the records' are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import NamedTuple

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}
_LONGEST_QUERY = 2_000
_MOST = 4

_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if len(name) > 3 else name for name in _MONTHS)
_DAY = "|".join(_DAYS)
_COUNT = rf"\d{{1,3}}|an?|a couple of|a few|{'|'.join(_NUMBERS)}"
_UNIT = "day|week|month|year"


class TimeSpan(NamedTuple):
    """From `start` on, up to but without `end`; RFC 3339, comparable with records' times as texts."""

    start: str
    end: str


class TimeWords(NamedTuple):
    """`spans`: what was meant. `said`: the words that say nothing but a time that counts from now, to be left out of a search."""

    spans: tuple[TimeSpan, ...]
    said: tuple[str, ...]


class _Found(NamedTuple):
    start: date
    end: date
    text: str
    #: It counts from now: its words stand in no message that is looked for.
    relative: bool


def read(query: str, now: str) -> TimeWords:
    today = _day(now)
    if today is None:
        return TimeWords((), ())
    text = query[:_LONGEST_QUERY].lower()
    found: list[_Found] = []
    taken: list[tuple[int, int]] = []
    for pattern, make in _FORMS:
        for match in pattern.finditer(text):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue  # a part of what was understood already
            try:
                made = make(match, today)
            except (ValueError, OverflowError):
                continue  # the 31st of February, a year 0
            if made:
                found.append(made)
                taken.append(match.span())
    return TimeWords(
        tuple(dict.fromkeys(TimeSpan(_text(one.start), _text(one.end)) for one in found[:_MOST])),
        tuple(one.text for one in found if one.relative),
    )


def _day(now: str) -> date | None:
    try:
        return datetime.fromisoformat(now.replace("Z", "+00:00")).date()
    except ValueError:
        return None


def _text(day: date) -> str:
    return f"{day.isoformat()}T00:00:00Z"


def _count(word: str) -> int:
    if word.isdigit():
        return int(word)
    return {"a": 1, "an": 1, "a couple of": 2, "a few": 3}.get(word) or _NUMBERS.index(word) + 1


def _month_number(word: str) -> int:
    return next(n for n, name in enumerate(_MONTHS, 1) if name.startswith(word[:3]))


def _month(year: int, month: int) -> tuple[date, date]:
    return date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)


def _whole(unit: str, day: date, back: int) -> tuple[date, date]:
    """The calendar's day, week, month or year, `back` of them before the one of `day`."""
    if unit == "day":
        start = day - timedelta(days=back)
        return start, start + timedelta(days=1)
    if unit == "week":
        start = day - timedelta(days=day.weekday() + 7 * back)
        return start, start + timedelta(days=7)
    if unit == "month":
        months = day.year * 12 + day.month - 1 - back
        return _month(months // 12, months % 12 + 1)
    return date(day.year - back, 1, 1), date(day.year - back + 1, 1, 1)


Make = Callable[[re.Match[str], date], "_Found | None"]


def _named_day(m: re.Match[str], today: date) -> _Found:
    word = m["named"]
    start = today - timedelta(days={"yesterday": 1, "last night": 1, "the day before yesterday": 2}.get(word, 0))
    return _Found(start, start + timedelta(days=1), m[0], True)


def _last_unit(m: re.Match[str], today: date) -> _Found:
    start, end = _whole(m["unit"], today, 0 if m["which"] == "this" else 1)
    return _Found(start, end, m[0], True)


def _ago(m: re.Match[str], today: date) -> _Found:
    count, unit = _count(m["count"]), m["unit"]
    if unit in ("day", "week"):
        around = today - timedelta(days=count * _UNITS[unit])
        loose = 0 if unit == "day" else 3
        return _Found(around - timedelta(days=loose), around + timedelta(days=loose + 1), m[0], True)
    return _Found(*_whole(unit, today, count), m[0], True)


def _past(m: re.Match[str], today: date) -> _Found:
    days = _count(m["count"]) * _UNITS[m["unit"]]
    return _Found(today - timedelta(days=days), today + timedelta(days=1), m[0], True)


def _weekday(m: re.Match[str], today: date) -> _Found:
    back = (today.weekday() - _DAYS.index(m["day"])) % 7 or 7
    start = today - timedelta(days=back)
    return _Found(start, start + timedelta(days=1), m[0], True)


def _date(m: re.Match[str], today: date) -> _Found:
    named = m.groupdict()
    month = int(named["m"]) if named.get("m") else _month_number(named["month"])
    year = int(named["year"]) if named.get("year") else _last_year_of(month, int(named["d"]), today)
    start = date(year, month, int(named["d"]))
    return _Found(start, start + timedelta(days=1), m[0], False)


def _last_year_of(month: int, day: int, today: date) -> int:
    return today.year if (month, day) <= (today.month, today.day) else today.year - 1


def _of_month(m: re.Match[str], today: date) -> _Found:
    named = m.groupdict()
    month = int(named["m"]) if named.get("m") else _month_number(named["month"])
    year = int(named["year"]) if named.get("year") else _last_year_of(month, 1, today)
    return _Found(*_month(year, month), m[0], False)


def _of_year(m: re.Match[str], today: date) -> _Found:
    year = int(m["year"])
    return _Found(date(year, 1, 1), date(year + 1, 1, 1), m[0], False)


def _beside(m: re.Match[str], today: date) -> _Found | None:
    """Some days before or after a date, or a time that counts from now."""
    anchor = next((found for pattern, make in _PLAIN for at in pattern.finditer(m["what"]) if (found := make(at, today))), None)
    if anchor is None:
        return None
    days = _count(m["count"]) * _UNITS[m["unit"]]
    if m["side"] == "before":
        return _Found(anchor.start - timedelta(days=days), anchor.start, m[0], False)
    return _Found(anchor.end, anchor.end + timedelta(days=days), m[0], False)


def _compiled(forms: list[tuple[str, Make]]) -> list[tuple[re.Pattern[str], Make]]:
    return [(re.compile(rf"(?<!\w){form}(?!\w)"), make) for form, make in forms]


_PLAIN = _compiled(
    [
        (r"(?P<year>(?:19|20)\d\d)[-/](?P<m>\d{1,2})[-/](?P<d>\d{1,2})", _date),
        (rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{_MONTH})\.?(?:,? (?P<year>(?:19|20)\d\d))?", _date),
        (rf"(?P<month>{_MONTH})\.? (?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?!\d)(?:,? (?P<year>(?:19|20)\d\d))?", _date),
        (rf"(?P<month>{_MONTH})\.?,? (?P<year>(?:19|20)\d\d)", _of_month),
        (r"(?P<year>(?:19|20)\d\d)-(?P<m>\d\d)", _of_month),
        (rf"(?:in|during|since|last|of) (?P<month>{_MONTH})", _of_month),
        (r"(?P<named>the day before yesterday|yesterday|today|last night|this morning|tonight)", _named_day),
        (rf"(?P<which>last|this|previous) (?P<unit>{_UNIT})", _last_unit),
        (rf"(?P<count>{_COUNT}) (?P<unit>{_UNIT})s? ago", _ago),
        (rf"(?:last|past|previous) (?P<count>{_COUNT}) (?P<unit>{_UNIT})s?", _past),
        (rf"(?:on|last|this) (?P<day>{_DAY})", _weekday),
        (r"(?:in|during|of|since) (?P<year>(?:19|20)\d\d)", _of_year),
    ]
)
_FORMS = [
    *_compiled([(rf"(?P<count>{_COUNT}) (?P<unit>{_UNIT})s? (?P<side>before|after) (?P<what>.{{3,40}})", _beside)]),
    *_PLAIN,
]
