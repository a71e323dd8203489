"""Attacks on a keep, one module each: what is promised is checked from outside, through the command line or `Keep`.

Each attack lasts for a bounded time and counts what it did and what it found (counts.py); a table at the end of the run has the
sums. All chance comes from one seed, which stands above that table: `ATTACK_SEED=… make test-all` repeats it.
"""
