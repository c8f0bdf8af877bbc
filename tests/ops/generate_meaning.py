"""Writes meaning.txt: what PyTorch computes in float64, for the meaning of op records to be tested against.

Run with PyTorch 2.15: python tests/ops/generate_meaning.py > tests/ops/meaning.txt
"""
import math

import torch
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)

NAMES = {torch.float64: "f64", torch.int64: "i64", torch.int32: "i32", torch.bool: "bool"}


def text(t):
    if t is None:
        return "-"
    t = t.detach().contiguous()
    kind = NAMES[t.dtype]
    values = [repr(float(v)) if kind == "f64" else str(int(v)) for v in t.reshape(-1).tolist()]
    return f"{kind}[{','.join(map(str, t.shape))}]({','.join(values)})"


def attribute(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, str):
        return f'"{v}"'
    if isinstance(v, (list, tuple)):
        return "[" + ",".join(map(str, v)) + "]"
    return repr(v)


def case(op, inputs, outputs, **attributes):
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    named = ",".join(f"{k}={attribute(v)}" for k, v in attributes.items())
    print(f"op {op} {{{named}}}")
    for t in inputs:
        print("in", text(t))
    for t in outputs:
        print("out", text(t))
    print()


def randn(*shape):
    return torch.randn(*shape)


def randint(low, high, *shape):
    return torch.randint(low, high, shape)


def elementwise():
    x = randn(3, 4) * 2
    for op, f in {
        "relu": F.relu, "silu": F.silu, "mish": F.mish, "softplus": F.softplus, "softsign": F.softsign, "selu": F.selu,
        "hard_swish": F.hardswish, "gelu": F.gelu, "sigmoid": torch.sigmoid, "erf": torch.erf, "expm1": torch.expm1,
        "round": torch.round, "sign": torch.sign, "tan": torch.tan, "asinh": torch.asinh, "sinh": torch.sinh,
    }.items():
        case(op, [x], f(x))
    case("round", [torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5])], torch.round(torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5])))
    case("gelu", [x], F.gelu(x, approximate="tanh"), approximate="tanh")
    case("elu", [x], F.elu(x, 0.7), alpha=0.7)
    case("celu", [x], F.celu(x, 1.7), alpha=1.7)
    case("leaky_relu", [x], F.leaky_relu(x, 0.2), alpha=0.2)
    case("hard_sigmoid", [x], F.hardsigmoid(x), alpha=1 / 6, beta=0.5)
    case("thresholded_relu", [x], F.threshold(x, 0.5, 0.0), alpha=0.5)
    case("clip", [x, torch.tensor(-0.5), torch.tensor(1.0)], torch.clamp(x, -0.5, 1.0))
    y = randn(3, 4) + 3
    case("mod", [x * 4, y], torch.remainder(x * 4, y))
    case("fmod", [x * 4, y], torch.fmod(x * 4, y))
    a, b = randint(-9, 9, 8), torch.tensor([3, -3, 4, -4, 5, -5, 2, -2])
    case("mod", [a, b], torch.remainder(a, b))
    case("fmod", [a, b], torch.fmod(a, b))
    case("div", [a, b], torch.div(a, b, rounding_mode="trunc"))
    case("pow", [y, x], torch.pow(y, x))
    case("atan2", [x, y - 3], torch.atan2(x, y - 3))
    case("prelu", [x, y[0]], torch.where(x > 0, x, x * y[0]))
    case("where", [x > 0, x, y], torch.where(x > 0, x, y))


