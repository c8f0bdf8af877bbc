"""Reads the interface out of include/epl.h, which is written for it: every function has its EPL_SINCE, every struct is
a typedef.

    python3 cmake/interface.py include/epl.h > core/capi/epl.abi
    python3 cmake/interface.py include/epl.h FOLDER

The first prints the listing of the whole interface. The library exports the functions of core/capi/epl.abi, and a test
holds that file against the header. The second writes into FOLDER what tests need: epl.abi; epl_functions.inc and
epl_structs.inc, a line for each function and struct, for tests that try them all; epl_layout.c, a program that prints
where the fields of structs lie.
"""
import pathlib
import re
import sys


# What is said of functions and arguments besides their types.
NOTES = re.compile(r"EPL_(?:(?:ANY_THREAD|ONE_CALLER|QUICK|SIGNAL_SAFE|BLOCKING|CHECKED|KEPT) |"
                   r"(?:TEXT|BYTES|COUNT)\(\w+\) )")


def name(declaration):
    return re.search(r"[ *](epl_\w+)\(", declaration).group(1)


class Interface:
    def __init__(self, header):
        text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
        # Releases differ in their version, interfaces do not.
        constants = re.findall(r"^#define (EPL_[A-Z0-9_]+) +(-?\d+)", text, re.MULTILINE)
        self.constants = [(name, value) for name, value in constants if not name.startswith("EPL_VERSION_")]
        flat = " ".join(text.split())
        # (name, its declarations)
        self.structs = [(name, [field.strip() for field in body.split(";") if field.strip()])
                        for name, body in re.findall(r"typedef struct (\w+) \{([^}]*)\}", flat)]
        self.callbacks = re.findall(r"typedef (\w+[ *]+\(\*[^;]*);", flat)
        # (first version, declaration)
        functions = re.findall(r"EPL_API EPL_SINCE\((\d+), (\d+)\) ([^;]*);", flat)
        self.fallible = {name(declaration) for _, _, declaration in functions if "EPL_CHECKED" in declaration}
        self.functions = [(f"{major}.{minor}", NOTES.sub("", declaration)) for major, minor, declaration in functions]

    def listing(self):
        yield from (f"constant {name} = {value}" for name, value in self.constants)
        for name, fields in self.structs:
            yield f"struct {name} {{"
            yield from ("  " + field for field in fields)
            yield "}"
        yield from ("callback " + callback for callback in self.callbacks)
        yield from (f"{since} {declaration}" for since, declaration in self.functions)

    def function_lines(self):
        for _, declaration in self.functions:
            function = name(declaration)
            kind = "FALLIBLE" if function in self.fallible else "OTHER"
            yield f"EPL_{kind}({function})"

    def struct_lines(self):
        return (f"EPL_STRUCT({name})" for name, _ in self.structs)

    def layout_program(self):
        yield "#include <epl.h>\n#include <stddef.h>\n#include <stdio.h>\n\nint main(void) {"
        for name, fields in self.structs:
            yield f'  printf("{name} of %d bytes\\n", (int)sizeof({name}));'
            for field in fields:
                # The last word, or the name inside the parentheses of a function's pointer.
                word = (re.search(r"\(\*(\w+)\)", field) or re.search(r"(\w+)(\[\w+\])?$", field)).group(1)
                yield f'  printf("  %d %s\\n", (int)offsetof({name}, {word}), "{word}");'
        yield "  return 0;\n}"


def main():
    interface = Interface(pathlib.Path(sys.argv[1]).read_text())
    if len(sys.argv) == 2:
        print("\n".join(interface.listing()))
        return
    folder = pathlib.Path(sys.argv[2])
    for name, lines in (("epl.abi", interface.listing()), ("epl_functions.inc", interface.function_lines()),
                        ("epl_structs.inc", interface.struct_lines()), ("epl_layout.c", interface.layout_program())):
        (folder / name).write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
