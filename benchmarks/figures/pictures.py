"""F9 and F8b: JPEG files packed at ingestion against the files themselves, read, decoded and trained on."""

import io
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks import data, images
from benchmarks.contenders.cold_reads import forget
from benchmarks.figures.training import Loop, compare, devices
from benchmarks.measure import Contender, Run, interleave, timed
from benchmarks.report import Figure, with_least
from benchmarks.setting import Mismatch, Setting
from fastpath import BatchStream, SampleStore
from modyn_dagster.spec.learning.parsing import ImagesSpec
from modyn_dagster.training.loader import StreamLoader
from modyn_dagster.training.models.images import ResNet
from modyn_dagster.training.parsing.images import Images

#: Images of one request, and of one training step.
_READ: Final = 256
_STEP: Final = 16
#: What ResNet-18 is fed: half the size of the files.
_SIZE: Final = (96, 128)


def figures(setting: Setting) -> Iterator[Figure]:
    """F9.warm, F9.cold, F9.decode, F9.decode_scaled, F9, and F8b."""
    paths = images.write_images(setting.work / "images", setting.sizes.images)
    packed = data.pack(setting.work / "packed", paths)
    if setting.wants("F9"):
        decoded = paths[: setting.sizes.decoded_images]
        yield from with_least("F9", chain(_reading(setting, packed, paths), _decoding(setting, decoded)))
    if setting.wants("F8b"):
        threads = torch.get_num_threads()
        for device in devices():
            torch.set_num_threads(len(os.sched_getaffinity(0)))
            yield from _training(setting, packed, paths, device)
            torch.set_num_threads(threads)


def _reading(setting: Setting, packed: data.Packed, paths: Sequence[Path]) -> Iterator[Figure]:
    shuffled = np.random.default_rng(8).permutation(packed.keys)
    pieces = [shuffled[start : start + _READ] for start in range(0, len(shuffled), _READ)]

    # As a batch stream does, into memory that is used again.
    buffer = np.zeros(_READ * max(path.stat().st_size for path in paths), np.uint8)

    def keyed(store: SampleStore) -> int:
        return sum(len(store.read_blobs(piece, out=buffer).buffer) for piece in pieces)

    def opened() -> int:
        with packed.open() as store:
            return keyed(store)

    def in_order() -> int:
        size = 0
        for path in paths:
            with open(path, "rb") as file:
                size += len(file.read())
        return size

    with packed.open() as store:
        found = store.read_blobs(packed.keys)
        if any(bytes(found[i]) != path.read_bytes() for i, path in enumerate(paths)):
            raise Mismatch("packed images differ from their files")
        n = len(paths)
        warm = {"ours": timed(n, lambda: keyed(store)), "files": timed(n, in_order)}
        rounds = interleave(warm, setting.machine)
    yield Figure("F9.warm", "images, warm: keyed, shuffled / files in order", rounds.ratio("ours", "files"), "x", 6.0)
    yield Figure("rows.F9.warm", "packed images, warm", rounds.rate("ours"), "images/s")
    cold = {"ours": _cold(packed.shards, n, opened), "files": _cold(paths, n, in_order)}
    rounds = interleave(cold, setting.machine, warm_up=0)
    yield Figure("F9.cold", "images, cold: keyed, shuffled / files in order", rounds.ratio("ours", "files"), "x", 4.0)
    yield Figure("rows.F9.cold", "packed images, cold", rounds.rate("ours"), "images/s")


def _cold(paths: Sequence[Path], n: int, read: Callable[[], object]) -> Contender:
    def run() -> Run:
        forget(paths)
        start = time.perf_counter()
        read()
        return Run(n, time.perf_counter() - start)

    return run


def _decoding(setting: Setting, paths: Sequence[Path]) -> Iterator[Figure]:
    """One core. Full size: pixels as stored. Scaled: to half of it, where Pillow decodes a draft and both end in ``_SIZE``."""
    files, n = [path.read_bytes() for path in paths], len(paths)
    full, half = Images(ImagesSpec(size=(images.HEIGHT, images.WIDTH), layout="hwc")), Images(ImagesSpec(size=_SIZE))

    def pillow(file: bytes, size: tuple[int, int] | None = None) -> Any:
        with Image.open(io.BytesIO(file)) as image:
            pixels = image.convert("RGB")
            return np.asarray(pixels if size is None else pixels.resize((size[1], size[0]), Image.Resampling.BILINEAR))

    if not np.array_equal(full(files[:1])["features"][0], pillow(files[0])):
        raise Mismatch("decoded pixels differ from Pillow's")
    contenders = {
        "ours": timed(n, lambda: full(files)),
        "pillow": timed(n, lambda: [pillow(file) for file in files]),
        "ours, scaled": timed(n, lambda: half(files)),
        "pillow, scaled": timed(n, lambda: [pillow(file, _SIZE) for file in files]),
    }
    rounds = interleave(contenders, setting.machine)
    yield Figure("F9.decode", "decoded at full size / Pillow, one core", rounds.ratio("ours", "pillow"), "x", 1.5)
    scaled = rounds.ratio("ours, scaled", "pillow, scaled")
    yield Figure("F9.decode_scaled", "decoded to half the size / Pillow, one core", scaled, "x", 1.9)
    for name in contenders:
        yield Figure(f"rows.F9.decode.{name.replace(', ', '_')}", f"decode, {name}", rounds.rate(name), "images/s")


def _training(setting: Setting, packed: data.Packed, paths: Sequence[Path], device: str) -> Iterator[Figure]:
    """Both loops decode with the same parser: ours in the prefetch thread, the scan's where a plain loop does it."""
    steps = min(len(paths) // _STEP, setting.sizes.image_steps * (20 if device == "cuda" else 1))
    parse = Images(ImagesSpec(size=_SIZE))
    chosen = np.sort(np.random.default_rng(9).choice(packed.keys, steps * _STEP, replace=False))
    with packed.open() as store:

        def parsed(batch: Any) -> Any:
            return {**parse(batch.blobs), "label": batch.labels}

        def made(allocate: Any) -> BatchStream:
            return BatchStream(store, chosen, _STEP, shuffle=True, labels=True, transform=parsed, allocate=allocate)

        loader = StreamLoader(made, device=device)
        epoch = 0

        def keyed() -> Iterable[Any]:
            nonlocal epoch
            epoch += 1
            loader.set_epoch(epoch)
            return loader

        def scanned() -> Iterable[Any]:
            for start in range(0, steps * _STEP, _STEP):
                read = [path.read_bytes() for path in paths[start : start + _STEP]]
                labels = np.arange(start, start + _STEP) % images.N_CLASSES
                features = torch.from_numpy(parse(read)["features"])
                yield {"features": features.to(device), "label": torch.from_numpy(labels).to(device)}

        ours, base = Loop(keyed, _trainer(device), steps * _STEP), Loop(scanned, _trainer(device), steps * _STEP)
        yield from compare("F8b" if device == "cpu" else f"F8b.{device}", f"ResNet-18 on {device}", ours, base, setting)


def _trainer(device: str) -> Callable[[Any], Tensor]:
    torch.manual_seed(0)
    model = ResNet(images.N_CLASSES).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(batch: Any) -> Tensor:
        loss = nn.functional.cross_entropy(model(batch["features"].float() / 255), batch["label"])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        optimizer.step()
        return loss.detach()

    return step
