"""One small pure writer for each agent: a session as that agent would have written it. `talk.py` is what they are given."""
