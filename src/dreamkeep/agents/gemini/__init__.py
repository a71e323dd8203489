"""Gemini CLI. FORMAT.md: what is known of its files."""

from dreamkeep.agents.contract import ANSWER_NOW, SESSION, Agent

AGENT = Agent(
    "gemini",
    "Gemini CLI",
    __name__,
    writer="writer",
    setup="setup",
    has_folder_list=True,
    acp_names=("gemini",),
    home_variables=("GEMINI_CLI_HOME",),
    resume_command=("gemini", "--resume", SESSION),
    ask_command=("gemini", "--output-format", "json", "--extensions", "none", "-p", ANSWER_NOW),
)
