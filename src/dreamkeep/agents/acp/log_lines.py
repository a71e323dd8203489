"""Compactions in an agent's log lines (Hermes writes them to stderr). Pure.

    2026-11-15 18:48:17,232 INFO [tag] agent.x: context compression started: session=S messages=38 tokens=~180,694 model=… focus=…
    INFO: context compression done: session=S messages=38->11 rough_tokens=~63,972

A log line is no protocol: tools, users and models quote such lines. So a line only counts if these words follow nothing but a
time, a level, tags in brackets and the name of a known logger. "started" is written before a lock is taken and may have no
"done". Subagents write to the same stream with another `session=`, so the signal always has a scope.
"""

from __future__ import annotations

import re

from dreamkeep.agents.facts import Signal

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SAYS = re.compile(r"context compression (started|done): session=(\S+)\s+messages=(\d{1,9})(?:\s*(?:->|→)\s*(\d{1,9}))?(?:\s|$)")
_TOKENS = re.compile(r"\s(?:rough_)?tokens=~?(\d[\d,]{0,15})(?:\s|$)")
_LONGEST = 4096

_TIME = re.compile(r"\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?")
_LEVEL = re.compile(r"\[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\]?(?![\w.])")
_TAG = re.compile(r"\[[\w.:/@-]{1,80}\]")
_LOGGER = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*(?=\s*[:|-])")
_LOGGERS = frozenset(("run_agent", "root", "hermes", "agent", "context_compressor", "conversation_compression"))
_BETWEEN = re.compile(r"[\s:|-]*")


def signal(line: str, at: str | None, turn: str) -> Signal | None:
    """The signal in a line of stderr; None if it has none, or only quotes one."""
    line = _COLOURS.sub("", line[:_LONGEST])
    found = _SAYS.search(line)
    if found is None or not _is_prefix(line[: found.start()]):
        return None
    what, session, before, after = found.groups()
    counted = _TOKENS.search(line, found.end() - 1)
    tokens = {"tokens": int(counted[1].replace(",", ""))} if counted else {}
    scope = "" if session == "none" else session
    if what == "started":
        return Signal("scraped", "started", at, scope=scope, before={"messages": int(before), **tokens}, turn=turn)
    if after is None:
        return None
    phase = "noop" if int(before) == int(after) else "completed"
    now = {"messages": int(after), **tokens}
    return Signal("scraped", phase, at, scope=scope, before={"messages": int(before)}, after=now, turn=turn)


def _is_prefix(text: str) -> bool:
    """Whether this is only what a logger writes before a message."""
    place = 0
    dated = named = False
    while True:
        between = _BETWEEN.match(text, place)
        place = between.end() if between else place
        if place == len(text):
            return True
        if token := _TIME.match(text, place) or _LEVEL.match(text, place):
            dated = True
        elif dated and (token := _TAG.match(text, place)):
            pass
        elif not named and (token := _logger(text, place, dated)):
            named = True
        else:
            return False
        place = token.end()


def _logger(text: str, place: int, dated: bool) -> re.Match[str] | None:
    """A logger's name. One without a dot must be known, and stand behind a time or a level."""
    token = _LOGGER.match(text, place)
    return token if token and ("." in token[0] or (dated and token[0] in _LOGGERS)) else None
