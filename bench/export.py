"""Exports a row as a case folder (model.onnx, train.safetensors, reference.json), which is what `epl check` trains.

    python bench/export.py ROW FOLDER

The reference is PyTorch's own run in float64, beside its run in float32, so that the run that is timed is held against
the same numbers as any case.
"""
import copy
import json
import pathlib
import sys

import numpy as np
import onnx
import torch
from safetensors.numpy import save_file

from rows import ADAMW, ROWS, loss_of
from exporting import export  # tests/python, by way of rows


def train(model, row, inputs, target):
    """The loss of each step and the gradient norms of the first, in the precision of the model, which is trained."""
    dtype = next(model.parameters()).dtype
    cast = lambda a: torch.from_numpy(a).to(dtype) if a.dtype == np.float32 else torch.from_numpy(a)
    optimizer = torch.optim.AdamW(model.parameters(), lr=ADAMW["lr"], betas=tuple(ADAMW["betas"]), eps=ADAMW["eps"],
                                  weight_decay=ADAMW["weight_decay"])
    losses, norms = [], {}
    for step in range(row.steps):
        optimizer.zero_grad()
        loss = loss_of(model(*[cast(a[step]) for a in inputs.values()]), torch.from_numpy(target[step]))
        losses.append(loss.item())
        loss.backward()
        if step == 0:
            norms = {k: p.grad.double().norm().item() for k, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
    return losses, norms, {k: p.detach().double().norm().item() for k, p in model.named_parameters()}


def largest_error(got, wanted):
    return max(abs(got[k] - v) / v if v else abs(got[k]) for k, v in wanted.items())


def main():
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    row = ROWS[name]
    folder.mkdir(parents=True, exist_ok=True)
    model = row.make_model()
    inputs, target = row.data()
    first = [torch.from_numpy(a[0]) for a in inputs.values()]
    proto = export(copy.deepcopy(model), first, row.how, row.opset, list(inputs), training=row.training)
    onnx.save_model(proto, str(folder / "model.onnx"))
    present = {i.name for i in proto.graph.initializer}
    del proto
    save_file({**{f"input.{k}": np.ascontiguousarray(a) for k, a in inputs.items()}, "target": target},
              str(folder / "train.safetensors"))

    losses32, norms32, final32 = train(copy.deepcopy(model), row, inputs, target)
    model = model.double()
    losses, norms, final = train(model, row, inputs, target)
    buffers = {k: b.norm().item() for k, b in model.named_buffers() if "running" in k}
    groups = {}
    for k, p in model.named_parameters(remove_duplicate=False):
        groups.setdefault(p.data_ptr(), []).append(k)
    alias = {g[0]: next(k for k in g if k in present) for g in groups.values()}
    renamed = lambda d: {alias.get(k, k): v for k, v in d.items()}
    reference = {**ADAMW, "loss": "softmax_cross_entropy", "losses": losses,
                 "trainable": [alias.get(k, k) for k, _ in model.named_parameters()],
                 "frozen": [], "tied": [g for g in groups.values() if len(g) > 1], "final_param_norms": renamed(final),
                 "step0_grad_norms": renamed(norms), "final_buffer_norms": buffers,
                 "torch_mode": "train" if row.training else "eval", "exporter": row.how, "precision": "float64",
                 # Of PyTorch's own float32. With batch norm over few positions it leaves float64 by more than `epl check`
                 # takes for one run, so the losses are not given as "losses_f32".
                 "float32_errors": {"loss": max(abs(a - b) / abs(b) for a, b in zip(losses32, losses)),
                                    "gradient": largest_error(norms32, norms),
                                    "parameter": largest_error(final32, final)}}
    (folder / "reference.json").write_text(json.dumps(reference) + "\n")


if __name__ == "__main__":
    main()
