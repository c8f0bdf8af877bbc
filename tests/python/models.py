"""Tiny models with random weights, as PyTorch users write them: the sources of the exported fixtures and training
cases.

Nothing is downloaded: the transformers classes are built from configurations. Hidden sizes are odd on purpose where the
architecture allows it, so that a kernel which only fits powers of two is found out.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """Fully connected layers with one activation between them; x[batch, sizes[0]] -> [batch, sizes[-1]]."""

    def __init__(self, sizes, activation=nn.ReLU, norm=False):
        super().__init__()
        layers = []
        for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
            layers.append(nn.Linear(a, b))
            if i + 2 < len(sizes):
                if norm:
                    layers.append(nn.LayerNorm(b))
                layers.append(activation())
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


class MlpWithLoss(nn.Module):
    """An MLP whose graph ends in its own loss: (x[batch, n], labels[batch]) -> scalar."""

    def __init__(self, sizes):
        super().__init__()
        self.body = Mlp(sizes, nn.Tanh)

    def forward(self, x, labels):
        return F.cross_entropy(self.body(x), labels)


class Singular(nn.Module):
    """Rows of zeros, as padding has them, where norms, quotients and products have no derivative of their own; and a
    class that a mask leaves no chance."""

    def __init__(self, width, classes):
        super().__init__()
        self.direction = nn.Linear(width, 5, bias=False)
        self.spread = nn.Linear(width, 4, bias=False)
        self.factors = nn.Linear(width, 3, bias=False)
        self.left = nn.Linear(width, 4, bias=False)
        self.right = nn.Linear(width, 4, bias=False)
        self.head = nn.Linear(5 + 1 + 1 + 1 + 1, classes)
        mask = torch.zeros(classes)
        mask[0] = -math.inf
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        length = torch.linalg.vector_norm(self.left(x), 2, 1, keepdim=True)
        product = self.factors(x).prod(1, keepdim=True)
        alike = F.cosine_similarity(self.left(x), self.right(x), 1).unsqueeze(1)
        parts = [F.normalize(self.direction(x), dim=1), self.spread(x).std(1, keepdim=True), length, product, alike]
        return self.head(torch.cat(parts, 1)) + self.mask


class Aside(nn.Module):
    """A second head that the loss on the first does not see, and a gate whose gradient is rounded away: PyTorch's
    gradients of the one are None, those of the other zero; x[batch, n] -> ([batch, classes], [batch, 3])."""

    def __init__(self, width, classes):
        super().__init__()
        self.body = nn.Linear(width, 9)
        self.head = nn.Linear(9, classes)
        self.aside = nn.Linear(9, 3)
        self.gate = nn.Parameter(torch.zeros(9))

    def forward(self, x):
        x = torch.tanh(self.body(x)) * (2 + torch.round(self.gate))
        return self.head(x), self.aside(x)


class Scorer(nn.Module):
    """One logit, with parameters that look like constants: a scale at the top and a single number; x[batch, n] ->
    [batch, 1]."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.temperature = nn.Parameter(torch.tensor(0.7))
        self.hidden = nn.Linear(width, 9)
        self.out = nn.Linear(9, 1)

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x * self.scale))) * self.temperature.exp()


class Cnn(nn.Module):
    """Grouped, dilated and strided convolutions with both poolings; x[b, 3, 12, 12] -> [b, classes]."""

    def __init__(self, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 12, 3, padding=2, dilation=2, groups=4)
        self.conv3 = nn.Conv2d(12, 10, (3, 1), stride=2, padding=(1, 0), bias=False)
        self.head = nn.Linear(10 * 4, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.leaky_relu(self.conv2(x), 0.1), 3, stride=2, padding=1)
        x = F.silu(self.conv3(F.pad(x, (0, 1, 0, 1))))
        return self.head(torch.flatten(x, 1))


