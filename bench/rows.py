"""The rows of the comparison: one model, one batch, one optimizer each; both sides train exactly this.

Weights are random (no model hub is asked), dropout is off, float32, AdamW(lr 1e-4, betas 0.9 and 0.999, eps 1e-8,
weight decay 0.01), softmax cross-entropy averaged over all targets. ResNet-50 has batch norm in training mode.
"""
import dataclasses
import pathlib
import sys
from typing import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "python"))
import models  # noqa: E402

ADAMW = {"optimizer": "adamw", "lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}


class Bottleneck(nn.Module):
    """The residual block of ResNet-50, stride on the 3x3 convolution as in torchvision (ResNet v1.5)."""

    def __init__(self, cin, width, stride):
        super().__init__()
        cout = 4 * width
        self.conv1 = nn.Conv2d(cin, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, cout, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet50(nn.Module):
    """pixels[b, 3, 224, 224] -> [b, 1000]; 25.6 million parameters."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        cin = 64
        for i, (width, count) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
            blocks = []
            for k in range(count):
                blocks.append(Bottleneck(cin, width, 2 if k == 0 and i > 0 else 1))
                cin = 4 * width
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(cin, 1000)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


@dataclasses.dataclass
class Row:
    title: str
    model: Callable[[], nn.Module]
    inputs: Callable[[np.random.Generator, int], dict]  # (random, steps) -> {name: [steps, batch, ...]}
    target: Callable[[np.random.Generator, int], np.ndarray]
    how: str          # exporter, as in tests/python/exporting.py
    opset: int
    steps: int        # in one run of either side; the first two are not counted
    wanted: float = 1.5       # of the peer's speed
    wanted_wide: float = 2.0  # the same with AVX-512
    training: bool = False
    runs: int = 1     # for each repeat

    def make_model(self):
        torch.manual_seed(0)
        return self.model().train(self.training)

    def data(self):
        rng = np.random.default_rng(0)
        return self.inputs(rng, self.steps), self.target(rng, self.steps)


def ids(vocab, batch, time):
    return lambda rng, steps: {"ids": rng.integers(0, vocab, (steps, batch, time))}


def token_target(vocab, batch, time):
    return lambda rng, steps: rng.integers(0, vocab, (steps, batch, time))


ROWS = {
    "gpt2": Row("GPT-2 124M, 4 x 128", lambda: models.gpt2("sdpa", vocab_size=50257, n_positions=1024, n_embd=768,
                                                           n_layer=12, n_head=12),
                ids(50257, 4, 128), token_target(50257, 4, 128), "dynamo_raw", 20, 6),
    "bert": Row("BERT-base, 8 x 128",
                lambda: models.bert("sdpa", vocab_size=30522, hidden_size=768, num_hidden_layers=12,
                                                          num_attention_heads=12, intermediate_size=3072,
                                                          max_position_embeddings=512),
                lambda rng, steps: {"ids": rng.integers(0, 30522, (steps, 8, 128)),
                                    "mask": np.ones((steps, 8, 128), np.int64)},
                token_target(30522, 8, 128), "dynamo_raw", 20, 5),
    "resnet50": Row("ResNet-50, 8 images", Resnet50,
                    lambda rng, steps: {"pixels": rng.standard_normal((steps, 8, 3, 224, 224)).astype(np.float32)},
                    lambda rng, steps: rng.integers(0, 1000, (steps, 8)), "legacy", 17, 6, wanted_wide=1.5,
                    training=True),
    "mlp": Row("MLP 784-512-512-10, 64", lambda: models.Mlp([784, 512, 512, 10]),
               lambda rng, steps: {"x": rng.standard_normal((steps, 64, 784)).astype(np.float32)},
               lambda rng, steps: rng.integers(0, 10, (steps, 64)), "legacy", 17, 200, runs=4),
    "gpt": Row("GPT 4 layers, width 128, vocab 256, 8 x 64",
               lambda: models.Gpt(256, 64, 128, 4, 4, attention="sdpa"),
               ids(256, 8, 64), token_target(256, 8, 64), "legacy", 17, 60, training=True, runs=4),
}


def loss_of(output, target):
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))
