"""The C API through ctypes, as little of it as the oracles need: load, plan, step, predict, export.

Every handle is destroyed with its object; an error becomes EplError with the library's own sentence.
"""
import ctypes as c
import json
import os
import pathlib

import numpy as np

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
DTYPES = {"float32": 1, "float64": 2, "float16": 3, "int8": 5, "int16": 6, "int32": 7, "int64": 8, "uint8": 9,
          "uint16": 10, "uint32": 11, "uint64": 12, "bool": 13, "bfloat16": 4}
NAMES = {number: name for name, number in DTYPES.items()}
TRAIN, EVALUATE, PREDICT = 0, 1, 2
INPUT, OUTPUT, INITIALIZER = 0, 1, 2


UNSUPPORTED = 3


def dtype_of(name):
    if name == "bfloat16":
        import ml_dtypes  # comes with onnx
        return ml_dtypes.bfloat16
    return np.dtype(name)


class EplError(Exception):
    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code


class Port(c.Structure):
    _fields_ = [("struct_size", c.c_uint64), ("name", c.c_char_p), ("name_length", c.c_uint64), ("dtype", c.c_int32),
                ("ndim", c.c_int32), ("dims", c.c_int64 * 16)]


class Metrics(c.Structure):
    _fields_ = [("struct_size", c.c_uint64), ("step", c.c_int64), ("loss", c.c_double), ("gradient_norm", c.c_double),
                ("learning_rate", c.c_double), ("nanoseconds", c.c_int64)]


class PlanOptions(c.Structure):
    _fields_ = [("struct_size", c.c_uint64), ("ranks", c.c_int64), ("seed", c.c_uint64), ("device", c.c_char_p),
                ("device_length", c.c_uint64)]


def library():
    path = os.environ.get("EPL_LIBRARY") or next(
        (str(p) for p in (TOP / "build" / preset / "lib" / "libepl.so" for preset in ("release-tests", "release"))
         if p.exists()), None)
    if path is None:
        raise EplError("there is no build/release-tests/lib/libepl.so; build it first")
    lib = c.CDLL(path)
    for name in ("epl_error_message", "epl_error_where", "epl_text_data"):
        getattr(lib, name).restype = c.c_char_p
    for name in ("epl_plan_port_count", "epl_plan_memory_bytes_peak", "epl_tensor_dim", "epl_live_handles"):
        getattr(lib, name).restype = c.c_int64
    lib.epl_tensor_data.restype = c.c_void_p
    lib.epl_tensor_bytes.restype = c.c_size_t
    return lib


def text(value):
    """Pointer and length of a string argument."""
    data = value.encode() if isinstance(value, str) else value
    return data, c.c_size_t(len(data))


class Handle:
    """A pointer of the library and the name of the function that takes it back."""

    def __init__(self, api, kind):
        self.api, self.kind, self.pointer = api, kind, c.c_void_p()

    def __del__(self):
        if self.pointer:
            getattr(self.api.lib, f"epl_{self.kind}_destroy")(self.pointer)


