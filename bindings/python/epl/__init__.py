"""EPL: trains neural networks inside this process.

The classes are those of the C API (_objects.py), and here is what Python has nicer: constructors, arrays and whatever
has DLPack in place of tensors, dictionaries in place of JSON, files and functions in place of callbacks. Failures are
raised as epl.Error, which has a code. Arrays of the right type are borrowed, not copied: do not write to one while a
call reads it.
"""
import threading as _threading
import typing as _t

from . import _core, _host, _objects, _raw, _tensor
from ._core import Error, Handle
from ._objects import *  # noqa: F401,F403  dtype_bits, checkpoint_describe, ...
from ._raw import *  # noqa: F401,F403  constants and structs
from . import losses, optimizers, schedules
from ._job import Fitted, Job, JobEvent, fit
from ._launch import Launch, from_launch
from ._settings import trainer_keys as _trainer_keys
from ._tensor import Tensor

__version__ = _raw.VERSION
__all__ = [*_raw.__all__, *_objects.__all__, "Error", "Handle", "Engine", "Model", "Trainer", "Strategy", "Plan",
           "Session", "Job", "JobEvent", "Fitted", "fit", "Launch", "from_launch", "losses", "optimizers", "schedules",
           "Predictor", "Event", "Dataset", "Feed", "Evaluation", "Tensor", "Cancel", "FolderLock", "Store"]

# What calls take for tensors: a sequence in the plan's order, or a dictionary by name, of whatever becomes a tensor.
_Inputs = _t.Union[_t.Sequence[_t.Any], _t.Mapping[str, _t.Any]]
_Settings = _t.Union[str, bytes, _t.Mapping[str, _t.Any], _t.Iterable[_t.Tuple[str, _t.Any]]]
_Ends = _t.Dict[str, _t.Tuple[str, _t.Tuple[_t.Any, ...]]]
_Fields = _t.Mapping[str, _t.Tuple[_t.Any, _t.Sequence[int]]]


def _text(settings):
    """A dictionary as the library reads it; a text is JSON already."""
    return settings if isinstance(settings, (str, bytes)) else _core.settings_text(settings)


def _port_text(port):
    """("x", ("f32", (8, 4))) as "x f32[8,4]"."""
    name, (dtype, dims) = port
    return f"{_core.shown(name)} {dtype}[{','.join(_core.shown('?' if size is None else size) for size in dims)}]"


class Engine(_objects.Engine):
    """Devices, threads and memory. `log(level, message)` is called from any thread. All other keywords are fields of
    EngineOptions: epl.Engine(threads=2, memory_bytes=1 << 30)."""

    def __init__(self, log: _t.Optional[_t.Callable[[int, str], _t.Any]] = None, **options: _t.Any) -> None:
        number = None
        if log is not None:
            function = _raw.epl_log_fn(lambda _, level, text, length: log(level, _core.view(text, length)))
            number = _core.hold(function)
            options.update(log=function, log_userdata=number, log_destroy=_core.let_go)
        try:
            self.adopt(_objects.Engine.create(options))
        except BaseException:
            _core._held.pop(number, None)
            raise

    def write_template(self, family: str, settings: _Settings, path: _core.Text) -> None:
        """Writes an ONNX model of a known family: engine.write_template("mlp", {"sizes": [4, 16, 2]}, "mlp.onnx")."""
        _objects.x_template_write(self, family, _text(settings), path)

    def add_op(self, domain: str, name: str, shape: _t.Callable, run: _t.Callable,
               gradient: _t.Optional[_t.Callable] = None, outputs: int = 1, sharding: _t.Optional[str] = None) -> None:
        """Models that are loaded from now on may have this operator. Functions get the attributes of the node as a
        dictionary and NumPy arrays, which are views and count for the call alone.

        shape(attributes, *inputs): ("f32", (4, 2)) of each output, of inputs given in the same way.
        run(attributes, inputs, outputs) writes the outputs: outputs[0][...] = inputs[0] * 2.
        gradient(attributes, inputs, outputs, upstream, gradients) writes the gradients of the inputs; one that nobody
        wants is None, and so is an upstream through which nothing flows back.
        sharding: how dimensions correspond, for example "n k, k -> n k" (OpOptions)."""
        _host.owned([], lambda number: super(Engine, self).add_op(
            _host.op_options(domain, name, shape, run, gradient, outputs, sharding, number)))


