"""Promotion of a run's models: evidence from stored predictions, looks of its gate, actions of people, and what was live when."""
