"""Prints the numbers that loss_test.cc compares with: PyTorch's losses with their options in float64, and their
gradients.

    python tests/train/loss_reference.py          (torch 2.x)
"""
import math

import torch
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)


def series(shape, seed):
    """The same numbers as `series` in the test: in (-0.5, 0.5), exact in float64."""
    return torch.tensor([((i * 37 + seed * 11 + 5) % 101) / 101 - 0.5 for i in range(math.prod(shape))]).reshape(shape)


def run(shape, loss):
    x = (series(shape, 4) * 4).requires_grad_()
    value = loss(x)
    value.backward()
    return [value.item(), x.grad.norm().item(), x.grad.flatten()[1].item()]


def classes(count, size):
    return torch.tensor([-100 if i % 5 == 2 else (i * 3 + i // 2) % size for i in range(count)])


WEIGHTS = torch.tensor([0.5, 2.0, 1.25, 0.0])
TARGET = (series((6, 4), 9) > 0).double()
CASES = {
    "smoothed": ((6, 4), lambda x: F.cross_entropy(x, classes(6, 4), label_smoothing=0.2)),
    "weighted": ((6, 4), lambda x: F.cross_entropy(x, classes(6, 4), weight=WEIGHTS)),
    "both": ((6, 4), lambda x: F.cross_entropy(x, classes(6, 4), weight=WEIGHTS, label_smoothing=0.2)),
    "both inside": ((6, 4, 3), lambda x: F.cross_entropy(x, classes(18, 4).reshape(6, 3), weight=WEIGHTS,
                                                         label_smoothing=0.2)),
    "pos_weight": ((6, 4), lambda x: F.binary_cross_entropy_with_logits(x, TARGET, pos_weight=torch.tensor([3.0]))),
    "pos_weights": ((6, 4), lambda x: F.binary_cross_entropy_with_logits(x, TARGET, pos_weight=WEIGHTS)),
}
for name, (shape, loss) in CASES.items():
    print(f'      {{"{name}", {{{", ".join(repr(v) for v in run(shape, loss))}}}}},')
