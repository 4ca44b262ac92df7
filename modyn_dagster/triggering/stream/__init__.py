"""Training stream as triggering policies see it."""
