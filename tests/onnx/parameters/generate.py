"""Writes the models of this folder: modules of PyTorch with parameters and buffers of many kinds, exported by both of
its exporters. `parameters.txt` has for each file what PyTorch trains, and what it keeps as buffers.

    python tests/onnx/parameters/generate.py      (needs tests/python/requirements-fixtures.txt)

A line is `FILE parameters NAME...; buffers NAME...`, of initialisers that are in the file under these names.
"""
import io
import logging
import math
import pathlib
import warnings

import onnx
import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
P = nn.Parameter


class Contrastive(nn.Module):
    """Single numbers at the top level, and an image's mean and deviation."""

    def __init__(self):
        super().__init__()
        # Before the parameters, which come first in the file all the same.
        self.register_buffer("mean", torch.tensor([0.48, 0.46, 0.41]))
        self.register_buffer("std", torch.tensor([0.27, 0.26, 0.28]))
        self.visual = nn.Linear(3, 4)
        self.logit_scale = P(torch.tensor(1.5))
        self.logit_bias = P(torch.tensor(-10.0))
        self.gate = P(torch.ones(1))

    def forward(self, x):
        y = F.normalize(self.visual((x - self.mean) / self.std), dim=-1)
        return y * self.logit_scale.exp() * torch.tanh(self.gate) + self.logit_bias


class Vision(nn.Module):
    """Tokens and tables at the top level: behind Expand, Concat, Softmax, Where, Einsum."""

    def __init__(self):
        super().__init__()
        self.class_token = P(torch.zeros(1, 1, 4))
        self.pos_embed = P(torch.randn(1, 4, 4) / 8)
        self.mix = P(torch.randn(1, 4, 1))
        self.mask_token = P(torch.randn(1, 1, 4))
        self.factors = P(torch.randn(2, 4))
        self.register_buffer("hidden", torch.tensor([[[True], [False], [False], [True]]]))
        self.proj = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.cat([self.class_token.expand(x.shape[0], -1, -1), self.proj(x)], 1) + self.pos_embed
        y = torch.where(self.hidden, self.mask_token, y)
        return torch.einsum("bnc,kc->bkn", y * torch.softmax(self.mix, 1), self.factors)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = P(1e-6 * torch.ones(4))  # layer scale
        self.alpha = P(torch.zeros(()))       # ReZero
        self.slope = P(torch.full((1,), 0.25))
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.alpha * self.gamma * F.prelu(self.fc(x), self.slope)


class Gated(nn.Module):
    """Gates and temperatures inside modules, and lists of parameters."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.beta = P(torch.tensor(1.0))
        self.temperature = P(torch.tensor(0.7))
        self.tokens = nn.ParameterList([P(torch.randn(4)), P(torch.randn(1))])
        self.many = nn.PReLU(4)
        self.one = nn.PReLU()

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        x = x * torch.sigmoid(self.beta * x) / self.temperature
        return self.one(self.many(x)) * self.tokens[0] + self.tokens[1] / math.sqrt(4)


class Tables(nn.Module):
    """Masks, sinusoids, rotary tables, windows, anchors and grids beside what is learnt."""

    def __init__(self):
        super().__init__()
        n, d = 16, 16
        at = torch.arange(n, dtype=torch.float32)[:, None] * torch.exp(-torch.arange(0, d, 2) * math.log(1e4) / d)
        self.register_buffer("pe", torch.stack([at.sin(), at.cos()], -1).reshape(1, n, d))
        self.register_buffer("mask", torch.triu(torch.full((n, n), float("-inf")), 1))
        self.register_buffer("cos_cached", at.cos().repeat(1, 2))
        self.register_buffer("inv_freq", 1 / 100 ** (torch.arange(0, d, 2) / d))
        self.register_buffer("window", torch.hann_window(d))
        self.register_buffer("anchors", torch.tensor([[10.0, 13], [16, 30]]).repeat(1, 8))
        self.register_buffer("positions", torch.arange(n, dtype=torch.float32))
        self.scale = P(torch.ones(d))  # of an RMS norm of one's own
        self.q, self.k = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x):
        x = (x + self.pe) * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.scale
        q, k = self.q(x) * self.cos_cached, self.k(x) * self.window
        a = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(16) + self.mask, -1) @ x
        freqs = (self.positions[:, None] * self.inv_freq).sin().repeat(1, 2)
        return (a * freqs + self.anchors.sum(0)).sum(-1)


class CausalAttention(nn.Module):
    """GPT-2's, with a mask under the name of a bias."""

    def __init__(self):
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(4, 4)).view(1, 1, 4, 4))
        self.register_buffer("masked_bias", torch.tensor(-1e4))
        self.c_attn = nn.Linear(4, 8)
        self.relative = P(torch.randn(7, 1) / 4)
        self.register_buffer("relative_index", (torch.arange(4)[:, None] - torch.arange(4) + 3).reshape(-1))

    def forward(self, x):
        q, k = self.c_attn(x).split(4, -1)
        a = q @ k.transpose(-1, -2) + self.relative[self.relative_index].view(4, 4)
        return torch.softmax(torch.where(self.bias.bool(), a, self.masked_bias), -1) @ x


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = CausalAttention()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.h(x))


