"""Labels that arrive after their samples, in the catalog."""
