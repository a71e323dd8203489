"""Frameworks that run agents: each gets a keep in the form that it knows. Nothing here loads before it is imported by name."""
