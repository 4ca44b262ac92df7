"""MMlib itself (EDBT 2022), as published: its baseline approach (BA) and its parameter update approach (PUA).

It is imported from a checkout, into which it needs two packages (``pymongo`` only to be imported):

    git clone https://github.com/hpides/mmlib FOLDER && git -C FOLDER checkout e0035b6
    pip install --target FOLDER --no-deps pymongo==3.11.2 colorama==0.4.4

Different from what its authors measured: documents lie in JSON files, not in MongoDB; the check of the environment, more than a
second of asking pip and compilers, is off, that of the weights is on; torch is today's. Its third approach, provenance, calls a
function that torch no longer has and is not measured.
"""

import copy
import importlib
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from benchmarks.contenders.json_documents import JsonDocuments

#: Its save services.
APPROACHES: Final = {"ba": "BaselineSaveService", "pua": "WeightUpdateSaveService"}


class Published:
    """Models of one network in a folder of their own, saved and recovered by one of MMlib's services.

    Args:
        checkout: MMlib's.
        folder: new.
        approach: of ``APPROACHES``.
        build: the network, a function of an importable module.
    """

    def __init__(self, checkout: Path, folder: Path, approach: str, build: Callable[[], nn.Module]) -> None:
        files = folder / "files"
        files.mkdir(parents=True)
        self._folder, self._checkout = folder, checkout
        persistence = _module(checkout, "mmlib.persistence").FileSystemPersistenceService(str(files))
        service = getattr(_module(checkout, "mmlib.save"), APPROACHES[approach])
        self._service = service(persistence, JsonDocuments(folder / "documents"))
        self._service._check_env = lambda _: None
        self._code = folder / f"{build.__module__.replace('.', '_')}_{build.__name__}.py"
        # It builds a network by calling the name of its class, found in one source file, without arguments.
        self._code.write_text(f"from {build.__module__} import {build.__name__} as {type(build()).__name__}\n")

    def save(self, module: nn.Module, base: str | None) -> str:
        """The id."""
        builder = _module(self._checkout, "mmlib.schema.save_info_builder").ModelSaveInfoBuilder()
        environment = copy.copy(_environment(self._checkout))
        builder.add_model_info(env=environment, model=module, code=str(self._code), base_model_id=base)
        return str(self._service.save_model(builder.build()))

    def recover(self, model: str) -> nn.Module:
        """Built anew, its weights checked."""
        path = list(sys.path)
        module: nn.Module = self._service.recover_model(model, execute_checks=True).model
        # It appends the folder of the source file, which is gone by now.
        sys.path[:] = path
        return module

    def size(self, model: str) -> int:
        """Bytes of a model's files and documents, without its base."""
        return _total(self._service.model_save_size(model))

    def contents(self) -> frozenset[str]:
        """What is there."""
        return frozenset(map(str, self._parts()))

    def keep(self, contents: frozenset[str]) -> None:
        """Removes what came since; MMlib removes nothing."""
        for path in self._parts():
            if str(path) not in contents:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _parts(self) -> list[Path]:
        return [*self._folder.glob("files/*"), *self._folder.glob("documents/*/*")]


def _module(checkout: Path, name: str) -> Any:
    """``RuntimeError`` says what is missing."""
    if torch.cuda.is_available():
        raise RuntimeError("MMlib hashes on the GPU where there is one, and fails there: hide it by CUDA_VISIBLE_DEVICES=")
    if str(checkout) not in sys.path:
        # Behind everything else: a checkout has folders of common names.
        sys.path.append(str(checkout))
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RuntimeError(f"{checkout}: MMlib cannot be imported, {error}; see {__file__}") from error


@cache
def _environment(checkout: Path) -> Any:
    """Asked for once, outside of what is timed; a copy of it has no id yet, so every model gets a document of its own."""
    return _module(checkout, "mmlib.track_env").track_current_environment()


def _total(sizes: Any) -> int:
    return sum(_total(part) for part in sizes.values()) if isinstance(sizes, dict) else int(sizes)
