"""conformance/dispatch.c: from a line of a script to a call of C."""
import conformance

KINDS = {"int32_t": "i", "int64_t": "I", "uint64_t": "u", "double": "d"}


def fields(s):
    for f in s.fields[1 if s.sized else 0:]:
        at = f"offsetof({s.name}, {f.name})"
        hidden = int((s.name, f.name) in conformance.HIDDEN)
        if f.role == "text":
            yield f'{{"{f.name}", \'t\', {at}, offsetof({s.name}, {f.partner}), 0, {hidden}}}'
        elif f.role == "handle":
            yield f'{{"{f.name}", \'h\', {at}, 0, 0, {hidden}}}'
        elif f.role == "userdata":
            _, destructor = s.groups()[f.name]
            gone = f"offsetof({s.name}, {destructor.name})" if destructor else "0"
            yield f'{{"{conformance.group_name(f.name)}", \'g\', {at}, {gone}, 0, 0}}'
        elif f.role == "scalar":
            yield f'{{"{f.name}", \'{KINDS[f.type.base]}\', {at}, 0, {f.array or 0}, {hidden}}}'


def callbacks(s):
    for f in s.fields:
        if f.role == "callback":
            group = conformance.group_name(f.partner)
            yield f'{{"{group}", offsetof({s.name}, {f.name}), (void (*)(void)){on(f.type)}}}'


def on(of):
    """The tester's function of a type of callbacks: epl_write_fn -> on_write."""
    return "on_" + of.base.removeprefix("epl_").removesuffix("_fn")


def structs(interface):
    of_functions = {a.type.base for f in interface.functions for a in f.arguments}
    for s in (s for s in interface.structs if s.name in of_functions):
        yield ""
        yield f"static const field_info fields_of_{s.name}[] = {{"
        yield from (f"    {field}," for field in fields(s))
        yield "    {NULL, 0, 0, 0, 0, 0}};"
        yield f"static const callback_info callbacks_of_{s.name}[] = {{"
        yield from (f"    {callback}," for callback in callbacks(s))
        yield "    {NULL, 0, NULL}};"
        yield f"static const struct_info of_{s.name} = {{sizeof({s.name}), {int(s.sized)}, fields_of_{s.name}, " \
              f"callbacks_of_{s.name}}};"


def take(a):
    """The local variable that an argument is read into."""
    if a.role in ("text", "bytes"):
        return f"span {a.name} = take_bytes(c);"
    if a.role == "array":
        return f"span {a.name} = take_integers(c);"
    if a.role == "handles":
        return f"span {a.name} = take_handles(c);"
    if a.role == "structs":
        return f"span {a.name} = take_structs(c, &of_{a.type.base});"
    if a.role == "struct":
        return f"void* {a.name} = take_struct(c, &of_{a.type.base});"
    if a.role in ("handle", "pointer"):
        return f"void* {a.name} = take_handle(c);"
    if a.role == "callback":
        return f"hook* {a.name} = take_hook(c);"
    if a.type.base in ("double", "float"):
        return f"double {a.name} = take_number(c);"
    return f"{a.type} {a.name} = ({a.type})take_integer(c);"


def passed(f, a):
    hook = conformance.main_callback(f)
    if a is f.text_length:
        return "&length_"
    if a.role == "length":
        counted = next(b for b in f.arguments if b.name == a.counts)
        return f"({a.type.base})" + ("targets_left(c)" if counted.out else f"{counted.name}.size")
    if a.out:
        return f"{a.name}" if a.role == "handles" else f"&{a.name}"
    if a.role == "callback":
        return f"{hook.name} == NULL ? NULL : {on(a.type) if a is hook else 'on_gone'}"
    if a.role == "userdata":
        return hook.name
    if a.role in ("text", "bytes", "array", "handles", "structs"):
        return f"({a.type}){a.name}.data"
    if a.role in ("handle", "struct", "pointer"):
        return f"({a.type}){a.name}"
    return a.name


def place(a):
    if a.role == "handles":
        return f"{'const ' if a.type.const else ''}{a.type.base}* {a.name}[64] = {{NULL}};"
    if a.role in ("handle", "pointer"):
        return f"{'const ' if a.type.const else ''}{a.type.base}* {a.name} = NULL;"
    if a.role == "struct":
        return f"{a.type.base} {a.name} = {a.type.base.upper()}_INIT;"
    return f"{a.type.base} {a.name} = 0;"


def give_scalar(of, value):
    if of in ("double", "float"):
        return f"give_number(c, {value});"
    return f"give_{'unsigned' if of.startswith('u') else 'integer'}(c, {value});"


def give(a):
    if a.role == "handles":
        return f"for (size_t i = 0; i < count_; ++i) give_handle(c, {a.name}[i]);"
    if a.role == "handle" and a.type.base == "epl_text":
        return f"give_owned_text(c, {a.name});"
    if a.role in ("handle", "pointer"):
        return f"give_handle(c, {a.name});"
    if a.role == "struct":
        return f"give_struct(c, &{a.name}, &of_{a.type.base});"
    return give_scalar(a.type.base, a.name)


def function(f):
    yield ""
    yield f"static void run_{f.name}(call* c) {{"
    if not f.arguments:
        yield "  (void)c;"
    yield from ("  " + take(a) for a in conformance.taken(f))
    outs = conformance.given(f)
    yield from ("  " + place(a) for a in outs)
    if f.text_length:
        yield "  size_t length_ = 0;"
    if any(a.role == "handles" for a in outs):
        yield "  size_t count_ = targets_left(c);"
    call = f"{f.name}(" + ", ".join(passed(f, a) for a in f.arguments) + ")"
    returned = str(f.returns)
    if f.checked:
        yield f"  if (give_error(c, {call})) return;"
    elif returned == "void":
        yield f"  {call};"
    elif returned == "const char*":
        yield f"  const char* data_ = {call};"
        yield f"  give_text(c, data_, {'length_' if f.text_length else 'data_ == NULL ? 0 : strlen(data_)'});"
    elif f.returns.depth and f.returns.base == "void":
        yield f"  give_memory(c, {call}, {f.arguments[0].name});"
    elif f.returns.depth:
        yield f"  give_handle(c, {call});"
    else:
        yield "  " + give_scalar(returned, call)
    yield from ("  " + give(a) for a in outs)
    yield "}"


def lines(interface):
    yield "/* Generated by cmake/interface; do not edit. */"
    yield '#include "tester.h"'
    yield ""
    yield "#include <string.h>"
    yield ""
    yield "const constant_info constants[] = {"
    yield from (f'    {{"{c.name}", {c.value}}},' for c in interface.constants)
    yield "    {NULL, 0}};"
    yield from structs(interface)
    for f in interface.functions:
        yield from function(f)
    yield ""
    yield "const function_info functions[] = {"
    yield from (f'    {{"{f.name}", run_{f.name}}},' for f in interface.functions)
    yield "    {NULL, NULL}};"
