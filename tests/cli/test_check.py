"""`modyn-dagster check`: all errors of a project, found without a run."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import CliRunner, Result

from modyn_dagster.cli import main
from modyn_dagster.spec.load import load_project
from tests.variants import represented

DATASET: dict[str, Any] = {
    "name": "numbers",
    "root": "../data",
    "format": {"kind": "csv"},
    "time": {"source": "column", "column": "time"},
    "label": {"from": {"source": "column"}},
}
PIPELINE: dict[str, Any] = {
    "name": "hourly",
    "dataset": "numbers",
    "trigger": {"kind": "time", "every": "1h"},
    "training": {"model": {"name": "logistic_regression"}},
    "evaluation": {"intervals": {"every": "1d"}},
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    write(tmp_path / "datasets" / "numbers.yaml", DATASET)
    write(tmp_path / "pipelines" / "hourly.yaml", PIPELINE)
    return tmp_path


def write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))


def user_code(project: Path, name: str, content: str) -> str:
    (project / "code").mkdir(exist_ok=True)
    (project / "code" / f"{name}.py").write_text(content)
    # The folder is on the path since before it was made.
    importlib.invalidate_caches()
    sys.modules.pop(name, None)
    return name


def check(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments])


def test_a_sound_project_is_counted(project: Path) -> None:
    result = check()
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{project}: no errors (datasets: 1, pipelines: 1)\n"


def test_every_wrong_file_is_reported_not_only_the_first(project: Path) -> None:
    write(project / "datasets" / "numbers.yaml", {**DATASET, "fromat": 1})
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "seed": -1})
    (project / "pipelines" / "torn.yaml").write_text("name: [")
    result = check()
    assert result.exit_code == 1
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert [Path(line.split(": ")[1]).name for line in lines] == ["numbers.yaml", "hourly.yaml", "torn.yaml"]
    assert "fromat" in lines[0]
    assert "seed" in lines[1]


def test_every_fault_of_every_file_is_reported_in_one_pass(project: Path) -> None:
    wrong = {
        "name": "daily",
        "dataset": "numbers",
        "trigger": {
            "kind": "drift",
            "evry": 5,
            "max_triggers": 0,
            "metrics": {"m": {"metric": "mdm"}},
            "decision": {"rule": "p_value"},
        },
        "training": {"model": {"name": "logistic_regresion"}, "epochs": -1},
        "evaluaton": {},
    }
    write(project / "pipelines" / "daily.yaml", wrong)
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "dataset": "nmubers"})
    own = {**PIPELINE, "name": "monthly", "training": {"model": {"factory": "no_such:f"}}}
    write(project / "pipelines" / "monthly.yaml", own)
    found = {(Path(each["source"]).name, each["field"]): each["rule"] for each in json.loads(check("--json").stdout)}
    assert {
        ("daily.yaml", "trigger.evry"),
        ("daily.yaml", "trigger.max_triggers"),
        ("daily.yaml", "trigger.metrics.m.metric"),
        ("daily.yaml", "trigger.windows"),
        ("daily.yaml", "training.epochs"),
        ("daily.yaml", "evaluaton"),
        ("daily.yaml", "evaluation"),
        ("pipeline hourly", "dataset"),
    } <= set(found)
    assert found["daily.yaml", "trigger.evry"] == "is not a field here (did you mean every?)"
    assert found["daily.yaml", "evaluaton"] == "is not a field here (did you mean evaluation?)"
    assert found["pipeline hourly", "dataset"] == "must be a dataset of this project: numbers (did you mean numbers?)"
    assert any(source == "monthly.yaml" for source, _ in found)


def test_evaluation_on_an_impossible_spec_is_no_fault_of_its_own(project: Path) -> None:
    write(project / "pipelines" / "daily.yaml", {**PIPELINE, "name": "daily", "seed": -1})
    data = {"kind": "training_sets", "pipeline": "daily"}
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "evaluation": {**PIPELINE["evaluation"], "data": data}})
    assert [each["field"] for each in json.loads(check("--json").stdout)] == ["seed"]


def test_a_pipeline_over_a_dataset_that_does_not_exist_is_reported(project: Path) -> None:
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "dataset": "nmubers"})
    result = check()
    assert result.exit_code == 1
    assert (
        "pipeline hourly: dataset: must be a dataset of this project: numbers (did you mean numbers?) (found 'nmubers')"
        in result.stderr
    )


@pytest.mark.parametrize("label", [None, {"kind": "none"}])
def test_without_labels_a_loss_that_compares_with_them_is_refused(project: Path, label: object) -> None:
    content = {name: value for name, value in DATASET.items() if name != "label"}
    write(project / "datasets" / "numbers.yaml", content if label is None else content | {"label": label})
    result = check()
    assert result.exit_code == 1
    assert "pipeline hourly: training.loss: compares outputs with a label, and the dataset has none" in result.stderr


_WITHOUT: Any = {
    "training": {"model": {"name": "mlp"}, "loss": {"name": "reconstruction"}},
    "evaluation": PIPELINE["evaluation"] | {"metrics": ["reconstruction_mse"]},
}


_TAGGED = {
    "model": {"name": "hf", "task": "token_classification", "config": {"model_type": "distilbert"}},
    "parser": {"tokenizer": {"path": "bert", "columns": ["words"], "tags": "tags"}},
    "loss": {"name": "token_tags", "tags": ["NOUN", "VERB"]},
}


def without_labels(project: Path, block: dict[str, Any]) -> str:
    """Check a pipeline of an autoencoder with other fields; its complaints."""
    write(project / "datasets" / "numbers.yaml", DATASET | {"label": {"kind": "none"}})
    write(project / "pipelines" / "hourly.yaml", PIPELINE | _WITHOUT | block)
    return check().stderr


def test_an_autoencoder_on_a_dataset_without_labels_passes(project: Path) -> None:
    assert without_labels(project, {}) == ""


#: Fields of a pipeline that need a label, and what is said of each.
_NEEDING_LABELS: list[tuple[dict[str, Any], str]] = [
    ({"selection": {"limit": 9, "strategy": {"kind": "balanced"}}}, "selection.strategy.kind: balances labels"),
    ({"selection": {"strategy": {"kind": "gdumb", "n": 9}}}, "selection.strategy.kind: balances classes"),
    ({"selection": {"strategy": {"kind": "clib", "n": 9}}}, "selection.strategy.kind: balances classes"),
    ({"selection": {"strategy": {"kind": "gss", "n": 9}}}, "selection.strategy.kind: compares gradients or losses"),
    ({"selection": {"strategy": {"kind": "mir", "n": 9, "k": 3}}}, "selection.strategy.kind: compares gradients or"),
    (
        {"selection": {"limit": 9, "strategy": {"kind": "similar_to_unlabelled"}}},
        "selection.strategy.kind: compares samples with and without labels",
    ),
    (
        {"trigger": {"kind": "performance", "decision": {"rule": "threshold", "value": 0.5}}},
        "trigger.metric: the dataset has no label, and the task of training.loss is reconstruction: use reconstruction_mse",
    ),
    (
        {"trigger": {"kind": "performance", "label_free": True, "decision": {"rule": "threshold", "value": 0.5}}},
        "trigger.label_free: estimates metrics of classes",
    ),
    (
        {"trigger": {"kind": "cost", "signal": "misclassifications", "regret_per_training_second": 1.0}},
        "trigger.signal: counts wrong classes, and the dataset has no label; use latency",
    ),
    (
        {"trigger": {"kind": "detector", "stream": "scores", "detector": {"name": "adwin"}}},
        "trigger.detector.name: the dataset has no label, and the task of training.loss is reconstruction, which has neither",
    ),
    ({"label_delay": {"kind": "constant", "after": "1d"}}, "label_delay: delays labels"),
    (
        {"promotion": {"metric": "reconstruction_mse", "bound": 9, "min_coverage": 0.5}},
        "promotion.min_coverage: waits for labels",
    ),
    (
        {"promotion": {"metric": "accuracy"}},
        "promotion: the dataset has no label, and the task of training.loss is reconstruction: use reconstruction_mse",
    ),
    ({"evaluation": _WITHOUT["evaluation"] | {"maturity": "1d"}}, "evaluation.maturity: waits for labels"),
    ({"evaluation": _WITHOUT["evaluation"] | {"metrics": ["accuracy"]}}, "evaluation.metrics: the dataset has no label"),
    (
        {"evaluation": _WITHOUT["evaluation"] | {"metrics": ["reconstruction_mse", "estimated_accuracy"]}},
        "evaluation.metrics: estimates a metric of classes",
    ),
    (
        {"training": _TAGGED, "evaluation": _WITHOUT["evaluation"] | {"metrics": ["token_accuracy", "span_f1"]}},
        "evaluation.metrics: counts spans, and training.loss.tags name none",
    ),
    (
        {"training": {"model": {"name": "mlp"}, "loss": {"name": "nt_xent"}}},
        "training.transforms: nt_xent compares two views of a sample",
    ),
    (
        {"training": {"model": {"name": "mlp"}, "loss": {"name": "reconstruction"}, "task": {"kind": "ordinal"}}},
        "training.task.kind: says more about a label, and the dataset has none",
    ),
]


@represented(
    "case",
    {complaint.split(":")[0] + str(i): (block, complaint) for i, (block, complaint) in enumerate(_NEEDING_LABELS)},
    "screens",
    "selection.strategy.kind0",
    "trigger.metric6",
    "promotion12",
)
def test_what_needs_a_label_is_refused_by_field_where_there_is_none(project: Path, case: tuple[dict[str, Any], str]) -> None:
    block, complaint = case
    assert f"pipeline hourly: {complaint}" in without_labels(project, block)


def test_patterns_of_a_pretrained_model_are_tried_also_without_labels(project: Path) -> None:
    training = {"model": {"name": "mlp"}, "loss": {"name": "reconstruction"}, "pretrained": {"freeze": ["nothing.*"]}}
    assert "training.pretrained.freeze: fits no parameter; there are" in without_labels(project, {"training": training})


def test_a_hook_is_imported_too(project: Path) -> None:
    user_code(project, "hooks_without_it", "")
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "notify": {"hook": "hooks_without_it:hook"}})
    result = check()
    assert result.exit_code == 1
    assert "pipeline hourly: notify.hook: cannot be imported" in result.stderr


def test_a_command_whose_program_is_not_there_is_reported(project: Path) -> None:
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "notify": {"command": ["scripts/tell.sh", "--all"]}})
    [error] = json.loads(check("--json").stdout)
    assert (error["source"], error["field"]) == ("pipeline hourly", "notify.command")
    assert (
        "must be a file that may be executed, from the project's folder or the root (found 'scripts/tell.sh')" in error["message"]
    )
    (project / "scripts").mkdir()
    (project / "scripts" / "tell.sh").write_text("#!/bin/sh\n")
    (project / "scripts" / "tell.sh").chmod(0o755)
    assert check().exit_code == 0
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "notify": {"command": ["no-such-program"]}})
    assert "notify.command: must be on PATH, or be named by its path (found 'no-such-program')" in check().stderr


def test_a_secret_of_a_webhook_that_is_not_here_is_a_warning(project: Path) -> None:
    webhook = {"url": "https://example.org/events", "secret_env": "NO_SUCH_SECRET"}
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "notify": {"webhook": webhook}})
    result = check()
    assert result.exit_code == 0
    assert "warning: pipeline hourly: notify.webhook.secret_env: is not set in the environment of this process" in result.stderr


def test_a_loss_for_another_kind_of_label_is_reported(project: Path) -> None:
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "training": {**PIPELINE["training"], "loss": "mse"}})
    result = check()
    assert result.exit_code == 1
    assert "pipeline hourly: training.loss" in result.stderr


def test_user_code_that_fails_to_import_lacks_the_name_or_cannot_be_called_is_reported_all_at_once(project: Path) -> None:
    user_code(project, "code_that_raises", "raise RuntimeError('no licence')")
    user_code(project, "code_without_it", "")
    user_code(project, "code_with_a_number", "factory = 3")
    training = {
        "model": {"factory": "code_that_raises:factory"},
        "loss": {"factory": "code_without_it:factory"},
        "optimizer": {"factory": "code_with_a_number:factory"},
    }
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "training": training})
    result = check()
    assert result.exit_code == 1
    model, loss, optimizer = result.stderr.splitlines()
    assert "pipeline hourly: training.model.factory" in model
    assert "RuntimeError: no licence" in model
    assert "pipeline hourly: training.loss.factory" in loss
    assert "pipeline hourly: training.optimizer.factory" in optimizer
    assert "int, which cannot be called" in optimizer


POLICIES = """
from modyn_dagster.triggering import build_policy

