"""Claude Code. FORMAT.md: what is known of its files."""

from dreamkeep.agents.contract import SESSION, Agent

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
)
