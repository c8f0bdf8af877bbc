"""bindings/java/src/main/java22/ai/epl/raw/Raw.java: the class of java_raw.py over java.lang.foreign, without native
code of its own, for Java 22 and later."""
import java_jni
import java_raw
from java_jni import ARRAYS, hidden_destructor, index_of, owned_text, parameters, result_type, returned, scalar
from java_raw import class_of, interface_of, java_type, word

# Letters of shapes, Java's types and their layouts.
LETTERS = {"int": "I", "long": "J", "double": "D", "float": "F", "void": "V"}
BYTES = {"int": 4, "long": 8, "double": 8, "float": 4}


def letter(a):
    """Of an argument as it crosses: pointers are longs."""
    return LETTERS[scalar(a.type.base)] if a.role in ("scalar", "length") and not a.type.depth else "J"


def shape(f):
    back = "J" if f.checked or f.returns.depth else \
        LETTERS["void" if f.returns.base == "void" else scalar(f.returns.base)]
    return "".join(map(letter, f.arguments)) + "_" + back + ("_QUICK" if f.quick else "")


JAVA_OF = {letter: of for of, letter in LETTERS.items()}


def load(a):
    """The value of a result, whose memory is `name_`."""
    name = word(a.name)
    if owned_text(a):
        return f"takeText({name}_.get(JAVA_LONG, 0))"
    return f"{name}_.get(JAVA_{result_type(a).upper()}, 0)"


def function(interface, f):
    back, arrays = returned(f)
    heads = [f"{java_type(a)} {word(a.name)}" for a in parameters(f)]
    heads += [f"{result_type(a)}[] {word(a.name)}" for a in arrays]
    callbacks = [a for a in f.arguments if a.role == "callback" and not hidden_destructor(f, a)]
    before, values, after, failing, inside, finishing, alive = [], [], [], [], [], [], []
    for a in f.arguments:
        name = word(a.name)
        if a is f.text_length or a in f.results:
            before.append(f"MemorySegment {name}_ = arena.allocate(8);")
            values.append(f"{name}_.address()")
        elif a.role == "length":
            counted = next(b for b in f.arguments if b.name == a.counts)
            values.append(f"{'(int) ' if letter(a) == 'I' else ''}length({word(counted.name)})")
        elif a.role == "text":
            values.append(f"copy(arena, {name})")
        elif a.role == "bytes":
            values.append(f"memory({name})")
            alive.append(name)
        elif a.role in ("handles", "array"):
            before.append(f"MemorySegment {name}_ = copy(arena, {name});")
            values.append(f"{name}_.address()")
            if a.out:
                of = "long" if a.role == "handles" else scalar(a.type.base)
                after.append(f"if ({name} != null) MemorySegment.copy({name}_, JAVA_{of.upper()}, 0, {name}, 0, "
                             f"{name}.length);")
        elif a.role == "structs":
            before.append(f"MemorySegment {name}_ = copy(arena, {name}, {class_of(a.type.base)}.SIZE);")
            values.append(f"{name}_.address()")
            alive.append(name)
        elif a.role == "struct":
            values.append(f"at({name})")
            alive.append(name)
            for userdata in interface.struct(a.type.base).groups():
                offset = next(x.offset for x in interface.struct(a.type.base).fields if x.name == userdata)
                failing.append(f"if ({name} != null) drop({name}.memory.getLong({offset}));")
        elif a.role == "userdata":
            taken = any(hidden_destructor(f, b) or b.type.base == "epl_destroy_fn" for b in f.arguments)
            if not taken:  # it is called during the call alone
                finishing.append(f"drop({name}_);")
            elif any(hidden_destructor(f, b) for b in f.arguments):
                failing.append(f"drop({name}_);")
            inside.append(f"long {name}_ = hold({word(callbacks[0].name)});")
            values.append(name + "_")
        elif hidden_destructor(f, a):
            values.append("trampoline(0)")
        elif a.role == "callback":
            values.append(f"{name} == null ? 0 : trampoline({index_of(a.type.base)})")
        else:
            values.append(name)
    of = JAVA_OF[shape(f).split("_")[1]]
    call = f"C{shape(f)}.CALL.invokeExact({', '.join(['At.' + f.name] + values)})"
    body = before + inside
    if f.checked:
        body.append(f"long error = (long) {call};")
        body += finishing
        if failing:
            body += ["if (error != 0) {"] + ["  " + line for line in failing] + ["}"]
        body.append("check(error);")
        body += after
        if f.results and not arrays:
            body.append(f"return {load(f.results[0])};")
    elif back == "void":
        body.append(f"{call};")
    elif back == "byte[]":
        body.append(f"long text_ = (long) {call};")
        body.append(f"return text(text_, {f.text_length.name}_.get(JAVA_LONG, 0));" if f.text_length else
                    "return text(text_, -1);")
    else:
        body.append(f"return ({of}) {call};")
    for a in arrays:
        body.append(f"{word(a.name)}[0] = {load(a)};")
    arena = any("arena" in line for line in body)
    yield ""
    yield f"  public static {back} {f.name}({', '.join(heads)}) {{"
    yield "    try (Arena arena = Arena.ofConfined()) {" if arena else "    try {"
    yield from ("      " + line for line in body)
    yield "    } catch (Throwable thrown) {"
    yield "      throw rethrown(thrown);"
    if alive:
        yield "    } finally {"
        yield from (f"      Reference.reachabilityFence({name});" for name in alive)
    yield "    }"
    yield "  }"


