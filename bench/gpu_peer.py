"""One run of the peer on a GPU: PyTorch, eager, trains a model of given sizes and prints one JSON line.

    python bench/gpu_peer.py '{"family": "gpt2", "batch": 8, "steps": 6, "layers": 12, ...}'

float32 without TF32, AdamW as it comes with PyTorch. The families are those of `epl template`, as far as
bench/gpu_times.py has rows of them. The batch is on the GPU before the clock starts.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A layer of a transformer, with norms before (GPT-2) or behind (BERT)."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        batch, time_steps, width = x.shape
        q, k, v = (
            part.view(batch, time_steps, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, time_steps, width))

    def feed(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh" if self.causal else "none"))

    def forward(self, x):
        if self.causal:
            x = x + self.attend(self.norm1(x))
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.feed(x))


class Transformer(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.causal = o["family"] == "gpt2"
        self.token, self.place = nn.Embedding(o["vocab"], o["width"]), nn.Embedding(o["context"], o["width"])
        self.blocks = nn.ModuleList(Block(o["width"], o["heads"], self.causal) for _ in range(o["layers"]))
        self.norm = nn.LayerNorm(o["width"])
        self.classes = None if self.causal else nn.Linear(o["width"], 2)

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        if not self.causal:
            x = self.norm(x)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight) if self.causal else self.classes(x[:, 0])


class Residual(nn.Module):
    """Two convolutions of 3 x 3 with batch norm, and what went in."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(cout), nn.BatchNorm2d(cout)
        self.way = nn.Identity()
        if stride != 1 or cin != cout:
            self.way = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.way(x))


def cnn(o):
    layers = [nn.Conv2d(o["channels"], o["width"], 3, 1, 1, bias=False), nn.BatchNorm2d(o["width"]), nn.ReLU()]
    cin = o["width"]
    for stage in range(o["stages"]):
        cout = o["width"] << stage
        for block in range(o["blocks"]):
            layers.append(Residual(cin, cout, 2 if stage > 0 and block == 0 else 1))
            cin = cout
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, o["classes"]))


def main():
    o = json.loads(sys.argv[1])
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = (cnn(o) if o["family"] == "cnn" else Transformer(o)).to(device)
    if o["family"] == "cnn":
        x = torch.rand(o["batch"], o["channels"], o["image"], o["image"], device=device)
        target = torch.randint(o["classes"], (o["batch"],), device=device)
    else:
        shape = (o["batch"], o["context"])
        x = torch.randint(o["vocab"], shape, device=device)
        gives_tokens = o["family"] == "gpt2"
        target = torch.randint(o["vocab"] if gives_tokens else 2, shape if gives_tokens else shape[:1], device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    seconds = []
    for _ in range(o["steps"]):
        began = time.perf_counter()
        optimizer.zero_grad()
        y = model(x)
        loss = F.cross_entropy(y.reshape(-1, y.shape[-1]), target.reshape(-1))
        loss.backward()
        optimizer.step()
        loss.item()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    counted = sorted(seconds[1:])
    said = {"peer": "torch %s eager float32 on %s" % (torch.__version__, device), "all_seconds": seconds}
    print(json.dumps({**said, "seconds": counted[len(counted) // 2], "peak_bytes": peak}))


if __name__ == "__main__":
    main()
