"""T5 of the published sizes as ONNX files without the bytes of their weights, for plans alone.

`epl template t5` writes the graph with small dimensions, and here they become those of the size: nothing but shapes of
weights has them. Large weights are external data in a file that has its length and no bytes (a hole), because reading a
model looks only whether they are there. It needs the package onnx.
"""
import math
import pathlib
import struct
import subprocess

VOCABULARY, CONTEXT = 32128, 512
SIZES = {"base": dict(layers=12, width=768, heads=12, head=64, inner=3072),
         "large": dict(layers=24, width=1024, heads=16, head=64, inner=4096),
         "3b": dict(layers=24, width=1024, heads=32, head=128, inner=16384)}
# No other dimension of a T5 is one of these.
SMALL = {"width": 7, "inner": 11, "vocab": 13}
PAGE = 4096


def enlarge(model, size):
    """Gives the length of the file with the weights."""
    from onnx import TensorProto
    grown = {SMALL["width"]: size["width"], SMALL["inner"]: size["inner"], SMALL["vocab"]: VOCABULARY}
    offset = 0
    for tensor in model.graph.initializer:
        if not tensor.name.endswith(".weight"):
            continue
        dims = [grown.get(dim, dim) for dim in tensor.dims]
        if dims == list(tensor.dims):
            continue
        length = 4 * math.prod(dims)  # float32
        tensor.ClearField("raw_data")
        tensor.ClearField("dims")
        tensor.dims.extend(dims)
        if len(dims) == 1:  # of a norm: ones
            tensor.raw_data = struct.pack("<f", 1) * dims[0]
            continue
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in [("location", "weights"), ("offset", offset), ("length", length)]:
            tensor.external_data.add(key=key, value=str(value))
        offset += -(-length // PAGE) * PAGE
    for output in model.graph.output:
        for dim in output.type.tensor_type.shape.dim:
            if dim.HasField("dim_value"):
                dim.dim_value = grown.get(dim.dim_value, dim.dim_value)
    return offset


def t5_file(epl, name, folder):
    """The path of the model; it is made once."""
    import onnx
    size = SIZES[name]
    there = pathlib.Path(folder) / f"t5_{name}"
    path = there / "model.onnx"
    if path.exists():
        return path
    there.mkdir(parents=True, exist_ok=True)
    small = there / "small.onnx"
    options = {**size, **SMALL, "context": CONTEXT, "target": CONTEXT}
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    subprocess.run([epl, "template", "t5", *words, "--out", small], check=True, stdout=subprocess.DEVNULL)
    model = onnx.load(small)
    with open(there / "weights", "wb") as weights:
        weights.truncate(enlarge(model, size))
    part = there / "model.part"
    part.write_bytes(model.SerializeToString())
    part.rename(path)
    small.unlink()
    return path
