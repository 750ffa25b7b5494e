"""Grids from the outside: local and on Dask, with broken runs, killed kernels and workers, devices, and the report."""

import json
import os
import signal
import threading
from pathlib import Path

import nbformat
import papermill
import pytest
import torch
from distributed import Client, LocalCluster
from filelock import FileLock
from helpers import message

import pmlp
from pmlp.config import Config
from pmlp.experiments import PlannedRun, device_slot, environment, execute, find_notebook, free_device, grid, overview, plan, run_name, run_status
from pmlp.records import Stopped
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
    assert first.status.tolist() == ["finished"] * (len(first) - 1) + ["failed"]
    assert "config.json" in first.error.iloc[-1] and f"{broken.name}/train.ipynb" in first.error.iloc[-1]
    assert "config.json" in (broken / "train.ipynb").read_text()
    results = {path: path.stat().st_mtime_ns for path in outputs.rglob("result.json")}
    notebooks = {path: path.stat().st_mtime_ns for path in outputs.rglob("train.ipynb")}
    assert len(results) == len(first) - 1

    assert grid(parameters, seeds, outputs=outputs, **options).status.tolist() == first.status.tolist()
    assert {path: path.stat().st_mtime_ns for path in outputs.rglob("train.ipynb")} == notebooks

    (broken / "config.json").unlink()
    last = grid(parameters, seeds, outputs=outputs, retry_failed=True, **options)
    assert (last.status == "finished").all() and (last.error == "").all()
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
    assert grid(SHORT, outputs=home / "half").status.tolist() == ["finished"]
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
    assert runs.status.tolist() == ["finished", "failed", "finished", "finished", "finished"]
    assert words in runs.error[1]
    (home / "kill").write_text("nobody")
    assert (grid({"steps": 4}, seeds, outputs=home / "runs", notebook=stand_in, retry_failed=True).status == "finished").all()


@pytest.mark.parametrize("backend", ["local", "dask"])
def test_each_run_has_a_device_and_its_threads_to_itself(home, stand_in, backend, request):
    options = dict(backend="dask", scheduler=request.getfixturevalue("cluster").scheduler_address) if backend == "dask" else {}
    devices = [f"{backend}-a", f"{backend}-b"]
    runs = grid({"steps": 4}, range(4), outputs=home / "runs", notebook=stand_in, devices=devices, threads=3, **options)
    assert (runs.status == "finished").all(), runs.error.tolist()
    results = [json.loads((home / "runs" / folder / "result.json").read_text()) for folder in runs.folder]
    notes = [json.loads((home / "runs" / folder / "grid.json").read_text()) for folder in runs.folder]
    assert {result["OMP_NUM_THREADS"] for result in results} == {result["OPENBLAS_NUM_THREADS"] for result in results} == {"3"}
    assert {note["threads"] for note in notes} == {3} and {result["worker"] for result in results}.isdisjoint({os.getpid()})
    assert [note["device"] for note in notes] == [result["CUDA_VISIBLE_DEVICES"] for result in results]
    assert {note["device"] for note in notes} <= set(devices)
    for device in devices:  # on a busy machine one of them may get all the runs
        turns = sorted((result["begin"], result["end"]) for result in results if result["CUDA_VISIBLE_DEVICES"] == device)
        assert all(end <= begin for (_, end), (begin, _) in zip(turns, turns[1:]))


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
        assert runs.status.tolist() == ["finished", "finished"]
        client.wait_for_workers(2)
        assert set(client.run(os.getpid).values()) != processes


