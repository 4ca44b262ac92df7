"""Specs of evaluation intervals (spans of sample time): one block per kind of interval."""

import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from modyn_dagster.spec.base import Duration, ImportPath, Spec, as_time, seconds_of

AnchorSide = Literal["start", "center", "end"]
#: A duration, or whole seconds.
Length = Annotated[Duration | Annotated[int, Field(ge=1, strict=True)], Field(description="A duration, or whole seconds.")]

_OFFSET: Final = re.compile(r"([+-]?)(inf|0|[1-9][0-9]*[smhdwy])")
#: Excluded by default, so that the hash of pipelines without the field does not change.
_AT_START: Final[Any] = Field(
    "start", exclude_if=lambda side: side == "start", description="Which moment of an interval decides what model is active."
)
_GRID: Final = "Grid and lower bound; UTC unless it names a zone. Default: the first sample's time."


def _plain_time(moment: object) -> object:
    return moment.astype("datetime64[us]").item() if isinstance(moment, np.datetime64) else moment


def _plain_offset(offset: object) -> object:
    """Canonical form of an offset: whole seconds, or a text such as ``-1y`` and ``inf``."""
    if isinstance(offset, float) and math.isinf(offset):
        return "inf" if offset > 0 else "-inf"
    if isinstance(offset, str):
        match = _OFFSET.fullmatch(offset)
        if match is None:
            raise ValueError("must be inf, -inf, 0, or a duration with or without a sign, for example -1y")
        sign, size = match.groups()
        return 0 if size == "0" else sign.removeprefix("+") + size
    return offset


#: A moment of a fixed interval; a whole number is seconds since 1970.
Moment = Annotated[Annotated[int, Field(strict=True)] | datetime | date, BeforeValidator(_plain_time)]
Offset = Annotated[str | Annotated[int, Field(strict=True)], BeforeValidator(_plain_offset)]


class TumblingIntervals(Spec):
    """Half-open intervals ``[start + i * every, start + (i + 1) * every)``."""

    kind: Literal["tumbling"] = "tumbling"
    every: Length
    start: datetime | date | None = Field(None, description=_GRID)
    anchor: AnchorSide = _AT_START


class SlidingIntervals(Spec):
    """Half-open intervals ``[start + i * every, start + i * every + length)``; they overlap where ``every < length``."""

    kind: Literal["sliding"]
    every: Length
    length: Length
    start: datetime | date | None = Field(None, description=_GRID)
    anchor: AnchorSide = _AT_START


class PeriodicIntervals(Spec):
    """Around each moment ``t = start + i * every`` the interval ``[t - before, t + after)``, with ``t`` as its anchor."""

    kind: Literal["periodic"]
    every: Length
    before: Length | Literal[0]
    after: Length | Literal[0]
    start: datetime | date | None = Field(None, description=_GRID)
    anchor: AnchorSide | None = Field(None, exclude_if=lambda side: side is None, description="Default: the moment t itself.")

    @model_validator(mode="after")
    def _has_a_length(self) -> Self:
        if self.before == 0 and self.after == 0:
            raise ValueError("before and after must not both be 0: the intervals would be empty")
        return self


class BetweenTriggers(Spec):
    """The span of each model's training: up to its last sample, from after that of the model before it."""

    kind: Literal["between_triggers"]
    anchor: AnchorSide = _AT_START


class FixedIntervals(Spec):
    """Half-open intervals as they are listed: ``[[start, end], ...]``."""

    kind: Literal["fixed"]
    intervals: Annotated[list[tuple[Moment, Moment]], Field(min_length=1)]
    anchor: AnchorSide = _AT_START

    @model_validator(mode="after")
    def _start_before_end(self) -> Self:
        for start, end in self.intervals:
            if ticks_of(start) >= ticks_of(end):
                raise ValueError(f"intervals: the start {start} must lie before the end {end}, which is exclusive")
        return self


class OffsetIntervals(Spec):
    """Relative to each model's training interval: itself (0), so long before or after it, or everything before or after."""

    kind: Literal["offsets"]
    offsets: Annotated[list[Offset], Field(min_length=1, examples=[["-inf", "-1y", 0, "1y", "inf"]])]
    anchor: AnchorSide = _AT_START

    @model_validator(mode="after")
    def _no_repeats(self) -> Self:
        if len(set(self.offsets)) != len(self.offsets):
            raise ValueError("offsets must not repeat")
        return self


class CustomIntervals(Spec):
    """Intervals of the user's: ``factory(**config)`` returns a function of the stream's extent and of the models' trainings."""

    kind: Literal["custom"]
    factory: ImportPath
    config: dict[str, Any] = {}
    follows_models: bool = Field(False, description="The function gets the spans of the models' trainings; otherwise none.")
    anchor: AnchorSide = _AT_START


IntervalBlock = (
    TumblingIntervals
    | SlidingIntervals
    | PeriodicIntervals
    | BetweenTriggers
    | FixedIntervals
    | OffsetIntervals
    | CustomIntervals
)

INTERVAL_KINDS: Final[Mapping[str, type[IntervalBlock]]] = {
    "tumbling": TumblingIntervals,
    "sliding": SlidingIntervals,
    "periodic": PeriodicIntervals,
    "between_triggers": BetweenTriggers,
    "fixed": FixedIntervals,
    "offsets": OffsetIntervals,
    "custom": CustomIntervals,
}


def _kind_of(content: object) -> str:
    kind = content.get("kind", "tumbling") if isinstance(content, Mapping) else getattr(content, "kind", "")
    return INTERVAL_KINDS[kind].__name__ if isinstance(kind, str) and kind in INTERVAL_KINDS else str(kind)


#: A block without ``kind`` is tumbling.
IntervalsSpec = Annotated[
    Annotated[TumblingIntervals, Tag("TumblingIntervals")]
    | Annotated[SlidingIntervals, Tag("SlidingIntervals")]
    | Annotated[PeriodicIntervals, Tag("PeriodicIntervals")]
    | Annotated[BetweenTriggers, Tag("BetweenTriggers")]
    | Annotated[FixedIntervals, Tag("FixedIntervals")]
    | Annotated[OffsetIntervals, Tag("OffsetIntervals")]
    | Annotated[CustomIntervals, Tag("CustomIntervals")],
    Discriminator(
        _kind_of,
        custom_error_type="interval_kind",
        custom_error_message=f"kind must be one of {', '.join(INTERVAL_KINDS)}",
    ),
]


def follow_models(block: IntervalBlock) -> bool:
    """Tell whether the intervals depend on the spans of the models' trainings."""
    return isinstance(block, BetweenTriggers | OffsetIntervals) or (isinstance(block, CustomIntervals) and block.follows_models)


def length_of(length: str | int) -> int:
    """Seconds of a length; negative for an offset that begins with a minus."""
    if isinstance(length, int):
        return length
    return -seconds_of(length[1:]) if length.startswith("-") else seconds_of(length)


def ticks_of(moment: datetime | date | int) -> int:
    """Microseconds since 1970 of a moment of a spec; a whole number is seconds."""
    return moment * 1_000_000 if isinstance(moment, int) else int(as_time(moment).astype(np.int64))