def upcall(c):
    """What C calls; what the object's method throws becomes an error, or ends there."""
    error, heads, values, before, after = c.returns.base == "epl_error", [], [], [], []
    back = JAVA_OF["J" if c.returns.depth else "V"]
    for a in c.arguments:
        name = word(a.name)
        heads.append(f"{JAVA_OF[letter(a)]} {name}")
        if a.role in ("userdata", "length"):
            continue
        if a.role == "text":
            values.append(f"text({name}, {word(a.length)})")
        elif a.role in ("struct", "structs", "bytes"):
            size = word(a.length) if a.length else ""
            if a.role != "bytes":
                size = f"{class_of(a.type.base)}.SIZE" + (f" * {size}" if size else "")
            values.append(f"buffer({name}, {size})")
        elif a.role in ("array", "handles"):
            of = "long" if a.role == "handles" else scalar(a.type.base)
            before.append(f"{of}[] {name}_ = pointed({name}, {BYTES[of]} * {word(a.length)})"
                          f".toArray(JAVA_{of.upper()});")
            values.append(name + "_")
            if a.out:
                after.append(f"MemorySegment.copy({name}_, 0, pointed({name}, {BYTES[of]} * {word(a.length)}), "
                             f"JAVA_{of.upper()}, 0, {name}_.length);")
        elif a.out:
            of = scalar(a.type.base)
            before.append(f"{of}[] {name}_ = new {of}[1];")
            after.append(f"pointed({name}, {BYTES[of]}).set(JAVA_{of.upper()}, 0, {name}_[0]);")
            values.append(name + "_")
        else:
            values.append(name)
    method = java_jni.method_of(c.name)
    call = f"(({interface_of(c.name)}) HELD.get(userdata)).{method}({', '.join(values)})"
    yield ""
    yield f"  private static {back} {c.name}({', '.join(heads)}) {{"
    yield "    try {"
    yield from ("      " + line for line in before)
    yield f"      {'return ' if back == 'long' and not error else ''}{call};"
    yield from ("      " + line for line in after)
    yield "    } catch (Throwable thrown) {"
    if error:
        yield "      return error(thrown);"
    else:
        yield "      // Nobody could be told."
    if c.name == "epl_destroy_fn":
        yield "    } finally {"
        yield "      drop(userdata);"
    yield "    }"
    if back == "long":
        yield "    return 0;"
    yield "  }"


def memory(interface):
    functions = [f for f in interface.functions if not f.is_init]
    yield MEMORY
    yield ""
    yield "  private static String callback(int index) {"
    yield "    return switch (index) {"
    yield '      case 0 -> "dropped J_V";'
    for c in interface.callbacks:
        back = "J" if c.returns.depth else "V"
        yield f'      case {index_of(c.name)} -> "{c.name} {"".join(map(letter, c.arguments))}_{back}";'
    yield "      default -> throw new IllegalArgumentException();"
    yield "    };"
    yield "  }"
    for c in interface.callbacks:
        yield from upcall(c)
    yield ""
    yield "  /** Where the functions are. */"
    yield "  private static final class At {"
    for f in functions:
        yield f'    static final MemorySegment {f.name} = symbol("{f.name}");'
    yield "  }"
    for of in sorted({shape(f) for f in functions}):
        yield ""
        yield f"  private static final class C{of} {{"
        yield f'    static final MethodHandle CALL = call("{of}");'
        yield "  }"


