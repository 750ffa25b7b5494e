"""Published figures, studies that must not be trusted, and the words of a comparison."""

import pandas
import pytest
from helpers import message

from pmlp.config import Config
from pmlp.paper import bracketed, compare, first_images, on_first_images, published, study, summary

MADE_UP = pandas.DataFrame([
    dict(method=method, k=k, seed=seed, split=None, version="1", folder=f"{method}-{k}-{seed}", test_accuracy=0.9 + 0.01 * seed + gain * (1 + seed % 2))
    for method, k, gain in (("lassl", 15, 0.0), ("pmlp", 15, 0.01), ("pmlp", 3, 0.0)) for seed in range(4)
])
BY = ["method", "k"]


def test_every_later_figure_has_an_address():
    assert published("newer").source.str.startswith("https://").all()


@pytest.mark.parametrize("number", range(1, 9))
def test_every_table_has_published_figures(number):
    rows = published(f"Table {number}")
    assert rows.value.notna().all() and all(text.startswith("[") and len(text) > 2 for text in bracketed(rows))


@pytest.mark.parametrize("place, wanted, words", [("Table 9", {}, "no published figure"), ("Table 1", dict(methods="LASSL"), "'methods' is not a column")])
def test_figures_that_were_not_published_are_refused(place, wanted, words):
    assert words in message(published, place, **wanted)


def test_first_images_keep_every_setting_of_the_whole_dataset(home):
    (home / "data").mkdir()
    (point,) = on_first_images(dict(dataset="digits", method="supervised", steps=2), 100)
    assert point["dataset"] == "digits_first_100"
    assert Config.from_params(**point).replace(dataset="digits") == Config.from_params(dataset="digits", method="supervised", steps=2)
    assert "n_train=5000 is more than the 1297" in message(first_images, "digits", 5000)


def test_a_study_whose_runs_fail_is_no_study(home):
    tiny = dict(dataset="digits", n_labels=41, method=["pmlp", "lassl"], steps=2)
    assert "2 of 2 runs did not finish" in message(study, tiny, [0], home / "runs")


def test_a_comparison_of_different_code_is_refused():
    assert "different version" in message(compare, MADE_UP.assign(version=["1", "2"] * 6), BY)


def test_a_summary_claims_no_more_than_the_intervals():
    shown = compare(MADE_UP, BY)
    assert shown.result[("pmlp", 15)] == "it is better than lassl"
    assert summary(shown).startswith("1 of 2 variants differ measurably from the baseline (pmlp, 15: +1.50)")
    assert summary(shown.loc[[("pmlp", 3)]]) == "No measurable difference from the baseline for any of the 1 variants."
    assert "single seed" in summary(compare(MADE_UP[MADE_UP.seed == 0], BY))
