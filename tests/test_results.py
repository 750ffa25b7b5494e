"""Tables, paired differences and figures of runs: what must be refused, and what the figures show."""

import json
import math

import matplotlib.pyplot as plt
import pandas
import pytest
import torch
from helpers import message

from pmlp.config import Config, preset
from pmlp.results import (
    changes, check_cell, interval, most_mixed, paired, principal_plane, read_results, refuse_mixture, save_table, show_confusion, show_mistakes,
    show_neighbors, table, verdict,
)

ACCURACIES = dict(pmlp=(0.90, 0.94, 0.92), lassl=(0.890, 0.929, 0.911))  # pmlp is better with every seed


def write_run(place, method, seed, accuracy, version="0.1.0+demo", folder=None, **params):
    """A made-up run of 60 steps on digits."""
    config = Config.from_params(dataset="digits", method=method, seed=seed, **{"steps": 60, **params})
    folder = place / (folder or f"digits-{method}-{seed}")
    folder.mkdir(parents=True)
    result = dict(test_accuracy=accuracy, best_test_accuracy=accuracy, seconds=1.0, config=json.loads(config.to_json()))
    (folder / "result.json").write_text(json.dumps(result | ({"version": version} if version else {})))
    (folder / "split.json").write_text("[0, 1]")


@pytest.fixture
def place(tmp_path):
    for method, accuracies in ACCURACIES.items():
        for seed, accuracy in enumerate(accuracies):
            write_run(tmp_path, method, seed, accuracy)
    return tmp_path


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_a_preset_has_no_changes():
    assert changes(json.loads(Config.from_params(dataset="cifar100", method="authors", n_labels=2500).to_json())) == ""


def test_results_are_read_from_any_depth_with_their_version(place):
    write_run(place / "deeper", "fixmatch", 0, 0.5, version=None)
    results = read_results(place)
    assert len(results) == 7 and set(results.changes) == {"steps=60"} and set(results.version) == {"unknown", "0.1.0+demo"}
    assert "deeper/digits-fixmatch-0" in set(results.folder)


def test_a_folder_without_runs(tmp_path):
    assert len(read_results(tmp_path)) == 0
    assert "is not a folder" in message(read_results, tmp_path / "none")
    assert "holds no run that has ended" in message(table, tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"config": {"dataset": "digits"}}'])
