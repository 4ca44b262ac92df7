"""Error and power of the tests by which a model is promoted, on simulated streams whose true difference is known.

``python benchmarks/promotion_power.py --out DIR`` prints two tables in Markdown and writes ``promotion_power.png``: the samples
until a difference is found; and the share of streams on which a test promotes although it should not, with the upper end of its
exact 95 % interval. ``--streams 50`` is a quick look.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import matplotlib
import numpy as np

from benchmarks.promotion_rates import (
    Promotions,
    bootstrap_promotions,
    mcnemar_promotions,
    samples_until_better,
    sequence_promotions,
)
from benchmarks.promotion_streams import NULL_STREAMS, Float64

matplotlib.use("Agg")

from matplotlib import pyplot as plt

_ALPHA: Final = 0.05
_LENGTH: Final = 2000
#: Differences of two accuracies, and shares of samples on which one model alone is right.
_DIFFERENCES: Final = (0.005, 0.01, 0.02, 0.05, 0.1)
_DIFFERING: Final = (0.1, 0.2)
#: Streams end at so many times the samples that a single look needs.
_LONGEST: Final = 12
_SEED: Final = 20231
#: Streams of scores: autocorrelation, samples, looks, and the share of all streams, as looks of many samples take long.
_BOOTSTRAPS: Final = ((0.0, 400, 2, 1.0), (0.9, 400, 2, 1.0), (0.9, 2000, 20, 0.3))


def upper_end(successes: int, n: int, level: float = 0.95) -> float:
    """Upper end of the one-sided interval of Clopper and Pearson for a share.

    >>> round(upper_end(0, 59), 3)
    0.05
    """
    from scipy.special import betaincinv

    return 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, level))


def fixed_samples(difference: float, differing: float, power: float, alpha: float = _ALPHA) -> float:
    """Samples at which one look, fixed beforehand, finds a difference of accuracies with some power (normal approximation).

    >>> round(fixed_samples(0.05, 0.1, 0.5))
    108
    """
    quantile = NormalDist().inv_cdf
    variance = differing - difference**2
    return float((quantile(1 - alpha) * differing**0.5 + quantile(power) * variance**0.5) ** 2 / difference**2)


def errors(streams: int) -> list[tuple[str, str, Promotions]]:
    """Promotions on streams without a difference: stream, test and counts."""
    rows = []
    for name, (stream, margin) in NULL_STREAMS.items():
        given: dict[str, Any] = {"streams": streams, "n": _LENGTH, "alpha": _ALPHA, "seed": _SEED}
        rows.append((name, "confidence_sequence, a look after every sample", sequence_promotions(stream, margin, **given)))
        if margin == 0 and name != "skewed losses":
            rows.append((name, "mcnemar, 20 looks", mcnemar_promotions(stream, **given)))
            unspent = mcnemar_promotions(stream, **given, spends=False)
            rows.append((name, "mcnemar, 20 looks, each at the full error", unspent))
    for correlation, n, looks, share in _BOOTSTRAPS:
        stretch: dict[str, Any] = {
            "streams": max(20, int(share * streams)),
            "n": n,
            "looks": looks,
            "alpha": _ALPHA,
            "seed": _SEED,
        }
        found = bootstrap_promotions(correlation=correlation, **stretch)
        name = f"scores of equal ROC-AUC, autocorrelation {correlation:g}, {n:,} samples"
        rows.append((name, f"block_bootstrap, {looks} looks", found))
    return rows


def power(streams: int) -> dict[tuple[float, float], Float64]:
    """Samples until the confidence sequence says ``better``, by difference and share of differing predictions."""
    found = {}
    for differing in _DIFFERING:
        for difference in _DIFFERENCES:
            if difference >= differing:
                continue
            needed = fixed_samples(difference, differing, 0.9)
            given: dict[str, Any] = {
                "most": int(_LONGEST * needed) + 500,
                "every": max(1, int(needed / 100)),
                "alpha": _ALPHA,
                "seed": _SEED,
            }
            found[difference, differing] = samples_until_better(difference, differing, streams=streams, **given)
    return found


def error_table(rows: Sequence[tuple[str, str, Promotions]]) -> str:
    """Markdown of the errors; claims that were true when they were made are told apart."""
    lines = ["| stream | test | streams | promoted | of them wrongly | rate, at most |", "|---|---|---:|---:|---:|---:|"]
    for stream, test, found in rows:
        most = upper_end(found.false, found.streams)
        lines.append(f"| {stream} | {test} | {found.streams:,} | {found.claimed:,} | {found.false:,} | {most:.4f} |")
    return "\n".join(lines)


def power_table(found: Mapping[tuple[float, float], Float64]) -> str:
    """Markdown of the samples needed: median and 90 % quantile of the sequence, beside a single look with that power."""
    head = "| difference | differing | half of the streams | 90 % of them | one fixed look, power 50 % | power 90 % |"
    lines = [head, "|---:|---:|---:|---:|---:|---:|"]
    for (difference, differing), samples in found.items():
        half, most = (_rounded(float(np.quantile(samples, q, method="higher"))) for q in (0.5, 0.9))
        fixed = [_rounded(fixed_samples(difference, differing, p)) for p in (0.5, 0.9)]
        lines.append(f"| {difference:g} | {differing:.0%} | {half} | {most} | {fixed[0]} | {fixed[1]} |")
    return "\n".join(lines)


def draw(found: Mapping[tuple[float, float], Float64], path: Path) -> None:
    """Draw the samples needed over the difference, both on logarithmic axes."""
    picture, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    for differing, colour in zip(_DIFFERING, ("#0072B2", "#D55E00"), strict=True):
        differences = [difference for difference, share in found if share == differing]
        samples = [found[difference, differing] for difference in differences]
        low, half, most = ([float(np.quantile(each, q, method="higher")) for each in samples] for q in (0.1, 0.5, 0.9))
        label = f"confidence sequence, models differ on {differing:.0%}"
        axes.plot(differences, half, "o-", color=colour, label=f"{label}: half of the streams")
        axes.fill_between(differences, low, most, color=colour, alpha=0.15, linewidth=0, label="10 % to 90 % of the streams")
        fixed = [fixed_samples(difference, differing, 0.5) for difference in differences]
        axes.plot(differences, fixed, ":", color=colour, label="one look at a number fixed beforehand, power 50 %")
    axes.set(xscale="log", yscale="log", xlabel="difference of the accuracies", ylabel="samples until `better` at 95 %")
    axes.set_xticks(_DIFFERENCES, [f"{each:g}" for each in _DIFFERENCES])
    axes.minorticks_off()
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(picture)


def _rounded(number: float) -> str:
    return f"{int(float(f'{number:.2g}')):,}" if np.isfinite(number) else "more than were drawn"


def main() -> None:
    """Print the tables and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=2000, help="streams of each kind for the errors")
    parser.add_argument("--power-streams", type=int, default=300, help="streams of each kind for the samples needed")
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder of the picture")
    options = parser.parse_args()
    found = power(options.power_streams)
    draw(found, options.out / "promotion_power.png")
    sys.stdout.write(power_table(found) + "\n\n")
    sys.stdout.flush()
    sys.stdout.write(error_table(errors(options.streams)) + "\n")


if __name__ == "__main__":
    main()
