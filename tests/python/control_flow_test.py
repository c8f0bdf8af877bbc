"""Loops and branches: what a graph with If, Loop, Scan or SequenceMap computes is compared with onnxruntime, and its
gradients with central differences of what onnxruntime computes. Everything is float64.

Prints `N passed, N failed, N skipped` as its last line.
"""
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import epl_api
from epl_api import INPUT, OUTPUT, PREDICT, TRAIN, EplError

DOUBLE, INT64, BOOL = TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL
onnxruntime.set_default_logger_severity(4)


def value(name, kind=DOUBLE, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def missing(op, inputs, outputs, **attributes):
    """As node, with - for an input that is left out."""
    return helper.make_node(op, ["" if i == "-" else i for i in inputs.split()], outputs.split(), **attributes)


def graph(nodes, inputs, outputs, weights=(), name="g"):
    tensors = [numpy_helper.from_array(np.asarray(w), n) for n, w in dict(weights).items()]
    return helper.make_graph(nodes, name, inputs, outputs, tensors)


def number(x, name):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(x), name))


def model(nodes, inputs, outputs, weights, opset=16, functions=(), domains=()):
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    made = helper.make_model(graph(nodes, inputs, outputs, weights, "m"), opset_imports=imports, functions=functions)
    made.ir_version = 8 if opset > 8 else 4
    onnx.checker.check_model(made)
    return made


R = np.random.default_rng(7)


def draw(*shape):
    return R.normal(0, 0.7, shape)


class Case:
    def __init__(self, made, rows, trainable=None, settings=(), inner=()):
        self.model, self.rows, self.settings = made, rows, dict(settings)
        self.trainable = trainable or [t.name for t in made.graph.initializer if t.data_type == DOUBLE and t.dims]
        self.inner = list(inner)  # (graph, name) of the weights that graphs hold


# --- Loops whose end is known -----------------------------------------------------------------------------------------
def keras_gru(outer_weights=False):
    """As tf2onnx writes a Keras RNN: the steps come from a tensor outside, weights are states, the condition is i < n
    twice, and each step's output is a scan output."""
    hidden, steps = 3, 4
    body = graph(
        [node("MatMul", "h r_in", "hr"), node("Add", "i one", "i_next"), node("Gather", "steps i", "step", axis=0),
         node("MatMul", "step k_in", "sk"), node("Add", "sk b_in", "skb"),
         node("Slice", "skb s0 s3 axes1", "z_x"), node("Slice", "hr s0 s3 axes1", "z_h"),
         node("Add", "z_x z_h", "z_sum"), node("Sigmoid", "z_sum", "z"),
         node("Slice", "skb s3 s6 axes1", "c_x"), node("Slice", "hr s3 s6 axes1", "c_h"),
         node("Add", "c_x c_h", "c_sum"), node("Tanh", "c_sum", "c"),
         node("Sub", "unit z", "z_not"), node("Mul", "z_not c", "zc"), node("Mul", "z h", "zh"),
         node("Add", "zc zh", "h_next"), node("Identity", "h_next", "h_row"),
         node("Less", "n_i limit", "less0"), node("Less", "i_next limit", "less1"), node("And", "less0 less1", "go")],
        [value("n_i", INT64, []), value("c_in", BOOL, []), value("i", INT64, []), value("h"), value("k_in"),
         value("r_in"), value("b_in")],
        [value("go", BOOL, []), value("i_next", INT64, []), value("h_next"), value("k_in"), value("r_in"),
         value("b_in"), value("h_row")],
        {"one": np.int64(1), "s0": np.int64([0]), "s3": np.int64([3]), "s6": np.int64([6]), "axes1": np.int64([1]),
         "unit": np.float64(1), "limit": np.int64(steps)})
    nodes = [node("Transpose", "x", "steps", perm=[1, 0, 2]), node("Shape", "x", "shape"),
             node("Gather", "shape zero", "batch"), node("Unsqueeze", "batch axis0", "batch1"),
             node("Concat", "batch1 hidden", "h_shape", axis=0), node("Expand", "start h_shape", "h0"),
             node("Less", "zero steps_n", "runs"), node("And", "runs runs", "first"),
             node("Loop", "most first zero h0 kernel recurrent bias", "i_end h_end k_end r_end b_end rows",
                  body=body),
             node("Slice", "rows last end axis0", "last_row"), node("Squeeze", "last_row axis0", "h_last"),
             node("MatMul", "h_last dense", "y")]
    weights = {"kernel": draw(2, 6), "recurrent": draw(hidden, 6), "bias": draw(6), "dense": draw(hidden, 2),
               "zero": np.int64(0), "steps_n": np.int64(steps), "most": np.int64(steps), "axis0": np.int64([0]),
               "hidden": np.int64([hidden]), "start": np.zeros((1, 1)), "last": np.int64([-1]),
               "end": np.int64([2**31 - 1])}
    return Case(model(nodes, [value("x", shape=["n", steps, 2])], [value("y", shape=["n", 2])], weights),
                [{"x": draw(3, steps, 2)}], ["kernel", "recurrent", "bias", "dense"])