class BasicBlock(nn.Module):
    """The residual block of ResNet-18 (He et al. 2015)."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (self.downsample(x) if self.downsample is not None else x))


class Resnet(nn.Module):
    """A stem, basic blocks and a linear head; x[b, 3, s, s] -> [b, classes]."""

    def __init__(self, widths=(8, 12), classes=6):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        blocks, cin = [], widths[0]
        for i, width in enumerate(widths):
            blocks.append(BasicBlock(cin, width, 1 if i == 0 else 2))
            cin = width
        self.layers = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(cin, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(torch.flatten(self.pool(self.layers(x)), 1))


class Segmenter(nn.Module):
    """Down and up again: classes on dimension 1, x[b, 2, 8, 8] -> [b, classes, 8, 8]."""

    def __init__(self, classes=4):
        super().__init__()
        self.down = nn.Conv2d(2, 6, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(6, 5, 2, stride=2)
        self.head = nn.Conv2d(5, classes, 1)

    def forward(self, x):
        return self.head(F.elu(self.up(F.relu(self.down(x)))))


class SharedNorm(nn.Module):
    """One batch norm behind two convolutions, so that a step moves its statistics twice; x[b, 3, s, s] -> [b,
    classes]."""

    def __init__(self, width=6, classes=4):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.norm(self.second(x)))
        return self.head(x.mean((2, 3)))


class Tagger(nn.Module):
    """A recurrent layer over time-major steps, as PyTorch's is unless told otherwise; x[b, t, f] -> [b, t, classes]."""

    def __init__(self, layer, features, hidden, classes, **options):
        super().__init__()
        self.layer = layer(features, hidden, **options)
        self.head = nn.Linear(hidden * (2 if options.get("bidirectional") else 1), classes)

    def forward(self, x):
        return self.head(self.layer(x.transpose(0, 1))[0]).transpose(0, 1)


class TimeMajor(nn.Module):
    """Products, a norm and attention over [time, samples, ...]: samples are not the first dimension that gradients sum
    over, and attention folds them into dimensions of which they are the minor part. x[b, t, f] -> [b, classes]."""

    def __init__(self, features, width, classes):
        super().__init__()
        self.into = nn.Linear(features, width)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = F.gelu(self.norm(self.into(x.permute(1, 0, 2))))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x.mean(0))


