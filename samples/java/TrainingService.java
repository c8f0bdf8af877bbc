// A service that trains a model and answers predictions meanwhile, on the loopback address:
//
//   java -cp epl.jar TrainingService.java FOLDER [PORT]
//
//   GET  /status      {"step": 120, "loss": 0.031, "training": true}
//   POST /train?steps=1000
//   POST /predict     a line "1,0.5,-1,2" for each sample; answers a line of scores for each
//   POST /stop        ends the training, writes a checkpoint and ends the process; the next start goes on from there
import ai.epl.CallOptions;
import ai.epl.Engine;
import ai.epl.EngineOptions;
import ai.epl.EplException;
import ai.epl.Metrics;
import ai.epl.Model;
import ai.epl.Plan;
import ai.epl.Session;
import ai.epl.Tensor;
import ai.epl.Trainer;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

public final class TrainingService implements AutoCloseable {
  private static final int BATCH = 32;
  private static final int INPUTS = 4;

  private final Path checkpoint;
  private final Engine engine = Engine.create(new EngineOptions().threads(1));
  private final Session session;
  private final Random random = new Random(7);
  /** A session has one caller at a time. Steps and predictions are tasks of one thread, and take turns. */
  private final ExecutorService owner = Executors.newSingleThreadExecutor();
  private final CountDownLatch stopped = new CountDownLatch(1);
  private volatile Metrics last;
  private volatile long stepsLeft;

  TrainingService(Path folder) throws IOException {
    checkpoint = folder.resolve("checkpoint");
    Path file = folder.resolve("model.onnx");
    Files.createDirectories(folder);
    if (Files.notExists(file)) engine.writeTemplate("mlp", "{\"sizes\": [4, 16, 2], \"seed\": 1}", file);
    try (Model model = engine.loadModel(file); Trainer trainer = engine.newTrainer()) {
      trainer.set("optimizer", "adam").set("optimizer.lr", 0.01).bindSymbol("batch", BATCH);
      try (Plan plan = model.plan(trainer)) {
        session = plan.newSession();
      }
    }
    if (Files.exists(checkpoint)) session.load(checkpoint);
  }

  /** What is learned: whether the first number of a sample is above the second. */
  private Metrics step() {
    float[] x = new float[BATCH * INPUTS];
    long[] target = new long[BATCH];
    for (int i = 0; i < x.length; ++i) x[i] = random.nextFloat() * 2 - 1;
    for (int i = 0; i < BATCH; ++i) target[i] = x[INPUTS * i] > x[INPUTS * i + 1] ? 1 : 0;
    try (Tensor inputs = engine.tensorOf(x, BATCH, INPUTS); Tensor targets = engine.tensorOf(target, BATCH)) {
      return session.step(List.of(inputs, targets), CallOptions.within(Duration.ofSeconds(10)));
    }
  }

  /** One step, and then the next one behind all requests that have come meanwhile. */
  private void train() {
    if (stepsLeft <= 0) return;
    try {
      last = step();
      --stepsLeft;
      owner.execute(this::train);
    } catch (RuntimeException error) {
      stepsLeft = 0;
      throw error;
    }
  }

  private String predict(String body) {
    List<String> samples = body.strip().lines().toList();
    float[] x = new float[samples.size() * INPUTS];
    for (int i = 0; i < samples.size(); ++i) {
      String[] values = samples.get(i).split(",");
      for (int j = 0; j < INPUTS; ++j) x[INPUTS * i + j] = Float.parseFloat(values[j]);
    }
    float[] scores;
    try (Tensor inputs = engine.tensorOf(x, samples.size(), INPUTS);
        Tensor outputs = session.predict(List.of(inputs)).get(0)) {
      scores = outputs.toFloats();
    }
    StringJoiner lines = new StringJoiner("\n", "", "\n");
    for (int i = 0; i < samples.size(); ++i) lines.add(scores[2 * i] + "," + scores[2 * i + 1]);
    return lines.toString();
  }

  private String status() {
    Metrics metrics = last;
    return "{\"step\": " + session.steps() + ", \"loss\": " + (metrics == null ? "null" : metrics.loss())
        + ", \"training\": " + (stepsLeft > 0) + "}\n";
  }

  private interface Answer {
    String to(HttpExchange request) throws Exception;
  }

  private void serve(HttpServer server, String path, Answer answer) {
    server.createContext(path, request -> {
      int code = 200;
      String text;
      try {
        text = answer.to(request);
      } catch (Exception error) {
        Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
        boolean ours = cause instanceof EplException epl && epl.isRetryable();
        code = ours ? 503 : 400;
        text = cause.getMessage() + "\n";
      }
      byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
      request.sendResponseHeaders(code, bytes.length);
      try (var body = request.getResponseBody()) {
        body.write(bytes);
      }
    });
  }

  void run(int port) throws IOException, InterruptedException {
    // This server writes head and body of an answer apart. Without this the body waits 40 ms for the client's ACK.
    System.setProperty("sun.net.httpserver.nodelay", "true");
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 0);
    ExecutorService requests = Executors.newFixedThreadPool(4);
    server.setExecutor(requests);
    serve(server, "/status", request -> status());
    serve(server, "/train", request -> owner.submit(() -> {
      boolean idle = stepsLeft <= 0;
      stepsLeft += Long.parseLong(request.getRequestURI().getQuery().replace("steps=", ""));
      if (idle) owner.execute(this::train);
      return status();
    }).get());
    serve(server, "/predict", request -> {
      String body = new String(request.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
      return owner.submit(() -> predict(body)).get();
    });
    serve(server, "/stop", request -> owner.submit(() -> {
      stepsLeft = 0;
      session.save(checkpoint);
      stopped.countDown();
      return status();
    }).get());
    server.start();
    System.out.println("http://127.0.0.1:" + server.getAddress().getPort());
    stopped.await();
    server.stop(1);
    requests.shutdown();
  }

  @Override
  public void close() {
    owner.shutdown();
    session.close();
    engine.close();
  }

  public static void main(String[] arguments) throws Exception {
    try (TrainingService service = new TrainingService(Path.of(arguments[0]))) {
      service.run(arguments.length > 1 ? Integer.parseInt(arguments[1]) : 8080);
    }
    if (Engine.liveHandles() != 0) throw new IllegalStateException(Engine.liveHandles() + " objects are left");
  }
}
