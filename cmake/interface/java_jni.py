"""bindings/java/src/main/native/epl_jni.c: the native side of Raw.java."""
from model import camel, short

SCALARS = {"int32_t": ("int", "I", "jint", 4), "uint32_t": ("int", "I", "jint", 4), "int64_t": ("long", "J", "jlong", 8),
           "uint64_t": ("long", "J", "jlong", 8), "size_t": ("long", "J", "jlong", 8),
           "double": ("double", "D", "jdouble", 8), "float": ("float", "F", "jfloat", 4)}
ARRAYS = {"int": "Int", "long": "Long", "double": "Double", "float": "Float"}
CALLBACKS = []


def prepare(interface):
    CALLBACKS[:] = [c.name for c in interface.callbacks]


def scalar(base):
    return SCALARS[base][0]


def size(base):
    return SCALARS[base][3]


def index_of(callback):
    """Number 0 drops a held object."""
    return CALLBACKS.index(callback) + 1


def method_of(callback):
    return camel(short(callback).removesuffix("_fn"), False)


def callback_visible(c):
    return [a for a in c.arguments if a.role not in ("userdata", "length")]


def owned_text(a):
    return a.role == "handle" and a.type.base == "epl_text" and a.owned


def hidden_destructor(f, a):
    """A destructor of a userdata that other callbacks use: it drops the object."""
    callbacks = [b for b in f.arguments if b.role == "callback"]
    return a.role == "callback" and a.type.base == "epl_destroy_fn" and len(callbacks) > 1


def parameters(f):
    return [a for a in f.parameters if a.role != "userdata" and not hidden_destructor(f, a)]


def result_type(a):
    return "byte[]" if owned_text(a) else scalar(a.type.base) if a.role == "scalar" else "long"


def returned(f):
    """What the method returns, and the results that go into arrays instead."""
    results = f.results
    if f.checked:
        if len(results) == 1:
            return result_type(results[0]), []
        return "void", results
    if str(f.returns) == "const char*":
        return "byte[]", results
    if f.returns.depth:
        return "long", results
    return ("void" if f.returns.base == "void" else scalar(f.returns.base)), results


JAVA = {"void": ("V", "void"), "byte[]": ("[B", "jbyteArray"), "long": ("J", "jlong"), "int": ("I", "jint"),
        "double": ("D", "jdouble"), "float": ("F", "jfloat"), "long[]": ("[J", "jlongArray"),
        "int[]": ("[I", "jintArray"), "double[]": ("[D", "jdoubleArray"), "float[]": ("[F", "jfloatArray"),
        "byte[][]": ("[[B", "jobjectArray"), "ByteBuffer": ("Ljava/nio/ByteBuffer;", "jobject")}


def signature(of):
    if of in JAVA:
        return JAVA[of][0]
    return "[" + signature(of[:-2]) if of.endswith("[]") else f"Lai/epl/raw/Raw${of};"


def jtype(of):
    return JAVA[of][1] if of in JAVA else "jobjectArray" if of.endswith("[]") else "jobject"


