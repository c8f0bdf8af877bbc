"""Writes the models beside it: batch norm and dropout as PyTorch's exporters leave them in a file for training, with
any batch.

Needs tests/python/requirements-fixtures.txt. tests/python/inference_test.py trains them and has onnxruntime run what
comes out.
"""
import pathlib

import onnx
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent


def batch_norm():
    return nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 7),
                         nn.BatchNorm1d(7, momentum=0.3), nn.ReLU(), nn.Linear(7, 3))


def dropout():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 9), nn.GELU(), nn.Dropout(0.4), nn.LayerNorm(9), nn.Linear(9, 7),
                         nn.Tanh(),
                         nn.Dropout(0.2), nn.Linear(7, 3))


def export(net, name, dynamo, opset=17):
    x = torch.randn(4, 1, 6, 6)
    net.train()
    arguments = dict(input_names=["x"], output_names=["logits"], opset_version=opset)
    if dynamo:
        torch.onnx.export(net, (x,), HERE / f"{name}.onnx", dynamo=True, optimize=False, external_data=False,
                          dynamic_shapes=({0: torch.export.Dim("batch")},), **arguments)
    else:
        torch.onnx.export(net, (x,), HERE / f"{name}.onnx", dynamo=False, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING,
                          dynamic_axes={"x": {0: "batch"}, "logits": {0: "batch"}}, **arguments)
    model = onnx.load(HERE / f"{name}.onnx")
    for each in [model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output]:
        each.ClearField("metadata_props")   # stack traces of the machine that exports
        each.ClearField("doc_string")
    onnx.save(model, HERE / f"{name}.onnx")


torch.manual_seed(3)
export(batch_norm(), "batch_norm_legacy", dynamo=False)
export(batch_norm(), "batch_norm_opset12", dynamo=False, opset=12)   # five outputs say that it trains
export(batch_norm(), "batch_norm_dynamo", dynamo=True, opset=20)     # this exporter writes it in inference mode
export(dropout(), "dropout_legacy", dynamo=False)
export(dropout(), "dropout_dynamo", dynamo=True, opset=20)
