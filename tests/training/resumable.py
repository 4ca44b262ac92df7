"""Trainings with something to remember: each must end with the same bits wherever it is killed."""

from typing import Any, Final

from modyn_dagster.spec.training import TrainingSpec
from tests.training.table import spec_of

_MLP: Final = {"name": "mlp", "hidden": [8], "dropout": 0.3}
_CHOSEN: Final = {"mode": "batch_then_sample", "ratio": 0.5}
_SET: Final = {"mode": "sample_then_batch", "ratio": 0.5}

#: What each adds to a small network with dropout that steps nine times.
RESUMABLE: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "momentum_and_schedule": {
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "scheduler": {"name": "cosine", "warmup": 2}}
    },
    "schedule_of_epochs": {"optimizer": {"scheduler": {"name": "step", "every": "epoch", "config": {"step_size": 1}}}},
    "one_cycle": {"optimizer": {"name": "adamw", "lr": 0.01, "scheduler": {"name": "one_cycle"}}},
    "two_optimizers": {
        "optimizer": [
            {"name": "sgd", "lr": 0.1, "momentum": 0.9, "parameters": ["*weight"]},
            {"name": "rmsprop", "lr": 0.01, "groups": [{"parameters": ["0.*"], "lr": 0.02}]},
        ]
    },
    "average_and_clipping": {"ema": {"decay": 0.9}, "clip": {"norm": 0.1}},
    "accumulation": {"accumulate": 2, "batch_size": 30},
    "budget": {"max_steps": 8, "optimizer": {"scheduler": {"name": "linear"}}},
    "early_stopping": {"early_stopping": {"patience": 2}, "ema": {"decay": 0.5}},
    "blocks": {"shuffle": "blocks", "block_size": 40, "drop_last": True},
    "half_precision": {"precision": "bf16-mixed"},
    # It starts in the middle: losses become uneven, in many small batches.
    "dlis": {"downsampling": _CHOSEN | {"policy": "dlis", "ratio": 0.8}, "batch_size": 10, "optimizer": {"name": "sgd", "lr": 1}},
    "loss_before_the_epoch": {"downsampling": _SET | {"policy": "loss"}},
    "every_second_epoch": {"downsampling": _SET | {"policy": "margin", "period": 2}},
    "infobatch": {"downsampling": _SET | {"policy": "infobatch"}},
    "rs2_without_replacement": {"downsampling": _SET | {"policy": "rs2_without_replacement"}},
    "forgetting": {"downsampling": _CHOSEN | {"policy": "forgetting"}, "optimizer": {"name": "sgd", "lr": 20}},
    "el2n": {"downsampling": _SET | {"policy": "el2n", "period": 2}},
    "gradmatch": {"downsampling": _SET | {"policy": "gradmatch"}},
    "rho": {"downsampling": _CHOSEN | {"policy": "rho", "holdout": {"epochs": 1}}},
    "glister": {"downsampling": _CHOSEN | {"policy": "glister", "holdout": {"kind": "simple", "share": 0.2}}},
    "augmented": {
        "transforms": [
            {"function": "transforming_user_code:jitter", "when": "train"},
            {"factory": "transforming_user_code:noise", "when": "train"},
        ],
        "downsampling": _SET | {"policy": "loss"},
    },
    "contrastive": {
        "loss": {"name": "nt_xent", "dimension": 4},
        "transforms": [{"function": "transforming_user_code:jitter", "when": "train"}],
        "early_stopping": {"patience": 2},
    },
    "restless": {"model": {"factory": "training_user_code:restless"}},
    "counting_loss": {"loss": {"factory": "training_user_code:fading_loss"}},
}


def resumable(name: str, **fields: object) -> TrainingSpec:
    """One of them, with a checkpoint after every optimizer step."""
    common = {"model": _MLP, "epochs": 3, "batch_size": 50, "checkpoint": {"steps": 1}}
    return spec_of(**common | RESUMABLE[name] | fields)
