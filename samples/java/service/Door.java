import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpHandler;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URI;
import java.net.URLDecoder;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;

/** Answers clients of a manager by HTTP. */
final class Door implements HttpHandler {
  private static final int LARGEST_DOCUMENT = 16 << 20;
  private static final int MOST_DRAINED = 64 << 20;
  private static final long QUIET = 15_000;

  /** What a host of this machine alone is called, as all the services say it. */
  private static final Pattern LOOPBACK = Pattern.compile(
      "(?:localhost|127(?:\\.(?:0|[1-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])){3}|\\[::1\\])(?::[0-9]{0,5})?",
      Pattern.CASE_INSENSITIVE);

  private final Manager manager;
  private final String token; // empty: clients bring none
  private final byte[] page;

  Door(Manager manager, String token, byte[] page) {
    this.manager = manager;
    this.token = token;
    this.page = page;
  }

  @Override
  public void handle(HttpExchange call) throws IOException {
    try {
      guard(call);
      route(call);
    } catch (Exception | StackOverflowError | OutOfMemoryError error) {
      if (call.getResponseCode() < 0) refuse(call, error);
    } finally {
      call.close();
    }
  }

  // --- Who may ask

  /**
   * Refuses what a browser sends for a page of somebody else: pages that a user of this machine looks at reach every
   * address that the machine reaches. A token keeps them out by itself, so that then any name of the host will do.
   */
  private void guard(HttpExchange call) {
    URI target = call.getRequestURI();
    if (call.getRequestHeaders().getOrDefault("Host", List.of()).size() != 1)
      throw new Failure(400, "the request has not one header Host");
    // A target that names a host counts before the header.
    String host = target.isAbsolute() ? String.valueOf(target.getRawAuthority()) : header(call, "Host");
    String origin = header(call, "Origin");
    boolean foreign = token.isEmpty() && !LOOPBACK.matcher(host).matches()
        || !origin.isEmpty() && !host.equalsIgnoreCase(authority(origin))
        || header(call, "Sec-Fetch-Site").equals("cross-site") && !method(call).equals("GET");
    if (foreign) throw new Failure(403, "the request comes from another site's page, or asks for another host");
    if (target.getPath().equals("/") || token.isEmpty()) return;
    // In a time that does not tell how much of a token was right.
    if (MessageDigest.isEqual(tokenOf(call).getBytes(StandardCharsets.UTF_8), token.getBytes(StandardCharsets.UTF_8))) return;
    call.getResponseHeaders().set("WWW-Authenticate", "Bearer");
    throw new Failure(401, "this service wants a bearer token");
  }

  private static String header(HttpExchange call, String name) {
    String value = call.getRequestHeaders().getFirst(name);
    return value == null ? "" : value;
  }

  private static String authority(String origin) {
    int at = origin.indexOf("://");
    return at < 0 ? "" : origin.substring(at + 3);
  }

  /** The page's EventSource cannot set a header, so a token may come in the query as well. */
  private static String tokenOf(HttpExchange call) {
    String given = header(call, "Authorization");
    if (!given.isEmpty()) return given.toLowerCase(Locale.ROOT).startsWith("bearer ") ? given.substring(7).strip() : "";
    String query = call.getRequestURI().getRawQuery();
    for (String one : query == null ? new String[0] : query.split("&")) {
      if (one.startsWith("token=")) return URLDecoder.decode(one.substring(6), StandardCharsets.UTF_8);
    }
    return "";
  }

  // --- What is asked

  /** What is asked for with a HEAD is answered as with a GET, without the body. */
  private static String method(HttpExchange call) {
    return isHead(call) ? "GET" : call.getRequestMethod();
  }

  private static boolean isHead(HttpExchange call) {
    return call.getRequestMethod().equals("HEAD");
  }

  private void route(HttpExchange call) throws Exception {
    URI target = call.getRequestURI();
    String path = target.getRawPath();
    // "//name/..." is a path, whatever java.net.URI makes of it; and nothing here has a name that must be escaped.
    if (target.toString().startsWith("//") || path.contains("%")) throw Failure.unknown();
    List<String> parts = new ArrayList<>(List.of(path.split("/", -1)));
    parts.remove(0);
    String method = method(call);
    if (parts.equals(List.of("")) && method.equals("GET")) {
      call.getResponseHeaders().set("Content-Type", "text/html; charset=utf-8");
      call.getResponseHeaders().set("Content-Security-Policy",
          "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'");
      send(call, 200, page);
    } else if (parts.size() < 2 || parts.size() > 4 || !parts.get(0).equals("v1") || parts.contains("")) {
      throw Failure.unknown();
    } else {
      String kind = method + " " + parts.get(1) + (parts.size() > 2 ? "/*" : "") + (parts.size() > 3 ? "/" + parts.get(3) : "");
      answer(call, kind, parts.size() > 2 ? parts.get(2) : "");
    }
  }

