"""Canonical forms of values: JSON, digests of values and of code, and trees of state."""
