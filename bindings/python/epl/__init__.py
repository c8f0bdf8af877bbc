"""EPL: trains neural networks inside this process.

The classes are those of the C API (_objects.py), and here is what Python has nicer: constructors, NumPy arrays and
DLPack in place of tensors, dictionaries in place of JSON. Failures are raised as epl.Error, which has a code. Arrays are
borrowed, not copied: do not write to one while a call reads it.
"""
import ctypes as c
import itertools
import json

from . import _objects as objects
from . import _raw as raw
from ._core import Error, Handle
from ._objects import *  # noqa: F401,F403  dtype_bits, checkpoint_describe, ...
from ._raw import *  # noqa: F401,F403  constants and structs
from ._tensor import Tensor

__version__ = raw.VERSION
_held, _numbers = {}, itertools.count(1)


@raw.epl_destroy_fn
def _let_go(userdata):
    _held.pop(userdata)


def _hold(value):
    """Keeps what C was given until it calls _let_go with this number."""
    number = next(_numbers)
    _held[number] = value
    return number


def live_handles():
    """How many objects of the library there are in this process."""
    return objects.live_handles()


class Engine(objects.Engine):
    """Devices, threads and memory. `log(level, message)` is called from any thread."""

    def __init__(self, threads=0, log=None, log_level=raw.LOG_DEFAULT, packs=None):
        options = raw.EngineOptions(threads=threads, log_level=log_level)
        if packs is not None:
            options.set("packs", packs)
        if log is not None:
            function = raw.epl_log_fn(lambda _, level, text, length: log(level, c.string_at(text, length).decode()))
            options.set("log", function)
            options.log_userdata = _hold(function)
            options.log_destroy = _let_go
        try:
            self.adopt(objects.Engine.create(options))
        except Error:
            _held.pop(options.log_userdata, None)
            raise

    def write_template(self, family, settings, path):
        """Writes an ONNX model of a known family: engine.write_template("mlp", {"sizes": [4, 16, 2]}, "mlp.onnx")."""
        objects.x_template_write(self, family, json.dumps(settings), path)


class Model(objects.Model):
    """Of an ONNX file: its path, or its bytes."""

    def __init__(self, engine, source, **call):
        read = objects.Model.load_bytes if isinstance(source, (bytes, bytearray, memoryview)) else objects.Model.load
        self.engine = engine
        self.adopt(read(engine, source, **call))


class Trainer(objects.Trainer):
    """Loss, optimizer, schedule and what is bound: {"optimizer": "adamw", "optimizer.lr": 0.05, "symbols": {"batch": 4}}
    and all else that epl_trainer_parse reads."""

    def __init__(self, engine, settings=()):
        self.adopt(objects.Trainer.parse(engine, json.dumps(dict(settings))))


class Strategy(objects.Strategy):
    """How to spread the work: {"pipeline.num_micro_batch": 4}."""

    def __init__(self, engine, settings=()):
        self.adopt(objects.Strategy.parse(engine, json.dumps(dict(settings))))


class Plan(objects.Plan):
    """Everything decided, nothing allocated. `options` are those of PlanOptions, for example {"ranks": 2}."""

    def __init__(self, model, trainer=None, strategy=None, options=None, **call):
        self.engine = getattr(model, "engine", None)
        self.adopt(objects.Plan.create(model, trainer, strategy, options, **call))

    def ports(self, entry=raw.ENTRY_TRAIN, kind=raw.PORT_INPUT):
        """Names of inputs or outputs, in their order, with element type and dimensions."""
        infos = (self.port(entry, kind, i) for i in range(self.port_count(entry, kind)))
        return {info.text("name"): (objects.dtype_name(info.dtype), tuple(info.dims[:info.ndim])) for info in infos}


class Session(objects.Session):
    """A training. Inputs are a dictionary by name or a sequence in the plan's order, of arrays or tensors."""

    def __init__(self, plan, options=None, **call):
        self.engine = getattr(plan, "engine", None)
        self.adopt(objects.Session.create(plan, options, **call))
        self.inputs = {entry: list(plan.ports(entry)) for entry in
                       (raw.ENTRY_TRAIN, raw.ENTRY_EVALUATE, raw.ENTRY_PREDICT)}
        self.outputs = list(plan.ports(raw.ENTRY_PREDICT, raw.PORT_OUTPUT))

    def _tensors(self, entry, inputs):
        if isinstance(inputs, dict):
            unknown = sorted(set(inputs) - set(self.inputs[entry]))
            if unknown or len(inputs) != len(self.inputs[entry]):
                raise ValueError(f"the inputs are {', '.join(self.inputs[entry])}; given were {', '.join(inputs)}")
            inputs = [inputs[name] for name in self.inputs[entry]]
        return [each if each is None or isinstance(each, Handle) else Tensor(self.engine, each) for each in inputs]

    def step(self, inputs, **call):
        """One optimizer step over a batch; Metrics with step, loss, gradient_norm, learning_rate, nanoseconds."""
        return super().step(self._tensors(raw.ENTRY_TRAIN, inputs), **call)

    def evaluate(self, inputs, **call):
        """The loss over a batch, without a step."""
        return super().evaluate(self._tensors(raw.ENTRY_EVALUATE, inputs), **call)

    def predict(self, inputs, **call):
        """The model's outputs by name, as tensors: numpy.asarray and torch.from_dlpack take them."""
        found = super().predict(self._tensors(raw.ENTRY_PREDICT, inputs), len(self.outputs), **call)
        return dict(zip(self.outputs, found))

    def parameters(self, kind=raw.STATE_PARAMETER):
        """Their names."""
        return [self.state_port(kind, i).text("name") for i in range(self.state_count(kind))]

    def set(self, name, tensor, **call):
        """Of a tensor or an array, which is copied."""
        super().set(name, tensor if isinstance(tensor, Handle) else Tensor(self.engine, tensor), **call)


class Dataset(objects.Dataset):
    """Of a file: Dataset(engine, "data.csv", {"batch": 8, "order": "shuffled"}). Iterating gives the batches of an
    epoch; a batch's tensors are filled anew by the next one."""

    def __init__(self, engine, path, settings=(), **call):
        self.adopt(objects.Dataset.open(engine, path, json.dumps(dict(settings)), **call))
        self.count = self.field_count()

    def bind(self, plan, entry=raw.ENTRY_TRAIN):
        """From now on batches have the inputs of this entry of the plan."""
        super().bind(plan, entry)
        self.count = plan.port_count(entry, raw.PORT_INPUT)

    def next(self, **call):
        return super().next(self.count, **call)

    def __iter__(self):
        return (self.next() for _ in range(self.batches()))


class Evaluation(objects.Evaluation):
    """Loss and metrics over any number of batches: Evaluation(plan, "accuracy, top_k(k=5)")."""

    def __init__(self, plan, metrics=None):
        self.adopt(objects.Evaluation.create(plan, metrics))


class Cancel(objects.Cancel):
    """A token: calls that were given it, as cancel=..., end when any thread triggers it."""

    def __init__(self, engine):
        self.adopt(objects.Cancel.create(engine))


class FolderLock(objects.FolderLock):
    """A folder that has one owner, until this is closed or the process ends. A second one, in this process or in another,
    is an Error of code ERROR_BUSY whose message names the first."""

    def __init__(self, engine, path):
        self.adopt(objects.FolderLock.create(engine, path))


class Store(objects.Store):
    """Where the processes of a job find each other."""

    def __init__(self, engine, options=None):
        self.adopt(objects.Store.create(engine, options))