def without_comments(lines):
    """The same methods are documented in the other implementation."""
    inside = False
    for line in lines:
        if line.lstrip().startswith("/**") and not line.endswith("*/"):
            inside = True
        if not inside:
            yield line
        elif line.endswith("*/"):
            inside = False


def outputs(interface):
    imports = sorted(java_raw.IMPORTS + (
        "java.lang.foreign.Arena", "java.lang.foreign.FunctionDescriptor", "java.lang.foreign.Linker",
        "java.lang.foreign.MemoryLayout", "java.lang.foreign.MemorySegment", "java.lang.foreign.SymbolLookup",
        "java.lang.invoke.MethodHandle", "java.lang.invoke.MethodHandles", "java.lang.ref.Reference",
        "java.nio.file.Path", "java.util.concurrent.ConcurrentHashMap", "java.util.concurrent.atomic.AtomicLong"))
    statics = ["static java.lang.foreign.ValueLayout.JAVA_BYTE", "static java.lang.foreign.ValueLayout.JAVA_DOUBLE",
               "static java.lang.foreign.ValueLayout.JAVA_INT", "static java.lang.foreign.ValueLayout.JAVA_LONG"]
    java_jni.prepare(interface)
    lines = java_raw.lines(interface, statics + imports, "\n".join(memory(interface)), function)
    yield "bindings/java/src/main/java22/ai/epl/raw/Raw.java", without_comments("\n".join(lines).split("\n"))


