"""Copies to the device: page-locked, on a stream of their own, and without a wait in the host's thread."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from fastpath import BatchStream, Columns, TrainingSet
from modyn_dagster.training import StreamLoader
from tests.training.rows_on_disk import ROW, RowsOnDisk

N = 4000
GROUPS = {"numeric": (["a", "b"], "float32"), "categorical": (["kind"], "int64")}
#: Calls of CUDA with which the host waits for the device.
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


@pytest.fixture
def rows(tmp_path: Path) -> RowsOnDisk:
    return RowsOnDisk.make(tmp_path, [2500, 2500])


def stream(rows: RowsOnDisk, allocate: Any = None) -> BatchStream:
    keys = np.random.default_rng(0).permutation(rows.keys)[:N]
    chosen = TrainingSet.of(keys, np.linspace(1, 2, N, dtype=np.float32))
    columns = Columns(ROW, GROUPS)
    return BatchStream(rows.store, chosen, 256, shuffle=True, seed=3, columns=columns, labels=True, allocate=allocate)


@pytest.mark.parametrize("pinned", [True, False])
def test_batches_on_the_device_are_those_of_the_processor_in_order(rows: RowsOnDisk, device: str, pinned: bool) -> None:
    here = list(StreamLoader(stream(rows)))
    loader = StreamLoader((lambda allocate: stream(rows, allocate)) if pinned else stream(rows), device=device)
    for epoch in range(2):
        loader.set_epoch(epoch)
        there = list(loader)
        assert len(there) == len(here)
    for one, other in zip(here, list(_restarted(loader)), strict=True):
        for name, tensor in one.items():
            if isinstance(tensor, torch.Tensor):
                assert other[name].device.type == torch.device(device).type
                assert torch.equal(other[name].cpu(), tensor), name


def _restarted(loader: StreamLoader) -> Iterator[Mapping[str, Any]]:
    loader.set_epoch(0)
    yield from loader


def test_a_loader_that_is_left_goes_on_behind_the_batch_that_was_taken(rows: RowsOnDisk, device: str) -> None:
    whole = [batch["keys"].tolist() for batch in StreamLoader(stream(rows))]
    first = StreamLoader(lambda allocate: stream(rows, allocate), device=device)
    taken = []
    for batch in first:
        taken.append(batch["keys"].tolist())
        if len(taken) == 5:
            break
    second = StreamLoader(lambda allocate: stream(rows, allocate), device=device)
    second.load_state_dict(first.state_dict())
    assert taken + [batch["keys"].tolist() for batch in second] == whole


def test_copies_are_page_locked_on_a_stream_of_their_own_and_nothing_waits(
    rows: RowsOnDisk, gpu: torch.device, tmp_path: Path
) -> None:
    loader = StreamLoader(lambda allocate: stream(rows, allocate), device=gpu)
    weights = torch.randn(2, 2048, device=gpu)

    def epoch(number: int) -> torch.Tensor:
        loader.set_epoch(number)
        total = torch.zeros((), device=gpu)
        for batch in loader:
            total += (batch["numeric"] @ weights).square().mean()
        return total

    # The first epoch allocates and page-locks; later ones use it again.
    assert torch.isfinite(epoch(0))
    torch.cuda.synchronize(gpu)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        total = epoch(1)
        torch.cuda.synchronize(gpu)
    assert torch.isfinite(total)
    profiled.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]

    copies = [event for event in events if event.get("cat") == "gpu_memcpy" and "HtoD" in event["name"]]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(copies) >= N // 256
    assert [event["name"] for event in copies if "Pageable" in event["name"]] == []
    assert {event["args"]["stream"] for event in copies}.isdisjoint({event["args"]["stream"] for event in kernels})

    begun = [event["ts"] for event in events if event.get("name") == "cudaLaunchKernel"]
    waits = [event["name"] for event in events if event.get("name") in WAITS and begun[0] < event["ts"] < begun[-1]]
    assert waits == []
