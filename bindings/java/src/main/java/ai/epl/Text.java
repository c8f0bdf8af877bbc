package ai.epl;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/** Texts cross as UTF-8 bytes: JNI's own strings are of another encoding, which has no emoji. */
final class Text {
  private Text() {}

  static byte[] utf8(String text) {
    return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
  }

  static byte[] utf8(Path path) {
    return utf8(path.toString());
  }

  static String of(byte[] utf8) {
    return utf8 == null ? "" : new String(utf8, StandardCharsets.UTF_8);
  }
}
