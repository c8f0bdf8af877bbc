"""The shortest useful program in Python: an ONNX file goes in, a trained one comes out."""
import epl
import numpy as np

engine = epl.Engine()
engine.write_template("mlp", {"sizes": [4, 16, 2], "seed": 1}, "first.onnx")  # or any model of yours
model = epl.Model(engine, "first.onnx")
trainer = epl.Trainer(engine, {"optimizer": "adamw", "optimizer.lr": 0.05, "symbols": {"batch": 8}})
plan = epl.Plan(model, trainer)  # cross-entropy is the default loss
session = epl.Session(plan)
print(plan.ports())  # what a step takes: names, element types, dimensions

x = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
target = (x[:, 0] < x[:, 3]).astype(np.int64)  # is the last number larger than the first?
for step in range(50):
    print(f"loss {session.step([x, target]).loss:.4f}")
scores = session.predict([x])
print(next(iter(scores.values())).numpy().argmax(axis=1) == target)
session.export_onnx("trained.onnx")
