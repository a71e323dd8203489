"""Goose. FORMAT.md: what is known of its files."""

from dreamkeep.agents.contract import Agent

AGENT = Agent(
    "goose",
    "Goose",
    __name__,
    row_habits="row_habits",
    acp_names=("goose",),
)