class Model(_objects.Model):
    """Of an ONNX file: its path, its bytes, or a binary file that is open and can seek."""

    def __init__(self, engine: Engine, source: _t.Any, **call: _t.Any) -> None:
        if isinstance(source, (bytes, bytearray, memoryview)):
            made = _objects.Model.load_bytes(engine, source, **call)
        elif hasattr(source, "seek"):
            made = _host.owned([_threading.Lock()], lambda number: _objects.Model.load_from(
                engine, _host.source_fields(source, number), **call))
        else:
            made = _objects.Model.load(engine, source, **call)
        self.adopt(made)

    def _told(self) -> str:
        return " -> ".join(_core.listed(map(_port_text, self.ports(kind).items()), 4)
                           for kind in (_raw.PORT_INPUT, _raw.PORT_OUTPUT))

    def ports(self, kind: int = _raw.PORT_INPUT) -> _Ends:
        """Inputs, outputs or initialisers by name, with element type and dimensions: ("f32", ("batch", 4)). A dimension
        without a size is its symbol, or None."""
        found = {}
        for i in range(self.port_count(kind)):
            info = self.port(kind, i)
            dims = tuple(size if size >= 0 else self.dim_symbol(kind, i, dim) or None
                         for dim, size in enumerate(info.dims[:info.ndim]))
            found[info.text("name")] = _objects.dtype_name(info.dtype), dims
        return found


class Trainer(_objects.Trainer):
    """Loss, optimizer, schedule and what is bound: {"optimizer": epl.optimizers.AdamW(lr=0.05), "symbols": {"batch": 4}}
    and all else that Trainer.parse reads ("optimizer.lr": 0.05)."""

    def __init__(self, engine: Engine, settings: _Settings = ()) -> None:
        known = settings if isinstance(settings, (str, bytes)) else _trainer_keys(settings)
        self.adopt(_objects.Trainer.parse(engine, _text(known)))

    def bind_value(self, input: str, value: _t.Any, dtype: _t.Any = None) -> None:
        """Makes an input a constant, of a tensor, an array, a list or a number. `dtype` ("f32") is that of what is no
        array; without it NumPy says which."""
        if not isinstance(value, Handle):
            if dtype is None and not hasattr(value, "__array_interface__"):
                import numpy
                value = numpy.asarray(value)
            number = _host.dtype_number(dtype if dtype is not None else value.dtype)
            value = _tensor.of(self.engine, value, number, f'the value of "{_core.shown(input)}"')
        super().bind_value(input, value)


class Strategy(_objects.Strategy):
    """How to spread the work: {"pipeline.num_micro_batch": 4}."""

    def __init__(self, engine: Engine, settings: _Settings = ()) -> None:
        self.adopt(_objects.Strategy.parse(engine, _text(settings)))


class Plan(_objects.Plan):
    """Everything decided, nothing allocated. `options` are those of PlanOptions, for example {"ranks": 2}."""

    def __init__(self, model: Model, trainer: _t.Optional[Trainer] = None, strategy: _t.Optional[Strategy] = None,
                 options: _t.Optional[_core.Fields] = None, **call: _t.Any) -> None:
        self.adopt(_objects.Plan.create(model, trainer, strategy, options, **call))

    def _told(self) -> str:
        entry = next((each for each in (_raw.ENTRY_TRAIN, _raw.ENTRY_EVALUATE, _raw.ENTRY_PREDICT)
                      if self.port_count(each, _raw.PORT_INPUT) > 0), _raw.ENTRY_PREDICT)
        ranks = self.ranks()
        return (f"for {ranks} rank{'' if ranks == 1 else 's'} of "
                + _core.listed(map(_port_text, self.ports(entry).items()), 4))

    def ports(self, entry: int = _raw.ENTRY_TRAIN, kind: int = _raw.PORT_INPUT) -> _Ends:
        """Names of inputs or outputs, in their order, with element type and dimensions."""
        return {name: (_objects.dtype_name(dtype), dims) for name, dtype, dims in self._ports(entry, kind)}

    def _ports(self, entry, kind=_raw.PORT_INPUT):
        infos = (self.port(entry, kind, i) for i in range(self.port_count(entry, kind)))
        return [(info.text("name"), info.dtype, tuple(info.dims[:info.ndim])) for info in infos]


