"""Drift metrics against alibi-detect and scipy, on normal features; both sides get the same arrays."""

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.stats import ks_2samp

from benchmarks.measure import ROUNDS, Machine, Spread, interleave, timed
from benchmarks.report import Figure, short
from benchmarks.setting import Mismatch
from modyn_dagster.errors import MissingExtra
from modyn_dagster.keys import KeyRange
from modyn_dagster.spec.triggers.drift import BackendMetric, DriftMetricSpec, FeaturesSpec, MMDMetric
from modyn_dagster.triggering.drift import measure_drift
from modyn_dagster.triggering.drift.backends.third_party import load
from modyn_dagster.triggering.drift.univariate.kolmogorov_smirnov import kolmogorov_smirnov, kolmogorov_smirnov_p_values
from modyn_dagster.triggering.drift.univariate.ranked_columns import observed
from modyn_dagster.triggering.drift.windows import Windows, as_features
from modyn_dagster.triggering.measurement import DriftNeed, Measured

Features = npt.NDArray[np.float32]

PERMUTATIONS: Final = 100
FEATURES: Final = 512
#: Least ratio by samples per window and dimensions.
GOALS: Final = {(1_000, 32): 20, (1_000, 512): 20, (1_000, 768): 15, (5_000, 32): 40, (5_000, 512): 40, (5_000, 768): 30}


@dataclass
class Setting:
    """Setting of a measurement: samples per window, dimensions, rounds and clock of MMD, and load of the machine."""

    sizes: Sequence[int] = (1_000, 5_000)
    widths: Sequence[int] = (32, 512, 768)
    columns: int = 512
    column_samples: int = 5_000
    large: int = 20_000
    decisions: int = 1_000_000
    mmd_rounds: int = ROUNDS
    mmd_clock: Callable[[], float] = time.perf_counter
    machine: Machine = field(default_factory=Machine)


QUICK: Final = Setting(sizes=(1_000,), widths=(32,), columns=16, large=2_000, decisions=20_000)


def mmd(setting: Setting) -> Iterator[Figure]:
    """``mmd.<n>.<d>``, for the smallest n ``mmd.<n>.<d>.given`` the bandwidth, and ``mmd.features.<n>.<d>``."""
    for n in setting.sizes:
        for d in setting.widths:
            yield from _mmd(setting, n, d)


def ks(setting: Setting) -> Iterator[Figure]:
    """``ks``: all columns at once, statistic and p-value of each, against a loop over ``scipy.stats.ks_2samp``."""
    n, d = setting.column_samples, setting.columns
    for dtype in (np.float64, np.float32):
        reference, current = (as_features(window.astype(dtype), "made") for window in normal(n, d))
        windows = Windows(reference, current, "cpu", 0, ())

        def ours(windows: Windows = windows) -> tuple[Any, Any]:
            statistics = observed(kolmogorov_smirnov, windows)
            return statistics, kolmogorov_smirnov_p_values(statistics, windows.n, windows.m)

        def theirs(reference: Any = reference, current: Any = current) -> tuple[Any, Any]:
            found = [ks_2samp(reference[:, c], current[:, c], method="asymp") for c in range(reference.shape[1])]
            return np.array([one.statistic for one in found]), np.array([one.pvalue for one in found])

        if not all(np.array_equal(a, b) for a, b in zip(ours(), theirs(), strict=True)):
            raise Mismatch("ks: statistics or p-values differ from scipy's")
        rounds = interleave({"ours": timed(d, ours), "scipy": timed(d, theirs)}, setting.machine)
        what = f"KS, {d} columns of {n} x {n}, {np.dtype(dtype).name}, over a loop of ks_2samp"
        note = f"ours {short(rounds.seconds('ours').value * 1e3)} ms, scipy {short(rounds.seconds('scipy').value * 1e3)} ms"
        name = "ks" if dtype is np.float64 else "ks.float32"
        yield Figure(name, what, rounds.ratio("ours", "scipy"), "x", 1.8, note=note)


def memory(setting: Setting) -> Iterator[Figure]:
    """``memory.<n>``: peak memory that a call adds to the process; the kernel matrix would be ``16 n²`` bytes."""
    for n in sorted({*setting.sizes, setting.large}):
        windows = normal(n, 32)
        ours = _ours(MMDMetric(metric="mmd", permutations=PERMUTATIONS), windows)
        peaks = [_peak(ours) / 2**20 for _ in range(5)]
        matrix = 16 * n**2 / 2**20
        yield Figure(
            f"memory.{n}", f"MMD, 2 x {n}: memory added", Spread.of(peaks), "MiB", note=f"its kernel matrix: {short(matrix)} MiB"
        )


