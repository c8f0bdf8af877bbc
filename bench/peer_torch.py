"""One run of the peer: PyTorch trains a row and prints one JSON line. Every setting is here or in rows.py.

    python bench/peer_torch.py ROW --mode eager|compiled --optimizer default|fused [--threads 2]

`default` is torch.optim.AdamW(parameters, lr, betas, eps, weight_decay) as it comes (foreach where PyTorch chooses it);
`fused` adds fused=True. `compiled` is torch.compile(model) with its defaults. The batch is in memory before the clock
starts; a step is zero_grad, forward, loss, backward, optimizer step and loss.item().
"""
import argparse
import json
import resource
import time

start = time.perf_counter()
import torch  # noqa: E402

from rows import ADAMW, ROWS, loss_of  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--mode", choices=["eager", "compiled"], default="eager")
    parser.add_argument("--optimizer", choices=["default", "fused"], default="default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, help="fewer than the row's own")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    row = ROWS[options.row]
    model = row.make_model()
    inputs, target = row.data()
    steps = min(options.steps or row.steps, row.steps)
    batches = [([torch.from_numpy(a[i]) for a in inputs.values()], torch.from_numpy(target[i])) for i in range(steps)]
    run = torch.compile(model) if options.mode == "compiled" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=ADAMW["lr"], betas=tuple(ADAMW["betas"]), eps=ADAMW["eps"],
                                  weight_decay=ADAMW["weight_decay"], fused=True if options.optimizer == "fused"
                                  else None)
    seconds, losses, first = [], [], None
    for x, y in batches:
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_of(run(*x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        ended = time.perf_counter()
        seconds.append(ended - began)
        first = first or ended - start
    print(json.dumps({"row": options.row, "peer": "torch " + torch.__version__, "mode": options.mode,
                      "optimizer": options.optimizer, "threads": options.threads, "seconds": seconds[2:],
                      "first_step_seconds": first, "losses": losses,
                      "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
