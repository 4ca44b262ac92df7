"""Bytes and times of the model store, beside MMlib's baseline (torch.save, an MD5 of every tensor, fsync).

    python benchmarks/model_store.py [--quick] [--json FILE] [--only sizes,times] [--threads N]

G2   a flow of 10 models (U1, 4 x U3-1, U2, 4 x U3-2), full updates by SGD, really trained; share of the full bytes
G3   the last layer alone trained; share of its plain bytes
G4   a snapshot without a base, fp32 and cast to bf16
G5   seconds to save a delta, of the baseline's; one of the size of ResNet-152 moves by synthetic updates
G6   recovery in a chain, of the baseline's; last over first derived
G7   share of verification in the recovery of a delta and of a plain snapshot
G8   bytes of a provenance record, models trained again bit for bit, probe's false alarms
G9   adaptive over a committed trace, of the best choice in hindsight and of the best single strategy
G10  a fleet: bytes and times per model, of those of a flow of 10; models added by 20 nodes that save the same

Ratios are taken between contenders of the same round.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    # The repository's root instead of this folder: its modules are found, and hide nobody else's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch

from benchmarks.figures import choosing, storing
from benchmarks.figures.storing import Setting
from benchmarks.groups import measured, one_of
from benchmarks.report import Figure, busyness, write_json

_GROUPS: Final[Mapping[str, Callable[[Setting], Iterator[Figure]]]] = {
    "sizes": storing.sizes,
    "times": storing.times,
    "chain": storing.chain,
    "scale": storing.scale,
    "provenance": choosing.provenance,
    "adaptive": choosing.adaptive,
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Bytes and times of the model store.")
    parser.add_argument("--quick", action="store_true", help="everything smaller, within a minute")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--only", type=one_of(_GROUPS), default=tuple(_GROUPS), help="groups to measure, for example sizes,chain")
    parser.add_argument("--threads", type=int, help="threads of torch and of the store (default: torch's)")
    options = parser.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    setting = Setting.quick() if options.quick else Setting()
    found = measured(_GROUPS, options.only, setting)
    found += busyness(setting.machine)
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
