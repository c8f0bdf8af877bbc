"""Writes training cases with known answers beside this file: siblings of ../shared/cases, in the same folder format, at
other sizes, under other names, from both exporters, with each optimizer and loss.

    python tests/cases/generate.py [NAME...]          needs requirements-fixtures.txt

What a file cannot say is kept out of the references: embeddings have no padding_idx (PyTorch gives its row no gradient,
ONNX does not know it), and running statistics are written as they are at the start (the exporter in training mode runs
the model once, and writes them as they are after that).

The reference trains in float64 with PyTorch's own optimizers; `losses_f32` is PyTorch's own float32 run and
`losses_untrained` what the losses would be with the first weights. The exported file is run by onnxruntime on the
first batch and must agree with PyTorch before anything is written.
"""
import copy
import json
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
import torch
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
import models  # noqa: E402
from exporting import export  # noqa: E402


def tokens(rng, vocab, *shape):
    """Ids with a skewed distribution and local structure, so that there is something to learn."""
    ids = rng.zipf(1.4, shape) % vocab
    ids[..., 1::2] = (ids[..., ::2][..., : ids[..., 1::2].shape[-1]] * 3 + 1) % vocab
    return ids.astype(np.int64)


def language(rng, steps, batch, time, vocab, ignore=0.0):
    ids = tokens(rng, vocab, steps, batch, time + 1)
    target = ids[..., 1:].copy()
    target[rng.random(target.shape) < ignore] = -100
    return {"ids": ids[..., :-1].copy()}, target


