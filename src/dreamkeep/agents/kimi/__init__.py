"""Kimi Code. FORMAT.md: what is known of its files."""

from dreamkeep.agents.contract import Agent

AGENT = Agent(
    "kimi",
    "Kimi Code",
    __name__,
    acp_names=("kimi",),
    anchors=("/sessions/",),
)
