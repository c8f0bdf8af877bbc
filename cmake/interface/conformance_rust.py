"""conformance/dispatch.rs: from a line of a script to a call of the crate epl-sys."""
import conformance
from rust_sys import SCALARS, rust, word

KINDS = {"int32_t": "i", "int64_t": "I", "uint64_t": "u", "double": "d"}


def typed(of):
    text = rust(of)
    base = of.base
    return text if base in SCALARS else text.replace(base, "epl_sys::" + base)


def fields(s):
    for f in s.fields[1 if s.sized else 0:]:
        at = lambda name: f"core::mem::offset_of!(epl_sys::{s.name}, {word(name)})"
        hidden = str((s.name, f.name) in conformance.HIDDEN).lower()
        name, kind, other, array = f.name, None, "0", f"epl_sys::{f.array}" if f.array else "0"
        if f.role == "text":
            kind, other = "t", at(f.partner)
        elif f.role == "handle":
            kind = "h"
        elif f.role == "userdata":
            _, destructor = s.groups()[f.name]
            name, kind, other = conformance.group_name(f.name), "g", at(destructor.name) if destructor else "0"
        elif f.role == "scalar":
            kind = KINDS[f.type.base]
        if kind:
            yield f'FieldInfo {{ name: "{name}", kind: \'{kind}\', offset: {at(f.name)}, other: {other}, ' \
                  f"array: {array}, hidden: {hidden} }}"


def on(of):
    return "on_" + of.base.removeprefix("epl_").removesuffix("_fn")


def callbacks(s):
    for f in s.fields:
        if f.role == "callback":
            yield f'CallbackInfo {{ group: "{conformance.group_name(f.partner)}", offset: core::mem::offset_of!(' \
                  f"epl_sys::{s.name}, {word(f.name)}), function: || {on(f.type)} as *const () }}"


def structs(interface):
    of_functions = {a.type.base for f in interface.functions for a in f.arguments}
    for s in (s for s in interface.structs if s.name in of_functions):
        yield ""
        yield f"static OF_{s.name}: StructInfo = StructInfo {{"
        yield f"    size: core::mem::size_of::<epl_sys::{s.name}>(),"
        yield f"    sized: {str(s.sized).lower()},"
        yield "    fields: &["
        yield from (f"        {field}," for field in fields(s))
        yield "    ],"
        yield "    callbacks: &["
        yield from (f"        {callback}," for callback in callbacks(s))
        yield "    ],"
        yield "};"


def local(a):
    return "a_" + a.name


def take(a):
    call = {"text": "bytes()", "bytes": "bytes()", "array": "integers()", "handles": "handles()", "callback": "hook()",
            "structs": f"structs(&OF_{a.type.base})", "struct": f"structure(&OF_{a.type.base})", "handle": "handle()",
            "pointer": "handle()"}.get(a.role)
    if call is None:
        call = "number()" if a.type.base in ("double", "float") else f"integer() as {SCALARS[a.type.base]}"
    return f"let {local(a)} = c.take_{call};"


def passed(f, a):
    hook = conformance.main_callback(f)
    if a is f.text_length:
        return "&mut length"
    if a.role == "length":
        counted = next(b for b in f.arguments if b.name == a.counts)
        return ("c.targets_left()" if counted.out else f"{local(counted)}.size") + f" as {SCALARS[a.type.base]}"
    if a.out:
        return f"{local(a)}.as_mut_ptr()" if a.role == "handles" else f"&mut {local(a)}"
    if a.role == "callback":
        other = on(a.type) if a is hook else "on_gone"
        some = f"Some({other})"
        return f"if {local(hook)}.is_null() {{ None }} else {{ {some} }}"
    if a.role == "userdata":
        return f"{local(hook)} as *mut c_void"
    if a.role in ("text", "bytes", "array", "handles", "structs"):
        return f"{local(a)}.data as {typed(a.type)}"
    if a.role in ("handle", "struct", "pointer"):
        return f"{local(a)} as {typed(a.type)}"
    return local(a)


def place(a):
    pointer = "*const" if a.type.const else "*mut"
    of = SCALARS.get(a.type.base, "epl_sys::" + a.type.base)
    if a.role == "handles":
        return f"let mut {local(a)}: [{pointer} {of}; 64] = [core::ptr::null{'' if a.type.const else '_mut'}(); 64];"
    if a.role in ("handle", "pointer"):
        return f"let mut {local(a)}: {pointer} {of} = core::ptr::null{'' if a.type.const else '_mut'}();"
    if a.role == "struct":
        return f"let mut {local(a)} = {of}::default();"
    return f"let mut {local(a)}: {of} = Default::default();"


def give_scalar(of, value):
    if of in ("double", "float"):
        return f"c.give_number({value});"
    return f"c.give_{'unsigned' if of[0] in 'us' else 'integer'}({value} as {'u64' if of[0] in 'us' else 'i64'});"


def give(a):
    name = local(a)
    if a.role == "handles":
        return f"for i in 0..count {{ c.give_handle({name}[i] as *const c_void); }}"
    if a.role == "handle" and a.type.base == "epl_text":
        return f"c.give_owned_text({name});"
    if a.role in ("handle", "pointer"):
        return f"c.give_handle({name} as *const c_void);"
    if a.role == "struct":
        return f"c.give_struct(&{name} as *const _ as *const u8, &OF_{a.type.base});"
    return give_scalar(a.type.base, name)


def function(f):
    yield ""
    yield f"unsafe fn run_{f.name}({'c' if f.arguments or str(f.returns) != 'void' else '_'}: &mut Call) {{"
    yield from ("    " + take(a) for a in conformance.taken(f))
    outs = conformance.given(f)
    yield from ("    " + place(a) for a in outs)
    if f.text_length:
        yield "    let mut length = 0usize;"
    if any(a.role == "handles" for a in outs):
        yield "    let count = c.targets_left();"
    call = f"epl_sys::{f.name}(" + ", ".join(passed(f, a) for a in f.arguments) + ")"
    returned = str(f.returns)
    if f.checked:
        yield f"    let failure = {call};"
        yield "    if c.give_error(failure) {"
        yield "        return;"
        yield "    }"
    elif returned == "void":
        yield f"    {call};"
    elif returned == "const char*":
        yield f"    let data = {call};"
        length = "length" if f.text_length else \
            "if data.is_null() { 0 } else { core::ffi::CStr::from_ptr(data).to_bytes().len() }"
        yield f"    c.give_text(data as *const u8, {length});"
    elif f.returns.depth and f.returns.base == "void":
        yield f"    let data = {call};"
        yield f"    c.give_memory(data as *const u8, {local(f.arguments[0])} as *const epl_sys::epl_tensor);"
    elif f.returns.depth:
        yield f"    let made = {call};"
        yield "    c.give_handle(made as *const c_void);"
    else:
        yield f"    let value = {call};"
        yield "    " + give_scalar(returned, "value")
    yield from ("    " + give(a) for a in outs)
    yield "}"


def lines(interface):
    yield "// Generated by cmake/interface; do not edit."
    yield "pub static CONSTANTS: &[(&str, i64)] = &["
    yield from (f'    ("{c.name}", {c.value}),' for c in interface.constants)
    yield "];"
    yield from structs(interface)
    for f in interface.functions:
        yield from function(f)
    yield ""
    yield "pub static FUNCTIONS: &[(&str, unsafe fn(&mut Call))] = &["
    yield from (f'    ("{f.name}", run_{f.name}),' for f in interface.functions)
    yield "];"