def sixty(every: int):
    return build_policy({"kind": "amount", "every": every})

def nothing():
    return None

def both(votes):
    return all(votes.values())
"""


def test_policies_and_rules_of_the_users_are_checked_at_any_depth(project: Path) -> None:
    user_code(project, "own_policies", POLICIES)

    def custom(factory: str, **config: object) -> dict[str, Any]:
        return {"kind": "custom", "factory": f"own_policies:{factory}", "config": config}

    sound = {"kind": "ensemble", "policies": {"a": custom("sixty", every=60)}, "rule": {"factory": "own_policies:both"}}
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "trigger": sound})
    assert check().exit_code == 0
    members = {"typo": custom("sixyt"), "refused": custom("sixty", evry=60), "none": custom("nothing"), "inner": sound}
    wrong = {"kind": "ensemble", "policies": members, "rule": {"factory": "own_policies:most"}}
    trigger = {"kind": "cooldown", "samples": 5, "policy": {"kind": "budget", "per": "1d", "triggers": 3, "policy": wrong}}
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "trigger": trigger})
    result = check("--json")
    assert result.exit_code == 1
    inside = "trigger.policy.policy"
    found = [(error["source"], error["field"], error["rule"]) for error in json.loads(result.stdout)]
    assert [(source, field) for source, field, _ in found] == [
        ("pipeline hourly", f"{inside}.rule.factory"),
        ("pipeline hourly", f"{inside}.policies.none.factory"),
        ("pipeline hourly", f"{inside}.policies.refused.config"),
        ("pipeline hourly", f"{inside}.policies.typo.factory"),
    ]
    assert "unexpected keyword argument 'evry'" in found[2][2]


STRATEGIES = """
import sqlalchemy as sa

