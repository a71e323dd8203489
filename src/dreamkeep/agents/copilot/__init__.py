"""Copilot CLI. FORMAT.md: what is known of its files."""

from dreamkeep.agents.contract import Agent

AGENT = Agent(
    "copilot",
    "Copilot CLI",
    __name__,
    has_files_beside=True,
    acp_names=("copilot",),
    anchors=("/session-state/",),
)
