"""Verification of everything below the home folder against the catalog, and repair of what can be derived again."""
