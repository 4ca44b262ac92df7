"""Measurements for triggering policies, taken with the newest model of a run."""
