import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.regex.Pattern;

/** The files that clients have brought. */
final class Uploads {
  /** What clients may have together; 0: no limit. */
  record Limits(long budget, long quota, long largest) {}

  private static final String PART = ".part";
  /** What a client may name a file: it becomes part of a path. */
  private static final Pattern PLAIN = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,100}");

  private final Path folder;
  private final Limits limits;
  private long used; // bytes of all, those that are on their way among them

  /** Takes up a folder. What did not arrive in full is removed. */
  Uploads(Path folder, Limits limits) throws IOException {
    this.folder = folder;
    this.limits = limits;
    for (Path one : Note.list(folder)) {
      if (one.toString().endsWith(PART)) {
        Files.delete(one);
      } else {
        used += Files.size(one);
      }
    }
  }

  private static boolean isPlain(String name) {
    return PLAIN.matcher(name).matches() && !name.endsWith(PART);
  }

  /** Makes room for bytes, or says that there is none; a negative number gives room back. */
  private synchronized void take(long bytes) {
    if (limits.quota > 0 && bytes > limits.quota - used)
      throw new Failure(507, "there is no room for the upload: all uploads together may have " + limits.quota
          + " bytes; delete some");
    used += bytes;
  }

  private static Map<String, Object> json(String id, long bytes, List<String> jobs) {
    Map<String, Object> out = new LinkedHashMap<>();
    out.put("id", id);
    out.put("bytes", bytes);
    out.put("jobs", jobs);
    return out;
  }

  /** Keeps a file under an id, which ends in its name, so that a reader is found by the ending. */
  Map<String, Object> add(String name, InputStream body) throws IOException {
    if (!isPlain(name)) throw new Failure(400, "\"" + Failure.excerpt(name) + "\" is no plain file name");
    String id = Manager.newId() + "-" + name;
    Path part = folder.resolve(id + PART);
    long bytes = 0;
    boolean kept = false;
    try {
      try (OutputStream file = Files.newOutputStream(part)) {
        byte[] piece = new byte[256 << 10];
        for (int n; (n = body.read(piece)) >= 0; bytes += n) {
          if (limits.largest > 0 && bytes + n > limits.largest)
            throw new Failure(413, "the upload is too large: it may have " + limits.largest + " bytes");
          take(n);
          file.write(piece, 0, n);
        }
      }
      try (FileChannel file = FileChannel.open(part, StandardOpenOption.WRITE)) {
        file.force(true);
      }
      Files.move(part, folder.resolve(id), StandardCopyOption.ATOMIC_MOVE);
      kept = true;
    } finally {
      if (!kept) {
        take(-bytes);
        Files.deleteIfExists(part);
      }
    }
    return json(id, bytes, List.of());
  }

  /** The path of an upload. */
  Path find(String id) {
    if (isPlain(id) && Files.exists(folder.resolve(id))) return folder.resolve(id);
    throw new Failure(404, "there is no such upload: " + Failure.excerpt(id));
  }

  /** All, in the order of their ids; `users` says which jobs use one. */
  List<Object> list(Function<String, List<String>> users) throws IOException {
    List<Object> all = new ArrayList<>();
    for (Path one : Note.list(folder)) {
      String id = one.getFileName().toString();
      if (!id.endsWith(PART)) all.add(json(id, Files.size(one), users.apply(id)));
    }
    return all;
  }

  /** Gives back the room of an upload that no job uses. */
  Map<String, Object> remove(String id, Function<String, List<String>> users) throws IOException {
    Path path = find(id);
    List<String> jobs = users.apply(id);
    if (!jobs.isEmpty()) throw new Failure(409, "the upload is in use: it belongs to job " + jobs.get(0));
    long bytes = Files.size(path);
    if (!Files.deleteIfExists(path)) throw Failure.unknown(); // another client was first
    take(-bytes);
    return json(id, bytes, jobs);
  }
}
