"""Writes composition_numbers.json: for each row of composition.json what PyTorch learns in float64, without any layout,
and what it learns where the row's bug is put into its arithmetic.

    python tests/runtime/composition_reference.py          (torch 2.x)
"""
import json
import math
import pathlib

import torch
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)
FOLDER = pathlib.Path(__file__).parent
STEPS, SAMPLES, TOKENS, WORDS, WIDTH = 4, 8, 4, 16, 8
RANKS, MICRO_BATCHES = 2, 4  # of the layout that a bug is shown in
ALL = range(SAMPLES)

# As composition_models.h declares them.
TOKEN_MODEL = {"wte": (WORDS, WIDTH), "scale": (WIDTH,), "shift": (WIDTH,), "w1": (WIDTH, 16), "b1": (16,),
               "w2": (16, WIDTH), "tiny": (1,)}
MODELS = {
    "tied": TOKEN_MODEL,
    "untied": TOKEN_MODEL | {"head": (WORDS, WIDTH)},
    "unused": TOKEN_MODEL | {"head": (WORDS, WIDTH), "idle": (3,)},
    "again": {"wte": (WORDS, WIDTH), "w": (WIDTH, WIDTH), "head": (WORDS, WIDTH)},
    "experts": {"gate.w": (4, 4), "w1": (4, 4, 8), "w2": (4, 8, 4), "out.w": (16, 8)},
}


def weights(model):
    """As `initial` in composition.h."""
    out = {}
    for k, (name, shape) in enumerate(MODELS[model].items()):
        one = 1 if name in ("scale", "tiny") else 0
        values = [one + 0.4 * math.sin(0.7 * i + k) for i in range(math.prod(shape))]
        out[name] = torch.tensor(values).reshape(shape).requires_grad_()
    return out


