"""Builds a tester and runs the scripts with it: run.py LANGUAGE LIBRARY OUT [--random COUNT] [--seed SEED] [--record]

LANGUAGE is c, cpp, go, rust, java or python; LIBRARY is libepl.so, OUT a folder for what is made. What each script of
this folder prints must be its NAME.out, with no handle alive at its end; together they call every function and see
every code of an error. What random scripts print must be what the tester in C prints for them. A toolchain that is not
there is a line that begins with SKIP. --record writes the .out files anew."""
import argparse
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import random_script

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


class Skip(Exception):
    pass


def command(*words, **options):
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}")
    return done.stdout


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise Skip(f"{program} is not installed")


def linked(library):
    return [f"-L{library.parent}", "-lepl", "-lm", "-lpthread", f"-Wl,-rpath,{library.parent}"]


def compiler(name, variable):
    found = os.environ.get(variable, name)
    need(found)
    return found


def interpreter(out):
    """What C and C++ have in common."""
    cc, objects = compiler("cc", "CC"), []
    for name in ("tester", "callbacks"):
        objects.append(out / f"{name}.o")
        command(cc, "-c", "-std=c11", "-D_GNU_SOURCE", "-O1", *WARNINGS, HERE / f"c/{name}.c", "-o", objects[-1],
                f"-I{TOP}/include")
    return objects


def build_c(library, out, made):
    command(compiler("cc", "CC"), "-std=c11", "-O1", *WARNINGS, made / "dispatch.c", *interpreter(out), "-o",
            out / "tester_c",
            f"-I{TOP}/include", f"-I{HERE}/c", *linked(library))
    return [out / "tester_c"]


def build_cpp(library, out, made):
    command(compiler("c++", "CXX"), "-std=c++20", "-O0", *WARNINGS, made / "dispatch.cc", *interpreter(out), "-o",
            out / "tester_cpp", f"-I{TOP}/include", f"-I{HERE}/c", *linked(library))
    return [out / "tester_cpp"]


def build_go(library, out, made):
    need("go")
    minor = re.match(r"go1\.(\d+)", command("go", "env", "GOVERSION"))
    if not minor or int(minor[1]) < 24:
        raise Skip("go is older than 1.24")
    # The raw layer is internal: the tester is built inside a copy of its module.
    module = out / "module"
    shutil.rmtree(module, ignore_errors=True)
    shutil.copytree(TOP / "bindings/go", module)
    tester = module / "internal/conformance"
    shutil.copytree(HERE / "go", tester)
    shutil.copy(made / "functions.go", tester)
    environment = {**os.environ, "GOCACHE": str(out / "cache"), "GOPATH": str(out / "path"), "GOPROXY": "off",
                   "GOTOOLCHAIN": "local", "CGO_ENABLED": "1", "GOFLAGS": "-tags=epl_flags",
                   "CGO_CFLAGS": f"-I{TOP}/include", "CGO_LDFLAGS": " ".join(linked(library))}
    command("go", "vet", "./internal/conformance", cwd=module, env=environment)
    command("go", "build", "-o", out / "tester_go", "./internal/conformance", cwd=module, env=environment)
    return [out / "tester_go", made / "interface.table"]


def build_rust(library, out, made):
    need("rustc")
    command("rustc", "--edition=2021", "--crate-type=rlib", "--crate-name=epl_sys", "-o", out / "libepl_sys.rlib",
            TOP / "bindings/rust/epl-sys/src/lib.rs")
    command("rustc", "--edition=2021", "-Dwarnings", "--crate-name=tester_rust", HERE / "rust/main.rs", "-o",
            out / "tester_rust", "--extern", f"epl_sys={out / 'libepl_sys.rlib'}", f"-Lnative={library.parent}",
            "-lepl", f"-Clink-arg=-Wl,-rpath,{library.parent}",
            env={**os.environ, "EPL_DISPATCH": str(made / "dispatch.rs")})
    return [out / "tester_rust"]


JAVA = TOP / "bindings/java"


def jdk():
    need("javac", "java")
    return pathlib.Path(shutil.which("javac")).resolve().parents[1]


