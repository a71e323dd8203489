"""Qwen Code. FORMAT.md describes its files."""

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
    tools={
        "shell": ("run_shell_command",),
        "edit": ("edit", "write_file"),
        "plan": ("exit_plan_mode",),
        "ask": ("ask_user_question",),
        "todo": ("todo_write",),
        "task_new": ("task_create",),
        "task_change": ("task_update",),
    },
)
