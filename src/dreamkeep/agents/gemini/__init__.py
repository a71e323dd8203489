"""Gemini CLI. FORMAT.md describes its files."""

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
    instruction_files=("GEMINI.md",),
    home_instruction_file=".gemini/GEMINI.md",
    tools={
        "shell": ("run_shell_command",),
        "edit": ("write_file", "replace", "smart_edit"),
        "plan": ("exit_plan_mode",),
        "ask": ("ask_user",),
        "todo": ("write_todos",),
    },
)
