"""Where files of a run lie under the home folder."""

from pathlib import PurePosixPath


def training_set_path(run_id: int, trigger: int) -> str:
    """Relative path of a training set.

    >>> training_set_path(3, 12)
    'training_sets/000003/000012.arrow'
    """
    return str(PurePosixPath("training_sets", f"{run_id:06d}", f"{trigger:06d}.arrow"))


def selector_state_path(run_id: int, trigger: int) -> str:
    """Relative path of an online strategy's state up to a trigger: beside its training set."""
    return str(PurePosixPath("training_sets", f"{run_id:06d}", f"{trigger:06d}.state.json"))


def predictions_path(run_id: int, trigger: int, first_key: int, last_key: int) -> str:
    """Relative path of the predictions for the evaluation samples of ``first_key .. last_key``."""
    return str(PurePosixPath("predictions", f"{run_id:06d}", f"{trigger:06d}", f"{first_key:019d}-{last_key:019d}.arrow"))