from modyn_dagster.selection.own import Chosen


def newest(share=1.0):
    return lambda samples: Chosen(samples.keys[-samples.size:])


def nothing():
    return None


def keys(samples):
    return sa.select(samples.c.key)


def lucky(samples):
    return sa.select(samples.c.key).where(sa.func.random() < 0.5)


def texts(samples):
    return sa.select(samples.c.key).where(sa.text("true"))


def two(samples, other):
    return sa.select(samples.c.key)
"""


def test_strategies_and_statements_of_the_users_are_checked(project: Path) -> None:
    user_code(project, "own_strategies", STRATEGIES)

    def stages(*strategies: dict[str, Any]) -> dict[str, Any]:
        schedule = [{"from_trigger": i + 1, "strategy": strategy} for i, strategy in enumerate(strategies)]
        return {**PIPELINE, "selection": {"backend": "postgres", "schedule": schedule}}

    def custom(name: str, **config: Any) -> dict[str, Any]:
        return {"kind": "custom", "factory": f"own_strategies:{name}", "config": config}

    def sql(name: str) -> dict[str, Any]:
        return {"kind": "sql", "statement": f"own_strategies:{name}"}

    write(project / "pipelines" / "hourly.yaml", stages(custom("newest", share=0.5), sql("keys")))
    assert check().exit_code == 0
    wrong = [custom("newset"), custom("newest", shrae=1), custom("nothing"), sql("kyes"), sql("lucky"), sql("texts"), sql("two")]
    write(project / "pipelines" / "hourly.yaml", stages(*wrong))
    result = check("--json")
    assert result.exit_code == 1
    found = [(error["source"], error["field"], error["rule"]) for error in json.loads(result.stdout)]
    ends = ["factory", "config", "factory", "statement", "statement", "statement", "statement"]
    fields = [f"selection.schedule.{i}.strategy.{end}" for i, end in enumerate(ends)]
    assert [(source, field) for source, field, _ in found] == [("pipeline hourly", field) for field in fields]
    rules = ["newset", "shrae", "function of one argument", "kyes", "random() depends on", "TextClause is not allowed", "other"]
    assert [rule in text for rule, (_, _, text) in zip(rules, found, strict=True)] == [True] * 7


def test_the_folder_code_of_a_project_needs_no_python_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(project / "code")])
    (project / "code").mkdir()
    (project / "code" / "nets_of_this_project.py").write_text("def net(n_features, n_outputs): ...")
    trained = {"model": {"factory": "nets_of_this_project:net"}, "transforms": [{"factory": "nets_of_this_project:net"}]}
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "training": trained})
    result = check()
    assert (result.exit_code, result.stderr) == (0, "")
    assert sys.path.count(str(project / "code")) == 1
    assert sys.path[-1] == str(project / "code")
    assert load_project(project).pipelines.keys() == {"hourly"}
    assert sys.path.count(str(project / "code")) == 1


def test_a_module_that_does_not_exist_is_reported(project: Path) -> None:
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "training": {"model": {"factory": "no_such_module:f"}}})
    result = check()
    assert result.exit_code == 1
    assert "module 'no_such_module' does not exist on the Python path: put it into the project's folder code/" in result.stderr


def test_a_project_folder_that_does_not_exist_is_an_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODYN_PROJECT", str(project / "elsewhere"))
    result = check()
    assert result.exit_code == 1
    assert "MODYN_PROJECT: must be a folder that exists" in result.stderr


COMMANDS = [["check"], ["demo"], ["ui"], ["pipeline", "compare"], ["dataset", "status"], ["model", "live", "hourly"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_folder_without_a_project_is_an_error_and_not_a_project_that_has_done_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.delenv("MODYN_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    rule = "must be a folder with datasets/ or pipelines/; go to one or name it"
    assert f"MODYN_PROJECT: {rule} (found '{tmp_path}')" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_scripts_get_json(project: Path) -> None:
    assert json.loads(check("--json").stdout) == []
    path = project / "pipelines" / "hourly.yaml"
    write(path, {**PIPELINE, "seed": -1})
    result = check("--json")
    assert result.exit_code == 1
    [error] = json.loads(result.stdout)
    assert (error["source"], error["field"]) == (str(path), "seed")
    assert error["message"].startswith(f"{path}: seed: {error['rule']}")


def test_a_gpu_that_this_machine_does_not_have_is_a_warning(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    elsewhere = PIPELINE | {"name": "elsewhere", "training": PIPELINE["training"] | {"device": "cuda:1"}}
    write(project / "pipelines" / "elsewhere.yaml", elsewhere)
    result = CliRunner().invoke(main, ["check"], catch_exceptions=False)
    assert result.exit_code == 0
    [warning] = [line for line in result.output.splitlines() if line.startswith("warning: ")]
    assert "pipeline elsewhere: training.device" in warning
    assert "no CUDA device" in warning


@pytest.mark.parametrize(
    ("label", "maturity", "words"),
    [
        ({"arrives": "later"}, None, "positives come early"),
        ({"arrives": "later", "default_after": {"label": 0, "after": "30d"}}, "20d", "from the age of 30d on"),
        ({"arrives": "later", "default_after": {"label": 0, "after": "30d"}}, "30d", None),
        ({}, "30d", "come with their samples"),
        ({}, None, None),
    ],
)
def test_scores_that_the_delay_of_labels_biases_are_a_warning(
    project: Path, label: dict[str, Any], maturity: str | None, words: str | None
) -> None:
    [path] = (project / "datasets").iterdir()
    dataset = yaml.safe_load(path.read_text())
    write(path, dataset | {"label": {"n_classes": 2, "from": {"source": "column", "column": "label"}} | label})
    fields = {} if maturity is None else {"maturity": maturity}
    trigger = {"kind": "performance", "decision": {"rule": "threshold", "value": 0.8}, **fields}
    ensemble = {"kind": "ensemble", "rule": "any", "policies": {"a": trigger, "b": {"kind": "amount", "every": 9}}}
    for each in (project / "pipelines").iterdir():
        each.unlink()
    pipeline = PIPELINE | {"trigger": ensemble, "evaluation": PIPELINE["evaluation"] | fields}
    write(project / "pipelines" / f"{PIPELINE['name']}.yaml", pipeline)
    result = CliRunner().invoke(main, ["check"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    warnings = [line for line in result.output.splitlines() if line.startswith("warning: ")]
    if words is None:
        assert warnings == []
        return
    assert [" evaluation.maturity: " in warnings[0], " trigger.policies.a.maturity: " in warnings[1]] == [True, True]
    assert all(words in warning for warning in warnings)


BY_CLASS = {"kind": "distribution", "delay": {"name": "exponential", "mean": "5d"}}
CLASSES = {"n_classes": 2}


@pytest.mark.parametrize(
    ("delay", "label", "field", "words"),
    [
        ({"kind": "constant", "after": "-3d"}, CLASSES, "label_delay.after", "a whole number and a unit"),
        ({"kind": "constant", "after": "21d"}, {"arrives": "later"}, "label_delay", "arrive later as it is"),
        ({"kind": "column", "attribute": "wait"}, CLASSES, "label_delay.attribute", "one of the attributes of dataset"),
        (BY_CLASS | {"by_class": {2: {"name": "constant", "after": "0s"}}}, CLASSES, "label_delay.by_class.2", "0 to 1"),
        (BY_CLASS | {"by_class": {"yes": {"name": "constant", "after": "0s"}}}, {}, "label_delay.by_class.yes", "pins none"),
        (
            BY_CLASS | {"by_class": {"yes": {"name": "constant", "after": "0s"}}},
            {"classes": ["no", "maybe"]},
            "label_delay.by_class.yes",
            "must be one of the classes of dataset",
        ),
        (
            BY_CLASS | {"by_class": {0: {"name": "uniform", "low": "3d", "high": "2d"}}},
            CLASSES,
            "label_delay.by_class.0",
            "must not be longer",
        ),
        (
            BY_CLASS | {"by_class": {0: {"name": "uniform", "high": "2d", "never": 1.5}}},
            CLASSES,
            "label_delay.by_class.0.never",
            "less than or equal to 1",
        ),
    ],
)
def test_delays_that_cannot_be_simulated_are_refused_by_field(
    project: Path, delay: dict[str, Any], label: dict[str, Any], field: str, words: str
) -> None:
    [path] = (project / "datasets").iterdir()
    dataset = yaml.safe_load(path.read_text())
    write(path, dataset | {"label": {"from": {"source": "column", "column": "label"}} | label})
    write(project / "pipelines" / f"{PIPELINE['name']}.yaml", PIPELINE | {"label_delay": delay})
    result = check()
    assert result.exit_code == 1
    [line] = [line for line in result.stderr.splitlines() if "label_delay" in line]
    assert field in line
    assert words in line


def test_scores_under_a_simulated_delay_are_warned_of_like_those_of_late_labels(project: Path) -> None:
    delay = {"kind": "constant", "after": "21d"}
    for maturity, words in ((None, "positives come early"), ("20d", "labels are known 21d after their samples"), ("21d", None)):
        fields = {} if maturity is None else {"maturity": maturity}
        pipeline = PIPELINE | {"label_delay": delay, "evaluation": PIPELINE["evaluation"] | fields}
        write(project / "pipelines" / f"{PIPELINE['name']}.yaml", pipeline)
        result = CliRunner().invoke(main, ["check"], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        warnings = [line for line in result.output.splitlines() if line.startswith("warning: ") and PIPELINE["name"] in line]
        assert len(warnings) == (words is not None)
        assert all(str(words) in line for line in warnings)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ({"kind": "rtbs", "n": 50, "decay": {"keep": 0.5, "after": "1d"}, "shards": 0}, "greater than or equal to 1"),
        ({"kind": "uniform_reservoir", "n": 50, "shards": 2}, "shards"),
        ({"kind": "uniform", "ratio": 0.5, "shards": 2}, "shards"),
        ({"kind": "rtbs", "n": 10**9, "decay": {"keep": 0.5, "after": "1d"}, "shards": 2}, "n must be below 1,000,000,000"),
    ],
)
def test_shards_that_cannot_be_are_refused(project: Path, strategy: dict[str, Any], words: str) -> None:
    write(project / "pipelines" / "hourly.yaml", {**PIPELINE, "selection": {"strategy": strategy}})
    result = check()
    assert result.exit_code == 1
    assert "selection.strategy" in result.stderr
    assert words in result.stderr


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ({"from": {"source": "column"}}, "where labels come with their samples"),
        ({"kind": "none"}, "and the dataset has no label"),
        ({"arrives": "later", "n_classes": 2, "from": {"source": "column"}}, None),
    ],
)
@pytest.mark.parametrize(
    ("field", "block"),
    [
        ("selection.window_by", {"selection": {"window_by": "label"}}),
        ("trigger.count", {"trigger": {"kind": "amount", "every": 9, "count": "labels"}}),
    ],
)
def test_windows_and_counts_by_label_are_refused_unless_labels_arrive_later(
    project: Path, field: str, block: dict[str, Any], label: dict[str, Any] | None, words: str | None
) -> None:
    write(project / "pipelines" / "hourly.yaml", PIPELINE | block)
    identified = DATASET | {"id": {"source": "column", "column": "id"}, "label": label}
    write(project / "datasets" / "numbers.yaml", {name: value for name, value in identified.items() if value is not None})
    result = check()
    assert (f"pipeline hourly: {field}: " in result.stderr) == (words is not None)
    assert words is None or words in result.stderr
    assert result.exit_code == (1 if words else 0), result.stderr


def test_a_trainer_is_tried_and_all_that_it_cannot_have_is_named(project: Path) -> None:
    pytest.importorskip("skops")
    model = {"name": "sklearn", "estimator": "sklearn.neighbors:KNeighborsClassifier"}
    training = {"model": model, "epochs": 2}
    write(project / "pipelines" / "hourly.yaml", PIPELINE | {"training": training | {"use_previous_model": True}})
    result = check()
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert "training.epochs: belongs to the training loop, and a trainer (sklearn) has none: leave it out" in first
    assert "training.use_previous_model: sklearn.neighbors:KNeighborsClassifier cannot continue an earlier model" in second
    noisy = user_code(
        project,
        "noisy_trainer",
        """
