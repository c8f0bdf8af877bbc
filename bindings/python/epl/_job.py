"""Jobs: the loop around steps, as an iterator and as one call, fit()."""
from __future__ import annotations

import ctypes as c
import dataclasses
import json
import math
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Mapping, Optional, Tuple, Union

from . import _core as core
from . import _objects as objects
from . import _raw as raw
from ._settings import JobSettings, trainer_keys

if TYPE_CHECKING:  # what a type checker has, and a program that runs need not
    from typing_extensions import Unpack

    from . import Cancel, Dataset, Engine, Model, Session, Strategy, Trainer
    Settings = Union[Mapping[str, Any], Tuple[()]]

KINDS = {raw.JOB_STEP: "step", raw.JOB_MEASURED: "measured", raw.JOB_SAVED: "saved", raw.JOB_WARNING: "warning",
         raw.JOB_DONE: "done"}
ENDS = {raw.JOB_RUNNING: "running", raw.JOB_ENDED_STEPS: "steps", raw.JOB_ENDED_STOPPED: "stopped",
        raw.JOB_ENDED_PATIENCE: "patience", raw.JOB_ENDED_CANCELLED: "cancelled", raw.JOB_ENDED_FAILED: "failed",
        raw.JOB_ENDED_DATA: "data"}


@dataclasses.dataclass(frozen=True)
class JobEvent:
    """What a job tells: numbers as they stand after it, NaN where there is none yet. `kind` is "step", "measured",
    "saved" (to the path `text`), "warning" (the sentence `text`) or "done" (`ended` says why)."""
    kind: str
    ended: str
    step: int
    steps: int
    epoch: float
    samples: int
    loss: float
    learning_rate: float
    gradient_norm: float
    held_out_loss: float
    monitored: float
    best_value: float
    best_step: int
    best: bool
    seconds: float
    seconds_left: float
    samples_per_second: float
    memory_bytes: int
    text: str
    metrics: Dict[str, float]

    @classmethod
    def of(cls, e: raw.JobEvent) -> JobEvent:
        text, metrics = raw.Struct.text(e, "text"), {}  # a field of this struct is called text
        if e.kind == raw.JOB_MEASURED:
            numbers = json.loads(text)
            text, metrics = "", {name: math.nan if value is None else value for name, value in numbers.items()}
        plain = {field.name: getattr(e, field.name) for field in dataclasses.fields(cls)
                 if field.name not in ("kind", "ended", "best", "text", "metrics")}
        return cls(kind=KINDS.get(e.kind, "unknown"), ended=ENDS.get(e.ended, "unknown"), best=bool(e.best), text=text,
                   metrics=metrics, **plain)


