"""Promotion of models as pure functions: the state of a gate and evidence in, the next state and what changed out."""
