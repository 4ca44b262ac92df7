"""Tasks: the meaning of each for labels, losses and outputs, losses without labels, and names of metrics."""
