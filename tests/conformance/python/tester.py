"""The interpreter of scripts for Python: tester.py PACKAGE_FOLDER LIBRARY TABLE SCRIPT. It calls the raw layer of the
package by name, as the table says. tests/conformance/README.md says what a line means."""
import ctypes as c
import importlib.util
import math
import pathlib
import re
import struct
import sys
import threading
import time

TOKEN = re.compile(rb'\s*("(?:[^"\\]|\\.)*"|[\[\]{}]|[^\s\[\]{}"]+)')


class Text(bytes):
    """A quoted text, which no word is."""


class Interface:
    def __init__(self, path):
        self.constants, self.structs, self.functions = {}, {}, {}
        for line in pathlib.Path(path).read_text().splitlines():
            kind, name, *rest = line.split()
            if kind == "constant":
                self.constants[name] = int(rest[0])
            elif kind == "struct":
                fields = self.structs[name] = []
            elif kind == "field":
                fields.append((name, *rest))
            elif kind == "function":
                arguments = []
                self.functions[name] = (rest[0], arguments)
            else:
                arguments.append((name, *rest))


def unquoted(token):
    return Text(re.sub(rb"\\(x..|.)", lambda m: bytes([int(m[1][1:], 16)]) if len(m[1]) == 3 else
                       b"\n" if m[1] == b"n" else m[1], token[1:-1]))


def parsed(tokens):
    """Words are str, texts Text, lists list, structs dict."""
    token = next(tokens)
    if token == b"[":
        items = []
        while (item := parsed(tokens)) != "]":
            items.append(item)
        return items
    if token == b"{":
        items = {}
        while (name := parsed(tokens)) != "}":
            items[name] = parsed(tokens)
        return items
    return unquoted(token) if token[:1] == b'"' else token.decode()


# Past what the layer checks of a field: scripts give what C allows.
set_raw = c.Structure.__setattr__


