"""bindings/java/src/main/java/ai/epl/raw/Raw.java: a native method for each function of the C API, and a class for each
struct. java_jni.py writes what is behind them."""
import java_jni
from model import camel, sentences, short

FIELDS = {4: ("int", "Int"), 8: ("long", "Long")}


KEYWORDS = {"abstract", "assert", "boolean", "byte", "char", "class", "default", "final", "finally", "import", "interface",
            "native", "new", "package", "private", "protected", "public", "short", "super", "synchronized", "this", "throw",
            "throws", "transient", "try", "volatile"}


def word(name):
    name = camel(name, False)
    return name + "_" if name in KEYWORDS else name


def doc(text, indent):
    if not text:
        return
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("*/", "*&#47;").replace("@", "&#64;")
    yield indent + "/**"
    yield from sentences(safe, 112, indent + " * ")
    yield indent + " */"


def java_type(a):
    """Of a parameter of a native method."""
    of = a.type
    if a.role == "text":
        return "byte[]"
    if a.role == "bytes":
        return "ByteBuffer"
    if a.role == "handles":
        return "long[]"
    if a.role == "array":
        return java_jni.scalar(of.base) + "[]"
    if a.role == "struct":
        return class_of(of.base)
    if a.role == "structs":
        return class_of(of.base) + "[]"
    if a.role == "callback":
        return interface_of(of.base)
    if a.role in ("handle", "pointer", "userdata"):
        return "long"
    return java_jni.scalar(of.base)


def class_of(struct):
    return camel(short(struct))


def interface_of(callback):
    return camel(short(callback))


def callback_method(c):
    returns, parameters = "void", []
    if c.returns.base != "epl_error" and str(c.returns) != "void":
        returns = "long" if c.returns.depth else java_jni.scalar(c.returns.base)
    for a in java_jni.callback_visible(c):
        of = java_jni.scalar(a.type.base) + "[]" if a.out and a.role == "scalar" else \
            "ByteBuffer" if a.role in ("struct", "structs") else java_type(a)
        parameters.append(f"{of} {word(a.name)}")
    throws = " throws Exception" if c.returns.base == "epl_error" else ""
    return f"{returns} {java_jni.method_of(c.name)}({', '.join(parameters)}){throws};"


def struct(s):
    name = class_of(s.name)
    yield ""
    yield from doc(f"{s.name}." + ("\n\n" + s.comment if s.comment else ""), "  ")
    yield f"  public static final class {name} extends Struct {{"
    yield f"    public static final int SIZE = {s.size};"
    yield ""
    yield f"    public {name}() {{"
    yield f"      super(SIZE, {'true' if s.sized else 'false'});"
    yield "    }"
    yield ""
    yield "    /** The struct of that number in memory that a callback was given. */"
    yield f"    public {name}(ByteBuffer structs, int index) {{"
    yield "      super(structs, index * SIZE, SIZE);"
    yield "    }"
    groups = s.groups()
    for field in s.fields[1 if s.sized else 0:]:
        method = word(field.name)
        if field.role in ("length", "callback", "destroy"):
            continue
        yield ""
        if field.role == "userdata":
            yield from group(s, name, field, *groups[field.name])
            continue
        yield from doc(field.comment, "    ")
        if field.role == "text":
            at = f"{field.offset}, {next(f for f in s.fields if f.name == field.partner).offset}"
            yield f"    public {name} {method}(byte[] utf8) {{"
            yield f"      setText({at}, utf8);"
            yield "      return this;"
            yield "    }"
            yield ""
            yield f"    public byte[] {method}() {{"
            yield f"      return text({at});"
            yield "    }"
            continue
        of, accessor = ("double", "Double") if field.type.base == "double" and not field.type.depth else \
            FIELDS[8 if field.type.depth else java_jni.size(field.type.base)]
        if field.array:
            step = java_jni.size(field.type.base)
            yield f"    public {of} {method}(int index) {{"
            yield f"      return memory.get{accessor}({field.offset} + {step} * index);"
            yield "    }"
            yield ""
            yield f"    public {name} {method}(int index, {of} value) {{"
            yield f"      memory.put{accessor}({field.offset} + {step} * index, value);"
            yield "      return this;"
            yield "    }"
            continue
        yield f"    public {of} {method}() {{"
        yield f"      return memory.get{accessor}({field.offset});"
        yield "    }"
        yield ""
        yield f"    public {name} {method}({of} value) {{"
        yield f"      memory.put{accessor}({field.offset}, value);"
        yield "      return this;"
        yield "    }"
    yield "  }"


