"""Requests for rows: planning, gathering, conversion to columns, and results."""
