"""Warm start of runs: a process that has imported everything forks a child per run, which need not import it again."""
