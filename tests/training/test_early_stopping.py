"""A training ends when samples that it does not train on say so, with the weights they liked best."""

from typing import Any

import numpy as np
import pytest

from modyn_dagster.errors import ConfigError
from tests.training.table import MakeTable, Table, spec_of
from tests.training.trained import assert_same_bits, trained


def calibration(table: MakeTable, n: int = 100) -> Table:
    rng = np.random.default_rng(11)
    left, right = rng.normal(5, 3, n), rng.normal(-100, 40, n)
    return table({"left": left, "right": right}, labels=(left - 5 > (right + 100) / 40).astype(np.int64))


def test_early_stopping_keeps_the_weights_of_its_best_epoch(separable: Table, table: MakeTable) -> None:
    """A learning rate that overshoots makes later epochs worse."""
    common: dict[str, Any] = {"batch_size": 20, "optimizer": {"name": "sgd", "lr": 40.0}}
    apart = calibration(table).data()
    found = trained(separable, spec_of(epochs=30, early_stopping={"patience": 3}, **common), calibrate=apart)
    best = int(np.argmin(found.calibration_losses))
    assert len(found.calibration_losses) == best + 4 < 30
    upto = trained(separable, spec_of(epochs=best + 1, **common))
    assert_same_bits(found.state_dict, upto.state_dict)
    last = {"early_stopping": {"patience": 3, "restore_best": False}}
    all_of_it = trained(separable, spec_of(epochs=best + 4, **common))
    assert_same_bits(trained(separable, spec_of(epochs=30, **common, **last), calibrate=apart).state_dict, all_of_it.state_dict)


def test_early_stopping_watches_the_average_that_becomes_the_model(separable: Table, table: MakeTable) -> None:
    common: dict[str, Any] = {"batch_size": 50, "epochs": 4, "ema": {"decay": 0.9}}
    apart = calibration(table)
    found = trained(separable, spec_of(early_stopping={"patience": 9}, **common), calibrate=apart.data())
    assert_same_bits(found.state_dict, trained(separable, spec_of(**common)).state_dict)
    assert found.calibration_losses == sorted(found.calibration_losses, reverse=True)


def test_early_stopping_needs_samples_to_watch(separable: Table) -> None:
    with pytest.raises(
        ConfigError, match=r"pipeline p: training.early_stopping: .*give the dataset's `split` a share `calibrate`"
    ):
        trained(separable, spec_of(early_stopping={}))