def test_a_broken_result_is_named(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    assert "result.json is not the result of a run" in message(read_results, tmp_path)


def repeated(place, **other):
    """The runs of pmlp, and the first of them once more, changed."""
    runs = read_results(place).query("method == 'pmlp'")
    return pandas.concat([runs, runs.iloc[:1].assign(folder="other", **other)])


@pytest.mark.parametrize("other, count", [({}, 3), (dict(seed=9, device="cuda"), 4), (dict(split="mine.json", test_accuracy=0.5), 4)])
def test_runs_that_share_a_cell(place, other, count):
    assert len(check_cell(repeated(place, **other), "pmlp")) == count


@pytest.mark.parametrize("name, value", [("steps", 70), ("version", "0.1.0+later"), ("test_accuracy", 0.5), ("bandwidth", 3.0)])
def test_runs_that_must_not_share_a_cell(place, name, value):
    sentence = message(check_cell, repeated(place, **{name: value}), "pmlp")
    assert name in sentence and "other" in sentence
    assert "mixes runs of different steps: 60 in digits-pmlp-0" in message(refuse_mixture, repeated(place, steps=70), ["steps"], "pmlp")


def test_a_table_leaves_cells_without_runs_empty_and_one_seed_without_deviation(place):
    write_run(place, "pmlp", 5, 0.875, n_labels=100)
    wide = table(place)
    assert wide.loc["pmlp"].tolist() == ["92.00 ± 2.00 (3)", "87.50 (1)"] and wide.loc["lassl", "digits / 100"] == ""
    pandas.testing.assert_frame_equal(table(read_results(place).sample(frac=1, random_state=0)), wide)


def test_a_table_with_another_setting_in_its_rows(place):
    write_run(place, "pmlp", 0, 0.5, folder="flat", bandwidth=math.inf)
    assert table(place, rows=("method", "bandwidth")).loc[("pmlp", math.inf), "digits / 40"] == "50.00 (1)"
    assert "different bandwidth" in message(table, place)
    assert "method" in message(table, place, rows=("metod",))


def test_a_file_without_a_version_is_a_version_of_its_own(place):
    write_run(place, "fixmatch", 0, 0.5, version=None)
    write_run(place, "fixmatch", 1, 0.5)
    assert "different version" in message(table, place)


def test_a_table_is_saved_only_in_known_forms():
    assert "give one of .md, .tex, .csv" in message(save_table, pandas.DataFrame(), "table.docx")


def test_pairs_and_their_words(place):
    results = read_results(place)
    row = paired(results).loc[("digits", 40)]
    assert (row.pairs, row.result) == (3, "pmlp is better than lassl")
    differences = 100 * (pandas.Series(ACCURACIES["pmlp"]) - pandas.Series(ACCURACIES["lassl"]))
    assert [row.difference, row.low, row.high] == pytest.approx(interval(differences))
    swapped = paired(results, "lassl", "pmlp").loc[("digits", 40)]
    assert swapped.result == "lassl is worse than pmlp"
    assert (swapped.low, swapped.high) == pytest.approx((-row.high, -row.low))
    assert paired(results.assign(test_accuracy=0.5)).result.tolist() == ["no measurable difference"]
    assert paired(results[results.seed != 1]).pairs.tolist() == [2]
    lonely = results.drop(index=results.index[(results.method == "lassl") & (results.seed > 0)])
    assert paired(lonely).result.tolist() == ["one pair: no interval"]
    assert len(paired(results, "pmlp", "fixmatch")) == 0


def test_pairs_by_another_setting(place):
    runs = read_results(place).query("method == 'pmlp'")
    both = pandas.concat([runs, runs.assign(bandwidth=math.inf, test_accuracy=0.8)])
    assert paired(both, 5.0, math.inf, by="bandwidth").pairs.tolist() == [3]


def test_equal_differences_have_an_interval_of_no_width_and_show_nothing():
    assert interval(pandas.Series([0.5, 0.5, 0.5])) == (0.5, 0.5, 0.5)  # scipy gives no interval here
    assert verdict("one", "other", pandas.Series([-0.2, -0.2, -0.2])) == "no measurable difference"


def test_pairs_of_different_budgets_or_labelled_images_are_refused(place):
    uneven = read_results(place)
    uneven.loc[uneven.method == "lassl", "steps"] = 600
    assert "different steps" in message(paired, uneven)
    (place / "digits-lassl-1" / "split.json").write_text("[2, 3]")
    assert "digits-pmlp-1 and digits-lassl-1 have different labelled images" in message(paired, place)


TRUTH = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
GUESS = torch.nn.functional.one_hot(torch.tensor([0, 0, 1, 1, 1, 2, 0, 0]), 3).float()


def test_a_confusion_matrix_colours_its_mistakes_alone():
    (axis, *_) = show_confusion(GUESS, TRUTH, ("cat", "dog", "ship")).axes
    assert axis.get_title() == "5 of 8 right"
    assert axis.images[0].get_array().tolist() == [[0, 1, 0], [0, 0, 0], [2, 0, 0]]
    assert not show_confusion(torch.eye(30), torch.arange(30), tuple(map(str, range(30)))).axes[0].texts


def test_mistakes_are_in_the_order_of_their_confidence():
    images = torch.zeros(8, 3, 6, 6, dtype=torch.uint8)
    unsure = torch.lerp(torch.full((8, 3), 1 / 3), GUESS, torch.linspace(0.1, 0.9, 8)[:, None])
    titles = [axis.get_title().split("\n")[0] for axis in show_mistakes(images, unsure, TRUTH, ("cat", "dog", "ship")).axes]
    assert titles == ["cat, not ship", "cat, not ship", "dog, not cat"]
    (axis,) = show_mistakes(images, torch.nn.functional.one_hot(TRUTH, 3).float(), TRUTH, ("cat", "dog", "ship")).axes
    assert axis.texts[0].get_text() == "no mistakes"


def test_neighbours_without_density_and_at_an_infinite_bandwidth_are_the_same():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(40)
    centres = torch.nn.functional.normalize(torch.randn(3, 8, generator=generator))
    points = torch.nn.functional.normalize(centres[labels] + 0.28 * torch.randn(120, 8, generator=generator))
    assert principal_plane(points).tolist() == principal_plane(points).tolist()

    def shares(bandwidth):
        right = show_neighbors(points, labels, preset("digits").replace(bandwidth=bandwidth)).axes[2]
        own, others, plain = ([bar.get_height() for bar in bars] for bars in right.containers)
        assert sum(own + others) == pytest.approx(100) and sum(plain) == pytest.approx(100)
        return own + others, plain

    assert shares(math.inf)[0] == pytest.approx(shares(math.inf)[1])
    assert shares(0.2)[0] != pytest.approx(shares(0.2)[1], rel=1e-3)


def test_a_point_without_own_neighbours_is_not_the_most_mixed():
    assert most_mixed(torch.tensor([[1, 2], [0, 2], [0, 1]]), torch.tensor([0, 1, 1])) == 1
