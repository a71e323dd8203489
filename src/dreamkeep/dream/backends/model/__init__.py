"""A model as a backend: what it is asked, what it may cost, and how its answers are checked."""