  private void answer(HttpExchange call, String kind, String id) throws Exception {
    switch (kind) {
      case "GET uploads" -> json(call, 200, manager.uploads.list(manager::users));
      case "POST uploads/*" -> json(call, 200, manager.uploads.add(id, call.getRequestBody()));
      case "DELETE uploads/*" -> json(call, 200, manager.deleteUpload(id));
      case "GET events" -> events(call, null);
      case "GET jobs" -> json(call, 200, manager.list().stream().map(Status::json).toList());
      case "POST jobs" -> {
        Status made = manager.create(Spec.of(document(call))).status();
        call.getResponseHeaders().set("Location", "/v1/jobs/" + made.id());
        json(call, 201, made.json());
      }
      case "GET jobs/*" -> json(call, 200, manager.job(id).status().json());
      case "DELETE jobs/*" -> json(call, 200, manager.delete(manager.job(id)).json());
      case "GET jobs/*/plan" -> {
        call.getResponseHeaders().set("Content-Type", "text/plain; charset=utf-8");
        send(call, 200, manager.job(id).explain().getBytes(StandardCharsets.UTF_8));
      }
      case "POST jobs/*/start", "POST jobs/*/resume" -> json(call, 200, manager.job(id).setPhase(Status.RUNNING).json());
      case "POST jobs/*/pause" -> json(call, 200, manager.job(id).setPhase(Status.PAUSED).json());
      case "POST jobs/*/checkpoint" -> json(call, 200, manager.job(id).saveNow().json());
      case "POST jobs/*/predict" -> predict(call, manager.job(id));
      case "GET jobs/*/model" -> download(call, manager.job(id));
      case "GET jobs/*/history" -> json(call, 200, manager.job(id).history.json());
      case "GET jobs/*/events" -> events(call, manager.job(id));
      default -> throw Failure.unknown();
    }
  }

  /** A body of JSON. A form of another page's can say text/plain, not application/json. */
  private static Object document(HttpExchange call) throws IOException {
    String type = header(call, "Content-Type").split(";", 2)[0].strip();
    if (!type.equalsIgnoreCase("application/json"))
      throw new Failure(415, "the body is JSON, with the header Content-Type: application/json");
    byte[] bytes = call.getRequestBody().readNBytes(LARGEST_DOCUMENT + 1);
    if (bytes.length > LARGEST_DOCUMENT)
      throw new Failure(413, "the body is too large: it may have " + LARGEST_DOCUMENT + " bytes");
    try {
      return Json.parse(StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString());
    } catch (CharacterCodingException error) {
      throw new Failure(400, "the body is not UTF-8");
    }
  }

  /** It takes {"inputs": {"x": {"dims": [2, 4], "values": [...]}}}, and gives outputs in the same form. */
  private static void predict(HttpExchange call, Job job) throws IOException {
    Map<String, Object> asked = Spec.object(document(call), "the job");
    for (String name : asked.keySet()) {
      if (!name.equals("inputs")) throw new Failure(400, "there is no field \"" + Failure.excerpt(name) + "\"");
    }
    Map<String, Object> answer = job.predict(Spec.object(asked.get("inputs"), "inputs"));
    Map<String, Object> ordered = new LinkedHashMap<>();
    for (String name : List.of("step", "outputs")) ordered.put(name, answer.get(name));
    json(call, 200, ordered);
  }

  private static void download(HttpExchange call, Job job) throws Exception {
    Job.Export export = job.export();
    try (InputStream file = export.stream()) {
      call.getResponseHeaders().set("Content-Type", "application/octet-stream");
      call.getResponseHeaders().set("Content-Disposition", "attachment; filename=\"trained.onnx\"");
      begin(call, 200, export.bytes());
      if (!isHead(call)) file.transferTo(call.getResponseBody());
    }
  }

  /** The status of a job, or of all, as server-sent events: now, and after each change. */
  private void events(HttpExchange call, Job job) throws Exception {
    String id = job == null ? null : job.status().id();
    try (Board.Watcher watcher = manager.board.watch(id)) {
      call.getResponseHeaders().set("Content-Type", "text/event-stream");
      call.getResponseHeaders().set("Cache-Control", "no-store");
      call.sendResponseHeaders(200, isHead(call) ? -1 : 0);
      if (isHead(call)) return;
      OutputStream out = call.getResponseBody();
      write(out, ": alive\n\n");
      List<Status> now = job == null ? manager.list() : List.of(job.status());
      for (List<Status> news = now; ; news = watcher.take(QUIET)) {
        for (Status one : news) {
          write(out, "id: " + one.step() + "\ndata: " + Json.write(one.json()) + "\n\n");
          if (job != null && one.isOver()) return;
        }
        if (news.isEmpty()) write(out, ": alive\n\n");
        if (manager.board.isEnded()) return;
        Thread.sleep(job == null ? 100 : 10); // a step may take some microseconds, and there may be many jobs
      }
    }
  }

  private static void write(OutputStream out, String text) throws IOException {
    out.write(text.getBytes(StandardCharsets.UTF_8));
    out.flush();
  }

  // --- Answers

  private static void json(HttpExchange call, int status, Object value) throws IOException {
    call.getResponseHeaders().set("Content-Type", "application/json");
    send(call, status, Json.write(value).getBytes(StandardCharsets.UTF_8));
  }

  private static void send(HttpExchange call, int status, byte[] bytes) throws IOException {
    begin(call, status, bytes.length);
    if (!isHead(call)) call.getResponseBody().write(bytes);
  }

  private static void begin(HttpExchange call, int status, long bytes) throws IOException {
    if (isHead(call)) call.getResponseHeaders().set("Content-Length", String.valueOf(bytes));
    call.sendResponseHeaders(status, isHead(call) || bytes == 0 ? -1 : bytes);
  }

  /** A client that is still sending reads the answer only when it has sent all. */
  private void refuse(HttpExchange call, Throwable error) throws IOException {
    byte[] piece = new byte[256 << 10];
    InputStream body = call.getRequestBody();
    for (int drained = 0, n; drained < MOST_DRAINED && (n = body.read(piece)) >= 0; ) drained += n;
    json(call, Failure.of(error).status, Map.of("error", manager.told(error)));
  }
}
