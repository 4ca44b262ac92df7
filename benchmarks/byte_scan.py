"""Search for the bytes of deleted samples: seconds to take fingerprints, and bytes searched per second, by number of samples.

    python benchmarks/byte_scan.py --megabytes 512

The stream is random bytes in memory with one sample in its middle, so that no disk is measured. A sample is 160 random bytes.
"""

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    # The repository's root replaces this folder, so that its modules are found and hide no others.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from modyn_dagster.pipeline.operate.deletion.report.fingerprints import Fingerprints, FingerprintWriter, Hashing
from modyn_dagster.pipeline.operate.deletion.report.search import PieceSearch

_SAMPLE_BYTES = 160


def main() -> None:
    """Print a line per number of samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--samples", type=int, nargs="*", default=[100, 10_000, 100_000])
    chosen = parser.parse_args()
    rng = np.random.default_rng(0)
    for n in chosen.samples:
        samples = [rng.bytes(_SAMPLE_BYTES) for _ in range(n)]
        with tempfile.TemporaryDirectory() as folder:
            taking = time.perf_counter()
            writer = FingerprintWriter(np.arange(n, dtype=np.uint64), Hashing(rng.bytes(16)))
            for i, sample in enumerate(samples):
                writer.add(i, "stored", sample)
            writer.write(Path(folder) / "1.fingerprints")
            taken = time.perf_counter() - taking
            search = PieceSearch(Fingerprints.read(Path(folder) / "1.fingerprints"))
        half = rng.bytes(chosen.megabytes * 500_000)
        stream = half + samples[n // 2] + half
        wall, processor = time.perf_counter(), time.process_time()
        n_matches = sum(1 for _ in search.find(io.BytesIO(stream)))
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        rates = f"{len(stream) / wall / 1e9:.2f} GB/s wall, {len(stream) / processor / 1e9:.2f} GB/s of processor time"
        print(f"{n:>9,} samples: fingerprints in {taken:.2f} s; {n_matches} found, {rates}")


if __name__ == "__main__":
    main()
