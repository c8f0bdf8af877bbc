import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A training service: clients upload a model and data, start jobs, watch them by server-sent events, ask for predictions
 * while they train, pause, resume, delete, and download what was learnt.
 *
 * <pre>
 * java -cp epl.jar:. TrainingService --folder DIR [--listen 127.0.0.1:8080] [--budget BYTES] [--quota BYTES]
 *      [--largest-upload BYTES] [--threads N] [--token-file FILE]
 * </pre>
 *
 * SIGTERM ends it: every job ends the step it is in and saves. Started again, it goes on. README.md has a session by curl.
 */
public final class TrainingService {
  private static final List<String> OPTIONS =
      List.of("--folder", "--listen", "--budget", "--quota", "--largest-upload", "--threads", "--token-file");

  private TrainingService() {}

  private static Map<String, String> options(String[] arguments) {
    Map<String, String> given = new HashMap<>();
    for (int i = 0; i < arguments.length; i += 2) {
      if (!OPTIONS.contains(arguments[i]) || i + 1 == arguments.length)
        throw new IllegalArgumentException("the options, each with a value, are " + String.join(", ", OPTIONS));
      given.put(arguments[i], arguments[i + 1]);
    }
    if (!given.containsKey("--folder")) throw new IllegalArgumentException("--folder is missing");
    return given;
  }

  private static long number(Map<String, String> options, String name, long otherwise) {
    return options.containsKey(name) ? Long.parseLong(options.get(name)) : otherwise;
  }

  private static String token(Map<String, String> options) throws IOException {
    String file = options.get("--token-file");
    if (file == null) return "";
    String token = Files.readString(Path.of(file)).strip();
    if (token.isEmpty()) throw new IllegalArgumentException(file + " is empty");
    return token;
  }

  /** One that other hosts reach is not opened without a token. */
  private static InetSocketAddress address(String text, String token) throws IOException {
    int colon = text.lastIndexOf(':');
    if (colon < 0) throw new IllegalArgumentException("--listen is HOST:PORT");
    InetAddress host = InetAddress.getByName(text.substring(0, colon));
    if (token.isEmpty() && !host.isLoopbackAddress())
      throw new IllegalArgumentException(text + " is reached from other hosts, so clients need a token: --token-file");
    return new InetSocketAddress(host, Integer.parseInt(text.substring(colon + 1)));
  }

  private static byte[] page() throws IOException {
    try (InputStream page = TrainingService.class.getResourceAsStream("/page.html")) {
      if (page == null) throw new IOException("page.html is not on the class path: copy it from samples/service");
      return page.readAllBytes();
    }
  }

  private static void serve(Map<String, String> options) throws Exception {
    String token = token(options);
    Uploads.Limits limits = new Uploads.Limits(number(options, "--budget", 0), number(options, "--quota", 20L << 30),
        number(options, "--largest-upload", 8L << 30));
    byte[] page = page();
    // This server writes head and body of an answer apart. Without this the body waits 40 ms for the client's ACK.
    System.setProperty("sun.net.httpserver.nodelay", "true");
    System.setProperty("sun.net.httpserver.maxReqTime", "600"); // seconds for a request, with its upload
    // A door that cannot be opened is found before a job trains.
    HttpServer server = HttpServer.create(address(options.getOrDefault("--listen", "127.0.0.1:8080"), token), 0);
    Manager manager = new Manager(Path.of(options.get("--folder")), limits, (int) number(options, "--threads", 0));
    ExecutorService requests = Executors.newCachedThreadPool();
    server.setExecutor(requests);
    server.createContext("/", new Door(manager, token, page));
    CountDownLatch asked = new CountDownLatch(1);
    Thread main = Thread.currentThread();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      asked.countDown();
      join(main);
    }));
    server.start();
    InetSocketAddress at = server.getAddress();
    System.out.println("listening on http://" + at.getAddress().getHostAddress() + ":" + at.getPort());
    asked.await();
    manager.close(); // first: it ends the streams of events
    server.stop(1);
    requests.shutdownNow();
  }

  private static void join(Thread main) {
    try {
      main.join();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  public static void main(String[] arguments) throws Exception {
    try {
      serve(options(arguments));
    } catch (Exception error) {
      System.err.println("the service ends: " + error.getMessage());
      System.exit(1);
    }
    Runtime.getRuntime().halt(0); // SIGTERM is how it ends, and not a failure
  }
}
