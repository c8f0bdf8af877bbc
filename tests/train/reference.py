"""Prints the numbers that train_step_test.cc compares with: PyTorch's own optimizers in float64 on a tiny MLP.

    python tests/train/reference.py          (torch 2.x)
"""
import torch
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)
STEPS, BATCH = 20, 4


def series(shape, seed):
    """The same numbers as `series` in the test: in (-0.5, 0.5), exact in float64."""
    count = 1
    for size in shape:
        count *= size
    return torch.tensor([((i * 37 + seed * 11 + 5) % 101) / 101 - 0.5 for i in range(count)]).reshape(shape)


def run(make, clip=0.0, schedule=None, loss="softmax_cross_entropy"):
    w1, b1 = series((3, 5), 1).requires_grad_(), series((5,), 2).requires_grad_()
    w2, b2 = series((5, 4), 3).requires_grad_(), series((4,), 4).requires_grad_()
    optimizer = make([w1, b1], [w2, b2])
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule) if schedule else None
    losses, norms = [], []
    for step in range(STEPS):
        x = series((BATCH, 3), 7 + step)
        y = torch.tanh(x @ w1 + b1) @ w2 + b2
        if loss == "softmax_cross_entropy":
            target = torch.tensor([(i * 3 + step) % 4 for i in range(BATCH)])
            target[step % BATCH] = -100
            value = F.cross_entropy(y, target)
        elif loss == "mse":
            value = F.mse_loss(y, series((BATCH, 4), 50 + step))
        else:
            value = F.binary_cross_entropy_with_logits(y, series((BATCH, 4), 50 + step) + 0.5)
        optimizer.zero_grad()
        value.backward()
        if clip:
            norms.append(torch.nn.utils.clip_grad_norm_([w1, b1, w2, b2], clip).item())
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(value.item())
    parts = [losses[0], losses[9], losses[19], *(p.norm().item() for p in (w1, b1, w2, b2))]
    if clip:
        parts += [norms[0], norms[19]]
    return parts


def one(cls, **options):
    return lambda first, second: cls(first + second, **options)


def cosine(step):
    from transformers import get_cosine_schedule_with_warmup
    dummy = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    return get_cosine_schedule_with_warmup(dummy, 5, 20).lr_lambdas[0](step)


def linear(step):
    from transformers import get_linear_schedule_with_warmup
    dummy = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    return get_linear_schedule_with_warmup(dummy, 4, 25).lr_lambdas[0](step)


CASES = {
    "sgd": (one(torch.optim.SGD, lr=0.3, weight_decay=0.01), {}),
    "momentum": (one(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.001), {}),
    "damped": (one(torch.optim.SGD, lr=0.1, momentum=0.8, dampening=0.3), {}),
    "nesterov": (one(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True), {"loss": "mse"}),
    "adam": (one(torch.optim.Adam, lr=0.02, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.02),
             {"loss": "bce_with_logits"}),
    "adamw": (one(torch.optim.AdamW, lr=0.02, betas=(0.8, 0.95), weight_decay=0.1), {}),
    "rmsprop": (one(torch.optim.RMSprop, lr=0.02, alpha=0.9, eps=1e-6, weight_decay=0.02), {}),
    "adagrad": (one(torch.optim.Adagrad, lr=0.1, lr_decay=0.05, weight_decay=0.01), {"loss": "mse"}),
    "clipped": (one(torch.optim.AdamW, lr=0.05), {"clip": 0.2}),
    "cosine": (one(torch.optim.SGD, lr=0.5), {"schedule": cosine}),
    "linear": (one(torch.optim.Adam, lr=0.05), {"schedule": linear}),
    "groups": (lambda a, b: torch.optim.AdamW([{"params": [a[0], b[0]], "weight_decay": 0.2},
                                               {"params": [a[1], b[1]], "weight_decay": 0.0, "lr": 0.1}], lr=0.02), {}),
}
for name, (make, how) in CASES.items():
    print(f'    {{"{name}", {{{", ".join(repr(v) for v in run(make, **how))}}}}},')