def endless_count():
    """No end by a count: the condition i < n follows from a shape."""
    body = graph([node("Add", "i one", "i_next"), node("Less", "i_next n", "go"), node("Gather", "x i", "c", axis=1),
                  node("Mul", "c w", "cw"), node("Tanh", "cw", "t"), node("Add", "s t", "s_next")],
                 [value("k", INT64, []), value("c_in", BOOL, []), value("i", INT64, []), value("s")],
                 [value("go", BOOL, []), value("i_next", INT64, []), value("s_next")])
    nodes = [node("Shape", "x", "shape"), node("Gather", "shape one", "n"), node("Less", "zero n", "first"),
             node("Loop", "most first zero s0", "i_end y", body=body)]
    weights = {"w": draw(1, 3), "zero": np.int64(0), "one": np.int64(1), "most": np.int64(2**63 - 1),
               "s0": np.zeros((2, 3))}
    return Case(model(nodes, [value("x", shape=[2, 5, 3])], [value("y", shape=[2, 3])], weights),
                [{"x": draw(2, 5, 3)}], ["w"])


def no_count():
    body = graph([node("Mul", "s w", "m"), node("Tanh", "m", "s_next"), node("Less", "i three", "go")],
                 [value("i", INT64, []), value("c_in", BOOL, []), value("s")],
                 [value("go", BOOL, []), value("s_next")])
    nodes = [missing("Loop", "- - x", "y", body=body)]
    return Case(model(nodes, [value("x", shape=[2, 3])], [value("y", shape=[2, 3])],
                      {"w": draw(1, 3), "three": np.int64(3)}), [{"x": draw(2, 3)}], ["w"])


def sequence():
    """A list that grows, as PyTorch's scripting writes `out.append(h)`; torch.stack after the loop."""
    item = helper.make_tensor_sequence_value_info
    body = graph([node("Gather", "x i", "c", axis=1), node("Add", "h c", "hc"), node("MatMul", "hc w", "m"),
                  node("Tanh", "m", "h_next"), node("SequenceInsert", "list h_next", "list_next"),
                  node("Identity", "c_in", "go")],
                 [value("i", INT64, []), value("c_in", BOOL, []), value("h"), item("list", DOUBLE, None)],
                 [value("go", BOOL, []), value("h_next"), item("list_next", DOUBLE, None)])
    nodes = [node("SequenceEmpty", "", "empty", dtype=DOUBLE), number(True, "yes"),
             node("Loop", "four yes h0 empty", "h_end all", body=body),
             node("ConcatFromSequence", "all", "stacked", axis=1, new_axis=1), node("SequenceAt", "all two", "third"),
             node("ReduceSum", "stacked ones", "sums", keepdims=0), node("Add", "sums third", "y")]
    weights = {"w": draw(3, 3), "four": np.int64(4), "h0": np.zeros((2, 3)), "two": np.int64(2), "ones": np.int64([1])}
    return Case(model(nodes, [value("x", shape=[2, 4, 3])], [value("y", shape=[2, 3])], weights),
                [{"x": draw(2, 4, 3)}], ["w"])


