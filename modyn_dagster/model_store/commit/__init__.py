"""Changes of a store: saving with dependencies reserved, and removal."""
