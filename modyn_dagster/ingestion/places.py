"""Where the files of a batch lie below the home folder.

Index and shard of a batch belong together and have the same stem: the ordinal, and behind a dot the number of the rewrite
once samples were purged. The row of the batch names its index, and with it its shard.
"""

from pathlib import PurePosixPath


def index_of(dataset: str, ordinal: int, rewrite: int = 0) -> str:
    """The index of a batch, relative to the home folder.

    >>> index_of("clicks", 7), index_of("clicks", 7, rewrite=2)
    ('batches/clicks/7.arrow', 'batches/clicks/7.2.arrow')
    """
    return f"batches/{dataset}/{_stem(ordinal, rewrite)}.arrow"


def shard_of(dataset: str, ordinal: int, rewrite: int = 0) -> str:
    """The bytes of those samples of a batch that are not read from their source, relative to the home folder."""
    return f"shards/{dataset}/{_stem(ordinal, rewrite)}.bin"


def deleted_of(dataset: str, ordinal: int, version: int) -> str:
    """A version of the list of deleted positions of a batch, relative to the home folder."""
    return f"batches/{dataset}/{ordinal}.{version}.deleted"


def rewrite_of(index_path: str) -> int:
    """Which rewrite an index is; 0: as ingested.

    >>> rewrite_of("batches/clicks/7.arrow"), rewrite_of("batches/clicks/7.2.arrow")
    (0, 2)
    """
    return int(PurePosixPath(index_path).stem.partition(".")[2] or 0)


def _stem(ordinal: int, rewrite: int) -> str:
    return f"{ordinal}.{rewrite}" if rewrite else f"{ordinal}"