class _Ports:
    """Inputs and outputs of one entry of a plan, and the tensors of what a caller gives for them: a sequence in the
    plan's order, or a dictionary by name, of arrays, tensors, lists and numbers."""

    def __init__(self, plan, entry):
        self.inputs, self.outputs = plan._ports(entry), plan._ports(entry, _raw.PORT_OUTPUT)
        self.names = [name for name, _, _ in self.inputs]

    def values(self, inputs):
        if isinstance(inputs, dict):
            if sorted(inputs) != sorted(self.names):
                raise ValueError(f"the inputs are {_core.listed(self.names)}; given were {_core.listed(inputs)}")
            return [inputs[name] for name in self.names]
        if isinstance(inputs, Handle) or hasattr(inputs, "__array_interface__") or hasattr(inputs, "__dlpack__"):
            inputs = [inputs]  # of a model with one input
        inputs = list(inputs)
        if len(inputs) != len(self.inputs):
            raise ValueError(f"there are {len(self.inputs)} inputs ({_core.listed(self.names)}); "
                             f"given were {len(inputs)}")
        return inputs

    def tensors(self, engine, inputs):
        return [value if value is None else _tensor.of(engine, value, dtype, f'input "{_core.shown(name)}"')
                for value, (name, dtype, _) in zip(self.values(inputs), self.inputs)]

    def rows(self):
        """The samples of a batch, where dimension 0 of every input and output counts them; else 0."""
        found = {dims[0] if dims else 0 for _, _, dims in self.inputs + self.outputs}
        return found.pop() if len(found) == 1 else 0

    def room(self, engine, tensors):
        """Tensors for the outputs of these inputs."""
        rows = self.rows()
        fewer = tensors[0].shape[0] if rows and tensors and tensors[0] is not None and tensors[0].ndim() else rows
        return [Tensor.create(engine, dtype, (min(fewer, dims[0]), *dims[1:]) if rows else dims)
                for _, dtype, dims in self.outputs]


def _predict(owner, ports, predict, inputs, call):
    """Outputs by name. More samples than a batch of the plan has go through in pieces, and come back as one."""
    tensors, rows = ports.tensors(owner.engine, inputs), ports.rows()
    given = {each.shape[0] if each is not None and each.ndim() else -1 for each in tensors}
    names = [name for name, _, _ in ports.outputs]
    on_gpu = any(each is not None and each.device() != _raw.DEVICE_CPU for each in tensors)
    if not rows or len(given) != 1 or max(given) <= rows or "samples" in call or on_gpu:
        return dict(zip(names, predict(tensors, len(names), **call)))
    arrays = [each.numpy() for each in tensors]
    pieces = [predict([Tensor(owner.engine, each[begin:begin + rows]) for each in arrays], len(names), **call)
              for begin in range(0, max(given), rows)]
    import numpy
    joined = [numpy.concatenate([piece[i].numpy() for piece in pieces]) for i in range(len(names))]
    return {name: Tensor(owner.engine, each) for name, each in zip(names, joined)}


class Event(_objects.Event):
    """Work of a session that goes on beside Python. `await event`, or event.wait(), gives its metrics, or raises its
    error. Where a task that awaits it is cancelled, so is the work."""
    cancel = None
    outputs = None  # of a prediction: tensors by name, which are written when it is ready

    def on_ready(self, function: _t.Callable[[], _t.Any]) -> None:
        """Calls function() once, from the session's thread when it is ready, or now if it is."""
        called = _raw.epl_event_fn(lambda _: function())
        _host.owned(called, lambda number: super(Event, self).on_ready(called, number, _core.let_go))

    def __await__(self) -> _t.Generator[_t.Any, None, _raw.Metrics]:
        import asyncio
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def done():
            if not future.done():
                future.set_result(None)

        def ready():
            try:
                loop.call_soon_threadsafe(done)
            except RuntimeError:  # the loop has ended meanwhile
                pass
        self.on_ready(ready)
        try:
            yield from future
        except asyncio.CancelledError:
            if self.cancel is not None:
                self.cancel.trigger()
            raise
        return self.wait()


