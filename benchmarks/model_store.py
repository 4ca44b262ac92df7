"""Bytes and times of the model store, beside MMlib's baseline (torch.save, an MD5 of every tensor, fsync).

    python benchmarks/model_store.py [--quick] [--json FILE] [--only G2,G5] [--threads N] [--mmlib FOLDER]

G2   a flow of 10 models (U1, 4 x U3-1, U2, 4 x U3-2), full updates by SGD, really trained; share of the full bytes
G3   the last layer alone trained; share of its plain bytes
G4   a snapshot without a base, fp32 and cast to bf16
G5   seconds to save a delta, of the baseline's: ResNet-152, ResNet-18, a small net
G6   recovery in a chain of 20, of the baseline's; last over first derived
G7   share of verification in the recovery of a delta and of a plain snapshot
G8   bytes of a provenance record, models trained again bit for bit, probe's false alarms
G9   adaptive over a committed trace, of the best choice in hindsight and of the best single strategy
G10  a fleet of 402 models: bytes and times per model, of those of a flow of 10; models added by 20 nodes that save the same
MMlib.network, MMlib.large  MMlib itself, its baseline (BA) and parameter update (PUA) as published, beside ours: ResNet-18 and
     ResNet-152, every layer trained and the last one alone, a chain of 5; a derived model's bytes, seconds to save it and to
     recover each position, weights verified and compared bit for bit; for those who have it:

    git clone https://github.com/hpides/mmlib FOLDER && git -C FOLDER checkout e0035b6
    pip install --target FOLDER --no-deps pymongo==3.11.2 colorama==0.4.4

Ratios are taken between contenders of the same round, by the clock; those that end in ``.cpu`` are of seconds of the processor
in all threads, which other people's work disturbs less. Models are trained by one thread, saved and recovered by ``--threads``.
The JSON is written again after each figure.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    # The repository's root instead of this folder: its modules are found, and hide nobody else's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch

from benchmarks.figures import choosing, model_beside, model_bytes, model_fleet, model_times, retraining
from benchmarks.groups import measured, one_of
from benchmarks.model_setting import Setting
from benchmarks.report import Figure, busyness, write_json

_GROUPS: Final[Mapping[str, Callable[[Setting], Iterator[Figure]]]] = {
    "G2": model_bytes.full_updates,
    "G3": model_bytes.last_layers,
    "G4": model_bytes.snapshots,
    "G5": model_times.saving,
    "G6": model_times.chain,
    "G7": model_times.verification,
    "G8": retraining.provenance,
    "G9": choosing.adaptive,
    "G10": model_fleet.fleet,
    "MMlib.network": partial(model_beside.beside, "network"),
    "MMlib.large": partial(model_beside.beside, "large"),
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Bytes and times of the model store.")
    parser.add_argument("--quick", action="store_true", help="everything smaller, within a minute")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--only", type=one_of(_GROUPS), default=tuple(_GROUPS), help="groups to measure, for example G2,G5")
    parser.add_argument("--threads", type=int, help="threads of the store and of its contender (default: torch's)")
    parser.add_argument("--mmlib", type=Path, help="a checkout of MMlib with the two packages it needs")
    options = parser.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    setting = replace(Setting.quick() if options.quick else Setting(), mmlib=options.mmlib)

    def write(found: list[Figure]) -> None:
        if options.json is not None:
            write_json(options.json, [*found, *busyness(setting.machine)])

    measured(_GROUPS, options.only, setting, write)


if __name__ == "__main__":
    main()
