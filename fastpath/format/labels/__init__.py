"""Labels that arrive after their samples: their files, and the labels known at a position."""
