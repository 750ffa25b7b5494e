"""Each claim of the paper's appendix holds in simulation, and its check fails when the claim is broken.

Chance is allowed for by the number of trials alone: a comparison fails by bad luck with a probability of at most 1e-6.
"""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import papermill
import pytest
import torch
from helpers import message
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from pmlp import propagation, theory, theory_limits, theory_paths
from pmlp.neighbors import knn

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "nbs" / "theory").glob("*.ipynb"))
SMALL = {"20_clusters": dict(trials=5000, dimension=64), "21_paths": dict(trials=200, line_trials=200, dimension=4)}
CHANCE = 1e-6

seeds = st.integers(0, 2**20)
normal = theory.gaussian(torch.eye(2))


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def enough(hits, trials, probability):
    """Whether this many hits are no surprise for an event of at least this probability."""
    return hits >= binom.ppf(CHANCE, trials, probability)


# ---------------------------------------------------------------- claims: each returns whether it holds


def lemma_1():
    """Lengths of every family stay below the bound with the universal constants, at 20 radii."""
    for family in theory.families(3)[:-1]:
        lengths = theory.lengths(family, 5000, seeded(0))
        excess = torch.linspace(0.1, 4, 20, dtype=torch.float64) * family.norm
        outside = 5000 - torch.searchsorted(lengths, theory.UNIVERSAL.radius * family.norm * math.sqrt(3) + excess)
        allowed = binom.isf(CHANCE / 20, 5000, theory.outside_bound(excess, family.norm, theory.UNIVERSAL).numpy())
        if (outside.numpy() > allowed).any():
            return False
    return True


def lemma_2():
    """Every kind of path leaves both balls at least as often as stated."""
    excess = 2.5
    radius = theory.GAUSSIAN.radius * normal.norm * math.sqrt(2) + excess
    trials = theory_paths.draw_trials(normal, normal, 2 * radius + 0.01, 1000, 2, seeded(0))
    stated = (1 - theory.outside_bound(excess, normal.norm, theory.GAUSSIAN).item()) ** 2
    paths = [theory_paths.connect(trials, kind, seeded(1)) for kind in theory_paths.PATHS]
    return all(enough(theory_paths.leaves_balls(path, trials.centres, (radius, radius)).sum().item(), 1000, stated) for path in paths)


def lemma_3():
    """The density of a Gaussian cluster, known exactly, is below the bound."""
    excess = torch.linspace(0, 8, 81, dtype=torch.float64)
    radius = theory.GAUSSIAN.radius * normal.norm * math.sqrt(2) + excess
    density = torch.exp(-(radius**2) / 4) / 2  # h = 2 in two dimensions
    return bool((density <= theory_paths.density_bound(excess, normal.norm, 2.0, theory.GAUSSIAN)).all())


def theorem_1():
    """Paths between far clusters dip, for all families with a norm and all kinds of paths; paths inside one do not."""
    cases = [(family, "line") for family in theory.families(2)[:-1]] + [(normal, kind) for kind in theory_paths.PATHS]
    for family, kind in cases:
        far = 2 * theory_paths.ball_radius(0.01, math.sqrt(0.99), family.norm, 2, 2.0)
        chance = theory_paths.dip_chances(family, family, [far], [0.01], trials=200, bandwidth=2.0, path=kind)
        if not enough(chance.value.item() * 200, 200, 0.99):
            return False
    inside = theory_paths.dip_chances(normal, normal, [20.0], [0.001], trials=200, bandwidth=2.0, same=True)
    return inside.high.item() < 0.5


def known_chance():
    """Signs in one dimension: the estimate agrees with the sum over all cases."""
    places = np.array([-2.5, -0.5, 0.5, 2.5])
    exact = 0.0
    for start, end in itertools.product(places[:2], places[2:]):
        kernel = np.exp(-((np.linspace(start, end, 1001)[:, None] - places) ** 2) / 2)
        for left, right in itertools.product(range(6), repeat=2):
            dips = (kernel @ [5 - left, left, 5 - right, right] / 10).min() <= 0.2
            exact += dips * binom.pmf(left, 5, 0.5) * binom.pmf(right, 5, 0.5) / 4
    assert 0.05 < exact < 0.95
    sign = theory.rademacher(1)
    chance = theory_paths.dip_chances(sign, sign, [3.0], [0.2], trials=4000, bandwidth=2.0, support=10, vertices=241)
    band = real_band(round(chance.value.item() * 4000), 4000, 1 - CHANCE)
    return band.low.item() <= exact <= band.high.item()


