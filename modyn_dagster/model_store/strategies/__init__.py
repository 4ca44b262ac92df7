"""Strategies of storing a model: settings, the plan per tensor, encoding, writing, and the adaptive choice."""
