"""What include/epl.h says, as objects: what every output is written from. header.py makes them."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Type:
    """`const epl_tensor* const*` is base "epl_tensor", const, with the pointers ("const", "")."""
    base: str
    const: bool = False
    pointers: tuple = ()

    def __str__(self):
        stars = "".join("*" + (" const" if const and i + 1 < len(self.pointers) else "")
                        for i, const in enumerate(self.pointers))
        return ("const " if self.const else "") + self.base + stars

    @property
    def depth(self):
        return len(self.pointers)


@dataclasses.dataclass
class Constant:
    name: str
    value: int
    comment: str
    section: str


@dataclasses.dataclass
class Field:
    name: str
    type: Type
    comment: str
    line: int
    array: str = ""      # the constant that says how many
    # scalar, text, length, handle, callback, userdata, destroy (of a userdata)
    role: str = "scalar"
    partner: str = ""    # a text's length, a length's text, the userdata of a callback or of its destructor
    offset: int = 0


@dataclasses.dataclass
class Struct:
    name: str
    fields: list
    comment: str
    section: str
    size: int = 0

    @property
    def sized(self):
        """Whether it may grow. Those that do not are elements of arrays."""
        return self.fields[0].name == "struct_size"

    def groups(self):
        """Callbacks that share a userdata: userdata -> (callbacks, destructor or None)."""
        found = {field.name: ([], None) for field in self.fields if field.role == "userdata"}
        for field in self.fields:
            callbacks, destructor = found.get(field.partner, ([], None))
            if field.role == "callback":
                callbacks.append(field)
            elif field.role == "destroy":
                found[field.partner] = (callbacks, field)
        return found


@dataclasses.dataclass
class Argument:
    name: str
    type: Type
    line: int
    out: bool = False
    owned: bool = False
    nullable: bool = False
    kept: bool = False
    # scalar, length, handle, handles, struct, structs, text, bytes, array, callback, userdata, pointer
    role: str = "scalar"
    length: str = ""     # the argument that counts this one
    counts: str = ""     # the argument that this one counts

    def annotations(self):
        words = []
        if self.length:
            kind = {"text": "TEXT", "bytes": "BYTES"}.get(self.role, "COUNT")
            words.append(f"EPL_{kind}({self.length})")
        return words + [f"EPL_{word.upper()}" for word in ("kept", "out", "owned", "nullable") if getattr(self, word)]


@dataclasses.dataclass
class Callback:
    name: str
    returns: Type
    arguments: list
    comment: str
    section: str
    declaration: str


@dataclasses.dataclass
class Function:
    name: str
    returns: Type
    arguments: list
    comment: str
    section: str
    declaration: str     # as the header has it, on one line
    since: tuple
    thread: str          # any or one
    quick: bool
    blocking: bool
    signal_safe: bool
    checked: bool
    line: int
    object: str = ""     # the handle whose name the function's begins with: epl_session, or empty
    method: str = ""     # the rest of the name: step
    experimental: bool = False

    @property
    def is_init(self):
        """Of a struct: epl_metrics_init."""
        return self.name.endswith("_init") and len(self.arguments) == 1 and self.arguments[0].role == "struct"

    @property
    def is_destroy(self):
        return bool(self.object) and self.method == "destroy"

    @property
    def makes(self):
        """Whether it gives a new handle of the object that it is named after."""
        return any(a.out and a.role == "handle" and a.owned and a.type.base == self.object for a in self.arguments)

    @property
    def outs(self):
        return [a for a in self.arguments if a.out]

    @property
    def text_length(self):
        """Of a function that returns a text: the argument that gets its length, or None where a zero ends it."""
        outs = [a for a in self.arguments if a.out and a.type.base == "size_t"]
        return outs[0] if str(self.returns) == "const char*" and outs else None

    @property
    def results(self):
        """The arguments that a language which returns several values returns."""
        return [a for a in self.arguments if a.out and a.role in ("scalar", "handle", "pointer")
                and a is not self.text_length]

    @property
    def visible(self):
        """The arguments that a language with texts and arrays that know their length has."""
        return [a for a in self.arguments if a.role != "length" and a is not self.text_length]

    @property
    def parameters(self):
        """Those that are visible and not results."""
        return [a for a in self.visible if a not in self.results]


@dataclasses.dataclass
class Interface:
    constants: list
    handles: list        # names
    structs: list
    callbacks: list
    functions: list
    sections: dict       # what the header says of each, by their titles, in its order
    comment: str         # at the header's top
    handle_comments: dict = dataclasses.field(default_factory=dict)

    def struct(self, name):
        return next((s for s in self.structs if s.name == name), None)

    def callback(self, name):
        return next((c for c in self.callbacks if c.name == name), None)

    def constant(self, name):
        return next(c for c in self.constants if c.name == name)

    @property
    def version(self):
        parts = (self.constant("EPL_VERSION_" + part).value for part in ("MAJOR", "MINOR", "PATCH"))
        return ".".join(map(str, parts))


def camel(name, upper=True):
    """session_options -> SessionOptions, or sessionOptions."""
    words = name.split("_")
    return "".join(w[:1].upper() + w[1:] if upper or i else w for i, w in enumerate(words))


def short(name):
    """epl_session_options -> session_options."""
    return name.removeprefix("epl_")


def sentences(comment, width, first="", rest=None):
    """The comment in lines of at most `width`, each with a prefix. Lines that are set in columns stay as they are."""
    import textwrap
    rest = first if rest is None else rest
    lines, words = [], []

    def flush():
        if words:
            lines.extend(textwrap.wrap(" ".join(words), width - len(first), break_long_words=False,
                                       break_on_hyphens=False))
            words.clear()
    for line in comment.split("\n"):
        if not line.strip() or line.startswith("  "):
            flush()
            lines.append(line.rstrip())
        else:
            words.append(line.strip())
    flush()
    return [((first if i == 0 else rest) + line).rstrip() for i, line in enumerate(lines)]
