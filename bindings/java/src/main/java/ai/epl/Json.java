package ai.epl;

import java.util.Collection;
import java.util.Map;

/** Writes what settings are given as: maps, lists, texts, numbers and truths. */
final class Json {
  private Json() {}

  static String of(Object value) {
    StringBuilder out = new StringBuilder();
    write(out, value);
    return out.toString();
  }

  private static void write(StringBuilder out, Object value) {
    if (value == null || value instanceof Boolean || value instanceof Number) {
      if (value instanceof Double || value instanceof Float) {
        double number = ((Number) value).doubleValue();
        if (!Double.isFinite(number)) throw new IllegalArgumentException(number + " is no number of JSON");
      }
      out.append(value);
    } else if (value instanceof Map<?, ?> map) {
      out.append('{');
      String comma = "";
      for (Map.Entry<?, ?> one : map.entrySet()) {
        out.append(comma);
        text(out, one.getKey().toString());
        out.append(':');
        write(out, one.getValue());
        comma = ",";
      }
      out.append('}');
    } else if (value instanceof Collection<?> list) {  // not any Iterable: a Path is one of its own names
      out.append('[');
      String comma = "";
      for (Object one : list) {
        out.append(comma);
        write(out, one);
        comma = ",";
      }
      out.append(']');
    } else {
      text(out, value.toString());
    }
  }

  private static void text(StringBuilder out, String text) {
    out.append('"');
    for (int i = 0; i < text.length(); ++i) {
      char c = text.charAt(i);
      if (c == '"' || c == '\\') out.append('\\').append(c);
      else if (c < 0x20) out.append(String.format("\\u%04x", (int) c));
      else out.append(c);
    }
    out.append('"');
  }
}
