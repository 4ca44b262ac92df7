"""Checks of recorded files, one class per kind: what they are, what they must be, and what to do where they are not."""
