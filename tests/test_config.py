"""Config refuses every misspelt name, wrong type and out-of-range value by name, and everything else round-trips.

The tables below are written by hand: they repeat what each field may hold without reading pmlp's annotations.
"""

import json
import math
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import FrozenInstanceError, asdict, fields
from multiprocessing import get_context
from pathlib import Path

import pytest
from helpers import message
from hypothesis import HealthCheck, example, given, settings, strategies as st

from pmlp.config import DATASETS as KNOWN, METHODS as CHANGES, Config, notebook_params, preset, run_folder

quick = settings(deadline=None, derandomize=True, max_examples=15, database=None, suppress_health_check=[HealthCheck.too_slow])
thorough = settings(quick, max_examples=60)

ROOT = Path(__file__).resolve().parents[1]
DATASETS = ["cifar10", "cifar100", "svhn", "stl10", "digits", "fashion_mnist", "my_images", "some/where/cells.npz"]
METHODS = ["pmlp", "authors", "lassl", "fixmatch", "supervised"]

SWITCHES = """balanced_split labeled_in_unlabeled drop_test_duplicates svhn_extra count_self exclude_ends propagation
    buffer_reset alignment alignment_reset hard_labels adaptive_threshold threshold_overshoot threshold_restart rampdown
    nesterov batchnorm_decay whitening weak_last_offset weak_flip channels_last compile_network""".split()
CHOICES = dict(
    method=METHODS, similarity=["first_order", "cosine", "euclidean"], density=["absolute", "relative"],
    edges=["all", "low_to_high"], reduce=["avg", "min", "max", "median"], balance=["labels"],
    contrastive_form=["paper", "authors"], schedule=["cosine", "constant"],
    encoder=["small", "wrn_28_2", "wrn_28_8", "wrn_var_37_2"], labeled_view=["weak", "strong"], small_pooling=["mean", "max"],
    strong_view=["randaugment", "affine"], strong_magnitude=["uniform", "full"], precision=["float32", "bfloat16", "float16"],
)
TEXTS = ["dataset", "split", "device"]
WHOLE = {  # lowest allowed value; only the seed has a highest
    1: """n_labels steps epoch_steps evaluate_every evaluation_batch checkpoint_every k path_points support buffer_bootstraps
        threshold_patience labeled_batch unlabeled_batch small_width first_stride projector_size cutout_pixels""".split(),
    0: """seed buffer_rows mix_after threshold_epoch_middle threshold_epoch_late rampdown_epoch supervised_warmup weak_pad
        strong_operations""".split(),
}
REAL = {  # lowest and highest value, and whether they are allowed themselves
    (0, True, 1, True): """reduce buffer_threshold eta threshold threshold_ratio threshold_cap similarity_threshold
        rampdown_propagation rampdown_contrastive leaky_slope strong_probability cutout""".split(),
    (0, False, 1, True): "neighbor_cap buffer_fraction cosine_part batchnorm_momentum".split(),
    (0, False, 1, False): ["alpha"],
    (0, True, 1, False): "alignment_momentum momentum ema_decay".split(),
    (0, False, math.inf, False): "temperature contrastive_temperature learning_rate".split(),
    (0, True, math.inf, False): """entry_regularizer threshold_step_early threshold_step_middle threshold_step_late
        supervised_weight unsupervised_weight contrastive_weight weight_decay""".split(),
    (0, False, math.inf, True): ["bandwidth"],
}
MAY_BE_NONE = "n_labels split k density support balance buffer_rows cutout_pixels".split()
TOGETHER = """method propagation density unsupervised_weight contrastive_weight momentum nesterov k count_self
    threshold threshold_cap adaptive_threshold threshold_epoch_middle threshold_epoch_late""".split()  # checked with others

LOWEST = {name: low for low, names in WHOLE.items() for name in names}
RANGE = {name: limits for limits, names in REAL.items() for name in names}
NAMES = [field.name for field in fields(Config)]


def test_the_tables_above_cover_every_field():
    assert sorted({*SWITCHES, *CHOICES, *TEXTS, *LOWEST, *RANGE}) == sorted(NAMES)


def refused(name, value):
    "The value is refused by construction, replace, from_params and load, in one sentence with the field's name."
    ways = [lambda: Config(**{name: value}), lambda: Config().replace(**{name: value}),
            lambda: Config.from_params(**{name: value})]
    for way in ways:
        with pytest.raises(ValueError) as caught:
            way()
        message = str(caught.value)
        assert message.startswith(f"{name}="), message
        assert message.endswith(".") and "\n" not in message and "give " in message, message


