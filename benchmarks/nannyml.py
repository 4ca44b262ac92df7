"""Estimates without labels against those that NannyML publishes, on the two classification examples of its documentation.

    pip download --no-deps nannyml==0.13.1 && unzip nannyml-0.13.1-py3-none-any.whl -d nannyml-0.13.1
    python benchmarks/nannyml.py nannyml-0.13.1/nannyml/datasets/data

The folder has the CSV files of NannyML's package; nothing else of it is needed. A line is one metric on one chunk:

published   the estimate in the tutorials, rounded there to six digits
formulas    the published method on these data: isotonic regression of each class's probability, then sums of the probabilities
estimate    ours, with its interval of 95 %
realized    the score that the labels give

Calibrated on the reference period, as there. ``--newest 10000`` takes as many samples as a pipeline does.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

if __name__ == "__main__":
    # The repository's root replaces this folder, so that its modules are found and hide no others.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.nannyml_examples import EXAMPLES, Example, published_formulas
from modyn_dagster.evaluation.label_free.estimator import DRAWS, Estimator
from modyn_dagster.evaluation.metrics.registry import score


class Line(NamedTuple):
    """Numbers of one metric on one chunk."""

    metric: str
    chunk: int
    published: float
    formulas: float
    value: float
    low: float
    high: float
    realized: float


def lines(example: Example, folder: Path, newest: int | None = None, draws: int = DRAWS) -> Iterator[Line]:
    """Estimate an example again, one line per metric and chunk.

    Args:
        example: of the tutorials.
        folder: with the CSV files.
        newest: reference samples that ours is calibrated on; None: all, as the published numbers are.
        draws: of intervals.
    """
    reference, analysis = example.read(folder)
    metrics = list(example.published)
    outputs = reference.outputs[-newest:] if newest else reference.outputs
    estimator = Estimator(outputs, reference.truth[-len(outputs) :])
    for number in range(len(analysis.truth) // example.chunk_size):
        chunk = analysis.rows(slice(number * example.chunk_size, (number + 1) * example.chunk_size))
        formulas = published_formulas(reference, chunk)
        for metric, estimate in estimator.estimate(metrics, chunk.outputs, draws=draws).items():
            numbers = (estimate.value, estimate.low, estimate.high, score(metric, chunk.outputs, chunk.truth).value)
            value, low, high, realized = (np.nan if number is None else number for number in numbers)
            published = example.published[metric][number]
            yield Line(metric, number, published, formulas[metric], value, low, high, realized)


def main() -> None:
    """Print the table, and per metric the largest distances from the published numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="nannyml/datasets/data of the unpacked package")
    parser.add_argument("--newest", type=int, help="reference samples that ours is calibrated on (default: all)")
    chosen = parser.parse_args()
    for example in EXAMPLES:
        found = list(lines(example, chosen.folder, chosen.newest))
        print(f"{example.name}: chunks of {example.chunk_size:,}")
        print("metric    chunk  published  formulas  estimate  interval          realized  held")
        for line in found:
            held = "yes" if line.low <= line.realized <= line.high else "no"
            print(
                f"{line.metric:9} {line.chunk:5}  {line.published:9.6f}  {line.formulas:8.6f}  {line.value:8.6f}  "
                f"{line.low:.4f} - {line.high:.4f}   {line.realized:8.6f}  {held}"
            )
        for metric in example.published:
            own = [line for line in found if line.metric == metric]
            apart = max(abs(line.value - line.published) for line in own)
            again = max(abs(line.formulas - line.published) for line in own)
            print(f"{metric}: estimates at most {apart:.6f} from the published ones, the formulas {again:.7f}")


if __name__ == "__main__":
    main()
