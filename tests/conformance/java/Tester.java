import ai.epl.raw.Raw;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The interpreter of scripts for Java: Tester LIBRARY TABLE SCRIPT. It calls the raw layer by name, as the table says.
 * tests/conformance/README.md says what a line means.
 */
public final class Tester {
  record Field(String name, String base, String role, String partner, String array) {}

  record Argument(String name, String base, String role, String kind) {}

  record Function(String returns, List<Argument> arguments) {}

  /** A quoted text, which no word is. Words are strings, lists lists, structs maps. */
  record Text(byte[] bytes) {}

  final Map<String, Long> constants = new HashMap<>();
  final Map<String, List<Field>> structs = new HashMap<>();
  final Map<String, Function> functions = new HashMap<>();
  final Map<String, Method> methods = new HashMap<>();
  final Map<String, Long> variables = new HashMap<>();
  final Names names = new Names();
  final List<ByteBuffer> kept = new ArrayList<>();
  final PrintStream out = new PrintStream(System.out, true);
  // Of the line.
  StringBuilder line;
  List<String> targets;
  boolean quiet;

  Tester(Path table) throws Exception {
    List<Field> fields = null;
    List<Argument> arguments = null;
    for (String text : Files.readAllLines(table)) {
      String[] w = text.split(" ");
      switch (w[0]) {
        case "constant" -> constants.put(w[1], Long.parseLong(w[2]));
        case "struct" -> structs.put(w[1], fields = new ArrayList<>());
        case "field" -> fields.add(new Field(w[1], w[2], w[3], w[4], w[5]));
        case "function" -> functions.put(w[1], new Function(w[2], arguments = new ArrayList<>()));
        default -> arguments.add(new Argument(w[1], w[2], w[3], w[4]));
      }
    }
    for (Method method : Raw.class.getMethods()) {
      methods.put(method.getName(), method);
    }
  }

  // --- Values in

  long integer(Object word) {
    Long constant = constants.get(word);
    String text = (String) word;
    return constant != null ? constant : text.startsWith("-") ? Long.parseLong(text) : Long.parseUnsignedLong(text);
  }

  static double number(Object word) {
    String text = (String) word;
    return Double.parseDouble(text.equals("nan") ? "NaN" : text.replace("inf", "Infinity"));
  }

  long handle(Object word) {
    if (word.equals("NULL")) {
      return 0;
    }
    if (!variables.containsKey(word)) {
      throw new IllegalArgumentException(word + " is no handle");
    }
    return variables.get(word);
  }

  byte[] bytes(Object value) {
    if (value.equals("NULL")) {
      return null;
    }
    if (value instanceof Text text) {
      return text.bytes();
    }
    String word = (String) value;
    int colon = word.indexOf(':');
    if (colon < 0) {
      return names.buffer(word);
    }
    String rest = word.substring(colon + 1);
    if (word.startsWith("zeros:")) {
      return new byte[Integer.parseInt(rest)];
    }
    boolean floats = word.startsWith("f32:");
    String[] numbers = rest.isEmpty() ? new String[0] : rest.split(",");
    ByteBuffer made = ByteBuffer.allocate(8 * numbers.length).order(ByteOrder.nativeOrder());
    for (String n : numbers) {
      if (floats) {
        made.putFloat((float) number(n));
      } else {
        made.putLong(Long.parseLong(n));
      }
    }
    return Arrays.copyOf(made.array(), made.position());
  }

  ByteBuffer memory(Object value) {
    byte[] data = bytes(value);
    if (data == null) {
      return null;
    }
    ByteBuffer made = ByteBuffer.allocateDirect(data.length).put(data).flip();
    kept.add(made);
    return made;
  }

  Hook hook(Object word, String base) {
    return word.equals("NULL") ? null : new Hook(names, (String) word, base.equals("epl_destroy_fn"));
  }

  static String camel(String name, boolean upper) {
    StringBuilder made = new StringBuilder();
    for (String word : name.replaceFirst("^epl_", "").split("_")) {
      made.append(made.length() == 0 && !upper ? word : word.substring(0, 1).toUpperCase() + word.substring(1));
    }
    return made.toString();
  }

  static Object newStruct(String name) throws Exception {
    return Class.forName("ai.epl.raw.Raw$" + camel(name, true)).getConstructor().newInstance();
  }

