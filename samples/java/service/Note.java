import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/** Files and folders of the service. */
final class Note {
  private Note() {}

  /** Writes a file whole or not at all. */
  static void write(Path file, String text) throws IOException {
    Path beside = file.resolveSibling(file.getFileName() + ".new");
    Files.writeString(beside, text);
    Files.move(beside, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }

  /** Removes a folder with all that is in it; one that is not there is gone already. */
  static void remove(Path folder) throws IOException {
    if (Files.notExists(folder)) return;
    List<Path> all;
    try (Stream<Path> found = Files.walk(folder)) {
      all = found.sorted(Comparator.reverseOrder()).toList();
    }
    for (Path one : all) Files.deleteIfExists(one);
  }

  /** What a folder holds, in the order of the names. */
  static List<Path> list(Path folder) throws IOException {
    try (Stream<Path> found = Files.list(folder)) {
      return found.sorted().toList();
    }
  }
}
