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
    "which_to_label": dict(seeds=2, labels_per_class=[1, 2], first_counts=[10], points=300, dimensions=16),
    "estimator": dict(seeds=1, labels_per_class=[4], points=600, sets=["digits"]),
    "estimator_time": dict(sizes=[2000, 3000], headline=3000),
    "density_search": dict(draws=2, labels_per_class=[2], points=300, choosing=["digits"], judging=["digits"]),
    "density_speed": dict(sizes=[192], headline=192, supports=[None], path_points=[1], repeats=1),
    "step_time": dict(encoder="small", labeled_batch=8, unlabeled_batch=24, steps=1, digits_steps=1, turns=1, speed_batch=8, speed_steps=1,
                      compiled=False, process_steps=1, layouts=[[2, 1]]),
    "budget": dict(settings=[["cifar10", 40]], views=4, repeats=1),
    "figure1_procedure": dict(steps=2, points=150),
    "figure4_neighbours": dict(steps=2, points=300, neighbours=50),
    "relative_density": dict(seeds=2, labels_per_class=[2], points=300, steps=1),
    "reproduction_notes": dict(steps=2, seeds=1, feature_steps=2),
    "table2_kde_time": dict(stages=[0, 1], points=128, repeats=1),
    "table3_overhead": dict(steps=8, path_points=[1]),
}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """One folder for the runs of all studies."""
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("path", sorted((ROOT / "nbs" / "benchmarks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_benchmark_runs(path, tmp_path, runs):
    study = {**TINY, **STUDIES.get(path.stem, {}), "outputs": str(runs)}
    parameters = study if path.stem in STUDIES else SMALL[path.stem]
    if path.stem == "measured":
        parameters["file"] = str(tmp_path / "measured.csv")
    papermill.execute_notebook(path, tmp_path / path.name, parameters=parameters, cwd=path.parent, progress_bar=False)
