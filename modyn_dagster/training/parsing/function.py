"""Calls of a project's parser: on several threads, one contiguous part of a batch each, with failures traced to a sample."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Columns = Mapping[str, npt.NDArray[Any]]


class Blobs(Protocol):
    """The bytes of samples, each as anything with a buffer; ``list[bytes]`` and what a store hands out are such."""

    def __len__(self) -> int:
        """Number of samples."""

    def __getitem__(self, i: int, /) -> Any:
        """One of them."""


class ParseFailed(Exception):
    """Failure of a parser on the sample at ``position``, or (None) only on the batch as a whole."""

    def __init__(self, position: int | None, reason: str) -> None:
        super().__init__(reason)
        self.position, self.reason = position, reason


class NotArrays(Exception):
    """Result of a parser that is no dict of arrays."""


class Function:
    """Parser function, per batch or per sample, that returns arrays of n samples.

    Args:
        function: per batch ``(list[bytes]) -> dict[str, ndarray]``, per sample ``(bytes) -> dict[str, ndarray | number]``.
        per: argument of the function, a batch or a sample.

    Raises ``ParseFailed`` or ``NotArrays`` when it is called.
    """

    def __init__(self, function: Callable[..., Any], per: Literal["batch", "sample"]) -> None:
        self._function, self._per = function, per

    def __call__(self, blobs: Blobs) -> Columns:
        """Parse samples into arrays by name."""
        given = [bytes(blobs[i]) for i in range(len(blobs))]
        return self._per_batch(given) if self._per == "batch" else self._per_sample(given)

    def _per_batch(self, blobs: list[bytes]) -> Columns:
        try:
            return _arrays(self._function(blobs))
        except NotArrays:
            raise
        except Exception as error:
            # The parser fails on a batch; the error names the sample.
            self._require_each(blobs)
            raise ParseFailed(None, reason_of(error)) from error

    def _per_sample(self, blobs: list[bytes]) -> Columns:
        parsed: list[dict[str, npt.NDArray[Any]]] = []
        for position, blob in enumerate(blobs):
            arrays = self._alone(blob, position)
            _require_alike(arrays, parsed[0] if parsed else arrays, position)
            parsed.append(arrays)
        return {name: np.stack([arrays[name] for arrays in parsed]) for name in parsed[0]} if parsed else {}

    def _require_each(self, blobs: list[bytes]) -> None:
        first: Columns | None = None
        for position, blob in enumerate(blobs):
            found = {
                name: array[0] if array.shape[:1] == (1,) else array for name, array in self._alone([blob], position).items()
            }
            first = found if first is None else first
            _require_alike(found, first, position)

    def _alone(self, given: Any, position: int) -> dict[str, npt.NDArray[Any]]:
        try:
            return _arrays(self._function(given))
        except NotArrays:
            raise
        except Exception as error:
            raise ParseFailed(position, reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """Format an exception in one line."""
    return f"{type(error).__name__}: {error}"


def _arrays(parsed: object) -> dict[str, npt.NDArray[Any]]:
    if not isinstance(parsed, Mapping):
        raise NotArrays(f"must return a dict of arrays, not {type(parsed).__name__}")
    return {name: np.asarray(array) for name, array in parsed.items()}


def _require_alike(found: Columns, first: Columns, position: int) -> None:
    if list(found) != list(first):
        raise ParseFailed(position, f"it has the columns {', '.join(found)}, the samples before it {', '.join(first)}")
    for name, array in found.items():
        if array.shape != first[name].shape:
            reason = f"{name!r} has shape {array.shape}, that of the samples before it has {first[name].shape}"
            raise ParseFailed(position, reason)
        require_joinable(name, array, first[name], position)


def require_joinable(name: str, array: npt.NDArray[Any], first: npt.NDArray[Any], position: int) -> None:
    """``ParseFailed`` if two samples' arrays of this name have dtypes that no array holds together, as times and floats."""
    try:
        np.promote_types(array.dtype, first.dtype)
    except TypeError as error:
        reason = f"{name!r} is {array.dtype}, that of the samples before it is {first.dtype}"
        raise ParseFailed(position, reason) from error


T = TypeVar("T")


class ThreadedParts:
    """Runs ``work(start, stop)`` on contiguous pieces, one per thread, and returns the results in order.

    One thread is the caller's own. The first failing piece, in the order of the samples, raises after all pieces ended, so
    that callers may reuse the memory that pieces wrote to.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._open()

    def __call__(self, n: int, work: Callable[[int, int], T]) -> list[T]:
        """Run ``work`` on the pieces of ``range(n)``."""
        if self._threads == 1 or n < 2:
            return [work(0, n)]
        edges = [n * i // self._threads for i in range(self._threads + 1)]
        cuts = [(start, stop) for start, stop in pairwise(edges) if start < stop]
        pool = self._own_pool()
        futures = [pool.submit(work, start, stop) for start, stop in cuts]
        wait(futures)
        return [_result(future, start) for future, (start, _) in zip(futures, cuts, strict=True)]

    def decode(self, blobs: Blobs, batch: npt.NDArray[Any], decoder: Callable[[Any, npt.NDArray[Any]], None]) -> None:
        """Decode every blob into its row of a batch; ``ParseFailed`` for the first that cannot be decoded.

        Args:
            blobs: ``n`` encoded samples.
            batch: ``[n, ...]``.
            decoder: writes one blob into one row.
        """

        def fill(start: int, stop: int) -> None:
            for position in range(start, stop):
                try:
                    decoder(blobs[position], batch[position])
                except Exception as error:
                    raise ParseFailed(position - start, reason_of(error)) from error

        self(len(blobs), fill)

    def close(self) -> None:
        """End the threads; pieces that have not begun are cancelled."""
        if self._owner == os.getpid():
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _own_pool(self) -> ThreadPoolExecutor:
        if self._owner != os.getpid():
            # A fork has no threads of its parent. Of two pools from simultaneous callers, the unused one ends by itself.
            self._open()
        return self._pool

    def _open(self) -> None:
        # The threads start with the first work.
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="parse")
        self._owner = os.getpid()


def _result(future: Future[T], start: int) -> T:
    try:
        return future.result()
    except ParseFailed as error:
        position = None if error.position is None else start + error.position
        raise ParseFailed(position, error.reason) from error
