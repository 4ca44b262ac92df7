"""Time of samples in shards: Figures 7 to 9 of the time-biased sampling paper in form, and one thread on keys beside them.

``python benchmarks/distributed_sampling.py [--quick] [--json FILE] [--plots FOLDER] [--workers 1,2,4] [--work DIR]``, and
``--ray HOST:PORT`` for the workers of all nodes of a Ray cluster.

Hentschel, Haas, Tian, "Temporally-Biased Sampling for Online Model Management" (EDBT 2018), §6.1: seconds per batch by
variant (fig7), number of workers (fig8) and size of batches (fig9). The paper had 13 servers, Spark, and whole items; here
workers are processes of this machine or of the nodes, and items are keys of 8 bytes. Its key-value store was Memcached; here it
is Postgres, an unlogged table written by binary COPY, because that is the store that the platform has.

Shards travel to a worker and back with every call, as a pool of workers keeps nothing between calls.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])


from benchmarks.database import Database, database
from benchmarks.figures.sampling_in_shards import batch_sizes, variants, workers
from benchmarks.measure import Machine
from benchmarks.report import Figure, busyness, print_table, write_json
from benchmarks.sharded_plots import draw
from modyn_dagster.distributed.on_ray.pool import RayPool
from modyn_dagster.distributed.processes.pool import ProcessPool
from modyn_dagster.distributed.protocols import Pool

#: Keys per batch of figures 7 and 8, keys of the sample and per batch of figure 9.
_FULL: Final = (1_000_000, 4_000_000, 2_000_000, (1_000, 10_000, 100_000, 1_000_000, 10_000_000))
_QUICK: Final = (50_000, 200_000, 100_000, (1_000, 10_000, 100_000))


def measure(work: Path, numbers: Sequence[int], *, ray: str | None = None, quick: bool) -> list[Figure]:
    """All figures, printed as they come; with the address of a Ray cluster, figures 7 and 9 use its workers."""
    batch, large, n, sizes = _QUICK if quick else _FULL
    machine, found = Machine(), []
    with ExitStack() as stack:
        pools: dict[str, Pool] = {str(number): stack.enter_context(ProcessPool(number)) for number in numbers}
        most = pools[str(max(numbers))]
        if ray is not None:
            most = pools["ray"] = RayPool(ray)
        with tempfile.TemporaryDirectory(prefix="slots-", dir=work) as folder, database(Path(folder)) as server:
            found += list(variants(batch, most, _address(server), machine))
            print_table(found, "Figure 7: by variant")
        eight = list(workers(large, pools, machine))
        print_table(eight, "Figure 8: by number of workers")
        nine = list(batch_sizes(sizes, n, most, machine))
        print_table(nine, "Figure 9: by size of batches")
    return [*found, *eight, *nine, *busyness(machine)]


def _address(server: Database) -> str:
    return server.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Seconds per batch of samples in shards, in the form of the paper's figures.")
    parser.add_argument("--quick", action="store_true", help="small batches, within a minute")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--plots", type=Path, help="folder for the picture")
    parser.add_argument("--workers", default="1,2,4", help="numbers of processes of figure 8; the others use the largest")
    parser.add_argument(
        "--ray", metavar="HOST:PORT", help="head of a Ray cluster to use as well, one core a node; see docs/beyond.md"
    )
    parser.add_argument("--work", type=Path, help="existing folder for the server's data, below 1 GB; emptied again")
    options = parser.parse_args()
    numbers = [int(number) for number in options.workers.split(",")]
    with tempfile.TemporaryDirectory(prefix="modyn-benchmark-", dir=options.work) as work:
        found = measure(Path(work), numbers, ray=options.ray, quick=options.quick)
    if options.json is not None:
        write_json(options.json, found)
    if options.plots is not None:
        draw({figure.id: figure.spread for figure in found if figure.spread is not None}, options.plots / "tbs_shards.png")


if __name__ == "__main__":
    main()