def masked(rng, steps, batch, time):
    mask = np.ones((steps, batch, time), np.int64)
    for row in mask.reshape(-1, time):
        row[rng.integers(time // 2, time + 1):] = 0
    return mask


def pictures(rng, steps, batch, channels, size, classes):
    target = rng.integers(0, classes, (steps, batch))
    x = rng.standard_normal((steps, batch, channels, size, size)).astype(np.float32)
    x += 0.5 * target[..., None, None, None].astype(np.float32) * np.linspace(-1, 1, size, dtype=np.float32)
    return {"pixels": x}, target.astype(np.int64)


def rows(rng, steps, batch, width):
    return rng.standard_normal((steps, batch, width)).astype(np.float32)


def case_list():
    """Each case: a function of a random generator giving its parts. Batches divide by 4."""
    cases = {}

    def case(make):
        cases[make.__name__] = make

    @case
    def mlp_sgd_legacy(rng):
        x = rows(rng, 16, 8, 12)
        return dict(model=models.Mlp([12, 16, 9, 5]), inputs={"x": x}, target=np.argmax(x[..., :5], -1), how="legacy",
                    opset=13, loss="softmax_cross_entropy", optimizer=dict(optimizer="sgd", lr=0.3, weight_decay=0.01))

    @case
    def mlp_dynamic_batch_adamw(rng):
        x = rows(rng, 16, 12, 10)
        return dict(model=models.Mlp([10, 14, 3], nn.GELU, norm=True), inputs={"features": x},
                    target=np.argmax(x[..., 2:5], -1), how="legacy", opset=17, loss="softmax_cross_entropy",
                    dynamic=True, optimizer=dict(optimizer="adamw", lr=0.02, betas=[0.9, 0.999], eps=1e-6,
                                                 weight_decay=0.1))

    @case
    def mlp_dynamo_symbolic_adam(rng):
        x = rows(rng, 16, 8, 10)
        return dict(model=models.Mlp([10, 14, 4], nn.SiLU), inputs={"x": x}, target=np.argmax(x[..., :4], -1),
                    how="dynamo_raw", opset=20, loss="softmax_cross_entropy", dynamic=True,
                    optimizer=dict(optimizer="adam", lr=0.02, betas=[0.8, 0.99], eps=1e-6, weight_decay=0.0))

    @case
    def mlp_mse_adam(rng):
        x = rows(rng, 16, 8, 7)
        target = np.stack([np.sin(x[..., 0]), x[..., 1] * x[..., 2], x[..., 3]], -1).astype(np.float32)
        return dict(model=models.Mlp([7, 20, 3], nn.Tanh), inputs={"x": x}, target=target, how="dynamo_raw", opset=18,
                    loss="mse", optimizer=dict(optimizer="adam", lr=0.01, betas=[0.9, 0.99], eps=1e-6,
                                               weight_decay=0.02))

    @case
    def mlp_bce_momentum(rng):
        x = rows(rng, 16, 8, 6)
        return dict(model=models.Mlp([6, 11, 4], nn.Softplus), inputs={"x": x},
                    target=(x[..., :4] > 0).astype(np.float32),
                    how="legacy", opset=15, loss="bce_with_logits",
                    optimizer=dict(optimizer="momentum", lr=0.2, momentum=0.8, weight_decay=0.001))

    @case
    def scorer_dynamo_adamw(rng):
        x = rows(rng, 16, 8, 6)
        return dict(model=models.Scorer(6), inputs={"x": x}, target=(x[..., :1] > 0.2).astype(np.float32),
                    how="dynamo_raw",
                    opset=20, loss="bce_with_logits",
                    optimizer=dict(optimizer="adamw", lr=0.02, betas=[0.9, 0.99], eps=1e-6, weight_decay=0.05))

    def singular(rng, how, opset, optimizer):
        x = rows(rng, 12, 8, 7)
        x[:, ::3] = 0
        target = 1 + np.argmax(x[..., :3], -1)
        target[:, 5] = -100
        return dict(model=models.Singular(7, 4), inputs={"x": x}, target=target, how=how, opset=opset, ignore=True,
                    loss="softmax_cross_entropy", optimizer=optimizer)

    @case
    def singular_legacy_sgd(rng):
        return singular(rng, "legacy", 16, dict(optimizer="sgd", lr=0.1, weight_decay=0.01))

    @case
    def singular_dynamo_adam(rng):
        return singular(rng, "dynamo_raw", 20, dict(optimizer="adam", lr=0.01, betas=[0.9, 0.99], eps=1e-6,
                                                    weight_decay=0.0))

    @case
    def scorer_legacy_sgd(rng):
        x = rows(rng, 16, 8, 5)
        return dict(model=models.Scorer(5), inputs={"x": x}, target=(x[..., :1] > 0).astype(np.float32), how="legacy",
                    opset=16,
                    loss="bce_with_logits", optimizer=dict(optimizer="sgd", lr=0.2, weight_decay=0.01))

    @case
    def mlp_own_loss_sgd(rng):
        x = rows(rng, 16, 8, 9)
        labels = np.argmax(x[..., :4], -1)
        return dict(model=models.MlpWithLoss([9, 13, 4]), inputs={"x": x, "labels": labels}, target=None, how="legacy",
                    opset=14, loss="output:loss", outputs=["loss"],
                    optimizer=dict(optimizer="sgd", lr=0.3, weight_decay=0.0))

    @case
    def mlp_own_loss_dynamo(rng):
        x = rows(rng, 16, 8, 9)
        labels = np.argmax(x[..., :4], -1)
        return dict(model=models.MlpWithLoss([9, 10, 4]), inputs={"x": x, "labels": labels}, target=None,
                    how="dynamo_raw",
                    opset=20, loss="output:objective", outputs=["objective"],
                    optimizer=dict(optimizer="momentum", lr=0.1, momentum=0.9, weight_decay=0.0))

    @case
    def mlp_frozen_momentum(rng):
        x = rows(rng, 16, 8, 12)
        return dict(model=models.Mlp([12, 10, 10, 5]), inputs={"x": x}, target=np.argmax(x[..., :5], -1),
                    how="dynamo_raw",
                    opset=20, loss="softmax_cross_entropy", frozen=["net.0.weight", "net.2.bias"],
                    optimizer=dict(optimizer="momentum", lr=0.1, momentum=0.9, weight_decay=0.01))

    @case
    def aside_legacy_momentum(rng):
        x = rows(rng, 12, 8, 6)
        return dict(model=models.Aside(6, 4), inputs={"x": x}, target=np.argmax(x[..., :4], -1), how="legacy",
                    opset=17, loss="softmax_cross_entropy", outputs=["logits", "aside"],
                    optimizer=dict(optimizer="momentum", lr=0.1, momentum=0.9, weight_decay=0.0))

    @case
    def cnn_momentum_legacy(rng):
        inputs, target = pictures(rng, 12, 8, 3, 12, 5)
        return dict(model=models.Cnn(), inputs=inputs, target=target, how="legacy", opset=16,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="momentum", lr=0.05, momentum=0.9, weight_decay=0.001))

    @case
    def cnn_adam_dynamo(rng):
        inputs, target = pictures(rng, 12, 4, 3, 12, 5)
        return dict(model=models.Cnn(), inputs=inputs, target=target, how="dynamo_raw", opset=20,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="adam", lr=0.01, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.0))

    @case
    def mlp_adagrad_legacy(rng):
        x = rows(rng, 16, 8, 9)
        return dict(model=models.Mlp([9, 15, 4], nn.Mish), inputs={"x": x}, target=np.argmax(x[..., :4], -1),
                    how="legacy",
                    opset=17, loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="adagrad", lr=0.1, lr_decay=0.02, eps=1e-8, weight_decay=0.01))

    @case
    def cnn_rmsprop_dynamo(rng):
        inputs, target = pictures(rng, 12, 4, 3, 12, 5)
        return dict(model=models.Cnn(), inputs=inputs, target=target, how="dynamo_raw", opset=20,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="rmsprop", lr=0.002, alpha=0.9, eps=1e-4, weight_decay=0.001))

    @case
    def resnet_adamw(rng):
        inputs, target = pictures(rng, 12, 8, 3, 12, 6)
        return dict(model=models.Resnet(), inputs=inputs, target=target, how="legacy", opset=17, training=True,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="adamw", lr=0.01, betas=[0.9, 0.99], eps=1e-6, weight_decay=0.05))

    @case
    def resnet_wide_momentum(rng):  # enough channels for Winograd's convolution
        inputs, target = pictures(rng, 6, 8, 3, 16, 6)
        return dict(model=models.Resnet((16, 20)), inputs=inputs, target=target, how="legacy", opset=17, training=True,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="momentum", lr=0.05, momentum=0.9, weight_decay=0.001))

    @case
    def shared_norm_momentum(rng):
        inputs, target = pictures(rng, 10, 8, 3, 8, 4)
        return dict(model=models.SharedNorm(), inputs=inputs, target=target, how="legacy", opset=17, training=True,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="momentum", lr=0.05, momentum=0.9, weight_decay=0.001))

    @case
    def lstm_legacy_adam(rng):
        x = rng.standard_normal((10, 8, 5, 4)).astype(np.float32)
        return dict(model=models.Tagger(nn.LSTM, 4, 6, 3), inputs={"x": x},
                    target=np.argmax(np.cumsum(x, 2)[..., :3], -1), how="legacy",
                    opset=17, loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="adam", lr=0.02, betas=[0.9, 0.99], eps=1e-6, weight_decay=0.0))

    @case
    def gru_legacy_momentum(rng):
        x = rng.standard_normal((10, 8, 5, 4)).astype(np.float32)
        return dict(model=models.Tagger(nn.GRU, 4, 6, 3, bidirectional=True), inputs={"x": x},
                    target=np.argmax(np.cumsum(x, 2)[..., :3], -1), how="legacy", opset=16,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="momentum", lr=0.2, momentum=0.9, weight_decay=0.0))

    @case
    def time_major_adamw(rng):
        x = rng.standard_normal((10, 8, 6, 5)).astype(np.float32)
        return dict(model=models.TimeMajor(5, 8, 3), inputs={"x": x}, target=np.argmax(x.sum(2)[..., :3], -1),
                    how="legacy", opset=17,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="adamw", lr=0.02, betas=[0.9, 0.99], eps=1e-6, weight_decay=0.05))

    @case
    def time_major_dynamo_sgd(rng):
        x = rng.standard_normal((10, 8, 6, 5)).astype(np.float32)
        return dict(model=models.TimeMajor(5, 8, 3), inputs={"x": x}, target=np.argmax(x.sum(2)[..., :3], -1),
                    how="dynamo_raw", opset=20,
                    loss="softmax_cross_entropy", optimizer=dict(optimizer="sgd", lr=0.3, weight_decay=0.0))

    @case
    def queries_legacy_momentum(rng):
        x = rng.standard_normal((10, 8, 6, 5)).astype(np.float32)
        return dict(model=models.Queries(5, 8, 3), inputs={"x": x}, target=np.argmax(x.sum(2)[..., :3], -1),
                    how="legacy", opset=17, loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="momentum", lr=0.1, momentum=0.9, weight_decay=0.01))

    @case
    def segmenter_ignore_adam(rng):
        x = rng.standard_normal((12, 4, 2, 8, 8)).astype(np.float32)
        target = (x[:, :, 0] > 0).astype(np.int64) + 2 * (x[:, :, 1] > 0)
        target[rng.random(target.shape) < 0.2] = -100
        return dict(model=models.Segmenter(), inputs={"x": x}, target=target, how="dynamo_raw", opset=18, ignore=True,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="adam", lr=0.02, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.0))

    @case
    def gpt_legacy_adamw(rng):
        inputs, target = language(rng, 12, 4, 10, 37)
        return dict(model=models.Gpt(37, 10, 24, 3, 2, norm=models.WrittenLayerNorm, gelu=models.written_gelu_tanh),
                    inputs=inputs, target=target, how="legacy", opset=13, training=True, loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="adamw", lr=0.005, betas=[0.9, 0.95], eps=1e-6, weight_decay=0.1))

    @case
    def gpt2_dynamo_adam(rng):
        inputs, target = language(rng, 12, 8, 12, 41, ignore=0.1)
        return dict(model=models.gpt2("sdpa", vocab_size=41, n_positions=12, n_embd=20, n_layer=2, n_head=2),
                    inputs=inputs, target=target, how="dynamo_raw", opset=20, ignore=True, loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="adam", lr=0.004, betas=[0.9, 0.99], eps=1e-6, weight_decay=0.01))

    @case
    def gpt2_eager_opset18_momentum(rng):
        inputs, target = language(rng, 12, 4, 8, 32)
        return dict(model=models.gpt2("eager"), inputs=inputs, target=target, how="dynamo_raw", opset=18,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="momentum", lr=0.1, momentum=0.9, weight_decay=0.0))

    @case
    def bert_class_adamw(rng):
        ids = tokens(rng, 30, 12, 8, 9)
        return dict(model=models.bert("eager", "class", vocab_size=30, hidden_size=18, num_attention_heads=3,
                                      num_labels=3,
                                      max_position_embeddings=9, pad_token_id=None),
                    inputs={"ids": ids, "mask": masked(rng, 12, 8, 9)}, target=ids[..., 0] % 3, how="dynamo_raw",
                    opset=20,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="adamw", lr=0.005, betas=[0.9, 0.999], eps=1e-5, weight_decay=0.01))

    @case
    def bert_masked_legacy_sgd(rng):
        inputs, target = language(rng, 12, 4, 8, 32, ignore=0.5)
        inputs["mask"] = masked(rng, 12, 4, 8)
        return dict(model=models.bert("sdpa", pad_token_id=None), inputs=inputs, target=target, how="legacy", opset=17,
                    ignore=True,
                    loss="softmax_cross_entropy", optimizer=dict(optimizer="sgd", lr=0.2, weight_decay=0.001))

    @case
    def llama_dynamo_adamw(rng):
        inputs, target = language(rng, 12, 4, 8, 33)
        return dict(model=models.llama("sdpa", vocab_size=33, hidden_size=24, intermediate_size=20),
                    inputs=inputs, target=target, how="dynamo_raw", opset=20, loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="adamw", lr=0.005, betas=[0.9, 0.95], eps=1e-6, weight_decay=0.1))

    @case
    def llama_legacy_sgd(rng):
        inputs, target = language(rng, 12, 4, 8, 32)
        return dict(model=models.Llama(), inputs=inputs, target=target, how="legacy", opset=14, training=True,
                    loss="softmax_cross_entropy", optimizer=dict(optimizer="sgd", lr=0.2, weight_decay=0.0))

    @case
    def vit_legacy_momentum(rng):
        inputs, target = pictures(rng, 12, 4, 3, 8, 4)
        return dict(model=models.vit("eager"), inputs=inputs, target=target, how="legacy", opset=17,
                    loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="momentum", lr=0.05, momentum=0.9, weight_decay=0.0001))

    @case
    def vit_dynamo_adamw(rng):
        inputs, target = pictures(rng, 12, 4, 3, 12, 5)
        return dict(model=models.vit("sdpa", image_size=12, num_labels=5), inputs=inputs, target=target,
                    how="dynamo_raw",
                    opset=20, loss="softmax_cross_entropy",
                    optimizer=dict(optimizer="adamw", lr=0.005, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.05))

    def mixture(rng, how, opset, optimizer, batch=8, **experts):
        inputs, target = language(rng, 12, batch, 8, 23)
        inputs["labels"] = target
        make = experts.pop("kind")
        return dict(model=models.Mixture(23, 12, make(12, 16, 4, **experts)), inputs=inputs, target=None, how=how,
                    opset=opset, loss="output:loss", outputs=["loss"], optimizer=optimizer)

    @case
    def moe_top1_legacy_adamw(rng):
        return mixture(rng, "legacy", 17, dict(optimizer="adamw", lr=0.01, betas=[0.9, 0.99], eps=1e-6,
                                               weight_decay=0.05), kind=models.SwitchExperts, picks=1, capacity=3)

    @case
    def moe_top2_dynamo_momentum(rng):
        return mixture(rng, "dynamo_raw", 20, dict(optimizer="momentum", lr=0.1, momentum=0.9, weight_decay=0.0),
                       kind=models.SwitchExperts, picks=2, capacity=4)

    @case
    def moe_indexed_legacy_adam(rng):
        return mixture(rng, "legacy", 17, dict(optimizer="adam", lr=0.01, betas=[0.9, 0.99], eps=1e-6,
                                               weight_decay=0.0), kind=models.IndexedExperts, capacity=20)

    @case
    def moe_indexed_pairs_dynamo_adam(rng):
        return mixture(rng, "dynamo_raw", 20, dict(optimizer="adam", lr=0.01, betas=[0.9, 0.99], eps=1e-6,
                                                   weight_decay=0.0), kind=models.IndexedPairs, capacity=28)

    @case
    def moe_looped_dynamo_adamw(rng):
        return mixture(rng, "dynamo_raw", 20, dict(optimizer="adamw", lr=0.01, betas=[0.9, 0.99], eps=1e-6,
                                                   weight_decay=0.05), kind=models.LoopedExperts, picks=2)

    @case
    def moe_dropless_legacy_momentum(rng):
        return mixture(rng, "legacy", 16, dict(optimizer="momentum", lr=0.1, momentum=0.9, weight_decay=0.001),
                       kind=models.DroplessExperts, picks=2)

    @case
    def moe_picked_dynamo_adamw(rng):
        inputs, target = language(rng, 12, 8, 8, 23)
        return dict(model=models.qwen_moe(vocab_size=23), inputs=inputs, target=target, how="dynamo_raw", opset=20,
                    loss="softmax_cross_entropy", optimizer=dict(optimizer="adamw", lr=0.01, betas=[0.9, 0.99],
                                                                 eps=1e-6, weight_decay=0.05))

    return cases