class Queries(nn.Module):
    """Three learnt queries look at each other and then at a sequence, as a decoder of DETR does: nn.MultiheadAttention
    whose views merge samples and heads, where few ranks divide queries and heads. x[b, t, f] -> [b, classes]."""

    def __init__(self, features, width, classes, layers=2):
        super().__init__()
        self.into = nn.Linear(features, width)
        self.queries = nn.Parameter(torch.randn(1, 3, width))
        self.own = nn.ModuleList(nn.MultiheadAttention(width, 2, batch_first=True) for _ in range(layers))
        self.cross = nn.ModuleList(nn.MultiheadAttention(width, 2, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.into(x)
        y = self.queries + x[:, :1]
        for own, cross in zip(self.own, self.cross):
            y = y + own(y, y, y, need_weights=False)[0]
            y = y + F.gelu(cross(y, x, x, need_weights=False)[0])
        return self.head(y.mean(1))


class WrittenLayerNorm(nn.Module):
    """Layer norm in plain arithmetic, as older models and graphs have it."""

    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + self.eps) * self.weight + self.bias


def written_gelu_tanh(x):
    """GELU by its tanh form in plain arithmetic (Hendrycks and Gimpel 2016), as GPT-2's own code has it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def written_gelu_erf(x):
    """GELU by its erf form in plain arithmetic."""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class Gpt(nn.Module):
    """A decoder as in nanoGPT: ids[b, t] -> logits[b, t, vocab]. The variants change how its parts are written."""

    def __init__(self, vocab=32, context=8, width=16, heads=2, layers=2, attention="written", norm=nn.LayerNorm,
                 gelu=None, tied=True):
        super().__init__()
        self.heads, self.kind = heads, attention
        self.gelu = gelu or nn.GELU(approximate="tanh")
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(context, width)
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            self.blocks.append(nn.ModuleDict({
                "ln_1": norm(width), "qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width),
                "ln_2": norm(width), "fc": nn.Linear(width, 4 * width), "out": nn.Linear(4 * width, width)}))
        self.ln_f = norm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight
        self.register_buffer("mask", torch.tril(torch.ones(context, context)).view(1, 1, context, context))

    def attention(self, block, x):
        b, t, width = x.shape
        q, k, v = block["qkv"](x).split(width, dim=2)
        q, k, v = (y.view(b, t, self.heads, width // self.heads).transpose(1, 2) for y in (q, k, v))
        if self.kind == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
            y = F.softmax(scores, dim=-1) @ v
        return block["proj"](y.transpose(1, 2).contiguous().view(b, t, width))

    def forward(self, ids):
        t = ids.shape[1]
        x = self.wte(ids) + self.wpe(torch.arange(t))
        for block in self.blocks:
            x = x + self.attention(block, block["ln_1"](x))
            x = x + block["out"](self.gelu(block["fc"](block["ln_2"](x))))
        return self.lm_head(self.ln_f(x))


class RmsNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight."""

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Llama(nn.Module):
    """A decoder with rotary positions, grouped queries and SwiGLU: ids[b, t] -> logits[b, t, vocab]."""

    def __init__(self, vocab=32, context=8, width=16, heads=4, kv_heads=2, inner=24, layers=2):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, width // heads
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            self.blocks.append(nn.ModuleDict({
                "norm1": RmsNorm(width), "norm2": RmsNorm(width),
                "q": nn.Linear(width, heads * self.dim, bias=False),
                "k": nn.Linear(width, kv_heads * self.dim, bias=False),
                "v": nn.Linear(width, kv_heads * self.dim, bias=False), "o": nn.Linear(width, width, bias=False),
                "gate": nn.Linear(width, inner, bias=False), "up": nn.Linear(width, inner, bias=False),
                "down": nn.Linear(inner, width, bias=False)}))
        self.norm = RmsNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        angles = torch.outer(torch.arange(context).float(),
                             1.0 / (100.0 ** (torch.arange(0, self.dim, 2).float() / self.dim)))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())
        self.register_buffer("mask", torch.full((context, context), float("-inf")).triu(1))

    def rotate(self, x):
        half = x.shape[-1] // 2
        return x * self.cos + torch.cat([-x[..., half:], x[..., :half]], -1) * self.sin

    def forward(self, ids):
        b, t = ids.shape
        x = self.embed(ids)
        for block in self.blocks:
            h = block["norm1"](x)
            q = self.rotate(block["q"](h).view(b, t, self.heads, self.dim).transpose(1, 2))
            k = self.rotate(block["k"](h).view(b, t, self.kv_heads, self.dim).transpose(1, 2))
            v = block["v"](h).view(b, t, self.kv_heads, self.dim).transpose(1, 2)
            k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
            v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.dim) + self.mask
            y = F.softmax(scores, dim=-1) @ v
            x = x + block["o"](y.transpose(1, 2).reshape(b, t, -1))
            h = block["norm2"](x)
            x = x + block["down"](F.silu(block["gate"](h)) * block["up"](h))
        return self.head(self.norm(x))


def gpt2(attention, **sizes):
    """GPT-2 by transformers: ids[b, t] -> logits."""
    from transformers import GPT2Config, GPT2LMHeadModel

    class Gpt2(GPT2LMHeadModel):
        def forward(self, input_ids):
            return super().forward(input_ids).logits

    sizes = {"vocab_size": 32, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2, **sizes}
    return Gpt2(GPT2Config(use_cache=False, attn_implementation=attention, bos_token_id=0, eos_token_id=0,
                           resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **sizes))


def bert(attention, head="lm", **sizes):
    """BERT by transformers: (ids[b, t], mask[b, t]) -> logits, per token (`lm`) or per sequence (`class`)."""
    import transformers

    base = transformers.BertForMaskedLM if head == "lm" else transformers.BertForSequenceClassification

    class Bert(base):
        def forward(self, input_ids, attention_mask):
            return super().forward(input_ids=input_ids, attention_mask=attention_mask).logits

    sizes = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 32, "max_position_embeddings": 8, **sizes}
    return Bert(transformers.BertConfig(attn_implementation=attention, hidden_dropout_prob=0.0,
                                        attention_probs_dropout_prob=0.0, **sizes))


def llama(attention, **sizes):
    """LLaMA by transformers, grouped queries: ids[b, t] -> logits."""
    from transformers import LlamaConfig, LlamaForCausalLM

    class LlamaLm(LlamaForCausalLM):
        def forward(self, input_ids):
            return super().forward(input_ids).logits

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 8, **sizes}
    return LlamaLm(LlamaConfig(use_cache=False, attn_implementation=attention, bos_token_id=0, eos_token_id=0, **sizes))