def function(interface, f):
    from java_raw import java_type
    back, arrays = returned(f)
    head = ["JNIEnv* env", "jclass type"]
    kinds = []
    for a in parameters(f):
        kinds.append(java_type(a))
        head.append(f"{jtype(kinds[-1])} j_{a.name}")
    for a in arrays:
        kinds.append(result_type(a) + "[]")
        head.append(f"{jtype(kinds[-1])} j_{a.name}")
    yield ""
    yield f"static {jtype(back)} JNICALL raw_{f.name}({', '.join(head)}) {{"
    yield "  (void)env;"
    yield "  (void)type;"
    if back != "void":
        yield f"  {jtype(back)} result = 0;"
    before, values, after, failing, inside, finishing = [], [], [], [], [], []
    callbacks = [a for a in f.arguments if a.role == "callback" and not hidden_destructor(f, a)]
    for a in f.arguments:
        name = a.name
        if a is f.text_length:
            before.append(f"size_t {name} = 0;")
            values.append("&" + name)
        elif a in f.results:
            of = f"{a.type.base}{'*' * (a.type.depth - 1)}"
            const = "const " if a.type.const else ""
            before.append(f"{const}{of} {name} = 0;")
            values.append("&" + name)
        elif a.role == "length":
            counted = next(b for b in f.arguments if b.name == a.counts)
            values.append(f"({a.type.base}){counted.name}.length")
        elif a.role == "text":
            before.append(f"bytes_of {name} = take_bytes(env, j_{name});")
            after.append(f"give_bytes(env, &{name});")
            values.append(f"{name}.data")
        elif a.role == "bytes":
            before.append(f"memory_of {name} = take_memory(env, j_{name});")
            values.append(f"{name}.data")
        elif a.role in ("handles", "array"):
            of = ARRAYS["long" if a.role == "handles" else scalar(a.type.base)].lower()
            before.append(f"{of}s_of {name} = take_{of}s(env, j_{name});")
            after.append(f"give_{of}s(env, &{name}, {0 if a.out else 'JNI_ABORT'});")
            values.append(f"({'const ' if a.type.const else ''}{a.type.base}{stars(a)}){name}.data")
        elif a.role == "structs":
            before.append(f"structs_of {name} = take_structs(env, j_{name}, sizeof({a.type.base}));")
            after.append(f"give_structs(env, &{name}, {'1' if a.out else '0'});")
            values.append(f"({'const ' if a.type.const else ''}{a.type.base}*){name}.data")
        elif a.role == "struct":
            values.append(f"({'' if a.out else 'const '}{a.type.base}*)struct_at(env, j_{name})")
            if any(interface.struct(a.type.base).groups().values()):
                failing.append(f"drop_{a.type.base}(env, struct_at(env, j_{name}));")
        elif a.role == "userdata":
            taken = any(hidden_destructor(f, b) or b.type.base == "epl_destroy_fn" for b in callbacks + f.arguments)
            drop = f"if ({name} != NULL) (*env)->DeleteGlobalRef(env, {name});"
            if not taken:  # it is called during the call alone
                finishing.append(drop)
            elif any(hidden_destructor(f, b) for b in f.arguments):
                failing.append(drop)
            inside.append(f"jobject {name} = j_{callbacks[0].name} == NULL ? NULL : (*env)->NewGlobalRef(env, "
                          f"j_{callbacks[0].name});")
            values.append(name)
        elif hidden_destructor(f, a):
            values.append("drop_object")
        elif a.role == "callback":
            values.append(f"j_{name} == NULL ? NULL : call_{a.type.base}")
        elif a.role == "handle":
            values.append(f"({'const ' if a.type.const else ''}{a.type.base}*)(intptr_t)j_{name}")
        elif a.role == "pointer":
            values.append(f"(void*)(intptr_t)j_{name}")
        else:
            values.append(f"({a.type.base})j_{name}")
    # What may throw comes last: nothing else may be asked of Java afterwards.
    yield from ("  " + line for line in sorted(before, key=lambda line: line.startswith("memory_of")))
    call = f"{f.name}({', '.join(values)})"
    checks = [f"!{a.name}.bad" for a in f.arguments if a.role in ("text", "bytes", "handles", "array", "structs")]
    indent = "  "
    if checks:
        yield f"  if ({' && '.join(checks)}) {{"
        indent = "    "
    yield from (indent + line for line in inside)
    if f.checked:
        yield indent + f"epl_error* error = {call};"
        if failing:
            yield indent + "if (error != NULL) {"
            yield from (indent + "  " + line for line in failing)
            yield indent + "}"
        yield from (indent + line for line in finishing)
        # Back into arrays before anything is thrown.
        yield indent + ("if (!thrown(env, error)) {" if f.results else "thrown(env, error);")
        if f.results:
            if not arrays:
                yield indent + f"  result = {to_java(f.results[0])};"
            for a in arrays:
                yield indent + f"  {store(a)}"
            yield indent + "}"
    elif back == "void":
        yield indent + call + ";"
    elif back == "byte[]":
        yield indent + f"const char* text = {call};"
        length = f.text_length.name if f.text_length else "strlen(text)"
        yield indent + f"if (text != NULL) result = new_bytes(env, text, {length});"
    elif f.returns.depth:
        yield indent + f"result = (jlong)(intptr_t){call};"
    else:
        yield indent + f"result = ({jtype(back)}){call};"
    if not f.checked:
        yield from (indent + store(a) for a in arrays)
    if checks:
        yield "  }"
    yield from ("  " + line for line in reversed(after))
    if back != "void":
        yield "  return result;"
    yield "}"
    METHODS.append((f.name, "".join(map(signature, kinds)), signature(back)))


