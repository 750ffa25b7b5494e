"""Grids from the outside: local and on Dask, with broken runs, killed kernels and workers, devices, and the report."""

import json
import os
import signal
from pathlib import Path

import nbformat
import papermill
import pytest
import torch
from distributed import Client, LocalCluster

import pmlp
from pmlp.records import Stopped
from pmlp.experiments import grid, plan
from pmlp.results import paired, save_table, table
from pmlp.training import Trainer, train

ROOT = Path(__file__).resolve().parent.parent
SHORT = dict(dataset="digits", steps=8, mix_after=2, evaluate_every=4, checkpoint_every=4, labeled_batch=16, unlabeled_batch=32)
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0") as cluster:
        yield cluster


def one_breaks_and_is_repaired(outputs, parameters, seeds, **options):
    """Run a grid whose last run cannot start, start it again, repair it; return the metrics by folder."""
    broken = plan(parameters, seeds, outputs)[-1].folder
    broken.mkdir(parents=True)
    (broken / "config.json").write_text("{")
    first = grid(parameters, seeds, outputs=outputs, **options)
    assert first.state.tolist() == ["finished"] * (len(first) - 1) + ["failed"]
    assert "config.json" in first.error.iloc[-1] and f"{broken.name}/train.ipynb" in first.error.iloc[-1]
    assert "config.json" in (broken / "train.ipynb").read_text()
    results = {path: path.stat().st_mtime_ns for path in outputs.rglob("result.json")}
    notebooks = {path: path.stat().st_mtime_ns for path in outputs.rglob("train.ipynb")}
    assert len(results) == len(first) - 1

    assert grid(parameters, seeds, outputs=outputs, **options).state.tolist() == first.state.tolist()
    assert {path: path.stat().st_mtime_ns for path in outputs.rglob("train.ipynb")} == notebooks

    (broken / "config.json").unlink()
    last = grid(parameters, seeds, outputs=outputs, retry_failed=True, **options)
    assert (last.state == "finished").all() and (last.error == "").all()
    assert {path: path.stat().st_mtime_ns for path in results} == results
    assert {path.parent for path, time in notebooks.items() if path.stat().st_mtime_ns != time} == {broken}
    return {folder: (outputs / folder / "metrics.jsonl").read_bytes() for folder in last.folder}


def same_on_local_processes_and_dask(home, cluster, parameters, seeds, **options):
    """Break and repair a grid on both backends, compare, and return its folder."""
    local = one_breaks_and_is_repaired(home / "local", parameters, seeds, **options)
    address = cluster.scheduler_address
    dask = one_breaks_and_is_repaired(home / "dask", parameters, seeds, backend="dask", scheduler=address, **options)
    assert local == dask and len(set(local.values())) == len(local)
    shown = table(home / "local")
    assert table(home).equals(shown)  # the runs of both are the same ones, and count once
    assert all(cell.endswith(f"({len(seeds)})") for cell in shown["digits / 40"])
    page = report(home, home / "local")
    assert all(cell in page for cell in shown["digits / 40"]) and "image/png" in page and "No run in" not in page
    return home / "local"


def test_a_broken_run_stops_no_other_and_is_repeated_alone(home, cluster, stand_in):
    same_on_local_processes_and_dask(home, cluster, {"steps": 4}, range(3), notebook=stand_in)


@pytest.mark.slow
def test_twelve_training_runs_are_the_same_on_local_processes_and_dask(home, cluster):
    outputs = same_on_local_processes_and_dask(home, cluster, {**SHORT, "method": ["pmlp", "lassl", "fixmatch"]}, range(4))
    assert len(list(outputs.rglob("result.json"))) == 12
    assert table(outputs).index.tolist() == ["fixmatch", "lassl", "pmlp"] and paired(outputs).pairs.tolist() == [4]
    for suffix in ("md", "tex", "csv"):
        save_table(table(outputs), home / f"table.{suffix}")
        assert table(outputs).iloc[0, 0] in (home / f"table.{suffix}").read_text()


def report(home, outputs):
    """What the report of a folder shows."""
    parameters = dict(outputs=str(outputs))
    notebook = papermill.execute_notebook(ROOT / "nbs" / "report.ipynb", home / "report.ipynb", parameters=parameters, progress_bar=False)
    return "\n".join(str(cell.outputs) for cell in notebook.cells if cell.cell_type == "code")


def test_report_without_runs_names_the_command(home):
    page = report(home, home / "nothing")
    assert "No run in" in page and "make train" in page


def test_a_half_done_run_is_continued_to_the_same_end(home):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    half = plan(SHORT, outputs=home / "half")[0]
    whole = train(half.config, output=home / "whole")
    trainer = Trainer(half.config, output=half.folder)

    metrics = trainer.metrics

    def metrics_and_stop():
        signal.raise_signal(signal.SIGTERM)
        return metrics()

    trainer.metrics = metrics_and_stop
    with pytest.raises(Stopped, match="SIGTERM"):
        trainer.fit()
    torch.set_num_threads(threads)
    assert not (half.folder / "result.json").exists()
    seconds = (half.folder / "seconds.jsonl").read_text()
    assert grid(SHORT, outputs=home / "half").state.tolist() == ["finished"]
    assert seconds and (half.folder / "seconds.jsonl").read_text().startswith(seconds)  # not begun again
    assert (half.folder / "metrics.jsonl").read_bytes() == (whole.folder / "metrics.jsonl").read_bytes()


