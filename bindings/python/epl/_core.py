"""What the objects are made of: the library, errors, handles, and how Python's values become arguments of C."""
import ctypes as c
import functools
import itertools
import json
import math
import os
import pathlib
from typing import Any, Dict, Iterable, Optional, Type, TypeVar, Union

from . import _raw as raw

Text = Union[str, bytes, "os.PathLike[str]"]
Buffer = Any  # what memoryview takes
Fields = Union[Dict[str, Any], raw.Struct]
_Self = TypeVar("_Self")
_held: Dict[int, Any] = {}
_numbers = itertools.count(1)


class Error(Exception):
    """A failure: what was wrong and what to do. `code` is one of the constants ERROR_.... `session` is that of fit(),
    with all that was trained until then; None elsewhere."""
    session: Any = None

    def __init__(self, message: str, code: int = raw.ERROR_INTERNAL, where: str = "", rank: int = -1,
                 retryable: bool = False) -> None:
        super().__init__(message)
        self.code, self.where, self.rank, self.retryable = code, where, rank, retryable


@functools.cache
def library():
    """The library: the file that EPL_LIBRARY names, else the one inside the package, else the system's."""
    beside = pathlib.Path(__file__).with_name("libepl.so.1")
    return raw.load(os.environ.get("EPL_LIBRARY") or (str(beside) if beside.exists() else "libepl.so.1"))


def check(error):
    if not error:
        return
    lib, length = library(), c.c_size_t()
    message = view(lib.epl_error_message(error, c.byref(length)), length.value)
    where = view(lib.epl_error_where(error, c.byref(length)), length.value)
    failure = Error(message, lib.epl_error_code(error), where, lib.epl_error_rank(error),
                    bool(lib.epl_error_retryable(error)))
    lib.epl_error_destroy(error)
    raise failure


class Handle:
    """An object of the library. It goes with its last reference, at the end of a `with`, or by close()."""
    KIND = ""
    _classes: Dict[str, Any] = {}

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        Handle._classes[cls.KIND] = cls  # a subclass takes the place of what was generated

    engine = None  # what an object was made with, which makes the tensors that its calls take

    @classmethod
    def own(cls: Type[_Self], pointer: Any, source: Any = None) -> _Self:
        """A handle that was made with `source`."""
        made = cls.__new__(cls)
        made.pointer, made.owned = pointer, True
        if source is not None:
            made.engine = source if source.KIND == "engine" else source.engine
        return made

    @classmethod
    def borrow(cls: Type[_Self], pointer: Any, owner: Any) -> Optional[_Self]:
        """A handle that lives in `owner`, which it keeps; of no pointer None."""
        if not pointer:
            return None
        made = cls.own(pointer, owner)
        made.owned, made.owner = False, owner
        return made

    def adopt(self, made: Any) -> None:
        """Takes over what another object has."""
        self.pointer, self.owned, made.pointer = made.pointer, True, None
        if made.engine is not None:
            self.engine = made.engine

    def close(self) -> None:
        pointer, self.pointer = getattr(self, "pointer", None), None
        if pointer and self.owned:
            getattr(library(), f"epl_{self.KIND}_destroy")(pointer)

    def __del__(self):
        if library is not None:  # else the interpreter is ending
            self.close()

    def __copy__(self):
        raise TypeError(f"an epl.{type(self).__name__} is one object of the library and cannot be copied or pickled")

    def __deepcopy__(self, _):
        self.__copy__()

    def __reduce__(self):
        self.__copy__()

    def __repr__(self) -> str:
        if not getattr(self, "pointer", None):
            return f"<epl.{type(self).__name__}, closed>"
        told = self._told()
        return f"<epl.{type(self).__name__}{' ' if told else ''}{told}>"

    def _told(self) -> str:
        """What repr() says of one that is open."""
        return ""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def shown(value: Any, most: int = 60) -> str:
    """What a caller has given, as a message repeats it: cut, in one line, without control characters."""
    said = str(value)
    said = said if len(said) <= most else said[:most] + "..."
    return said if said.isprintable() else ascii(said)[1:-1]


