"""The second day: what follows the first training, each a few lines. docs/python.md explains them."""
import asyncio
import pathlib

import epl
import numpy as np

engine = epl.Engine()
engine.write_template("mlp", {"sizes": [4, 16, 2], "seed": 1}, "second.onnx")
model = epl.Model(engine, "second.onnx")

# --- Data of your own
x = np.random.default_rng(0).standard_normal((64, 4))  # float64: calls convert
target = (x[:, 0] < x[:, 3]).astype(np.int64)
data = epl.Dataset.of_arrays(engine, {"x": x, "target": target}, {"batch": 8, "order": "shuffled", "split": "train"})
held_out = epl.Dataset.of_arrays(engine, {"x": x, "target": target}, {"batch": 8, "split": "held_out"})


def read(samples):  # or a function, which is asked for samples by number
    return {"x": x[samples], "target": target[samples]}


fields = {"x": ("f32", (4,)), "target": ("i64", ())}  # of one sample
same = epl.Dataset.of_function(engine, fields, len(x), read, {"batch": 8, "split": "train"})

# --- Train, validate, keep the best
settings = {"optimizer": "adamw", "optimizer.lr": 0.02, "symbols": {"batch": 8}}
plan = epl.Plan(model, epl.Trainer(engine, settings))
session, evaluation = epl.Session(plan), epl.Evaluation(plan, "accuracy")
data.bind(plan)
held_out.bind(plan, epl.ENTRY_EVALUATE)
best = 0.0
for epoch in range(20):
    for batch in data:
        session.step(batch)
    evaluation.reset()
    evaluation.add_dataset(session, held_out, 0)
    if evaluation.result("accuracy") > best:
        best = evaluation.result("accuracy")
        session.save("best", data)  # with the position in the data
print(f"held out: {best:.0%} right, loss {evaluation.result('loss'):.3f}")

# --- Go on later, to the bit
later = epl.Session(plan)
later.load("best", data)
print(f"goes on after step {later.steps()}")

# --- Predict, and read the numbers
scores = session.predict({"x": [[1, 0, 0, 2], [2, 0, 0, 1]]})  # any number of samples
for name, tensor in scores.items():
    print(name, tensor.shape, tensor.numpy().argmax(axis=1), tensor.tolist()[0])
print(session.get(session.parameters()[0]))

# --- Predict while it trains
predictor = epl.Predictor(session)


async def train_and_answer():
    step = session.step_async([x[:8], target[:8]])  # the event of a step, which asyncio awaits
    answer = predictor.predict([x[:3]])
    metrics = await step
    predictor.refresh()  # from now on with the weights of this step
    return metrics.step, answer


print(asyncio.run(train_and_answer())[0])

# --- Batches of several shapes
several = epl.Trainer(engine, settings)
several.add_shape('{"symbols": {"batch": 3}}')  # the last batch of an epoch, for example
both = epl.Session(epl.Plan(model, several))
print(both.step([x[:8], target[:8]]).loss, both.step([x[:3], target[:3]]).loss)

# --- Adapters beside frozen weights
adapters = epl.Trainer(engine, {**settings, "adapters": [{"match": "*", "rank": 2}]})
tuned = epl.Session(epl.Plan(model, adapters))
tuned.step([x[:8], target[:8]])
tuned.export_adapters("adapters")
tuned.export_onnx("tuned.onnx")  # the adapters are in its weights
print(sorted(path.name for path in pathlib.Path("adapters").iterdir()))
