"""Origin of a model: architecture, environment, training recipe, and retraining from it."""
