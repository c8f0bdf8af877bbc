"""What the declarations of include/epl.h must say for a generator: gives each argument and field its role, each struct
its layout, each function its object. What is not said is an error of the line."""
import re

SIZES = {"int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8, "size_t": 8, "double": 8, "float": 4}
SCALARS = set(SIZES)
# What a name of a function ends in that makes a handle, which then need not be marked EPL_OWNED.
MAKERS = re.compile(r"_(create\w*|load\w*|open\w*|parse\w*|of_\w+)$")


class Rules:
    def __init__(self, interface, error):
        self.interface, self.error = interface, error
        self.handles = set(interface.handles)
        self.structs = {s.name: s for s in interface.structs}
        self.callbacks = {c.name for c in interface.callbacks}

    # --- Arguments

    def argument(self, a, where, in_callback):
        """Sets the role of an argument, or says why it has none."""
        base, depth, const = a.type.base, a.type.depth, a.type.const
        wrong = lambda why: self.error(a.line, f"{a.name} of {where}: {why}")
        known = base in SCALARS or base in self.handles or base in self.structs or base in self.callbacks or \
            base in ("char", "void")
        if not known:
            raise wrong(f"the type {base} is not known")
        if depth == 0:
            if base in self.handles or base in self.structs or base in ("char", "void"):
                raise wrong(f"{base} goes by pointer")
            if a.role != "scalar" or a.out or a.owned or a.kept:
                raise wrong("a value has no annotation of a pointer")
            a.role = "callback" if base in self.callbacks else "scalar"
        elif base == "char":
            if a.role != "text" or not const or depth != 1 or a.out:
                raise wrong("a text is `const char* EPL_TEXT(length)`")
        elif base == "void":
            self.memory(a, wrong, in_callback)
        elif base in self.structs:
            if depth != 1 or a.role not in ("scalar", "array") or const == a.out:
                raise wrong("a struct is `const T*`, or `T* EPL_OUT`")
            if a.role == "scalar" and not self.structs[base].sized:
                raise wrong(f"{base} has no struct_size, so it goes in arrays, EPL_COUNT(n)")
            a.role = "structs" if a.role == "array" else "struct"
        elif base in self.handles:
            self.handle(a, wrong, where)
        elif base in SCALARS:
            if depth != 1 or const == a.out:
                raise wrong("numbers are `const T* EPL_COUNT(n)`, or `T* EPL_OUT`")
            if a.role not in ("array", "scalar") or (a.role == "scalar" and const):
                raise wrong("how many numbers these are, EPL_COUNT(n), is not said")
        else:
            raise wrong("a pointer to a callback")

    def memory(self, a, wrong, in_callback):
        if a.type.depth == 1 and a.role == "bytes":
            if a.type.const and a.out:
                raise wrong("what is written cannot be const")
        elif a.type.depth == 1 and a.role == "scalar" and not a.out:
            if a.type.const:
                raise wrong("how many bytes these are, EPL_BYTES(n), is not said")
            a.role = "userdata" if a.name.endswith("userdata") else "pointer"
        elif a.type.depth == 2 and a.role == "scalar" and a.out:
            a.role = "pointer"
        else:
            raise wrong("memory is `void* EPL_BYTES(n)`, a pointer that is given out `void** EPL_OUT`")

    def handle(self, a, wrong, where):
        many = a.role == "array"
        if a.role not in ("array", "scalar"):
            raise wrong("a handle is neither text nor bytes")
        if a.out:
            if a.type.depth != 2:
                raise wrong("a handle that is given out is `T** EPL_OUT`")
            if a.type.const and a.owned:
                raise wrong("what is owned cannot be const")
            if not a.type.const and not a.owned and MAKERS.search(where):
                a.owned = True
            if not a.type.const and not a.owned:
                raise wrong("is it EPL_OWNED, or, as `const T**`, borrowed?")
        elif a.type.depth != (2 if many else 1):
            raise wrong("handles are `const T* const* EPL_COUNT(n)`, one is `T*`")
        a.role = "handles" if many else "handle"

    def arguments(self, arguments, where, in_callback):
        for a in arguments:
            self.argument(a, where, in_callback)
        by_name = {a.name: a for a in arguments}
        if len(by_name) != len(arguments):
            raise self.error(arguments[0].line, f"two arguments of {where} have one name")
        for a in arguments:
            if not a.length:
                continue
            count = by_name.get(a.length)
            if count is None or count.role not in ("scalar", "length") or count.type.depth != 0:
                raise self.error(a.line, f"{a.name} of {where}: {a.length} is no number among its arguments")
            if count.counts and not in_callback:
                raise self.error(a.line, f"{a.length} of {where} counts {count.counts} already")
            count.role, count.counts = "length", count.counts or a.name
        if in_callback:
            return
        for a, before in zip(arguments, [None] + arguments):
            if a.role == "scalar" and a.type.base == "size_t" and not a.out:
                raise self.error(a.line, f"{a.name} of {where} counts nothing: what has EPL_TEXT, EPL_BYTES or "
                                         f"EPL_COUNT({a.name})? Other numbers are int64_t")
            if a.role == "userdata" and not any(b.role == "callback" for b in arguments):
                raise self.error(a.line, f"{a.name} of {where} belongs to no callback")

    # --- Functions

    def function(self, f):
        wrong = lambda why: self.error(f.line, f"{f.name}: {why}")
        if f.since is None:
            raise wrong("EPL_SINCE is missing")
        if not f.name.startswith("epl_"):
            raise wrong("names begin with epl_")
        self.arguments(f.arguments, f.name, False)
        f.experimental = f.name.startswith("epl_x_")
        plain = f.name.replace("epl_x_", "epl_", 1)
        owners = [h for h in self.handles if plain.startswith(h + "_")]
        f.object = max(owners, key=len, default="")
        f.method = plain[len(f.object) + 1:] if f.object else plain.removeprefix("epl_")
        error = f.returns.base == "epl_error" and f.returns.depth == 1
        if f.checked and not error:
            raise wrong("EPL_CHECKED is for what gives an epl_error*")
        if error and not f.checked and f.object != "epl_error":
            raise wrong("an error that is given must be looked at: EPL_CHECKED")
        if f.returns.base in self.structs or (f.returns.base in self.handles and f.returns.depth != 1):
            raise wrong("a struct goes out by pointer")
        if f.returns.base in self.handles and not error and not f.returns.const:
            raise wrong("a new handle goes out by an EPL_OUT argument")
        calls = [a for a in f.arguments if a.type.base == "epl_call_options" and not a.out]
        if f.blocking != bool(calls):
            raise wrong("what is EPL_BLOCKING takes epl_call_options, and nothing else does")
        if f.blocking and (f.quick or not f.checked):
            raise wrong("a call that blocks is not EPL_QUICK, and is EPL_CHECKED")
        if f.signal_safe and not f.quick:
            raise wrong("only what is EPL_QUICK can be EPL_SIGNAL_SAFE")
        if f.thread == "one" and not (f.arguments and f.arguments[0].role == "handle"):
            raise wrong("EPL_ONE_CALLER is about the first argument, a handle")
        if f.is_destroy and not (len(f.arguments) == 1 and f.arguments[0].nullable and f.thread == "any"):
            raise wrong("a _destroy function takes its handle, EPL_NULLABLE, and is EPL_ANY_THREAD")
        for a in f.arguments:
            if a.role == "struct" and a.type.base.endswith("_options") and not a.out and not a.nullable and \
                    not f.arguments[-1] is a:
                raise wrong(f"{a.name}: NULL means all defaults, so options are EPL_NULLABLE")

    # --- Structs

    def struct(self, s):
        fields = s.fields
        wrong = lambda field, why: self.error(field.line, f"{field.name} of {s.name}: {why}")
        if any(f.name == "struct_size" for f in fields[1:]) or (s.sized and str(fields[0].type) != "uint64_t"):
            raise wrong(fields[0], "uint64_t struct_size is the first field")
        by_name = {f.name: f for f in fields}
        offset = 0
        for f in fields:
            base, depth = f.type.base, f.type.depth
            if depth == 0 and base in SCALARS and base != "size_t":
                size = SIZES[base]
            elif depth == 0 and base in self.callbacks:
                size, f.role = 8, "callback"
            elif depth == 1 and base == "char" and f.type.const:
                size, f.role = 8, "text"
                length = by_name.get(f.name + "_length")
                if length is None or str(length.type) != "uint64_t":
                    raise wrong(f, f"a text has its length beside it, `uint64_t {f.name}_length`")
                f.partner, length.partner, length.role = length.name, f.name, "length"
            elif depth == 1 and base in self.handles:
                size, f.role = 8, "handle"
            elif depth == 1 and base == "void" and f.name.endswith("userdata"):
                size, f.role = 8, "userdata"
            elif depth == 1 and (base in SCALARS or base == "void"):
                size, f.role = 8, "pointer"
            else:
                raise wrong(f, f"{f.type} cannot be a field; int32_t, int64_t, uint64_t, double, texts with their "
                               "length, handles, callbacks and userdata can")
            offset = (offset + size - 1) // size * size
            f.offset = offset
            count = 1
            if f.array:
                constant = next((c for c in self.interface.constants if c.name == f.array), None)
                if constant is None:
                    raise wrong(f, f"{f.array} is no constant")
                count = constant.value
            offset += size * count
        s.size = (offset + 7) // 8 * 8
        self.userdata(s, wrong)

    def userdata(self, s, wrong):
        """Each callback goes with the next userdata behind it; `NAME_destroy` with `NAME_userdata`."""
        waiting = []
        names = {f.name for f in s.fields if f.role == "userdata"}
        for f in s.fields:
            if f.role == "callback" and f.type.base == "epl_destroy_fn" and f.name.endswith("destroy"):
                f.role, f.partner = "destroy", f.name.removesuffix("destroy") + "userdata"
                if f.partner not in names:
                    raise wrong(f, f"it destroys {f.partner}, which is not there")
            elif f.role == "callback":
                waiting.append(f)
            elif f.role == "userdata":
                if not waiting:
                    raise wrong(f, "it stands behind no callback")
                for callback in waiting:
                    callback.partner = f.name
                waiting = []
        if waiting:
            raise wrong(waiting[0], "a callback has its userdata behind it")

    def init(self, s, inits):
        name = s.name.upper() + "_INIT"
        if not s.sized:  # it never grows, and whoever makes one fills it
            if name in inits or any(f.role in ("callback", "userdata", "destroy") for f in s.fields):
                raise self.error(s.fields[0].line, f"{s.name} has no struct_size, so it has neither INIT nor callbacks")
            return
        line, value = inits.pop(name, (0, ""))
        values = [v.strip() for v in re.sub(r"\{[0, ]*\}(?=\}| *,)", "0", value).strip("{}").split(",")]
        want = len(s.fields)
        if values[0] != f"sizeof({s.name})" or len(values) != want or set(values[1:]) - {"0", "NULL"}:
            raise self.error(line or s.fields[0].line,
                             f"{name} should be sizeof({s.name}) and {want - 1} zeros, one for each field")
        if not any(f.name == s.name + "_init" and f.is_init for f in self.interface.functions):
            raise self.error(s.fields[0].line, f"{s.name} has no function {s.name}_init")


def check(interface, inits, error):
    rules = Rules(interface, error)
    for c in interface.callbacks:
        rules.arguments(c.arguments, c.name, True)
    for f in interface.functions:
        rules.function(f)
    for s in interface.structs:
        rules.struct(s)
        rules.init(s, inits)
    for name, (line, _) in inits.items():
        raise error(line, f"{name} belongs to no struct")
    names = [f.name for f in interface.functions]
    for f in interface.functions:
        if names.count(f.name) > 1:
            raise error(f.line, f"{f.name} is declared twice")
    for handle in interface.handles:
        if handle + "_destroy" not in names:
            raise error(1, f"{handle} has no {handle}_destroy")