def moving():
    x = randn(3, 4, 5)
    case("transpose", [x], x.permute(2, 0, 1), perm=[2, 0, 1])
    case("slice", [x], x[1:3, :, :].flip(2)[:, :, ::2], axes=[0, 2], starts=[1, 4], ends=[3, -1], steps=[1, -2])
    case("concat", [x, x[:, :2]], torch.cat([x, x[:, :2]], 1), axis=1)
    case("tile", [x], x.repeat(2, 1, 3), repeats=[2, 1, 3])
    case("trilu", [x], torch.triu(x, 1), k=1)
    case("trilu", [x], torch.tril(x, -1), upper=False, k=-1)
    for mode, name in [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]:
        case("pad", [x], F.pad(x, (2, 3, 1, 2), mode=mode), mode=name, begin=[0, 1, 2], end=[0, 2, 3])
    case("pad", [x, torch.tensor(7.0)], F.pad(x, (2, 0, -1, 1), value=7.0), begin=[0, -1, 2], end=[0, 1, 0])
    case("cum_sum", [x], torch.cumsum(x, 1), axis=1)
    case("cum_sum", [x], torch.cumsum(x, 1).roll(1, 1).index_fill(1, torch.tensor([0]), 0.0), axis=1, exclusive=True)
    case("cum_sum", [x], torch.cumsum(x.flip(2), 2).flip(2), axis=-1, reverse=True)
    case("sum", [x], x.sum((0, 2)), axes=[0, 2], keep=False)
    case("max_reduce", [x], x.amax(1, keepdim=True), axes=[1])
    case("prod_reduce", [x], x.prod(1), axes=[1], keep=False)
    case("arg_max", [x], x.argmax(2), axis=2, keep=False)
    values, indices = x.topk(3, 1)
    case("top_k", [x], [values, indices], k=3, axis=1)
    values, indices = x.topk(2, 2, largest=False)
    case("top_k", [x], [values, indices], k=2, axis=2, largest=False)


def indexing():
    x, i = randn(6, 4), randint(-6, 6, 2, 3)
    case("gather", [x, i], x[i])
    dy = randn(2, 3, 4)
    case("gather_grad", [dy, i], torch.zeros(6, 4).index_add(0, i.reshape(-1) % 6, dy.reshape(-1, 4)), axis=0, size=6)
    j = randint(0, 4, 6, 3)
    case("gather_elements", [x, j], torch.gather(x, 1, j), axis=1)
    u = randn(6, 3)
    case("scatter_elements", [x, j, u], torch.scatter_add(x, 1, j, u), axis=1, reduction="add")
    case("scatter_elements", [x, j, u], x.scatter_reduce(1, j, u, "amax"), axis=1, reduction="max")
    case("scatter_elements", [x, j[:, :1], u[:, :1]], x.scatter(1, j[:, :1], u[:, :1]), axis=1)
    k = torch.stack([randint(0, 6, 5), randint(0, 4, 5)], 1)
    case("gather_nd", [x, k], x[k[:, 0], k[:, 1]])
    case("one_hot", [randint(0, 5, 4) * 0 + torch.tensor([0, 3, 4, 1]), torch.tensor([0.0, 1.0])],
         F.one_hot(torch.tensor([0, 3, 4, 1]), 5).double(), depth=5)


def convolutions():
    x, w, b = randn(2, 4, 6, 7), randn(6, 2, 3, 2), randn(6)
    y = F.conv2d(F.pad(x, (1, 0, 1, 2)), w, b, stride=(2, 1), dilation=(1, 2), groups=2)
    window = dict(strides=[2, 1], pads=[1, 1, 2, 0], dilations=[1, 2], groups=2)
    case("conv", [x, w, b], y, **window)
    x1, w1 = randn(2, 3, 9), randn(4, 3, 3)
    case("conv", [x1, w1], F.conv1d(x1, w1, padding=2, dilation=2), pads=[2, 2], dilations=[2])
    x3, w3 = randn(1, 2, 4, 4, 5), randn(3, 2, 2, 2, 3)
    case("conv", [x3, w3], F.conv3d(x3, w3, stride=(1, 2, 1)), strides=[1, 2, 1])
    z, wt = randn(2, 4, 3, 4), randn(4, 3, 3, 3)
    up = F.conv_transpose2d(z, wt, stride=2, padding=1, output_padding=1)
    case("conv_grad_input", [z, wt], up, strides=[2, 2], pads=[1, 1, 1, 1], shape=list(up.shape))
    xs, ws = randn(2, 4, 6, 7).requires_grad_(), randn(6, 2, 3, 3).requires_grad_()
    ys = F.conv2d(xs, ws, stride=(2, 1), padding=1, groups=2)
    dy = randn(*ys.shape)
    dx, dw = torch.autograd.grad(ys, [xs, ws], dy)
    window = dict(strides=[2, 1], pads=[1, 1, 1, 1], groups=2)
    case("conv_grad_input", [dy, ws], dx, shape=[2, 4, 6, 7], **window)
    case("conv_grad_weight", [xs, dy], dw, shape=[6, 2, 3, 3], **window)


