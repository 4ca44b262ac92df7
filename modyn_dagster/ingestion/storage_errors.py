"""Errors of ``fastpath`` as errors of this package."""

from collections.abc import Iterator
from contextlib import contextmanager

from fastpath import errors as native
from modyn_dagster.errors import CorruptFile, DeletedKey, StorageError, UnknownKey


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raise what the block raises about keys and files as ``UnknownKey``, ``DeletedKey``, ``CorruptFile`` or ``StorageError``."""
    try:
        yield
    except native.UnknownKey as error:
        raise UnknownKey(error.key, error.dataset) from error
    except native.DeletedKey as error:
        raise DeletedKey(error.key, error.dataset, error.path, error.offset) from error
    except native.CorruptFile as error:
        raise CorruptFile(
            error.path, error.expected, error.found, key=error.key, offset=error.offset, dataset=error.dataset
        ) from error
    except native.StoreError as error:
        raise StorageError(str(error)) from error