class Normed(nn.Module):
    """Norms with and without scales. An exporter writes ones and zeros for what a layer does not have."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 1)
        self.bn, self.plain = nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False)
        self.gn, self.into = nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)
        self.bare = nn.InstanceNorm2d(4)
        self.ln = nn.LayerNorm(3, elementwise_affine=False)

    def forward(self, x):
        return self.ln(self.bare(self.into(self.gn(self.plain(self.bn(self.conv(x)))))))


class Recurrent(nn.Module):
    """First states that are learnt."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4)
        self.h0, self.c0 = P(torch.randn(1, 1, 4)), P(torch.zeros(1, 1, 4))
        self.weight_g, self.weight_v = P(torch.ones(2, 1)), P(torch.randn(2, 4))

    def forward(self, x):
        first = [state.expand(-1, x.shape[1], -1).contiguous() for state in (self.h0, self.c0)]
        y, _ = self.lstm(x, tuple(first))
        return y @ (self.weight_v * (self.weight_g / self.weight_v.norm(dim=1, keepdim=True))).T


class Spaced(nn.Module):
    """Vectors that begin as evenly spaced numbers, beside tables of such numbers."""

    def __init__(self):
        super().__init__()
        self.into, self.back, self.values = nn.Linear(6, 8), nn.Linear(12, 6), nn.Linear(6, 7)
        self.grid = P(torch.linspace(-1, 1, 8))
        self.decay = P(torch.logspace(0, 1, 8))
        self.scale = P(torch.linspace(0.5, 1.5, 6))
        self.register_buffer("centres", torch.linspace(0, 5, 12))
        self.register_buffer("support", torch.linspace(-10, 10, 7))
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, 5))
        self.register_buffer("knots", torch.linspace(-2, 2, 9).expand(6, -1).contiguous())
        self.register_buffer("links", torch.ones(6, 6).tril(2) - torch.eye(6))
        self.first = P(torch.eye(6))

    def forward(self, x):
        y = torch.tanh(self.into(x * self.scale) - self.grid) / self.decay
        z = x @ self.first @ self.links
        distance = y.abs().sum(1, keepdim=True) + torch.relu(z.unsqueeze(-1) - self.knots).sum((1, 2)).unsqueeze(1)
        y = self.back(torch.exp(-(distance - self.centres) ** 2))
        value = (torch.softmax(self.values(y), 1) * self.support).sum(1, keepdim=True)
        return value - distance * self.slopes


class Waves(nn.Module):
    """Random features, and frequencies by any name: buffers that are multiplied with as weights are."""

    def __init__(self):
        super().__init__()
        self.register_buffer("B", torch.randn(3, 6))
        self.register_buffer("rates", torch.rand(5))
        self.omega = P(torch.randn(12, 4))  # learnt, and it has a phase
        self.phase = P(torch.randn(4))
        self.register_buffer("drawn", torch.randn(3, 5))
        self.register_buffer("turned", torch.rand(5))
        self.register_buffer("weight_mask", torch.bernoulli(torch.full((2, 19), 0.5)))
        self.head = nn.Linear(19, 2)

    def forward(self, x):
        y = 2 * math.pi * x @ self.B
        y = torch.cat([y.sin(), y.cos()], -1)
        z = x[:, :1] * self.rates * 2
        turned = torch.cos(x @ self.drawn + self.turned)
        y = torch.cat([torch.sin(y @ self.omega + self.phase), z.sin(), z.cos(), turned], -1)
        return F.linear(y, self.head.weight * self.weight_mask, self.head.bias)


class Named(nn.Module):
    """Parameters with the names of buffers: they stand before a weight."""

    def __init__(self):
        super().__init__()
        self.mask, self.cos, self.mean = P(torch.randn(4)), P(torch.randn(4)), P(torch.randn(4))
        self.weight, self.bias = P(torch.randn(4, 4)), P(torch.randn(4))
        self.register_buffer("sin", torch.randn(4))
        self.register_buffer("beside", torch.randn(4))

    def forward(self, x):
        y = F.linear(x * torch.sigmoid(self.mask) * self.beside - self.mean, self.weight, self.bias)
        return y * self.cos + self.sin


MODULES = {"contrastive": (Contrastive, (4, 3)), "vision": (Vision, (2, 3, 4)), "gated": (Gated, (3, 4)),
           "tables": (Tables, (2, 16, 16)), "attending": (Attending, (2, 4, 4)), "normed": (Normed, (2, 2, 3, 3)),
           "recurrent": (Recurrent, (5, 2, 3)), "spaced": (Spaced, (3, 6)), "waves": (Waves, (3, 3)),
           "named": (Named, (3, 4))}


def exported(module, x, kind):
    if kind.startswith("dynamo"):
        made = torch.onnx.export(module.eval(), (x,), dynamo=True, optimize=kind == "dynamo_optimized",
                                 opset_version=18, input_names=["x"], output_names=["y"], verbose=False).model_proto
    else:
        file, folds = io.BytesIO(), kind == "legacy_folded"
        mode = torch.onnx.TrainingMode.EVAL if folds else torch.onnx.TrainingMode.TRAINING
        torch.onnx.export(module.train(not folds), (x,), file, dynamo=False, opset_version=17,
                          do_constant_folding=folds, training=mode, input_names=["x"], output_names=["y"])
        made = onnx.load_from_string(file.getvalue())
    for node in made.graph.node:  # where in the program a node is from makes a file ten times as large
        del node.metadata_props[:]
        node.doc_string = ""
    return made


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    lines = []
    for name, (module, shape) in MODULES.items():
        torch.manual_seed(0)
        made = module()
        for kind in ("legacy", "legacy_folded", "dynamo", "dynamo_optimized"):
            x = torch.randn(shape)
            model = exported(made, x, kind)
            onnx.save(model, HERE / f"{name}_{kind}.onnx")
            there = {i.name for i in model.graph.initializer}
            parameters = [n for n, _ in made.named_parameters() if n in there]
            buffers = [n for n, b in made.named_buffers() if n in there and b.is_floating_point()]
            lines.append(f"{name}_{kind}.onnx parameters {' '.join(parameters)} ; buffers {' '.join(buffers)}")
    (HERE / "parameters.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
