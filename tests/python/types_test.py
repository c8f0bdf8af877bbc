"""Operators whose operands may have different types: every pair of types that the standard allows, against onnxruntime,
and against NumPy's float64 where onnxruntime lacks the pair.

    python tests/python/types_test.py [NAME...]

What is computed must have the digits of the wider type, and the type that the standard gives the result.
Prints `N passed, N failed, N skipped` as its last line.
"""
import sys

import ml_dtypes  # comes with onnx
import numpy as np
import onnx
import onnxruntime
from onnx import helper

import epl_api
from epl_api import OUTPUT, PREDICT

FLOATS = ["float16", "float32", "float64"]
SIGNED = ["int32", "int64"]
SMALL = ["int8", "uint8", "int16", "uint16"]
INTS = SMALL + SIGNED + ["uint32", "uint64"]
SLACK = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-12}


def array(values, dtype):
    return np.array(values).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def code(value):
    return helper.np_dtype_to_tensor_dtype(value.dtype)


def model_of(op, feeds, opset, attributes, constants=(), outputs=("y",)):
    names = list(feeds)
    node = helper.make_node(op, names, list(outputs), name="node", **attributes)
    inputs = [helper.make_tensor_value_info(n, code(v), v.shape) for n, v in feeds.items() if n not in constants]
    stored = [helper.make_tensor(n, code(feeds[n]), feeds[n].shape, feeds[n].tobytes(), raw=True) for n in constants]
    graph = helper.make_graph([node], "main", inputs, [helper.make_empty_tensor_value_info("y")], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def onnxruntime_of(model, feeds):
    """None where onnxruntime has no kernel for these types."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        wanted = {i.name for i in session.get_inputs()}
        return session.run(None, {
  n: v for n, v in feeds.items() if n in wanted})[0]
    except Exception:  # of many kinds: the type is unknown, the kernel is missing, a feed cannot be given
        return None


def cases():
    """(label, op, opset, feeds, attributes, constants, what NumPy gives or None, whether onnxruntime is asked)."""
    for base in FLOATS + SIGNED + ["bfloat16"]:
        for exponent in FLOATS + INTS + ["bfloat16"]:
            real = "float" in exponent
            x = array([4, 9, 16, 2, 25, 1], base)
            y = array([0.5, 1.5, 2, 0.5, -0.5, 3] if real else [1, 2, 3, 3, 0, 2], exponent)
            wanted = np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)
            for constants in ((), ("e",)):
                yield (f"Pow {base} {exponent}{' known' * bool(constants)}", "Pow", 15, {"x": x, "e": y}, {}, constants,
                       wanted, base != "bfloat16" and exponent != "bfloat16")
#An exponent that the base's type does not hold, and digits that it does.
    yield ("Pow float16 huge", "Pow", 15, {"x": array([1, 0.5], "float16"), "e": array([70000, 70001], "int64")}, {},
           ("e",), array([1, 0], "float16"), True)
    yield ("Pow float32 digits", "Pow", 15,
           {"x": array([1.0000001, 1], "float32"), "e": array([16777217, 16777217], "int64")}, {}, ("e",),
           np.power(array([1.0000001, 1], "float32").astype(np.float64), 16777217.0).astype(np.float32), False)
    yield ("Pow int64 digits", "Pow", 15, {"x": array([3], "int64"), "e": array([39], "int32")}, {}, (),
           np.array([3 ** 39], np.int64), False)  # onnxruntime computes it in float64
    for x in ("float32", "float16"):
        for zero in ("uint8", "int8", "uint16", "int16"):
            span = np.iinfo(zero)
            values = array([-3.2, 0.1, 2.55, 1000, -1000], x)
            scale, point = array(0.25, x), array((span.max + span.min) // 2 + 3, zero)
            ours = np.clip(np.round(values.astype(np.float64) / 0.25) + float(point), span.min, span.max).astype(zero)
            yield (f"QuantizeLinear {x} {zero}", "QuantizeLinear", 21, {"x": values, "scale": scale, "zero": point}, {},
                   (), ours, True)
    yield ("QuantizeLinear mixed", "QuantizeLinear", 23,
           {"x": array([6000.0, 3.0], "float16"), "scale": array(1e-2, "float32"), "zero": array(7, "uint16")}, {}, (),
           np.array([65535, 307], np.uint16), False)
    yield ("QuantizeLinear int32", "QuantizeLinear", 21,
           {"x": array([1000, -3], "int32"), "scale": array(0.5, "float32"), "zero": array(3, "int16")}, {}, (),
           np.array([2003, -3], np.int16), False)
    for x in ("uint8", "int8", "uint16", "int16", "int32"):
        for scale in ("float32", "float16", "bfloat16"):
            span = np.iinfo(x)
            values = array([span.min if x != "int32" else -100000, 0, 7, span.max if x != "int32" else 100000], x)
            feeds = {"x": values, "scale": array(1e-3, scale)}
            zero = 0
            if x != "int32":
                zero = int(span.max if span.min == 0 else span.min)
                feeds["zero"] = array(zero, x)
            ours = ((values.astype(np.float64) - zero) * feeds["scale"].astype(np.float64)).astype(feeds["scale"].dtype)
            yield (f"DequantizeLinear {x} {scale}", "DequantizeLinear", 21, feeds, {}, (), ours, scale != "bfloat16")
    for x in SMALL + SIGNED:
        values = array([[[[10, 20], [30, 41]]]], x)
        for mode in ("linear", "nearest"):
            feeds = {"x": values, "roi": array([], "float32"), "scales": array([1, 1, 2, 2], "float32")}
            yield (f"Resize {x} {mode}", "Resize", 13, feeds, {"mode": mode}, ("roi", "scales"), None, True)
    for x in FLOATS + ["int32", "int64"]:
        for grid in ("float32", "float64"):
            values = array([[[[10, 20], [30, 41]]]], x)
            points = array([[[[-0.5, -0.5], [0, 0], [0.3, 0.7]]]], grid)
#Between the four pixels, by hand.
            px, py = points[0, 0, :, 0].astype(np.float64), points[0, 0, :, 1].astype(np.float64)
            px, py = ((px + 1) * 2 - 1) / 2, ((py + 1) * 2 - 1) / 2
            full = np.pad(values[0, 0].astype(np.float64), 1)
            ours = []
            for a, b in zip(px, py):
                i, j = int(np.floor(a)), int(np.floor(b))
                u, v = a - i, b - j
                ours.append(full[j + 1, i + 1] * (1 - u) * (1 - v) + full[j + 1, i + 2] * u * (1 - v)
                            + full[j + 2, i + 1] * (1 - u) * v + full[j + 2, i + 2] * u * v)
            yield (f"GridSample {x} {grid}", "GridSample", 20, {"x": values, "grid": points}, {}, (),
                   np.array(ours).reshape(1, 1, 1, 3).astype(x), False)
    for x in FLOATS + SMALL + SIGNED:
        values = array([-3, -2, -1, 0, 1, 2, 3] if x[0] != "u" else [0, 1, 2, 3, 4, 5, 6], x)
        yield f"Shrink {x}", "Shrink", 9, {"x": values}, {"bias": 0.5, "lambd": 1.5}, (), None, True
    for x in FLOATS:
        for scale in FLOATS:
            values, factors = array([[1, 2, 3, 4]], x), array([1, 0.5, 2, 1], scale)
            w = values.astype(np.float64)
            ours = (w / np.sqrt((w * w).mean(-1, keepdims=True) + 1e-5) * factors.astype(np.float64)).astype(scale)
            yield (f"RMSNormalization {x} {scale}", "RMSNormalization", 23, {"x": values, "s": factors}, {}, (), ours,
                   False)
            for mean in FLOATS:
                values = array([[1, 2], [3, 4]], x)
                feeds = {"x": values, "s": array([1, 2], scale), "b": array([0.5, 0], scale),
                         "m": array([0.25, 1], mean), "v": array([1, 4], mean)}
                ours = (values.astype(np.float64) - [0.25, 1]) / np.sqrt(np.array([1, 4]) + 1e-5) * [1, 2] + [0.5, 0]
                yield (f"BatchNormalization {x} {scale} {mean}", "BatchNormalization", 15, feeds, {}, (),
                       ours.astype(x), x == scale == mean)  # onnxruntime has fewer digits where they differ
    for x in SIGNED + ["uint32", "uint64"]:
        values = array([3, 0, 7] if x[0] == "u" else [-3, 0, 7], x)
        yield f"PRelu {x}", "PRelu", 16, {"x": values, "s": array([2], x)}, {}, (), np.where(
            values < 0, values * array(2, x), values).astype(x), True
    yield from reductions()
    yield from large_values()
    yield from large_integers()
    for x in SIGNED:
        first = 2 ** 53 + 1 if x == "int64" else 5
        feeds = {"start": array(first, x), "limit": array(first + 4, x), "delta": array(1, x)}
        ours = np.arange(*[int(v) for v in feeds.values()], dtype=x)
        yield f"Range {x}", "Range", 11, feeds, {}, tuple(feeds), ours, True
    ints = {"a": array([[1, 2], [3, 4]], "int32"), "b": array([[1, 0], [0, 1]], "int32"), "c": array([3, 5], "int32")}
    yield "Gemm int32", "Gemm", 13, ints, {"alpha": 0.5, "beta": 0.5}, (), array([[2, 3], [3, 4]], "int32"), False
    for mask in ("float16", "float32", "float64", "bool"):
        for q in ("float16", "float32"):
            lowest = -3e38 if mask in ("float32", "float64") else -6e4
            given = array([[0, lowest], [lowest if mask != "float16" else 0] * 2], mask)
            if mask == "bool":
                given = np.array([[True, False], [True, True]])
            k = array(np.arange(8).reshape(1, 1, 2, 4) / 8, q)
            feeds = {"q": k, "k": k, "v": k, "mask": given}
            bias = np.where(given, 0, -np.inf) if mask == "bool" else given.astype(np.float64)
            s = (k.astype(np.float64)[0, 0] @ k.astype(np.float64)[0, 0].T) / 2 + bias
            p = np.exp(s - s.max(-1, keepdims=True))
            ours = ((p / p.sum(-1, keepdims=True)) @ k.astype(np.float64)[0, 0])[None, None].astype(q)
            yield f"Attention {q} {mask}", "Attention", 23, feeds, {}, (), ours, False
    for q, v in (("float32", "float16"), ("float16", "float32")):
        a, b = array(np.arange(8).reshape(1, 1, 2, 4) / 8, q), array(np.arange(8).reshape(1, 1, 2, 4) / 4, v)
        s = (a.astype(np.float64)[0, 0] @ a.astype(np.float64)[0, 0].T) / 2
        p = np.exp(s - s.max(-1, keepdims=True))
        ours = ((p / p.sum(-1, keepdims=True)) @ b.astype(np.float64)[0, 0])[None, None].astype(q)
        yield f"Attention {q} values {v}", "Attention", 23, {"q": a, "k": a, "v": b}, {}, (), ours, False


def large_values():
    """What is squared, summed or averaged on the way may be larger than its type holds, though the result is not."""
    rng = np.random.default_rng(0)
    for x in ("float16", "bfloat16"):
        values = array(rng.standard_normal((2, 4, 64)) * 300, x)
        v, shifted = values.astype(np.float64), array(values.astype(np.float64) + 3000, x)
        s = shifted.astype(np.float64)
        one, none, wide = array(np.ones(4), x), array(np.zeros(4), x), array(np.ones(64), x)
        half = x == "float16"  # onnxruntime's kernels of bfloat16 are few

        def standard(z, axis, epsilon=1e-5):
            return (z - z.mean(axis, keepdims=True)) / np.sqrt(z.var(axis, keepdims=True) + epsilon)

        def case(op, opset, feeds, wanted, attributes=None, constants=(), outputs=("y",), dtype=None):
            return (f"{op} {x} large{' ' + outputs[-1] if len(outputs) > 1 else ''}", op, opset, feeds,
                    attributes or {}, constants, array(wanted, dtype or x), False, outputs)
        small = array(v / 3e5, x)
        deviation = 1 / np.sqrt(v.var(-1, keepdims=True) + 1e-5)
        yield case("LayerNormalization", 17, {"x": values, "s": wide}, standard(v, -1))
        yield case("LayerNormalization", 17, {"x": small, "s": wide}, standard(small.astype(np.float64), -1, 1e-12),
                   {"epsilon": 1e-12})
        for stash, dtype in ((1, "float32"), (16, "bfloat16")):
            yield case("LayerNormalization", 17, {"x": values, "s": wide}, deviation, {"stash_type": stash},
                       outputs=("z", "mean", "y"), dtype=dtype)
        yield case("RMSNormalization", 23, {"x": values, "s": wide},
                   v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-5))
        yield case("InstanceNormalization", 22, {"x": values, "s": one, "b": none}, standard(v, -1))
        yield case("GroupNormalization", 21, {"x": values, "s": one, "b": none},
                   standard(v.reshape(2, 2, 128), -1).reshape(2, 4, 64), {"num_groups": 2})
        yield case("MeanVarianceNormalization", 13, {"x": values},
                   (v - v.mean(-1, keepdims=True)) / (v.std(-1, keepdims=True) + 1e-9), {"axes": [2]})
        yield case("LpNormalization", 22, {"x": values}, v / np.sqrt((v * v).sum(-1, keepdims=True)), {"axis": 2})
        many = np.abs(v) * (6e4 / np.abs(v).max())  # each within float16, their sum not
        yield case("LpNormalization", 22, {"x": array(many, x)},
                   many / np.abs(many).sum(-1, keepdims=True), {"axis": 2, "p": 1})
        squares = np.pad(v * v, ((0, 0), (1, 1), (0, 0)))
        near = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
        yield case("LRN", 13, {"x": values[..., None]}, (v / (1 + 0.1 / 3 * near) ** 0.75)[..., None],
                   {"size": 3, "alpha": 0.1})
        yield case("ReduceL2", 13, {"x": values}, np.sqrt((v * v).sum(-1, keepdims=True)), {"axes": [2]})
        yield case("ReduceLogSum", 13, {"x": shifted}, np.log(s.sum(-1, keepdims=True)), {"axes": [2]})
        yield case("ReduceMean", 13, {"x": shifted}, s.mean(-1, keepdims=True), {"axes": [2]})
        yield case("GlobalAveragePool", 22, {"x": shifted}, s.mean(-1, keepdims=True))
        yield case("GlobalLpPool", 22, {"x": values}, np.sqrt((v * v).sum(-1, keepdims=True)))
        yield case("LpPool", 18, {"x": values}, np.sqrt((v * v).reshape(2, 4, 16, 4).sum(-1)),
                   {"kernel_shape": [4], "strides": [4]})
        up = array([60000, 3], x)
        yield case("Mean", 13, {"x": up, "e": up, "f": array([0, 3], x)}, [2 * float(up[0]) / 3, 3])
        yield case("Sum", 13, {"x": up, "e": up, "f": -up}, up)
        if half:  # the sum of the exponentials of 70000 equal scores
            level = np.full((1, 70000), 3.0)
            yield case("ReduceLogSumExp", 13, {"x": array(level, x)}, [[3 + np.log(70000)]], {"axes": [1]})
            yield case("LogSoftmax", 13, {"x": array(level, x)}, np.full((1, 70000), -np.log(70000)))
            scores, labels = array(rng.standard_normal((30000, 3)) - 8, x), np.arange(30000) % 3
            yield case("NegativeLogLikelihoodLoss", 13, {"x": scores, "t": labels},
                       -scores.astype(np.float64)[np.arange(30000), labels].mean())


def large_integers():
    """Numbers of 64 bits without a sign are none with one, and a mean is in range though the sum is not."""
    half = 2 ** 63
    a, e = np.array([half + 2, 7, 2 ** 64 - 1], np.uint64), np.array([5, half, 7], np.uint64)
    for op, wanted in (("Min", [5, 7, 7]), ("Max", [half + 2, half, 2 ** 64 - 1]), ("Div", [(half + 2) // 5, 0,
                       (2 ** 64 - 1) // 7]), ("Mod", [(half + 2) % 5, 7, (2 ** 64 - 1) % 7])):
        yield f"{op} uint64 large", op, 14, {"x": a, "e": e}, {}, (), np.array(wanted, np.uint64), False
    for op, wanted in (("Less", a < e), ("LessOrEqual", a <= e), ("Greater", a > e), ("GreaterOrEqual", a >= e)):
        yield f"{op} uint64 large", op, 16, {"x": a, "e": e}, {}, (), wanted, False
    yield "Sign uint64 large", "Sign", 13, {"x": a}, {}, (), np.array([1, 1, 1], np.uint64), False
    yield ("Clip uint64 large", "Clip", 13, {"x": a, "low": np.uint64(half)}, {}, ("low",),
           np.array([half + 2, half, 2 ** 64 - 1], np.uint64), False)
    for op, wanted in (("ReduceMax", 2 ** 64 - 1), ("ReduceMin", 7)):
        yield f"{op} uint64 large", op, 18, {"x": a}, {"keepdims": 0}, (), np.array(wanted, np.uint64), False
    for op, wanted in (("ArgMax", 2), ("ArgMin", 1)):
        yield f"{op} uint64 large", op, 13, {"x": a}, {"keepdims": 0}, (), np.array(wanted), False
    yield from wrapping_integers()
    top = 2 ** 63 - 1
    for dtype, values in (("int32", [2 ** 31 - 1, 2 ** 31 - 1, 5]), ("uint32", [2 ** 32 - 1, 2 ** 32 - 1, 5]),
                          ("int64", [2 ** 62] * 3), ("int64", [-top - 1] * 3), ("int64", [top, top, -3]),
                          ("int64", [-top, -top, 4]), ("int64", [3, -1, -1]), ("int64", [-3, 1, 1]),
                          ("int64", [7, -2, -6]), ("uint64", [2 ** 64 - 1, 2 ** 64 - 1, 3])):
        total = sum(values)
        mean = abs(total) // 3 * (1 if total >= 0 else -1)
        yield (f"ReduceMean {dtype} {values}", "ReduceMean", 13, {"x": np.array(values, dtype)},
               {"keepdims": 0, "axes": [0]}, (), np.array(mean, dtype), False)


def wrapping_integers():
    """What products and sums of integers do not hold wraps, as NumPy's do; no digit of 64 bits is lost on the way."""
    for dtype in INTS:
        top = np.iinfo(dtype).max
        big = 2 ** 53 + 1 if "64" in dtype else top
        a, b, c = (np.array(v, dtype) for v in ([[big, 2], [top, 3]], [[1, top], [2, 5]], [[7, top], [1, 0]]))
        if dtype not in SMALL:  # the standard has products of 32 bits and more
            for x, y in ((a, b), (np.array([[[big]]], dtype), np.array([[1]], dtype))):
                yield f"MatMul {dtype} wraps {x.ndim}", "MatMul", 13, {"x": x, "e": y}, {}, (), x @ y, False
            yield f"Gemm {dtype} wraps", "Gemm", 13, {"x": a, "e": b, "c": c}, {"transB": 1}, (), a @ b.T + c, False
            yield (f"Gemm {dtype} by integers", "Gemm", 13, {"x": a, "e": b, "c": c}, {"alpha": 3.0, "beta": 2.0},
                   (), (a @ b) * array(3, dtype) + c * array(2, dtype), False)
            yield (f"CumSum {dtype} wraps", "CumSum", 14, {"x": a, "axis": np.array(1)}, {}, ("axis",),
                   np.cumsum(a, 1, dtype=dtype), False)
            yield (f"CumSum {dtype} wraps from the end", "CumSum", 14, {"x": a, "axis": np.array(0)},
                   {"reverse": 1, "exclusive": 1}, ("axis",), np.stack([a[1], np.zeros(2, dtype)]), False)
            yield (f"ReduceSum {dtype} wraps", "ReduceSum", 13, {"x": a, "axes": np.array([1])}, {"keepdims": 0},
                   ("axes",), a.sum(1, dtype=dtype), False)
        yield (f"Einsum {dtype} wraps", "Einsum", 12, {"x": a, "e": b}, {"equation": "ij,jk->ik"}, (), a @ b, False)
        u = np.array([[3, 3]], dtype)
        for reduction, f in (("add", np.add), ("mul", np.multiply), ("max", np.maximum), ("min", np.minimum)):
            wanted = np.stack([f(f(a[0], u[0]), u[0]), a[1]])
            yield (f"ScatterElements {dtype} {reduction} wraps", "ScatterElements", 18,
                   {"x": a, "i": np.zeros((2, 2), np.int64), "u": np.concatenate([u, u])}, {"reduction": reduction},
                   (), wanted, False)
            yield (f"ScatterND {dtype} {reduction} wraps", "ScatterND", 18,
                   {"x": a, "i": np.zeros((2, 1), np.int64), "u": np.concatenate([u, u])}, {"reduction": reduction}, (),
                   wanted, False)


def reductions():
    """Roots and logarithms of integers are taken of real numbers, and cut; over no axis each element stands alone."""
    norms = {"ReduceL1": lambda v, **k: np.abs(v).sum(**k), "ReduceL2": lambda v, **k: np.sqrt((v * v).sum(**k)),
             "ReduceSumSquare": lambda v, **k: (v * v).sum(**k), "ReduceLogSum": lambda v, **k: np.log(v.sum(**k)),
             "ReduceLogSumExp": lambda v, **k: np.log(np.exp(v).sum(**k)), "ReduceSum": lambda v, **k: v.sum(**k)}
    for op, norm in norms.items():
        for x in SIGNED + ["uint32", "uint64", "float32"]:
            positive = x[0] == "u" or op == "ReduceLogSum"
            values = array([[7, 2, 3], [4, 15, 6]] if positive else [[7, -2, 3], [4, 15, -6]], x)
            v = values.astype(np.float64)
            for axis in (0, 1):
                feeds = {"x": values, "axes": np.array([axis], np.int64)}
                yield (f"{op} {x} {axis}", op, 18, feeds, {"keepdims": 0}, ("axes",), norm(v, axis=axis).astype(x),
                       x in SIGNED)
            single = array(3 if positive else -3, x)
            yield f"{op} {x} single", op, 18, {"x": single}, {}, (), norm(single.astype(np.float64)).astype(x), False
            alone = norm(np.abs(v)[..., None], axis=-1).astype(x)
            yield (f"{op} {x} over no axis", op, 18, {"x": np.abs(values)}, {"noop_with_empty_axes": 1}, (), alone,
                   x == "float32")
    large = array([[3_000_000_000, 4_000_000_000]], "int64")  # the squares of which do not fit
    yield "ReduceL2 int64 large", "ReduceL2", 13, {"x": large}, {"keepdims": 0}, (), np.array(5_000_000_000), False


def wrong(got, wanted):
    if got.dtype != wanted.dtype:
        return f"is {got.dtype}, should be {wanted.dtype}"
    if got.shape != wanted.shape:
        return f"has shape {got.shape}, should be {wanted.shape}"
    if got.dtype.kind in "iub":
        return None if np.array_equal(got, wanted) else f"is {got.ravel()}, should be {wanted.ravel()}"
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    slack = SLACK.get(str(wanted.dtype), 0)
    if not np.allclose(a, b, rtol=slack, atol=slack * 0.1, equal_nan=True):
        return f"is {got.ravel()}, should be {wanted.ravel()}"
    return None


def run_case(api, op, opset, feeds, attributes, constants, by_hand, asks, outputs=("y",)):
    model = model_of(op, feeds, opset, attributes, constants, outputs)
    plan = api.plan(api.model_bytes(model.SerializeToString()), None)
    given = [v for n, v in feeds.items() if n not in constants]
    got = api.predict(api.session(plan), given, len(api.ports(plan, PREDICT, OUTPUT)))[0]
    theirs = onnxruntime_of(model, feeds) if asks else None
    if by_hand is None and theirs is None:  # as of real numbers
        real = {**feeds, "x": feeds["x"].astype(np.float32)}
        theirs = onnxruntime_of(model_of(op, real, opset, attributes, constants), real).astype(feeds["x"].dtype)
    assert by_hand is not None or theirs is not None, "nothing to compare with"
    for name, wanted in (("by hand", by_hand), ("onnxruntime", theirs)):
        if wanted is not None:
            assert not wrong(got, wanted), f"{name}: {wrong(got, wanted)}"


def main():
    api = epl_api.Api()
    passed = failed = 0
    for label, *case in cases():
        if sys.argv[1:] and not any(label.startswith(w) for w in sys.argv[1:]):
            continue
        try:
            run_case(api, *case)
            passed += 1
        except Exception as error:  # any failure of any kind is this case's failure
            print(f"FAILED {label}: {type(error).__name__} {str(error)[:300]}")
            failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