def nested():
    """A loop in a loop; the inner one has a weight of its own, and reads one of the outermost graph."""
    inner = graph([node("Mul", "t inner_w", "a"), node("Add", "a w", "b"), node("Tanh", "b", "t_next"),
                   node("Identity", "c2", "go2")],
                  [value("j", INT64, []), value("c2", BOOL, []), value("t")],
                  [value("go2", BOOL, []), value("t_next")], {"inner_w": draw(3)})
    outer = graph([node("Add", "i one", "turns"), node("Loop", "turns c1 s", "t_end", body=inner),
                   node("Identity", "c1", "go1"), node("Identity", "t_end", "row")],
                  [value("i", INT64, []), value("c1", BOOL, []), value("s")],
                  [value("go1", BOOL, []), value("t_end"), value("row")])
    nodes = [number(True, "yes"), node("Loop", "three yes x", "end rows", body=outer),
             node("ReduceSum", "rows axis", "sums", keepdims=0), node("Add", "sums end", "y")]
    weights = {"w": draw(1, 3), "three": np.int64(3), "one": np.int64(1), "axis": np.int64([0])}
    made = model(nodes, [value("x", shape=[2, 3])], [value("y", shape=[2, 3])], weights)
    body = made.graph.node[1].attribute[0].g.node[1].attribute[0].g
    return Case(made, [{"x": draw(2, 3)}], ["w", "inner_w"], inner=[(body, "inner_w")])


def in_function():
    body = graph([node("MatMul", "s m", "a"), node("Tanh", "a", "s_next"), node("Identity", "c", "go")],
                 [value("i", INT64, []), value("c", BOOL, []), value("s")],
                 [value("go", BOOL, []), value("s_next")])
    function = helper.make_function("own", "Repeat", ["v", "m", "count"], ["out"],
                                    [number(True, "yes"), node("Loop", "count yes v", "out", body=body)],
                                    [helper.make_opsetid("", 16)])
    nodes = [helper.make_node("Repeat", ["x", "w1", "two"], ["a"], domain="own"),
             helper.make_node("Repeat", ["a", "w2", "three"], ["y"], domain="own")]
    return Case(model(nodes, [value("x", shape=[2, 3])], [value("y", shape=[2, 3])],
                      {"w1": draw(3, 3), "w2": draw(3, 3), "two": np.int64(2), "three": np.int64(3)},
                      functions=[function], domains=["own"]), [{"x": draw(2, 3)}], ["w1", "w2"])


def no_iteration():
    body = graph([node("Mul", "s w", "s_next"), node("Identity", "c", "go"), node("Identity", "s_next", "row")],
                 [value("i", INT64, []), value("c", BOOL, []), value("s", shape=[2, 3])],
                 [value("go", BOOL, []), value("s_next", shape=[2, 3]), value("row", shape=[2, 3])])
    nodes = [number(True, "yes"), node("Loop", "none yes x", "end rows", body=body),
             node("ReduceSum", "rows axis", "sums", keepdims=0), node("Add", "end sums", "a"), node("Mul", "a w", "y")]
    return Case(model(nodes, [value("x", shape=[2, 3])], [value("y", shape=[2, 3])],
                      {"w": draw(1, 3), "none": np.int64(0), "axis": np.int64([0])}), [{"x": draw(2, 3)}], ["w"])


