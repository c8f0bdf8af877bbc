"""bindings/go/internal/raw: the C API as Go functions, thin and typed.

Texts are strings, memory is []byte, arrays are slices; all are read where they lie, during the call. Structs have C's
layout, so they are passed as they are: what they point to must be C's memory (AllocText), or nothing.
"""
from model import camel, sentences, short

SCALARS = {"int32_t": "int32", "uint32_t": "uint32", "int64_t": "int64", "uint64_t": "uint64", "size_t": "uintptr",
           "double": "float64", "float": "float32"}
# Go's own words, and names that functions of the package use.
TAKEN = {"type", "range", "func", "map", "len", "error", "string", "raw", "C", "select", "chan", "go", "defer", "var",
         "interface", "struct", "package", "import", "default", "switch", "case", "const"}


def word(name):
    name = camel(name, upper=False)
    return name + "_" if name in TAKEN else name


def title(name):
    """epl_session_step -> SessionStep. Constants have their name of C."""
    return camel(short(name))


def comment(text, indent=""):
    """Lines that are set in columns become code, which gofmt wants behind a tab."""
    lines, code = [], False
    for line in sentences(text, 110 - len(indent)) if text else []:
        if line.startswith("  ") != code:
            code = not code
            if lines and lines[-1]:
                lines.append("")
        lines.append("\t" + line[2:] if code else line)
    return [f"{indent}//{'' if line.startswith(chr(9)) or not line else ' '}{line}" for line in lines]


def go_type(interface, a):
    of = a.type
    if a.role == "text":
        return "string"
    if a.role == "bytes":
        return "unsafe.Pointer" if a.kept else "[]byte"
    if a.role == "userdata":
        return "uintptr"
    if a.role == "pointer":
        return "unsafe.Pointer"
    if a.role == "callback":
        return title(of.base)
    if a.role == "array":
        return "[]" + SCALARS[of.base]
    if a.role == "handles":
        return "[]*" + title(of.base)
    if a.role == "structs":
        return "[]" + title(of.base)
    if a.role in ("handle", "struct"):
        return "*" + title(of.base)
    return SCALARS[of.base]


def has_shim(f):
    """A number that C keeps as a pointer is converted in C: Go's checks refuse to see one as a pointer."""
    return any(a.role == "userdata" for a in f.arguments)


def shim(f):
    arguments = ", ".join(f"uintptr_t {a.name}" if a.role == "userdata" else f"{a.type} {a.name}" for a in f.arguments)
    values = ", ".join(f"(void*){a.name}" if a.role == "userdata" else a.name for a in f.arguments)
    yield f"// static {f.returns} go_{f.name}({arguments}) {{"
    yield f"//   {'' if str(f.returns) == 'void' else 'return '}{f.name}({values});"
    yield "// }"


def c_name(f):
    return ("go_" if has_shim(f) else "") + f.name


def passed(interface, f, a):
    """The expression that C gets for an argument."""
    name, by_name = word(a.name), {b.name: b for b in f.arguments}
    c_type = {"char": "C.char", "void": "unsafe.Pointer"}.get(a.type.base, "C." + a.type.base)
    if a.role == "length":
        counted = by_name[a.counts]
        if counted.kept:
            return f"C.{a.type.base}({name})"
        return f"C.{a.type.base}(len({word(a.counts)}))"
    if a is f.text_length:
        return f"&{name}"
    if a in f.results:
        return f"&{name}"
    if a.role == "text":
        return f"(*C.char)(unsafe.Pointer(unsafe.StringData({name})))"
    if a.role == "bytes":
        return name if a.kept else f"unsafe.Pointer(unsafe.SliceData({name}))"
    if a.role == "userdata":
        return f"C.uintptr_t({name})"
    if a.role == "array":
        return f"(*{c_type})(unsafe.SliceData({name}))"
    if a.role == "handles":
        return f"unsafe.SliceData({name})"
    if a.role == "structs":
        return f"(*{c_type})(unsafe.Pointer(unsafe.SliceData({name})))"
    if a.role == "struct":
        return f"(*{c_type})(unsafe.Pointer({name}))"
    if a.role in ("handle", "pointer", "callback"):
        return name
    return f"{c_type}({name})"


def function(interface, f):
    parameters = []
    for a in f.arguments:
        if a in f.results or a is f.text_length:
            continue
        if a.role == "length":
            if next(b for b in f.arguments if b.name == a.counts).kept:
                parameters.append(f"{word(a.name)} uintptr")
            continue
        parameters.append(f"{word(a.name)} {go_type(interface, a)}")
    results = [f"{word(a.name)} {go_type(interface, a)}" for a in f.results]
    returned = str(f.returns)
    if f.checked:
        results.append("failure *Error")
    elif returned == "const char*":
        results.append("result string")
    elif f.returns.depth:
        results.append("result " + ("unsafe.Pointer" if f.returns.base == "void" else "*" + title(f.returns.base)))
    elif returned != "void":
        results.append("result " + SCALARS[returned])
    yield ""
    yield from comment(f"{title(f.name)} is {f.name}." + (("\n\n" + f.comment) if f.comment else ""))
    of = ", ".join(results)
    head = f"func {title(f.name)}(" + ", ".join(parameters) + ")"
    yield head + (f" ({of})" if of else "") + " {"
    for a in f.results:
        if a.role == "scalar":
            yield f"\tvar c{camel(a.name)} C.{a.type.base}"
    if f.text_length:
        yield f"\tvar {word(f.text_length.name)} C.size_t"
    values = []
    for a in f.arguments:
        value = passed(interface, f, a)
        values.append(f"&c{camel(a.name)}" if a in f.results and a.role == "scalar" else value)
    call = f"C.{c_name(f)}(" + ", ".join(values) + ")"
    after = [f"\t{word(a.name)} = {go_type(interface, a)}(c{camel(a.name)})" for a in f.results if a.role == "scalar"]
    if f.checked:
        yield f"\tfailure = {call}"
    elif returned == "const char*" and f.text_length:
        yield f"\tdata := {call}"
        yield f"\tresult = C.GoStringN(data, C.int({word(f.text_length.name)}))"
    elif returned == "const char*":
        yield f"\tresult = C.GoString({call})"
    elif f.returns.depth:
        yield f"\tresult = {call}"
    elif returned == "void":
        yield f"\t{call}"
    else:
        yield f"\tresult = {SCALARS[returned]}({call})"
    yield from after
    if of:
        yield "\treturn"
    yield "}"


