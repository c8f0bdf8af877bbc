"""bindings/python/epl/_raw.py: constants, structures, callbacks and prototypes for ctypes."""
from model import sentences, short, camel

SCALARS = {"int32_t": "c.c_int32", "uint32_t": "c.c_uint32", "int64_t": "c.c_int64", "uint64_t": "c.c_uint64",
           "size_t": "c.c_size_t", "double": "c.c_double", "float": "c.c_float"}


def plain(interface, of):
    """A type as ctypes has it. Handles and memory are addresses; texts too, because they may hold zeros."""
    if of.depth == 0:
        if of.base in SCALARS:
            return SCALARS[of.base]
        return "None" if of.base == "void" else of.base
    if of.depth == 1 and interface.struct(of.base):
        return f"c.POINTER({camel(short(of.base))})"
    if of.depth == 1 and of.base in SCALARS:
        return f"c.POINTER({SCALARS[of.base]})"
    if of.depth == 2 and of.base != "char":
        return "c.POINTER(c.c_void_p)"
    return "c.c_void_p"


def argument(interface, a):
    return "c.c_char_p" if a.role == "text" else plain(interface, a.type)


BASE = '''

def bounds(of):
    """The least and the greatest of an integer's type."""
    bits = 8 * c.sizeof(of)
    signed = of(-1).value < 0
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def number(of, value, name):
    """A number as C has it. ctypes would wrap one that is too large, and take the address of a text."""
    if of in (c.c_double, c.c_float):
        if isinstance(value, (str, bytes, bytearray)) or not hasattr(value, "__float__") and \
                not hasattr(value, "__index__"):
            raise TypeError(f"{name} is a number, not {_said(value)}")
        return float(value)
    least, greatest = bounds(of)
    try:
        integer = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is an integer from {least} to {greatest}, not {_said(value)}") from None
    if not least <= integer <= greatest:
        raise ValueError(f"{name} is an integer from {least} to {greatest}, not {_said(value)}")
    return integer


def _said(value):
    said = ascii(value)
    return f"{said if len(said) <= 40 else said[:40] + '...'} ({type(value).__name__})"


class Struct(c.Structure):
    """Of C: fields by name, all others have their default. A text is given as str or bytes, and its length is set."""
    _texts_: Any = ()    # fields that are texts, whose length is another
    _handles_: Any = {}  # fields that are objects of the library, and what kind each is

    def __init__(self, **values: Any) -> None:
        super().__init__()
        if self._fields_[0][0] == "struct_size":
            self.struct_size = c.sizeof(type(self))
        for name, value in values.items():
            if not any(field[0] == name for field in self._fields_):
                raise TypeError(f"{type(self).__name__} has no field {name[:60]!r}")
            setattr(self, name, value)

    def __setattr__(self, name, value):
        self.__dict__.setdefault("_kept", [])  # what fields point to
        of = next((field[1] for field in self._fields_ if field[0] == name), None)
        if of is None:
            return super().__setattr__(name, value)
        where = f"{name} of {type(self).__name__}"
        if name in self._texts_:
            value = self._text(name, value, where)
        elif name in self._handles_:
            value = self._handle(self._handles_[name], value, where)
        elif name.removesuffix("_length") in self._texts_ and name.endswith("_length"):
            raise TypeError(f"{where} is set with {name.removesuffix('_length')}")
        elif of in NUMBERS:
            value = number(of, value, where)
        elif issubclass(of, c.Array) and not isinstance(value, of):
            value = self._array(of, value, where)
        elif isinstance(value, (str, bytes)):  # ctypes takes their address
            raise TypeError(f"{where} is no text, but was given {_said(value)}")
        try:
            super().__setattr__(name, value)
        except TypeError as error:
            raise TypeError(f"{where} was given {_said(value)}: {error}") from None
        self._kept.append(value)

    def _text(self, name, value, where):
        if value is None:
            super().__setattr__(name + "_length", 0)
            return None
        if hasattr(value, "__fspath__"):
            value = value.__fspath__()
        if not isinstance(value, (str, bytes)):
            raise TypeError(f"{where} is a text, not {_said(value)}")
        data = value.encode() if isinstance(value, str) else value
        buffer = c.create_string_buffer(data, len(data) + 1)
        self._kept.append(buffer)
        super().__setattr__(name + "_length", len(data))
        return c.addressof(buffer)

    def _handle(self, kind, value, where):
        if value is None or isinstance(value, c.c_void_p):
            return value
        if getattr(value, "KIND", None) != kind:
            raise TypeError(f"{where} is an object of kind {kind}, not {_said(value)}")
        if not value.pointer:
            raise ValueError(f"{where}: this {kind} is closed")
        self._kept.append(value)
        return value.pointer

    def _array(self, of, value, where):
        if isinstance(value, (str, bytes, bytearray)) or not hasattr(value, "__iter__"):
            raise TypeError(f"{where} is a list, not {_said(value)}")
        values = list(value)
        if len(values) > of._length_:
            raise ValueError(f"{where} has {of._length_} elements at most, not {len(values)}")
        if of._type_ in NUMBERS:
            values = [number(of._type_, each, where) for each in values]
        return of(*values)

    def text(self, name: str) -> str:
        """The text of a field that the library has written."""
        address = getattr(self, name)
        return c.string_at(address, getattr(self, name + "_length")).decode() if address else ""

    def __repr__(self) -> str:
        names = [name for name, of in self._fields_ if name != "struct_size" and not name.endswith("_length")]
        return f"{type(self).__name__}({', '.join(f'{name}={self._shown(name)}' for name in names)})"

    def _shown(self, name):
        value = getattr(self, name)
        if hasattr(self, name + "_length"):
            return repr(self.text(name))
        return repr(list(value[:getattr(self, "ndim", len(value))]) if isinstance(value, c.Array) else value)'''


