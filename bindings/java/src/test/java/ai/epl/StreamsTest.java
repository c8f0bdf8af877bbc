package ai.epl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Checkpoints, exports, plans and models without files. */
class StreamsTest {
  @Test
  void aCheckpointGoesThroughAStream() throws Exception {
    try (World world = new World(); Session session = world.session(); Session other = world.session()) {
      List<Tensor> batch = world.batch();
      for (int i = 0; i < 3; ++i) session.step(batch);
      ByteArrayOutputStream stream = new ByteArrayOutputStream();
      session.save(stream, null, CallOptions.NONE);
      other.load(Source.of(new ByteArrayInputStream(stream.toByteArray())), null, CallOptions.NONE);
      assertEquals(session.hash(), other.hash());
      assertEquals(session.step(batch), withTime(other.step(batch), session.progress()));

      // As a file it is a checkpoint like others, and as an open file a source.
      Path file = Files.write(world.folder.resolve("Checkpoint-检查点-😀.zip"), stream.toByteArray());
      other.load(file);
      long saved = other.hash();
      other.step(batch);
      try (FileChannel open = FileChannel.open(file)) {
        other.load(Source.of(open), null, CallOptions.NONE);
      }
      assertEquals(saved, other.hash());
      assertTrue(world.engine.describeCheckpoint(file).contains("\"step\""));
      World.close(batch);
    }
  }

  private static Metrics withTime(Metrics metrics, Metrics of) {
    return new Metrics(metrics.step(), metrics.loss(), metrics.gradientNorm(), metrics.learningRate(), of.time());
  }

  @Test
  void aStreamThatFailsIsTheCauseAndChangesNothing() throws Exception {
    try (World world = new World(); Session session = world.session()) {
      List<Tensor> batch = world.batch();
      session.step(batch);
      long hash = session.hash();
      IOException full = new IOException("the bucket is full 😀");
      OutputStream broken = new OutputStream() {
        private int left = 100;

        @Override
        public void write(int value) throws IOException {
          if (--left < 0) throw full;
        }
      };
      EplException error = assertThrows(EplException.class, () -> session.save(broken, null, CallOptions.NONE));
      assertEquals(ErrorCode.IO, error.code());
      assertSame(full, error.getCause());
      assertTrue(error.getMessage().contains("the bucket is full 😀"), error.getMessage());

      EplException mine = new EplException(ErrorCode.EXHAUSTED, "try later");
      error = assertThrows(EplException.class, () -> session.export(Session.Format.ONNX, new OutputStream() {
        @Override
        public void write(int value) {
          throw mine;
        }
      }, CallOptions.NONE));
      assertEquals(ErrorCode.EXHAUSTED, error.code());
      assertSame(mine, error.getCause());

      byte[] damaged = new byte[1000];
      error = assertThrows(EplException.class, () -> session.load(Source.of(damaged), null, CallOptions.NONE));
      assertEquals(ErrorCode.DATA_LOSS, error.code());
      assertEquals(hash, session.hash());
      assertEquals(2, session.step(batch).step());
      World.close(batch);
    }
  }

  @Test
  void exportsAndPlansGoThroughStreams() throws Exception {
    try (World world = new World(); Plan plan = world.plan(World.BATCH); Session session = plan.newSession()) {
      List<Tensor> batch = world.batch();
      session.step(batch);
      for (Session.Format format : Session.Format.values()) {
        ByteArrayOutputStream stream = new ByteArrayOutputStream();
        session.export(format, stream, CallOptions.NONE);
        Path file = world.folder.resolve("exporté-😀." + format);
        switch (format) {
          case ONNX -> session.exportOnnx(file);
          case ONNX_FOR_TRAINING -> session.exportOnnxForTraining(file);
          case SAFETENSORS -> session.exportSafetensors(file);
        }
        assertArrayEquals(Files.readAllBytes(file), stream.toByteArray(), format.toString());
      }
      ByteArrayOutputStream stream = new ByteArrayOutputStream();
      plan.save(stream, CallOptions.NONE);
      Path file = world.folder.resolve("план-😀");
      plan.save(file);
      assertArrayEquals(Files.readAllBytes(file), stream.toByteArray());
      try (Model model = world.engine.loadModel(world.model); Trainer trainer = world.trainer(World.BATCH);
          Plan again = model.loadPlan(trainer, null, new PlanOptions(), stream.toByteArray());
          Session other = again.newSession()) {
        other.step(batch);
        assertEquals(session.hash(), other.hash());
      }
      World.close(batch);
    }
  }

  /** A model and its weights, as an object store has them. */
  private static final class Bucket implements Source {
    final AtomicInteger open;
    final String name;
    final byte[] bytes;
    volatile boolean broken;

    Bucket(AtomicInteger open, String name, byte[] bytes) {
      this.open = open;
      this.name = name;
      this.bytes = bytes;
      open.incrementAndGet();
    }

    @Override
    public long size() {
      return bytes.length;
    }

    @Override
    public void read(long offset, ByteBuffer target) throws IOException {
      if (broken) throw new IOException("the bucket is gone 😀");
      target.put(bytes, (int) offset, target.remaining());
    }

    @Override
    public Source open(String location) throws IOException {
      if (!location.equals("poids-😀.bin")) return Source.super.open(location);
      return new Bucket(open, location, OnnxFile.weights());
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public void close() {
      open.decrementAndGet();
    }
  }

