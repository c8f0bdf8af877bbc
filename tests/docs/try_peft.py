"""Trains low-rank adapters by the command line and has Hugging Face PEFT load them: outputs must be those of EPL's
merged file.

    python tests/docs/try_peft.py          (torch, peft, onnx, onnxruntime; a build in build/release or
    build/release-tests)

Models: layers whose weights keep PyTorch's names, whose weights the exporter transposed and renamed, and a convolution.
Once with adapters alone, once with the last layer trained beside them, of which PEFT keeps a copy of its own
(modules_to_save); and one whose running statistics change, which PEFT keeps likewise.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime
import torch
from peft import PeftModel
from safetensors.numpy import save_file
from torch import nn

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
EPL = next(p for p in (TOP / "build" / b / "bin" / "epl" for b in ("release-tests", "release")) if p.exists())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, stride=2, padding=1)
        self.body = nn.ModuleDict({"first": nn.Linear(9, 7), "second": nn.Linear(7, 5)})
        self.head = nn.Linear(30, 3)

    def forward(self, x):
        h = torch.relu(self.conv(x)).flatten(2)   # [batch, 6, 9]
        return self.head(self.body["second"](torch.tanh(self.body["first"](h))).flatten(1))


class Normed(Net):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(self.conv, nn.BatchNorm2d(6))


def try_one(name, folder, beside=(), make=Net, **how):
    torch.manual_seed(1)
    net, x = make(), torch.randn(8, 2, 6, 6)
    net.train("training" in how)
    torch.onnx.export(net, (x,), folder / "m.onnx", input_names=["x"], output_names=["y"], **how)
    save_file({"x": torch.randn(64, 2, 6, 6).numpy(), "target": np.arange(64) % 3}, str(folder / "d.safetensors"))
    subprocess.run([EPL, "train", folder / "m.onnx", "--data", folder / "d.safetensors", "--batch", "8", "--steps",
                    "30", "--lr", "0.02", "--lora", "conv*",
                    "--lora", "first", "--lora", "body.second", "--rank", "3", "--lora-alpha", "6", *beside, "--out",
                    folder / "out"], check=True, stdout=subprocess.DEVNULL)
    net.eval()
    head = net.head.weight.detach().clone()
    adapted = PeftModel.from_pretrained(net, str(folder / "out" / "adapters")).eval()
    session = onnxruntime.InferenceSession(str(folder / "out" / "trained.onnx"), providers=["CPUExecutionProvider"])
    with torch.no_grad():
        theirs = adapted(x).numpy()
        with adapted.disable_adapter():
            before = adapted(x).numpy()
        merged = adapted.merge_and_unload()(x).numpy()
    if beside:
        assert not torch.equal(adapted.head.weight, head)
        assert "modules_to_save" in (folder / "out" / "adapters" / "adapter_config.json").read_text()
    ours = session.run(None, {"x": x.numpy()})[0]
    moved, error = np.abs(theirs - before).max(), max(np.abs(ours - theirs).max(), np.abs(ours - merged).max())
    assert moved > 0.1, f"{name}: the adapters change the outputs by {moved:.1e} only"
    assert error < 1e-5, f"{name}: PEFT's outputs differ by {error:.1e}"
    print(f"{name}: adapters move the outputs by {moved:.2f}; PEFT's differ from EPL's merged file by {error:.1e}")


for name, how in {"dynamo, names kept": dict(dynamo=True, optimize=False, external_data=False, opset_version=20),
                  "dynamo, optimized": dict(dynamo=True, external_data=False, opset_version=20),
                  "older, names kept": dict(dynamo=False, do_constant_folding=False, opset_version=17),
                  "older, folded": dict(dynamo=False, opset_version=17),
                  "older, with batch norm": dict(make=Normed, dynamo=False, do_constant_folding=False, opset_version=17,
                                                 training=torch.onnx.TrainingMode.TRAINING)}.items():
    for beside in ((), ("--train-only", "head.*")):
        with tempfile.TemporaryDirectory() as scratch:
            try_one(name + (", with the last layer" if beside else ""), pathlib.Path(scratch), beside, **how)
