"""A step of continuous training cannot be done: to decide, to select, to train."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from modyn_dagster.errors.base import ModynError


class LawBroken(ModynError):
    """A triggering policy breaks a law that every policy obeys: its decisions cannot be trusted to be reproducible.

    ``stream`` is the name of the generated stream, ``decision`` the number of the decision on it, from 0.
    """

    def __init__(self, law: str, stream: str, decision: int, what: str) -> None:
        super().__init__(f"{law}: not on the stream {stream!r}, decision {decision}: {what}")
        self.law, self.stream, self.decision = law, stream, decision


class SelectionError(ModynError):
    """A training set cannot be selected."""


class BadScore(SelectionError):
    """The score that a sample is weighted by is negative or no number."""

    def __init__(self, key: int, score: float) -> None:
        super().__init__(f"the score of the sample with key {key} is {score}; scores must be finite and not negative")
        self.key, self.score = key, score


class TrainingError(ModynError):
    """Training cannot go on; the previous model stays active."""


class BadSample(TrainingError):
    """A parser fails on one sample: ``key`` of ``dataset``, whose bytes begin at ``offset`` of the file ``path``.

    ``dataset``, ``path`` and ``offset`` are None where samples do not come from files.
    """

    def __init__(
        self,
        parser: str,
        key: int,
        reason: str,
        *,
        dataset: str | None = None,
        path: PurePath | str | None = None,
        offset: int | None = None,
    ) -> None:
        sample = f"the sample with key {key}" + (f" of dataset {dataset}" if dataset is not None else "")
        place = f" ({path}, offset {offset})" if path is not None else ""
        super().__init__(f"{parser} failed on {sample}{place}: {reason}")
        self.key, self.reason, self.dataset, self.offset = key, reason, dataset, offset
        self.path = None if path is None else str(path)


class WrongShape(TrainingError):
    """User code (a model, a loss, a parser; ``what``) returned an array of a shape that cannot be used."""

    def __init__(self, expected: Sequence[int | str], found: Sequence[int], what: str = "the model") -> None:
        super().__init__(f"{what} returned shape {tuple(found)}, expected ({', '.join(map(str, expected))})")
        self.expected, self.found = tuple(expected), tuple(found)


class NonFiniteLoss(TrainingError):
    """The loss became NaN or infinite; ``norms`` are those of the weights and of the gradient before."""

    def __init__(self, step: int, loss: float, keys: Sequence[int], norms: Mapping[str, float]) -> None:
        shown = ", ".join(map(str, keys[:5])) + (", …" if len(keys) > 5 else "")
        sizes = ", ".join(f"the norm of {name} {norm:.4g}" for name, norm in norms.items())
        super().__init__(f"the loss is {loss} at step {step} (keys {shown}; {sizes}); lower the learning rate or check the data")
        self.step, self.keys, self.norms = step, list(keys), dict(norms)