def group(s, name, userdata, callbacks, destructor):
    """One object has all callbacks that share a userdata."""
    method = camel(userdata.name.removesuffix("userdata").rstrip("_") or "callbacks", False)
    yield from doc("\n\n".join(filter(None, (c.comment for c in callbacks))) +
                   ("" if len(callbacks) == 1 else " The object has those that it implements, the others are NULL.") +
                   " It is held until the library needs it no more, when it is told so if it is a DestroyFn too, or the call fails.", "    ")
    one = len(callbacks) == 1
    yield f"    public {name} {method}({interface_of(callbacks[0].type.base) if one else 'Object'} object) {{"
    for callback in callbacks:
        number = f"trampoline({java_jni.index_of(callback.type.base)})"
        value = number if one else f"object instanceof {interface_of(callback.type.base)} ? {number} : 0"
        yield f"      memory.putLong({callback.offset}, {value});"
    yield f"      memory.putLong({userdata.offset}, hold(object));"
    if destructor:
        yield f"      memory.putLong({destructor.offset}, trampoline(0));"
    yield "      return this;"
    yield "    }"


def native(f):
    returns, results = java_jni.returned(f)
    parameters = [f"{java_type(a)} {word(a.name)}" for a in java_jni.parameters(f)]
    parameters += [f"{java_jni.result_type(a)}[] {word(a.name)}" for a in results]
    yield ""
    yield from doc(f.comment, "  ")
    yield f"  public static native {returns} {f.name}({', '.join(parameters)});"


IMPORTS = ("java.nio.ByteBuffer", "java.nio.ByteOrder", "java.nio.charset.StandardCharsets", "java.util.ArrayList",
           "java.util.List")


def lines(interface):
    java_jni.prepare(interface)
    yield "// Generated by cmake/interface from include/epl.h; do not edit."
    yield "package ai.epl.raw;"
    yield ""
    yield from (f"import {name};" for name in IMPORTS)
    yield ""
    yield "/**"
    yield " * The C API of EPL, a native method for each function. Handles are longs, 0 for NULL. Texts are UTF-8 in byte[], null"
    yield " * for NULL; texts that come back are copied and destroyed. Memory is a direct ByteBuffer, all of it. Failures are"
    yield " * thrown. A call returns its only result; where it has several they go into arrays of one element."
    yield " */"
    yield "public final class Raw {"
    yield "  private Raw() {}"
    for constant in interface.constants:
        yield ""
        yield from doc(constant.comment, "  ")
        yield f"  public static final int {constant.name} = {constant.value};"
    yield from FAILURES.split("\n")
    yield from MEMORY.split("\n")
    yield from STRUCT.split("\n")
    for c in interface.callbacks:
        yield ""
        yield from doc(c.comment, "  ")
        yield f"  public interface {interface_of(c.name)} {{"
        yield "    " + callback_method(c)
        yield "  }"
    for s in interface.structs:
        yield from struct(s)
    for f in interface.functions:
        if not f.is_init:
            yield from native(f)
    yield "}"