# --- Loops whose end data knows ---------------------------------------------------------------------------------------
def until_small():
    """Halves until it is small. Where the loop is over, the square root's argument is below zero, and its gradient and
    that of the logarithm are not finite."""
    body = graph([node("Sub", "s quarter", "low"), node("Sqrt", "low", "root"), node("Mul", "root w", "a"),
                  node("Log", "low", "logs"), node("Mul", "logs small", "b"), node("Add", "a b", "ab"),
                  node("Abs", "ab", "s_next"),
                  node("ReduceMin", "s_next", "least", keepdims=0), node("Greater", "least bound", "go")],
                 [value("i", INT64, []), value("c", BOOL, []), value("s")],
                 [value("go", BOOL, []), value("s_next")])
    nodes = [node("ReduceMin", "x", "first_least", keepdims=0), node("Greater", "first_least bound", "first"),
             missing("Loop", "- first x", "end", body=body), node("Mul", "end w", "y")]
    weights = {"w": np.abs(draw(1, 3)) + 0.8, "quarter": np.float64(0.3), "small": np.float64(0.05),
               "bound": np.float64(0.45)}
    rows = [{"x": np.array([[3.0, 4.0, 5.0], [2.5, 7.0, 6.0]])}, {"x": np.array([[0.2, 0.1, 0.4], [0.3, 0.2, 0.1]])},
            {"x": np.array([[0.9, 1.0, 1.1], [0.8, 0.9, 1.0]])}]
    return Case(model(nodes, [value("x", shape=[2, 3])], [value("y", shape=[2, 3])], weights), rows, ["w"],
                {"max_trip_count": "8"})


def early_exit():
    """A count that is known, and an exit by data before it: needs no option."""
    made = until_small().model
    loop = made.graph.node[2]
    loop.input[0] = "six"
    made.graph.initializer.append(numpy_helper.from_array(np.int64(6), "six"))
    return Case(made, until_small().rows, ["w"])


def count_of_data():
    """An input says how many iterations there are."""
    body = graph([node("MatMul", "s w", "a"), node("Tanh", "a", "s_next"), node("Identity", "c", "go")],
                 [value("i", INT64, []), value("c", BOOL, []), value("s")],
                 [value("go", BOOL, []), value("s_next")])
    nodes = [number(True, "yes"), node("Loop", "n yes x", "y", body=body)]
    rows = [{"x": draw(2, 3), "n": np.array(k, np.int64)} for k in (0, 1, 3, 5)]
    return Case(model(nodes, [value("x", shape=[2, 3]), value("n", INT64, [])], [value("y", shape=[2, 3])],
                      {"w": draw(3, 3)}), rows, ["w"], {"max_trip_count": "other=1,nod*=3,5"})


# --- Branches ---------------------------------------------------------------------------------------------------------
def branch_of_data():
    """What is not taken has a gradient that is not finite: log and sqrt of negative numbers, and 0 / 0."""
    yes = graph([node("Log", "x", "l"), node("Sqrt", "x", "q"), node("Add", "l q", "lq"), node("Mul", "lq w", "a"),
                 node("Sub", "x x", "zero"), node("Mul", "a own_w", "y1")], [], [value("y1")],
                {"own_w": draw(1, 3)})
    no = graph([node("Neg", "x", "n"), node("Sqrt", "n", "r"), node("MatMul", "r v", "b"), node("Mul", "b w", "y2")],
               [], [value("y2")])
    nodes = [node("ReduceSum", "x", "sum", keepdims=0), node("Greater", "sum zero_", "positive"),
             node("If", "positive", "y", then_branch=yes, else_branch=no)]
    made = model(nodes, [value("x", shape=[2, 3])], [value("y", shape=[2, 3])],
                 {"w": draw(1, 3), "v": draw(3, 3), "zero_": np.float64(0)})
    rows = [{"x": np.abs(draw(2, 3)) + 0.1}, {"x": -np.abs(draw(2, 3)) - 0.1}]
    branch = next(a.g for a in made.graph.node[2].attribute if a.name == "then_branch")
    return Case(made, rows, ["w", "v", "own_w"], inner=[(branch, "own_w")])


