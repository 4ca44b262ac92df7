"""Two sets of facts beside each other: which rows differ, and in which fields."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from tests.golden.driving import PROJECT
from tests.golden.facts import Facts, Rows

#: Facts by mode, by pipeline or dataset.
Subjects = dict[str, dict[str, Facts]]

#: Names and digests of our own code in the files of models: they follow the modules, and nothing else may.
OURS: Final = "code"
_OF_SAMPLES: Final = ("batches", "samples")
_OF_DECISIONS: Final = ("run", "decisions", "triggers")
_MEASURED: Final = ("drift", "performance", "detector", "clib", "gss", "mir")
_SHOWN: Final = 3


def portable_kinds(subject: str) -> tuple[str, ...]:
    """Kinds of facts that are the same on every machine: those no model and no measurement has a part in."""
    path = PROJECT / "pipelines" / f"{subject}.yaml"
    if not path.is_file():
        return _OF_SAMPLES
    spec = yaml.safe_load(path.read_text())
    if _is_measured(spec["trigger"]):
        return ()
    return _OF_DECISIONS if _is_measured(spec.get("selection", {})) else (*_OF_DECISIONS, "training_sets")


def difference(recorded: Subjects, found: Subjects, *, same_place: bool) -> list[str]:
    """A line for each kind of facts that differs, with the first rows; where machines differ, of portable kinds only."""
    lines = []
    for subject, modes in found.items():
        for mode, facts in modes.items():
            kinds = facts.keys() | recorded[subject][mode].keys()
            for kind in sorted(kinds if same_place else kinds & {*portable_kinds(subject)}):
                before, now = recorded[subject][mode].get(kind, []), facts.get(kind, [])
                if not same_place:
                    before, now = _rounded(before), _rounded(now)
                if before != now:
                    lines.append(f"{subject} {mode} {kind}: {'; '.join(_of_rows(before, now))}")
    return lines


def ours(line: str) -> bool:
    """True if a difference concerns only names and digests of our own code."""
    return line.partition(":")[0].endswith(f" {OURS}")


def _rounded(value: Any) -> Any:
    """Numbers to twelve digits: the last ones of an exponential, as in the variance of a set, depend on the processor."""
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _is_measured(block: Any) -> bool:
    """True if a block of a spec needs a model or a measurement."""
    if isinstance(block, Mapping):
        asks = block.get("kind") in _MEASURED or block.get("signal") == "misclassifications"
        return asks or any(map(_is_measured, block.values()))
    return isinstance(block, list) and any(map(_is_measured, block))


def _of_rows(before: Rows, now: Rows) -> Iterator[str]:
    if len(before) != len(now):
        yield f"{len(before)} rows became {len(now)}"
    others = [number for number, (old, new) in enumerate(zip(before, now)) if old != new]
    if others:
        yield f"{len(others)} rows differ"
    for number in others[:_SHOWN]:
        old, new = before[number], now[number]
        names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        fields = ", ".join(f"{name} {_short(old.get(name))} became {_short(new.get(name))}" for name in names)
        yield f"row {number}: {fields}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
