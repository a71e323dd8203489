"""Verbs for dreams, for the pages that come of them, and for the models that they ask."""
