"""Set-ups of the papers with pretrained networks, as the example's specs have them."""

from pathlib import Path

from modyn_dagster.spec.load import read_project
from modyn_dagster.spec.reading.code_packages import project_code

PAPERS = Path(__file__).parents[3] / "examples" / "papers"


def test_the_papers_networks_are_pipelines() -> None:
    project, faults = read_project(PAPERS, project_code(PAPERS))
    assert list(faults) == []
    landmarks, titles = (project.pipelines[name].training for name in ("landmarks", "titles"))
    [sgd], [adamw] = landmarks.optimizers, titles.optimizers
    assert landmarks.model.model_dump(include={"name", "network"}) == {"name": "torchvision", "network": "resnet50"}
    assert sgd.model_dump(include={"name", "lr", "momentum"}) == {"name": "sgd", "lr": 0.005, "momentum": 0.9}
    assert (landmarks.epochs, landmarks.batch_size) == (5, 128)
    assert titles.model.model_dump(include={"name", "task"}) == {"name": "hf", "task": "sequence_classification"}
    assert adamw.model_dump(include={"name", "lr"}) == {"name": "adamw", "lr": 2e-5}
    assert titles.epochs == 5
    assert all(training.possibly_seen_until is not None for training in (landmarks, titles))