  Object fill(String name, Object value) throws Exception {
    Object made = newStruct(name);
    for (Field field : structs.get(name)) {
      String key = field.role().equals("userdata") ? field.partner() : field.name();
      Object of = ((Map<?, ?>) value).get(key);
      if (of == null || List.of("callback", "destroy", "length").contains(field.role())) {
        continue;
      }
      List<?> items = field.array().equals("-") ? List.of(of) : (List<?>) of;
      for (int i = 0; i < items.size(); ++i) {
        set(made, field, camel(key, false), items.get(i), i);
      }
    }
    return made;
  }

  void set(Object made, Field field, String name, Object of, int index) throws Exception {
    for (Method setter : made.getClass().getMethods()) {
      Class<?>[] types = setter.getParameterTypes();
      if (!setter.getName().equals(name) || setter.getReturnType() != made.getClass()) {
        continue;
      }
      Object value = switch (field.role()) {
        case "text" -> bytes(of);
        case "userdata" -> hook(of, field.base());
        case "handle" -> handle(of);
        default -> scalar(types[types.length - 1], of);
      };
      if (field.role().equals("userdata") && value == null) {
        return;
      }
      if (types.length == 2) {
        setter.invoke(made, index, value);
      } else {
        setter.invoke(made, value);
      }
      return;
    }
    throw new IllegalArgumentException(made.getClass() + " has no " + name);
  }

  Object scalar(Class<?> type, Object of) {
    if (type == double.class) {
      return number(of);
    }
    return type == int.class ? (Object) (int) integer(of) : (Object) integer(of);
  }

  // --- Values out

  void give(String text) {
    line.append(' ').append(text);
  }

  void giveValue(String text, boolean some) {
    give(quiet ? some ? "some" : "none" : text);
  }

  void giveText(byte[] text) {
    byte[] data = text == null ? new byte[0] : text;
    giveValue(quoted(data), data.length != 0);
  }

  void giveHandle(long handle) {
    String name = targets.remove(0);
    variables.put(name, handle);
    give(handle == 0 ? "NULL" : name);
  }

  void giveScalar(String base, Object value) {
    giveValue(text(base, value), ((Number) value).doubleValue() != 0);
  }

  static String text(String base, Object value) {
    if (value instanceof Double number) {
      return text(number);
    }
    if (value instanceof Integer number) {
      return base.startsWith("u") ? Integer.toUnsignedString(number) : number.toString();
    }
    return base.startsWith("u") || base.equals("size_t") ? Long.toUnsignedString((Long) value) : value.toString();
  }

  static String text(double number) {
    if (Double.isNaN(number)) {
      return "nan";
    }
    if (Math.abs(number) > 1e14) {
      return number > 0 ? "large" : "-large";
    }
    return (long) Math.floor(number * 1e4 + 0.5) + "e-4";
  }

  static String quoted(byte[] data) {
    StringBuilder made = new StringBuilder("\"");
    for (byte b : data) {
      if (b >= 0x20 && b <= 0x7e && b != '"' && b != '\\') {
        made.append((char) b);
      } else {
        made.append(String.format("\\x%02x", b & 0xff));
      }
    }
    return made.append('"').toString();
  }

  void giveStruct(String name, Object made) throws Exception {
    List<String> parts = new ArrayList<>();
    for (Field field : structs.get(name)) {
      String getter = camel(field.name(), false);
      if (field.role().equals("hidden")) {
        parts.add(field.name() + "=*");
      } else if (field.role().equals("text")) {
        byte[] text = (byte[]) made.getClass().getMethod(getter).invoke(made);
        parts.add(field.name() + "=" + quoted(text == null ? new byte[0] : text));
      } else if (field.role().equals("scalar") && field.array().equals("-")) {
        parts.add(field.name() + "=" + text(field.base(), made.getClass().getMethod(getter).invoke(made)));
      } else if (field.role().equals("scalar")) {
        List<String> items = new ArrayList<>();
        Method get = made.getClass().getMethod(getter, int.class);
        for (int i = 0; i < constants.get(field.array()); ++i) {
          items.add(get.invoke(made, i).toString());
        }
        while (!items.isEmpty() && items.get(items.size() - 1).equals("0")) {
          items.remove(items.size() - 1);
        }
        parts.add(field.name() + "=[" + String.join(",", items) + "]");
      }
    }
    giveValue("{" + String.join(" ", parts) + "}", true);
  }

