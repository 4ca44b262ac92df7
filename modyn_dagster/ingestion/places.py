"""Where the files of a batch lie below the home folder."""


def index_of(dataset: str, ordinal: int) -> str:
    """The index of a batch, relative to the home folder."""
    return f"batches/{dataset}/{ordinal}.arrow"


def shard_of(dataset: str, ordinal: int) -> str:
    """The bytes of those samples of a batch that are not read from their source, relative to the home folder."""
    return f"shards/{dataset}/{ordinal}.bin"
