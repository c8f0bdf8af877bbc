"""docs/api.md: every function by its object, structs with their fields, constants."""
from model import short


def anchor(title):
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def prose(comment):
    """A comment as Markdown: what is set in columns stays so, and what looks like a mark is none."""
    lines, code = [], False
    for line in comment.split("\n"):
        if line.startswith("  ") != code:
            code = not code
            lines += ["```"] if not code else ["", "```text"]
            if not code:
                lines.append("")
        lines.append(line[2:] if code else line.replace("<", "\\<").replace("*", "\\*"))
    return lines + (["```"] if code else [])


def declaration(f):
    """The declaration without annotations, which the facts below it tell in words."""
    arguments = ", ".join(f"{a.type} {a.name}" for a in f.arguments) or "void"
    line = f"{f.returns} {f.name}({arguments});"
    if len(line) <= 100:
        return [line]
    lines, now = [], f"{f.returns} {f.name}("
    for i, a in enumerate(f.arguments):
        part = f"{a.type} {a.name}" + (", " if i + 1 < len(f.arguments) else ");")
        if len(now) + len(part) > 100:
            lines.append(now.rstrip())
            now = "    "
        now += part
    return lines + [now]


def facts(f):
    words = ["any thread" if f.thread == "any" else "one caller at a time"]
    if f.quick:
        words.append("returns at once")
    if f.signal_safe:
        words.append("may be called by a signal handler")
    if f.blocking:
        words.append("may take long: deadline and cancel token in `call`")
    if f.checked:
        words.append("gives an error, NULL for success")
    if f.experimental:
        words.append("an experiment, outside the promise")
    yield f"*{'; '.join(words)}; since {f.since[0]}.{f.since[1]}*"
    for a in f.arguments:
        words = []
        if a.length:
            kind = {"text": "UTF-8 of `{}` bytes", "bytes": "memory of `{}` bytes"}.get(a.role, "`{}` of them")
            words.append(kind.format(a.length))
        if a.out and a.type.const and a.role in ("handle", "handles"):
            words.append("written, borrowed")
        elif a.out:
            words.append("written" + (", yours to destroy" if a.owned and a.role in ("handle", "handles") else
                                      ", yours to give back" if a.owned else ""))
        if a.kept:
            words.append("used after the call too")
        if a.nullable:
            words.append("may be NULL")
        if words and not (a.role == "struct" and a.nullable and not a.out):
            yield f"- `{a.name}`: {', '.join(words)}"


def function(f):
    yield ""
    yield f"### `{f.name}`"
    yield ""
    yield "```c"
    yield from declaration(f)
    yield "```"
    yield ""
    if f.comment:
        yield from prose(f.comment)
        yield ""
    head, *arguments = facts(f)
    yield head
    if arguments:
        yield ""
        yield from arguments


def table(rows, head):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|").replace("<", "\\<") for cell in row) + " |"


def section(interface, title):
    yield ""
    yield f"## {title}"
    if interface.sections[title]:
        yield ""
        yield from prose(interface.sections[title])
    constants = [c for c in interface.constants if c.section == title]
    if constants:
        yield ""
        yield from table([(f"`{c.name}`", str(c.value), c.comment) for c in constants], ("constant", "value", ""))
    for callback in (c for c in interface.callbacks if c.section == title):
        yield ""
        yield f"### `{callback.name}`"
        yield ""
        yield "```c"
        of = ", ".join(f"{a.type} {a.name}" for a in callback.arguments)
        yield f"typedef {callback.returns} (*{callback.name})({of});"
        yield "```"
        if callback.comment:
            yield ""
            yield from prose(callback.comment)
    for struct in (s for s in interface.structs if s.section == title):
        yield ""
        yield f"### `{struct.name}`"
        yield ""
        if struct.comment:
            yield from prose(struct.comment)
            yield ""
        rows = [(f"`{f.name}" + (f"[{f.array}]`" if f.array else "`"), f"`{f.type}`", f.comment)
                for f in struct.fields]
        yield from table(rows, ("field", "type", ""))
        if struct.sized:
            yield ""
            yield f"All defaults: `{struct.name.upper()}_INIT`, or `{struct.name}_init`."
    for f in interface.functions:
        if f.section == title and not f.is_init:
            yield from function(f)


def lines(interface):
    yield "# The C API"
    yield ""
    yield "Generated from `include/epl.h` by `cmake/interface`; what is said here is what stands there."
    yield ""
    intro, *_ = interface.comment.split("Annotations are read by")
    yield from intro.strip().split("\n")
    yield ""
    yield "| object | functions |"
    yield "|---|---|"
    for title in interface.sections:
        names = [f for f in interface.functions if f.section == title and not f.is_init]
        if names:
            links = ", ".join(f"[{short(f.name)}](#{anchor(f.name)})" for f in names)
            yield f"| [{title}](#{anchor(title)}) | {links} |"
    for title in interface.sections:
        if any(x.section == title for x in interface.functions + interface.structs + interface.constants):
            yield from section(interface, title)


def outputs(interface):
    yield "docs/api.md", lines(interface)
