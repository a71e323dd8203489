"""Pages: notes written to MEMORY.md and the like; hand edits first."""