def allowed(name, value):
    return getattr(Config(**{name: value}), name)


def wrong_types(name):
    "Values of a type that the field never holds."
    kinds = [st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
             st.binary(max_size=3), st.complex_numbers(), st.just(object()), st.just(Config), st.just((1,))]
    if name not in MAY_BE_NONE:
        kinds.append(st.none())
    if name not in SWITCHES:
        kinds.append(st.booleans())
    if name in SWITCHES or name in TEXTS or (name in CHOICES and name not in RANGE):
        kinds += [st.integers(), st.floats()]
    if name in LOWEST:
        kinds.append(st.floats())  # 2.0 is no whole number
    if name in SWITCHES or name in LOWEST or name in RANGE:
        choices = CHOICES.get(name, [])
        kinds.append(st.text().filter(lambda text: text not in choices and (text != "inf" or name != "bandwidth")))
    return st.one_of(kinds)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_types_are_refused(name):
    @quick
    @given(wrong_types(name))
    def check(value):
        refused(name, value)

    check()


@pytest.mark.parametrize("name", CHOICES)
def test_unknown_choices_are_refused_with_the_nearest(name):
    @quick
    @given(st.text() | st.sampled_from(CHOICES[name]).map(lambda word: word + "x"))
    def check(word):
        if word not in CHOICES[name]:
            refused(name, word)

    check()
    with pytest.raises(ValueError, match=f"nearest: '{CHOICES[name][0]}'"):
        Config(**{name: CHOICES[name][0] + "x"})


@pytest.mark.parametrize("name", LOWEST)
def test_whole_numbers_out_of_range_are_refused(name):
    @quick
    @given(st.integers(max_value=LOWEST[name] - 1))
    def below(value):
        refused(name, value)

    below()
    if name not in TOGETHER:
        assert allowed(name, LOWEST[name]) == LOWEST[name]
    if name == "seed":
        assert allowed(name, 2**32 - 1) == 2**32 - 1
        refused(name, 2**32)


@pytest.mark.parametrize("name", RANGE)
def test_numbers_out_of_range_are_refused(name):
    low, with_low, high, with_high = RANGE[name]
    below = st.floats(max_value=low, exclude_max=with_low, allow_nan=False)
    kinds = [below, st.just(math.nan), st.just(10**400)]
    if high < math.inf:
        kinds.append(st.floats(min_value=high, exclude_min=with_high, allow_nan=False))
    elif not with_high:
        kinds.append(st.just(math.inf))

    @quick
    @given(st.one_of(kinds).filter(lambda value: not (with_low and value == low)))
    def outside(value):
        refused(name, value)

    outside()
    if name not in TOGETHER:
        for end, included in [(low, with_low), (high, with_high)]:
            if included:
                value = allowed(name, end)
                assert value == end and type(value) is float


@pytest.mark.parametrize("name, wrong", [("dataset", ""), ("dataset", " "), ("dataset", "a\nb"), ("split", "\0"),
                                         ("device", "gpu"), ("device", "cuda:"), ("device", "CPU"), ("device", "cuda:0\n")])
def test_texts_out_of_range_are_refused(name, wrong):
    refused(name, wrong)


@thorough
@given(name=st.sampled_from(NAMES), data=st.data())
def test_misspelt_names_are_refused_with_a_nearest_name(name, data):
    place = data.draw(st.integers(0, len(name) - 1))
    letter = data.draw(st.sampled_from("abcxyz_"))
    kind = data.draw(st.sampled_from(["left out", "doubled", "changed", "swapped"]))
    wrong = {"left out": name[:place] + name[place + 1:], "doubled": name[:place] + letter + name[place:],
             "changed": name[:place] + letter + name[place + 1:],
             "swapped": name[:place] + name[place:place + 2][::-1] + name[place + 2:]}[kind]
    if wrong in NAMES:
        return
    for way in (Config.from_params, Config().replace):
        with pytest.raises(ValueError) as caught:
            way(**{wrong: 1})
        assert str(caught.value).startswith(f"{wrong!r} is not a setting")
        assert re.search("did you mean '(.*)'", str(caught.value))[1] in NAMES


@thorough
@given(st.text().filter(lambda text: text not in NAMES))
def test_any_other_name_is_refused(name):
    with pytest.raises(ValueError, match="is not a setting of Config: did you mean"):
        Config.from_params(**{name: 1})