def loop_in_branch():
    """Of weights that a loop in a branch holds, in a Constant and as an initialiser."""
    matrix = draw(3, 3)
    body = graph([node("Log", "s", "l"), number(matrix, "held"), node("MatMul", "l held", "m"),
                  node("Mul", "m inner_w", "p"),
                  node("Exp", "p", "s_next"), node("Identity", "c", "go")],
                 [value("i", INT64, []), value("c", BOOL, []), value("s")],
                 [value("go", BOOL, []), value("s_next")], {"inner_w": draw(3)}, "body")
    yes = graph([number(True, "yes"), node("Loop", "two yes x", "z1", body=body)], [], [value("z1")])
    no = graph([node("Neg", "x", "z2")], [], [value("z2")])
    nodes = [node("ReduceSum", "x", "sum", keepdims=0), node("Greater", "sum zero_", "positive"),
             node("If", "positive", "z", then_branch=yes, else_branch=no), node("Mul", "z w", "y")]
    made = model(nodes, [value("x", shape=[2, 3])], [value("y", shape=[2, 3])],
                 {"w": draw(1, 3), "two": np.int64(2), "zero_": np.float64(0)})
    branch = next(a.g for a in made.graph.node[2].attribute if a.name == "then_branch")
    loop = branch.node[1].attribute[0].g
    rows = [{"x": np.abs(draw(2, 3)) + 0.5}, {"x": -np.abs(draw(2, 3)) - 0.1}]
    return Case(made, rows, ["w", "inner_w", "held"], inner=[(loop, "inner_w"), (loop, "held")])


def branch_of_branches():
    """An If in an If in a Loop, two of three conditions by data."""
    deep = [graph([node(op, "s", "d"), node("Mul", "d w", f"z{k}")], [], [value(f"z{k}")], name=f"deep{k}")
            for k, op in enumerate(("Sqrt", "Exp"))]
    outer = graph([node("ReduceMax", "s", "most", keepdims=0), node("Less", "most two", "low"),
                   node("If", "low", "u1", then_branch=deep[0], else_branch=deep[1])], [], [value("u1")])
    other = graph([node("Mul", "s v", "u2")], [], [value("u2")])
    body = graph([node("ReduceMin", "s", "least", keepdims=0), node("Greater", "least one_", "high"),
                  node("If", "high", "u", then_branch=outer, else_branch=other), node("Add", "u x", "ux"),
                  node("Equal", "i zero", "odd"),
                  node("If", "odd", "s_next", then_branch=graph([node("Identity", "ux", "p")], [], [value("p")]),
                       else_branch=graph([node("Mul", "ux v", "q")], [], [value("q")])), node("Identity", "c", "go")],
                 [value("i", INT64, []), value("c", BOOL, []), value("s")],
                 [value("go", BOOL, []), value("s_next")])
    nodes = [number(True, "yes"), node("Loop", "three yes x", "y", body=body)]
    weights = {"w": draw(1, 3), "v": draw(1, 3), "three": np.int64(3), "zero": np.int64(0), "two": np.float64(2),
               "one_": np.float64(1)}
    rows = [{"x": np.abs(draw(2, 3)) + a} for a in (1.2, 2.5, 0.1)] + [{"x": -np.abs(draw(2, 3))}]
    return Case(model(nodes, [value("x", shape=[2, 3])], [value("y", shape=[2, 3])], weights), rows, ["w", "v"])


# --- Scan -------------------------------------------------------------------------------------------------------------
def scan():
    body = graph([node("MatMul", "a w", "aw"), node("Add", "aw h", "s"), node("Mul", "s b", "sb"),
                  node("Tanh", "sb", "h_next"),
                  node("Identity", "h_next", "row"), node("Neg", "h_next", "row2")],
                 [value("h"), value("a"), value("b")],
                 [value("h_next"), value("row"), value("row2")])
    nodes = [node("Scan", "h0 x z", "end rows rows2", body=body, num_scan_inputs=2, scan_input_axes=[1, -1],
                  scan_input_directions=[1, 0], scan_output_axes=[1, -1], scan_output_directions=[0, 1]),
             node("ReduceSum", "rows axis1", "sums", keepdims=0), node("Gather", "rows2 one", "second", axis=2),
             node("Add", "sums second", "t"), node("Add", "t end", "y")]
    weights = {"w": draw(3, 3), "h0": np.zeros((2, 3)), "axis1": np.int64([1]), "one": np.int64(1)}
    return Case(model(nodes, [value("x", shape=[2, 4, 3]), value("z", shape=[2, 3, 4])], [value("y", shape=[2, 3])],
                      weights), [{"x": draw(2, 4, 3), "z": draw(2, 3, 4)}], ["w"])


