package ai.epl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The library in the jar, by class loaders of their own, as web applications have them. */
class LoaderTest {
  private final String before = System.getProperty("java.io.tmpdir");
  private Path folder;

  @BeforeEach
  void open() throws IOException {
    folder = Files.createTempDirectory("epl-ladé-加载-😀-");
    System.setProperty("java.io.tmpdir", folder.toString());
  }

  @AfterEach
  void close() throws IOException {
    System.setProperty("java.io.tmpdir", before);
    for (Path path : all().sorted(Comparator.reverseOrder()).toList()) Files.delete(path);
  }

  private Stream<Path> all() throws IOException {
    return Files.walk(folder);
  }

  /** Engine.version() of another copy of the classes. */
  private static int version() throws Exception {
    URL jar = Path.of(System.getProperty("epl.jar")).toUri().toURL();
    URLClassLoader loader = new URLClassLoader(new URL[] {jar}, ClassLoader.getPlatformClassLoader());
    try {
      return (int) loader.loadClass("ai.epl.Engine").getMethod("version").invoke(null);
    } catch (InvocationTargetException error) {
      if (error.getCause() instanceof Error cause) throw cause;
      throw error;
    }
  }

  @Test
  void isUnpackedOnceAndLoadedByManyLoaders() throws Exception {
    for (int i = 0; i < 3; ++i) assertEquals(Engine.version(), version());
    List<Path> files = all().filter(Files::isRegularFile).toList();
    assertEquals(2, files.size(), files.toString());
    assertTrue(folder.relativize(files.get(0)).toString().startsWith("ai.epl-"));
  }

  @Test
  void aFolderWithSomethingElseInItIsRefused() throws Exception {
    assertEquals(Engine.version(), version());
    Path library = all().filter(file -> file.endsWith("libepl_jni.so")).findFirst().orElseThrow();
    Files.delete(library);
    Files.writeString(library, "something else");
    UnsatisfiedLinkError error = assertThrows(UnsatisfiedLinkError.class, LoaderTest::version);
    assertTrue(error.getMessage().contains("remove it"), error.getMessage());
  }

  @Test
  void aFolderThatCannotBeWrittenIsSaid() {
    System.setProperty("java.io.tmpdir", folder.resolve("nowhere").toString());
    UnsatisfiedLinkError error = assertThrows(UnsatisfiedLinkError.class, LoaderTest::version);
    assertTrue(error.getMessage().contains("java.io.tmpdir"), error.getMessage());
  }
}
