"""Live runs in Dagster beyond the trigger of one Dagster run: its backlog, and events that a kill swallowed."""