def pools():
    x = randn(2, 3, 7, 6)
    y, i = F.max_pool2d(x, 3, stride=2, padding=1, return_indices=True)
    case("max_pool", [x], [y, i.int()], kernel=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y, i = F.max_pool2d(x, 2, stride=(3, 2), dilation=2, ceil_mode=True, return_indices=True)
    case("max_pool", [x], [y, i.int()], kernel=[2, 2], strides=[3, 2], dilations=[2, 2], ceil=True)
    for include in (False, True):
        y = F.avg_pool2d(x, (3, 2), stride=2, padding=1, ceil_mode=True, count_include_pad=include)
        case("avg_pool", [x], y, kernel=[3, 2], strides=[2, 2], pads=[1, 1, 1, 1], ceil=True, count_include_pad=include)


def norms_and_losses():
    x, scale, bias = randn(3, 4, 5), randn(4, 5), randn(4, 5)
    y, mean, rstd = torch.native_layer_norm(x, [4, 5], scale, bias, 1e-3)
    case("layer_norm", [x, scale, bias], [y, mean, rstd], axis=1, epsilon=1e-3)
    rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    case("rms_norm", [x, scale[0]], [F.rms_norm(x, [5], scale[0], 1e-6), rstd], epsilon=1e-6)
    case("softmax", [x], F.softmax(x, 1), axis=1)
    case("log_softmax", [x], F.log_softmax(x, 0), axis=0)
    logits, target = randn(4, 6, 3), randint(0, 6, 4, 3)
    target[1, 2] = target[3, 0] = -1
    loss = F.cross_entropy(logits, target, reduction="sum", ignore_index=-1)
    case("cross_entropy", [logits, target], [loss, torch.logsumexp(logits, 1)], axis=1, ignore_index=-1)
    wide = logits.clone().requires_grad_()
    dlogits, = torch.autograd.grad(F.cross_entropy(wide, target, reduction="sum", ignore_index=-1) * 0.25, wide)
    case("cross_entropy_grad", [logits, target, torch.tensor(0.25), torch.logsumexp(logits, 1)], dlogits, axis=1,
         ignore_index=-1)


def attentions():
    def lse(q, k, scale, bias=None, causal=False):
        s = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) * scale
        if bias is not None:
            s = s + bias
        if causal:
            s = s.masked_fill(torch.ones(s.shape[-2:]).triu(1).bool(), -math.inf)
        return torch.logsumexp(s, -1)

    q, k, v = randn(2, 4, 5, 3), randn(2, 2, 5, 3), randn(2, 2, 5, 2)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.6, enable_gqa=True)
    case("attention", [q, k, v], [y, lse(q, k, 0.6, causal=True)], scale=0.6, causal=True)
    k, v, bias = randn(2, 4, 6, 3), randn(2, 4, 6, 2), randn(2, 1, 5, 6)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    y = F.scaled_dot_product_attention(*leaves, attn_mask=bias, scale=0.5)
    case("attention", [q, k, v, bias], [y, lse(q, k, 0.5, bias)], scale=0.5)
    dy = randn(*y.shape)
    case("attention_grad", [dy, q, k, v, y, lse(q, k, 0.5, bias), bias], torch.autograd.grad(y, leaves, dy), scale=0.5)


def mixtures():
    x, w, dy, picks = randn(5, 3), randn(4, 3, 2), randn(5, 2), randint(-4, 4, 5)
    case("picked_linear", [x, w, picks], torch.einsum("sk,skn->sn", x, w[picks]))
    case("picked_linear", [x, w.transpose(1, 2), picks], torch.einsum("sk,skn->sn", x, w[picks]), transpose_w=True)
    leaf = w.clone().requires_grad_()
    dw, = torch.autograd.grad(torch.einsum("sk,skn->sn", x, leaf[picks]), leaf, dy)
    case("picked_linear_grad_weight", [x, dy, picks], dw, size=4)
    case("picked_linear_grad_weight", [x, dy, picks], dw.transpose(1, 2), size=4, transpose_w=True)


print("# Made by generate_meaning.py from PyTorch; do not edit.\n")
elementwise()
moving()
indexing()
convolutions()
pools()
norms_and_losses()
attentions()
mixtures()
