from tests.ingestion.conftest import world

__all__ = ["world"]
