"""conformance/dispatch.rs: from a line of a script to a call of the crate epl-sys."""
import conformance_lines as script
from conformance_lines import on
from rust_sys import SCALARS, rust, word


def typed(of):
    text = rust(of)
    base = of.base
    return text if base in SCALARS else text.replace(base, "epl_sys::" + base)


def structs(interface):
    for s in script.structs(interface):
        at = lambda name: f"core::mem::offset_of!(epl_sys::{s.name}, {word(name)})" if name else "0"
        yield ""
        yield f"static OF_{s.name}: StructInfo = StructInfo {{"
        yield f"    size: core::mem::size_of::<epl_sys::{s.name}>(),"
        yield f"    sized: {str(s.sized).lower()},"
        yield "    fields: &["
        for f in script.fields(s):
            array = f"epl_sys::{f.array}" if f.array else "0"
            yield f'        FieldInfo {{ name: "{f.name}", kind: \'{f.kind}\', offset: {at(f.at)}, ' \
                  f"other: {at(f.other)}, array: {array}, hidden: {str(f.hidden).lower()} }},"
        yield "    ],"
        yield "    callbacks: &["
        for group, f in script.callbacks(s):
            yield f'        CallbackInfo {{ group: "{group}", offset: {at(f.name)}, ' \
                  f"function: || {on(f.type)} as *const () }},"
        yield "    ],"
        yield "};"


def local(a):
    return "a_" + a.name


def take(a):
    taken = script.taken_as(a)
    call = f"c.take_{taken}(" + (f"&OF_{a.type.base})" if taken in ("struct", "structs") else ")")
    return f"let {local(a)} = {call}" + (f" as {SCALARS[a.type.base]};" if taken == "integer" else ";")


def passed(f, a):
    hook = script.main_callback(f)
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
    given = script.given_as(of)
    cast = {"unsigned": " as u64", "integer": " as i64"}.get(given, "")
    return f"c.give_{given}({value}{cast});"


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


def called(f):
    """The call, and what is given of its result."""
    arguments = ", ".join(passed(f, a) for a in f.arguments)
    call, returned = f"epl_sys::{f.name}({arguments})", script.returned(f)
    if returned == "error":
        yield f"let failure = {call};"
        yield "if c.give_error(failure) {"
        yield "    return;"
        yield "}"
    elif returned == "void":
        yield f"{call};"
    elif returned == "text":
        yield f"let data = {call};"
        length = "length" if f.text_length else \
            "if data.is_null() { 0 } else { core::ffi::CStr::from_ptr(data).to_bytes().len() }"
        yield f"c.give_text(data as *const u8, {length});"
    elif returned == "memory":
        yield f"let data = {call};"
        yield f"c.give_memory(data as *const u8, {local(f.arguments[0])} as *const epl_sys::epl_tensor);"
    elif returned == "handle":
        yield f"let made = {call};"
        yield "c.give_handle(made as *const c_void);"
    else:
        yield f"let value = {call};"
        yield give_scalar(returned, "value")


def function(f):
    yield ""
    yield f"unsafe fn run_{f.name}({'c' if f.arguments or str(f.returns) != 'void' else '_'}: &mut Call) {{"
    yield from ("    " + take(a) for a in script.taken(f))
    outs = script.given(f)
    yield from ("    " + place(a) for a in outs)
    if f.text_length:
        yield "    let mut length = 0usize;"
    if any(a.role == "handles" for a in outs):
        yield "    let count = c.targets_left();"
    yield from ("    " + line for line in called(f))
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
