"""Prints the numbers that mixed_precision_test.cc compares with: losses of PyTorch's autocast, and of float64.

    python tests/train/mixed_precision_reference.py          (torch 2.x)
"""
import math

import torch
from torch.nn import functional as F

SIZES = {"w1": (12, 24), "b1": (24,), "scale": (24,), "shift": (24,), "w2": (24, 4), "b2": (4,)}
STEPS = 12


def filled(shape, start, factor, dtype):
    """As `filled` in the test."""
    count = math.prod(shape)
    return torch.tensor([factor * math.sin(0.7 * i + start) for i in range(count)], dtype=dtype).reshape(shape)


def run(dtype, narrow):
    p = {name: filled(shape, k, 1.0 if name == "scale" else 0.4, dtype).requires_grad_()
         for k, (name, shape) in enumerate(SIZES.items())}
    x = filled((8, 12), 0.3, 1.5, dtype)
    target = torch.tensor([i * 3 % 4 for i in range(8)])
    optimizer = torch.optim.SGD(p.values(), lr=0.2)
    losses = []
    for _ in range(STEPS):
        with torch.autocast("cpu", dtype=narrow, enabled=narrow is not None):
            h = F.linear(x, p["w1"].T, p["b1"])
            a = F.layer_norm(F.gelu(h), (24,), p["scale"], p["shift"])
            loss = F.cross_entropy(F.linear(a, p["w2"].T, p["b2"]), target)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


for name, dtype, narrow in [("f64", torch.float64, None), ("bf16", torch.float32, torch.bfloat16),
                            ("f16", torch.float32, torch.float16)]:
    print(name, ", ".join(f"{loss:.9g}" for loss in run(dtype, narrow)))
