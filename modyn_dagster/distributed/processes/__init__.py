"""Pools and groups of processes of this machine."""
