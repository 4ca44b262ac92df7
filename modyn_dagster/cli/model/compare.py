"""``modyn-dagster model compare``: test one model of a pipeline against another on the same samples."""

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from modyn_dagster.cli.console import show_table
from modyn_dagster.cli.project import open_platform
from modyn_dagster.errors import ConfigError

if TYPE_CHECKING:
    from modyn_dagster.pipeline.paired.common_samples import CommonSamples
    from modyn_dagster.pipeline.paired.named_models import NamedModel
    from modyn_dagster.reporting.paired_comparison import ModelComparison

#: Names of the tests; a test compares them with those of `evaluation.paired`, which is imported when the command runs.
TESTS: Final = ("confidence_sequence", "mcnemar", "block_bootstrap")


class Period(click.ParamType):  # type: ignore[type-arg]
    """Duration such as 30d, as in specs."""

    name = "duration"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check a duration; anything else is wrong usage."""
        from modyn_dagster.spec.base import seconds_of

        try:
            seconds_of(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)
        return value


@click.command()
@click.argument("candidate")
@click.argument("incumbent")
@click.option("--metric", help="Metric that decides; default: the score of the candidate's pipeline.")
@click.option("--margin", type=float, default=0.0, show_default=True, help="Difference that the candidate has to exceed.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="1 less the probability of a wrong verdict.")
@click.option("--test", type=click.Choice(TESTS), default=TESTS[0], show_default=True, help="Statistical test.")
@click.option("--min-samples", type=click.IntRange(1), help="With fewer it is undecided; default: that of the evaluation.")
@click.option("--window", type=Period(), help="Only samples of so long a time before the newest one, such as 30d.")
@click.option("--bound", type=float, help="Largest loss of a sample that counts: needed for mse and mae, 5 for log_loss.")
@click.option("--block", type=click.IntRange(1), help="Samples of a bootstrap block; default: by samples and looks.")
@click.option("--look", type=click.IntRange(1), default=1, help="Number of this look, for mcnemar and block_bootstrap.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Also draw the bounds into this PNG file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(
    candidate: str, incumbent: str, metric: str | None, window: str | None, plot: Path | None, as_json: bool, **settings: Any
) -> None:
    """Test whether model CANDIDATE is better than INCUMBENT on the samples that are new to both.

    A model is named by its id, its first digits, or the partition key of its trigger. Stored predictions are compared; nothing is
    predicted. The verdict is `better`, `worse or equal` or `undecided`; the exit code is 0 in each case. With the default test
    the command may be called after every batch, and the verdict be taken when it comes.
    """
    if plot is not None and settings["test"] != TESTS[0]:
        raise ConfigError("model compare", "--plot", str(plot), f"only {TESTS[0]} has bounds along the stream; leave it out")
    from modyn_dagster.pipeline.paired.common_samples import common_samples
    from modyn_dagster.pipeline.paired.named_models import named_model
    from modyn_dagster.reporting.paired_comparison import path_table, verdict_table
    from modyn_dagster.reporting.plots.figures import save
    from modyn_dagster.reporting.plots.paired_bounds import paired_bounds

    with closing(open_platform()) as platform:
        pair = named_model(platform, candidate), named_model(platform, incumbent)
        comparison = _compared(*pair, common_samples(*pair, window=window), metric, settings)
    if plot is not None:
        save(paired_bounds(comparison), plot)
    if as_json:
        click.echo(json.dumps(comparison.to_json(), indent=2))
        return
    show_table(verdict_table(comparison).rich())
    if (path := path_table(comparison)) is not None:
        show_table(path.rich())


def _compared(
    candidate: "NamedModel", incumbent: "NamedModel", samples: "CommonSamples", metric: str | None, settings: dict[str, Any]
) -> "ModelComparison":
    from modyn_dagster.data.tasks import task_kind
    from modyn_dagster.evaluation import score
    from modyn_dagster.evaluation.paired.comparison import PairedTest, compare_outputs
    from modyn_dagster.reporting.paired_comparison import ModelComparison

    context = candidate.context
    evaluation, dataset = context.spec.evaluation, context.view.spec
    task = task_kind(context.spec.training, dataset) if dataset.label is None else None
    settings["min_samples"] = settings["min_samples"] or evaluation.min_samples
    test = PairedTest(metric or evaluation.score_metric, **settings, seed=context.run.seed)
    result = compare_outputs(test, samples.candidate, samples.incumbent, samples.truth, task=task)
    ours, theirs = (score(test.metric, outputs, samples.truth).value for outputs in (samples.candidate, samples.incumbent))
    return ModelComparison(
        candidate.title,
        incumbent.title,
        test,
        result,
        (ours, theirs),
        samples.unlabelled,
        samples.immature,
        samples.note,
    )