class Session(_objects.Session):
    """A training. Inputs are a dictionary by name or a sequence in the plan's order, of arrays, tensors, lists and
    numbers. What has the plan's element type is borrowed; all else is converted into a copy."""

    def __init__(self, plan: Plan, options: _t.Optional[_core.Fields] = None, **call: _t.Any) -> None:
        self.adopt(_objects.Session.create(plan, options, **call))
        self._train, self._evaluate, self._predict = (
            _Ports(plan, entry) for entry in (_raw.ENTRY_TRAIN, _raw.ENTRY_EVALUATE, _raw.ENTRY_PREDICT))

    def _told(self) -> str:
        return f"after {self.steps()} steps"

    def step(self, inputs: _Inputs, **call: _t.Any) -> _raw.Metrics:
        """One optimizer step over a batch; Metrics with step, loss, gradient_norm, learning_rate, nanoseconds."""
        return super().step(self._train.tensors(self.engine, inputs), **call)

    def gradients(self, inputs: _Inputs, **call: _t.Any) -> _raw.Metrics:
        """The gradients of a batch, without an update (the trainer's key keep_gradients)."""
        return super().gradients(self._train.tensors(self.engine, inputs), **call)

    def evaluate(self, inputs: _Inputs, **call: _t.Any) -> _raw.Metrics:
        """The loss over a batch, without a step."""
        return super().evaluate(self._evaluate.tensors(self.engine, inputs), **call)

    def predict(self, inputs: _Inputs, **call: _t.Any) -> _t.Dict[str, Tensor]:
        """The model's outputs by name, as tensors: numpy.asarray and torch.from_dlpack take them. The samples may be
        fewer or more than those of the plan's batch, where dimension 0 of all inputs and outputs counts them."""
        return _predict(self, self._predict, super().predict, inputs, call)

    def predict_into(self, inputs: _Inputs, outputs: _Inputs, **call: _t.Any) -> None:
        """The same into arrays or tensors, in the order of the outputs."""
        super().predict_into(self._predict.tensors(self.engine, inputs), _writable(self.engine, outputs), **call)

    def step_async(self, inputs: _Inputs, **call: _t.Any) -> Event:
        """A step as an Event, which can be awaited. Inputs stay as they are until it is ready."""
        return self._begin(super().step_async, self._train.tensors(self.engine, inputs), call)

    def evaluate_async(self, inputs: _Inputs, **call: _t.Any) -> Event:
        return self._begin(super().evaluate_async, self._evaluate.tensors(self.engine, inputs), call)

    def predict_async(self, inputs: _Inputs, outputs: _t.Optional[_Inputs] = None, **call: _t.Any) -> Event:
        """Event.outputs has the tensors by name, new ones where none are given."""
        tensors = self._predict.tensors(self.engine, inputs)
        targets = self._predict.room(self.engine, tensors) if outputs is None else _writable(self.engine, outputs)
        event = self._begin(lambda given, **options: super(Session, self).predict_async(given, targets, **options),
                            tensors, call, targets)
        event.outputs = {name: each for (name, _, _), each in zip(self._predict.outputs, targets)}
        return event

    def _begin(self, begin, tensors, call, *kept):
        cancel = call.get("cancel") or Cancel(self.engine)
        event = begin(tensors, **{**call, "cancel": cancel})
        event.cancel, held = cancel, (tensors, kept, cancel)
        event.on_ready(lambda: held and None)  # what the work reads and writes stays until then
        return event

    def parameters(self, kind: int = _raw.STATE_PARAMETER) -> _t.List[str]:
        """Their names."""
        return [self.state_port(kind, i).text("name") for i in range(self.state_count(kind))]

    def set(self, name: str, value: _t.Any, **call: _t.Any) -> None:
        """Of a tensor, an array, a list or a number, which is copied."""
        if not isinstance(value, Handle):
            value = _tensor.of(self.engine, value, self.get(name).dtype(), f'"{_core.shown(name)}"')
        super().set(name, value, **call)

    def save_to(self, file: _t.Any, dataset: _t.Optional["Dataset"] = None, **call: _t.Any) -> None:
        """A checkpoint into a binary file that is open for writing, or whatever has write()."""
        super().save_to(_host.writer(file), None, dataset, **call)

    def load_from(self, file: _t.Any, dataset: _t.Optional["Dataset"] = None, **call: _t.Any) -> None:
        """A checkpoint from a binary file that can seek."""
        _host.owned([_threading.Lock()], lambda number: super(Session, self).load_from(
            _host.source_fields(file, number), dataset, **call))

    def export_to(self, format: str, file: _t.Any, **call: _t.Any) -> None:
        """The trained model, "onnx", "onnx_for_training" or "safetensors", into a binary file."""
        super().export_to(format, _host.writer(file), None, **call)