class Job(objects.Job):
    """The loop around steps. Settings are those of docs/training.md, as keywords:

        with epl.Job(engine, epochs=10, folder="run", patience=3) as job:
            job.start(session, data, held_out)
            for event in job:
                print(event.step, event.loss)
    """

    last: Optional[JobEvent] = None

    def __init__(self, engine: Engine, **settings: Unpack[JobSettings]) -> None:
        self.adopt(objects.Job.create(engine, core.settings_text(settings)))

    def _told(self) -> str:
        if self.last is None:
            return "before its first step"
        return f"after {self.last.step} of {self.last.steps or '?'} steps, {self.last.ended}"

    def start(self, session: Session, data: Dataset, held_out: Optional[Dataset] = None, **call: Any) -> None:
        super().start(session, data, held_out, **call)
        self.parts = session, data, held_out  # they stay as long as the job

    def next(self, **call: Any) -> JobEvent:  # type: ignore[override]
        """The next JobEvent. An error changes nothing: the same call again does the same work."""
        event = raw.JobEvent()
        core.check(core.library().epl_job_next(self.pointer, core.call_options(call), c.byref(event)))
        self.last = JobEvent.of(event)
        return self.last

    def stop(self, reason: str = "") -> None:
        """No step follows the one that runs; the iteration goes on until the last checkpoint is written."""
        self.end(raw.JOB_ENDED_STOPPED, reason)

    def events(self, timeout: Optional[float] = None, **call: Any) -> Iterator[JobEvent]:
        """All events to the end, for which there are `timeout` seconds. A call that fails, a token or an exception of
        the loop's body end the job: its last checkpoint is written all the same."""
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                event = self.next(timeout=None if end is None else end - time.monotonic(), **call)
                yield event
                if event.kind == "done":
                    return
        except core.Error as error:
            ended = error.code in (raw.ERROR_CANCELLED, raw.ERROR_DEADLINE_EXCEEDED)
            self._finish(raw.JOB_ENDED_CANCELLED if ended else raw.JOB_ENDED_FAILED, str(error))
            raise
        except BaseException as error:  # GeneratorExit, KeyboardInterrupt
            self._finish(raw.JOB_ENDED_CANCELLED, type(error).__name__)
            raise

    def __iter__(self) -> Iterator[JobEvent]:
        return self.events()

    def _finish(self, how, reason):
        self.end(how, reason)
        while self.next().kind != "done":
            pass

    def describe(self) -> Dict[str, Any]:  # type: ignore[override]
        """Settings, paths, numbers and the history, as a dictionary."""
        found: Dict[str, Any] = json.loads(super().describe())
        return found


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What fit() gives: the session with the trained weights, why the job has ended, and what was measured last."""
    session: Session
    event: JobEvent
    metrics: Dict[str, float]
    checkpoint: Optional[str]
    best_checkpoint: Optional[str]

    @property
    def ended(self) -> str:
        return self.event.ended

    @property
    def step(self) -> int:
        return self.event.step


def fit(model: Union[Model, Session], data: Dataset, held_out: Optional[Dataset] = None, *,
        trainer: Union[Trainer, Settings] = (), strategy: Union[Strategy, Settings, None] = None,
        options: Optional[core.Fields] = None, progress: Optional[Callable[[JobEvent], Any]] = None,
        timeout: Optional[float] = None, cancel: Optional[Cancel] = None, **settings: Unpack[JobSettings]) -> Fitted:
    """Trains a model, or goes on with a session, until its job ends; gives a Fitted.

        fitted = epl.fit(model, data, held_out, trainer={"optimizer": "adamw", "optimizer.lr": 0.01},
                         epochs=10, folder="run", patience=3, progress=lambda e: print(e.step, e.loss))

    `data` and `held_out` are Datasets; the model's inputs are bound as the data has them. `trainer`, `strategy` and
    `options` are as Trainer, Strategy and Plan take them. `settings` are those of a job (docs/training.md). `progress`
    is called with each JobEvent, and ends the job after its last checkpoint when it returns False. An exception has the
    session, with all that was trained until then, as its attribute `session`: a last checkpoint that cannot be written
    loses nothing."""
    session = model
    if not isinstance(model, objects.Session):
        session = _session(model, data, trainer, strategy, options, settings)
    call = {name: value for name, value in (("timeout", timeout), ("cancel", cancel)) if value is not None}
    try:
        return _run(session, data, held_out, progress, call, settings)
    except BaseException as error:
        error.session = session
        raise


def _run(session, data, held_out, progress, call, settings):
    metrics = {}
    with core.kind("job")(session.engine, **settings) as job:
        job.start(session, data, held_out)
        for event in job.events(**call):
            metrics = event.metrics or metrics
            if progress is not None and event.kind != "done" and progress(event) is False:
                job.stop("progress returned False")
        told = job.describe()
        return Fitted(session, event, metrics, told["checkpoint"], told["best_checkpoint"])


def _session(model, data, trainer, strategy, options, settings):
    make, engine = core.kind, model.engine
    if not isinstance(trainer, objects.Trainer):
        trainer = make("trainer")(engine, _with_total_steps(engine, trainer_keys(trainer), data, settings))
    trainer.bind_dataset(model, data)
    if strategy is not None and not isinstance(strategy, objects.Strategy):
        strategy = make("strategy")(engine, strategy)
    return make("session")(make("plan")(model, trainer, strategy, options))


def _with_total_steps(engine, trainer, data, settings):
    """A schedule that goes to an end has it at the job's."""
    wanted = trainer.get("schedule")
    if wanted is None or "schedule.total_steps" in trainer:
        return trainer
    rows = {row["name"]: row for row in json.loads(engine.describe())["schedules"]}
    steps = settings.get("steps") or round(settings.get("epochs", 0) * data.batches())
    if steps > 0 and "total_steps" in rows.get(wanted, {}).get("options", {}):
        trainer["schedule.total_steps"] = steps
    return trainer
