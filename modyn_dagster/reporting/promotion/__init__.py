"""Promotions of a run for people: what was live when, and the candidates with their tests."""
