"""Claude Code. FORMAT.md describes its files."""

from dreamkeep.agents.contract import FOLDER, SESSION, Agent

AGENT = Agent(
    "claude",
    "Claude Code",
    __name__,
    writer="writer",
    setup="setup",
    forks="reader",
    has_files_beside=True,
    acp_names=("claude",),
    home_variables=("CLAUDE_CONFIG_DIR",),
    resume_command=("claude", "--resume", SESSION),
    ask_command=(
        *("claude", "-p", "--output-format", "json", "--tools", "", "--strict-mcp-config"),
        *("--settings", '{"disableAllHooks": true}', "--no-session-persistence"),
    ),
    instruction_files=("CLAUDE.md", "CLAUDE.local.md"),
    home_instruction_file=".claude/CLAUDE.md",
    memory_folder=f".claude/projects/{FOLDER}/memory",
    tools={
        "shell": ("bash", "powershell"),
        "edit": ("edit", "multiedit", "write", "notebookedit", "str_replace_based_edit_tool"),
        "plan": ("exitplanmode",),
        "ask": ("askuserquestion",),
        "todo": ("todowrite",),
        "task_new": ("taskcreate",),
        "task_change": ("taskupdate",),
    },
)
