"""Prints the numbers that adapter_test.cc compares with: low-rank adapters written by hand in PyTorch, in float64.

    python tests/train/adapter_reference.py          (torch 2.x)
"""
import torch
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)
RANK, ALPHA, STEPS, BATCH, LR = 2, 3.0, 3, 4, 0.5


def series(shape, seed):
    """The same numbers as `series` in the test: in (-0.5, 0.5), exact in float64."""
    count = 1
    for size in shape:
        count *= size
    return torch.tensor([((i * 37 + seed * 11 + 5) % 101) / 101 - 0.5 for i in range(count)]).reshape(shape)


wc, w1, b1, w2 = series((3, 2, 3, 3), 1), series((6, 27), 2), series((6,), 3), series((6, 4), 4)
small = {"conv": (series((RANK, 2, 3, 3), 5), series((3, RANK, 1, 1), 6)),
         "first": (series((RANK, 27), 7), series((6, RANK), 8)),
         "last": (series((RANK, 6), 9), series((4, RANK), 10))}
trained = [t.requires_grad_() for pair in small.values() for t in pair]
scale = ALPHA / RANK


def forward(x):
    a, b = small["conv"]
    h = F.relu(F.conv2d(x, wc, stride=2, padding=1)
               + scale * F.conv2d(F.conv2d(x, a, stride=2, padding=1), b)).reshape(BATCH, 27)
    a, b = small["first"]
    h = torch.tanh(h @ w1.T + scale * (h @ a.T) @ b.T + b1)
    a, b = small["last"]
    return h @ w2 + scale * (h @ a.T) @ b.T


optimizer = torch.optim.SGD(trained, lr=LR)
for step in range(STEPS):
    target = torch.tensor([(i * 3 + step) % 4 for i in range(BATCH)])
    loss = F.cross_entropy(forward(series((BATCH, 2, 5, 5), 20 + step)), target)
    optimizer.zero_grad()
    loss.backward()
    if step == 0:
        print("gradient norms:", ", ".join(f"{t.grad.norm().item():.17g}" for t in trained))
    optimizer.step()
    print(f"loss {step}: {loss.item():.17g}")
print("norms:", ", ".join(f"{t.norm().item():.17g}" for t in trained))
