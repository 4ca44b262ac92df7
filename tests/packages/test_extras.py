"""Every extra in an environment of its own: it brings what the part that it is named for imports."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.packages.conftest import BareEnvironment

pytestmark = [pytest.mark.process, pytest.mark.soak("packages")]

_LOADED: Final = "import modyn_dagster.{}; print('loaded')"
#: A use of each extra; it prints `loaded`.
USES: Final[Mapping[str, str]] = {
    "dagster": "import modyn_dagster.build, modyn_dagster.component, modyn_dagster.definitions\n"
    "import modyn_dagster.resources.run_launcher, modyn_dagster.resources.event_store\n"
    "import dagster_postgres, dagster_webserver.app\n"
    "from modyn_dagster.catalog.database.urls import child_environment\n"
    "from modyn_dagster.settings import Settings\n"
    "assert 'MODYN_MLFLOW_URI' not in child_environment(Settings.from_environment())\n"
    "print('loaded')",
    "mlflow": "from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository\n"
    "assert type(get_artifact_repository('modyn-model:///ab')).__name__ == 'ModelStoreRepository'\n"
    "import modyn_dagster.serving.flavor\n"
    "from modyn_dagster.reporting.mlflow.client import open_client\n"
    "open_client('sqlite:///mlflow.db').create_experiment('one')\n"
    "print('loaded')",
    "report": "from pathlib import Path\n"
    "from modyn_dagster.reporting.plots.figures import new_axes, save\n"
    "from plotly.offline import get_plotlyjs\n"
    "save(new_axes('title', 'x', 'y')[0], Path('plot.png'))\n"
    "assert get_plotlyjs()\n"
    "print('loaded')",
    "ray": _LOADED.format("resources.ray_jobs"),
    "onnx": "import onnx, onnxscript, modyn_dagster.serving.exporting\nprint('loaded')",
    "text": "from transformers import DistilBertConfig, DistilBertModel\nprint('loaded')",
    "pretrained": "from transformers import AutoModelForSequenceClassification\n"
    "from peft import LoraConfig, inject_adapter_in_model\n"
    "from modyn_dagster.spec.learning.pretrained import LoraSpec\n"
    "from modyn_dagster.training.models.fine_tuning.adapters import add_adapters\n"
    "from torch import nn\n"
    "add_adapters(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), LoraSpec(targets=['0']), source='x')\n"
    "print('loaded')",
    # torchvision's wheels on PyPI are built for CUDA; its networks need none of its kernels, but their declarations.
    "vision": "import torch\n"
    "declared = torch.library.Library('torchvision', 'FRAGMENT')\n"
    "if torch.version.cuda is None:\n"
    "    for name in ('nms', 'qnms'):\n"
    "        declared.define(name + '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')\n"
    "from modyn_dagster.spec.learning.libraries import TimmSpec, TorchvisionSpec\n"
    "from modyn_dagster.training.columns.input import Input\n"
    "from modyn_dagster.training.models import build_builtin\n"
    "from modyn_dagster.training.models.layout import Layout\n"
    "layout = Layout((Input('features', (), (3, 32, 32), False, None),))\n"
    "for spec in (TorchvisionSpec(name='torchvision', network='resnet18'), TimmSpec(name='timm', network='resnet18')):\n"
    "    network = build_builtin(spec, layout, 5).eval()\n"
    "    assert network(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape == (2, 5), spec\n"
    "print('loaded')",
    "sklearn": "import sklearn, skops.io, modyn_dagster.training.trainers.adapters.sklearn\nprint('loaded')",
    "lightgbm": "import lightgbm, modyn_dagster.training.trainers.adapters.lightgbm\nprint('loaded')",
    "xgboost": "import xgboost, modyn_dagster.training.trainers.adapters.xgboost\nprint('loaded')",
    "river": "import river, modyn_dagster.training.trainers.adapters.river\nprint('loaded')",
    "drift-river": "from modyn_dagster.spec.triggers.detector import HddmSpec\n"
    "from modyn_dagster.triggering.detectors import DetectorReader\n"
    "for name in ('hddm_a', 'hddm_w'):\n"
    "    reader = DetectorReader(HddmSpec(name=name))\n"
    "    assert reader.read([0.0] * 500 + [1.0] * 500) == 1, name\n"
    "print('loaded')",
    "drift-evidently": "import modyn_dagster.triggering.drift.backends.evidently\n"
    "from evidently.legacy.calculations.stattests import ks_stat_test\n"
    "print('loaded')",
    "drift-alibi": "import modyn_dagster.triggering.drift.backends.alibi\n"
    "from alibi_detect.cd import KSDrift\n"
    "import numpy\n"
    "assert numpy.__version__ < '2'\n"
    "print('loaded')",
    "all": "import modyn_dagster.definitions, modyn_dagster.resources.ray_jobs, mlflow, plotly, onnx, transformers, river\n"
    "import lightgbm, skops, xgboost\n"
    "print('loaded')",
}


@pytest.mark.parametrize("extra", USES)
def test_an_extra_brings_what_its_part_imports(installed: Callable[[str], BareEnvironment], tmp_path: Path, extra: str) -> None:
    if extra == "drift-alibi" and sys.version_info >= (3, 13):
        pytest.skip("alibi-detect needs numpy 1, which Python 3.13 does not have")
    project = tmp_path / "project"
    for folder in ("datasets", "pipelines"):
        (project / folder).mkdir(parents=True)
    environment = installed(extra)
    # A server that nobody asks, so that none is started.
    given = {"MODYN_PROJECT": str(project), "MODYN_POSTGRES_URL": "postgresql://writer:secret@127.0.0.1:9"}
    printed = environment.run("-W", "ignore", "-c", USES[extra], cwd=project, **given)
    assert printed.splitlines()[-1] == "loaded"