FAILURES = '''
  /** What makes exceptions of errors, and errors of exceptions that callbacks throw. */
  public interface Failures {
    RuntimeException make(int code, byte[] message, byte[] where, long rank, boolean retryable);

    int codeOf(Throwable thrown);

    byte[] messageOf(Throwable thrown);
  }

  /** What is thrown where nobody has set {@link #failures}. */
  public static final class RawException extends RuntimeException {
    private static final long serialVersionUID = 1;
    public final int code;

    RawException(int code, String message) {
      super(message);
      this.code = code;
    }
  }

  public static volatile Failures failures = new Failures() {
    @Override
    public RuntimeException make(int code, byte[] message, byte[] where, long rank, boolean retryable) {
      return new RawException(code, new String(message, StandardCharsets.UTF_8));
    }

    @Override
    public int codeOf(Throwable thrown) {
      return thrown instanceof RawException ? ((RawException) thrown).code : EPL_ERROR_INTERNAL;
    }

    @Override
    public byte[] messageOf(Throwable thrown) {
      return String.valueOf(thrown.getMessage()).getBytes(StandardCharsets.UTF_8);
    }
  };

  // Called by the native side.
  static RuntimeException exception(int code, byte[] message, byte[] where, long rank, boolean retryable) {
    return failures.make(code, message, where, rank, retryable);
  }

  static int codeOf(Throwable thrown) {
    return failures.codeOf(thrown);
  }

  static byte[] messageOf(Throwable thrown) {
    return failures.messageOf(thrown);
  }

  /** The library is done with the object of some callbacks: one that is a {@link DestroyFn} is told. */
  static void dropped(Object object) {
    if (object instanceof DestroyFn) {
      ((DestroyFn) object).destroy();
    }
  }'''

MEMORY = '''
  /** Loads the native side of this class, libepl_jni.so. */
  public static void load(String path) {
    System.load(path);
  }

  /** Where a direct buffer begins; 0 for another one. */
  public static native long address(ByteBuffer buffer);

  /** Memory as a direct buffer, in the native order of bytes by {@link ByteBuffer#order}. It is not kept alive by it. */
  public static native ByteBuffer buffer(long address, long bytes);

  /** A global reference, which {@link #drop} gives back. */
  static native long hold(Object object);

  static native void drop(long held);

  /** The function of C that calls the interface of that number. */
  static native long trampoline(int index);'''

STRUCT = '''
  /** Memory with the layout of a struct of C; zero in a field is its default. */
  public abstract static class Struct {
    final ByteBuffer memory;
    final long address;
    // Texts that fields point to, which live as long as the struct.
    private final List<ByteBuffer> texts = new ArrayList<>();

    Struct(int size, boolean sized) {
      memory = ByteBuffer.allocateDirect(size).order(ByteOrder.nativeOrder());
      address = address(memory);
      if (sized) {
        memory.putLong(0, size);
      }
    }

    Struct(ByteBuffer structs, int at, int size) {
      memory = structs.slice(at, size).order(ByteOrder.nativeOrder());
      address = address(structs) + at;
    }

    void setText(int at, int lengthAt, byte[] utf8) {
      memory.putLong(at, 0).putLong(lengthAt, 0);
      if (utf8 == null) {
        return;
      }
      ByteBuffer text = ByteBuffer.allocateDirect(utf8.length + 1).put(utf8);
      texts.add(text);
      memory.putLong(at, address(text)).putLong(lengthAt, utf8.length);
    }

    byte[] text(int at, int lengthAt) {
      long from = memory.getLong(at);
      if (from == 0) {
        return null;
      }
      byte[] bytes = new byte[Math.toIntExact(memory.getLong(lengthAt))];
      if (bytes.length > 0) {
        buffer(from, bytes.length).get(bytes);
      }
      return bytes;
    }
  }'''


def outputs(interface):
    yield "bindings/java/src/main/java/ai/epl/raw/Raw.java", "\n".join(lines(interface)).split("\n")
    yield "bindings/java/src/main/native/epl_jni.c", java_jni.lines(interface)