def test_the_nearest_name_is_the_one_that_was_meant():
    for wrong, right in [("bandwith", "bandwidth"), ("n_label", "n_labels"), ("pathpoints", "path_points"), ("tresh_old", "threshold")]:
        with pytest.raises(ValueError, match=f"did you mean '{right}'"):
            Config.from_params(**{wrong: 1})


def right_values(name):
    "Values that the field holds."
    kinds = [st.none()] if name in MAY_BE_NONE else []
    if name in SWITCHES:
        kinds.append(st.booleans())
    if name in CHOICES:
        kinds.append(st.sampled_from(CHOICES[name]))
    if name in LOWEST:
        kinds.append(st.integers(LOWEST[name], 2**32 - 1))
    if name in RANGE:
        low, with_low, high, with_high = RANGE[name]
        kinds.append(st.floats(low, high, exclude_min=not with_low, exclude_max=not with_high, allow_nan=False))
    if name in ("dataset", "split"):
        kinds.append(st.sampled_from(["digits", "a folder/ümlaut.npz", "数据"]))
    if name == "device":
        kinds.append(st.sampled_from(["auto", "cpu", "mps", "cuda", "cuda:3"]))
    return st.one_of(kinds)


configs = st.builds(
    lambda start, changes: start.replace(**changes),
    st.builds(preset, st.sampled_from(DATASETS), method=st.sampled_from(METHODS)),
    st.fixed_dictionaries({}, optional={name: right_values(name) for name in NAMES if name not in TOGETHER}),
)


@thorough
@given(config=configs)
@example(config=Config(bandwidth=math.inf))
@example(config=Config(reduce=0.25, bandwidth=1e-300))
def test_json_round_trips(tmp_path_factory, config):
    file = tmp_path_factory.mktemp("config") / "config.json"
    config.save(file)
    again = Config.load(file)
    assert again == config and again.fingerprint() == config.fingerprint()
    assert [type(value) for value in asdict(again).values()] == [type(value) for value in asdict(config).values()]
    strict = json.loads(file.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(f"{name} in the file"))
    assert list(strict) == NAMES
    assert os.listdir(file.parent) == ["config.json"]


@thorough
@given(config=configs, name=st.sampled_from([name for name in NAMES if name not in TOGETHER]), data=st.data())
def test_fingerprints_tell_configs_apart(config, name, data):
    other = config.replace(**{name: data.draw(right_values(name))})
    assert (other.fingerprint() == config.fingerprint()) == (other == config)


@thorough
@given(name=st.sampled_from(NAMES), data=st.data())
def test_damaged_files_are_refused(tmp_path_factory, name, data):
    file = tmp_path_factory.mktemp("config") / "config.json"
    values = json.loads(Config().to_json())
    cases = [({key: value for key, value in values.items() if key != name}, name), ({**values, name + "x": 1}, name + "x"),
             ({**values, name: [1]}, name)]
    for damaged, culprit in cases:
        file.write_text(json.dumps(damaged), encoding="utf-8")
        with pytest.raises(ValueError, match=re.escape(culprit)):
            Config.load(file)
    text = json.dumps(values)
    file.write_text(text[:data.draw(st.integers(0, len(text) - 1))], encoding="utf-8")
    with pytest.raises(ValueError, match="config.json is not JSON"):
        Config.load(file)


@pytest.mark.parametrize("name", NAMES)
def test_frozen(name):
    config = Config()
    with pytest.raises(FrozenInstanceError):
        setattr(config, name, getattr(config, name))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dataset", DATASETS)
def test_presets(dataset, method):
    for n_labels in [None, 10, 40, 250, 400, 2500]:
        config = preset(dataset, n_labels, method)
        assert (config.dataset, config.method) == (dataset, method)
        assert n_labels is None or config.n_labels == n_labels
        assert config == Config.from_params(dataset=dataset, n_labels=n_labels, method=method)
        assert config.propagation == (method in ("pmlp", "authors", "lassl"))
        resolved = config.with_classes(100 if dataset == "cifar100" else 10)
        assert resolved.n_labels is not None and resolved.k == (150 if dataset == "cifar100" else 15)


