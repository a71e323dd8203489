"""Verbs that find what is wrong, mend it, give back, delete, and carry a whole keep."""
