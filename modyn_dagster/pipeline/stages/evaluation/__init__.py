"""Stage ``evaluation``: predictions of a model, and its cells of the evaluation matrix."""
