"""Samplers and memories of online strategies, built from their specs; checks of a selection before any run."""

from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.errors import ConfigError, SelectionError
from modyn_dagster.selection.memory import CLIB, GSS, MIR, GDumb, Memory
from modyn_dagster.selection.time_biased import (
    BTBS,
    DRTBS,
    DTTBS,
    RTBS,
    TTBS,
    Sampler,
    SlidingWindow,
    TimeWindow,
    UniformReservoir,
    decay_for,
)
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.online import (
    BTBSSpec,
    CLIBSpec,
    DecaySpec,
    GDumbSpec,
    GSSSpec,
    KeepSpec,
    MIRSpec,
    OnlineSpec,
    RTBSSpec,
    SlidingWindowSpec,
    TTBSSpec,
    UniformReservoirSpec,
)
from modyn_dagster.spec.selection import SelectionSpec, SimilarToUnlabelledSpec


def build_sampler(spec: OnlineSpec, seed: int, pool: Pool | None = None) -> Sampler | Memory:
    """The sampler or memory of a block; the unit of its ``elapsed`` is ``unit_of(spec)``.

    Samplers in shards call over the pool, by default in this process; the choices do not depend on it.

    Raises ``ValueError`` for settings that contradict each other, as those of a T-TBS whose samples arrive too slowly.
    """
    unit = unit_of(spec)
    match spec:
        case RTBSSpec() | TTBSSpec():
            return _targeted(spec, decay_rate(spec.decay, unit), seed, pool)
        case BTBSSpec():
            return BTBS(decay_rate(spec.decay, unit), seed)
        case UniformReservoirSpec():
            return UniformReservoir(spec.n, seed)
        case SlidingWindowSpec():
            return SlidingWindow(spec.n) if spec.n is not None else TimeWindow(float(seconds_of(str(spec.span))))
        case _:
            return _memory(spec, seed)


def _targeted(spec: RTBSSpec | TTBSSpec, decay: float, seed: int, pool: Pool | None) -> Sampler:
    if isinstance(spec, RTBSSpec):
        return RTBS(spec.n, decay, seed) if spec.shards is None else DRTBS(spec.n, decay, seed, shards=spec.shards, pool=pool)
    arguments = (spec.n, decay, spec.mean_batch_size, seed)
    return TTBS(*arguments) if spec.shards is None else DTTBS(*arguments, shards=spec.shards, pool=pool)


def _memory(spec: OnlineSpec, seed: int) -> Memory:
    match spec:
        case GDumbSpec():
            return GDumb(spec.n, seed)
        case CLIBSpec():
            return CLIB(spec.n, seed, spec.momentum)
        case GSSSpec():
            return GSS(spec.n, seed, spec.candidates)
        case MIRSpec():
            return MIR(spec.n, spec.k, seed)
        case _:
            raise SelectionError(f"{type(spec).__name__} is no strategy that follows the stream")


def unit_of(spec: OnlineSpec) -> float:
    """Seconds of one unit of the sampler's ``elapsed``."""
    return float(seconds_of(spec.unit)) if isinstance(spec, TTBSSpec) else 1.0


def decay_rate(decay: DecaySpec, unit: float = 1.0) -> float:
    """The decay rate per ``unit`` seconds."""
    if isinstance(decay, KeepSpec):
        return decay_for(seconds_of(decay.after) / unit, decay.items, decay.keep)
    return decay.rate * unit / seconds_of(decay.per)


def check_selection(spec: SelectionSpec, kind: str, *, source: str) -> None:
    """Build the samplers of a selection, and hold it against the dataset's label (of ``kind``).

    Raises:
        ConfigError: settings of a sampler contradict each other, or a memory that balances classes would find none; names
            ``source`` (the pipeline) and the field.
    """
    for field, strategy in spec.by_field.items():
        if isinstance(strategy, GDumbSpec | CLIBSpec) and kind != "class":
            raise ConfigError(source, f"{field}.kind", strategy.kind, f"balances classes, and the label is a {kind}")
        if isinstance(strategy, SimilarToUnlabelledSpec) and kind != "class":
            raise ConfigError(source, f"{field}.kind", strategy.kind, f"compares by class, and the label is a {kind}")
        if isinstance(strategy, OnlineSpec):
            try:
                build_sampler(strategy, 0)
            except ValueError as error:
                raise ConfigError(source, field, strategy.model_dump(mode="json"), str(error)) from error