def listed(values: Iterable[Any], most: int = 30) -> str:
    """Several of these."""
    values = list(values)
    return ", ".join(map(shown, values[:most])) + (f" and {len(values) - most} more" if len(values) > most else "")


def _plain(value: Any, key: str) -> Any:
    """What JSON has for a value; NumPy's numbers and arrays are numbers and lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _plain(each, f"{key}.{name}" if key else str(name)) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, key) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f'"{shown(key)}" is {value}, and settings are finite numbers')
    return value


def settings_text(settings: Any) -> str:
    """A dictionary as the library reads it."""
    return json.dumps(_plain(dict(settings), ""))


@raw.epl_destroy_fn
def let_go(number):
    """What the library calls when it has done with what hold() keeps."""
    _held.pop(number, None)


def hold(value):
    """Keeps what C was given until it calls let_go with this number."""
    number = next(_numbers)
    _held[number] = value
    return number


def failure(error):
    """An error of the library for what a function of the host raised, which is its cause there."""
    if isinstance(error, Error):
        code, said = error.code, str(error)
    else:
        code, said = raw.ERROR_INTERNAL, f"{type(error).__name__}: {error}"
    data = said.encode(errors="replace")
    return library().epl_error_create(code, data, len(data))


def guarded(function):
    """A function of the host as the library calls it: what it raises becomes an error, None is success."""
    def called(*arguments):
        try:
            function(*arguments)
        except BaseException as error:  # nothing may go on through C  # noqa: BLE001
            return failure(error)
        return None
    return called


def kind(name):
    return Handle._classes[name]


def pointer(handle):
    if handle is None:
        return None
    if handle.pointer is None:
        raise ValueError(f"this {handle.KIND} is closed")
    return handle.pointer


def text(value):
    if value is None:
        return None, 0
    data = value if isinstance(value, bytes) else os.fspath(value).encode()
    return data, len(data)


def memory(value):
    """The memory of what has a buffer, as it is; what is read-only is copied, because ctypes has no other way."""
    view_of = memoryview(value).cast("B")
    buffer = c.c_char * len(view_of)
    return (buffer.from_buffer_copy(view_of) if view_of.readonly else buffer.from_buffer(view_of)), len(view_of)


def array(of, values):
    values = () if values is None else tuple(values)
    return (of * len(values))(*(raw.number(of, each, f"element {i}") for i, each in enumerate(values))), len(values)


def handles(values):
    return (c.c_void_p * len(values))(*map(pointer, values)), len(values)


def struct(of, value):
    """None, a struct, or the fields of one."""
    return None if value is None else c.byref(of(**value) if isinstance(value, dict) else value)


def structs(of, values):
    """Structs one behind the other; a ctypes array as it is, so that what is written there is the caller's."""
    values = () if values is None else values
    if isinstance(values, c.Array):
        return values, len(values)
    each = [of(**value) if isinstance(value, dict) else value for value in values]
    made = (of * len(each))(*each)
    made._kept = each  # whose texts these are
    return made, len(each)


def call_options(call):
    if not call:
        return None
    fields = dict(call)
    timeout, cancel = fields.pop("timeout", None), fields.pop("cancel", None)
    if timeout is not None:
        seconds = raw.number(c.c_double, timeout, "timeout")
        if math.isnan(seconds):
            raise ValueError("timeout is a number of seconds, not nan")
        fields["timeout_nanoseconds"] = max(1, int(min(seconds, 9e9) * 1e9))  # in 285 years
    if cancel is not None:
        fields["cancel"] = cancel
    known = [field for field, _ in raw.CallOptions._fields_]
    for name in fields:
        if name not in known:
            raise TypeError(f'a call has no keyword "{shown(name)}"; there are timeout and cancel. Options of what is '
                            'made stand in a dictionary: options={"%s": ...}' % shown(name))
    return c.byref(raw.CallOptions(**fields))


def take(owned):
    """What an epl_text has, which goes."""
    length = c.c_size_t()
    found = view(library().epl_text_data(owned, c.byref(length)), length.value)
    library().epl_text_destroy(owned)
    return found


def view(address, length):
    return c.string_at(address, length).decode() if address else ""


def name(found):
    return None if found is None else found.decode()
