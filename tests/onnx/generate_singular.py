"""Writes singular.txt: what PyTorch computes in float64, forward and backward, where operators have no derivative.

Run with PyTorch 2.15: python tests/onnx/generate_singular.py > tests/onnx/singular.txt

A case is the nodes of a model, its inputs (those of `grad` are trained), its result y, and the gradients of
sum(y * dy).
Where PyTorch's gradient is finite, ours is the same; where PyTorch has none (nan, inf), ours may be anything, and so may
our result where PyTorch's is nan.
A row of the importer, or an op with a gradient or a body, that is in no case must be in `smooth`, with the reason.
"""
import math

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
inf, nan = math.inf, math.nan
NAMES = {torch.float64: "f64", torch.int64: "i64", torch.bool: "bool"}


def text(t):
    t = t.detach().contiguous()
    values = [repr(float(v)) if t.dtype == torch.float64 else str(int(v)) for v in t.reshape(-1).tolist()]
    return f"{NAMES[t.dtype]}[{','.join(map(str, t.shape))}]({','.join(values)})"


def attribute(v):
    if isinstance(v, str):
        return f'"{v}"'
    return "[" + ",".join(map(str, v)) + "]" if isinstance(v, (list, tuple)) else repr(v)


def node(line, **attributes):
    """`node("Clip x low -> y", axis=1)`: an operator, its inputs and results, its attributes; `_` is an absent input."""
    return f"node {line} {{{','.join(f'{k}={attribute(v)}' for k, v in attributes.items())}}}"


