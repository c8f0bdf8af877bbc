"""Both PyTorch exporters with the settings that the fixtures name, and a clean-up of what depends on the machine."""
import contextlib
import io
import logging
import warnings

import onnx
import torch


def strip(model):
    """Drops the source positions and stack traces that the exporters write: they name files of one machine."""
    def clean(graph):
        del graph.metadata_props[:]
        for thing in [*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer]:
            del thing.metadata_props[:]
            thing.doc_string = ""
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    clean(attribute.g)

    clean(model.graph)
    for function in model.functions:
        for node in function.node:
            del node.metadata_props[:]
            node.doc_string = ""
    return model


def export(model, inputs, how, opset, input_names, output_names=("logits",), training=False, dynamic_batch=False):
    """`how`: dynamo_raw (optimize=False), dynamo (its default), legacy. Returns the ModelProto."""
    buffer = io.BytesIO()
    quiet = contextlib.redirect_stdout(io.StringIO())
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), quiet:
        warnings.simplefilter("ignore")
        if how == "legacy":
            mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
            axes = {name: {0: "batch"} for name in [*input_names, *output_names]} if dynamic_batch else None
            torch.onnx.export(model, tuple(inputs), buffer, dynamo=False, opset_version=opset, training=mode,
                              do_constant_folding=False, input_names=list(input_names),
                              output_names=list(output_names), dynamic_axes=axes)
        else:
            shapes = [{0: torch.export.Dim("batch")} for _ in inputs] if dynamic_batch else None
            torch.onnx.export(model, tuple(inputs), buffer, dynamo=True, optimize=how == "dynamo", verbose=False,
                              opset_version=opset, external_data=False, input_names=list(input_names),
                              output_names=list(output_names), dynamic_shapes=shapes)
    logging.disable(logging.NOTSET)
    return strip(onnx.load_model_from_string(buffer.getvalue()))
