"""Speed of policies without measurements: a stream simulated from its first sample to its last."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.measure import Machine, interleave, timed
from benchmarks.report import Figure, short
from modyn_dagster.triggering import build_policy, simulate

SAMPLES: Final = 1_000_000
#: Samples between decision points, and the most seconds for a million samples.
_GOALS: Final = {"": (100, 0.2), ".each": (1, 5.0)}


def deciding_figures(machine: Machine, samples: int = SAMPLES) -> Iterator[Figure]:
    """``deciding.<policy>``: seconds with a decision at every 100th sample; ``deciding.<policy>.each``: at every one.

    Building the policy and reading the times count, and so do reason and details of every decision. Goals are those of a
    million samples, in proportion.
    """
    times = np.arange(samples) * 60
    for suffix, (every, goal) in _GOALS.items():
        points: dict[str, int] = {}

        def decide(name: str, block: dict[str, Any], points: dict[str, int] = points) -> None:
            points[name] = len(simulate(build_policy(block), times))

        blocks = _blocks(every)
        rounds = interleave({name: timed(samples, partial(decide, name, block)) for name, block in blocks.items()}, machine)
        for name in blocks:
            what = f"{name}: {short(samples)} samples, {short(points[name])} decision points"
            yield Figure(f"deciding.{name}{suffix}", what, rounds.seconds(name), "s", goal * samples / SAMPLES, at_most=True)


def _blocks(every: int) -> dict[str, dict[str, Any]]:
    """Policies with a decision point in ``every`` samples, which come one a minute.

    A tick is decided one sample later than a count of as many samples: the members of the ensemble share their points only
    where every sample is one, and elsewhere have half as many each.
    """
    apart = every if every == 1 else 2 * every
    members = {"amount": {"kind": "amount", "every": apart}, "time": {"kind": "time", "every": f"{apart}m"}}
    return {
        "amount": {"kind": "amount", "every": every},
        "time": {"kind": "time", "every": f"{every}m"},
        "ensemble": {"kind": "ensemble", "policies": members, "rule": "any"},
    }
