"""Changes of a store: saving with dependencies reserved, rebasing, and removal."""
