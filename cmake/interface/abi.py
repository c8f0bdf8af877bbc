"""core/capi/epl.abi, the listing of the interface, and core/capi/epl.layout, where the fields of structs lie. What the
library exports comes from the first; both are what a released interface is compared with."""
import re

# What is said of functions and arguments besides their types and who owns what: it may get more precise.
NOTES = re.compile(r"EPL_(?:(?:ANY_THREAD|ONE_CALLER|QUICK|SIGNAL_SAFE|BLOCKING|CHECKED|KEPT) |"
                   r"(?:TEXT|BYTES|COUNT)\(\w+\) )")


def listing(interface):
    # Releases differ in their version, interfaces do not.
    for constant in interface.constants:
        if not constant.name.startswith("EPL_VERSION_"):
            yield f"constant {constant.name} = {constant.value}"
    for struct in interface.structs:
        yield f"struct {struct.name} {{"
        for field in struct.fields:
            yield f"  {field.type} {field.name}" + (f"[{field.array}]" if field.array else "")
        yield "}"
    yield from ("callback " + NOTES.sub("", callback.declaration) for callback in interface.callbacks)
    yield from (f"{f.since[0]}.{f.since[1]} {NOTES.sub('', f.declaration)}" for f in interface.functions)


def layout(interface):
    for struct in interface.structs:
        yield f"{struct.name} of {struct.size} bytes"
        yield from (f"  {field.offset} {field.name}" for field in struct.fields)


def outputs(interface):
    yield "core/capi/epl.abi", listing(interface)
    yield "core/capi/epl.layout", layout(interface)
