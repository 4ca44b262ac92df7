"""Stage ``model``: training, saving and committing the model of a trigger."""