METHODS = []


def stars(a):
    return "".join("* const" if const and i + 1 < a.type.depth else "*" for i, const in enumerate(a.type.pointers))


def to_java(a):
    if owned_text(a):
        return f"take_text(env, {a.name})"
    if a.role == "scalar":
        return f"({SCALARS[a.type.base][2]}){a.name}"
    return f"(jlong)(intptr_t){a.name}"


def store(a):
    if owned_text(a):
        return f"(*env)->SetObjectArrayElement(env, j_{a.name}, 0, take_text(env, {a.name}));"
    of = result_type(a)
    return (f"(*env)->Set{ARRAYS[of]}ArrayRegion(env, j_{a.name}, 0, 1, "
            f"&({SCALARS[a.type.base][2] if a.role == 'scalar' else 'jlong'}){{{to_java(a)}}});")


def trampoline(c):
    """A callback of C that calls the method of an object; what the method throws becomes an error, or ends there."""
    from java_raw import java_type
    name, error = c.name, c.returns.base == "epl_error"
    arguments = ", ".join(f"{'const ' if a.type.const else ''}{a.type.base}{stars(a)} {a.name}" for a in c.arguments)
    back = str(c.returns)
    yield ""
    yield f"static {back} call_{name}({arguments}) {{"
    failed = "epl_error_create(EPL_ERROR_OUT_OF_MEMORY, NULL, 0)" if error else "" if back == "void" else "0"
    kinds, values, before, after = [], [], [], []
    for a in callback_visible(c):
        if a.role == "text":
            length = a.length
            before.append(f"jbyteArray j_{a.name} = new_bytes(env, {a.name}, {length});")
            kinds.append("[B")
            values.append("j_" + a.name)
        elif a.role in ("struct", "structs"):
            bytes_of = f"sizeof({a.type.base})" + (f" * {a.length}" if a.length else "")
            before.append(f"jobject j_{a.name} = (*env)->NewDirectByteBuffer(env, (void*){a.name}, (jlong)({bytes_of}));")
            kinds.append("Ljava/nio/ByteBuffer;")
            values.append("j_" + a.name)
        elif a.role in ("array", "handles"):
            of = "long" if a.role == "handles" else scalar(a.type.base)
            before.append(f"{jtype(of + '[]')} j_{a.name} = (*env)->New{ARRAYS[of]}Array(env, (jsize){a.length});")
            if a.out:
                after.append(f"(*env)->Get{ARRAYS[of]}ArrayRegion(env, j_{a.name}, 0, (jsize){a.length}, "
                             f"({jtype(of)}*){a.name});")
            else:
                before.append(f"if (j_{a.name} != NULL) (*env)->Set{ARRAYS[of]}ArrayRegion(env, j_{a.name}, 0, "
                              f"(jsize){a.length}, (const {jtype(of)}*){a.name});")
            kinds.append("[" + JAVA[of][0])
            values.append("j_" + a.name)
        elif a.role == "bytes":
            before.append(f"jobject j_{a.name} = (*env)->NewDirectByteBuffer(env, (void*){a.name}, (jlong){a.length});")
            kinds.append("Ljava/nio/ByteBuffer;")
            values.append("j_" + a.name)
        elif a.out:
            of = scalar(a.type.base)
            before.append(f"{jtype(of + '[]')} j_{a.name} = (*env)->New{ARRAYS[of]}Array(env, 1);")
            after.append(f"(*env)->Get{ARRAYS[of]}ArrayRegion(env, j_{a.name}, 0, 1, ({jtype(of)}*){a.name});")
            kinds.append("[" + JAVA[of][0])
            values.append("j_" + a.name)
        elif a.role in ("pointer", "handle"):
            kinds.append("J")
            values.append(f"(jlong)(intptr_t){a.name}")
        else:
            kinds.append(SCALARS[a.type.base][1])
            values.append(f"({SCALARS[a.type.base][2]}){a.name}")
    of = "void" if back == "void" or error else "long" if c.returns.depth else scalar(c.returns.base)
    yield "  JNIEnv* env = attached();"
    yield "  if (env == NULL || (*env)->PushLocalFrame(env, 16) != 0) " + (f"return {failed};" if failed else "return;")
    yield from ("  " + line for line in before)
    extra = "".join(", " + v for v in values)
    call = f"(*env)->Call{of.capitalize()}Method(env, (jobject)userdata, method_{name}{extra})"
    # A buffer or array that could not be made has thrown already.
    if of == "void":
        yield f"  if (!(*env)->ExceptionCheck(env)) {call};"
    else:
        yield f"  {jtype(of)} result = 0;"
        yield f"  if (!(*env)->ExceptionCheck(env)) result = {call};"
    if after:
        yield "  if (!(*env)->ExceptionCheck(env)) {"
        yield from ("    " + line for line in after)
        yield "  }"
    if error:
        yield "  epl_error* error = error_of_exception(env);"
    else:
        yield "  if ((*env)->ExceptionCheck(env)) (*env)->ExceptionClear(env);"
    yield "  (*env)->PopLocalFrame(env, NULL);"
    if name == "epl_destroy_fn":
        yield "  (*env)->DeleteGlobalRef(env, (jobject)userdata);"
    if error:
        yield "  return error;"
    elif of == "long" and c.returns.depth:
        yield f"  return ({back})(intptr_t)result;"
    elif of != "void":
        yield f"  return ({back})result;"
    yield "}"
    CALLS.append((name, method_of(name), "".join(kinds), JAVA[of][0]))


