"""Recall: what is found again, for people and agents. Reads the index, never writes the journal."""
