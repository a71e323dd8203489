"""Written sessions with planted facts and decoys, by which the quality of a dream's backend is measured: see written.py."""