CALLS = []


def dropper(s):
    """Where a call fails, the objects of its callbacks are still the caller's."""
    yield ""
    yield f"static void drop_{s.name}(JNIEnv* env, {s.name}* options) {{"
    yield "  if (options == NULL) return;"
    for userdata in s.groups():
        yield f"  if (options->{userdata} != NULL) (*env)->DeleteGlobalRef(env, (jobject)options->{userdata});"
        yield f"  options->{userdata} = NULL;"
    yield "}"


def lines(interface):
    from java_raw import interface_of
    METHODS.clear()
    CALLS.clear()
    yield "/* Generated by cmake/interface from include/epl.h; do not edit. The native side of ai.epl.raw.Raw. */"
    yield from HEAD.split("\n")
    for c in interface.callbacks:
        yield f"static jmethodID method_{c.name};"
    yield from SUPPORT.split("\n")
    for c in interface.callbacks:
        yield from trampoline(c)
    for s in interface.structs:
        if s.groups():
            yield from dropper(s)
    yield from HELPERS.split("\n")
    yield "    (void (*)(void))drop_object,"
    for c in interface.callbacks:
        yield f"    (void (*)(void))call_{c.name},"
    yield "};"
    yield from TRAMPOLINE.split("\n")
    for f in interface.functions:
        if not f.is_init:
            yield from function(interface, f)
    yield ""
    yield "static const JNINativeMethod methods[] = {"
    yield '    {"address", "(Ljava/nio/ByteBuffer;)J", (void*)raw_address},'
    yield '    {"buffer", "(JJ)Ljava/nio/ByteBuffer;", (void*)raw_buffer},'
    yield '    {"hold", "(Ljava/lang/Object;)J", (void*)raw_hold},'
    yield '    {"drop", "(J)V", (void*)raw_drop},'
    yield '    {"trampoline", "(I)J", (void*)raw_trampoline},'
    for name, kinds, back in METHODS:
        yield f'    {{"{name}", "({kinds}){back}", (void*)raw_{name}}},'
    yield "};"
    yield ""
    yield "static const struct {"
    yield "  jmethodID* id;"
    yield "  const char *type, *name, *signature;"
    yield "} callbacks[] = {"
    for name, method, kinds, back in CALLS:
        yield f'    {{&method_{name}, "ai/epl/raw/Raw${interface_of(name)}", "{method}", "({kinds}){back}"}},'
    yield "};"
    yield from LOAD.split("\n")