def normal(n: int, d: int) -> tuple[Features, Features]:
    """Two windows ``float32[n, d]``, one shifted a little."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, d), np.float32), rng.standard_normal((n, d), np.float32) + np.float32(0.02)


def _mmd(setting: Setting, n: int, d: int) -> Iterator[Figure]:
    windows = normal(n, d)
    sigma = float(np.sqrt(d))
    ways = {
        "ours": _ours(MMDMetric(metric="mmd", permutations=PERMUTATIONS), windows),
        "given": _ours(MMDMetric(metric="mmd", permutations=PERMUTATIONS, bandwidth=sigma), windows),
        "features": _ours(MMDMetric(metric="mmd", permutations=PERMUTATIONS, random_features=FEATURES), windows),
    }
    given = n == min(setting.sizes)
    try:
        ways |= {"alibi": _alibi(windows, None)} | ({"alibi given": _alibi(windows, sigma)} if given else {})
    except MissingExtra as error:
        yield Figure(f"mmd.{n}.{d}", f"MMD, 2 x {n}, {d} dimensions, over alibi-detect", None, "x", note=str(error))
        return
    _compare(windows, sigma)
    contenders = {name: timed(1, way, setting.mmd_clock) for name, way in ways.items()}
    rounds = interleave(contenders, setting.machine, rounds=setting.mmd_rounds, warm_up=0, least=1)
    counted = "" if setting.mmd_rounds >= ROUNDS else f"; rounds: {setting.mmd_rounds}"
    counted += "; processor time" if setting.mmd_clock is time.process_time else ""
    seconds = {name: f"{short(rounds.seconds(name).value * 1e3)} ms" for name in ways}
    what, goal = f"MMD, {PERMUTATIONS} permutations, 2 x {n}, {d} dimensions", GOALS.get((n, d))
    note = f"ours {seconds['ours']}, alibi-detect {seconds['alibi']}{counted}"
    yield Figure(f"mmd.{n}.{d}", f"{what}, over alibi-detect", rounds.ratio("ours", "alibi"), "x", goal, note=note)
    if given:
        note = f"ours {seconds['given']}, alibi-detect {seconds['alibi given']}{counted}"
        yield Figure(f"mmd.{n}.{d}.given", f"{what}, bandwidth given", rounds.ratio("given", "alibi given"), "x", note=note)
    goal = 200 if n == 5_000 else None
    yield Figure(
        f"mmd.features.{n}.{d}",
        f"{what}, {FEATURES} random features",
        rounds.ratio("features", "alibi"),
        "x",
        goal,
        note=f"ours {seconds['features']}, alibi-detect {seconds['alibi']}{counted}",
    )


def _compare(windows: tuple[Features, Features], sigma: float) -> None:
    """Check that both give one statistic with one bandwidth."""
    ours = _measured(MMDMetric(metric="mmd", bandwidth=sigma), windows, p_values=False)
    theirs = _measured(
        BackendMetric(backend="alibi", metric="mmd", config={"sigma": sigma, "n_permutations": 1}), windows, p_values=False
    )
    a, b = (found.values["it"] for found in (ours, theirs))
    if a is None or b is None or abs(a - b) > 1e-5:
        raise Mismatch(f"mmd: ours is {a}, alibi-detect's {b}")


def _ours(spec: DriftMetricSpec, windows: tuple[Features, Features]) -> Callable[[], object]:
    return lambda: _measured(spec, windows, p_values=True)


def _measured(spec: DriftMetricSpec, windows: tuple[Features, Features], *, p_values: bool) -> Measured:
    need = DriftNeed(0, KeyRange(0, 1), KeyRange(1, 2), {"it": spec}, FeaturesSpec(), p_values)
    return measure_drift(need, *windows, seed=0)


def _alibi(windows: tuple[Features, Features], sigma: float | None) -> Callable[[], object]:
    library = load("alibi_detect.cd", BackendMetric(backend="alibi", metric="mmd"), package="alibi-detect", extra="drift-alibi")
    bandwidth = None if sigma is None else np.array([sigma], dtype=np.float32)
    reference, current = windows

    def run() -> object:
        return library.MMDDrift(reference, backend="pytorch", n_permutations=PERMUTATIONS, sigma=bandwidth, device="cpu").predict(
            current
        )

    return run


def _peak(work: Callable[[], object]) -> float:
    """Bytes that a call adds to the peak resident memory of this process; Linux keeps and resets the peak."""
    # Memory that earlier calls freed and the allocator kept would hide the need of this one.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
