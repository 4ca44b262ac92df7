"""Trainings that ranks cannot share, as far as the spec tells. This module needs no torch."""

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.training import TrainingSpec


def check_ranks(spec: TrainingSpec, *, source: str) -> None:
    """Check that ranks can share a training; ``ConfigError`` names the field."""
    if spec.ranks == 1:
        return
    if spec.ranks > spec.batch_size:
        rule = f"must not exceed `batch_size`, {spec.batch_size}: ranks share every batch"
        raise ConfigError(source, "training.ranks", spec.ranks, rule)
    for i, transform in enumerate(spec.transforms):
        if transform.per == "batch":
            rule = f"sees one rank's share of a batch with `ranks: {spec.ranks}`; use `per: sample`"
            raise ConfigError(source, f"training.transforms.{i}.per", "batch", rule)
    if spec.device not in ("cpu", "cuda", "auto"):
        rule = "names one GPU, and every rank gets one of its own: use cuda"
        raise ConfigError(source, "training.device", spec.device, rule)
