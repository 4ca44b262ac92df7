"""Whether a selection can work at all, found out before any run starts."""

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import import_callable
from modyn_dagster.selection.online.build import build_sampler
from modyn_dagster.spec.online import CLIBSpec, GDumbSpec, OnlineSpec
from modyn_dagster.spec.selection import SelectionSpec, WeightedSpec


def check_selection(spec: SelectionSpec, kind: str, *, source: str) -> None:
    """Import the expressions of a selection, build its samplers, and hold it against the dataset's label (of ``kind``).

    Raises:
        ImportPathError: an expression fails to import; names ``source`` (the pipeline) and the field.
        ConfigError: settings of a sampler contradict each other, or a memory that balances classes would find none.
    """
    fields = ["strategy", *(f"schedule.{i}.strategy" for i in range(len(spec.schedule)))]
    for field, strategy in zip(fields, spec.strategies, strict=True):
        if isinstance(strategy, WeightedSpec) and strategy.expression is not None:
            import_callable(strategy.expression, source=source, field=f"selection.{field}.expression")
        if isinstance(strategy, GDumbSpec | CLIBSpec) and kind != "class":
            raise ConfigError(source, f"selection.{field}.kind", strategy.kind, f"balances classes, and the label is a {kind}")
        if isinstance(strategy, OnlineSpec):
            try:
                build_sampler(strategy, 0)
            except ValueError as error:
                raise ConfigError(source, f"selection.{field}", strategy.model_dump(mode="json"), str(error)) from error
