"""Qwen Code. FORMAT.md: what is known of its files."""

from dreamkeep.agents.contract import ANSWER_NOW, Agent

AGENT = Agent(
    "qwen",
    "Qwen Code",
    __name__,
    setup="setup",
    acp_names=("qwen",),
    unlike_tool_ids=True,
    unlike_tool_names=True,
    ask_command=("qwen", "--output-format", "json", "--chat-recording=false", "--extensions", "none", "-p", ANSWER_NOW),
)