def qwen_moe(**sizes):
    """Qwen3-MoE by transformers, whose experts' weights are picked by each token's experts: ids[b, t] -> logits."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    class QwenMoe(Qwen3MoeForCausalLM):
        def forward(self, input_ids):
            return super().forward(input_ids).logits

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "moe_intermediate_size": 12,
             "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
             "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True, "max_position_embeddings": 8, **sizes}
    return QwenMoe(Qwen3MoeConfig(use_cache=False, attn_implementation="sdpa", experts_implementation="batched_mm",
                                  **sizes))


def vit(attention, **sizes):
    """ViT by transformers: pixels[b, 3, s, s] -> logits[b, labels]."""
    from transformers import ViTConfig, ViTForImageClassification

    class Vit(ViTForImageClassification):
        def forward(self, pixel_values):
            return super().forward(pixel_values).logits

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
             "image_size": 8, "patch_size": 4, "num_labels": 4, **sizes}
    return Vit(ViTConfig(attn_implementation=attention, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                         **sizes))


def randomise(model, seed):
    """Weights of trained-like size everywhere, biases and norms included, so that no gradient or norm is zero by
    chance."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(noise * (1.0 / math.sqrt(parameter[0].numel())))
            else:
                is_scale = parameter.numel() > 1 and parameter.abs().sum() > 0 and parameter.std() == 0
                parameter.copy_(0.1 * noise + (1.0 if is_scale else 0.0))
    return model


class SwitchExperts(nn.Module):
    """Experts as Switch and GShard write them: each sample is a group, each expert takes at most `capacity` tokens of a
    group, and tokens move by einsum; x[g, s, d] -> (the same shape, the loss that balances the experts)."""

    def __init__(self, width, hidden, experts, picks, capacity):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.w1 = nn.Parameter(torch.empty(experts, width, hidden))
        self.b1 = nn.Parameter(torch.empty(experts, 1, 1, hidden))
        self.w2 = nn.Parameter(torch.empty(experts, hidden, width))
        self.experts, self.picks, self.capacity = experts, picks, capacity

    def route(self, x):
        """The gates of each token's experts in their slots, [g, s, e, c], and the balancing loss."""
        gates = torch.softmax(self.gate(x), -1)
        left, used, combine, total = gates, 0, 0, 0
        for pick in range(self.picks):
            mask = F.one_hot(left.argmax(-1), self.experts).to(x.dtype)
            if pick == 0:
                balance = self.experts * (gates.mean((0, 1)) * mask.mean((0, 1))).sum()
            slot = (torch.cumsum(mask, 1) - mask + used) * mask
            used = used + mask.sum(1, keepdim=True)
            kept = mask * (slot < self.capacity).to(x.dtype)
            gate = (gates * kept).sum(-1)
            slots = torch.arange(self.capacity) == slot.sum(-1, keepdim=True).long()
            combine = combine + gate[..., None, None] * kept[..., None] * slots.to(x.dtype)[:, :, None, :]
            total = total + gate
            left = left * (1 - mask)
        if self.picks > 1:
            combine = combine / (total[..., None, None] + 1e-6)
        return combine, balance

    def forward(self, x):
        combine, balance = self.route(x)
        dispatch = (combine > 0).to(x.dtype)
        taken = torch.einsum("gsec,gsd->egcd", dispatch, x)
        hidden = torch.relu(torch.einsum("egcd,edf->egcf", taken, self.w1) + self.b1)
        given = torch.einsum("egcf,efd->egcd", hidden, self.w2)
        return torch.einsum("gsec,egcd->gsd", combine, given), balance


class IndexedExperts(nn.Module):
    """The same over all tokens at once, which move by indices: scattered into slots, gathered from them."""

    def __init__(self, width, hidden, experts, capacity):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.w1 = nn.Parameter(torch.empty(experts, width, hidden))
        self.w2 = nn.Parameter(torch.empty(experts, hidden, width))
        self.experts, self.capacity = experts, capacity

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        gates = torch.softmax(self.gate(tokens), -1)
        best, expert = gates.max(-1)
        mask = F.one_hot(expert, self.experts).to(x.dtype)
        balance = self.experts * (gates.mean(0) * mask.mean(0)).sum()
        slot = ((torch.cumsum(mask, 0) - mask) * mask).sum(-1).long()
        kept = (slot < self.capacity).to(x.dtype)
        # What finds no slot goes to one behind the last, which nobody reads.
        place = torch.where(slot < self.capacity, expert * self.capacity + slot, self.experts * self.capacity)
        room = torch.zeros(self.experts * self.capacity + 1, x.shape[-1], dtype=x.dtype)
        room = room.scatter(0, place[:, None].expand(-1, x.shape[-1]), tokens)
        taken = room[:-1].reshape(self.experts, self.capacity, -1)
        given = torch.matmul(torch.relu(torch.matmul(taken, self.w1)), self.w2)
        given = F.pad(given.reshape(self.experts * self.capacity, -1), (0, 0, 0, 1))
        return (given[place] * (best * kept)[:, None]).reshape(x.shape), balance