def loss_of(kind, output, target):
    output = output[0] if isinstance(output, tuple) else output  # the loss is on the first
    if kind == "softmax_cross_entropy":
        if output.dim() == target.dim() + 1 and output.shape[:-1] == target.shape:
            return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1), ignore_index=-100)
        return F.cross_entropy(output, target, ignore_index=-100)
    if kind == "mse":
        return F.mse_loss(output, target)
    if kind == "bce_with_logits":
        return F.binary_cross_entropy_with_logits(output, target)
    return output


def optimizer_of(settings, parameters):
    classes = {"sgd": torch.optim.SGD, "momentum": torch.optim.SGD, "adam": torch.optim.Adam,
               "adamw": torch.optim.AdamW,
               "rmsprop": torch.optim.RMSprop, "adagrad": torch.optim.Adagrad}
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items() if k != "optimizer"}
    return classes[settings["optimizer"]](parameters, **options)


def train(model, parts, dtype, learn=True):
    """Losses before each update, gradient norms of the first step, and the model after the last."""
    model = copy.deepcopy(model).to(dtype)
    model.train(parts.get("training", False))
    named = dict(model.named_parameters())
    trainable = {k: p for k, p in named.items() if k not in parts.get("frozen", [])}
    optimizer = optimizer_of(parts["optimizer"], list(trainable.values()))
    cast = lambda a: (torch.from_numpy(np.ascontiguousarray(a)).to(dtype) if a.dtype == np.float32
                      else torch.from_numpy(a))
    losses, norms = [], {}
    steps = next(iter(parts["inputs"].values())).shape[0]
    for step in range(steps):
        optimizer.zero_grad()
        output = model(*[cast(np.ascontiguousarray(a[step])) for a in parts["inputs"].values()])
        target = None if parts["target"] is None else cast(np.ascontiguousarray(parts["target"][step]))
        loss = loss_of(parts["loss"], output, target)
        losses.append(loss.item())
        loss.backward()
        if step == 0:
            norms = {k: p.grad.norm().item() if p.grad is not None else 0.0 for k, p in trainable.items()}
        if learn:
            optimizer.step()
    return losses, norms, model