HEAD = '''#include <epl.h>
#include <jni.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(void*) == sizeof(jlong), "handles are longs");

static JavaVM* machine;
static pthread_key_t attachment; /* of threads that are not Java's: detached when they end */
static jclass raw_class;
static jmethodID make_exception, code_of, message_of, dropped;
static jfieldID struct_address;'''

SUPPORT = '''
static void detach(void* value) {
  (void)value;
  (*machine)->DetachCurrentThread(machine);
}

/* The environment of this thread, NULL where the machine takes no more. */
static JNIEnv* attached(void) {
  void* env = NULL;
  if ((*machine)->GetEnv(machine, &env, JNI_VERSION_1_8) == JNI_OK) return (JNIEnv*)env;
  if ((*machine)->AttachCurrentThreadAsDaemon(machine, &env, NULL) != JNI_OK) return NULL;
  pthread_setspecific(attachment, env);
  return (JNIEnv*)env;
}

static jbyteArray new_bytes(JNIEnv* env, const char* data, size_t length) {
  jbyteArray array = (*env)->NewByteArray(env, (jsize)length);
  if (array != NULL) (*env)->SetByteArrayRegion(env, array, 0, (jsize)length, (const jbyte*)data);
  return array;
}

/* 1 if there was an error, which is now a pending exception. */
static int thrown(JNIEnv* env, epl_error* error) {
  if (error == NULL) return 0;
  size_t message_length = 0, where_length = 0;
  const char* message = epl_error_message(error, &message_length);
  const char* where = epl_error_where(error, &where_length);
  jbyteArray message_bytes = new_bytes(env, message, message_length);
  jbyteArray where_bytes = message_bytes == NULL ? NULL : new_bytes(env, where, where_length);
  if (where_bytes != NULL) {
    jobject made = (*env)->CallStaticObjectMethod(env, raw_class, make_exception, (jint)epl_error_code(error),
                                                  message_bytes, where_bytes, (jlong)epl_error_rank(error),
                                                  (jboolean)epl_error_retryable(error));
    if (made != NULL && !(*env)->ExceptionCheck(env)) (*env)->Throw(env, (jthrowable)made);
  } /* else Java has an exception of its own pending: it is out of memory */
  epl_error_destroy(error);
  return 1;
}

/* What a callback has thrown, as an error; NULL for nothing. */
static epl_error* error_of_exception(JNIEnv* env) {
  jthrowable thrown_here = (*env)->ExceptionOccurred(env);
  if (thrown_here == NULL) return NULL;
  (*env)->ExceptionClear(env);
  jint code = (*env)->CallStaticIntMethod(env, raw_class, code_of, thrown_here);
  if ((*env)->ExceptionCheck(env)) {
    (*env)->ExceptionClear(env);
    code = EPL_ERROR_INTERNAL;
  }
  jbyteArray message = (jbyteArray)(*env)->CallStaticObjectMethod(env, raw_class, message_of, thrown_here);
  jbyte* data = message == NULL || (*env)->ExceptionCheck(env) ? NULL
                                                               : (*env)->GetByteArrayElements(env, message, NULL);
  (*env)->ExceptionClear(env);
  epl_error* error = data == NULL ? epl_error_create(code, EPL_STR("a callback threw an exception"))
                                  : epl_error_create(code, (const char*)data,
                                                     (size_t)(*env)->GetArrayLength(env, message));
  if (data != NULL) (*env)->ReleaseByteArrayElements(env, message, data, JNI_ABORT);
  return error;
}

/* The destructor of a userdata: the object is held no more, and told so. */
static void drop_object(void* userdata) {
  JNIEnv* env = attached();
  if (env == NULL || userdata == NULL) return;
  (*env)->CallStaticVoidMethod(env, raw_class, dropped, (jobject)userdata);
  if ((*env)->ExceptionCheck(env)) (*env)->ExceptionClear(env);
  (*env)->DeleteGlobalRef(env, (jobject)userdata);
}'''

