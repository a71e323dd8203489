"""Who reads sessions in a dream: what a backend is given, and how its proposals are checked."""
