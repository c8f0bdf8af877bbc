"""What tests are built with: a line for each function and each struct, for tests that try them all; a program that
prints where a compiler puts the fields of structs; and a library of the interface alone, for tools that compare."""


def function_lines(interface):
    for f in interface.functions:
        yield f"EPL_{'FALLIBLE' if f.checked else 'OTHER'}({f.name})"


def layout_program(interface):
    yield "#include <epl.h>"
    yield "#include <stddef.h>"
    yield "#include <stdio.h>"
    yield ""
    yield "int main(void) {"
    for struct in interface.structs:
        yield f'  printf("{struct.name} of %d bytes\\n", (int)sizeof({struct.name}));'
        for field in struct.fields:
            yield f'  printf("  %d %s\\n", (int)offsetof({struct.name}, {field.name}), "{field.name}");'
    yield "  return 0;"
    yield "}"


def empty_library(interface):
    """Every function with an empty body: compiled with debug information, it has the interface and nothing else."""
    yield "#include <epl.h>"
    for f in interface.functions:
        arguments = ", ".join(f"{a.type} {a.name}" for a in f.arguments) or "void"
        yield ""
        yield f"{f.returns} {f.name}({arguments}) {{"
        yield from (f"  (void){a.name};" for a in f.arguments)
        if str(f.returns) != "void":
            yield "  return 0;"
        yield "}"


def outputs(interface):
    yield "epl_functions.inc", function_lines(interface)
    yield "epl_structs.inc", (f"EPL_STRUCT({struct.name})" for struct in interface.structs if struct.sized)
    yield "epl_layout.c", layout_program(interface)
    yield "epl_empty.c", empty_library(interface)
