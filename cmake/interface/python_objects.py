"""bindings/python/epl/_objects.py: a class for each handle, a method for each function. _core.py has what they use, and
__init__.py what is nicer in Python than as the header has it."""
import re

from model import camel, sentences, short

KEYWORDS = {"from", "import", "global", "lambda", "pass", "is", "in", "not", "def", "class"}
INSIDE = {"epl_error", "epl_text"}
SCALARS = {"int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64",
           "size_t": "c_size_t", "double": "c_double", "float": "c_float"}


def word(name):
    return name + "_" if name in KEYWORDS else name


def owner(f):
    return f.object if f.object and f.object not in INSIDE else ""


def is_method(f):
    first = f.arguments[0] if f.arguments else None
    return bool(owner(f)) and first is not None and first.role == "handle" and not first.out and \
        first.type.base == f.object and not first.nullable


def is_call(a):
    return a.type.base == "epl_call_options" and not a.out


def written(f):
    inside = ("bytes", "array", "structs")  # what the caller gives to be written into
    return [a for a in f.arguments if a.out and a is not f.text_length and a.role not in inside]


PYTHON_SCALARS = {"double": "float", "float": "float", "void": "None"}


def hint(a):
    """What a caller may give for an argument."""
    of = {"text": "core.Text", "bytes": "core.Buffer", "struct": "core.Fields", "structs": "Iterable[core.Fields]",
          "callback": "Callable[..., Any]"}.get(a.role)
    if a.role == "handle":
        of = camel(short(a.type.base))
    elif a.role == "handles":
        of = f"Sequence[{camel(short(a.type.base))}]"
    elif a.role == "array":
        of = f"Iterable[{PYTHON_SCALARS.get(a.type.base, 'int')}]"
    elif a.role == "scalar":
        of = PYTHON_SCALARS.get(a.type.base, "int")
    of = of or "Any"
    return f"Optional[{of}]" if a.nullable and of != "Any" else of


def result(f):
    """What a function gives."""
    found = []
    for a in written(f):
        if a.role in ("handle", "handles"):
            of = "str" if a.type.base == "epl_text" else camel(short(a.type.base))
            of = f"Optional[{of}]" if a.role == "handle" and not a.owned and of != "str" else of
            found.append(f"list[{of}]" if a.role == "handles" else of)
        else:
            found.append(f"raw.{camel(short(a.type.base))}" if a.role == "struct" else
                         PYTHON_SCALARS.get(a.type.base, "int") if a.role == "scalar" else "Any")
    if f.checked:
        return "None" if not found else found[0] if len(found) == 1 else f"tuple[{', '.join(found)}]"
    if f.text_length:
        return "str"
    if str(f.returns) == "const char*":
        return "str"
    if str(f.returns) == "void" and found:
        return found[0] if len(found) == 1 else f"tuple[{', '.join(found)}]"
    return PYTHON_SCALARS.get(f.returns.base, "int") if not f.returns.depth else "Any"


def parameters(f):
    """Names with their types, and the optional ones at the end with their default."""
    found = []
    for i, a in enumerate(f.arguments):
        if a is f.text_length or (i == 0 and is_method(f)) or is_call(a):
            continue
        if a in written(f):
            if a.role == "handles":
                found.append((f"{a.length}: int", ""))
        elif a.role != "length":
            found.append((f"{word(a.name)}: {hint(a)}", " = None" if a.nullable else ""))
    texts, optional = [], True
    for name, default in reversed(found):
        optional = optional and bool(default)
        texts.append(name + (default if optional else ""))
    texts.reverse()
    return texts + (["**call: Any"] if any(map(is_call, f.arguments)) else [])


def spoken(interface, comment):
    """A comment of the header in Python's words: None, Session.save, ERROR_BUSY."""
    methods = {f.name: f"{camel(short(f.object))}.{word(f.method)}" if owner(f) else word(f.name.removeprefix("epl_"))
               for f in interface.functions}

    def one(found):
        name = found[0]
        known = interface.struct(name) or name in interface.handles
        return methods.get(name) or (camel(short(name)) if known else name)
    comment = re.sub(r"\bepl_[a-z0-9_]*[a-z0-9]\b", one, comment)
    return re.sub(r"\bNULL\b", "None", re.sub(r"\bEPL_([A-Z0-9_]+)", r"\1", comment))


