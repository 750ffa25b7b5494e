"""Measure what the front page reports: train on digits and write one row for each run to nbs/measured.csv.

    python .ci/measure.py           about a quarter of an hour on two cores; what has ended is not repeated
"""

from pathlib import Path

from pmlp.experiments import grid
from pmlp.results import read_results

ROOT = Path(__file__).resolve().parent.parent
OUTPUTS = ROOT / "outputs" / "measured"
COLUMNS = ["dataset", "n_labels", "method", "seed", "split", "steps", "test_accuracy", "folder", "version"]


if __name__ == "__main__":
    states = grid({"dataset": "digits", "method": ["pmlp", "lassl", "supervised"]}, seeds=range(5), outputs=OUTPUTS)
    if (states.state != "finished").any():
        raise SystemExit(f"Some runs did not end:\n{states[['method', 'seed', 'state', 'error']]}")
    results = read_results(OUTPUTS).sort_values(["method", "seed"])
    results[COLUMNS].to_csv(ROOT / "nbs" / "measured.csv", index=False, lineterminator="\n")
