"""Specs of strategies: their base, and those that run code of the user's."""
