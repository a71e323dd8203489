"""The truth: append-only, checksummed, linked lines in parts. FORMAT.md beside this file specifies the bytes."""
