"""What a line of a script is about: what the dispatchers of tests/conformance and the table for the testers that call by
name have in common. A line has a function's arguments without those that it writes, the lengths, and the userdata of a
callback; tests/conformance/README.md says how they look."""
import dataclasses

# What no two runs, or no two machines, have in common.
HIDDEN = {("epl_metrics", "nanoseconds"), ("epl_device_info", "memory_bytes"), ("epl_job_event", "seconds"),
          ("epl_job_event", "seconds_left"), ("epl_job_event", "samples_per_second")}
# How a tester knows the type of a number in a struct.
KINDS = {"int32_t": "i", "int64_t": "I", "uint64_t": "u", "double": "d"}
FRACTIONS = ("double", "float")
# What a tester's function is called that takes an argument of a role from a line: take_bytes.
TAKEN_AS = {"text": "bytes", "bytes": "bytes", "array": "integers", "handles": "handles", "structs": "structs",
            "struct": "struct", "handle": "handle", "pointer": "handle", "callback": "hook"}


def main_callback(f):
    """The callback that a script names; the destructor behind it goes with it."""
    return next((a for a in f.arguments if a.role == "callback"), None)


def taken(f):
    """The arguments of a line, in its order."""
    callback = main_callback(f)
    return [a for a in f.arguments if not a.out and a.role not in ("length", "userdata")
            and (a.role != "callback" or a is callback)]


def taken_as(a):
    return TAKEN_AS.get(a.role) or ("number" if a.type.base in FRACTIONS else "integer")


def given(f):
    return [a for a in f.arguments if a.out and a is not f.text_length]


def returned(f):
    """What a call gives by itself: error, text, memory, handle, or a type of C."""
    if f.checked:
        return "error"
    if str(f.returns) == "const char*":
        return "text"
    if f.returns.depth:
        return "memory" if f.returns.base == "void" else "handle"
    return f.returns.base


def given_as(of):
    """What a tester's function is called that prints a number of a type: give_unsigned."""
    return "number" if of in FRACTIONS else "unsigned" if of[0] in "us" else "integer"


def group_name(userdata):
    return userdata.removesuffix("userdata").rstrip("_") or "callbacks"


def on(of):
    """The tester's function of a type of callbacks: epl_write_fn -> on_write."""
    return "on_" + of.base.removeprefix("epl_").removesuffix("_fn")


def structs(interface):
    """Those that are arguments."""
    of_functions = {a.type.base for f in interface.functions for a in f.arguments}
    return [s for s in interface.structs if s.name in of_functions]


@dataclasses.dataclass
class Field:
    """One that a script may name."""
    name: str      # in the script
    kind: str      # t(ext), h(andle), g(roup of callbacks), or one of KINDS
    at: str        # the field in the struct
    other: str     # that of a text's length or of a group's destructor; empty: none
    array: str     # the constant that says how many; empty: one
    hidden: bool


def fields(s):
    for f in s.fields[1 if s.sized else 0:]:
        hidden = (s.name, f.name) in HIDDEN
        if f.role == "text":
            yield Field(f.name, "t", f.name, f.partner, "", hidden)
        elif f.role == "handle":
            yield Field(f.name, "h", f.name, "", "", hidden)
        elif f.role == "userdata":
            _, destructor = s.groups()[f.name]
            yield Field(group_name(f.name), "g", f.name, destructor.name if destructor else "", "", hidden)
        elif f.role == "scalar":
            yield Field(f.name, KINDS[f.type.base], f.name, "", f.array, hidden)


def callbacks(s):
    """The group of each callback of a struct, and the field."""
    return [(group_name(f.partner), f) for f in s.fields if f.role == "callback"]