HELPERS = '''
/* What an array or a buffer has; `bad`: an exception is pending. */
typedef struct {
  jbyteArray array;
  char* data;
  size_t length;
  int bad;
} bytes_of;

typedef struct {
  void* data;
  size_t length;
  int bad;
} memory_of;

static bytes_of take_bytes(JNIEnv* env, jbyteArray array) {
  bytes_of found = {array, NULL, 0, 0};
  if (array == NULL) return found;
  found.data = (char*)(*env)->GetByteArrayElements(env, array, NULL);
  found.length = (size_t)(*env)->GetArrayLength(env, array);
  found.bad = found.data == NULL;
  return found;
}

static void give_bytes(JNIEnv* env, bytes_of* found) {
  if (found->data != NULL) (*env)->ReleaseByteArrayElements(env, found->array, (jbyte*)found->data, JNI_ABORT);
}

static memory_of take_memory(JNIEnv* env, jobject buffer) {
  memory_of found = {NULL, 0, 0};
  if (buffer == NULL) return found;
  found.data = (*env)->GetDirectBufferAddress(env, buffer);
  found.length = (size_t)(*env)->GetDirectBufferCapacity(env, buffer);
  if (found.data == NULL && found.length != 0) {
    jclass type = (*env)->FindClass(env, "java/lang/IllegalArgumentException");
    if (type != NULL) (*env)->ThrowNew(env, type, "the buffer is not direct");
    found.bad = 1;
  }
  return found;
}

#define EPL_TAKE(kind, Kind)                                                                            \\
  typedef struct {                                                                                      \\
    j##kind##Array array;                                                                               \\
    j##kind* data;                                                                                      \\
    size_t length;                                                                                      \\
    int bad;                                                                                            \\
  } kind##s_of;                                                                                         \\
  static inline kind##s_of take_##kind##s(JNIEnv* env, j##kind##Array array) {                          \\
    kind##s_of found = {array, NULL, 0, 0};                                                             \\
    if (array == NULL) return found;                                                                    \\
    found.data = (*env)->Get##Kind##ArrayElements(env, array, NULL);                                    \\
    found.length = (size_t)(*env)->GetArrayLength(env, array);                                          \\
    found.bad = found.data == NULL;                                                                     \\
    return found;                                                                                       \\
  }                                                                                                     \\
  static inline void give_##kind##s(JNIEnv* env, kind##s_of* found, jint mode) {                        \\
    if (found->data != NULL) (*env)->Release##Kind##ArrayElements(env, found->array, found->data, mode); \\
  }
EPL_TAKE(int, Int)
EPL_TAKE(long, Long)
EPL_TAKE(float, Float)
EPL_TAKE(double, Double)

typedef struct {
  jobjectArray array;
  char* data;
  size_t length, size;
  int bad;
} structs_of;

static inline void* struct_at(JNIEnv* env, jobject object) {
  return object == NULL ? NULL : (void*)(intptr_t)(*env)->GetLongField(env, object, struct_address);
}

/* Structs of Java lie apart, and C wants them one behind the other. */
static inline structs_of take_structs(JNIEnv* env, jobjectArray array, size_t size) {
  structs_of found = {array, NULL, 0, size, 0};
  if (array == NULL) return found;
  found.length = (size_t)(*env)->GetArrayLength(env, array);
  found.data = calloc(found.length + 1, size);
  found.bad = found.data == NULL;
  for (size_t i = 0; i < found.length && !found.bad; ++i) {
    jobject each = (*env)->GetObjectArrayElement(env, array, (jsize)i);
    if (each != NULL) memcpy(found.data + i * size, struct_at(env, each), size);
    (*env)->DeleteLocalRef(env, each);
  }
  return found;
}

static inline void give_structs(JNIEnv* env, structs_of* found, int back) {
  for (size_t i = 0; back && found->data != NULL && i < found->length; ++i) {
    jobject each = (*env)->GetObjectArrayElement(env, found->array, (jsize)i);
    if (each != NULL) memcpy(struct_at(env, each), found->data + i * found->size, found->size);
    (*env)->DeleteLocalRef(env, each);
  }
  free(found->data);
}

static jbyteArray take_text(JNIEnv* env, epl_text* text) {
  if (text == NULL) return NULL;
  size_t length = 0;
  const char* data = epl_text_data(text, &length);
  jbyteArray array = new_bytes(env, data, length);
  epl_text_destroy(text);
  return array;
}

static jlong JNICALL raw_address(JNIEnv* env, jclass type, jobject buffer) {
  (void)type;
  return (jlong)(intptr_t)(*env)->GetDirectBufferAddress(env, buffer);
}

static jobject JNICALL raw_buffer(JNIEnv* env, jclass type, jlong address, jlong bytes) {
  (void)type;
  return (*env)->NewDirectByteBuffer(env, (void*)(intptr_t)address, bytes);
}

static jlong JNICALL raw_hold(JNIEnv* env, jclass type, jobject object) {
  (void)type;
  return object == NULL ? 0 : (jlong)(intptr_t)(*env)->NewGlobalRef(env, object);
}

static void JNICALL raw_drop(JNIEnv* env, jclass type, jlong held) {
  (void)type;
  if (held != 0) (*env)->DeleteGlobalRef(env, (jobject)(intptr_t)held);
}

static void (*const trampolines[])(void) = {'''