def batch(model, step):
    """As `batch` in composition.h: the inputs and the targets of all samples. -100 does not count."""
    if model == "experts":
        x = [math.sin(0.3 * i + step) for i in range(SAMPLES * 16)]
        return torch.tensor(x).reshape(SAMPLES, 16), torch.tensor([(i + step) % 8 for i in ALL])
    ids = torch.tensor([(7 * i + i * i // 5 + 3 * step) % WORDS for i in range(SAMPLES * TOKENS)])
    target = [(5 * (b * TOKENS + t) + step) % WORDS if t <= (3 * b + b // 4 + step) % TOKENS else -100
              for b in ALL for t in range(TOKENS)]
    return ids.reshape(SAMPLES, TOKENS), torch.tensor(target).reshape(SAMPLES, TOKENS)


def scores(model, p, x, one_use):
    """`one_use`: of a weight with several uses only the last has a gradient."""
    if model == "experts":
        each = x.reshape(-1, 4, 4)
        gates = torch.softmax(each @ p["gate.w"], 2)
        taken = gates[..., None] * each[:, :, None, :]  # sample, token, expert, width
        h = torch.relu(torch.einsum("stew,ewh->steh", taken, p["w1"]))
        return torch.einsum("steh,ehw->stw", h, p["w2"]).reshape(-1, 16) @ p["out.w"]
    early = (lambda w: w.detach()) if one_use else (lambda w: w)
    if model == "again":
        e = p["wte"][x]
        a = F.gelu(e @ early(p["w"]))
        t = torch.tanh(a @ early(p["w"]))
        return (e + t @ p["w"]) @ p["head"].T
    e = (early(p["wte"]) if model == "tied" else p["wte"])[x]
    n = F.layer_norm(e, (WIDTH,), p["scale"], p["shift"])
    r = e + F.gelu(n @ p["w1"] + p["b1"]) @ p["w2"]
    return (r * p["tiny"]) @ p["wte" if model == "tied" else "head"].T


class Job:
    def __init__(self, row):
        self.model, self.fault = row["model"], None
        self.clip = row.get("clip_norm", 0)
        self.p = weights(self.model)
        options = row.get("optimizer_options", {"lr": 0.5})
        kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[row.get("optimizer", "sgd")]
        self.optimizer = kind(self.p.values(), lr=options["lr"])

    def terms(self, samples, one_use=False):
        """The sum of the terms of some samples, and how many count."""
        x, target = self.x[list(samples)], self.target[list(samples)]
        logits = scores(self.model, self.p, x, one_use)
        loss = F.cross_entropy(logits.flatten(0, -2), target.flatten(), ignore_index=-100, reduction="sum")
        return loss, int((target != -100).sum())

    def sums(self, samples, one_use=False):
        """The gradients of that sum."""
        found = torch.autograd.grad(self.terms(samples, one_use)[0], list(self.p.values()), allow_unused=True)
        return {n: torch.zeros_like(w) if g is None else g for (n, w), g in zip(self.p.items(), found)}

    def count(self, samples):
        return int((self.target[list(samples)] != -100).sum())

    def mean(self, samples, one_use=False):
        return {n: g / self.count(samples) for n, g in self.sums(samples, one_use).items()}

    def run(self, fault=None):
        losses, norms = [], []
        for step in range(STEPS):
            self.x, self.target = batch(self.model, step)
            loss, count = self.terms(ALL)
            losses.append(loss.item() / count)
            change = FAULTS.get(fault)
            g = self.mean(ALL) if change is None else change(self)
            squares = {n: (v**2).sum().item() for n, v in g.items()}
            norm = {n: NORMS[fault](squares, n) if fault in NORMS else sum(squares.values()) for n in g}
            if self.clip:
                norms.append(math.sqrt(max(norm.values())))
            for n, w in self.p.items():
                w.grad = g[n] * (min(1, self.clip / (math.sqrt(norm[n]) + 1e-6)) if self.clip else 1)
            if "idle" in self.p:
                self.p["idle"].grad = None
            self.optimizer.step()
        return losses, norms


def micro_batches():
    size = SAMPLES // MICRO_BATCHES
    return [range(m * size, (m + 1) * size) for m in range(MICRO_BATCHES)]


def summed_again(job):
    total = {n: torch.zeros_like(w) for n, w in job.p.items()}
    for samples in micro_batches():
        total = {n: RANKS * total[n] + g for n, g in job.sums(samples).items()}
    return {n: g / job.count(ALL) for n, g in total.items()}


def mean_of_means(job):
    means = [job.mean(samples) for samples in micro_batches()]
    return {n: sum(mean[n] for mean in means) / MICRO_BATCHES for n in job.p}


def but(job, changed):
    return job.mean(ALL) | {n: f for n, f in changed.items()}


FAULTS = {
    "summed_again": summed_again,
    "last_micro_batch": lambda job: but(job, {"wte": job.sums(micro_batches()[-1])["wte"] / job.count(ALL)}),
    "micro_batches_times": lambda job: {n: g * MICRO_BATCHES for n, g in job.mean(ALL).items()},
    "one_use": lambda job: job.mean(ALL, one_use=True),
    "own_samples": lambda job: job.mean(range(SAMPLES // RANKS)),
    "frozen_head": lambda job: but(job, {"head": torch.zeros_like(job.p["head"])}),
    "experts_times": lambda job: but(job, {n: RANKS * job.mean(ALL)[n] for n in ("w1", "w2")}),
    "halved": lambda job: {n: g / RANKS for n, g in job.mean(ALL).items()},
    "frozen_tiny": lambda job: but(job, {"tiny": torch.zeros_like(job.p["tiny"])}),
    "mean_of_means": mean_of_means,
}
FIRST_STAGE = ("wte", "scale", "shift", "w1", "b1")
IN_FULL = ("scale", "shift", "b1", "tiny")
# The square of the norm by which a weight's gradient is clipped.
NORMS = {
    "norm_of_stages": lambda s, n: sum(v for k, v in s.items() if (k in FIRST_STAGE) == (n in FIRST_STAGE)),
    "norm_counts_tied_twice": lambda s, n: sum(s.values()) + s["wte"],
    "norm_counts_small_twice": lambda s, n: sum(s.values()) + sum(s[k] for k in IN_FULL),
}


def main():
    numbers = {}
    for row in json.loads((FOLDER / "composition.json").read_text()):
        losses, norms = Job(row).run()
        numbers[row["name"]] = {"losses": losses, "norms": norms}
        if "fault" in row:
            assert row["fault"] in FAULTS or row["fault"] in NORMS, row["fault"]
            wrong, wrong_norms = Job(row).run(row["fault"])
            numbers[row["name"]] |= {"wrong_losses": wrong, "wrong_norms": wrong_norms}
    lines = [f'"{name}":\n   {json.dumps(of)}' for name, of in numbers.items()]
    (FOLDER / "composition_numbers.json").write_text("{" + ",\n ".join(lines) + "}\n")


main()