  void giveFailure(Failure failure) {
    give("error " + failure.code + " " + new String(Raw.epl_error_code_name(failure.code), StandardCharsets.UTF_8));
    if (!quiet) {
      give(quoted(failure.message));
      give(quoted(failure.where));
      give(failure.rank + " " + (failure.retryable ? 1 : 0));
    }
    for (String name : targets) {
      variables.put(name, 0L);
    }
  }

  void giveMemory(long data, long tensor) {
    if (quiet || data == 0) {
      giveValue("NULL", data != 0);
      return;
    }
    byte[] bytes = new byte[(int) Raw.epl_tensor_bytes(tensor)];
    if (bytes.length > 0) {
      Raw.buffer(data, bytes.length).get(bytes);
    }
    ByteBuffer all = ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder());
    if (Raw.epl_tensor_dtype(tensor) == Raw.EPL_DTYPE_F32) {
      while (all.hasRemaining()) {
        give(text((double) all.getFloat()));
      }
    } else {
      StringBuilder hex = new StringBuilder();
      for (byte b : bytes) {
        hex.append(String.format("%02x", b & 0xff));
      }
      give(hex.toString());
    }
  }

  // --- Calls

  void call(String name, List<Object> values) throws Exception {
    Function f = functions.get(name);
    if (f == null) {
      throw new IllegalArgumentException("no function " + name);
    }
    if (name.endsWith("_init") && !methods.containsKey(name)) {  // a struct is made with its defaults
      giveStruct(f.arguments().get(0).base(), newStruct(f.arguments().get(0).base()));
      return;
    }
    Method method = methods.get(name);
    Class<?>[] types = method.getParameterTypes();
    List<Object> passed = new ArrayList<>();
    List<Argument> outs = f.arguments().stream().filter(a -> a.kind().equals("out")).toList();
    List<Argument> results =
        outs.stream().filter(a -> List.of("scalar", "handle", "pointer").contains(a.role())).toList();
    boolean returned = f.returns().equals("error") && results.size() == 1;
    int next = 0;
    for (Argument a : f.arguments()) {
      if (a.kind().equals("out")) {
        if (a.role().equals("struct")) {
          passed.add(newStruct(a.base()));
        } else if (a.role().equals("handles")) {
          passed.add(new long[targets.size()]);
        } else if (!returned) {
          passed.add(Array.newInstance(types[passed.size()].getComponentType(), 1));
        }
      } else if (List.of("in", "hook").contains(a.kind())) {
        passed.add(in(a, types[passed.size()], values.get(next++)));
      }
    }
    if (next != values.size()) {
      throw new IllegalArgumentException("too many arguments");
    }
    Object result;
    try {
      result = method.invoke(null, passed.toArray());
    } catch (InvocationTargetException thrown) {
      if (!(thrown.getCause() instanceof Failure failure)) {
        throw thrown;
      }
      giveFailure(failure);
      return;
    }
    switch (f.returns()) {
      case "error" -> give("ok");
      case "text" -> giveText((byte[]) result);
      case "memory" -> giveMemory((Long) result, (Long) passed.get(0));
      case "handle" -> giveHandle((Long) result);
      case "void" -> {}
      default -> giveScalar(f.returns(), result);
    }
    int at = passed.size() - outs.size();
    for (Argument a : outs) {
      if (returned && results.contains(a)) {
        giveResult(a, result);
      } else if (a.role().equals("struct")) {
        giveStruct(a.base(), passed.get(passed.size() - 1));
      } else if (a.role().equals("handles")) {
        for (long handle : (long[]) passed.get(passed.size() - 1)) {
          giveHandle(handle);
        }
      } else {
        giveResult(a, Array.get(passed.get(at++), 0));
      }
    }
  }

  void giveResult(Argument a, Object value) {
    if (a.base().equals("epl_text")) {
      giveText((byte[]) value);
    } else if (a.role().equals("scalar")) {
      giveScalar(a.base(), value);
    } else {
      giveHandle((Long) value);
    }
  }

  Object in(Argument a, Class<?> type, Object value) throws Exception {
    boolean none = value.equals("NULL");
    return switch (a.role()) {
      case "text" -> bytes(value);
      case "bytes" -> memory(value);
      case "handle", "pointer" -> handle(value);
      case "struct" -> none ? null : fill(a.base(), value);
      case "callback" -> hook(value, a.base());
      case "handles" -> none ? null : ((List<?>) value).stream().mapToLong(this::handle).toArray();
      case "array" -> none ? null : ((List<?>) value).stream().mapToLong(this::integer).toArray();
      case "structs" -> {
        List<?> items = none ? List.of() : (List<?>) value;
        Object array = Array.newInstance(type.getComponentType(), items.size());
        for (int i = 0; i < items.size(); ++i) {
          Array.set(array, i, fill(a.base(), items.get(i)));
        }
        yield none ? null : array;
      }
      default -> scalar(type, value);
    };
  }

  // --- Lines

  byte[] text;
  int at;

  Object parsed() {
    while (at < text.length && text[at] <= ' ' && text[at] >= 0) {
      ++at;
    }
    if (at == text.length) {
      return null;
    }
    byte first = text[at++];
    if (first == '[') {
      List<Object> items = new ArrayList<>();
      for (Object item = parsed(); !item.equals("]"); item = parsed()) {
        items.add(item);
      }
      return items;
    }
    if (first == '{') {
      Map<Object, Object> items = new LinkedHashMap<>();
      for (Object key = parsed(); !key.equals("}"); key = parsed()) {
        items.put(key, parsed());
      }
      return items;
    }
    if (first == ']' || first == '}') {
      return first == ']' ? "]" : "}";
    }
    if (first != '"') {
      int begin = at - 1;
      while (at < text.length && " \t[]{}".indexOf(text[at]) < 0) {
        ++at;
      }
      return new String(text, begin, at - begin, StandardCharsets.UTF_8);
    }
    ByteArrayOutputStream made = new ByteArrayOutputStream();
    for (; text[at] != '"'; ++at) {
      int b = text[at];
      if (b == '\\') {
        b = text[++at];
        if (b == 'n') {
          b = '\n';
        } else if (b == 'x') {
          b = Integer.parseInt(new String(text, at + 1, 2, StandardCharsets.UTF_8), 16);
          at += 2;
        }
      }
      made.write(b);
    }
    ++at;
    return new Text(made.toByteArray());
  }

  boolean command(String name, List<Object> words) throws Exception {
    if (!List.of("buffer", "read", "cut", "write", "await", "signal").contains(name)) {
      return false;
    }
    String first = word(words.get(0));
    Object second = words.get(words.size() - 1);
    String done = name + ": " + first;
    switch (name) {
      case "buffer" -> names.set(first, bytes(second));
      case "read" -> names.set(first, Files.readAllBytes(Path.of(word(second))));
      case "signal" -> names.count(first);
      case "cut" -> names.set(first, Arrays.copyOf(names.buffer(first), (int) integer(second)));
      case "write" -> Files.write(Path.of(first), bytes(second));
      default -> done += " " + names.await(first, integer(second));
    }
    out.println(done);
    return true;
  }

  static String word(Object value) {
    return value instanceof Text text ? new String(text.bytes(), StandardCharsets.UTF_8) : (String) value;
  }

  void run(byte[] script) throws Exception {
    for (int begin = 0, end; begin < script.length; begin = end + 1) {
      for (end = begin; end < script.length && script[end] != '\n';) {
        ++end;
      }
      text = Arrays.copyOfRange(script, begin, end);
      at = 0;
      List<Object> words = new ArrayList<>();
      for (Object word = parsed(); word != null; word = parsed()) {
        words.add(word);
        if (word instanceof String w && w.startsWith("#") && words.size() == 1) {
          words.clear();
          break;
        }
      }
      if (words.isEmpty()) {
        continue;
      }
      quiet = words.get(0).equals("~");
      if (quiet) {
        words.remove(0);
      }
      String name = (String) words.remove(0);
      if (command(name, words)) {
        continue;
      }
      int arrow = words.indexOf("->") < 0 ? words.size() : words.indexOf("->");
      targets = new ArrayList<>();
      words.stream().skip(arrow + 1).forEach(word -> targets.add((String) word));
      line = new StringBuilder(name + ":");
      call(name, words.subList(0, arrow));
      out.println(line);
      if (name.endsWith("_destroy") && !words.get(0).equals("NULL")) {
        variables.put((String) words.get(0), 0L);
      }
    }
  }

  public static void main(String[] arguments) throws Exception {
    Raw.load(arguments[0]);
    Raw.failures = new Failure.Maker();
    new Tester(Path.of(arguments[1])).run(Files.readAllBytes(Path.of(arguments[2])));
  }
}