def case(nodes, f, fixed=None, opset=22, dy=None, rewritten=False, **trained):
    """`f` takes the trained inputs, in their order, and then those of `fixed`. `rewritten`: what is taken apart has
    another gradient in PyTorch too, and the rewrites put it together."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    leaves = {k: torch.as_tensor(v, dtype=torch.float64).clone().requires_grad_() for k, v in trained.items()}
    fixed = {k: torch.as_tensor(v) for k, v in (fixed or {}).items()}
    y = f(*leaves.values(), *fixed.values())
    if dy is None:
        dy = 0.5 + torch.arange(y.numel()) % 3
    dy = torch.as_tensor(dy, dtype=torch.float64).reshape(y.shape)
    print(f"case opset={opset}" + " rewritten" * rewritten)
    print("\n".join(nodes))
    for k, v in {**leaves, **fixed}.items():
        print("in", k, text(v))
    print("dy", text(dy))
    print("out", text(y))
    for k, g in zip(leaves, torch.autograd.grad(y, list(leaves.values()), dy, allow_unused=True)):
        print("grad", k, text(torch.zeros_like(leaves[k]) if g is None else g))
    print()


def smooth(reason, names):
    for name in names.split():
        print(f"smooth {name}: {reason}")
    print()


def onnx_selu(x):  # by the standard's numbers, which are those of F.selu in float32
    return 1.0507010221481323 * torch.where(x > 0, x, 1.6732631921768188 * torch.expm1(x))


def elementwise():
    kinks = [-2.0, -0.0, 0.0, 1.5]
    for name, f in {"Abs": torch.abs, "Relu": F.relu, "Softsign": F.softsign, "Softplus": F.softplus, "Mish": F.mish,
                    "Selu": onnx_selu, "Sign": torch.sign, "Round": torch.round, "Floor": torch.floor,
                    "Ceil": torch.ceil, "HardSwish": F.hardswish, "Sqrt": torch.sqrt, "Log": torch.log,
                    "Reciprocal": torch.reciprocal}.items():
        at = {"HardSwish": [-3.0, 3.0, 0.0, 1.0], "Round": [0.5, 1.5, -0.5, 2.25], "Sqrt": [0.0, 4.0],
              "Log": [0.0, 4.0], "Reciprocal": [0.0, 4.0]}.get(name, kinks)
        case(node(f"{name} x -> y"), f, x=at)
    case(node("LeakyRelu x -> y", alpha=0.25), lambda x: F.leaky_relu(x, 0.25), x=kinks)
    case(node("Elu x -> y", alpha=0.5), lambda x: F.elu(x, 0.5), x=kinks + [800.0])
    case(node("Celu x -> y", alpha=0.5), lambda x: F.celu(x, 0.5), x=kinks + [800.0])
    case(node("ThresholdedRelu x -> y", alpha=0.5), lambda x: F.threshold(x, 0.5, 0.0), x=[0.5, 0.75, 0.25])
    case(node("HardSigmoid x -> y", alpha=0.25, beta=0.5), lambda x: torch.clamp(0.25 * x + 0.5, 0, 1),
         x=[-2.0, 2.0, 0.0, 3.0])
    case(node("Shrink x -> y", lambd=0.5, bias=0.5), lambda x: F.softshrink(x, 0.5), x=[-0.5, 0.5, 1.0, 0.0])
    case(node("PRelu x s -> y"), lambda x, s: F.prelu(x, s), x=[[0.0, -1.0], [2.0, -0.0]], s=[0.25, 0.5])
    case(node("Exp x -> y"), torch.exp, x=[800.0, 0.0, -inf], dy=[0.0, 1.0, 1.0])
    for name, f, at in [("Asin", torch.asin, [1.0, -1.0, 0.5]), ("Acos", torch.acos, [1.0, -1.0, 0.5]),
                        ("Acosh", torch.acosh, [1.0, 2.0]), ("Atanh", torch.atanh, [1.0, -1.0, 0.5])]:
        case(node(f"{name} x -> y"), f, x=at)
    for name, f in {"Max": torch.maximum, "Min": torch.minimum}.items():
        case(node(f"{name} a b -> y"), f, a=[1.0, 2.0, 3.0], b=[1.0, 3.0, 2.0])
    for bounds, nodes in [(dict(min=-1.0, max=1.0), "Clip x low high -> y"), (dict(min=-1.0), "Clip x low -> y"),
                          (dict(max=1.0), "Clip x _ high -> y")]:
        fixed = {k: torch.tensor(v) for k, v in zip(("low", "high"), (bounds.get("min"), bounds.get("max")))
                 if v is not None}
        case(node(nodes), lambda x, *_: torch.clamp(x, **bounds), fixed, x=[-1.0, 1.0, 2.0, 0.0, -3.0])
    # As PyTorch's newer exporter writes a clamp.
    case([node("Max x low -> m"), node("Min high m -> y")], lambda x, *_: torch.clamp(x, min=-1.0, max=1.0),
         {"low": torch.tensor(-1.0), "high": torch.tensor(1.0)}, x=[-1.0, 1.0, 2.0, 0.0, -3.0])
    case(node("Max x zero -> y"), lambda x, *_: torch.clamp(x, min=0.0), {"zero": torch.tensor(0.0)},
         x=[0.0, 1.0, -1.0])
    case([node("Squeeze a -> low"), node("Squeeze b -> high"), node("Clip x low high -> y")],
         lambda x, a, b: torch.clamp(x, a[0], b[0]), x=[-1.0, 1.0, 2.0, 0.0, -3.0], a=[-1.0], b=[1.0])
    case(node("Clip x -> y", min=0.0, max=6.0), F.relu6, opset=10, x=[0.0, 6.0, 3.0])
    case(node("Mod x b -> y", fmod=1), torch.fmod, x=[4.0, -3.0, 0.0], b=[2.0, 3.0, 2.0])
    case(node("Div a b -> y"), torch.div, a=[0.0, 1.0, 3.0], b=[2.0, -4.0, 0.5])
    case(node("Mul a b -> y"), torch.mul, a=[0.0, 2.0], b=[0.0, 3.0])


def powers():
    for e in (0.5, 0.0, 1.0, 1.5, 2.0, 3.0, -1.0):
        case(node("Pow x e -> y"), torch.pow, {"e": torch.tensor(e)}, x=[0.0, 2.0])
    case(node("Pow x e -> y"), torch.pow, x=[0.0, 0.0, 2.0, 3.0], e=[0.0, 2.0, 0.0, 1.0])
    # Powers of magnitudes, of squares, and a distance as cdist has it.
    half, two = torch.tensor(0.5), torch.tensor(2.0)
    case([node("Abs x -> a"), node("Pow a e -> p"), node("ReduceSum p axes -> s", keepdims=0), node("Pow s i -> y")],
         lambda x, *_: torch.linalg.vector_norm(x, 0.5, 1), {"e": half, "axes": [1], "i": two},
         x=[[0.0, 2.0], [3.0, 4.0]])
    case([node("Sub a b -> d"), node("Pow d e -> p"), node("ReduceSum p axes -> s", keepdims=0), node("Pow s i -> y")],
         lambda a, b, *_: torch.cdist(a[:, None], b[:, None])[:, 0, 0], {"e": two, "axes": [1], "i": half},
         a=[[1.0, 2.0], [3.0, 4.0]], b=[[1.0, 2.0], [3.0, 3.0]])


def norms():
    rows = [[0.0, 0.0, 0.0], [3.0, 0.0, -4.0], [2.0, 2.0, -1.0]]
    axis = {"axes": [1]}
    for p, name in [(1, "ReduceL1"), (2, "ReduceL2")]:
        case(node(f"{name} x axes -> y", keepdims=0), lambda x, _: torch.linalg.vector_norm(x, p, 1), axis, x=rows)
    case([node("Abs x -> a"), node("ReduceMax a axes -> y", keepdims=0)],
         lambda x, _: torch.linalg.vector_norm(x, inf, 1), axis, x=rows)
    case([node("Abs x -> a"), node("ReduceMin a axes -> y", keepdims=0)],
         lambda x, _: torch.linalg.vector_norm(x, -inf, 1), axis, x=rows)
    case([node("Abs x -> a"), node("Pow a e -> p"), node("ReduceSum p axes -> s", keepdims=0), node("Pow s i -> y")],
         lambda x, *_: torch.linalg.vector_norm(x, 4, 1),
         {"e": torch.tensor(4.0), "axes": [1], "i": torch.tensor(0.25)}, x=rows)
    case(node("ReduceSumSquare x axes -> y", keepdims=0), lambda x, _: x.square().sum(1), axis, x=rows)
    # Written out: a norm, a magnitude of complex numbers, a norm as a product, a standard deviation.
    case([node("Mul x x -> q"), node("ReduceSum q axes -> s", keepdims=0), node("Sqrt s -> y")],
         lambda x, _: torch.linalg.vector_norm(x, 2, 1), axis, x=rows)
    case([node("Mul a a -> p"), node("Mul b b -> q"), node("Add p q -> s"), node("Sqrt s -> y")],
         lambda a, b: torch.complex(a, b).abs(), a=[0.0, 3.0], b=[0.0, 4.0])
    case([node("Einsum x x -> s", equation="bi,bi->b"), node("Sqrt s -> y")],
         lambda x: torch.linalg.vector_norm(x, 2, 1), x=rows)
    case([node("ReduceMean x axes -> m"), node("Sub x m -> d"), node("Mul d d -> q"),
          node("ReduceMean q axes -> v", keepdims=0), node("Mul v n -> w"), node("Div w k -> u"), node("Sqrt u -> y")],
         lambda x, *_: x.std(1), {"axes": [1], "n": torch.tensor(3.0), "k": torch.tensor(2.0)}, x=rows)
    # As exporters write F.normalize and F.cosine_similarity.
    eps = torch.tensor(0.125)
    for p, name in [(1, "ReduceL1"), (2, "ReduceL2")]:
        case([node(f"{name} x axes -> n"), node("Clip n eps -> c"), node("Div x c -> y")],
             lambda x, *_: F.normalize(x, p=p, dim=1, eps=0.125), {"axes": [1], "eps": eps}, x=rows)
    case([node("Mul a b -> ab"), node("ReduceSum ab axes -> s", keepdims=0), node("Mul a a -> aa"),
          node("ReduceSum aa axes -> sa", keepdims=0), node("Mul b b -> bb"),
          node("ReduceSum bb axes -> sb", keepdims=0), node("Mul sa sb -> p"), node("Sqrt p -> r"),
          node("Max r eps -> m"), node("Div s m -> y")],
         lambda a, b, *_: (a * b).sum(1) / torch.clamp(a.norm(dim=1) * b.norm(dim=1), min=0.125),
         {"axes": [1], "eps": eps}, a=rows, b=[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [2.0, 1.0, 0.0]])
    zero_row = lambda x: torch.linalg.vector_norm(x, 2, 1, keepdim=True)
    case(node("LpNormalization x -> y", p=2, axis=1), lambda x: x / torch.where(zero_row(x) == 0, 1.0, zero_row(x)),
         x=rows)
    one = lambda x: x.abs().sum(1, keepdim=True)
    case(node("LpNormalization x -> y", p=1, axis=1), lambda x: x / torch.where(one(x) == 0, 1.0, one(x)), x=rows)
    images = [[[0.0, 0.0, 0.0, 0.0, 3.0, 4.0]]]
    for p in (1, 2, 3, 4):
        pool = lambda x: torch.linalg.vector_norm(x.unfold(2, 2, 2), p, 3)
        case(node("LpPool x -> y", kernel_shape=[2], strides=[2], p=p), pool, x=images)
        case(node("GlobalLpPool x -> y", p=p), lambda x: torch.linalg.vector_norm(x, p, 2, keepdim=True),
             x=[[[0.0, 0.0], [3.0, 4.0], [0.0, -2.0]]])
    constant = [[[1.0, 1.0, 1.0], [1.0, 2.0, 4.0]]]
    case(node("MeanVarianceNormalization x -> y", axes=[2]),
         lambda x: (x - x.mean(2, keepdim=True)) / (x.std(2, unbiased=False, keepdim=True) + 1e-9),
         x=[[[1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 4.0, 8.0]]], dy=[1.0, 1.0, 1.0, 1.0, 0.5, 1.5, 2.5, 0.5])
    weight = torch.tensor([0.5, 2.0, 1.0])
    case(node("LayerNormalization x s b -> y", epsilon=0.125),
         lambda x, s, b: F.layer_norm(x, [3], s, b, 0.125), x=constant, s=weight, b=weight)
    case(node("RMSNormalization x s -> y", epsilon=0.125), lambda x, s: F.rms_norm(x, [3], s, 0.125), opset=23,
         x=[rows], s=weight)
    two = torch.tensor([0.5, 2.0])
    case(node("InstanceNormalization x s b -> y", epsilon=0.125),
         lambda x, s, b: F.instance_norm(x, weight=s, bias=b, eps=0.125), x=constant, s=two, b=two)
    case(node("GroupNormalization x s b -> y", epsilon=0.125, num_groups=2),
         lambda x, s, b: F.group_norm(x, 2, s, b, 0.125), x=constant, s=two, b=two)
    case(node("BatchNormalization x s b m v -> y", epsilon=0.125),
         lambda x, s, b, m, v: F.batch_norm(x, m, v, s, b, eps=0.125), {"m": two, "v": torch.zeros(2)}, x=constant,
         s=two, b=two)
    case(node("LRN x -> y", size=3, alpha=0.5, beta=0.75, bias=1.0),
         lambda x: F.local_response_norm(x, 3, 0.5, 0.75, 1.0), x=[[[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]]])


def reductions():
    axis = {"axes": [1]}
    case(node("ReduceProd x axes -> y", keepdims=0), lambda x, _: x.prod(1), axis,
         x=[[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 4.0], [0.0, 0.0, 0.0]])
    case(node("ReduceProd x axes -> y", keepdims=1), lambda x, _: x.prod(2, keepdim=True).prod(0, keepdim=True),
         {"axes": [0, 2]}, x=[[[0.0, 2.0], [1.0, 2.0]], [[3.0, 1.0], [0.0, 0.0]]])
    for name, f in {"ReduceMax": torch.amax, "ReduceMin": torch.amin}.items():
        case(node(f"{name} x axes -> y", keepdims=0), lambda x, _: f(x, 1), axis,
             x=[[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 1.0, 2.0], [-inf, -inf, -inf]])
    case(node("ReduceLogSumExp x axes -> y", keepdims=0), lambda x, _: torch.logsumexp(x, 1), axis,
         x=[[-inf, 0.0, 1.0], [-inf, -inf, -inf], [900.0, 900.0, 0.0], [inf, 0.0, 0.0]])
    case(node("ReduceLogSum x axes -> y", keepdims=0), lambda x, _: x.sum(1).log(), axis, x=[[0.0, 0.0], [0.0, 2.0]])
    case(node("MaxPool x -> y", kernel_shape=[2], strides=[2]), lambda x: F.max_pool1d(x, 2, 2),
         x=[[[1.0, 1.0, 0.0, 2.0, 0.0, 0.0]]])
    case(node("GlobalMaxPool x -> y"), lambda x: x.amax(2, keepdim=True), x=[[[1.0, 1.0], [0.0, 2.0]]])
    case(node("TopK x k -> y i", axis=1), lambda x, _: x.topk(2, 1)[0], {"k": [2]}, x=[[3.0, 1.0, 2.0]])
    for name, f in {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax}.items():
        case(node(f"{name} x -> y", axis=1), lambda x: f(x, 1), x=[[-inf, 0.0, 1.0], [900.0, 0.0, 0.0]],
             dy=[0.0, 1.0, 2.0, 0.0, 1.0, 0.5])


def selections():
    """What is singular is selected away: nothing flows into it."""
    case(node("Where c a b -> y"), lambda a, b, c: torch.where(c, a, b), {"c": torch.tensor([True, False])},
         a=[1.0, inf], b=[nan, 2.0])
    zero = {"zero": torch.tensor(0.0), "one": torch.tensor(1.0)}
    safe = lambda x: torch.where(x > 0, x, 1.0)
    for name, f in {"Sqrt": torch.sqrt, "Log": torch.log, "Reciprocal": torch.reciprocal}.items():
        case([node("Greater x zero -> c"), node(f"{name} x -> r"), node("Where c r zero -> y")],
             lambda x, *_: torch.where(x > 0, f(safe(x)), 0.0), zero, x=[0.0, 4.0])
    case([node("Equal b zero -> c"), node("Div a b -> r"), node("Where c zero r -> y")],
         lambda a, b, *_: torch.where(b == 0, 0.0, a / torch.where(b == 0, 1.0, b)), zero, a=[1.0, 0.0, 3.0],
         b=[0.0, 0.0, 2.0])
    case([node("Greater x zero -> c"), node("Exp x -> e"), node("Add e one -> s"), node("Log s -> l"),
          node("Where c x l -> y")],
         lambda x, *_: torch.where(x > 0, x, torch.log(torch.exp(torch.where(x > 0, 0.0, x)) + 1)), zero,
         x=[900.0, -1.0])
    # torch.sinc and torch.xlogy as the exporter takes them apart.
    case([node("Equal x zero -> c"), node("Mul x pi -> a"), node("Sin a -> s"), node("Div s a -> q"),
          node("Where c one q -> y")], lambda x, *_: torch.sinc(x), {**zero, "pi": torch.tensor(math.pi)},
         x=[0.0, 0.5])
    case([node("Equal x zero -> c"), node("Log b -> l"), node("Mul x l -> m"), node("Where c zero m -> y")],
         lambda x, b, *_: torch.xlogy(x, b), zero, x=[0.0, 0.5, 1.5], b=[0.0, 2.0, 3.0])
    # F.binary_cross_entropy keeps logarithms above -100.
    case([node("Log x -> l"), node("Max l low -> y")], lambda x, _: torch.clamp(torch.log(safe(x)), min=-100.0) +
         torch.where(x > 0, 0.0, -100.0), {"low": torch.tensor(-100.0)}, x=[0.0, 0.5])
    # An angle, as exporters write atan2.
    case([node("Greater x zero -> c"), node("Div a x -> q"), node("Atan q -> t"), node("Where c t zero -> y")],
         lambda a, x, *_: torch.where(x > 0, torch.atan2(a, x), 0.0), zero, a=[0.0, 1.0], x=[0.0, 2.0])


def samplings():
    """Outside of the image there is nothing, whatever stands at its border."""
    x = [[[[inf, 1.0], [2.0, 3.0]]]]
    grid = torch.tensor([[[[-3.0, -3.0], [1.0, 1.0], [0.0, 0.75]]]])
    for mode in ("bilinear", "nearest"):
        case(node("GridSample x grid -> y", mode=mode, padding_mode="zeros", align_corners=1),
             lambda x, grid: F.grid_sample(x, grid, mode=mode, padding_mode="zeros", align_corners=True),
             {"grid": grid}, opset=16, x=x)


def attentions():
    q = [[[[0.5, 1.0], [1.0, -1.0]]]]
    k = [[[[1.0, 0.0], [0.5, 0.5], [-1.0, 2.0]]]]
    v = [[[[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]]]]
    dot = dict(scale=0.5)
    f = lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m, **dot)
    for row in ([-inf, -inf, -inf], [0.0, -inf, 0.25]):
        m = torch.tensor([[row, [0.0, -inf, 0.5]]]).reshape(1, 1, 2, 3)
        case(node("Attention q k v m -> y", **dot), f, {"m": m}, opset=23, q=q, k=k, v=v)
    m = torch.tensor([[False, False, False], [True, False, True]])
    case(node("Attention q k v m -> y", **dot), f, {"m": m}, opset=23, q=q, k=k, v=v)
    # Taken apart, with the guard of rows that see nothing.
    m = torch.tensor([[-inf, -inf, -inf], [0.0, -inf, 0.5]])
    case([node("Transpose k -> kt", perm=[0, 1, 3, 2]), node("MatMul q kt -> s"), node("Mul s c -> t"),
          node("Add t m -> u"), node("Softmax u -> p", axis=3), node("IsNaN p -> n"), node("Where n zero p -> g"),
          node("MatMul g v -> y")], lambda q, k, v, m, *_: f(q, k, v, m),
         {"m": m, "c": torch.tensor(0.5), "zero": torch.tensor(0.0)}, rewritten=True, q=q, k=k, v=v)


def losses():
    scores = [[-inf, 0.5, 1.0], [2.0, 1.0, 0.0], [0.0, 1.0, 3.0], [-inf, 1.0, 0.5]]
    weights = torch.tensor([1.0, 4.0, 0.5])
    none = torch.tensor([1.0, 0.0, 1.0])
    t = torch.tensor([1, 2, -100, -100])
    for reduction in ("mean", "sum", "none"):
        case(node("SoftmaxCrossEntropyLoss x t -> y", reduction=reduction, ignore_index=-100),
             lambda x, t: F.cross_entropy(x, t, reduction=reduction), {"t": t}, x=scores)
        for w in (weights, none):
            case(node("SoftmaxCrossEntropyLoss x t w -> y", reduction=reduction, ignore_index=-100),
                 lambda x, t, w: F.cross_entropy(x, t, w, reduction=reduction), {"t": t, "w": w}, x=scores)
            case(node("NegativeLogLikelihoodLoss x t w -> y", reduction=reduction, ignore_index=-100),
                 lambda x, t, w: F.nll_loss(x, t, w, reduction=reduction), {"t": t, "w": w}, x=scores)
    # A class of weight 0 counts nothing, whatever its score: PyTorch multiplies 0 by the infinity here.
    t, w = torch.tensor([0, 1, 2, -100]), torch.tensor([0.0, 4.0, 0.5])
    counted = lambda x, t, w: F.cross_entropy(x[1:3], t[1:3], w)
    case(node("SoftmaxCrossEntropyLoss x t w -> y", ignore_index=-100), counted, {"t": t, "w": w}, x=scores)
    # Nothing counts: the mean is no number, and the gradient is zero.
    for t, w in ((torch.full((4,), -100), weights), (torch.tensor([1, 1, -100, 1]), none)):
        case(node("SoftmaxCrossEntropyLoss x t w -> y", ignore_index=-100),
             lambda x, t, w: F.cross_entropy(x, t, w), {"t": t, "w": w}, x=scores)
        case(node("NegativeLogLikelihoodLoss x t w -> y", ignore_index=-100),
             lambda x, t, w: F.nll_loss(x, t, w), {"t": t, "w": w}, x=scores)
    case(node("SoftmaxCrossEntropyLoss x t -> y", ignore_index=-100), lambda x, t: F.cross_entropy(x, t),
         {"t": torch.full((4,), -100)}, x=scores)


def without():
    smooth("it only moves numbers", "Reshape Flatten Squeeze Unsqueeze Transpose Slice Concat Split Expand Tile Pad "
           "DepthToSpace SpaceToDepth CenterCropPad Identity ReverseSequence Trilu Gather GatherElements GatherND "
           "Compress Scatter ScatterElements ScatterND SequenceAt SequenceConstruct SequenceEmpty SequenceErase "
           "SequenceInsert SequenceLength SplitToSequence ConcatFromSequence")
    smooth("it adds and multiplies", "Add Sub Neg Sum Mean MatMul Gemm Conv ConvTranspose ReduceSum ReduceMean "
           "AveragePool GlobalAveragePool CumSum DFT STFT Scaler Swish SwiGLU RotaryEmbedding Einsum Dropout")
    smooth("its derivative is finite everywhere", "Sigmoid Tanh Erf Sin Cos Tan Sinh Cosh Asinh Atan Gelu GRU LSTM RNN")
    smooth("its results have no derivative", "And Or Xor Not Equal Less LessOrEqual Greater GreaterOrEqual IsNaN "
           "IsInf BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor ArgMax ArgMin NonZero OneHot Hardmax Shape Size "
           "Range EyeLike Constant ConstantOfShape BlackmanWindow HammingWindow HannWindow")
    smooth("its gradient is that of the number before rounding", "Cast CastLike QuantizeLinear DequantizeLinear")
    smooth("between two samples its derivative is that of one of them", "Resize Upsample AffineGrid")
    # Ops, under their own names, that no case needs.
    smooth("it only moves numbers", "reshape transpose slice slice_grad concat broadcast_to tile pad pad_grad trilu "
           "gather gather_grad gather_elements gather_elements_grad gather_nd gather_nd_grad scatter_elements "
           "scatter_nd put_rows take_rows one_hot identity cast")
    smooth("it adds and multiplies", "linear linear_grad_weight conv conv_grad_input conv_grad_weight picked_linear "
           "picked_linear_grad_weight cum_sum avg_pool_grad dropout neg")
    smooth("its derivative is finite everywhere", "sigmoid tanh erf cos tan sinh cosh asinh gelu gelu_grad silu")
    smooth("it is the part of another op", "fused fused_sum expm1 log1p atan2 mod fmod")
    smooth("it is a gradient, in which no case differs from the op that has it", "max_pool_grad softmax_grad "
           "log_softmax_grad layer_norm_grad rms_norm_grad attention_grad cross_entropy_grad")
    smooth("it is the step of an optimizer", "sgd momentum rmsprop adagrad adam adamw")


print("# Made by generate_singular.py from PyTorch; do not edit.\n")
elementwise()
powers()
norms()
reductions()
selections()
samplings()
attentions()
losses()
without()