  private static float[] scores(World world, Model model) {
    List<Tensor> batch = world.batch();
    try (Plan plan = model.plan(null); Session session = plan.newSession()) {
      List<Tensor> scores = session.predict(batch.subList(0, 1));
      try (Tensor first = scores.get(0)) {
        return first.toFloats();
      }
    } finally {
      World.close(batch);
    }
  }

  private interface Call {
    void call(CallOptions options);
  }

  @Test
  void everyCallThatMayTakeAWhileTakesATokenAndIsAtOnceOver() throws Exception {
    try (World world = new World(); Model model = world.engine.loadModel(world.model);
        Trainer trainer = world.trainer(World.BATCH); Plan plan = model.plan(trainer);
        Session session = plan.newSession(); Predictor predictor = session.newPredictor();
        Tensor bias = session.get(session.states(StateKind.PARAMETER).get(0).name());
        Cancel cancel = world.engine.newCancel()) {
      String name = session.states(StateKind.PARAMETER).get(0).name();
      Path path = world.folder.resolve("never");
      List<Tensor> batch = world.batch();
      List<Tensor> x = batch.subList(0, 1);
      plan.save(world.folder.resolve("plan"));
      byte[] saved = Files.readAllBytes(world.folder.resolve("plan"));
      OutputStream nowhere = OutputStream.nullOutputStream();
      List<Call> calls = List.of(
          options -> world.engine.loadModel(world.model, options),
          options -> world.engine.loadModel(world.model, new ModelOptions(false), options),
          options -> world.engine.loadModel(Source.of(new byte[1]), options),
          options -> world.engine.loadModel(Engine.direct(new byte[1]), options),
          options -> world.engine.writeTemplate("mlp", "", path, options),
          options -> world.engine.comparePlans(path, path, options),
          options -> world.engine.describeCheckpoint(path, options),
          options -> world.engine.openDataset(path, "", options),
          options -> model.plan(trainer, null, new PlanOptions(), options),
          options -> model.loadPlan(trainer, null, new PlanOptions(), path, options),
          options -> model.loadPlan(trainer, null, new PlanOptions(), saved, options),
          options -> plan.print("plan", options), options -> plan.describe("notes", options),
          options -> plan.save(path, options), options -> plan.save(nowhere, options),
          options -> plan.exportOnnx(path, options), options -> plan.newSession(new SessionOptions(), options),
          options -> session.step(batch, options), options -> session.evaluate(batch, options),
          options -> session.predict(x, options), options -> session.giveUp("", options),
          options -> session.newPredictor(null, options), options -> predictor.predict(x, options),
          options -> predictor.refresh(options), options -> session.hash(options),
          options -> session.get(name, options), options -> session.set(name, bias, options),
          options -> session.save(path, null, options), options -> session.save(nowhere, null, options),
          options -> session.load(path, null, options), options -> session.load(Source.of(saved), null, options),
          options -> session.compare(path, null, options), options -> session.exportOnnx(path, options),
          options -> session.exportOnnxForTraining(path, options), options -> session.exportAdapters(path, options),
          options -> session.exportSafetensors(path, options),
          options -> session.export(Session.Format.ONNX, nowhere, options));
      cancel.trigger();
      for (int i = 0; i < calls.size(); ++i) {
        Call call = calls.get(i);
        EplException ended = assertThrows(EplException.class,
            () -> call.call(CallOptions.NONE.withCancel(cancel)), "call " + i);
        assertEquals(ErrorCode.CANCELLED, ended.code(), "call " + i + ": " + ended.getMessage());
        // And an interrupt of its thread does the same.
        Thread.currentThread().interrupt();
        ended = assertThrows(EplException.class, () -> call.call(CallOptions.NONE), "call " + i);
        assertTrue(Thread.interrupted());
        assertEquals(ErrorCode.CANCELLED, ended.code(), "call " + i + ": " + ended.getMessage());
      }
      assertTrue(Files.notExists(path));
      assertEquals(0, session.steps());
      World.close(batch);
    }
  }

  @Test
  void aModelIsReadFromWhereTheHostHasIt() throws Exception {
    AtomicInteger open = new AtomicInteger();
    try (World world = new World()) {
      byte[] bytes = OnnxFile.withWeightsAt("poids-😀.bin");
      Path file = Files.write(world.folder.resolve("模型.onnx"), bytes);
      Files.write(world.folder.resolve("poids-😀.bin"), OnnxFile.weights());
      try (Model model = world.engine.loadModel(new Bucket(open, "s3/模型", bytes), CallOptions.NONE);
          Model same = world.engine.loadModel(file)) {
        assertArrayEquals(scores(world, same), scores(world, model));
        assertEquals(2, open.get());
      }
      assertEquals(0, open.get()); // the library has closed both

      // The caller's own again where the call fails.
      Bucket broken = new Bucket(open, "s3/模型", bytes);
      broken.broken = true;
      EplException error = assertThrows(EplException.class,
          () -> world.engine.loadModel(broken, CallOptions.NONE));
      assertEquals(ErrorCode.IO, error.code());
      assertTrue(error.getCause().getMessage().equals("the bucket is gone 😀"), error.toString());
      assertEquals(1, open.get());
      error = assertThrows(EplException.class, () -> world.engine.loadModel(
          new Bucket(open, "s3/模型", OnnxFile.withWeightsAt("missing.bin")), CallOptions.NONE));
      assertEquals(ErrorCode.NOT_FOUND, error.code());
      assertTrue(error.getMessage().contains("missing.bin"), error.getMessage());
    }
  }
}