import random


class Noisy:
    takes_weights, continues, library = True, True, ("noisy", "1")

    def __init__(self, task):
        self.task = task

    def fit(self, samples, weights, previous, seed):
        return random.SystemRandom().random()

    def predict(self, model, inputs):
        return [[1 / self.task.n_outputs] * self.task.n_outputs for _ in inputs]

    def to_bytes(self, model):
        return str(model).encode()

    def from_bytes(self, content):
        return float(content)
""",
    )
    write(
        project / "pipelines" / "hourly.yaml",
        PIPELINE | {"training": {"model": {"name": "trainer", "factory": f"{noisy}:Noisy"}}},
    )
    result = check()
    assert result.exit_code == 1
    assert "training.model: is not deterministic: two fits to the same 100 rows gave different models" in result.stderr


def test_a_pretrained_model_is_compared_with_its_file_and_its_patterns(project: Path) -> None:
    def errors(**pretrained: object) -> str:
        training = {"model": {"name": "mlp", "hidden": [4]}, "pretrained": pretrained}
        write(project / "pipelines" / "hourly.yaml", PIPELINE | {"training": training})
        result = check()
        assert result.exit_code == 1
        return result.stderr

    assert "training.pretrained.weights: there is no file" in errors(weights="nowhere.safetensors")
    assert "training.pretrained.weights: must end in .safetensors" in errors(weights="model.pt")
    assert "training.pretrained.freeze: freezes every parameter, so nothing is trained" in errors(freeze=["*"])
    assert "training.pretrained.freeze: fits no parameter; there are 0.weight" in errors(freeze=["stem.*"])
    assert "training.pretrained.lora.targets: fits no linear layer" in errors(lora={"targets": ["attention"]})