def scan_8(lengths):
    body = graph([node("MatMul", "a w", "aw"), node("Add", "aw h", "s"), node("Tanh", "s", "h_next"),
                  node("Identity", "h_next", "row")],
                 [value("h", shape=[1, 3]), value("a", shape=[1, 3])],
                 [value("h_next", shape=[1, 3]), value("row", shape=[1, 3])])
    nodes = [missing("Scan", f"{'lengths' if lengths else '-'} h0 x", "end rows", body=body, num_scan_inputs=1,
                     directions=[1] if not lengths else [0]),
             node("ReduceSum", "rows", "sums", keepdims=0, axes=[1]), node("Add", "sums end", "y")]
    weights = {"w": draw(3, 3), "h0": np.zeros((2, 1, 3))}
    if lengths:
        weights["lengths"] = np.int64([4, 2])
    return Case(model(nodes, [value("x", shape=[2, 4, 1, 3])], [value("y", shape=[2, 1, 3])], weights, opset=8),
                [{"x": draw(2, 4, 1, 3)}], ["w"])


def map_sequence():
    item = helper.make_tensor_sequence_value_info
    body = graph([node("MatMul", "a w", "aw"), node("Tanh", "aw", "out")], [value("a", shape=[2, 3])],
                 [value("out", shape=[2, 3])])
    nodes = [node("SplitToSequence", "x", "parts", axis=1, keepdims=0),
             node("SequenceMap", "parts", "mapped", body=body),
             node("ConcatFromSequence", "mapped", "all", axis=1, new_axis=1),
             node("ReduceSum", "all one", "y", keepdims=0)]
    return Case(model(nodes, [value("x", shape=[2, 4, 3])], [value("y", shape=[2, 3])],
                      {"w": draw(3, 3), "one": np.int64([1])}, opset=17), [{"x": draw(2, 4, 3)}], ["w"])


COMPUTED = {"keras_gru": keras_gru, "endless_count": endless_count, "no_count": no_count, "sequence": sequence,
            "nested": nested, "in_function": in_function, "no_iteration": no_iteration, "until_small": until_small,
            "early_exit": early_exit, "count_of_data": count_of_data, "branch_of_data": branch_of_data,
            "loop_in_branch": loop_in_branch, "branch_of_branches": branch_of_branches, "scan": scan,
            "scan_8": lambda: scan_8(False), "scan_8_lengths": lambda: scan_8(True), "map_sequence": map_sequence}


def weight(case, name):
    for place, key in case.inner:
        if key == name:
            constants = [n.attribute[0].t for n in place.node if n.op_type == "Constant" and n.output[0] == name]
            return next(t for t in [*place.initializer, *constants] if t.name == name)
    return next(t for t in case.model.graph.initializer if t.name == name)


def run(case, row):
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, row)[0]


def difference(case, row, target, name, at, step=1e-5):
    """The central difference of the loss by one element of a weight."""
    tensor, out = weight(case, name), []
    first = numpy_helper.to_array(tensor).copy()
    for sign in (1, -1):
        moved = first.copy()
        moved.flat[at] += sign * step
        tensor.CopyFrom(numpy_helper.from_array(moved, name))
        out.append(np.mean((run(case, row) - target) ** 2))
    tensor.CopyFrom(numpy_helper.from_array(first, name))
    return (out[0] - out[1]) / (2 * step)