def function(interface, f):
    method, free = is_method(f), not owner(f)
    outs = written(f)
    first = [] if free else ["self"] if method else ["cls"]
    indent = "" if free else "    "
    name = word(f.method if not free else f.name.removeprefix("epl_"))
    if free:
        yield ""
    yield ""
    if not method and not free:
        yield indent + "@classmethod"
    yield f"{indent}def {name}({', '.join(first + parameters(f))}) -> {result(f)}:"
    indent += "    "
    if f.comment:
        doc = sentences(spoken(interface, f.comment).replace("\\", "\\\\"), 110, indent)
        doc[0] = indent + '"""' + doc[0].strip()
        if doc[-1].endswith('"'):
            doc[-1] += " "
        yield from doc[:-1]
        yield doc[-1] + '"""'
    passed = []
    for i, a in enumerate(f.arguments):
        it = word(a.name)
        if i == 0 and method:
            passed.append("core.pointer(self)")
        elif a is f.text_length:
            yield f"{indent}length = c.c_size_t()"
            passed.append("c.byref(length)")
        elif a.role == "length":
            counted = next(b for b in f.arguments if b.name == a.counts)
            passed.append(it if counted.out and counted.role == "handles" else f"{word(a.counts)}_length")
        elif a in outs:
            if a.role == "handles":
                yield f"{indent}{it}_out = (c.c_void_p * {word(a.length)})()"
                passed.append(f"{it}_out")
                continue
            of = f"raw.{camel(short(a.type.base))}" if a.role == "struct" else \
                "c." + SCALARS[a.type.base] if a.role == "scalar" else "c.c_void_p"
            yield f"{indent}{it}_out = {of}()"
            held = interface.struct(a.type.base) if a.role == "struct" else None
            if method and held and any(field.role == "text" for field in held.fields):
                yield f"{indent}{it}_out._kept.append(self)  # whose texts these are"
            passed.append(f"c.byref({it}_out)")
        elif a.role in ("text", "bytes", "array", "handles"):
            helper = {"bytes": "memory"}.get(a.role, a.role) if a.role != "array" else f"array(c.{SCALARS[a.type.base]}, "
            yield f"{indent}{it}_data, {it}_length = core.{helper}{'' if a.role == 'array' else '('}{it})"
            passed.append(f"{it}_data")
        elif a.role == "structs":
            yield f"{indent}{it}_data, {it}_length = core.structs(raw.{camel(short(a.type.base))}, {it})"
            passed.append(f"{it}_data")
        elif is_call(a):
            passed.append("core.call_options(call)")
        elif a.role == "struct":
            passed.append(f"core.struct(raw.{camel(short(a.type.base))}, {it})")
        elif a.role == "handle":
            passed.append(f"core.pointer({it})")
        elif a.role == "scalar" and a.type.base in SCALARS and not a.type.depth:
            yield f'{indent}{it} = raw.number(c.{SCALARS[a.type.base]}, {it}, "{it}")'
            passed.append(it)
        else:
            passed.append(it)
    call = f"core.library().{f.name}({', '.join(passed)})"
    values, keeper = [], "self" if method else "None"
    source = keeper if method else next((word(a.name) for a in f.arguments if a.role == "handle" and not a.out), "None")
    for a in outs:
        it = word(a.name)
        if a.role == "handle" and a.type.base == "epl_text":
            values.append(f"core.take({it}_out)")
        elif a.role == "handle":
            cls = "cls" if not method and not free and a.type.base == f.object else f'core.kind("{short(a.type.base)}")'
            values.append(f"{cls}.own({it}_out.value, {source})" if a.owned else f"{cls}.borrow({it}_out.value, {keeper})")
        elif a.role == "handles":
            made = f"own(each, {source})" if a.owned else f"borrow(each, {keeper})"
            values.append(f'[core.kind("{short(a.type.base)}").{made} for each in {it}_out]')
        else:
            values.append(f"{it}_out" if a.role == "struct" else f"{it}_out.value")
    if f.checked:
        yield f"{indent}core.check({call})"
        if values:
            yield f"{indent}return {', '.join(values)}"
    elif f.text_length:
        yield f"{indent}return core.view({call}, length.value)"
    elif str(f.returns) == "const char*":
        yield f"{indent}return core.name({call})"
    elif str(f.returns) == "void":
        yield f"{indent}{call}"
        if values:
            yield f"{indent}return {', '.join(values)}"
    else:
        if values:
            raise ValueError(f"{f.name} both returns something and writes {outs[0].name}: Python's layer knows no such")
        yield f"{indent}return {call}"


def lines(interface):
    yield '"""The objects of the C API, a method for each function. Generated by cmake/interface; do not edit.'
    yield ""
    yield "Texts are str, memory is anything with a buffer, arrays are sequences. What C writes is returned. Calls that take"
    yield "long have keywords: timeout in seconds, cancel, and the other fields of CallOptions."
    yield '"""'
    yield "from __future__ import annotations"
    yield ""
    yield "import ctypes as c"
    yield "from typing import Any, Callable, Iterable, Optional, Sequence"
    yield ""
    yield "from . import _core as core"
    yield "from . import _raw as raw"
    yield ""
    names = [word(f.name.removeprefix("epl_")) for f in interface.functions
             if not owner(f) and f.object not in INSIDE and not f.is_init]
    yield "# The functions. Of the classes __init__.py has what Python's users see."
    yield "__all__ = ["
    yield from (f'    "{name}",' for name in names)
    yield "]"
    for handle in interface.handles:
        if handle in INSIDE:
            continue
        yield ""
        yield ""
        yield f"class {camel(short(handle))}(core.Handle):"
        comment = interface.handle_comments.get(handle)
        if comment:
            yield f'    """{spoken(interface, comment)}"""'
        yield f'    KIND = "{short(handle)}"'
        for f in interface.functions:
            if owner(f) == handle and not f.is_destroy and not f.is_init:
                yield from function(interface, f)
    for f in interface.functions:
        if not owner(f) and f.object not in INSIDE and not f.is_init:
            yield from function(interface, f)


def outputs(interface):
    yield "bindings/python/epl/_objects.py", lines(interface)
