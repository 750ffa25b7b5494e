"""Shares of a batch, what processes tell each other, and how a job is started and fails."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import message

from pmlp.parallel import batch_rows, from_first, launch, shard

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import sys, torch
from torch import nn

from pmlp.parallel import all_reduce_sum, average_norms, batch_rows, broadcast, distribute, first_goes_first, from_first, gather, join_processes, rank, world_size

with join_processes(torch.device("cpu")):
    torch.manual_seed(0)
    images, sizes = torch.randn(8, 3), [3, 5]
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.BatchNorm1d(4).eval(), nn.Linear(4, 2))
    distributed = distribute(network)
    rows = gather(distributed(images[batch_rows(sizes)]), sizes)
    loss = (rows @ rows.T / 2).logsumexp(1).mean()
    (world_size() * loss).backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in network.parameters()])
    network[2].running_mean += rank()
    average_norms(network)
    try:
        from_first(lambda: 1 / 0)
    except ZeroDivisionError as error:
        said = str(error)
    told = [network[2].running_mean.tolist(), all_reduce_sum(rank() + 1), float(broadcast(torch.tensor(float(rank())))), said]
    with first_goes_first():
        torch.save((loss.item(), gradient, told), f"{sys.argv[1]}/{world_size()}-{rank()}.pt")
"""


@pytest.mark.parametrize("total", [1, 2, 3, 5])
def test_shares(total):
    every = torch.cat([batch_rows([3, 3, 5, 5], process, total) for process in range(total)])
    assert sorted(every.tolist()) == list(range(16))
    lengths = [len(range(64)[shard(64, process, total)]) for process in range(total)]
    assert max(lengths) - min(lengths) <= 1


def test_alone():
    assert batch_rows([3, 5]).tolist() == list(range(8))
    assert "division by zero" in message(from_first, lambda: 1 / 0, error=ZeroDivisionError)


def test_two_processes_and_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "script.py").write_text(SCRIPT)
    for count in (1, 2):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        subprocess.run([*command, str(tmp_path / "script.py"), str(tmp_path)], check=True, timeout=120)
    alone, one, other = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    assert abs(alone[0] - one[0]) < 1e-6 and one[0] == other[0]
    assert alone[1].abs().max() > 0.01 and (alone[1] - one[1]).abs().max() < 1e-6 and torch.equal(one[1], other[1])
    assert one[2] == other[2] == [[0.5] * 4, 3, 0.0, "division by zero"]
    assert alone[2] == [[0.0] * 4, 1, 0.0, "division by zero"]


def test_launch(capfd):
    launch(["platform"], 2)
    first, second = capfd.readouterr().out.splitlines()[:2]
    assert first == second


def test_launch_of_what_fails(capfd):
    assert "the job of 1 processes ended with code 1" in message(launch, ["no_such_module"], 1, error=RuntimeError)
    assert "no_such_module" in capfd.readouterr().out
