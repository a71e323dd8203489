"""Verbs that find again what was kept."""
