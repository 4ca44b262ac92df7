"""Origin of a model: architecture, environment, training, and the training of it anew."""
