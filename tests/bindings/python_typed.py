"""What a type checker must know of the package: checked by mypy, never run."""
import typing

import epl
import numpy as np
from typing_extensions import assert_type


def train(path: str) -> float:
    with epl.Engine(threads=1, log=lambda level, message: print(level, message)) as engine:
        model = epl.Model(engine, path)
        plan = epl.Plan(model, epl.Trainer(engine, {"loss": "mse"}), options={"ranks": 2})
        session = epl.Session(plan)
        metrics = session.step({"x": np.zeros((8, 4)), "target": [1, 2]}, timeout=2.0)
        assert_type(metrics.loss, float)
        assert_type(metrics.step, int)
        assert_type(session.predict([np.zeros((8, 4))]), typing.Dict[str, epl.Tensor])
        assert_type(session.hash(), int)
        assert_type(engine.describe(), str)
        for batch in epl.Dataset(engine, "data.csv", {"batch": 8}):
            assert_type(batch, typing.List[epl.Tensor])
        return metrics.loss


async def step(session: epl.Session) -> int:
    metrics = await session.step_async([np.zeros((8, 4))])
    return metrics.step