TRAMPOLINE = '''
static jlong JNICALL raw_trampoline(JNIEnv* env, jclass type, jint index) {
  (void)env;
  (void)type;
  return (jlong)(intptr_t)trampolines[index];
}'''

LOAD = '''
JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* loading, void* reserved) {
  (void)reserved;
  void* found = NULL;
  if ((*loading)->GetEnv(loading, &found, JNI_VERSION_1_8) != JNI_OK) return JNI_ERR;
  JNIEnv* env = (JNIEnv*)found;
  machine = loading;
  if (pthread_key_create(&attachment, detach) != 0) return JNI_ERR;
  jclass raw = (*env)->FindClass(env, "ai/epl/raw/Raw");
  if (raw == NULL || (raw_class = (jclass)(*env)->NewGlobalRef(env, raw)) == NULL) return JNI_ERR;
  make_exception = (*env)->GetStaticMethodID(env, raw, "exception", "(I[B[BJZ)Ljava/lang/RuntimeException;");
  code_of = make_exception == NULL ? NULL
                                   : (*env)->GetStaticMethodID(env, raw, "codeOf", "(Ljava/lang/Throwable;)I");
  message_of = code_of == NULL ? NULL
                               : (*env)->GetStaticMethodID(env, raw, "messageOf", "(Ljava/lang/Throwable;)[B");
  dropped = message_of == NULL ? NULL : (*env)->GetStaticMethodID(env, raw, "dropped", "(Ljava/lang/Object;)V");
  jclass base = dropped == NULL ? NULL : (*env)->FindClass(env, "ai/epl/raw/Raw$Struct");
  struct_address = base == NULL ? NULL : (*env)->GetFieldID(env, base, "address", "J");
  if (struct_address == NULL) return JNI_ERR;
  for (size_t i = 0; i < sizeof callbacks / sizeof callbacks[0]; ++i) {
    jclass type = (*env)->FindClass(env, callbacks[i].type);
    *callbacks[i].id = type == NULL ? NULL
                                    : (*env)->GetMethodID(env, type, callbacks[i].name, callbacks[i].signature);
    if (*callbacks[i].id == NULL) return JNI_ERR;
  }
  if ((*env)->RegisterNatives(env, raw, methods, (jint)(sizeof methods / sizeof methods[0])) != 0) return JNI_ERR;
  return JNI_VERSION_1_8;
}'''
