"""The history of the schema, run by ``modyn_dagster.catalog.database.databases``."""
