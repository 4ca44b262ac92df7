"""Pools and groups on a Ray cluster. Ray is imported inside functions, as few installations have it."""