def plan_of(api, case, row, target, lr="0"):
    trainer = api.trainer({"loss": "mse", "optimizer": "sgd", "optimizer.lr": lr, "keep_gradients": "true",
                           **case.settings}, case.trainable)
    for name, array in {**row, "target": target}.items():
        api.bind(trainer, name, np.shape(array), 2 if name == "target" else 0)
    return api.plan(api.model_bytes(case.model.SerializeToString()), trainer)


def compare(api, case):
    target = draw(*run(case, case.rows[0]).shape)
    plan = plan_of(api, case, case.rows[0], target)
    session = api.session(plan)
    for k, row in enumerate(case.rows):
        feeds = {**row, "target": target}
        expected = run(case, row)
        got = api.predict(session, [row[n] for n in api.ports(plan, PREDICT, INPUT)],
                          len(api.ports(plan, PREDICT, OUTPUT)))[0]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12, err_msg=f"row {k}")
        loss = api.step(session, [feeds[n] for n in api.ports(plan, TRAIN, INPUT)])
        assert abs(loss - np.mean((expected - target) ** 2)) <= 1e-12 * (1 + abs(loss)), f"row {k}: loss {loss}"
        for name in case.trainable:
            gradient = api.array(api.make("tensor", "epl_session_get", session, epl_api.text(f"{name}.gradient"), None))
            wanted = np.array([difference(case, row, target, name, i) for i in range(gradient.size)])
            np.testing.assert_allclose(gradient.ravel(), wanted, rtol=2e-7, atol=2e-8,
                                       err_msg=f"row {k}: gradient of {name}")


    with tempfile.TemporaryDirectory() as folder:
        exported(api, case, target, pathlib.Path(folder) / "trained.onnx")


def exported(api, case, target, path):
    """What was trained is in the file, wherever the file has it."""
    row = case.rows[-1]
    plan = plan_of(api, case, row, target, "0.05")
    session = api.session(plan)
    api.step(session, [{**row, "target": target}[n] for n in api.ports(plan, TRAIN, INPUT)])
    api.call("epl_session_export_onnx", session, epl_api.text(str(path)), None)
    own = api.predict(session, [row[n] for n in api.ports(plan, PREDICT, INPUT)],
                      len(api.ports(plan, PREDICT, OUTPUT)))[0]
    theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, row)[0]
    np.testing.assert_allclose(theirs, own, rtol=1e-12, atol=1e-12, err_msg="the trained file")
    assert not np.array_equal(own, run(case, row)), "nothing was trained"


# --- What is refused, with what helps ---------------------------------------------------------------------------------
def refused(api, case, *words):
    row = case.rows[0]
    try:
        plan_of(api, case, row, draw(2, 3))
    except EplError as e:
        assert all(word in str(e) for word in words), f"the message lacks one of {words}: {e}"
        return
    raise AssertionError("it is not refused")


def unknown_end(api):
    case = until_small()
    case.settings = {}
    refused(api, case, "max_trip_count", "--max-trip-count N", '"x"')


def too_long(api):
    case = no_count()
    case.settings = {"max_trip_count": "2"}
    refused(api, case, "unrolled up to 2", "--max-trip-count N")


def long_count(api):
    case = sequence()
    next(t for t in case.model.graph.initializer if t.name == "four").CopyFrom(
        numpy_helper.from_array(np.int64(5000), "four"))
    refused(api, case, "a loop of 5000 iterations is unrolled up to 1024", "max_trip_count")


def other_shapes(api):
    yes = graph([node("Identity", "x", "a")], [], [value("a")])
    no = graph([node("Concat", "x x", "b", axis=0)], [], [value("b")])
    nodes = [node("ReduceSum", "x", "sum", keepdims=0), node("Greater", "sum zero_", "positive"),
             node("If", "positive", "y0", then_branch=yes, else_branch=no), node("Mul", "y0 w", "y")]
    weights = {"w": draw(1, 3), "zero_": np.float64(0)}
    case = Case(model(nodes, [value("x", shape=[2, 3])], [value("y", shape=["k", 3])], weights),
                [{"x": draw(2, 3)}], ["w"])
    refused(api, case, "f64[2,3] or f64[4,3]", 'input "x"', "--value NAME=V")


