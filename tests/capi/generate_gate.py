"""Writes tests/capi/files/gate.onnx: a model with an operator of its own, as PyTorch exports one, and prints what
PyTorch's own training makes of it, for tests/capi/host_op_test.cc.

    python tests/capi/generate_gate.py       (needs tests/python/requirements-fixtures.txt)
"""
import pathlib

import torch


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, scale):
        ctx.save_for_backward(x, w)
        ctx.scale = scale
        return x * w * scale

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w * ctx.scale, (dy * x * ctx.scale).sum(0), None

    @staticmethod
    def symbolic(g, x, w, scale):
        return g.op("own::Gate", x, w, scale_f=scale).setType(x.type())


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 6)
        self.gate = torch.nn.Parameter(torch.linspace(0.5, 1.5, 6))
        self.last = torch.nn.Linear(6, 2)

    def forward(self, x):
        return self.last(Gate.apply(self.first(x), self.gate, 0.5))


def main():
    torch.manual_seed(7)
    model = Gated()
    # The batch of tests/capi/world.h.
    x = torch.tensor([[float(i * 4 + j) % 7 - 3 for j in range(4)] for i in range(8)])
    target = torch.arange(8) % 2
    path = pathlib.Path(__file__).parent / "files" / "gate.onnx"
    torch.onnx.export(model, (x,), str(path), dynamo=False, input_names=["x"], output_names=["y"], opset_version=17,
                      dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}}, custom_opsets={"own": 1},
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.7f}")
    print(", ".join(f"{value:.7f}" for value in model.gate.detach()))


main()
