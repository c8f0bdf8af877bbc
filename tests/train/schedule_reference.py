"""Prints the numbers that schedule_test.cc compares with: factors of torch.optim.lr_scheduler on a base rate of 1.

    python tests/train/schedule_reference.py          (torch 2.x)
"""
import math

import torch
from torch.optim import lr_scheduler as schedulers


def optimizer():
    return torch.optim.SGD([torch.zeros(1)], lr=1.0)


def rates(make, steps, wanted):
    own = optimizer()
    scheduler, seen = make(own), []
    for _ in range(steps):
        seen.append(own.param_groups[0]["lr"])
        own.step()
        scheduler.step()
    return [seen[i] for i in wanted]


def plateau(wanted, **options):
    own = optimizer()
    scheduler, seen = schedulers.ReduceLROnPlateau(own, **options), []
    for i in range(30):
        scheduler.step(round(math.sin(i) / (1 + i), 6) + 0.5)
        seen.append(own.param_groups[0]["lr"])
    return [seen[i] for i in wanted]


AT = [0, 1, 4, 5, 9, 10, 19]
CASES = {
    "step": rates(lambda o: schedulers.StepLR(o, step_size=5, gamma=0.3), 20, AT),
    "exponential": rates(lambda o: schedulers.ExponentialLR(o, gamma=0.9), 20, AT),
    "one_cycle": rates(lambda o: schedulers.OneCycleLR(o, max_lr=1.0, total_steps=20), 20, AT),
    "one_cycle short": rates(lambda o: schedulers.OneCycleLR(o, max_lr=1.0, total_steps=20, pct_start=0.1, div_factor=4,
                                                             final_div_factor=10), 20, AT),
    "plateau": plateau([0, 3, 5, 8, 12, 20, 29], factor=0.5, patience=2),
    "plateau max": plateau([0, 3, 5, 8, 12, 20, 29], mode="max", factor=0.3, patience=3, cooldown=4, min_lr=0.01,
                           threshold=0.01),
}
for name, values in CASES.items():
    print(f'      {{"{name}", {{{", ".join(repr(float(v)) for v in values)}}}}},')
