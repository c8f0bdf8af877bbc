package ai.epl;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** A small model to train, with data that it can learn: the class of a sample is the sign of its first number. */
final class World implements AutoCloseable {
  static final int BATCH = 8;

  /** Handles that were alive before; one of the tests leaves some behind. */
  final long before = Engine.liveHandles();
  final Engine engine;
  final Path folder;
  final Path model;

  World() throws IOException {
    this(new EngineOptions().threads(1), "[4, 16, 2]");
  }

  World(EngineOptions options, String sizes) throws IOException {
    // A name with a character that JNI's own strings cannot hold.
    folder = Files.createTempDirectory("epl-😀-");
    model = folder.resolve("modèle-模型-😀.onnx");
    engine = Engine.create(options);
    engine.writeTemplate("mlp", "{\"sizes\": " + sizes + ", \"seed\": 1}", model);
  }

  Trainer trainer(int batch) {
    return engine.newTrainer().set("optimizer", "adam").set("optimizer.lr", 0.05).bindSymbol("batch", batch);
  }

  Plan plan(int batch) {
    try (Model source = engine.loadModel(model); Trainer trainer = trainer(batch)) {
      return source.plan(trainer);
    }
  }

  Session session() {
    try (Plan plan = plan(BATCH)) {
      return plan.newSession();
    }
  }

  /** A model whose steps take a while: 512 samples through three products of 1,024 by 1,024. */
  static World slow(System.Logger log) throws IOException {
    return new World(new EngineOptions().threads(1).logger(log).logLevel(System.Logger.Level.DEBUG),
        "[1024, 1024, 1024, 2]");
  }

  Session slowSession() {
    try (Plan plan = plan(512)) {
      return plan.newSession();
    }
  }

  List<Tensor> slowBatch() {
    return List.of(engine.newTensor(DataType.F32, 512, 1024), engine.newTensor(DataType.I64, 512));
  }

  static float[] inputs() {
    float[] values = new float[BATCH * 4];
    for (int i = 0; i < values.length; ++i) values[i] = i % 4 == 0 ? (i / 4 % 2 == 0 ? 1 : -1) : 0.1f * (i % 3);
    return values;
  }

  static long[] targets() {
    long[] values = new long[BATCH];
    for (int i = 0; i < BATCH; ++i) values[i] = i % 2;
    return values;
  }

  List<Tensor> batch() {
    return List.of(engine.tensorOf(inputs(), BATCH, 4), engine.tensorOf(targets(), BATCH));
  }

  static void close(List<Tensor> tensors) {
    tensors.forEach(Tensor::close);
  }

  @Override
  public void close() throws IOException {
    engine.close();
    try (var files = Files.walk(folder)) {
      for (Path file : files.sorted(java.util.Comparator.reverseOrder()).toList()) Files.delete(file);
    }
  }
}