def rows_of_data(api):
    """How many rows a loop gives is what data says: named, and with a bound that many, the last of them zero."""
    case = early_exit()
    body = case.model.graph.node[2].attribute[0].g
    body.output.append(value("s_next"))
    case.model.graph.node[2].output.append("rows")
    del case.model.graph.node[3:]
    case.model.graph.node.append(node("ReduceSum", "rows axis0", "y", keepdims=0))
    case.model.graph.initializer.append(numpy_helper.from_array(np.int64([0]), "axis0"))
    refused(api, case, "max_trip_count", "rows")
    case.settings = {"max_trip_count": "6"}
    compare(api, case)


def statistics(api):
    """A batch norm learns its running statistics from the batches that take its branch, and from no others."""
    yes = graph([node("BatchNormalization", "x scale bias mean var", "n m v", training_mode=1, momentum=0.5),
                 node("Mul", "n w", "y1")], [], [value("y1")])
    no = graph([node("Mul", "x w", "y2")], [], [value("y2")])
    nodes = [node("ReduceSum", "x", "sum", keepdims=0), node("Greater", "sum zero_", "positive"),
             node("If", "positive", "y", then_branch=yes, else_branch=no)]
    made = model(nodes, [value("x", shape=[4, 3])], [value("y", shape=[4, 3])],
                 {"w": draw(1, 3), "scale": np.ones(3), "bias": np.zeros(3), "mean": np.zeros(3), "var": np.ones(3),
                  "zero_": np.float64(0)})
    x, target = draw(4, 3), draw(4, 3)
    up, down = x + 3, x - 3
    case = Case(made, [{"x": up}], ["w"])
    plan = plan_of(api, case, {"x": up}, target)
    session = api.session(plan)
    mean = np.zeros(3)
    for batch in (down, up, down, up):
        feeds = {"x": batch, "target": target}
        api.step(session, [feeds[n] for n in api.ports(plan, TRAIN, INPUT)])
        mean = 0.5 * mean + 0.5 * batch.mean(0) if batch is up else mean
        learnt = api.array(api.make("tensor", "epl_session_get", session, epl_api.text("mean"), None))
        np.testing.assert_allclose(learnt, mean, rtol=1e-12, atol=1e-12)


def count_above_bound(api):
    """More iterations than the loop is unrolled for: refused before the step, and never cut in silence."""
    case = count_of_data()
    case.settings = {"max_trip_count": "3"}
    target = draw(2, 3)
    plan = plan_of(api, case, case.rows[0], target)
    session = api.session(plan)
    for call in ("step", "predict"):
        feeds = {"x": case.rows[0]["x"], "n": np.array(4, np.int64), "target": target}
        kind = TRAIN if call == "step" else PREDICT
        tensors = [feeds[n] for n in api.ports(plan, kind, INPUT)]
        try:
            api.step(session, tensors) if call == "step" else api.predict(session, tensors, 1)
        except EplError as e:
            words = ("input n holds 4", "the 3 iterations", "the loop y", "--max-trip-count N")
            assert all(word in str(e) for word in words), f"{call}: the message lacks one of {words}: {e}"
            continue
        raise AssertionError(f"{call}: it is not refused")


OTHERS = (statistics, unknown_end, too_long, long_count, other_shapes, rows_of_data, count_above_bound)


def main():
    api = epl_api.Api()
    wanted = sys.argv[1:]
    passed, failed = 0, 0
    checks = {name: (lambda make=make: compare(api, make())) for name, make in COMPUTED.items()}
    checks |= {check.__name__: (lambda check=check: check(api)) for check in OTHERS}
    for name, check in checks.items():
        if wanted and name not in wanted:
            continue
        try:
            check()
            passed += 1
        except Exception as e:  # noqa: BLE001
            failed += 1
            print(f"FAIL {name}: {type(e).__name__}: {str(e)[:1500]}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