def corollary_1():
    """The thin share of a line is at least (1-2M)/(1+2M), and tends to one."""
    radius = theory_paths.ball_radius(0.01, math.sqrt(0.99), normal.norm, 2, 2.0, theory.GAUSSIAN)
    margin = math.sqrt(math.log(3 / CHANCE) / (2 * 200))
    for separation in (32.0, 128.0, 512.0):
        trials = theory_paths.draw_trials(normal, normal, separation, 200, 100, seeded(0))
        logs = theory_paths.log_density(theory_paths.connect(trials, "line", seeded(1), 301), trials.support, 2.0)
        share = (logs <= math.log(0.01)).double().mean().item()
        relative = radius / separation
        if share < 0.99 * (1 - 2 * relative) / (1 + 2 * relative) - margin:
            return False
    return share > 0.95


def toy():
    """Two clusters with one label each."""
    points = torch.randn(120, 3, generator=seeded(0))
    points[60:, 0] += 3
    sources = torch.zeros(120, 2)
    sources[0, 0] = sources[60, 1] = 1
    return points, sources


def lemma_4():
    """A common factor leaves the labels as they are, to twice the solver's error."""
    points, sources = toy()
    weights = propagation.affinity(points, knn(points, 8), temperature=1.0)
    plain = propagation.propagate(weights, sources)
    return all((propagation.propagate(weights * factor, sources) - plain).abs().max() <= 2e-5 for factor in (1e-4, 0.3, 50.0))


def theorem_2():
    """Labels approach those of plain propagation like 1/h, for all four I(p)."""
    points, sources = toy()
    for reduce in ("avg", "min", "max", "median"):
        sweep = theory_limits.bandwidth_sweep(points, sources, [1e3, 1e4], path_points=3, k=8, temperature=1.0, reduce=reduce)
        near, far = sweep.distance().tolist()
        if not 0 < near < 0.01 or not 0.05 < far / near < 0.2:
            return False
    return True


CLAIMS = (lemma_1, lemma_2, lemma_3, theorem_1, known_chance, corollary_1, lemma_4, theorem_2)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_claim_holds(claim):
    assert claim()


# ---------------------------------------------------------------- mutations: what is replaced, by what, and which claim must notice

real_connect, real_draw, real_mean = theory_paths.connect, theory_paths.draw_trials, theory_paths.log_mean_exp
real_band, real_families, real_propagation = theory_paths.binomial_band, theory.families, theory_limits.label_propagation


