"""Verbs for notes, tasks and the inbox."""
