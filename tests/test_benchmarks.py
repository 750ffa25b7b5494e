"""Every benchmark notebook runs through papermill, at a size that takes seconds."""

from pathlib import Path

import papermill
import pytest

ROOT = Path(__file__).resolve().parent.parent
TINY = dict(steps=2, seeds=1, overrides=dict(labeled_batch=8, unlabeled_batch=24, small_width=4, evaluate_every=2, checkpoint_every=2))
STUDIES = {  # notebooks that train; runs that several of them need are made once
    "table1_accuracy": dict(methods=["pmlp", "lassl"]),
    "table4_reductions": dict(reductions=["max"], path_points=[3]),
    "table5_bandwidth": dict(bandwidths=[5.0], draws=2, points=300, feature_steps=1),
    "table6_neighbours": dict(neighbours=[8, 15], methods=["pmlp"]),
    "table7_extremes": dict(reductions=["max"], bandwidths=[5.0]),
    "adaptive_threshold": dict(methods=["pmlp"], thresholds=[0.95], patience=1),
    "figure3_pseudo_labels": dict(evaluate_every=None),
    "cifar10_small": dict(dataset="digits", n_labels=40, evaluate_every=None, rivals=[]),
    "measured": dict(measure=True, methods=["pmlp", "lassl"]),
}
SMALL = {
    "density_search": dict(draws=2, labels_per_class=[2], points=300, choosing=["digits"], judging=["digits"]),
