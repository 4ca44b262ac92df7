"""Decisions of runs: transitions, ticks of the live run, attempts, manual triggers, and measuring ahead."""