@pytest.mark.parametrize("values, name", [
    (dict(propagation=False), "propagation"), (dict(density=None), "density"), (dict(method="lassl"), "density"),
    (dict(method="fixmatch"), "propagation"), (dict(method="supervised", propagation=False), "unsupervised_weight"),
    (dict(momentum=0), "momentum"), (dict(count_self=True, k=1), "count_self"),
    (dict(adaptive_threshold=True, threshold=0.995), "threshold_cap"),
    (dict(threshold_epoch_middle=401), "threshold_epoch_late"),
])
def test_impossible_combinations_are_refused(values, name):
    assert name in message(Config, **values)


def test_possible_combinations_are_not_refused():
    Config(momentum=0, nesterov=False), Config(threshold=0.995), Config(k=1)


def test_missing_numbers_follow_from_the_classes():
    filled = Config(n_labels=None, k=None).with_classes(7)
    assert (filled.n_labels, filled.k) == (28, 11)
    given = Config(n_labels=50, k=5).with_classes(7)
    assert (given.n_labels, given.k) == (50, 5)


def test_presets_start_from_the_defaults():
    assert preset("cifar10") == Config.from_params() == Config()
    assert hash(preset("cifar10")) == hash(Config())
    assert {name: preset(name).n_labels for name in KNOWN} == dict(cifar10=40, cifar100=400, svhn=40, stl10=40, fashion_mnist=40, digits=40)
    assert list(CHANGES) == METHODS
    assert preset("some/where/cells.npz").k is None
    assert preset("cifar10", 4000).n_labels == 4000
    assert not preset("svhn").weak_flip and not preset("digits").weak_flip


def test_presets_have_the_figures_of_the_paper():
    for dataset, n_labels in [("cifar10", 40), ("cifar100", 2500), ("svhn", 250), ("stl10", 1000)]:
        c = preset(dataset, n_labels)
        assert (c.path_points, c.reduce, c.alpha, c.eta, c.similarity_threshold) == (1, "avg", 0.8, 0.2, 0.7)
        assert (c.labeled_batch, c.unlabeled_batch, c.learning_rate, c.momentum, c.weight_decay) == (64, 448, 0.03, 0.9, 0.0005)
        assert (c.steps, c.mix_after, c.ema_decay, c.temperature) == (1_048_576, 1024, 0.999, 0.2)
        assert (c.threshold_cap, c.threshold_patience, c.threshold_ratio) == (0.99, 500, 0.05 if dataset == "cifar100" else 0.9)


def test_methods_change_what_the_notes_say():
    code_column = dict(  # rows 4, 7, 13, 15, 17, 20-24, 29-31 of the reproduction notes, by hand, for CIFAR-10
        count_self=True, neighbor_cap=0.8, support=45, entry_regularizer=1e-7, buffer_reset=True, alignment_reset=True,
        similarity_threshold=0.8, contrastive_form="authors", rampdown=True, adaptive_threshold=True,
        threshold_overshoot=True, threshold_restart=True, weak_last_offset=False, strong_probability=0.5,
        strong_magnitude="full", cutout_pixels=16, labeled_in_unlabeled=False,
    )
    pmlp = preset("cifar10")
    assert preset("cifar10", method="authors") == pmlp.replace(method="authors", **code_column)
    assert preset("cifar10", method="lassl") == Config(method="lassl", density=None)
    others = dict(propagation=False, contrastive_weight=0, alignment=False)
    assert preset("cifar10", method="fixmatch") == Config(method="fixmatch", hard_labels=True, **others)
    assert preset("cifar10", method="supervised") == Config(method="supervised", unsupervised_weight=0, **others)
    assert preset("cifar100", method="authors").threshold == 0.6 and preset("cifar100", method="authors").threshold_ratio == 0.05
    assert preset("stl10", method="authors").bandwidth == 3  # row 8 is not among the authors' rows


@pytest.mark.parametrize("dataset", [["digits"], None, 3, ""])
def test_what_is_no_name_of_a_dataset_is_refused(dataset):
    assert message(preset, dataset).startswith("dataset=")


def test_what_is_no_method_is_refused():
    assert "nearest: 'pmlp'" in message(preset, "digits", method="pmpl")
    assert message(preset, "digits", method=["pmlp"]).startswith("method=")


@pytest.mark.parametrize("dataset, start", [
    ("some/where/my cells.npz", "my_cells-auto-pmlp-seed0-"), ("svhn", "svhn-40-pmlp-seed0-"),
    ("..", "_-auto-"), ("/", "-auto-"), ("x" * 500, "x" * 40 + "-auto-"),
])
def test_run_folders_are_named_after_their_run(home, dataset, start):
    folder = run_folder(preset(dataset), home / "not" / "yet")
    assert folder.name.startswith(start) and folder.parent == home / "not" / "yet" and not list(folder.iterdir())
    assert run_folder(preset("digits")).parent == home.resolve() / "outputs"


