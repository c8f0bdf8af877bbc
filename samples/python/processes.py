"""A training in several processes. Each gets the whole batch, and works on its part.

    epl launch -n 2 -- python3 processes.py
"""
import os

import epl
import numpy as np

rank, ranks = int(os.environ.get("EPL_RANK", 0)), int(os.environ.get("EPL_WORLD_SIZE", 1))
engine = epl.Engine(threads=1)
engine.write_template("mlp", {"sizes": [4, 16, 2], "seed": 1}, f"model-{rank}.onnx")
model = epl.Model(engine, f"model-{rank}.onnx")
trainer = epl.Trainer(engine, {"optimizer": "adamw", "optimizer.lr": 0.05, "symbols": {"batch": 8}})

plan = epl.Plan(model, trainer, options={"ranks": ranks, "local_ranks": 1})
place = {"first_rank": rank, "ranks": 1}
if ranks > 1:  # as epl launch says it; another launcher has other means
    place["rendezvous"] = os.environ["EPL_RENDEZVOUS"]
    place["secret"] = os.pread(int(os.environ["EPL_SECRET_FD"]), 256, 0).decode()
session = epl.Session(plan, place)

x = np.array([[(i * 7 + j * j * 3) % 5 - 2 for j in range(4)] for i in range(8)], np.float32)
target = (x[:, 0] < x[:, 3]).astype(np.int64)
for _ in range(50):
    metrics = session.step([x, target])
print(f"loss {metrics.loss:.4f}  weights {session.hash():016x}")
