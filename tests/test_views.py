"""What an iteration sees: a function of seed and iteration, the pool of unlabelled images, and what is refused."""

import pytest
import torch
from helpers import message

from pmlp.config import preset
from pmlp.data import draw_split, load
from pmlp.views import Views, choose_device

CPU = torch.device("cpu")
DIGITS = load("digits")
CONFIG = preset("digits").replace(labeled_batch=6, unlabeled_batch=6).with_classes(10)
SPLIT = draw_split(DIGITS.train_labels, 40, seed=0)


def views(data=DIGITS, split=SPLIT, **changes):
    return Views(CONFIG.replace(**changes), data, split, CPU)


def test_batch():
    every = views()
    batch = every(0)
    assert batch.images.shape == (24, 1, 8, 8) and batch.images.dtype == torch.float32
    assert torch.equal(batch.labels, DIGITS.train_labels[SPLIT[every.labeled(0)]])
    assert torch.equal(batch.truth, DIGITS.train_labels[every.pool[every.unlabeled(0)]])
    assert not torch.equal(batch.images[:6], batch.images[6:12])


def test_views_are_a_function_of_seed_and_iteration():
    used = views()
    used(0)
    assert torch.equal(used(3).images, views()(3).images)
    assert not torch.equal(used(3).images, used(4).images)
    assert not torch.equal(used(3).images, views(seed=1)(3).images)


def test_labelled_images_alone():
    alone = views()(0, labeled_only=True)
    assert torch.equal(alone.images, views()(0).images[:12]) and len(alone.truth) == 0


def test_pool():
    assert len(views().pool) == 1297
    apart = views(labeled_in_unlabeled=False)
    assert len(apart.pool) == 1257 and not set(apart.pool.tolist()) & set(SPLIT.tolist())


def test_images_without_labels():
    wider = views(DIGITS._replace(unlabeled=DIGITS.test))
    assert len(wider.pool) == 1797 and (wider.labels == -1).sum() == 500
    assert any((wider(iteration).truth == -1).any() for iteration in range(9))


def test_views_that_do_nothing():
    """Without shifts, operations and cutout both views of an image are the same, labelled ones distorted too."""
    plain = views(weak_pad=0, strong_view="randaugment", strong_operations=0, cutout=0.0, labeled_view="strong")(0).images
    assert torch.equal(plain[:6], plain[6:12]) and torch.equal(plain[12:18], plain[18:])


def test_strong_views_of_labelled_images():
    weak, strong = (views(labeled_view=kind)(0).images for kind in ("weak", "strong"))
    assert not torch.equal(weak[:6], strong[:6]) and not torch.equal(weak[6:12], strong[6:12])
    assert torch.equal(weak[12:], strong[12:])


def test_what_is_refused():
    few = DIGITS._replace(train=DIGITS.train[SPLIT], train_labels=DIGITS.train_labels[SPLIT])
    assert "n_labels=40 leaves no image" in message(views, few, torch.arange(40), labeled_in_unlabeled=False)
    assert "weak_pad=8" in message(views, weak_pad=8)


def test_device():
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert choose_device("cpu") == CPU
    assert "device='cuda:99'" in message(choose_device, "cuda:99")


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="has an Apple GPU")
def test_no_apple_gpu():
    assert "device='mps'" in message(choose_device, "mps")
