"""Files with damage, thousands of them from one seed, and what reads them in a child process."""

import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

#: Numbers at which sizes, offsets and counts overflow, or nearly.
EDGES = (0, 1, -1, 2, 7, 8, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, -(2**63), -8)

#: Looks at the file, told whether it is as it was; raises when something is wrong.
Attempt = Callable[[bool], None]


def variants(content: bytes, seed: int, n: int) -> Iterator[tuple[str, bytes]]:
    """(what was done, the damaged content), n times."""
    rng = np.random.default_rng(seed)
    kinds = [_flip, _overwrite, _number, _number, _cut, _extend, _copy, _clear]
    for _ in range(n):
        damaged = bytearray(content)
        done = [kinds[kind](damaged, rng) for kind in rng.integers(len(kinds), size=rng.integers(1, 4))]
        yield ", ".join(done), bytes(damaged)


def run(path: Path, seed: int, n: int, attempt: Attempt) -> None:
    """``attempt`` with the file in n damaged states, and at the end with what it was."""
    content = path.read_bytes()
    for i, (done, damaged) in enumerate(variants(content, seed, n)):
        # In place of the one before, which may still be mapped.
        path.unlink()
        path.write_bytes(damaged)
        try:
            attempt(damaged == content)
        except BaseException as error:
            error.add_note(f"{path.name}, seed {seed}, variant {i}: {done}")
            raise
    path.unlink()
    path.write_bytes(content)
    attempt(True)


def child(targets: dict[str, Callable[[Path, int, int], None]]) -> None:
    """``<target> <folder> <seed> <n>`` from the command line."""
    name, folder, seed, n = sys.argv[1:]
    targets[name](Path(folder), int(seed), int(n))


def _place(damaged: bytearray, rng: np.random.Generator, size: int = 1) -> int:
    return int(rng.integers(max(len(damaged) - size, 0) + 1))


def _span(damaged: bytearray, rng: np.random.Generator) -> tuple[int, int]:
    start = _place(damaged, rng)
    return start, min(int(rng.integers(1, 65)), len(damaged) - start)


def _flip(damaged: bytearray, rng: np.random.Generator) -> str:
    at, bit = _place(damaged, rng), int(rng.integers(8))
    damaged[at : at + 1] = bytes(value ^ 1 << bit for value in damaged[at : at + 1])
    return f"bit {bit} of {at} flipped"


def _overwrite(damaged: bytearray, rng: np.random.Generator) -> str:
    start, size = _span(damaged, rng)
    damaged[start : start + size] = rng.bytes(size)
    return f"{size} random bytes at {start}"


def _number(damaged: bytearray, rng: np.random.Generator) -> str:
    width = (2, 4, 8)[rng.integers(3)]
    at = _place(damaged, rng, width) // width * width
    value = EDGES[rng.integers(len(EDGES))]
    damaged[at : at + width] = struct.pack("<q", (value + 2**63) % 2**64 - 2**63)[:width]
    return f"{value} in {width} bytes at {at}"


def _cut(damaged: bytearray, rng: np.random.Generator) -> str:
    kept = _place(damaged, rng) if rng.random() < 0.5 else max(len(damaged) - int(rng.integers(1, 33)), 0)
    del damaged[kept:]
    return f"cut to {kept}"


def _extend(damaged: bytearray, rng: np.random.Generator) -> str:
    more = int(rng.integers(1, 65))
    damaged += bytes(more) if rng.random() < 0.5 else rng.bytes(more)
    return f"{more} bytes more"


def _copy(damaged: bytearray, rng: np.random.Generator) -> str:
    start, size = _span(damaged, rng)
    to = _place(damaged, rng, size)
    damaged[to : to + size] = damaged[start : start + size]
    return f"{size} bytes from {start} copied to {to}"


def _clear(damaged: bytearray, rng: np.random.Generator) -> str:
    start, size = _span(damaged, rng)
    damaged[start : start + size] = bytes(size)
    return f"{size} zeros at {start}"