# Takes a second, and makes up its metrics. The file `kill` tells whose process is killed by the run of seed 1.
STAND_IN = """
import json, os, signal, time
from pathlib import Path
from pmlp.config import Config, notebook_params
params = notebook_params(globals())
folder, resume = Path(params.pop("output")), params.pop("resume")
if (folder / "config.json").exists():
    raise ValueError("config.json cannot be read")
victim = dict(kernel=os.getpid(), worker=os.getppid()).get((Path(os.environ["PMLP_HOME"]) / "kill").read_text())
begin = time.time()
if victim and params["seed"] == 1:
    os.kill(victim, signal.SIGKILL)
    time.sleep(60)
time.sleep(0.5)
names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
seen = {name: os.environ.get(name) for name in names} | dict(begin=begin, end=time.time(), worker=os.getppid())
config = Config.from_params(**params)
accuracy = dict(test_accuracy=0.5 + 0.01 * config.seed, best_test_accuracy=0.6)
(folder / "metrics.jsonl").write_text(json.dumps(dict(iteration=config.steps, confident=0.5, correct=0.9, **accuracy)) + chr(10))
(folder / "result.json").write_text(json.dumps(dict(config=json.loads(config.to_json()), seconds=1.0, **accuracy, **seen)))
"""


@pytest.fixture
def stand_in(home):
    """A notebook with the parameters of train.ipynb that takes a second."""
    names = ("dataset", "n_labels", "method", "seed", "output", "resume", "overrides")
    parameters = nbformat.v4.new_code_cell("\n".join(f"{name} = None" for name in names), metadata={"tags": ["parameters"]})
    kernel = {"kernelspec": {"name": "python3", "display_name": "python3", "language": "python"}}
    cells = [parameters, nbformat.v4.new_code_cell(STAND_IN)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), home / "stand_in.ipynb")
    (home / "kill").write_text("nobody")
    return home / "stand_in.ipynb"


@pytest.mark.parametrize("victim, words", [("kernel", "DeadKernelError"), ("worker", "TerminatedWorkerError")])
def test_a_killed_process_stops_no_other_run(home, stand_in, victim, words):
    (home / "kill").write_text(victim)
    seeds = range(5)
    runs = grid({"steps": 4}, seeds, outputs=home / "runs", notebook=stand_in).set_index("seed")
    assert runs.state.tolist() == ["finished", "failed", "finished", "finished", "finished"]
    assert words in runs.error[1]
    (home / "kill").write_text("nobody")
    assert (grid({"steps": 4}, seeds, outputs=home / "runs", notebook=stand_in, retry_failed=True).state == "finished").all()


@pytest.mark.parametrize("backend", ["local", "dask"])
def test_each_run_has_a_device_and_its_threads_to_itself(home, stand_in, backend, request):
    options = dict(backend="dask", scheduler=request.getfixturevalue("cluster").scheduler_address) if backend == "dask" else {}
    devices = [f"{backend}-a", f"{backend}-b"]
    runs = grid({"steps": 4}, range(4), outputs=home / "runs", notebook=stand_in, devices=devices, threads=3, **options)
    assert (runs.state == "finished").all(), runs.error.tolist()
    results = [json.loads((home / "runs" / folder / "result.json").read_text()) for folder in runs.folder]
    notes = [json.loads((home / "runs" / folder / "grid.json").read_text()) for folder in runs.folder]
    assert {result["OMP_NUM_THREADS"] for result in results} == {result["OPENBLAS_NUM_THREADS"] for result in results} == {"3"}
    assert {note["threads"] for note in notes} == {3} and {result["worker"] for result in results}.isdisjoint({os.getpid()})
    assert [note["device"] for note in notes] == [result["CUDA_VISIBLE_DEVICES"] for result in results]
    for device in devices:
        turns = sorted((result["begin"], result["end"]) for result in results if result["CUDA_VISIBLE_DEVICES"] == device)
        assert turns and all(end <= begin for (_, end), (begin, _) in zip(turns, turns[1:]))


def test_a_dask_worker_that_dies_has_its_run_done_by_another(home, stand_in, cluster):
    (home / "kill").write_text("worker")
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        processes = set(client.run(os.getpid).values())
        # the second attempt finds nobody to kill, because the first takes back the order
        notebook = nbformat.read(stand_in, as_version=4)
        order = "(Path(os.environ['PMLP_HOME']) / 'kill').write_text('nobody')"
        notebook.cells[1].source = STAND_IN.replace("os.kill(victim", f"{order}; os.kill(victim")
        nbformat.write(notebook, stand_in)
        runs = grid({"steps": 5}, range(2), outputs=home / "runs", notebook=stand_in, backend="dask", scheduler=client)
        assert runs.state.tolist() == ["finished", "finished"]
        client.wait_for_workers(2)
        assert set(client.run(os.getpid).values()) != processes


def test_refusals_come_before_anything_runs(home, monkeypatch):
    with pytest.raises(ValueError, match="'bandwith' is not a setting of Config: did you mean 'bandwidth'"):
        grid({"bandwith": [3, 5]}, outputs=home / "runs")
    with LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as threaded:
        with pytest.raises(ValueError, match="--nthreads 1"):
            grid(SHORT, outputs=home / "runs", backend="dask", scheduler=threaded.scheduler_address)
    monkeypatch.setattr(pmlp, "__file__", str(home / "site-packages" / "pmlp" / "__init__.py"))
    with pytest.raises(ValueError, match="notebook=None needs a clone .* give the path"):
        grid(SHORT, outputs=home / "runs")
    assert not (home / "runs").exists()
