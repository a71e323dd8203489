"""Real agents resume what was restored. Not part of `make test`: `make test-agents` installs them from npm and PyPI."""
