"""Time words in a query → stretches of time. Pure: `now` is handed in.

    yesterday · today · last week · this month · last Tuesday · 3 days ago · in the last two weeks
    2023-05-08 · 2023-05 · 8 May 2023 · May 8th, 2023 · in May 2023 · in May · in 2023
    two days before 8 May 2023 · a week after last Monday

Messages of that time rank higher. Nothing is excluded, because people misremember. A month without a year, or a weekday, is
the last one before now. Times are UTC, as in the records.
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
    """`spans`: what was meant. `relative`: words that count from now ("last week"). They stand in no message, so a search leaves
    them out."""

    spans: tuple[TimeSpan, ...]
    relative: tuple[str, ...]


Days = tuple[date, date]


class _Form(NamedTuple):
    """`read`: a match and today → first day, and the day after the last. `relative`: it counts from now."""

    pattern: re.Pattern[str]
    read: Callable[[re.Match[str], date], Days | None]
    relative: bool


def read(query: str, now: str) -> TimeWords:
    today = _parse_day(now)
    if today is None:
        return TimeWords((), ())
    text = query[:_LONGEST_QUERY].lower()
    spans: list[TimeSpan] = []
    relative: list[str] = []
    understood: list[tuple[int, int]] = []
    for form in (_BESIDE, *_FORMS):
        for match in form.pattern.finditer(text):
            is_part = any(match.start() < end and start < match.end() for start, end in understood)
            if not is_part and (days := _read_days(form, match, today)):
                spans.append(TimeSpan(*(f"{day.isoformat()}T00:00:00Z" for day in days)))
                relative += [match[0]] if form.relative else []
                understood.append(match.span())
    return TimeWords(tuple(dict.fromkeys(spans[:_MOST])), tuple(relative))


def _read_days(form: _Form, match: re.Match[str], today: date) -> Days | None:
    try:
        return form.read(match, today)
    except (ValueError, OverflowError):
        return None  # the 31st of February, a year 0


def _parse_day(now: str) -> date | None:
    try:
        return datetime.fromisoformat(now.replace("Z", "+00:00")).date()
    except ValueError:
        return None


def _count(word: str) -> int:
    if word.isdigit():
        return int(word)
    return {"a": 1, "an": 1, "a couple of": 2, "a few": 3}.get(word) or _NUMBERS.index(word) + 1


def _one_day(day: date) -> Days:
    return day, day + timedelta(days=1)


def _month(year: int, month: int) -> Days:
    return date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)


def _calendar_unit(unit: str, day: date, back: int) -> Days:
    """The calendar's day, week, month or year, `back` of them before the one of `day`."""
    if unit == "day":
        return _one_day(day - timedelta(days=back))
    if unit == "week":
        start = day - timedelta(days=day.weekday() + 7 * back)
        return start, start + timedelta(days=7)
    if unit == "month":
        months = day.year * 12 + day.month - 1 - back
        return _month(months // 12, months % 12 + 1)
    return date(day.year - back, 1, 1), date(day.year - back + 1, 1, 1)


def _named_day(m: re.Match[str], today: date) -> Days:
    back = {"yesterday": 1, "last night": 1, "the day before yesterday": 2}.get(m["named"], 0)
    return _one_day(today - timedelta(days=back))


def _last_unit(m: re.Match[str], today: date) -> Days:
    return _calendar_unit(m["unit"], today, 0 if m["which"] == "this" else 1)


def _ago(m: re.Match[str], today: date) -> Days:
    count, unit = _count(m["count"]), m["unit"]
    if unit not in ("day", "week"):
        return _calendar_unit(unit, today, count)
    around = today - timedelta(days=count * _UNITS[unit])
    loose = 0 if unit == "day" else 3
    return around - timedelta(days=loose), around + timedelta(days=loose + 1)


def _past_units(m: re.Match[str], today: date) -> Days:
    days = _count(m["count"]) * _UNITS[m["unit"]]
    return today - timedelta(days=days), today + timedelta(days=1)


def _weekday(m: re.Match[str], today: date) -> Days:
    back = (today.weekday() - _DAYS.index(m["day"])) % 7 or 7
    return _one_day(today - timedelta(days=back))


def _year_and_month(m: re.Match[str], today: date, day: int) -> tuple[int, int]:
    """Without a year it is the last one in which that day is not in the future."""
    named = m.groupdict()
    month = int(named["m"]) if named.get("m") else next(n for n, name in enumerate(_MONTHS, 1) if name.startswith(m["month"][:3]))
    if named.get("year"):
        return int(named["year"]), month
    return today.year if (month, day) <= (today.month, today.day) else today.year - 1, month


def _date(m: re.Match[str], today: date) -> Days:
    day = int(m["d"])
    return _one_day(date(*_year_and_month(m, today, day), day))


def _of_month(m: re.Match[str], today: date) -> Days:
    return _month(*_year_and_month(m, today, 1))


def _of_year(m: re.Match[str], today: date) -> Days:
    year = int(m["year"])
    return date(year, 1, 1), date(year + 1, 1, 1)


def _beside(m: re.Match[str], today: date) -> Days | None:
    """Some days before or after a date, or a time that counts from now."""
    anchors = (form.read(match, today) for form in _FORMS for match in form.pattern.finditer(m["what"]))
    anchor = next(filter(None, anchors), None)
    if anchor is None:
        return None
    start, end = anchor
    days = timedelta(days=_count(m["count"]) * _UNITS[m["unit"]])
    return (start - days, start) if m["side"] == "before" else (end, end + days)


def _form(pattern: str, read: Callable[[re.Match[str], date], Days | None], *, relative: bool) -> _Form:
    return _Form(re.compile(rf"(?<!\w){pattern}(?!\w)"), read, relative)


_FORMS = (
    _form(r"(?P<year>(?:19|20)\d\d)[-/](?P<m>\d{1,2})[-/](?P<d>\d{1,2})", _date, relative=False),
    _form(
        rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{_MONTH})\.?(?:,? (?P<year>(?:19|20)\d\d))?", _date, relative=False
    ),
    _form(
        rf"(?P<month>{_MONTH})\.? (?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?!\d)(?:,? (?P<year>(?:19|20)\d\d))?", _date, relative=False
    ),
    _form(rf"(?P<month>{_MONTH})\.?,? (?P<year>(?:19|20)\d\d)", _of_month, relative=False),
    _form(r"(?P<year>(?:19|20)\d\d)-(?P<m>\d\d)", _of_month, relative=False),
    _form(rf"(?:in|during|since|last|of) (?P<month>{_MONTH})", _of_month, relative=False),
    _form(r"(?P<named>the day before yesterday|yesterday|today|last night|this morning|tonight)", _named_day, relative=True),
    _form(rf"(?P<which>last|this|previous) (?P<unit>{_UNIT})", _last_unit, relative=True),
    _form(rf"(?P<count>{_COUNT}) (?P<unit>{_UNIT})s? ago", _ago, relative=True),
    _form(rf"(?:last|past|previous) (?P<count>{_COUNT}) (?P<unit>{_UNIT})s?", _past_units, relative=True),
    _form(rf"(?:on|last|this) (?P<day>{_DAY})", _weekday, relative=True),
    _form(r"(?:in|during|of|since) (?P<year>(?:19|20)\d\d)", _of_year, relative=False),
)
_BESIDE = _form(rf"(?P<count>{_COUNT}) (?P<unit>{_UNIT})s? (?P<side>before|after) (?P<what>.{{3,40}})", _beside, relative=False)