MEMORY = '''
  private static final Linker LINKER = Linker.nativeLinker();
  private static volatile SymbolLookup library;
  // What the userdata of callbacks stand for.
  private static final ConcurrentHashMap<Long, Object> HELD = new ConcurrentHashMap<>();
  private static final AtomicLong LAST = new AtomicLong();
  private static final long[] TRAMPOLINES = new long[64];

  /** The library that has the functions, as the jar names it. */
  public static String library() {
    return "libepl.so.1";
  }

  /** Loads it. */
  public static void load(String path) {
    try {
      library = SymbolLookup.libraryLookup(Path.of(path), Arena.global());
    } catch (IllegalArgumentException error) {
      UnsatisfiedLinkError failure = new UnsatisfiedLinkError(error.getMessage());
      failure.initCause(error);
      throw failure;
    }
  }

  private static MemorySegment symbol(String name) {
    return library.find(name).orElseThrow(() -> new UnsatisfiedLinkError(name));
  }

  // A shape has a letter for each argument, and one for the result; what is QUICK calls nothing back.
  private static MethodHandle call(String shape) {
    Linker.Option[] options = shape.endsWith("_QUICK") ? new Linker.Option[] {Linker.Option.critical(false)}
        : new Linker.Option[0];
    return LINKER.downcallHandle(descriptor(shape), options);
  }

  private static FunctionDescriptor descriptor(String shape) {
    int end = shape.indexOf('_');
    MemoryLayout[] arguments = new MemoryLayout[end];
    for (int i = 0; i < end; ++i) arguments[i] = layout(shape.charAt(i));
    char back = shape.charAt(end + 1);
    return back == 'V' ? FunctionDescriptor.ofVoid(arguments) : FunctionDescriptor.of(layout(back), arguments);
  }

  private static MemoryLayout layout(char letter) {
    return letter == 'I' ? JAVA_INT : letter == 'D' ? JAVA_DOUBLE : JAVA_LONG;
  }

  private static RuntimeException rethrown(Throwable thrown) {
    if (thrown instanceof Error error) throw error;
    return thrown instanceof RuntimeException exception ? exception : new IllegalStateException(thrown);
  }

  private static void check(long error) {
    if (error == 0) return;
    RuntimeException made = exception(epl_error_code(error), epl_error_message(error), epl_error_where(error),
        epl_error_rank(error), epl_error_retryable(error) != 0);
    epl_error_destroy(error);
    throw made;
  }

  private static long error(Throwable thrown) {
    int code = EPL_ERROR_INTERNAL;
    byte[] message = "a callback threw an exception".getBytes(StandardCharsets.UTF_8);
    try {
      code = codeOf(thrown);
      message = messageOf(thrown);
    } catch (Throwable another) {
      // Then it has no words of its own.
    }
    try {
      return epl_error_create(code, message);
    } catch (Throwable noMemory) {
      return epl_error_create(EPL_ERROR_OUT_OF_MEMORY, null);
    }
  }

  private static MemorySegment pointed(long address, long bytes) {
    return MemorySegment.ofAddress(address).reinterpret(bytes);
  }

  private static byte[] text(long address, long bytes) {
    if (address == 0) return null;
    MemorySegment text = pointed(address, bytes < 0 ? Long.MAX_VALUE : bytes);
    if (bytes >= 0) return text.toArray(JAVA_BYTE);
    int length = 0;
    while (text.get(JAVA_BYTE, length) != 0) ++length;
    return text.asSlice(0, length).toArray(JAVA_BYTE);
  }

  private static byte[] takeText(long text) {
    if (text == 0) return null;
    byte[] bytes = epl_text_data(text);
    epl_text_destroy(text);
    return bytes;
  }

  private static long length(byte[] text) {
    return text == null ? 0 : text.length;
  }

  private static long length(long[] array) {
    return array == null ? 0 : array.length;
  }

  private static long length(Struct[] structs) {
    return structs == null ? 0 : structs.length;
  }

  private static long length(ByteBuffer memory) {
    return memory == null ? 0 : memory.capacity();
  }

  // Of nothing an address that is not NULL all the same.
  private static long copy(Arena arena, byte[] text) {
    if (text == null) return 0;
    MemorySegment copy = arena.allocate(Math.max(1, text.length));
    MemorySegment.copy(text, 0, copy, JAVA_BYTE, 0, text.length);
    return copy.address();
  }

  private static MemorySegment copy(Arena arena, long[] array) {
    if (array == null) return MemorySegment.NULL;
    MemorySegment copy = arena.allocate(Math.max(1, 8L * array.length), 8);
    MemorySegment.copy(array, 0, copy, JAVA_LONG, 0, array.length);
    return copy;
  }

  private static MemorySegment copy(Arena arena, Struct[] structs, int size) {
    if (structs == null) return MemorySegment.NULL;
    MemorySegment copy = arena.allocate(Math.max(1, (long) size * structs.length), 8);
    for (int i = 0; i < structs.length; ++i) {
      if (structs[i] != null) copy.asSlice((long) i * size, size).copyFrom(pointed(structs[i].address, size));
    }
    return copy;
  }

  private static long memory(ByteBuffer buffer) {
    if (buffer == null) return 0;
    if (!buffer.isDirect()) throw new IllegalArgumentException("the buffer is not direct");
    return address(buffer);
  }

  private static long at(Struct struct) {
    return struct == null ? 0 : struct.address;
  }

  /** The library is done with the object of some callbacks: one that is a {@link DestroyFn} is told. */
  private static void dropped(long userdata) {
    try {
      if (HELD.remove(userdata) instanceof DestroyFn object) object.destroy();
    } catch (Throwable thrown) {
      // Nobody could be told.
    }
  }

  /** Where a direct buffer begins; 0 for another one. */
  public static long address(ByteBuffer buffer) {
    return buffer.isDirect() ? MemorySegment.ofBuffer(buffer.duplicate().clear()).address() : 0;
  }

  /** Memory as a direct buffer, which does not keep it alive. */
  public static ByteBuffer buffer(long address, long bytes) {
    return pointed(address, bytes).asByteBuffer();
  }

  static long hold(Object object) {
    if (object == null) return 0;
    long held = LAST.incrementAndGet();
    HELD.put(held, object);
    return held;
  }

  static void drop(long held) {
    HELD.remove(held);
  }

  /** The function of C that calls the interface of that number. */
  static synchronized long trampoline(int index) {
    if (TRAMPOLINES[index] == 0) {
      String[] words = callback(index).split(" ");
      FunctionDescriptor descriptor = descriptor(words[1]);
      try {
        MethodHandle method = MethodHandles.lookup().findStatic(Raw.class, words[0], descriptor.toMethodType());
        TRAMPOLINES[index] = LINKER.upcallStub(method, descriptor, Arena.global()).address();
      } catch (ReflectiveOperationException generatedWrongly) {
        throw new IllegalStateException(generatedWrongly);
      }
    }
    return TRAMPOLINES[index];
  }'''
