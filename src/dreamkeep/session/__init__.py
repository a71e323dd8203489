"""Pure folds over a session's events: what its turns, messages and life look like. No disk, no clock."""
