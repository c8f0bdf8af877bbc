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


def print_event(event: epl.JobEvent) -> bool:
    assert_type(event.loss, float)
    assert_type(event.metrics, typing.Dict[str, float])
    print(event.kind, event.step, event.text)
    return event.step < 10


def fit(engine: epl.Engine, model: epl.Model) -> epl.Session:
    data = epl.Dataset.of_arrays(engine, {"x": np.zeros((8, 4))}, {"batch": 4})
    assert_type(data, epl.Dataset)
    fitted = epl.fit(model, data, data, trainer={"optimizer": epl.optimizers.AdamW(lr=0.01)}, epochs=2.0, folder="run",
                     patience=3, restore_best=True, measured_on={"rows": 8}, progress=print_event, timeout=5.0,
                     cancel=epl.Cancel(engine))
    assert_type(fitted, epl.Fitted)
    assert_type(fitted.session, epl.Session)
    assert_type(fitted.ended, str)
    assert_type(fitted.step, int)
    assert_type(fitted.metrics, typing.Dict[str, float])
    assert_type(fitted.checkpoint, typing.Optional[str])
    with epl.Job(engine, steps=3, checkpoint_seconds=0.5) as job:
        assert_type(job, epl.Job)
        job.start(fitted.session, data, None, timeout=1.0)
        assert_type(job.next(), epl.JobEvent)
        for event in job:
            assert_type(event, epl.JobEvent)
        for event in job.events(timeout=3.0):
            job.stop("enough")
        assert_type(job.describe(), typing.Dict[str, typing.Any])
        epl.Job(engine, steps="three")  # type: ignore[arg-type]
        epl.Job(engine, stepps=3)  # type: ignore[call-arg]
        epl.fit(model, data, patience="long")  # type: ignore[arg-type]
    return fitted.session


def launched(model: epl.Model) -> epl.Session:
    launch = epl.from_launch()
    assert_type(launch, epl.Launch)
    assert_type(launch.rank, int)
    assert_type(epl.Launch(1, 2).secret, str)
    plan = epl.Plan(model, options=launch.plan_options)
    return epl.Session(plan, launch.session_options)


def refused(engine: epl.Engine) -> int:
    try:
        epl.Model(engine, "none.onnx")
    except epl.Error as error:
        assert_type(error.code, int)
        assert_type(error.where, str)
        assert_type(error.retryable, bool)
    raise epl.Error("there are no more samples", epl.ERROR_NOT_FOUND)


def rest(engine: epl.Engine, model: epl.Model, session: epl.Session) -> None:
    trainer = epl.Trainer(engine, {"optimizer": epl.optimizers.SGD(lr=0.1), "loss": epl.losses.MSE()})
    strategy = epl.Strategy(engine, {"zero.level": "v0"})
    plan = epl.Plan(model, trainer, strategy, {"ranks": 2})
    assert_type(plan.ports(), typing.Dict[str, typing.Tuple[str, typing.Tuple[typing.Any, ...]]])
    assert_type(repr(plan), str)
    assert_type(epl.Evaluation(plan, "accuracy").samples(), int)
    assert_type(epl.Predictor(session).predict([1.0]), typing.Dict[str, epl.Tensor])
    assert_type(session.parameters(), typing.List[str])
    session.set(session.parameters()[0], [1.0])
    feed = epl.Feed(engine, {"x": ("f32", (8, 4))})
    feed.push({"x": np.zeros((8, 4))})
    assert_type(epl.Dataset.of_feed(feed), epl.Dataset)
    with epl.FolderLock(engine, "run"), epl.Store(engine) as store:
        assert_type(store.id(), str)
    options = epl.PlanOptions(ranks=2)
    assert_type(epl.Plan(model, options=options), epl.Plan)
    assert_type(session.state_port(epl.STATE_PARAMETER, 0).text("name"), str)


async def step(session: epl.Session) -> int:
    metrics = await session.step_async([np.zeros((8, 4))])
    return metrics.step
