"""Trainers: models that a library, or user code, fits at once without the training loop."""