def _writable(engine, outputs):
    outputs = list(outputs.values()) if isinstance(outputs, dict) else outputs
    return [each if isinstance(each, Handle) else Tensor(engine, each) for each in outputs]


class Predictor(_objects.Predictor):
    """Predicts beside the steps of a session, with the weights of one step, until it is refreshed."""

    def __init__(self, session: Session, shapes: _t.Optional[Plan] = None, **call: _t.Any) -> None:
        self.adopt(_objects.Predictor.create(session, shapes, **call))
        self._ports = session._predict if shapes is None else _Ports(shapes, _raw.ENTRY_PREDICT)

    def _told(self) -> str:
        return f"of step {self.steps()}"

    def predict(self, inputs: _Inputs, **call: _t.Any) -> _t.Dict[str, Tensor]:
        """As Session.predict."""
        return _predict(self, self._ports, super().predict, inputs, call)

    def predict_into(self, inputs: _Inputs, outputs: _Inputs, **call: _t.Any) -> None:
        super().predict_into(self._ports.tensors(self.engine, inputs), _writable(self.engine, outputs), **call)


class Dataset(_objects.Dataset):
    """Of a file: Dataset(engine, "data.csv", {"batch": 8, "order": "shuffled"}). Iterating gives the batches of an
    epoch; a batch's tensors are filled anew by the next one."""

    def __init__(self, engine: Engine, path: _core.Text, settings: _Settings = (), **call: _t.Any) -> None:
        self.adopt(_objects.Dataset.open(engine, path, _text(settings), **call))
        self._count = self.field_count()

    def _told(self) -> str:
        samples, batches = ("?" if count < 0 else str(count) for count in (self.samples(), self.batches()))
        return f"of {samples} samples in {batches} batches, at batch {self.position()}"

    @classmethod
    def of_function(cls, engine: Engine, fields: _Fields, samples: int,
                    read: _t.Callable[[_t.List[int]], _Inputs], settings: _Settings = ()) -> "Dataset":
        """Samples that a function has: fields = {"x": ("f32", (4,)), "target": ("i64", ())} are those of one sample,
        and read([7, 3, 9]) gives arrays of these samples, a dictionary by name or a sequence. `samples`: how many there
        are, -1 where nobody knows; read raises epl.Error of code ERROR_NOT_FOUND behind the last one."""
        def make(number):
            function = _host.samples_reader(fields, read)
            _core._held[number] = function
            return super(Dataset, cls).create(engine, _host.fields_of(fields), samples, function, number, _core.let_go,
                                              _text(settings))
        return cls._whole(_host.owned(None, make))

    @classmethod
    def of_arrays(cls, engine: Engine, arrays: _t.Mapping[str, _t.Any], settings: _Settings = ()) -> "Dataset":
        """Samples in arrays by name, of which dimension 0 counts them."""
        import numpy
        arrays = {name: numpy.asarray(each) for name, each in arrays.items()}
        counts = {len(each) for each in arrays.values()}
        if len(counts) != 1:
            raise ValueError("the arrays have different numbers of samples: "
                             + _core.listed(f"{_core.shown(name)} has {len(each)}" for name, each in arrays.items()))
        fields = {name: (each.dtype, each.shape[1:]) for name, each in arrays.items()}
        return cls.of_function(engine, fields, counts.pop(),
                               lambda samples: {name: each[samples] for name, each in arrays.items()}, settings)

    @classmethod
    def of_feed(cls, feed: "Feed") -> "Dataset":
        """Of the batches that are pushed into a Feed, which has one dataset."""
        return cls._whole(super().of_feed(feed))

    @classmethod
    def _whole(cls, made):
        made._count = made.field_count()
        return made

    def bind(self, plan: Plan, entry: int = _raw.ENTRY_TRAIN) -> None:
        """From now on batches have the inputs of this entry of the plan."""
        super().bind(plan, entry)
        self._count = plan.port_count(entry, _raw.PORT_INPUT)

    def next(self, **call: _t.Any) -> _t.List[Tensor]:
        """The next batch, whose tensors are filled anew by the call behind it."""
        found: _t.Any = super().next(self._count, **call)
        return found

    def __len__(self) -> int:
        """Batches of an epoch."""
        if self.batches() < 0:
            raise TypeError("nobody knows how many batches this dataset has")
        return self.batches()

    def __iter__(self) -> _t.Iterator[_t.List[Tensor]]:
        """The batches of an epoch; where nobody knows how many there are, until the source says that it has no more."""
        batches = self.batches()
        if batches >= 0:
            for _ in range(batches):
                yield self.next()
            return
        while True:
            try:
                batch = self.next()
            except Error as error:
                if error.code == _raw.ERROR_NOT_FOUND:
                    return
                raise
            yield batch