@pytest.mark.parametrize("parameters, options, words", [
    ({"bandwith": [3, 5]}, {}, "'bandwith' is not a setting of Config: did you mean 'bandwidth'"),
    ({"alpha": [0.5, 2]}, {}, "alpha=2"),
    ({"seed": [1]}, {}, "give seeds=[…] instead"),
    ({"k": []}, {}, "no run"),
    ({"k": [5, 5]}, {}, "twice"),
    ([{"k": 5}, {"k": 5}], {}, "twice"),
    ({"output": "here"}, {}, "'output' is not a setting"),
    (SHORT, dict(devices=["0"]), "too few for workers=2"),
    (SHORT, dict(devices="01"), "give a list"),
    (SHORT, dict(devices=[]), "give a list"),
    (SHORT, dict(backend="cluster"), "backend='cluster'"),
    (SHORT, dict(scheduler="tcp://127.0.0.1:1"), "scheduler is for backend='dask'"),
    (SHORT, dict(backend="dask"), "scheduler=None is not allowed"),
    (SHORT, dict(workers=0), "workers=0"),
    (SHORT, dict(threads=0), "threads=0"),
    (SHORT, dict(notebook="missing.ipynb"), "notebook='missing.ipynb' does not exist"),
])
def test_what_cannot_be_is_refused_before_anything_runs(home, parameters, options, words):
    assert words in message(grid, parameters, outputs=home / "runs", **options)
    assert not (home / "runs").exists()


def test_a_grid_that_was_begun_with_other_threads_is_refused(home):
    (run,) = plan(SHORT, outputs=home / "runs")
    run.folder.mkdir(parents=True)
    (run.folder / "grid.json").write_text('{"threads": 1}')
    assert "was started with 1" in message(grid, SHORT, outputs=home / "runs", threads=2)


def test_the_grid_refuses_unsuitable_workers_and_a_missing_clone(home, monkeypatch):
    with LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as threaded:
        with pytest.raises(ValueError, match="--nthreads 1"):
            grid(SHORT, outputs=home / "runs", backend="dask", scheduler=threaded.scheduler_address)
    monkeypatch.setattr(pmlp, "__file__", str(home / "site-packages" / "pmlp" / "__init__.py"))
    with pytest.raises(ValueError, match="notebook=None needs a clone .* give the path"):
        grid(SHORT, outputs=home / "runs")
    assert not (home / "runs").exists()


def test_a_run_has_the_same_name_again_and_other_runs_other_names():
    config = Config.from_params(dataset="digits", steps=4)
    assert run_name(config.replace(device="cuda:1")) == run_name(config)
    assert len({run_name(config), run_name(config.replace(seed=1)), run_name(config.replace(bandwidth=4.0))}) == 3
    assert run_name(Config.from_params(dataset="my data/cells.npz")).split("-")[:2] == ["cells", "auto"]


def test_values_of_a_plan_come_in_their_order():
    assert [run.config.k for run in plan({"k": [5, 6]})] == [5, 6]
    assert len(plan([{"k": [5, 6], "alpha": [0.5, 0.6]}, {"method": "supervised"}], seeds=range(3))) == 15


def write_result(run, config):
    run.folder.mkdir(parents=True, exist_ok=True)
    (run.folder / "result.json").write_text(json.dumps({"config": json.loads(config.to_json())}))


def test_the_status_of_a_run_follows_from_its_files(home):
    (run,) = plan(SHORT, outputs=home / "runs")
    assert run_status(run) == run_status(run, "7") == "waiting"
    run.folder.mkdir(parents=True)
    (run.folder / "grid.json").write_text('{"call": "7"}')
    assert [run_status(run), run_status(run, "7"), run_status(run, "8")] == ["started", "running", "started"]
    (run.folder / "error.txt").write_text("ValueError: broken\n")
    assert run_status(run, "7") == "failed"
    (run.folder / "result.json").write_text('{"config": {')  # cut off
    assert run_status(run) == "failed"
    write_result(run, run.config.replace(device="cuda"))
    assert run_status(run) == "finished"
    assert run_status(run._replace(config=run.config.replace(seed=1))) == "failed"  # the result of another run


