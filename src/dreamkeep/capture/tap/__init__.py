"""The ACP tap: between a client and its agent, unchanged, with a copy for the journal."""
