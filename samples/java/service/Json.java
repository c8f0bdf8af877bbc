import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON (RFC 8259), as the JDK has none: objects are maps, numbers are Long where they are integers and fit, else Double. A
 * Double that is not finite is written as null.
 */
final class Json {
  private static final int DEEPEST = 100;

  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  static Object parse(String text) {
    Json json = new Json(text);
    Object value = json.value(0);
    json.space();
    if (json.at < text.length()) throw json.wrong("more than one document");
    return value;
  }

  private Failure wrong(String what) {
    return new Failure(400, "the JSON is wrong at character " + at + ": " + what);
  }

  private void space() {
    while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) ++at;
  }

  private boolean take(char wanted) {
    space();
    if (at == text.length() || text.charAt(at) != wanted) return false;
    ++at;
    return true;
  }

  private void want(char wanted) {
    if (!take(wanted)) throw wrong("'" + wanted + "' is expected");
  }

  private Object value(int depth) {
    if (depth > DEEPEST) throw wrong("it is nested too deep");
    if (take('{')) return object(depth);
    if (take('[')) return list(depth);
    space();
    if (at == text.length()) throw wrong("it ends early");
    if (text.charAt(at) == '"') return string();
    for (Object word : new Object[] {true, false, null}) {
      if (text.startsWith(String.valueOf(word), at)) {
        at += String.valueOf(word).length();
        return word;
      }
    }
    return number();
  }

  private Map<String, Object> object(int depth) {
    Map<String, Object> all = new LinkedHashMap<>();
    if (take('}')) return all;
    do {
      space();
      if (at == text.length() || text.charAt(at) != '"') throw wrong("a name in quotes is expected");
      String name = string();
      // Other readers take the first of them: two of them would see two documents.
      if (all.containsKey(name)) throw wrong("\"" + Failure.excerpt(name) + "\" stands twice in an object");
      want(':');
      all.put(name, value(depth + 1));
    } while (take(','));
    want('}');
    return all;
  }

  private List<Object> list(int depth) {
    List<Object> all = new ArrayList<>();
    if (take(']')) return all;
    do {
      all.add(value(depth + 1));
    } while (take(','));
    want(']');
    return all;
  }

  private String string() {
    StringBuilder out = new StringBuilder();
    for (++at; ; ++at) {
      if (at >= text.length()) throw wrong("a quote that is never closed");
      char c = text.charAt(at);
      if (c == '"') break;
      if (c < ' ') throw wrong("a control character in a text");
      if (c != '\\') {
        out.append(c);
        continue;
      }
      if (++at >= text.length()) throw wrong("it ends early");
      char kind = text.charAt(at);
      int known = "\"\\/bfnrt".indexOf(kind);
      if (known >= 0) {
        out.append("\"\\/\b\f\n\r\t".charAt(known));
      } else if (kind == 'u' && at + 4 < text.length() && text.substring(at + 1, at + 5).matches("[0-9a-fA-F]{4}")) {
        out.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
        at += 4;
      } else {
        throw wrong("an escape that there is not");
      }
    }
    ++at;
    return out.toString();
  }

  private Number number() {
    int begin = at;
    while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) ++at;
    String digits = text.substring(begin, at);
    if (!digits.matches("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?")) throw wrong("a value is expected");
    if (digits.matches("-?[0-9]{1,18}")) return Long.parseLong(digits);
    double number = Double.parseDouble(digits);
    if (Double.isInfinite(number)) throw wrong("a number that is too large"); // it would be written as null
    return number;
  }

  static String write(Object value) {
    StringBuilder out = new StringBuilder();
    write(value, out);
    return out.toString();
  }

  private static void write(Object value, StringBuilder out) {
    if (value instanceof Map<?, ?> map) {
      out.append('{');
      for (Iterator<? extends Map.Entry<?, ?>> all = map.entrySet().iterator(); all.hasNext(); ) {
        Map.Entry<?, ?> one = all.next();
        quote(one.getKey().toString(), out);
        out.append(':');
        write(one.getValue(), out);
        if (all.hasNext()) out.append(',');
      }
      out.append('}');
    } else if (value instanceof List<?> list) {
      out.append('[');
      for (int i = 0; i < list.size(); ++i) {
        if (i > 0) out.append(',');
        write(list.get(i), out);
      }
      out.append(']');
    } else if (value instanceof String string) {
      quote(string, out);
    } else if (value instanceof Double number && !Double.isFinite(number)) {
      out.append("null");
    } else {
      out.append(value);
    }
  }

  private static void quote(String string, StringBuilder out) {
    out.append('"');
    for (int i = 0; i < string.length(); ++i) {
      char c = string.charAt(i);
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ') {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    out.append('"');
  }
}
