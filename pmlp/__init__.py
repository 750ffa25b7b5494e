"""Probability-density-aware label propagation: features and a few labels in, a label for every row out.

The names below are imported when they are first used, so `import pmlp` alone is quick. Everything else is in the modules.
"""

__version__ = "0.1.0"

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pmlp.config import preset
    from pmlp.density import path_density
    from pmlp.estimator import DensityLabelSpreading
    from pmlp.neighbors import knn
    from pmlp.propagation import label_propagation
    from pmlp.training import Trainer, train

__all__ = ["DensityLabelSpreading", "label_propagation", "path_density", "knn", "Trainer", "train", "preset"]

_OWNERS = {
    "DensityLabelSpreading": "estimator", "label_propagation": "propagation", "path_density": "density", "knn": "neighbors",
    "Trainer": "training", "train": "training", "preset": "config",
}
_MOVED = {  # modules of before that pickles may still name, and where their content is
    "arrays": "data", "batches": "data", "checkpoints": "records", "figures": "results", "graph": "spreading",
    "labeller": "pseudo_labels", "linear_system": "propagation", "lists": "kernels", "operations": "augment", "passes": "step",
    "run": "training", "run_loop": "training", "runs": "experiments", "tables": "results", "theory_dips": "theory_paths",
    "theory_propagation": "theory_limits", "version": "basics",
}


def __getattr__(name):
    if name not in _OWNERS:
        raise AttributeError(f"module 'pmlp' has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"pmlp.{_OWNERS[name]}"), name)
    return globals()[name]


def __dir__():
    return sorted({*globals(), *__all__})


class _Moved:
    """The last that Python asks for a module: it knows those that have moved."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        package, _, module = name.partition(".")
        if package == "pmlp" and module in _MOVED:
            raise ModuleNotFoundError(
                f"{name} is now part of pmlp.{_MOVED[module]}: import it from there; a model saved before must be fitted again.", name=name
            )


sys.meta_path.append(_Moved)
