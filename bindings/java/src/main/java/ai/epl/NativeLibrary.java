package ai.epl;

import ai.epl.raw.Raw;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.TimeoutException;

/**
 * Loads the native library once: from the folder in the system property {@code ai.epl.library}, or from the jar, out of
 * which it is unpacked into a folder of the temporary folder that has its name from what is in it. A jar without it is
 * that of a system which has it in a folder of {@code java.library.path}.
 */
final class NativeLibrary {
  private static final String LOADED = "libepl_jni.so";
  private static final String[] FILES = {"libepl.so.1", LOADED};
  private static final Set<PosixFilePermission> MINE = PosixFilePermissions.fromString("rwx------");
  private static boolean loaded;

  private NativeLibrary() {}

  static synchronized void load() {
    if (loaded) return;
    String given = System.getProperty("ai.epl.library");
    try {
      open((given != null ? Path.of(given) : inJar() ? unpacked() : ofSystem()).resolve(LOADED));
    } catch (IOException error) {
      throw failure("the native library cannot be unpacked into " + System.getProperty("java.io.tmpdir")
          + ": set java.io.tmpdir to a folder that can be written, or ai.epl.library to one that has it", error);
    }
    Raw.failures = new Failures();
    loaded = true;
  }

  private static void open(Path library) throws IOException {
    try {
      Raw.load(library.toAbsolutePath().toString());
    } catch (UnsatisfiedLinkError error) {
      if (!String.valueOf(error.getMessage()).contains("another classloader")) {
        throw failure(library + " cannot be loaded. Where programs may not run from this folder, set java.io.tmpdir to "
            + "another one, or ai.epl.library to one that has it", error);
      }
      // A file can be loaded by one class loader alone: another web application, a task of Spark. It gets its own.
      Path folder = library.getParent();
      if (!Files.isWritable(folder)) folder = Path.of(System.getProperty("java.io.tmpdir"));
      Path copy = Files.createTempFile(folder, "libepl_jni", ".so");
      try {
        Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
        Raw.load(copy.toAbsolutePath().toString());
      } finally {
        Files.deleteIfExists(copy);
      }
    }
  }

  private static String platform() {
    return System.getProperty("os.name").toLowerCase(Locale.ROOT) + "-" + System.getProperty("os.arch");
  }

  private static String inJar(String file) {
    return "native/" + platform() + "/" + file;
  }

  private static boolean inJar() {
    return NativeLibrary.class.getResource(inJar(FILES[0])) != null;
  }

  private static Path ofSystem() {
    for (String folder : System.getProperty("java.library.path", "").split(File.pathSeparator)) {
      if (!folder.isEmpty() && Files.exists(Path.of(folder, LOADED))) return Path.of(folder);
    }
    throw failure("this jar has no library for " + platform() + ", and no folder of java.library.path has "
        + LOADED + ": set ai.epl.library to a folder that has it", null);
  }

  private static Path unpacked() throws IOException {
    byte[][] contents = new byte[FILES.length][];
    for (int i = 0; i < FILES.length; ++i) {
      try (InputStream stream = NativeLibrary.class.getResourceAsStream(inJar(FILES[i]))) {
        contents[i] = stream.readAllBytes();
      }
    }
    Path temporary = Path.of(System.getProperty("java.io.tmpdir"));
    Path folder = temporary.resolve("ai.epl-" + System.getProperty("user.name") + "-" + hash(contents));
    if (!Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS)) {
      Path made = Files.createTempDirectory(temporary, "ai.epl-", PosixFilePermissions.asFileAttribute(MINE));
      for (int i = 0; i < FILES.length; ++i) Files.write(made.resolve(FILES[i]), contents[i]);
      try {
        Files.move(made, folder, StandardCopyOption.ATOMIC_MOVE);
      } catch (IOException another) {
        // Another process was first. What it has put there is looked at like what was there before.
        for (String file : FILES) Files.deleteIfExists(made.resolve(file));
        Files.deleteIfExists(made);
        if (!Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS)) throw another;
      }
    }
    // Anybody can make a folder of that name: it must be this user's, and have what the jar has.
    byte[][] found = new byte[FILES.length][];
    for (int i = 0; i < FILES.length; ++i) found[i] = Files.readAllBytes(folder.resolve(FILES[i]));
    if (!Files.getPosixFilePermissions(folder, LinkOption.NOFOLLOW_LINKS).equals(MINE) || !isMine(temporary, folder)
        || !Arrays.deepEquals(found, contents)) {
      throw failure(folder + " is not what this program has put there: remove it", null);
    }
    return folder;
  }

  private static boolean isMine(Path temporary, Path folder) throws IOException {
    Path probe = Files.createTempFile(temporary, "ai.epl-", "");
    try {
      return Files.getOwner(probe).equals(Files.getOwner(folder, LinkOption.NOFOLLOW_LINKS));
    } finally {
      Files.deleteIfExists(probe);
    }
  }

  private static String hash(byte[][] contents) {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      for (byte[] content : contents) digest.update(content);
      return HexFormat.of().formatHex(digest.digest(), 0, 8);
    } catch (NoSuchAlgorithmException everyJavaHasIt) {
      throw new IllegalStateException(everyJavaHasIt);
    }
  }

  private static UnsatisfiedLinkError failure(String message, Throwable cause) {
    UnsatisfiedLinkError error = new UnsatisfiedLinkError(message);
    error.initCause(cause);
    return error;
  }

  /** Errors become exceptions, and what callbacks throw becomes errors. */
  private static final class Failures implements Raw.Failures {
    @Override
    public RuntimeException make(int code, byte[] message, byte[] where, long rank, boolean retryable) {
      return new EplException(ErrorCode.of(code), Text.of(message), Text.of(where), rank, retryable);
    }

    @Override
    public int codeOf(Throwable thrown) {
      return meant(thrown).number;
    }

    private static ErrorCode meant(Throwable thrown) {
      if (thrown instanceof EplException error) return error.code();
      if (thrown instanceof FileNotFoundException || thrown instanceof NoSuchFileException) return ErrorCode.NOT_FOUND;
      if (thrown instanceof IOException || thrown instanceof UncheckedIOException) return ErrorCode.IO;
      if (thrown instanceof TimeoutException) return ErrorCode.DEADLINE_EXCEEDED;
      if (thrown instanceof InterruptedException) return ErrorCode.CANCELLED;
      return thrown instanceof OutOfMemoryError ? ErrorCode.OUT_OF_MEMORY : ErrorCode.INTERNAL;
    }

    @Override
    public byte[] messageOf(Throwable thrown) {
      return Text.utf8(thrown instanceof EplException ? thrown.getMessage() : thrown.toString());
    }
  }
}