class IndexedPairs(IndexedExperts):
    """The same where each token goes to two experts: it is there twice."""

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        gates = torch.softmax(self.gate(tokens), -1)
        best, expert = torch.topk(gates, 2, -1)
        flat = expert.reshape(-1)
        mask = F.one_hot(flat, self.experts).to(x.dtype)
        balance = self.experts * (gates.mean(0) * mask.mean(0)).sum()
        slot = ((torch.cumsum(mask, 0) - mask) * mask).sum(-1).long()
        kept = (slot < self.capacity).to(x.dtype)
        place = torch.where(slot < self.capacity, flat * self.capacity + slot, self.experts * self.capacity)
        twice = tokens[:, None].expand(-1, 2, -1).reshape(-1, x.shape[-1])
        room = torch.zeros(self.experts * self.capacity + 1, x.shape[-1], dtype=x.dtype)
        room = room.scatter(0, place[:, None].expand(-1, x.shape[-1]), twice)
        taken = room[:-1].reshape(self.experts, self.capacity, -1)
        given = torch.matmul(torch.relu(torch.matmul(taken, self.w1)), self.w2)
        given = F.pad(given.reshape(self.experts * self.capacity, -1), (0, 0, 0, 1))
        both = given[place] * (best.reshape(-1) * kept)[:, None]
        return both.reshape(-1, 2, x.shape[-1]).sum(1).reshape(x.shape), balance


class LoopedExperts(nn.Module):
    """A list of experts, each of which sees all tokens and counts for those that picked it, as Mixtral without lists of
    indices: dropless."""

    def __init__(self, width, hidden, experts, picks):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width)) for _ in range(experts))
        self.picks = picks

    def forward(self, x):
        gates = torch.softmax(self.gate(x), -1)
        best, expert = torch.topk(gates, self.picks, -1)
        best = best / best.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, one in enumerate(self.experts):
            weight = torch.where(expert == i, best, torch.zeros_like(best)).sum(-1, keepdim=True)
            out = out + weight * one(x)
        mask = F.one_hot(expert, len(self.experts)).to(x.dtype).sum(-2)
        return out, (gates.mean((0, 1)) * mask.mean((0, 1))).sum()


class DroplessExperts(nn.Module):
    """Batched experts, all of which see all tokens; each token's own count."""

    def __init__(self, width, hidden, experts, picks):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.w1 = nn.Parameter(torch.empty(experts, width, hidden))
        self.w2 = nn.Parameter(torch.empty(experts, hidden, width))
        self.experts, self.picks = experts, picks

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        gates = torch.softmax(self.gate(tokens), -1)
        best, expert = torch.topk(gates, self.picks, -1)
        weights = torch.zeros_like(gates).scatter(1, expert, best / best.sum(-1, keepdim=True))
        hidden = F.gelu(torch.matmul(tokens[None], self.w1))
        given = torch.matmul(hidden, self.w2)
        out = (given * weights.t()[..., None]).sum(0)
        return out.reshape(x.shape), (gates.mean(0) * (weights > 0).to(x.dtype).mean(0)).sum()


class Mixture(nn.Module):
    """Ids through an embedding, experts beside a skip, a norm and an output; its own loss balances the experts as well:
    (ids[b, t], labels[b, t]) -> scalar."""

    def __init__(self, vocab, width, experts):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.inner = nn.Linear(width, width)
        self.moe = experts
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, vocab)

    def forward(self, ids, labels):
        x = torch.tanh(self.inner(self.embed(ids)))
        y, balance = self.moe(x)
        logits = self.out(self.norm(x + y))
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)) + 0.05 * balance