def test_numpy_numbers_are_taken_and_stored_as_plain_ones():
    numpy = pytest.importorskip("numpy")
    config = Config(seed=numpy.int64(3), alpha=numpy.float32(0.5), bandwidth=numpy.float64(math.inf), dataset=numpy.str_("svhn"))
    assert [type(value) for value in (config.seed, config.alpha, config.bandwidth, config.dataset)] == [int, float, float, str]
    assert Config(alpha=0.5).fingerprint() == Config(alpha=numpy.float32(0.5)).fingerprint()
    for name, wrong in [("seed", numpy.float64(3)), ("hard_labels", numpy.bool_(True)), ("alpha", numpy.array([0.5, 0.6])),
                        ("density", numpy.array(["absolute", "b"])), ("alpha", numpy.float32("nan"))]:
        refused(name, wrong)


def make_folders(outputs):
    return [run_folder(preset("digits"), outputs).name for _ in range(25)]


def test_run_folders_of_many_processes_do_not_collide(tmp_path):
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        names = [name for made in pool.map(make_folders, [tmp_path] * 8) for name in made]
    assert len(names) == len(set(names)) == 200
    assert set(names) == set(os.listdir(tmp_path))
    assert all(re.fullmatch(r"digits-40-pmlp-seed0-\d{8}T\d{6}Z(-\d+)?", name) for name in names)


def test_importing_needs_only_the_standard_library():
    script = "import sys, pmlp.config; print(sorted({'torch', 'numpy', 'faiss', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_notebook_params_are_everything_plain_and_public():
    space = {"In": ["x"], "Out": {}, "_private": 1, "Config": Config, "config": Config(), "json": json, "support": None, "bandwith": 3}
    assert notebook_params(space) == {"support": None, "bandwith": 3}
    for overrides in ({"alpha": 0.9}, '{"alpha": 0.9}'):
        assert notebook_params({"k": 3, "overrides": overrides}) == {"k": 3, "alpha": 0.9}
    for empty in (None, {}, ""):
        assert notebook_params({"overrides": empty, "k": 3, "__name__": "x", "len": len}) == {"k": 3}
    for overrides in ("{", "[1]", "3", 3, [1], {1: 2}):
        assert message(notebook_params, {"overrides": overrides}).startswith("overrides=")


def run_train_notebook(folder, *arguments):
    environment = {**os.environ, "PMLP_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", str(ROOT / "nbs" / "train.ipynb"), str(folder / "run.ipynb")]
    return subprocess.run(command + list(arguments), capture_output=True, text=True, env=environment, cwd=folder)


def test_the_training_notebook_takes_any_setting(tmp_path):
    done = run_train_notebook(tmp_path, "-p", "dataset", "digits", "-p", "n_labels", "20", "-p", "bandwidth", "inf",
                              "-p", "support", "None", "-p", "steps", "12", "-p", "overrides", '{"alpha": 0.9}')
    assert done.returncode == 0, done.stderr
    assert "Unable to parse" not in done.stderr
    (folder,) = (tmp_path / "outputs").iterdir()
    expected = preset("digits", 20).replace(bandwidth=math.inf, support=None, steps=12, alpha=0.9)
    assert Config.load(folder / "config.json") == expected


def test_the_training_notebook_refuses_a_misspelt_setting_and_writes_nothing(tmp_path):
    done = run_train_notebook(tmp_path, "-p", "bandwith", "3")
    assert done.returncode != 0
    assert "'bandwith' is not a setting of Config: did you mean 'bandwidth'?" in done.stderr
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("name, meant", [("cifar", "cifar10"), ("CIFAR10", "cifar10"), ("cifar-100", "cifar100"), ("digit", "digits")])
def test_a_misspelt_dataset_is_refused(name, meant):
    with pytest.raises(ValueError, match=f"dataset='{name}'.*'{meant}'"):
        preset(name)


def test_data_of_ones_own_may_be_called_like_a_known_dataset(tmp_path, monkeypatch):
    monkeypatch.setenv("PMLP_HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cifar.npz").touch()
    assert preset("cifar").dataset == "cifar"