def build_java(library, out, made):
    home = jdk()
    if not (home / "include/jni.h").exists():
        raise Skip(f"{home} has no jni.h; a JDK has")
    native = out / "libepl_jni.so"
    command(compiler("cc", "CC"), "-std=c11", "-O1", "-shared", "-fPIC", "-o", native,
            JAVA / "src/main/native/epl_jni.c", f"-I{TOP}/include", f"-I{home}/include", f"-I{home}/include/linux",
            *linked(library))
    command(home / "bin/javac", "-nowarn", "-d", out, JAVA / "src/main/java/ai/epl/raw/Raw.java",
            *sorted((HERE / "java").glob("*.java")))
    return [home / "bin/java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp", out, "Tester",
            native, made / "interface.table"]


def build_python(library, out, made):
    return [sys.executable, HERE / "python/tester.py", TOP / "bindings/python/epl", library, made / "interface.table"]


def prepared(language, library, out):
    """The command that runs a script."""
    out.mkdir(parents=True, exist_ok=True)
    command(sys.executable, TOP / "cmake/interface", out)
    return globals()[f"build_{language}"](library, out, out / "conformance")


def printed(tester, script, out):
    """What a tester prints, in a folder of its own: files have names without a path."""
    folder = out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    done = subprocess.run([str(w) for w in tester] + [str(script)], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120)
    text = done.stdout.decode()
    if done.returncode != 0:
        text += f"ended with {done.returncode}\n{done.stderr.decode(errors='replace')}"
    return text


def differences(name, wanted, have):
    lines = difflib.unified_diff(wanted.splitlines(), have.splitlines(), f"{name}, wanted", f"{name}, printed",
                                 n=2, lineterm="")
    return "\n".join(lines)


# The words of C, which users of other languages do not have, and those of what the library is made of.
WORDS_OF_C = r"\b(epl_\w+|EPL_\w+|NULL|nullptr|sizeof|struct_size|handles?|pointers?|pbf|exception)\b"


def words_of_c(name, text):
    """Messages that have some."""
    messages = re.findall(r' error \d+ [a-z/ ]+ ("(?:\\.|[^"\\])*")', text)
    return [f"{name}: a word of C: {message}" for message in messages if re.search(WORDS_OF_C, message)], len(messages)


def missing(scripts, table):
    """Functions that no script calls, and codes of errors that no call gives."""
    lines = [line.split() for line in table.read_text().splitlines()]
    called, seen = set(), set()
    for script in scripts:
        called |= set(re.findall(r"^(?:~ )?(epl_\w+)", script.read_text(), re.MULTILINE))
        recorded = script.with_suffix(".out")
        if recorded.exists():
            seen |= set(re.findall(r" error (\d+) ", recorded.read_text()))
    return [f"{name} is in no script" for kind, name, *_ in lines if kind == "function" and name not in called] + \
        [f"no call gives {name}" for kind, name, *rest in lines
         if kind == "constant" and name.startswith("EPL_ERROR_") and rest[0] not in seen]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("language", choices=["c", "cpp", "go", "rust", "java", "python"])
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    library, out = options.library.resolve(), options.out.resolve() / options.language
    try:
        tester = prepared(options.language, library, out)
        reference = prepared("c", library, out) if options.random else None
    except Skip as reason:
        print(f"SKIP: {reason}")
        return 0
    scripts = sorted(HERE.glob("*.script"))
    failures, messages = [], 0
    for script in scripts:
        have = printed(tester, script, out)
        found, count = words_of_c(script.name, have)
        failures += found
        messages += count
        recorded = script.with_suffix(".out")
        if options.record:
            recorded.write_text(have)
        if not have.endswith("epl_live_handles: 0\n"):
            failures.append(f"{script.name} does not end with no handle alive")
        difference = differences(script.name, recorded.read_text() if recorded.exists() else "", have)
        if difference:
            failures.append(difference)
    if messages < 100:
        failures.append(f"only {messages} messages were looked at")
    failures += missing(scripts, out / "conformance/interface.table")
    for seed in range(options.seed, options.seed + options.random):
        script = out / f"{seed}.script"
        script.write_text(random_script.text(out / "conformance/interface.table", seed))
        wanted, have = printed(reference, script, out), printed(tester, script, out)
        difference = differences(f"random script {seed}", wanted, have)
        found, _ = words_of_c(f"random script {seed}", have)
        failures += found
        if difference:
            failures.append(difference)
        elif not have.endswith("epl_live_handles: 0\n"):
            failures.append(f"random script {seed}: {have[-500:]}")
        else:
            script.unlink()
    print(f"{options.language}: {len(scripts)} scripts, {options.random} random ones")
    print("\n".join(failures), end="")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
