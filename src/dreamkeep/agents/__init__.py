"""What dreamkeep knows of each agent: one folder for one agent. CONTRACT.md says what a folder offers."""
