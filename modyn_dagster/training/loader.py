"""A batch stream in torch: tensors on a device, resumable."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastpath import BatchStream
from modyn_dagster.training.inputs.device import DeviceCopy, pinned_empty
from modyn_dagster.training.stream_dataset import State, as_arrays, as_tensors

#: Makes a stream from an allocator of its buffers (None: ordinary memory).
MakeStream = Callable[[Callable[[int], npt.NDArray[np.uint8]] | None], BatchStream]


def _allocate_pinned(n_bytes: int) -> npt.NDArray[np.uint8]:
    return pinned_empty((n_bytes,), np.uint8)


class StreamLoader:
    """Batches of a stream as tensors on a device.

    A batch without a ``transform`` of the stream becomes a dict: ``number`` (int), ``keys`` (int64), ``weights`` (float32),
    and whichever the stream gathers of ``rows`` (uint8 ``[b, width]``), ``buffer`` and ``offsets``, ``labels``,
    ``timestamps`` (int64, microseconds) and the columns by name. What a transform returns keeps its form: arrays become
    tensors inside dicts, tuples, lists and dataclasses.

    On a CPU tensors share the stream's buffers, which are reused once nothing refers to them. On CUDA buffers are
    page-locked and the next batch is copied beside the computation.

    Args:
        stream: a stream, or a function that makes one: ``lambda allocate: BatchStream(store, chosen, 256, allocate=allocate)``.
            The latter gathers straight into page-locked memory; batches of the former are copied there.
        device: device of the tensors.
        pin: page-lock buffers; None does so for CUDA.
    """

    def __init__(self, stream: BatchStream | MakeStream, *, device: torch.device | str = "cpu", pin: bool | None = None) -> None:
        self.device = torch.device(device)
        pinned = self.device.type == "cuda" if pin is None else pin
        self.stream = stream if isinstance(stream, BatchStream) else stream(_allocate_pinned if pinned else None)
        self._copy = DeviceCopy(self.device, pin=pinned)
        # Position of the consumer, while copies run ahead of it.
        self._state: State | None = None

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.stream)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rest of the epoch, or over the whole epoch after its end."""
        return self._on_cpu() if self.device.type == "cpu" else self._on_device()

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of another epoch; the current one changes nothing, so a resumed epoch continues."""
        if epoch != self.stream.epoch:
            self.stream.set_epoch(epoch)
            self._state = None

    def state_dict(self) -> State:
        """Position of the consumer: another loader with this state continues with the next batch of this one."""
        return dict(self._state if self._state is not None else self.stream.state_dict())

    def load_state_dict(self, state: State) -> None:
        """Continue from a loader's state, of any device and number of consumers. ``ValueError`` for another training set."""
        self.stream.load_state_dict(state)
        self._state = None

    def close(self) -> None:
        """End the stream's threads."""
        self.stream.close()

    def _on_cpu(self) -> Iterator[Any]:
        # Closes this iteration only, not another one of the same stream.
        with closing(iter(self.stream)) as batches:
            for batch in batches:
                yield as_tensors(batch)

    def _on_device(self) -> Iterator[Any]:
        interrupted_state, n_taken = self._state, 0
        if interrupted_state is not None:
            # The copies of the interrupted iteration had run ahead.
            self.stream.load_state_dict(interrupted_state)
        for batch in self._copied():
            n_taken += 1
            yield batch
        if interrupted_state is not None and n_taken == 0:
            # The iteration was interrupted after its last batch.
            yield from self._copied()

    def _copied(self) -> Iterator[Any]:
        states: deque[State] = deque([self.stream.state_dict()])

        def arrays() -> Iterator[Any]:
            with closing(iter(self.stream)) as batches:
                for batch in batches:
                    states.append(self.stream.state_dict())
                    yield as_arrays(batch)

        self._state = states.popleft()
        for batch in self._copy(arrays()):
            self._state = states.popleft()
            yield batch
        self._state = None
