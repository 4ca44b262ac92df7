"""Triggering policies: decisions when to train, usable without Dagster, Postgres or a model."""

from modyn_dagster.triggering.build import build_policy
from modyn_dagster.triggering.measurement import (
    DetectorNeed,
    DriftNeed,
    Measured,
    Measurement,
    MeasurementSpec,
    PerformanceNeed,
)
from modyn_dagster.triggering.policy import Decision, ModelTrained, TriggeringPolicy
from modyn_dagster.triggering.simulate import SimulatedDecision, simulate
from modyn_dagster.triggering.stream.training_stream import Stream, StreamBatch

__all__ = [
    "Decision",
    "DetectorNeed",
    "DriftNeed",
    "Measured",
    "Measurement",
    "MeasurementSpec",
    "ModelTrained",
    "PerformanceNeed",
    "SimulatedDecision",
    "Stream",
    "StreamBatch",
    "TriggeringPolicy",
    "build_policy",
    "simulate",
]
