"""The world of the ingestion tests, for tests of the catalog that need ingested data."""

from tests.ingestion.conftest import world

__all__ = ["world"]
