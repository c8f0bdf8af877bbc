import json, os, sys, time, torch
out = {}
p = torch.cuda.get_device_properties(0)
out['device'] = dict(name=p.name, sms=p.multi_processor_count, memory=p.total_memory, capability=[p.major, p.minor])
def timed(f, n=10):
    f(); f(); torch.cuda.synchronize()
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    ts = []
    for _ in range(n):
        a.record(); f(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b) / 1e3)
    return sorted(ts)[n // 2]
g = torch.Generator('cuda').manual_seed(1)
def rnd(*s, dtype=torch.bfloat16): return torch.randn(*s, generator=g, device='cuda', dtype=torch.float32).to(dtype)
rows = []
# GPT-2 124M, units of one sample of 1,024 tokens: forward/input gradient (one product or batched by unit), weight gradient
for B in (32,):
    T = 1024
    for name, K, N in (('qkv', 768, 2304), ('out', 768, 768), ('up', 768, 3072), ('down', 3072, 768), ('head', 768, 50304)):
        x, w, gy = rnd(B, T, K), rnd(N, K), rnd(B, T, N)
        flops = 2.0 * B * T * K * N
        one = timed(lambda: torch.mm(x.view(B * T, K), w.t()))
        units = timed(lambda: torch.matmul(x.unsqueeze(1), w.t()).squeeze(1) if False else torch.bmm(x, w.t().expand(B, K, N)))
        dw = timed(lambda: torch.mm(gy.view(B * T, N).t(), x.view(B * T, K)))
        row = dict(name=name, K=K, N=N, forward_tflops=flops / one / 1e12, forward_by_unit_tflops=flops / units / 1e12, weight_tflops=flops / dw / 1e12)
        if name != 'head':
            part = torch.empty(B, N, K, device='cuda', dtype=torch.float32)
            try:
                f32 = timed(lambda: torch.bmm(gy.transpose(1, 2), x, out_dtype=torch.float32))
                row['weight_by_unit_f32_tflops'] = flops / f32 / 1e12
            except Exception as e:
                row['weight_by_unit_f32_error'] = str(e)[:200]
            b16 = timed(lambda: torch.bmm(gy.transpose(1, 2), x))
            row['weight_by_unit_bf16_out_tflops'] = flops / b16 / 1e12
            def tree():
                s = part
                while s.shape[0] > 1: s = s[0::2] + s[1::2]
                return s
            row['tree_sum_seconds'] = timed(tree); row['weight_seconds'] = dw
            del part
        rows.append(row); print(row, flush=True)
        del x, w, gy
out['products'] = rows
# Are the bits of a unit those of any batch of units?
same = {}
for K, N in ((768, 2304), (3072, 768)):
    x, w = rnd(32, 1024, K), rnd(N, K)
    ref = torch.bmm(x[:1], w.t().expand(1, K, N))
    for b in (2, 4, 8, 32): same[f'bmm {K}x{N} batch {b}'] = bool(torch.equal(torch.bmm(x[:b], w.t().expand(b, K, N))[:1], ref))
    ref = torch.mm(x[0], w.t())
    for b in (1, 2, 4, 8, 32): same[f'mm {K}x{N} rows {b * 1024}'] = bool(torch.equal(torch.mm(x[:b].reshape(-1, K), w.t())[:1024], ref))
out['equal_bits'] = same; print(same, flush=True)
a = torch.empty(1 << 30, dtype=torch.float32, device='cuda'); b = torch.empty_like(a)
out['copy_bytes_per_second'] = 2 * a.numel() * 4 / timed(lambda: b.copy_(a)); del a, b
h = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True); d = torch.empty(1 << 28, dtype=torch.uint8, device='cuda')
out['upload_bytes_per_second'] = (1 << 28) / timed(lambda: d.copy_(h, non_blocking=True)); out['download_bytes_per_second'] = (1 << 28) / timed(lambda: h.copy_(d, non_blocking=True))
m = rnd(8192, 8192); out['bf16_tflops'] = 2 * 8192 ** 3 / timed(lambda: torch.mm(m, m)) / 1e12
m = m.float(); out['f32_tflops'] = 2 * 8192 ** 3 / timed(lambda: torch.mm(m, m), 3) / 1e12
q = [rnd(32, 12, 1024, 64).requires_grad_() for _ in range(3)]
from torch.nn.attention import sdpa_kernel, SDPBackend
for be in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
    try:
        with sdpa_kernel(be):
            f = lambda: torch.nn.functional.scaled_dot_product_attention(*q, is_causal=True)
            fw = timed(f); o = f(); go = torch.randn_like(o)
            fb = timed(lambda: torch.autograd.grad(f(), q, go))
            fl = 4 * 32 * 12 * 1024 * 1024 * 64 / 2
            out[f'attention {be}'] = dict(forward_tflops=fl / fw / 1e12, backward_tflops=2.5 * fl / (fb - fw) / 1e12)
            torch.use_deterministic_algorithms(True)
            fd = timed(lambda: torch.autograd.grad(f(), q, go)); torch.use_deterministic_algorithms(False)
            out[f'attention {be}']['deterministic_backward_tflops'] = 2.5 * fl / (fd - fw) / 1e12
    except Exception as e: out[f'attention {be}'] = str(e)[:300]
print(json.dumps({k: v for k, v in out.items() if k != 'products'}, indent=1))
json.dump(out, open(sys.argv[1], 'w'), indent=1)
