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


def checkpoint_path(run_id: int, trigger: int) -> str:
    """Relative path of the state that a killed training goes on from."""
    return str(PurePosixPath("checkpoints", f"{run_id:06d}", f"{trigger:06d}.safetensors"))


def optimizers_path(run_id: int, trigger: int) -> str:
    """Relative path of the states of the optimizers that trained a model."""
    return str(PurePosixPath("optimizers", f"{run_id:06d}", f"{trigger:06d}.safetensors"))


def predictions_path(run_id: int, trigger: int, predictor: str, first_key: int, last_key: int) -> str:
    """Relative path of what a model, and the code of its transforms, predict for the samples of ``first_key .. last_key``."""
    model_hash, _, code = predictor.partition("-")
    code = f"-{code[:16]}" if code else ""
    name = f"{first_key:019d}-{last_key:019d}-{model_hash[:16]}{code}.arrow"
    return str(PurePosixPath("predictions", f"{run_id:06d}", f"{trigger:06d}", name))