def field_type(field):
    of = field.type
    if field.role in ("callback", "destroy"):
        return title(of.base)
    if field.role == "text":
        return "*C.char"
    if field.role == "handle":
        return "*" + title(of.base)
    if field.role == "userdata":
        return "uintptr"
    if of.depth:
        return "unsafe.Pointer"
    return (f"[{field.array}]" if field.array else "") + SCALARS[of.base]


def struct(s):
    name = title(s.name)
    yield ""
    yield from comment(f"{name} is {s.name}." + (("\n\n" + s.comment) if s.comment else ""))
    yield f"type {name} struct {{"
    for i, field in enumerate(s.fields):
        if i:
            yield ""
        yield from comment(field.comment, "\t")
        yield f"\t{camel(field.name)} {field_type(field)}"
    yield "}"
    if s.sized:
        yield ""
        yield f"// New{name} has the default in every field."
        yield f"func New{name}() {name} {{"
        yield f"\treturn {name}{{StructSize: uint64(unsafe.Sizeof({name}{{}}))}}"
        yield "}"
    yield ""
    yield "// Go and C agree on the layout, else this does not compile."
    yield f"var _ [{s.size}]struct{{}} = [unsafe.Sizeof({name}{{}})]struct{{}}{{}}"
    for field in s.fields[1:]:
        yield f"var _ [{field.offset}]struct{{}} = [unsafe.Offsetof({name}{{}}.{camel(field.name)})]struct{{}}{{}}"


def lines(interface):
    yield "// Code generated by cmake/interface from include/epl.h; DO NOT EDIT."
    yield ""
    yield "// Package raw is the C API of EPL as Go functions, one for each of C's."
    yield "//"
    yield "// Texts are strings, memory is []byte, arrays are slices: they are read where they lie, during the call. Where"
    yield "// include/epl.h says EPL_KEPT memory goes on being used, and must be C's or pinned. What a struct points to is"
    yield "// C's memory (AllocText) or a handle. Failures are *Error, which the caller destroys; they come last, nil for success."
    yield "package raw"
    yield ""
    yield "// #include <stdlib.h>"
    yield "// #include <epl.h>"
    for f in interface.functions:
        if has_shim(f):
            yield "//"
            yield from shim(f)
    yield 'import "C"'
    yield ""
    yield 'import "unsafe"'
    for constant in interface.constants:
        yield ""
        if constant.comment:
            yield from comment(f"{constant.name}: {constant.comment}")
        yield f"const {constant.name} = {constant.value}"
    for handle in interface.handles:
        yield ""
        yield from comment(f"{title(handle)} is {handle}, by pointer alone.")
        yield f"type {title(handle)} = C.{handle}"
    for callback in interface.callbacks:
        yield ""
        yield from comment(f"{title(callback.name)} is {callback.name}, a function of C." +
                           (("\n\n" + callback.comment) if callback.comment else ""))
        yield f"type {title(callback.name)} = C.{callback.name}"
    for s in interface.structs:
        yield from struct(s)
    yield ""
    yield "// AllocText copies a text into C's memory, for a field of a struct and that of its length. FreeText gives it back."
    yield "func AllocText(text string) (data *C.char, length uint64) {"
    yield "\treturn C.CString(text), uint64(len(text))"
    yield "}"
    yield ""
    yield "// FreeText frees what AllocText gave; nil is nothing."
    yield "func FreeText(data *C.char) {"
    yield "\tC.free(unsafe.Pointer(data))"
    yield "}"
    yield ""
    yield "// CopyText copies a text out of the fields of a struct."
    yield "func CopyText(data *C.char, length uint64) string {"
    yield "\treturn C.GoStringN(data, C.int(length))"
    yield "}"
    for f in interface.functions:
        yield from function(interface, f)


def hints(interface):
    """What is quick calls nothing back, so Go need not prepare for it, and what it is given may stay on a stack that
    nothing moves meanwhile. The second needs the first: all else may log, by a function of Go."""
    yield "// Code generated by cmake/interface from include/epl.h; DO NOT EDIT."
    yield ""
    yield "//go:build go1.24"
    yield ""
    yield "package raw"
    yield ""
    for f in interface.functions:
        if f.quick:
            yield f"// #cgo nocallback {c_name(f)}"
            if any(a.type.depth for a in f.arguments):
                yield f"// #cgo noescape {c_name(f)}"
    yield "// #include <epl.h>"
    yield 'import "C"'


def outputs(interface):
    names = [title(x.name) for x in interface.functions + interface.structs + interface.callbacks]
    names += [title(h) for h in interface.handles]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SystemExit(f"two things of include/epl.h are {twice} in Go")
    yield "bindings/go/internal/raw/raw.go", lines(interface)
    yield "bindings/go/internal/raw/hints.go", hints(interface)