class Tester:
    def __init__(self, raw, library, interface):
        self.raw, self.library, self.interface = raw, library, interface
        self.variables, self.buffers, self.counters, self.kept, self.hooks = {}, {}, {}, [], {}
        self.lock = threading.Lock()

    # --- Values in

    def integer(self, word):
        return self.interface.constants[word] if word in self.interface.constants else int(word)

    def handle(self, word):
        return None if word == "NULL" else self.variables[word]

    def bytes(self, value):
        if value == "NULL":
            return None
        if isinstance(value, Text):
            return bytes(value)
        if ":" not in value:
            with self.lock:
                return self.buffers[value]
        kind, _, rest = value.partition(":")
        if kind == "zeros":
            return bytes(int(rest))
        numbers = [n for n in rest.split(",") if n]
        return b"".join(struct.pack("<f", float(n)) if kind == "f32" else struct.pack("<q", int(n)) for n in numbers)

    def memory(self, value):
        """Address and size; the memory is kept until the end."""
        data = self.bytes(value)
        if data is None:
            return None, 0
        buffer = c.create_string_buffer(data, len(data) + 1)
        self.kept.append(buffer)
        return c.addressof(buffer), len(data)

    def hook(self, word):
        if word == "NULL":
            return None
        number = len(self.hooks) + 1
        self.hooks[number] = word[1:].partition(":")[::2]
        return number

    def fill(self, name, value):
        made = getattr(self.raw, class_of(name))()
        for field, base, role, partner, array in self.interface.structs[name]:
            key = partner if role == "userdata" else field
            if key not in value or role in ("callback", "destroy", "length"):
                continue
            of = value[key]
            if role == "text":
                address, size = self.memory(of)
                set_raw(made, field, address)
                set_raw(made, partner, size)
            elif role == "handle":
                set_raw(made, field, self.handle(of))
            elif role == "userdata":
                self.group(name, made, field, key, of)
            elif array != "-":
                for i, item in enumerate(of):
                    getattr(made, field)[i] = self.integer(item)
            else:
                set_raw(made, field, float(of) if base == "double" else self.integer(of))
        return made

    def group(self, name, made, field, key, of):
        setattr(made, field, self.hook(of))
        for callback, base, role, partner, _ in self.interface.structs[name]:
            if partner == key and role in ("callback", "destroy") and of != "NULL":
                setattr(made, callback, self.callback(base, True, role == "destroy"))

    def array(self, of, item, value):
        return None if value == "NULL" else (of * (len(value) + 1))(*map(item, value))

    def callback(self, base, hook, gone=False):
        if not hook:
            return c.cast(None, getattr(self.raw, base))
        function = getattr(self.raw, base)((lambda userdata: self.count(userdata, ".gone")) if gone else getattr(self, "on_" + base[4:-3]))
        self.kept.append(function)
        return function

    # --- Values out

    def give(self, value):
        self.line.append(value)

    def give_value(self, text, some):
        self.give(("some" if some else "none") if self.quiet else text)

    def give_number(self, number):
        self.give_value(number_text(number), number != 0)

    def give_handle(self, address):
        name = self.targets.pop(0)
        self.variables[name] = address or None
        self.give(name if address else "NULL")

    def give_scalar(self, base, value):
        if base == "double":
            self.give_number(value)
        else:
            self.give_value(str(value), value != 0)

    def give_struct(self, name, made):
        parts = []
        for field, base, role, _, array in self.interface.structs[name]:
            if role == "hidden":
                parts.append(f"{field}=*")
            elif role == "text":
                address = getattr(made, field)
                data = c.string_at(address, getattr(made, field + "_length")) if address else b""
                parts.append(f"{field}={quoted(data)}")
            elif role == "scalar" and array != "-":
                items = list(getattr(made, field))
                while items and items[-1] == 0:
                    items.pop()
                parts.append(f"{field}=[{','.join(map(str, items))}]")
            elif role == "scalar":
                value = getattr(made, field)
                parts.append(f"{field}={number_text(value) if base == 'double' else value}")
        self.give_value("{" + " ".join(parts) + "}", True)

    def text_of(self, function, handle):
        length = c.c_size_t()
        address = function(handle, c.byref(length))
        return c.string_at(address, length.value) if address else b""

    def give_error(self, error):
        library = self.library
        code = library.epl_error_code(error)
        self.give(f"error {code} {library.epl_error_code_name(code).decode()}")
        if not self.quiet:
            self.give(quoted(self.text_of(library.epl_error_message, error)))
            self.give(quoted(self.text_of(library.epl_error_where, error)))
            self.give(f"{library.epl_error_rank(error)} {library.epl_error_retryable(error)}")
        library.epl_error_destroy(error)
        for name in self.targets:
            self.variables[name] = None

    def give_memory(self, address, tensor):
        if self.quiet or not address:
            self.give_value("NULL", bool(address))
            return
        data = c.string_at(address, self.library.epl_tensor_bytes(tensor))
        if self.library.epl_tensor_dtype(tensor) == self.raw.DTYPE_F32:
            self.line += [number_text(n) for n in struct.unpack(f"<{len(data) // 4}f", data)]
        else:
            self.give(data.hex())

    # --- Calls

    def call(self, name, values, targets, quiet):
        self.targets, self.quiet = targets, quiet
        returns, arguments = self.interface.functions[name]
        passed, outs, size, count, hook = [], [], 0, 0, None
        values = iter(values)
        for of, base, role, kind, kept, owned in arguments:
            if kind == "text_length":
                passed.append(c.byref(length := c.c_size_t()))
            elif kind == "out" and role == "handles":
                count, place = len(targets), (c.c_void_p * 64)()
                passed.append(place)
                outs.append((base, role, place))
            elif kind == "out":
                place = getattr(self.raw, class_of(base))() if role == "struct" else \
                    getattr(c, "c_" + base.removesuffix("_t"))() if role == "scalar" else c.c_void_p()
                passed.append(c.byref(place))
                outs.append((base, role, place))
            elif role == "length":
                passed.append(count if outs and outs[-1][1] == "handles" else size)
            elif kind == "with":  # a userdata, or its destructor
                passed.append(hook if role == "userdata" else self.callback(base, hook, True))
            else:
                value = next(values)
                size = len(value) if isinstance(value, list) else 0
                if kind == "hook":
                    hook = self.hook(value)
                    passed.append(self.callback(base, hook))
                elif role == "handles":
                    passed.append(self.array(c.c_void_p, self.handle, value))
                elif role == "array":
                    passed.append(self.array(c.c_int64, self.integer, value))
                elif role == "structs":
                    passed.append(self.array(getattr(self.raw, class_of(base)), lambda v: self.fill(base, v), value))
                elif role in ("text", "bytes"):
                    address, size = self.memory(value)
                    passed.append(c.cast(address, c.c_char_p) if role == "text" else address)
                elif role == "struct":
                    passed.append(None if value == "NULL" else c.byref(self.fill(base, value)))
                elif role in ("handle", "pointer"):
                    passed.append(self.handle(value))
                else:
                    passed.append(float(value) if base == "double" else self.integer(value))
        result = getattr(self.library, name)(*passed)
        if returns == "error" and result:
            self.give_error(result)
            return
        if returns == "error":
            self.give("ok")
        elif returns == "text":
            data = result or b"" if isinstance(result, bytes) or not result else c.string_at(result, length.value)
            self.give_value(quoted(data), data != b"")
        elif returns == "memory":
            self.give_memory(result, passed[0])
        elif returns == "handle":
            self.give_handle(result)
        elif returns != "void":
            self.give_scalar(returns, result)
        for base, role, place in outs:
            if role == "handles":
                for i in range(count):
                    self.give_handle(place[i])
            elif role == "handle" and base == "epl_text":
                data = self.text_of(self.library.epl_text_data, place)
                self.give_value(quoted(data), data != b"")
                self.library.epl_text_destroy(place)
            elif role in ("handle", "pointer"):
                self.give_handle(place.value)
            elif role == "struct":
                self.give_struct(base, place)
            else:
                self.give_scalar(base, place.value)

    def run(self, script):
        for number, text in enumerate(script.split(b"\n"), 1):
            tokens = (m[1] for m in TOKEN.finditer(text))
            if text.lstrip().startswith(b"#"):
                continue
            words = []
            while True:
                try:
                    words.append(parsed(tokens))
                except StopIteration:
                    break
            if not words:
                continue
            quiet = words[0] == "~"
            name, *words = words[1:] if quiet else words
            at = words.index("->") if "->" in words else len(words)
            if name in ("buffer", "read", "cut", "write", "await", "signal"):
                print(f"{name}: {self.command(name, *words)}", flush=True)
                continue
            self.line = [name + ":"]
            self.call(name, words[:at], words[at + 1:], quiet)
            print(" ".join(self.line), flush=True)
            if name.endswith("_destroy") and words[0] != "NULL":
                self.variables[words[0]] = None

    def command(self, name, first, second=None):
        first = first.decode() if isinstance(first, Text) else first
        if name == "buffer":
            self.buffers[first] = self.bytes(second)
        elif name == "read":
            self.buffers[first] = pathlib.Path(second.decode()).read_bytes()
        elif name == "cut":
            self.buffers[first] = self.buffers[first][:self.integer(second)]
        elif name == "signal":
            self.count_name(first)
        elif name == "write":
            pathlib.Path(first).write_bytes(self.bytes(second))
        else:
            return f"{first} {self.await_count(first, self.integer(second))}"
        return first

    # --- Callbacks

    def error(self, code, message):
        return self.library.epl_error_create(code, message, len(message))

    def count(self, userdata, what=""):
        self.count_name(self.hooks[userdata][1] + what)

    def await_count(self, name, wanted):
        """What it is then, after ten seconds at most."""
        for _ in range(10000):
            with self.lock:
                if self.counters.get(name, 0) >= wanted:
                    break
            time.sleep(0.001)
        return self.counters.get(name, 0)

    def count_name(self, name):
        with self.lock:
            self.counters[name] = self.counters.get(name, 0) + 1

    def answer(self, userdata):
        kind, parameter = self.hooks[userdata]
        if kind == "fail":
            return self.error(int(parameter), b"the host fails")
        if kind == "count":
            self.count(userdata)
        return None

    def on_allocate(self, userdata, size, alignment):
        if self.hooks[userdata][0] == "fail":
            return None
        libc.aligned_alloc.restype = c.c_void_p
        alignment = max(alignment, 8)
        return libc.aligned_alloc(c.c_size_t(alignment), c.c_size_t(-(-size // alignment) * alignment))

    def on_release(self, userdata, memory, size, alignment):
        libc.free(c.c_void_p(memory))

    def on_log(self, userdata, level, message, length):
        self.count(userdata)

    def on_destroy(self, userdata):
        self.count(userdata)

    on_event = on_destroy

    def on_write(self, userdata, data, size):
        kind, name = self.hooks[userdata]
        if kind == "collect":
            with self.lock:
                self.buffers[name] = self.buffers.get(name, b"") + c.string_at(data, size)
        return self.answer(userdata)

    def on_read(self, userdata, offset, target, size):
        kind, name = self.hooks[userdata]
        if kind == "bytes":
            with self.lock:
                data = self.buffers[name]
            if offset + size > len(data):
                return self.error(self.raw.ERROR_IO, b"the buffer ends before")
            c.memmove(target, data[offset:offset + size], size)
        return self.answer(userdata)

    def on_open(self, userdata, location, length, source):
        error = self.answer(userdata)
        if error:
            return error
        name = c.string_at(location, length).decode()
        if name not in self.buffers:
            return self.error(self.raw.ERROR_NOT_FOUND, b"no such buffer")
        to = c.cast(source, c.POINTER(self.raw.Source)).contents
        to.bytes, to.userdata = len(self.buffers[name]), self.hook("@bytes:" + name)
        to.read = self.callback("epl_read_fn", True)
        return None

    def operands(self, address):
        return c.cast(address, c.POINTER(self.raw.OpTensor))

    def on_op_shape(self, userdata, attributes, length, inputs, input_count, outputs, output_count):
        to, of = self.operands(outputs)[0], self.operands(inputs)[0]
        to.dtype, to.ndim, to.dims = of.dtype, of.ndim, of.dims
        return self.answer(userdata)

    def twice(self, of, to):
        numbers = struct.unpack(f"<{to.bytes // 4}f", c.string_at(of.data, to.bytes))
        c.memmove(to.data, struct.pack(f"<{len(numbers)}f", *(2 * n for n in numbers)), to.bytes)

    def on_op_run(self, userdata, attributes, length, inputs, input_count, outputs, output_count):
        kind, name = self.hooks[userdata]
        if kind == "wait":
            self.await_count(name, 1)
        self.twice(self.operands(inputs)[0], self.operands(outputs)[0])
        return self.answer(userdata)

    def on_op_gradient(self, userdata, attributes, length, inputs, input_count, outputs, upstream, output_count,
                       gradients):
        self.twice(self.operands(upstream)[0], self.operands(gradients)[0])
        return self.answer(userdata)

    def on_samples(self, userdata, field, samples, count, target, size):
        c.memset(target, 0, size)
        if field == 0:
            each = size // 4 // count
            numbers = [samples[i] for i in range(count) for _ in range(each)]
            c.memmove(target, struct.pack(f"<{len(numbers)}f", *numbers), 4 * len(numbers))
        return self.answer(userdata)

    def on_put(self, userdata, key, length, value, size):
        return self.answer(userdata)

    def on_get(self, userdata, key, length, timeout, value, capacity, size):
        size[0] = 0
        return self.answer(userdata) or self.error(self.raw.ERROR_DEADLINE_EXCEEDED, b"nobody has put it")


def class_of(name):
    return "".join(word.title() for word in name.removeprefix("epl_").split("_"))


def number_text(number):
    """In units of 1/10000, so that no language's way to print numbers matters."""
    if math.isnan(number):
        return "nan"
    if abs(number) > 1e14:
        return "large" if number > 0 else "-large"
    return f"{math.floor(number * 1e4 + 0.5)}e-4"


def quoted(data):
    return '"' + "".join(chr(b) if 0x20 <= b <= 0x7e and b not in b'"\\' else f"\\x{b:02x}" for b in data) + '"'


libc = c.CDLL(None)


def main(package, library, table, script):
    spec = importlib.util.spec_from_file_location("raw", pathlib.Path(package) / "_raw.py")
    raw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(raw)
    Tester(raw, raw.load(library), Interface(table)).run(pathlib.Path(script).read_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
