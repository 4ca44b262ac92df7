"""Stage ``training_set``: selection, online strategies, replay memories, and checks of the set."""
