"""What parsers of texts share: samples that are files of UTF-8, or text columns."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from modyn_dagster.training.parsing.function import Blobs, Columns, ParseFailed, reason_of


class OfTexts(ABC):
    """A parser that makes ``features`` of texts.

    Args:
        columns: that hold them, joined by a space; None where samples are files of UTF-8.
    """

    def __init__(self, columns: Sequence[str] | None) -> None:
        self.columns = columns

    def __call__(self, blobs: Blobs) -> Columns:
        """Of samples that are UTF-8; ``ParseFailed`` for the first that is not."""
        texts = []
        for position in range(len(blobs)):
            try:
                texts.append(bytes(blobs[position]).decode("utf-8"))
            except UnicodeDecodeError as error:
                raise ParseFailed(position, reason_of(error)) from error
        return {"features": self.encode(texts)}

    def of_columns(self, columns: Columns) -> Columns:
        """Of text columns; a missing value is an empty text. ``KeyError`` for a column that is not there."""
        parts = [columns[name].tolist() for name in self.columns or ()]
        texts = [" ".join(part for part in row if isinstance(part, str)) for row in zip(*parts, strict=True)]
        return {"features": self.encode(texts)}

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """``int64[len(texts), length]``."""

    def close(self) -> None:  # noqa: B027 - there is nothing to end
        """Nothing to end."""
