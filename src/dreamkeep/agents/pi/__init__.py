"""pi. FORMAT.md: what is known of its files."""

from dreamkeep.agents.contract import Agent

AGENT = Agent(
    "pi",
    "pi",
    __name__,
)