def lines(interface):
    yield '"""The C API through ctypes, as include/epl.h declares it. Generated by cmake/interface; do not edit."""'
    yield "import ctypes as c"
    yield "import operator"
    yield "from typing import Any"
    yield ""
    names = ["VERSION"] + [constant.name.removeprefix("EPL_") for constant in interface.constants]
    # The package has one of its own for what a job tells (_job.py).
    names += [camel(short(struct.name)) for struct in interface.structs if struct.name != "epl_job_event"]
    yield "__all__ = ["
    yield from (f'    "{name}",' for name in names)
    yield "]"
    yield f'VERSION = "{interface.version}"'
    for constant in interface.constants:
        yield f"{constant.name.removeprefix('EPL_')} = {constant.value}"
    for callback in interface.callbacks:
        # Structs come later, because they hold callbacks: to these they are addresses.
        types = [plain(interface, callback.returns)] + [
            "c.c_void_p" if interface.struct(a.type.base) else plain(interface, a.type) for a in callback.arguments]
        yield f"{callback.name} = c.CFUNCTYPE(" + ", ".join(types) + ")"
    yield f"NUMBERS = ({', '.join(sorted(set(SCALARS.values())))})"
    yield from BASE.split("\n")
    for struct in interface.structs:
        yield ""
        yield ""
        yield f"class {camel(short(struct.name))}(Struct):"
        for line in sentences(struct.comment, 112) if struct.comment else []:
            yield "    # " + line
        for field in struct.fields:
            of = "Any" if field.type.depth or field.type.base not in SCALARS or field.array else \
                "float" if field.type.base in ("double", "float") else "int"
            yield f"    {field.name}: {of}"
        texts = [field.name for field in struct.fields if field.role == "text"]
        if texts:
            yield f"    _texts_ = ({', '.join(map(repr, texts))},)".replace("'", '"')
        handles = [f'"{field.name}": "{short(field.type.base)}"' for field in struct.fields if field.role == "handle"]
        if handles:
            yield f"    _handles_ = {{{', '.join(handles)}}}"
        yield "    _fields_ = ["
        for field in struct.fields:
            of = plain(interface, field.type)
            of += f" * {field.array.removeprefix('EPL_')}" if field.array else ""
            yield f'        ("{field.name}", {of}),'
        yield "    ]"
    yield ""
    yield ""
    yield "# name: (result, arguments)"
    yield "FUNCTIONS = {"
    for f in interface.functions:
        result = "c.c_char_p" if str(f.returns) == "const char*" and not f.text_length else plain(interface, f.returns)
        arguments = ", ".join(argument(interface, a) for a in f.arguments)
        yield f'    "{f.name}": ({result}, [{arguments}]),'
    yield "}"
    yield ""
    yield ""
    yield "def load(path):"
    yield '    """The library at `path` with the types of all its functions. AttributeError where it lacks one."""'
    yield "    library = c.CDLL(path)"
    yield "    for name, (result, arguments) in FUNCTIONS.items():"
    yield "        function = getattr(library, name)"
    yield "        function.restype, function.argtypes = result, arguments"
    yield "    return library"


def outputs(interface):
    yield "bindings/python/epl/_raw.py", lines(interface)
