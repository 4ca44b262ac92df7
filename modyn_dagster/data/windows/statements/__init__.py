"""Statements of users that choose samples of a window in Postgres."""
