"""What the library calls back: files that the host opens, samples that it has, and operators of its own."""
import ctypes as c
import json
from typing import Dict

from . import _core as core
from . import _objects as objects
from . import _raw as raw
from . import _tensor

DTYPES: Dict[str, int] = {}


def dtype_number(name):
    """Of "f32", a NumPy type, or the number itself."""
    if not DTYPES:
        for constant, number in vars(raw).items():
            if constant.startswith("DTYPE_") and number:
                DTYPES[objects.dtype_name(number)] = number
    if isinstance(name, int) and not isinstance(name, bool):
        return name
    found = DTYPES.get(name) if isinstance(name, str) else None
    if found is None:
        numpy = _tensor._numpy()
        try:
            found = _tensor.READ.get(numpy.dtype(name).str) if numpy else None
        except TypeError:
            found = None
    if found is None:
        raise TypeError(f"there is no element type {core.shown(repr(name))}; there are {', '.join(DTYPES)}")
    return found


def fields_of(fields):
    """{"x": ("f32", (4,))} as infos of C."""
    made = []
    for name, (dtype, dims) in fields.items():
        if len(dims) > raw.MAX_NDIM:
            raise ValueError(f'field "{core.shown(name)}" has {len(dims)} dimensions; '
                             f'a tensor has {raw.MAX_NDIM} at most')
        made.append(raw.TensorInfo(name=name, dtype=dtype_number(dtype), ndim=len(dims),
                                   dims=(c.c_int64 * raw.MAX_NDIM)(*dims)))
    return made


def owned(value, call):
    """call(number): an object that keeps `value` until the library has done with it. What fails keeps nothing."""
    number = core.hold(value)
    try:
        return call(number)
    except BaseException:
        core._held.pop(number, None)
        raise


def writer(file):
    """A function of C that writes to a binary file of Python's."""
    def write(_, data, count):
        view = memoryview(c.string_at(data, count))
        while view:
            view = view[file.write(view) or len(view):]
    return raw.epl_write_fn(core.guarded(write))


def source_fields(file, number):
    """The fields of a source that reads a binary file of Python's, which can seek. One thread reads it at a time."""
    file.seek(0, 2)
    size = file.tell()
    core._held[number].append(file)

    def read(_, offset, target, count):
        view = memoryview((c.c_char * count).from_address(target)).cast("B")
        lock = core._held[number][0]
        with lock:
            file.seek(offset)
            done = 0
            while done < count:
                data = file.read(count - done)
                if not data:
                    raise EOFError(f"the file ended {count - done} bytes early")
                view[done:done + len(data)] = data
                done += len(data)
    function = raw.epl_read_fn(core.guarded(read))
    core._held[number].append(function)
    name = getattr(file, "name", None)
    return {"bytes": size, "read": function, "userdata": number, "destroy": core.let_go,
            **({"name": name} if isinstance(name, str) else {})}


def samples_reader(fields, read):
    """A function of C that asks `read(samples)` for the fields of samples, and keeps the last answer: fields are asked
    for one after another."""
    names, infos = list(fields), list(fields.values())
    last = {}

    def fill(_, field, samples, count, target, size):
        wanted = tuple(samples[:count])
        if last.get("samples") != wanted:
            last["values"], last["samples"] = read(list(wanted)), wanted
        values = last["values"]
        value = values[names[field]] if isinstance(values, dict) else values[field]
        if field == len(names) - 1:
            last.clear()
        dtype = dtype_number(infos[field][0])
        what = f'field "{core.shown(names[field])}"'
        data = bytes_of(value, dtype, what)
        if len(data) != size:
            raise ValueError(f'{what} of {count} samples has {size} bytes; given were {len(data)}')
        c.memmove(target, data, size)
    return raw.epl_samples_fn(core.guarded(fill))


def bytes_of(value, dtype, what):
    """The elements of an array or of nested lists, row-major."""
    numpy = _tensor._numpy()
    if numpy is None:
        return _tensor.packed(value, dtype, what)[1]
    return _tensor.converted(numpy, value, dtype, what).tobytes()


def op_options(domain, name, shape, run, gradient, outputs, sharding, number):
    """Options of an operator whose functions take and give NumPy arrays. An operand that is absent is None."""
    def described(of):
        return None if not of.dtype else (objects.dtype_name(of.dtype), tuple(of.dims[:of.ndim]))

    def viewed(of):
        if not of.dtype:
            return None
        import numpy
        if of.dtype not in _tensor.SPELLED:
            raise TypeError(f"NumPy has no {objects.dtype_name(of.dtype)}")
        memory = (c.c_char * of.bytes).from_address(of.data) if of.bytes else b""
        return numpy.frombuffer(memory, _tensor.SPELLED[of.dtype]).reshape(of.dims[:of.ndim])

    def at(address, count):
        return (raw.OpTensor * count).from_address(address) if count else ()

    def settings(text, length):
        return json.loads(core.view(text, length) or "{}")

    def asked(_, attributes, length, inputs, input_count, results, result_count):
        found = shape(settings(attributes, length), *map(described, at(inputs, input_count)))
        found = found if isinstance(found, list) else [found]
        if len(found) != result_count:
            raise ValueError(f"{core.shown(name)} has {result_count} outputs; its shape function gave {len(found)}")
        for result, (dtype, dims) in zip(at(results, result_count), found):
            result.dtype, result.ndim = dtype_number(dtype), len(dims)
            for i, size in enumerate(dims):
                result.dims[i] = size

    def ran(_, attributes, length, inputs, input_count, results, result_count):
        run(settings(attributes, length), list(map(viewed, at(inputs, input_count))),
            list(map(viewed, at(results, result_count))))

    def flowed(_, attributes, length, inputs, input_count, results, upstream, result_count, gradients):
        gradient(settings(attributes, length), list(map(viewed, at(inputs, input_count))),
                 list(map(viewed, at(results, result_count))), list(map(viewed, at(upstream, result_count))),
                 list(map(viewed, at(gradients, input_count))))
    functions = {"shape": raw.epl_op_shape_fn(core.guarded(asked)), "run": raw.epl_op_run_fn(core.guarded(ran))}
    if gradient is not None:
        functions["gradient"] = raw.epl_op_gradient_fn(core.guarded(flowed))
    core._held[number].extend(functions.values())
    return {"domain": domain, "name": name, "output_count": outputs, "userdata": number, "destroy": core.let_go,
            **({"sharding": sharding} if sharding else {}), **functions}