class Api:
    def __init__(self):
        self.lib = library()
        self.engine = self.make("engine", "epl_engine_create", None)

    def check(self, error):
        if error:
            error = c.c_void_p(error)
            length = c.c_size_t()
            message = self.lib.epl_error_message(error, c.byref(length)).decode()
            where = self.lib.epl_error_where(error, c.byref(length)).decode()
            code = self.lib.epl_error_code(error)
            self.lib.epl_error_destroy(error)
            raise EplError(f"{where}: {message}" if where else message, code)

    def call(self, function, *arguments):
        entry = getattr(self.lib, function)
        entry.restype = c.c_void_p
        flat = []
        for a in arguments:
            flat += list(a) if isinstance(a, tuple) else [a.pointer if isinstance(a, Handle) else a]
        self.check(entry(*flat))

    def make(self, kind, function, *arguments):
        handle = Handle(self, kind)
        self.call(function, *arguments, c.byref(handle.pointer))
        return handle

    def describe(self):
        described = self.make("text", "epl_engine_describe", self.engine)
        return json.loads(self.lib.epl_text_data(described.pointer, None))

    def tensor(self, array):
        array = np.array(array, order="C", copy=None)
        dims = (c.c_int64 * array.ndim)(*array.shape)
        return self.make("tensor", "epl_tensor_create_copy", self.engine, c.c_int32(DTYPES[str(array.dtype)]), dims,
                         c.c_int32(array.ndim), array.ctypes.data_as(c.c_void_p), c.c_size_t(array.nbytes))

    def array(self, tensor):
        lib, p = self.lib, tensor.pointer
        shape = [lib.epl_tensor_dim(p, c.c_int32(i)) for i in range(lib.epl_tensor_ndim(p))]
        data = c.string_at(lib.epl_tensor_data(p), lib.epl_tensor_bytes(p)) if lib.epl_tensor_bytes(p) else b""
        return np.frombuffer(data, dtype_of(NAMES[lib.epl_tensor_dtype(p)])).reshape(shape).copy()

    def model(self, path):
        return self.make("model", "epl_model_load", self.engine, text(str(path)), None, None)

    def described_model(self, path):
        described = self.make("text", "epl_model_describe", self.model(path))
        return json.loads(self.lib.epl_text_data(described.pointer, None))

    def model_bytes(self, data):
        return self.make("model", "epl_model_load_bytes", self.engine, text(data), None, None)

    def trainer(self, settings, trainable):
        """Trains the parameters named, and no others."""
        trainer = self.make("trainer", "epl_trainer_create", self.engine)
        for key, value in settings.items():
            self.call("epl_trainer_set", trainer, text(key), text(str(value)))
        group, rest = c.c_int64(), c.c_int64()
        for i, name in enumerate(trainable):
            if i == 0:
                self.call("epl_trainer_add_group", trainer, text(name), c.byref(group))
            else:
                self.call("epl_trainer_group_add", trainer, group, text(name))
        self.call("epl_trainer_add_group", trainer, text("*"), c.byref(rest))
        self.call("epl_trainer_group_set", trainer, rest, text("frozen"), text("true"))
        return trainer

    def bind(self, trainer, name, shape, dtype=0):
        dims = (c.c_int64 * len(shape))(*shape)
        self.call("epl_trainer_bind_input", trainer, text(name), c.c_int32(dtype), dims, c.c_int32(len(shape)))

    def plan(self, model, trainer, ranks=1):
        options = PlanOptions(c.sizeof(PlanOptions), ranks, 0, None, 0)
        return self.make("plan", "epl_plan_create", model, trainer, None, c.byref(options), None)

    def printed(self, plan, stage):
        made = self.make("text", "epl_plan_print", plan, text(stage), None)
        return self.lib.epl_text_data(made.pointer, None).decode()

    def ports(self, plan, entry, kind):
        names = []
        for i in range(self.lib.epl_plan_port_count(plan.pointer, c.c_int32(entry), c.c_int32(kind))):
            port = Port(c.sizeof(Port))
            self.call("epl_plan_port", plan, c.c_int32(entry), c.c_int32(kind), c.c_int64(i), c.byref(port))
            names.append(port.name.decode())
        return names

    def session(self, plan):
        return self.make("session", "epl_session_create", plan, None, None)

    def step(self, session, arrays):
        tensors = [self.tensor(a) for a in arrays]
        pointers = (c.c_void_p * len(tensors))(*[t.pointer for t in tensors])
        metrics = Metrics(c.sizeof(Metrics))
        self.call("epl_session_step", session, pointers, c.c_size_t(len(tensors)), None, c.byref(metrics))
        return metrics.loss

    def evaluate(self, session, arrays):
        tensors = [self.tensor(a) for a in arrays]
        pointers = (c.c_void_p * len(tensors))(*[t.pointer for t in tensors])
        metrics = Metrics(c.sizeof(Metrics))
        self.call("epl_session_evaluate", session, pointers, c.c_size_t(len(tensors)), None, c.byref(metrics))
        return metrics.loss

    def predict(self, session, arrays, outputs):
        tensors = [self.tensor(a) for a in arrays]
        pointers = (c.c_void_p * len(tensors))(*[t.pointer for t in tensors])
        results = (c.c_void_p * outputs)()
        self.call("epl_session_predict", session, pointers, c.c_size_t(len(tensors)), None, results,
                  c.c_size_t(outputs))
        handles = [Handle(self, "tensor") for _ in range(outputs)]
        for handle, pointer in zip(handles, results):
            handle.pointer = c.c_void_p(pointer)
        return [self.array(h) for h in handles]