class Feed(_objects.Feed):
    """Batches that the host pushes when it has them: fields = {"x": ("f32", (8, 4))} are those of a batch, and
    `capacity` batches wait at most. epl.Dataset.of_feed(feed) gives them to a training."""

    def __init__(self, engine: Engine, fields: _Fields, capacity: int = 2) -> None:
        self.adopt(_objects.Feed.create(engine, _host.fields_of(fields), capacity))
        self._fields = {name: _host.dtype_number(dtype) for name, (dtype, _) in fields.items()}

    def push(self, batch: _Inputs, **call: _t.Any) -> None:
        """Copies a batch, a dictionary by name or a sequence, and waits while there is no room."""
        values = [batch[name] for name in self._fields] if isinstance(batch, dict) else list(batch)
        super().push([_tensor.of(self.engine, each, dtype, f'field "{_core.shown(name)}"')
                      for each, (name, dtype) in zip(values, self._fields.items())] if len(values) == len(self._fields)
                     else values, **call)


class Evaluation(_objects.Evaluation):
    """Loss and metrics over any number of batches: Evaluation(plan, "accuracy, top_k(k=5)")."""

    def __init__(self, plan: Plan, metrics: _t.Optional[str] = None) -> None:
        self.adopt(_objects.Evaluation.create(plan, metrics))
        self._ports = _Ports(plan, _raw.ENTRY_EVALUATE)

    def _told(self) -> str:
        return f"of {self.samples()} samples"

    def add(self, session: Session, inputs: _Inputs, **call: _t.Any) -> None:
        """One forward pass over a batch, or over fewer samples."""
        super().add(session, self._ports.tensors(self.engine, inputs), **call)


class Cancel(_objects.Cancel):
    """A token: calls that were given it, as cancel=..., end when any thread triggers it."""

    def __init__(self, engine: Engine) -> None:
        self.adopt(_objects.Cancel.create(engine))


class FolderLock(_objects.FolderLock):
    """A folder that has one owner, until this is closed or the process ends. A second one, in this process or in another,
    is an Error of code ERROR_BUSY whose message names the first."""

    def __init__(self, engine: Engine, path: _core.Text) -> None:
        self.adopt(_objects.FolderLock.create(engine, path))


class Store(_objects.Store):
    """Where the processes of a job find each other."""

    def __init__(self, engine: Engine, options: _t.Optional[_core.Fields] = None) -> None:
        self.adopt(_objects.Store.create(engine, options))
