"""A training in several processes. Each gets the full batch, and works on its part.

    epl launch -n 2 -- python3 processes.py
"""
import epl
import numpy as np

launch = epl.from_launch()  # what epl launch says; another launcher has other means
engine = epl.Engine(threads=1)
engine.write_template("mlp", {"sizes": [4, 16, 2], "seed": 1}, f"model-{launch.rank}.onnx")
model = epl.Model(engine, f"model-{launch.rank}.onnx")
trainer = epl.Trainer(engine, {"optimizer": "adamw", "optimizer.lr": 0.05, "symbols": {"batch": 8}})

plan = epl.Plan(model, trainer, options=launch.plan_options)
session = epl.Session(plan, launch.session_options)

x = np.array([[(i * 7 + j * j * 3) % 5 - 2 for j in range(4)] for i in range(8)], np.float32)
target = (x[:, 0] < x[:, 3]).astype(np.int64)
for _ in range(50):
    metrics = session.step([x, target])
print(f"loss {metrics.loss:.4f}  weights {session.hash():016x}")