def stops_early(trials, kind, generator, vertices=61):
    return real_connect(trials, kind, generator, vertices)[:, : vertices // 12]


def starts_late(trials, kind, generator, vertices=61):
    return real_connect(trials, kind, generator, vertices)[:, -(vertices // 12) :]


def wrong_sign(exponents):
    return real_mean(-exponents)


def forgets_bandwidth(exponents):
    return real_mean(exponents * 1e-6)


def opposite_inequality(hits, trials, confidence=0.95):
    return real_band(trials - hits, trials, confidence)


def ends_in_support(*arguments):
    drawn = real_draw(*arguments)
    return drawn._replace(support=torch.cat([drawn.support, drawn.start[:, None], drawn.end[:, None]], dim=1))


def small_norms(dimension):
    return [family._replace(norm=family.norm / 5) for family in real_families(dimension)]


def heavy_tails(dimension):
    return [theory.student(dimension)._replace(norm=0.5)] * 2


def too_low(excess, norm, bandwidth, constants):
    return torch.exp(-4 * excess**2)


def not_normalized(weights):
    return weights.double() * 0.01


def ignores_bandwidth(points, sources, bandwidth=5.0, **others):
    return real_propagation(points, sources, bandwidth=5.0, **others)


MUTATIONS = [
    (lemma_1, theory, "families", small_norms),
    (lemma_1, theory, "families", heavy_tails),
    (lemma_1, theory, "UNIVERSAL", theory.Constants(0.3, 3.0)),
    (lemma_2, theory_paths, "connect", stops_early),
    (lemma_2, theory_paths, "connect", starts_late),
    (lemma_3, theory_paths, "density_bound", too_low),
    (theorem_1, theory_paths, "connect", stops_early),
    (theorem_1, theory_paths, "log_mean_exp", wrong_sign),
    (theorem_1, theory_paths, "log_mean_exp", forgets_bandwidth),
    (theorem_1, theory_paths, "binomial_band", opposite_inequality),
    (known_chance, theory_paths, "draw_trials", ends_in_support),
    (known_chance, theory_paths, "connect", starts_late),
    (known_chance, theory_paths, "log_mean_exp", wrong_sign),
    (known_chance, theory_paths, "binomial_band", opposite_inequality),
    (corollary_1, theory_paths, "log_mean_exp", wrong_sign),
    (corollary_1, theory_paths, "connect", stops_early),
    (lemma_4, propagation, "normalized_weights", not_normalized),
    (theorem_2, theory_limits, "label_propagation", ignores_bandwidth),
]


@pytest.mark.parametrize(
    "claim, module, name, replacement", MUTATIONS, ids=lambda value: getattr(value, "__name__", str(value)).replace("pmlp.", "")
)
def test_broken_claim_is_noticed(monkeypatch, claim, module, name, replacement):
    monkeypatch.setattr(module, name, replacement)
    assert not claim()


# ---------------------------------------------------------------- properties of the tools


@given(seeds, st.integers(1, 40))
@settings(max_examples=20)
def test_families_draw_what_they_say(seed, dimension):
    for family in theory.families(dimension):
        points = family.draw(7, seeded(seed))
        assert points.shape == (7, dimension) and points.dtype == torch.float64 and torch.isfinite(points).all()
        assert torch.equal(points, family.draw(7, seeded(seed)))
        assert family.dimension == dimension and family.norm > 0


@pytest.mark.parametrize("dimension", [1, 2, 3, 8, 64, 512])
def test_norms_lie_between_jensen_and_gaussian(dimension):
    """Unit variance gives at least 1/√log 2 (Jensen), and these families at most the Gaussian's √(8/3)."""
    for make in (theory.sphere, theory.ball, theory.cube, theory.rademacher):
        assert 1 / math.sqrt(math.log(2)) - 1e-9 <= make(dimension).norm <= math.sqrt(8 / 3)


@given(seeds, st.integers(2, 200), st.floats(0.01, 100))
@settings(max_examples=30)
def test_sample_norm_solves_its_equation_and_scales(seed, count, factor):
    values = torch.randn(count, generator=seeded(seed), dtype=torch.float64)
    norm = theory.sample_norm(values)
    torch.testing.assert_close((values / norm).square().exp().mean().item(), 2.0, rtol=1e-6, atol=0)
    torch.testing.assert_close(theory.sample_norm(values * factor), norm * factor, rtol=1e-8, atol=0)


@given(st.integers(1, 300), st.floats(1e-9, 1 - 1e-9), st.sampled_from([0.8, 0.95, 0.999]))
def test_binomial_band_covers(trials, probability, confidence):
    band = theory_paths.binomial_band(torch.arange(trials + 1), trials, confidence)
    assert (band.low <= band.value).all() and (band.value <= band.high).all()
    covered = ((band.low <= probability) & (probability <= band.high)).numpy()
    assert binom.pmf(np.arange(trials + 1), trials, probability)[covered].sum() >= confidence - 1e-9


@given(seeds, st.sampled_from(theory_paths.PATHS), st.integers(1, 6), st.integers(5, 90), st.floats(0, 50))
@settings(max_examples=40)
def test_paths_connect_their_ends(seed, kind, dimension, vertices, separation):
    family = theory.cube(dimension)
    trials = theory_paths.draw_trials(family, family, separation, 4, 6, seeded(seed))
    paths = theory_paths.connect(trials, kind, seeded(seed), vertices)
    assert paths.shape == (4, vertices, dimension)
    torch.testing.assert_close(paths[:, 0], trials.start)
    torch.testing.assert_close(paths[:, -1], trials.end)


@given(seeds, st.integers(1, 5), st.floats(0.05, 50))
@settings(max_examples=30)
def test_log_density_is_the_definition(seed, dimension, bandwidth):
    family = theory.ball(dimension)
    trials = theory_paths.draw_trials(family, family, 3.0, 3, 8, seeded(seed))
    paths = theory_paths.connect(trials, "bridge", seeded(seed), 7)
    logs = theory_paths.log_density(paths, trials.support, bandwidth, block=20)  # one trial at a time
    exponents = -(paths[:, :, None] - trials.support[:, None]).square().sum(3) / bandwidth
    torch.testing.assert_close(logs, exponents.logsumexp(2) - math.log(8))
    assert (logs <= 0).all()


@given(seeds)
@settings(max_examples=10)
def test_no_path_is_denser_than_the_densest(seed):
    trials = theory_paths.draw_trials(normal, normal, 4.0, 4, 12, seeded(seed))
    densest = theory_paths.densest_path(trials, 2.0)
    lines = theory_paths.log_density(theory_paths.connect(trials, "line", seeded(0), 11), trials.support, 2.0).amin(1)
    assert (densest >= lines - 1e-4).all()  # path_density works in float32


@given(st.floats(1e-6, 0.5), st.floats(0.5, 0.999), st.floats(0.5, 4), st.integers(1, 64), st.floats(0.1, 50))
@settings(max_examples=30)
def test_ball_radius_keeps_both_promises(threshold, probability, norm, dimension, bandwidth):
    radius = theory_paths.ball_radius(threshold, probability, norm, dimension, bandwidth)
    excess = radius - theory.UNIVERSAL.radius * norm * math.sqrt(dimension)
    assert theory_paths.density_bound(excess, norm, bandwidth).item() <= threshold * (1 + 1e-6)
    assert 1 - theory.outside_bound(excess, norm).item() >= probability - 1e-9


def test_universal_constants_follow_from_the_norm():
    """E exp(λY) ≤ exp((1 + log 2) K² λ²/2) for signs, a uniform and two skewed variables, at small and large λ: the step before Hsu, Kakade and Zhang."""
    scale = torch.logspace(-2, 1, 40, dtype=torch.float64)[:, None]  # λK
    for values in (torch.tensor([[-1.0, 1.0]]), torch.linspace(-1, 1, 4001)[None], torch.tensor([[-1.0] * 9 + [9.0]]), torch.tensor([[-1.0] * 999 + [999.0]])):
        values = values.double() / theory.sample_norm(values.double())[:, None]  # mean 0, K = 1
        log_moment = (scale * values).logsumexp(1) - math.log(values.shape[1])
        assert (log_moment <= scale[:, 0].square() / (4 * theory.UNIVERSAL.rate)).all()
    assert theory.UNIVERSAL.radius**2 * 2 * theory.UNIVERSAL.rate == pytest.approx(1)


def sign_expectation(t, dimension):
    """E exp(<X, u>²/t²) for signs along the diagonal u, a binomial sum."""
    heads = np.arange(dimension + 1)
    return (binom.pmf(heads, dimension, 0.5) * np.exp((2 * heads - dimension) ** 2 / (dimension * t**2))).sum()


@pytest.mark.parametrize("dimension", [1, 2, 5, 40])
def test_norm_of_signs_is_that_of_a_binomial_sum(dimension):
    expected = theory.norm_from(lambda t: sign_expectation(t, dimension), 1.2, 1.64)
    assert theory.rademacher(dimension).norm == pytest.approx(expected, abs=1e-8)


def test_norms_by_other_formulas():
    assert theory.rademacher(2).norm > theory.rademacher(1).norm  # an axis is not the worst direction
    assert theory.sphere(1).norm == pytest.approx(1 / math.sqrt(math.log(2)), abs=1e-8)  # signs
    middle = (np.arange(100_000) + 0.5) / 100_000
    uniform = theory.norm_from(lambda t: np.exp(3 * middle**2 / t**2).mean(), 1.2, 1.64)
    assert theory.sphere(3).norm == pytest.approx(uniform, abs=1e-6)  # marginals of a sphere in three dimensions are uniform
    assert theory.ball(1).norm == pytest.approx(theory.cube(1).norm, abs=1e-8)
    for family in (theory.sphere(4096), theory.cube(4096), theory.rademacher(4096)):
        assert family.norm == pytest.approx(math.sqrt(8 / 3), abs=1e-3)


def test_trials_are_fresh_and_move_with_their_centres():
    near, far = (theory_paths.draw_trials(normal, normal, separation, 3, 100, seeded(1)) for separation in (0.0, 8.0))
    torch.testing.assert_close(far.start - far.centres[0], near.start)
    gap = far.centres[1] - far.centres[0]
    torch.testing.assert_close(far.support[:, 50:] - far.support[:, :50], near.support[:, 50:] - near.support[:, :50] + gap)
    everything = torch.cat([far.start, far.end, far.support.flatten(0, 1)])  # no end is in its support, no support is shared
    assert len(everything.unique(dim=0)) == len(everything)


def test_a_detour_passes_the_means():
    trials = theory_paths.draw_trials(normal, normal, 10.0, 3, 100, seeded(0))
    torch.testing.assert_close(theory_paths.connect(trials, "detour", seeded(0))[:, 20], trials.centres[:1].expand(3, -1))


def test_the_density_of_many_points_is_that_of_a_gaussian():
    points, places = normal.draw(20_000, seeded(0)), torch.zeros(1, 181, 2, dtype=torch.float64)
    places[0, :, 0] = torch.linspace(0, 18, 181)
    exact = torch.exp(-(places[0, :, 0] ** 2) / 4) / 2  # h = 2
    hoeffding = math.sqrt(math.log(2 * 181 / CHANCE) / (2 * 20_000))  # kernel values lie between 0 and 1
    assert ((theory_paths.log_density(places, points[None], 2.0)[0].exp() - exact).abs() <= hoeffding).all()


def test_density_bound_falls_with_the_distance():
    bound = theory_paths.density_bound(torch.linspace(0, 14, 141), normal.norm, 2.0)
    assert (bound[1:] <= bound[:-1]).all()


def test_passing_reads_a_curve():
    assert theory_paths.passing([0, 1], torch.tensor([0.5, 0.6])) == math.inf
    assert theory_paths.passing([2, 3], torch.tensor([1.0, 1.0])) == 2.0


def test_binomial_band_ends_at_zero_and_one():
    assert theory_paths.binomial_band(0, 10).low == 0 and theory_paths.binomial_band(10, 10).high == 1


def test_expected_loss_takes_many_pseudo_labels_at_once():
    two = torch.tensor([[0.5, 0.5], [0.98, 0.02]])
    loss = theory_limits.expected_unsupervised_loss
    torch.testing.assert_close(loss(two, torch.stack([two, two]))[1], loss(two, two))


some = theory_paths.draw_trials(normal, normal, 1.0, 3, 10, seeded(0))


@pytest.mark.parametrize("name, function, arguments", [
    ("dimension", theory.families, [2.5]),
    ("samples", theory.psi2_norm, [torch.zeros(3, 2), seeded(0)]),
    ("second", theory_paths.draw_trials, [normal, theory.gaussian(torch.eye(3)), 1.0, 3, 10, seeded(0)]),
    ("kind", theory_paths.connect, [some, "spiral", seeded(0)]),
    ("radii", theory_paths.leaves_balls, [torch.zeros(1, 2, 1), torch.tensor([[0.0], [10.0]]), (5.0, 5.0)]),
    ("bandwidth", theory_paths.log_density, [some.support, some.support, -1.0]),
    ("threshold", theory_paths.ball_radius, [0.0, 0.9, 1.0, 2, 1.0]),
    ("hits", theory_paths.binomial_band, [11, 10]),
    ("pseudo_labels", theory_limits.expected_unsupervised_loss, [torch.ones(2, 2) / 2, torch.ones(1, 2) / 2]),
    ("gaps", theory_limits.decay_slope, [[1.0, 2.0], torch.tensor([1.0, 0.0])]),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_argument_is_named(name, function, arguments):
    assert name in message(function, *arguments)


def test_no_threshold_of_zero_is_ever_reached():
    """Theorem 1 needs τ > 0: even where a float64 density underflows, none counts as zero."""
    chance = theory_paths.dip_chances(normal, normal, [1e4], [0.0, 1e-300], trials=20, bandwidth=1.0)
    assert chance.value.tolist() == [[0.0, 1.0]]


def test_seeds_change_figures_within_their_bands():
    settings = dict(trials=300, bandwidth=2.0)
    first, again, other = (theory_paths.dip_chances(normal, normal, [6.0, 7.0, 8.0], [0.01], seed=seed, **settings) for seed in (0, 0, 1))
    assert torch.equal(first.value, again.value) and not torch.equal(first.value, other.value)
    bands = [theory_paths.binomial_band((chance.value * 300).round(), 300, 1 - CHANCE) for chance in (first, other)]
    assert (bands[0].low <= bands[1].high).all() and (bands[1].low <= bands[0].high).all()


# ---------------------------------------------------------------- the notebooks


def test_the_sliders_have_a_static_figure():
    cells = json.loads((ROOT / "nbs" / "theory" / "21_paths.ipynb").read_text(encoding="utf-8"))["cells"]
    place = next(number for number, cell in enumerate(cells) if "explore(" in "".join(cell["source"]))
    (output,) = cells[place]["outputs"]  # a picture, not a widget that no kernel stands behind
    assert "image/png" in output["data"]


def test_parameters_are_refused_by_name(tmp_path):
    path = ROOT / "nbs" / "theory" / "22_lines.ipynb"
    with pytest.raises(papermill.PapermillExecutionError, match="trials='many' is not allowed: give a whole number"):
        papermill.execute_notebook(path, tmp_path / path.name, parameters=dict(trials="many"), cwd=path.parent, progress_bar=False)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_takes_parameters(path, tmp_path):
    parameters = SMALL.get(path.stem, dict(trials=200, dimension=4)) | dict(seed=11)
    papermill.execute_notebook(path, tmp_path / path.name, parameters=parameters, cwd=path.parent, progress_bar=False)
