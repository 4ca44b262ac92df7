"""The two classification examples of NannyML's documentation: files, chunks, published estimates, and its formulas in numpy."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from modyn_dagster.evaluation.metrics.calibration import isotonic

Float64 = npt.NDArray[np.float64]

#: Probabilities of the files have two digits; one of 0 gets the logarithm of this.
_LEAST: Final = 1e-7


class Samples(NamedTuple):
    """Samples of a period: probabilities ``float64[n, k]``, their logits ``float32[n, k]``, classes ``int64[n]``."""

    probabilities: Float64
    outputs: npt.NDArray[np.float32]
    truth: npt.NDArray[np.int64]

    def rows(self, rows: slice) -> "Samples":
        """Return some of the samples."""
        return Samples(self.probabilities[rows], self.outputs[rows], self.truth[rows])


@dataclass(frozen=True)
class Example:
    """An example of the tutorials.

    Attributes:
        name: of the example.
        files: reference period, analysis period and labels of the analysis period.
        label: column of the label.
        classes: columns of the probabilities by label; one column is that of class 1.
        cut: probability of class 1 from which on the example predicts it; 0.5 for several classes, where the largest one counts.
        chunk_size: samples of a chunk.
        published: estimates of each chunk by metric, as printed in the tutorials. The accuracy of several classes is the sum of
            the diagonal of the confusion matrix that is printed.
    """

    name: str
    files: tuple[str, str, str]
    label: str
    classes: Mapping[str, str]
    cut: float
    chunk_size: int
    published: Mapping[str, tuple[float, ...]]

    def read(self, folder: Path) -> tuple[Samples, Samples]:
        """Read the reference and the analysis period."""
        reference, analysis, labels = (pd.read_csv(folder / file) for file in self.files)
        return self._samples(reference, reference), self._samples(analysis, labels)

    def _samples(self, rows: pd.DataFrame, labels: pd.DataFrame) -> Samples:
        shares = rows[list(self.classes.values())].to_numpy(np.float64)
        if len(self.classes) == 1:
            shares, truth = np.concatenate([1 - shares, shares], axis=1), labels[self.label].to_numpy(np.int64)
        else:
            truth = labels[self.label].map(list(self.classes).index).to_numpy(np.int64)
        logits = np.log(np.maximum(shares, _LEAST))
        if len(self.classes) == 1:
            # The larger logit is the class that the example predicts; their order is that of the probabilities.
            logits -= np.log([1 - self.cut, self.cut])
        return Samples(shares, logits.astype(np.float32), truth)


def published_formulas(reference: Samples, chunk: Samples) -> dict[str, float]:
    """Estimates of a chunk by NannyML's method: expected confusion matrix and expected ROC curve of calibrated probabilities.

    Each class's probability is calibrated by isotonic regression on the reference period, and scaled so that those of a sample
    add up to 1. F1 and area of several classes are means over the classes. NannyML leaves probabilities as they are where
    calibration does not help; on both examples it does.

    Source: NannyML's documentation, Confidence-based Performance Estimation.
    """
    calibrated = np.empty_like(chunk.probabilities)
    for c in range(calibrated.shape[1]):
        knots, values = isotonic(reference.probabilities[:, c], (reference.truth == c).astype(np.float64))
        calibrated[:, c] = np.interp(chunk.probabilities[:, c], knots, values)
    calibrated /= calibrated.sum(axis=1, keepdims=True)
    predicted = chunk.outputs.argmax(axis=1)
    classes = [1] if calibrated.shape[1] == 2 else range(calibrated.shape[1])
    f1, areas = [], []
    for c in classes:
        shares, found = calibrated[:, c], predicted == c
        f1.append(2 * shares[found].sum() / (found.sum() + shares.sum()))
        falling = shares[np.argsort(chunk.probabilities[:, c])[::-1]]
        before = np.cumsum(falling) - falling
        areas.append(((1 - falling) * (before + falling / 2)).sum() / (falling.sum() * (1 - falling).sum()))
    accuracy = calibrated[np.arange(len(predicted)), predicted].mean()
    return {
        "roc_auc": float(np.mean(areas)),
        "accuracy": float(accuracy),
        "f1" if len(classes) == 1 else "f1_macro": float(np.mean(f1)),
    }


EXAMPLES: Final = (
    Example(
        name="car loans",
        files=("synthetic_car_loan_reference.csv", "synthetic_car_loan_analysis.csv", "synthetic_car_loan_analysis_target.csv"),
        label="repaid",
        classes={"1": "y_pred_proba"},
        cut=0.645,
        chunk_size=5000,
        published={
            "roc_auc": (0.970744, 0.971011, 0.971407, 0.971091, 0.971123, 0.96109, 0.961825, 0.961073, 0.962533, 0.961316),
            "accuracy": (0.941792, 0.943321, 0.945492, 0.944816, 0.944645, 0.910714, 0.911149, 0.911193, 0.914389, 0.911731),
            "f1": (0.94303, 0.941324, 0.943574, 0.943159, 0.944204, 0.911753, 0.911766, 0.911661, 0.913763, 0.914751),
        },
    ),
    Example(
        name="credit cards",
        files=("mc_reference.csv", "mc_analysis.csv", "mc_analysis_gt.csv"),
        label="y_true",
        classes={name: f"y_pred_proba_{name}" for name in ("prepaid_card", "highstreet_card", "upmarket_card")},
        cut=0.5,
        chunk_size=6000,
        published={
            "roc_auc": (0.906962, 0.909877, 0.909887, 0.909033, 0.907116, 0.819359, 0.820096, 0.818966, 0.819245, 0.821429),
            "accuracy": (0.75339, 0.756414, 0.758207, 0.756689, 0.75363, 0.635826, 0.636603, 0.636717, 0.636517, 0.639328),
            "f1_macro": (0.753301, 0.756422, 0.758166, 0.756557, 0.753618, 0.630985, 0.631482, 0.630552, 0.631736, 0.633443),
        },
    ),
)
