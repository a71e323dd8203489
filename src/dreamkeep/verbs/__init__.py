"""The verbs of `Keep`, one module for each family."""