def write_case(name, make):
    rng = np.random.default_rng(sum(map(ord, name)))
    parts = make(rng)
    if parts["target"] is not None and parts["target"].dtype != np.float32:
        parts["target"] = parts["target"].astype(np.int64)
    model = models.randomise(parts["model"], len(name))
    training = parts.get("training", False)
    model.train(training)
    inputs, outputs = parts["inputs"], parts.get("outputs", ["logits"])
    first = [torch.from_numpy(a[0]) for a in inputs.values()]
    proto = export(copy.deepcopy(model), first, parts["how"], parts["opset"], list(inputs), outputs, training,
                   parts.get("dynamic", False))
    buffers = {k: b for k, b in model.named_buffers() if "running" in k}
    for tensor in proto.graph.initializer:
        if tensor.name in buffers:
            tensor.CopyFrom(onnx.numpy_helper.from_array(buffers[tensor.name].numpy(), tensor.name))
    expected = copy.deepcopy(model)(*first)
    expected = (expected[0] if isinstance(expected, tuple) else expected).detach().numpy()
    difference = None
    if not training:  # onnxruntime has no batch norm in training mode
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        got = session.run(None, {k: a[0] for k, a in inputs.items()})[0]
        same = got == expected  # scores of -inf too
        difference = float(np.abs(np.where(same, 0, got - expected)).max())
        assert difference < 1e-4, f"{name}: the export differs by {difference}"
    losses, norms, trained = train(model, parts, torch.float64)
    losses32 = train(model, parts, torch.float32)[0]
    untrained = train(model, parts, torch.float64, learn=False)[0]
    worst = max(abs(a - b) / abs(a) for a, b in zip(losses, losses32))
    assert worst < 1e-4, f"{name}: float32 itself differs by {worst}"
    moved = max(abs(a - b) / abs(a) for a, b in zip(losses, untrained))
    assert moved > 0.01, f"{name}: nothing is trained"
    initialisers = {i.name for i in proto.graph.initializer}
    named = dict(trained.named_parameters())
    frozen = parts.get("frozen", [])
    missing = [k for k in named if k not in initialisers]
    by_storage = {}
    for k, p in trained.named_parameters(remove_duplicate=False):
        by_storage.setdefault(p.data_ptr(), []).append(k)
    # A tied weight is written under one of its names; the reference goes by the name that the file has.
    alias = {group[0]: next(k for k in group if k in initialisers) for group in by_storage.values() if len(group) > 1}
    missing = [k for k in missing if alias.get(k, k) not in initialisers]
    assert not missing, f"{name}: the file lacks {missing}"
    buffers = {k: b.norm().item() for k, b in trained.named_buffers() if k in initialisers and "running" in k}
    reference = {
        **parts["optimizer"], "loss": parts["loss"],
        "losses": losses, "losses_f32": losses32, "losses_untrained": untrained,
        "trainable": [alias.get(k, k) for k in named if k not in frozen], "frozen": frozen,
        "tied": [g for g in by_storage.values() if len(g) > 1],
        "final_param_norms": {alias.get(k, k): p.norm().item() for k, p in named.items()},
        "step0_grad_norms": {alias.get(k, k): v for k, v in norms.items()}, "final_buffer_norms": buffers,
        "export_max_abs_diff": difference, "exporter": parts["how"], "opset": {"": proto.opset_import[0].version},
        "inputs": {k: [list(a.shape[1:]), 7 if a.dtype == np.int64 else 1] for k, a in inputs.items()},
        "outputs": outputs, "torch_mode": "train" if training else "eval",
        "batchnorm": "batch stats (train mode)" if buffers else None,
    }
    if parts.get("ignore"):
        reference["ignore_index"] = -100
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    onnx.save_model(proto, str(folder / "model.onnx"))
    tensors = {f"input.{k}": a for k, a in inputs.items()}
    if parts["target"] is not None:
        tensors["target"] = parts["target"]
    save_file({k: np.ascontiguousarray(a) for k, a in tensors.items()}, str(folder / "train.safetensors"))
    (folder / "reference.json").write_text(json.dumps(reference, indent=1) + "\n")
    small = min(norms.values())
    print(f"{name}: {len(proto.graph.node)} nodes, loss {losses[0]:.4f} -> {losses[-1]:.4f} (untrained "
          f"{untrained[-1]:.4f}), "
          f"float32 error {worst:.1e}, smallest gradient {small:.1e}", flush=True)


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    for name, make in case_list().items():
        if not wanted or name in wanted:
            write_case(name, make)


if __name__ == "__main__":
    main()
