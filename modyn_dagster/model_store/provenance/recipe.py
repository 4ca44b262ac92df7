"""Recipe of a model: the factory of its architecture, the function that trained it, and the allowlist of both.

A store runs only functions below the modules it allows, and only where they are defined there: an allowed module may hold names
from elsewhere, such as ``system`` after ``from os import system``, which no file may reach.
"""

import importlib.util
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from modyn_dagster.errors import ConfigError, NotAllowed, NotReproducible
from modyn_dagster.imports import import_callable
from modyn_dagster.reproducibility.determinism import reproducible
from modyn_dagster.reproducibility.environment import Environment
from modyn_dagster.values.digest import checksum_of, code_version
from modyn_dagster.values.json_values import require_json


def require_allowed(path: str, allow: Sequence[str], *, field: str = "train", purpose: str = "trained again") -> None:
    """``NotAllowed`` unless ``package.module:function`` stands below a module of ``allow``, or is one of its functions."""
    if not _is_below(path, allow):
        raise NotAllowed(path, allow, field=field, doing=purpose)


def allowed_callable(path: str, allow: Sequence[str], *, source: str, field: str, purpose: str) -> Callable[..., Any]:
    """Import the callable at an allowed path. ``NotAllowed`` for other paths, and for callables defined elsewhere."""
    require_allowed(path, allow, field=field, purpose=purpose)
    imported = function = import_callable(path, source=source, field=field)
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__)
    defined = f"{getattr(function, '__module__', None)}:{name}"
    if not _is_below(defined, allow):
        raise NotAllowed(path, allow, field=field, doing=purpose, defined=defined)
    return imported


def _is_below(path: str, allow: Sequence[str]) -> bool:
    module = path.partition(":")[0]
    return any(prefix in (path, module) or module.startswith(f"{prefix}.") for prefix in allow)


#: ``train(base, data=…, seed=…, **args)``: the state of the base (None without one) to that of the model.
Train = Callable[..., Mapping[str, Tensor]]


@dataclass(frozen=True)
class Provenance:
    """Recipe of a training.

    Attributes:
        train: ``package.module:function``, called as ``train(base, data=data, seed=seed, **args)`` with the state of the base
            model, or None; it returns the state of the model.
        args: further arguments: values of JSON.
        data: reference to the training data in values of JSON. A mapping with ``path``, and perhaps ``checksum`` (BLAKE2b
            of 16 bytes in hex), is a file that must be there, unchanged.
        seed: seed of every generator.
        environment: environment of the training; None for that of this process, as it is when the model is saved.
        seconds: duration of the training, if it was measured.
        probed: whether a probe found every step equal in two runs.
        uses_base: whether training starts from the base's weights; else the base is only the predecessor of the model, and
            ``train`` is called with None.
        code: version of the package of ``train``; None for that of this process, as it is when the model is saved.
    """

    train: str
    args: Mapping[str, Any] = field(default_factory=dict)
    data: Any = None
    seed: int = 0
    environment: Environment | None = None
    seconds: float | None = None
    probed: bool = False
    uses_base: bool = True
    code: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Everything but the environment, which is a document of its own. ``NotJson`` names the field that JSON would change."""
        content = {name: getattr(self, name) for name in ("train", "data", "seed", "seconds", "probed")}
        content |= {"args": dict(self.args), "code": self.code or code_version(self.train)}
        if not self.uses_base:
            content["uses_base"] = False
        for name, value in content.items():
            require_json("provenance", name, value)
        if taken := {"data", "seed"} & set(self.args):
            raise ConfigError("provenance", f"args.{min(taken)}", self.args[min(taken)], "is given by the provenance itself")
        return content

    @classmethod
    def parse(cls, content: Mapping[str, Any], environment: Environment | None) -> Self:
        """Inverse of ``to_json``; ``NotReproducible`` for anything else."""
        match content:
            case {"train": str(), "seed": int(), "args": dict()} if set(content) <= set(cls.__dataclass_fields__):
                if type(content.get("uses_base", True)) is bool and isinstance(content.get("code") or "", str):
                    return cls(**content, environment=environment)
        raise NotReproducible("train", "package.module:function, args, data and seed", reprlib.repr(content))

    def run(self, base: Mapping[str, Tensor] | None, *, allow: Sequence[str]) -> dict[str, Tensor]:
        """Train with the recorded seed and thread count, deterministically.

        Raises ``NotAllowed`` unless the function stands, and is defined, below a prefix of ``allow``, ``NotReproducible`` for
        data that are missing or changed.
        """
        require_allowed(self.train, allow)
        self._require_data()
        train: Train = allowed_callable(self.train, allow, source="provenance", field="train", purpose="trained again")
        threads = (self.environment or Environment.now()).threads
        # The caller may be inside ``inference_mode`` or ``no_grad``.
        with reproducible(self.seed, threads=threads), torch.inference_mode(False), torch.enable_grad():
            return dict(train(base if self.uses_base else None, data=self.data, seed=self.seed, **self.args))

    def _require_data(self) -> None:
        match self.data:
            case {"path": str(text), **rest}:
                path, expected = Path(text), rest.get("checksum")
            case _:
                return
        if not path.is_file():
            raise NotReproducible("data.path", str(path), "no file")
        if expected is not None and (checksum := checksum_of(path)) != expected:
            raise NotReproducible("data.checksum", str(expected), checksum)


@dataclass(frozen=True, slots=True)
class Architecture:
    """Factory of a module as ``package.module:function``, and its keyword arguments: values of JSON, else ``NotJson``."""

    factory: str
    args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        module, colon, name = self.factory.partition(":")
        if not (module and colon and name):
            raise ConfigError("model store", "model", self.factory, "must be package.module:factory")
        require_json("model", "factory", self.factory)
        require_json("model", "args", dict(self.args))

    def to_json(self) -> dict[str, Any]:
        """Both attributes by name."""
        return {"factory": self.factory, "args": dict(self.args)}

    def source(self) -> str | None:
        """Text of the factory's module, if it has a source file; the module itself is not imported."""
        try:
            spec = importlib.util.find_spec(self.factory.partition(":")[0])
        except (ImportError, ValueError):
            return None
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            return None
        return Path(spec.origin).read_text(encoding="utf-8")


def architecture_of(model: "str | Architecture | None") -> Architecture | None:
    """Architecture of a model; an import path alone means no arguments."""
    return Architecture(model) if isinstance(model, str) else model
