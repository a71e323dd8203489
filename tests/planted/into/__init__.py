"""Written sessions as the agents would have left them: in a home folder, or (one's own Python agent) in the keep itself.

Each file here knows one agent's forms, and takes them from that agent's generator in tests/agents/; where those lack one, from
what is published of the client's own words (how a rejected call, an approved plan, an answered question look in a transcript).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dreamkeep import Keep
from tests.planted.into import claude, codex, gemini, hermes, opencode, python
from tests.planted.written import Written

_FILES = {"claude": claude.write, "codex": codex.write, "gemini": gemini.write}
_TABLES = {"hermes": hermes.write, "opencode": opencode.write}


def write(sessions: Iterable[Written], home: Path) -> None:
    """Into `home`; those of one's own Python agent are left out, see `record`."""
    sessions = list(sessions)
    for session in sessions:
        if session.agent in _FILES:
            _FILES[session.agent](session, home)
    for agent, into in _TABLES.items():
        of_agent = [one for one in sessions if one.agent == agent]
        if of_agent:
            into(of_agent, home)


def record(sessions: Iterable[Written], keep: Keep) -> None:
    for session in sessions:
        if session.agent == "python":
            python.record(session, keep)
