"""bindings/python/epl/_raw.py against the library: layouts, and a training.

    python3 raw_test.py libepl.so FOLDER
"""
import ctypes as c
import importlib.util
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("_raw", TOP / "bindings/python/epl/_raw.py")
raw = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(raw)


def check_layouts():
    structs, struct = 0, None
    for line in (TOP / "core/capi/epl.layout").read_text().splitlines():
        title = re.match(r"epl_(\w+) of (\d+) bytes", line)
        if title:
            struct = getattr(raw, "".join(word.capitalize() for word in title.group(1).split("_")))
            assert c.sizeof(struct) == int(title.group(2)), line
            assert getattr(struct(), "struct_size", c.sizeof(struct)) == c.sizeof(struct), line  # arrays have none
            structs += 1
        else:
            offset, name = line.split()
            assert getattr(struct, name).offset == int(offset), line
    assert structs > 5


def train(library, folder):
    epl = raw.load(library)

    def text(value):
        data = value.encode()
        return data, len(data)

    def made(function, *arguments):
        handle = c.c_void_p()
        error = function(*arguments, c.byref(handle))
        assert not error, c.string_at(epl.epl_error_message(error, None))
        return handle

    def check(error):
        assert not error, c.string_at(epl.epl_error_message(error, None))
    engine = made(epl.epl_engine_create, c.byref(raw.EngineOptions(threads=1)))
    path = f"{folder}/mlp.onnx"
    check(epl.epl_x_template_write(engine, *text("mlp"), *text('{"sizes":[4,8,2],"seed":1}'), *text(path), None))
    model = made(epl.epl_model_load, engine, *text(path), None, None)
    trainer = made(epl.epl_trainer_create, engine)
    check(epl.epl_trainer_set_number(trainer, *text("optimizer.lr"), 0.5))
    check(epl.epl_trainer_bind_symbol(trainer, *text("batch"), 2))
    plan = made(epl.epl_plan_create, model, trainer, None, None, None)
    session = made(epl.epl_session_create, plan, None, None)
    x, target = (c.c_float * 8)(1, 2, 3, 4, 4, 3, 2, 1), (c.c_int64 * 2)(0, 1)
    inputs = (c.c_void_p * 2)(
        made(epl.epl_tensor_create_copy, engine, raw.DTYPE_F32, (c.c_int64 * 2)(2, 4), 2, x, c.sizeof(x)).value,
        made(epl.epl_tensor_create_copy, engine, raw.DTYPE_I64, (c.c_int64 * 1)(2), 1, target, c.sizeof(target)).value)
    metrics = raw.Metrics()
    for step in range(1, 11):
        check(epl.epl_session_step(session, inputs, 2, None, c.byref(metrics)))
        assert metrics.step == step
    assert metrics.loss < 0.5, metrics.loss
    error = epl.epl_model_load(engine, *text("/no/such/model.onnx"), None, None, c.byref(c.c_void_p()))
    assert epl.epl_error_code(error) == raw.ERROR_NOT_FOUND
    epl.epl_error_destroy(error)
    for tensor in inputs:
        epl.epl_tensor_destroy(tensor)
    for kind, handle in (("session", session), ("plan", plan), ("trainer", trainer), ("model", model),
                         ("engine", engine)):
        getattr(epl, f"epl_{kind}_destroy")(handle)
    assert epl.epl_live_handles() == 0


check_layouts()
pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
train(sys.argv[1], sys.argv[2])
