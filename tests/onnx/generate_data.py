"""Writes tests/onnx/data: small models that show one thing each. Usage: generate_data.py [--check]   (--check: fail if
one differs)

Most are also seeds of the fuzz target, and it has some of its own.
"""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
DATA, CORPUS = HERE / "data", HERE.parent / "fuzz" / "corpus" / "onnx"
F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def array(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def save(name, nodes, inputs, outputs, initializers=(), functions=(), opset=20, ir=10, opsets=(), corpus=True,
         data=True):
    graph = helper.make_graph(nodes, name, inputs, outputs, list(initializers))
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in opsets]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=list(functions))
    content = model.SerializeToString(deterministic=True)
    if data:
        put(DATA / f"{name}.onnx", content)
    if corpus:
        put(CORPUS / f"{name}.onnx", content)


def put(path, data):
    if "--check" not in sys.argv:
        path.write_bytes(data)
    elif not path.exists() or path.read_bytes() != data:
        sys.exit(f"{path} is stale: run {pathlib.Path(__file__).name}")


def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def main():
    DATA.mkdir(exist_ok=True)
    CORPUS.mkdir(parents=True, exist_ok=True)
    node = helper.make_node
    w = array("fc.weight", np.arange(12).reshape(4, 3) / 10)
    b = array("fc.bias", [0.5, -0.5, 0.25, 1])
    x = value("x", F, ["batch", 3])
    gemm = node("Gemm", ["x", "fc.weight", "fc.bias"], ["h"], name="fc", transB=1)
    save("linear", [gemm, node("Relu", ["h"], ["y"], name="act")], [x], [value("y", F, ["batch", 4])], [w, b])

    # Shape arithmetic that must fold away: y = reshape(x, [batch, 3 * 1]) through Shape, Gather, Concat.
    save("shapes", [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"], axis=0), node("Concat", ["n",
        "three"], ["t"], axis=0),
                    node("Reshape", ["x", "t"], ["r"]), node("Mul", ["r", "scale"], ["y"], name="last")],
         [x], [value("y", F, ["batch", 3])],
         [array("zero", [0], np.int64), array("three", [3], np.int64), array("scale", 2.0)])

    # A function with an attribute reference, called twice, once inside another function.
    inner = helper.make_function("local", "Leaky", ["a"], ["b"], [node("LeakyRelu", ["a"], ["b"], name="leak")],
                                 [helper.make_opsetid("", 20)], ["slope"])
    inner.node[0].attribute.append(onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT,
                                                       ref_attr_name="slope"))
    outer = helper.make_function("local", "Twice", ["a"], ["c"],
                                 [node("Leaky", ["a"], ["b"], domain="local", slope=0.5, name="one"),
                                  node("Leaky", ["b"], ["c"], domain="local", slope=0.25, name="two")],
                                 [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)])
    save("functions", [node("Twice", ["x"], ["y"], domain="local", name="call")], [x], [value("y", F, ["batch", 3])],
         functions=[inner, outer], opsets=["local"])

    # A branch chosen by a shape.
    then = helper.make_graph([node("Neg", ["x"], ["t"])], "then", [], [value("t", F, None)])
    other = helper.make_graph([node("Abs", ["x"], ["e"])], "else", [], [value("e", F, None)])
    save("branch", [node("Size", ["x"], ["n"]), node("Greater", ["n", "four"], ["big"]), node("If", ["big"], ["y"],
        then_branch=then, else_branch=other, name="choose")],
         [x], [value("y", F, ["batch", 3])], [array("four", 4, np.int64)])

    # Pieces of a sequence, and every way to store numbers.
    half = helper.make_tensor("half", TensorProto.FLOAT16, [3],
                              np.array([1, 2, 3], np.float16).view(np.uint16).tolist(), raw=False)
    half.raw_data = b""
    half.ClearField("raw_data")
    half.ClearField("int32_data")
    half.int32_data.extend(np.array([1, 2, 3], np.float16).view(np.uint16).astype(int).tolist())
    truth = helper.make_tensor("truth", B, [3], [True, False, True])
    long = helper.make_tensor("long", I, [1], [2])
    save("encodings", [node("SplitToSequence", ["x"], ["parts"], axis=1), node("SequenceAt", ["parts", "long"],
        ["column"]),
                       node("Cast", ["half"], ["wide"], to=F), node("Where", ["truth", "wide", "minus"], ["row"]),
                       node("Add", ["column", "row"], ["y"])],
         [x], [value("y", F, ["batch", 3])], [half, truth, long, helper.make_tensor("minus", F, [1], [-1.0])])

    # Batch norm in training mode.
    save("batch_norm", [node("BatchNormalization", ["x", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"],
                             ["y", "m", "v"], name="bn", training_mode=1)],
         [value("x", F, ["batch", 2, 2])], [value("y", F, ["batch", 2, 2])],
         [array("bn.weight", [1, 2]), array("bn.bias", [0, 1]), array("bn.running_mean", [0, 0]),
          array("bn.running_var", [1, 1])])

    # Hostile ones.
    save("use_before_definition", [node("Neg", ["later"], ["y"], name="first"), node("Abs", ["x"], ["later"],
        name="second")], [x], [value("y", F, ["batch", 3])])
    save("defined_twice", [node("Neg", ["x"], ["y"], name="first"), node("Abs", ["x"], ["y"], name="second")], [x],
         [value("y", F, ["batch", 3])])
    huge = TensorProto(name="huge.weight", data_type=F, dims=[1 << 40, 1 << 40], float_data=[1.0])
    save("huge_dims", [node("MatMul", ["x", "huge.weight"], ["y"])], [x], [value("y", F, None)], [huge])
    big = TensorProto(name="big.weight", data_type=F, dims=[1 << 30, 3], float_data=[1.0])
    save("too_few_numbers", [node("MatMul", ["x", "big.weight"], ["y"])], [x], [value("y", F, None)], [big])
    save("unknown_ops", [node("Frobnicate", ["x"], ["a"], name="one"), node("Gizmo", ["a"], ["y"], domain="acme",
        name="two")], [x], [value("y", F, ["batch", 3])], opsets=["acme"])
    loop = [helper.make_function("local", f"F{k}", ["a"], ["b"],
                                 [node(f"F{k + 1}", ["a"], ["t"], domain="local"),
                                  node(f"F{k + 1}", ["t"], ["b"], domain="local")],
                                 [helper.make_opsetid("local", 1)]) for k in range(40)]
    loop.append(helper.make_function("local", "F40", ["a"], ["b"], [node("Neg", ["a"], ["b"])],
                                     [helper.make_opsetid("", 20)]))
    save("unfolding", [node("F0", ["x"], ["y"], domain="local", name="bomb")], [x], [value("y", F, ["batch", 3])],
         functions=loop, opsets=["local"], corpus=False)
    selfish = helper.make_function("local", "Me", ["a"], ["b"], [node("Me", ["a"], ["b"], domain="local")],
                                   [helper.make_opsetid("local", 1)])
    save("calls_itself", [node("Me", ["x"], ["y"], domain="local", name="me")], [x], [value("y", F, ["batch", 3])],
         functions=[selfish], opsets=["local"])
    for name, location, offset, length in (("external_up", "../secret", 0, 48),
                                           ("external_absolute", "/etc/hostname", 0, 48),
                                           ("external_short", "linear.onnx", 1 << 40, 48),
                                           ("external_wrong_length", "linear.onnx", 0, 47)):
        away = TensorProto(name="fc.weight", data_type=F, dims=[4, 3], data_location=TensorProto.EXTERNAL)
        for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
            away.external_data.add(key=key, value=text)
        save(name, [gemm, node("Relu", ["h"], ["y"])], [x], [value("y", F, ["batch", 4])], [away, b])
    # Seeds for the fuzz target alone: older opsets, weights in nodes, attributes and names that are not as the standard
    # has them.
    def seed(name, *arguments, **options):
        save(name, *arguments, **options, data=False)

    constant = node("Constant", [], ["fc.w_0"], value=array("", np.arange(12).reshape(3, 4) / 10))
    then = helper.make_graph([node("Constant", [], ["v"], value=array("", np.eye(4))),
                              node("MatMul", ["h", "v"], ["t"])], "then", [], [value("t", F, None)])
    other = helper.make_graph([node("MatMul", ["h", "stored"], ["e"])], "else", [], [value("e", F, None)],
                              [array("stored", np.eye(4))])
    seed("weights_in_nodes", [constant, node("MatMul", ["x", "fc.w_0"], ["h"]), node("If", ["yes"], ["y"],
        then_branch=then, else_branch=other)],
         [x], [value("y", F, None)], [array("yes", True, bool)])
    statistics = [array(f"bn.{name}", [1, 2, 1]) for name in ("weight", "bias", "running_mean", "running_var")]
    seed("opset_7", [node("BatchNormalization", ["x", *(t.name for t in statistics)], ["b", "m", "v", "s", "t"]),
                     node("Unsqueeze", ["b"], ["u"], axes=[2, 3]),
                     node("Upsample", ["u"], ["w"], scales=[1.0, 1.0, 2.0, 2.0]),
                     node("Pad", ["w"], ["p"], pads=[0, 0, 1, 0, 0, 0, 1, 0], mode="reflect"),
                     node("Slice", ["p"], ["c"], starts=[0], ends=[2], axes=[2]), node("Softmax", ["c"], ["f"]),
                     node("Clip", ["f"], ["g"], min=0.1),
                     node("TopK", ["g"], ["k", "i"], k=1, axis=3), node("Split", ["k"], ["q", "r"], axis=2),
                     node("Dropout", ["q"], ["y", "mask"], ratio=0.5)],
         [x], [value("y", F, None)], statistics, opset=7, ir=3)
    seed("attributes", [node("Transpose", ["x"], ["a"], pesm=[1, 0]), node("Softmax", ["a"], ["b"], axis=1.0),
                        node("Concat", ["b", "b"], ["y"])],
         [x], [value("y", F, None)])
    long = "/" + "Constant_1_output_0" * 200
    seed("long_name", [node("Add", ["x", long], ["y"], name=long)], [x], [value("y", F, None)],
         [array(long, [1, 2, 3])])
    seed("escapes", [node("MatMul", ["x\x1b[2J", "layer\x07.w"], ["y"], name="bad\x1b[31mname\n")],
         [value("x\x1b[2J", F, ["batch", 3])],
         [value("y", F, None)], [array("layer\x07.w", np.eye(4))])
    deep = [helper.make_function("local", f"F{k}", ["a"], ["b"],
                                 [node(f"F{k + 1}" if k < 69 else "Neg", ["a"], ["b"], domain="local" if k < 69
                                       else "")],
                                 [helper.make_opsetid("local", 1), helper.make_opsetid("", 20)]) for k in range(70)]
    seed("deep_functions", [node("F0", ["x"], ["y"], domain="local")], [x], [value("y", F, None)], functions=deep,
         opsets=["local"])
    seed("folding", [node("ConstantOfShape", ["size"], [f"c{k}"]) for k in range(4)]
         + [node("Range", ["zero", "far", "one"], ["r"]),
                     node("Sum", ["c0", "c1", "c2", "c3", "r"], ["s"]), node("ReduceSum", ["s"], ["t"], keepdims=0),
                     node("Add", ["x", "t"], ["y"])],
         [x], [value("y", F, None)],
         [array("size", [3, 1 << 10], np.int64), array("zero", 0.0), array("far", float(1 << 10)), array("one", 1.0)])
    # Loops and branches, of which data ends or decides some.
    body = helper.make_graph(
        [node("Mul", ["s", "fc.weight"], ["m"]), node("Tanh", ["m"], ["t"]), node("Less", ["i", "two"], ["go"]),
         node("SequenceInsert", ["list", "t"], ["longer"])], "body",
        [value("i", I, []), value("c", B, []), value("s", F, None),
         helper.make_tensor_sequence_value_info("list", F, None)],
        [value("go", B, []), value("t", F, None), helper.make_tensor_sequence_value_info("longer", F, None),
         value("t", F, None)])
    save("loop", [node("SequenceEmpty", [], ["none"]), node("Loop", ["four", "", "x", "none"], ["end", "all", "rows"],
        name="turns", body=body), node("ConcatFromSequence", ["all"], ["y"], axis=0),
                  node("ReduceSum", ["rows"], ["z"])],
         [x], [value("y", F, None), value("z", F, None)],
         [array("fc.weight", [0.5, -1, 2]), array("four", 4, np.int64), array("two", 2, np.int64)])
    row = helper.make_graph([node("Add", ["h", "a"], ["n"]), node("Identity", ["n"], ["r"])], "row",
                            [value("h", F, [3]), value("a", F, [3])], [value("n", F, [3]), value("r", F, [3])])
    seed("scan", [node("Scan", ["start", "x"], ["h", "y"], body=row, num_scan_inputs=1, scan_input_directions=[1],
                       scan_output_axes=[-1])], [x], [value("y", F, None)], [array("start", [0.0, 1, 2])])
    log = helper.make_graph([node("Log", ["s"], ["l"]), node("Mul", ["l", "fc.weight"], ["t"])], "log", [],
                            [value("t", F, None)])
    less = helper.make_graph([node("Neg", ["s"], ["e"])], "less", [], [value("e", F, None)])
    turn = helper.make_graph(
        [node("ReduceSum", ["s"], ["sum"], keepdims=0), node("Greater", ["sum", "zero"], ["big"]),
         node("If", ["big"], ["s2"], then_branch=log, else_branch=less, name="choose"), node("Not", ["big"], ["go"])],
        "turn", [value("i", I, []), value("c", B, []), value("s", F, None)],
        [value("go", B, []), value("s2", F, None)])
    seed("data_decides", [node("Loop", ["four", "", "x"], ["y"], body=turn)], [x], [value("y", F, None)],
         [array("fc.weight", [0.5, -1, 2]), array("four", 4, np.int64), array("zero", 0.0)])
    # Of its input's dimensions one is fixed, and none has a name.
    save("nameless", [node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1]),
                      node("GlobalAveragePool", ["c"], ["p"]), node("Flatten", ["p"], ["f"]),
                      node("Gemm", ["f", "fc.weight", "fc.bias"], ["y"])],
         [value("x", F, [None, 3, None, None])], [value("y", F, [None, 2])],
         [array("conv.weight", np.linspace(-1, 1, 108).reshape(4, 3, 3, 3)), array("conv.bias", [0.5, 1, -1, 0.25]),
          array("fc.weight", np.linspace(-1, 1, 8).reshape(4, 2)), array("fc.bias", [0, 1])], corpus=False)
    # Nothing is said of its input but its type.
    save("rankless", [node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1]),
                      node("GlobalAveragePool", ["c"], ["p"]), node("Flatten", ["p"], ["f"]),
                      node("Gemm", ["f", "fc.weight", "fc.bias"], ["y"])],
         [value("x", F, None)], [value("y", F, None)],
         [array("conv.weight", np.linspace(-1, 1, 108).reshape(4, 3, 3, 3)), array("conv.bias", [0.5, 1, -1, 0.25]),
          array("fc.weight", np.linspace(-1, 1, 8).reshape(4, 2)), array("fc.bias", [0, 1])], corpus=False)
    # Its inputs have the name that the target has as a rule.
    save("target_input", [node("Concat", ["x", "target"], ["c"], axis=1),
                          node("Gemm", ["c", "fc.weight", "fc.bias"], ["y"])],
         [value("x", F, ["batch", 2]), value("target", F, ["batch", 1])], [value("y", F, ["batch", 2])],
         [array("fc.weight", np.linspace(-1, 1, 6).reshape(3, 2)), array("fc.bias", [0, 1])], corpus=False)
    save("opset_old", [node("Neg", ["x"], ["y"])], [x], [value("y", F, ["batch", 3])], opset=6)
    save("wrong_type", [node("Add", ["x", "whole"], ["y"], name="sum")], [x], [value("y", F, ["batch", 3])],
         [array("whole", [1, 2, 3], np.int64)])
    save("baked_batch", [node("Reshape", ["x", "shape"], ["y"], name="flatten")], [x], [value("y", F, [12])],
         [array("shape", [12], np.int64)])
    data = (DATA / "linear.onnx").read_bytes()
    put(DATA / "truncated.onnx", data[: len(data) * 2 // 3])


main()