def test_settings_that_the_data_fill_in_count_as_equal(home):
    config = Config.from_params(dataset="cells")
    run = PlannedRun(config, (), home / run_name(config))
    write_result(run, config.with_classes(3))
    assert (config.n_labels, config.k, run_status(run)) == (None, None, "finished")


def test_the_overview_has_what_varies_and_what_went_wrong(home):
    runs = plan({"method": ["pmlp", "lassl"]}, outputs=home / "runs")
    runs[0].folder.mkdir(parents=True)
    (runs[0].folder / "error.txt").write_text("ValueError: broken\n")
    rows = overview(runs, "a call")
    assert rows.columns.tolist() == ["method", "seed", "status", "iteration", "accuracy", "seconds", "error", "folder"]
    assert rows.status.tolist() == ["failed", "waiting"]
    assert rows.error[0] == f"ValueError: broken (see {runs[0].folder.name}/train.ipynb)"


def test_a_device_named_twice_is_for_two_and_is_free_again_after_an_error():
    with device_slot(["tested", "tested"]) as first, device_slot(["tested", "tested"]) as second:
        assert (first, second, free_device(["tested", "tested"])) == ("tested", "tested", None)
    with device_slot(None) as nothing:
        assert nothing is None
    with pytest.raises(RuntimeError), device_slot(["tested"]):
        raise RuntimeError("broken")
    device, lock = free_device(["tested"])
    lock.release()
    assert device == "tested"


def test_the_environment_is_restored_after_an_error():
    with environment(PMLP_DEMO="outer"):
        with pytest.raises(RuntimeError), environment(PMLP_DEMO="inner"):
            raise RuntimeError("broken")
        assert os.environ["PMLP_DEMO"] == "outer"
    assert "PMLP_DEMO" not in os.environ


def test_a_run_gets_its_settings_threads_and_device(home, stand_in):
    (run,) = plan({"bandwidth": float("inf")}, seeds=[7], outputs=home / "runs")
    device = os.environ.get("CUDA_VISIBLE_DEVICES")
    execute(run, stand_in, threads=2)
    result = json.loads((run.folder / "result.json").read_text())
    assert (run_status(run), result["config"]["bandwidth"], result["OMP_NUM_THREADS"], result["CUDA_VISIBLE_DEVICES"]) == ("finished", "inf", "2", device)
    assert json.loads((run.folder / "grid.json").read_text())["threads"] == 2


def test_a_run_that_another_process_executes_is_left_to_it(home, stand_in):
    (run,) = plan({}, outputs=home / "runs")
    run.folder.mkdir(parents=True)
    (run.folder / "config.json").write_text("{")  # of which the stand-in complains
    execute(run, stand_in)
    assert run_status(run) == "failed" and (run.folder / "error.txt").read_text() == "ValueError: config.json cannot be read\n"
    before = (run.folder / "error.txt").stat().st_mtime_ns
    with FileLock(run.folder / ".lock"):
        worker = threading.Thread(target=execute, args=(run, stand_in))
        worker.start()
        worker.join()
    assert (run.folder / "error.txt").stat().st_mtime_ns == before


def test_the_notebook_of_a_clone_is_found():
    assert find_notebook() == ROOT / "nbs" / "train.ipynb"


@pytest.mark.parametrize("deaths, status", [(2, "finished"), (3, "failed")])
def test_a_kernel_that_dies_at_its_start_is_started_again(home, stand_in, monkeypatch, deaths, status):
    """Two kernels that start at once may be given the same port; nothing has run yet, so another start is safe."""
    started, run_notebook = [], papermill.execute_notebook

    def unlucky(*arguments, **options):
        started.append(1)
        if len(started) <= deaths:
            raise RuntimeError("Kernel died before replying to kernel_info")
        return run_notebook(*arguments, **options)

    monkeypatch.setattr(papermill, "execute_notebook", unlucky)
    (run,) = plan({"steps": 4}, outputs=home / "runs")
    execute(run, stand_in)
    assert run_status(run) == status and len(started) == 3
