"""Every benchmark notebook runs through papermill, at a size that takes seconds."""

from pathlib import Path

import papermill
import pytest

ROOT = Path(__file__).resolve().parent.parent
SMALL = {
    "estimator": dict(seeds=2, labels_per_class=[1, 4], points=1200, sizes=[3000, 4000], headline=3000),
    "density_speed": dict(sizes=[128, 192], headline=192, supports=[45, None], path_points=[1], repeats=1),
    "step_time": dict(encoder="small", labeled_batch=8, unlabeled_batch=24, steps=1, digits_steps=1, turns=1, speed_batch=8, speed_steps=1,
                      compiled=False, process_steps=1),
}


@pytest.mark.parametrize("path", sorted((ROOT / "nbs" / "benchmarks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_benchmark_runs(path, tmp_path):
    papermill.execute_notebook(path, tmp_path / path.name, parameters=SMALL[path.stem], cwd=path.parent, progress_bar=False)
