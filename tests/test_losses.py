"""The losses by hand, their gradients by finite differences, and what they refuse."""

import math

import pytest
import torch
from helpers import message
from torch.autograd import gradcheck
from torch.nn.functional import normalize, one_hot
from torch.testing import assert_close

from pmlp.losses import contrastive_loss, relations, supervised_loss, unsupervised_loss

LOGITS = torch.tensor([[0.0, math.log(3)], [0.0, math.log(3)]])  # probabilities 1/4 and 3/4
SOFT = torch.tensor([[0.0, 1.0], [0.5, 0.5]])
SURE, HALF = -math.log(3 / 4), -(math.log(1 / 4) + math.log(3 / 4)) / 2
CLASSES = torch.tensor([0, 3, 1, 1, 2, 0])
MIXED = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.5, 0.5]])
FEATURES = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])


@pytest.fixture
def random_logits():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 4, dtype=torch.float64, generator=generator, requires_grad=True)


@pytest.mark.parametrize("labels, expected", [([1, 0], HALF), ([1, 1], SURE)])
def test_supervised_loss(labels, expected):
    assert supervised_loss(LOGITS, torch.tensor(labels)).item() == pytest.approx(expected, abs=1e-6)


def test_gradient_of_the_supervised_loss(random_logits):
    assert gradcheck(lambda logits: supervised_loss(logits, CLASSES), random_logits)


@pytest.mark.parametrize("mask, expected", [([1, 1], (SURE + HALF) / 2), ([1, 0], SURE / 2), ([0, 1], HALF / 2), ([0, 0], 0)])
def test_unsupervised_loss(mask, expected):
    assert unsupervised_loss(LOGITS, SOFT, torch.tensor(mask).bool()).item() == pytest.approx(expected, abs=1e-6)


def test_hard_pseudo_labels_are_labels(random_logits):
    found = unsupervised_loss(random_logits, one_hot(CLASSES, 4).double(), torch.ones(6).bool())
    assert_close(found, supervised_loss(random_logits, CLASSES), atol=1e-12, rtol=0)


def test_gradient_of_the_unsupervised_loss(random_logits):
    """Rows that do not count get none, and neither do the pseudo-labels."""
    soft = torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).softmax(1).requires_grad_()
    mask = torch.tensor([True, False, True, True, False, False])
    assert gradcheck(lambda logits: unsupervised_loss(logits, soft, mask), random_logits)
    (gradient,) = torch.autograd.grad(unsupervised_loss(random_logits, soft, mask), random_logits)
    assert gradient[~mask].abs().max() == 0
    assert soft.grad is None and not unsupervised_loss(random_logits.detach(), soft, mask).requires_grad


@pytest.mark.parametrize("rows, mask", [(1, [True, True]), (2, [True])])
def test_shapes_of_the_unsupervised_loss(rows, mask):
    said = message(unsupervised_loss, LOGITS, SOFT[:rows], torch.tensor(mask))
    assert "pseudo_labels" in said and "mask" in said


def test_relations_of_labelled_and_unlabelled_images():
    assert relations(MIXED[:3]).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert_close(relations(MIXED[3:]), torch.eye(2))  # 0.9 · 0.5 + 0.1 · 0.5 is 0.5
    for threshold in (0.4, 0.0):
        assert_close(relations(MIXED[3:], threshold), torch.tensor([[1, 0.5], [0.5, 1]]))


@pytest.mark.parametrize("changes, word", [
    (dict(form="code"), "form"), (dict(second=FEATURES[:2]), "second"), (dict(relations=torch.eye(2)), "relations"),
    (dict(first=FEATURES[:1], second=FEATURES[:1], relations=torch.eye(1)), "at least 2"),
])
def test_what_the_contrastive_loss_refuses(changes, word):
    assert word in message(contrastive_loss, **{**dict(first=FEATURES, second=FEATURES, relations=torch.eye(3)), **changes})


def test_cold_features():
    """Exponents of 1000 overflow nowhere, forward or backward."""
    assert torch.isfinite(contrastive_loss(FEATURES, FEATURES, relations(FEATURES), temperature=1e-3))
    far = torch.randn(256, 64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    contrastive_loss(normalize(far), normalize(far), torch.eye(256), temperature=0.01).backward()
    assert torch.isfinite(far.grad).all()
