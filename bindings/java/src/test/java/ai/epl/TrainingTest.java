package ai.epl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class TrainingTest {
  private World world;
  private Engine engine;

  @BeforeEach
  void open() throws Exception {
    world = new World();
    engine = world.engine;
  }

  @AfterEach
  void close() throws Exception {
    world.close();
    assertEquals(world.before, Engine.liveHandles());
  }

  @Test
  void dataGoesThroughDlpackWithoutACopy() throws Exception {
    long before = Engine.liveHandles();
    try (World world = new World()) {
      Tensor tensor = world.engine.tensorOf(new float[] {1, 2, 3, 4}, 2, 2);
      try (Tensor same = world.engine.tensorOfDlpack(tensor.toDlpack())) {
        tensor.buffer().putFloat(0, 5);
        tensor.close();
        assertEquals(List.of(2L, 2L), List.of(same.dims()[0], same.dims()[1]));
        assertEquals(5, same.toFloats()[0]);
      }
    }
    for (int i = 0; i < 500 && Engine.liveHandles() > before; ++i) {
      System.gc(); // the view
      sleep(10);
    }
    assertEquals(before, Engine.liveHandles());
  }

  @Test
  void learnsAndPredicts() {
    List<Tensor> batch = world.batch();
    try (Session session = world.session()) {
      Metrics first = session.step(batch);
      assertEquals(1, first.step());
      EplException refused =
          assertThrows(EplException.class, () -> session.step(batch, CallOptions.NONE.withStream(-2)));
      assertTrue(refused.getMessage().contains("stream is -2"));
      assertTrue(first.time().toNanos() > 0);
      for (int i = 0; i < 60; ++i) session.step(batch);
      assertEquals(61, session.steps());
      assertTrue(session.evaluate(batch).loss() < first.loss() / 4);
      List<Tensor> outputs = session.predict(batch.subList(0, 1));
      float[] scores = outputs.get(0).toFloats();
      assertArrayEquals(new long[] {World.BATCH, 2}, outputs.get(0).dims());
      for (int i = 0; i < World.BATCH; ++i) assertEquals(i % 2 == 1, scores[2 * i + 1] > scores[2 * i]);
      World.close(outputs);
    }
    World.close(batch);
  }

  @Test
  void whatIsWrittenIntoABorrowedBufferIsWhatTheNextStepSees() {
    ByteBuffer x = ByteBuffer.allocateDirect(4 * World.BATCH * 4).order(ByteOrder.nativeOrder());
    try (Tensor input = engine.borrowTensor(DataType.F32, x, World.BATCH, 4);
        Tensor target = engine.tensorOf(World.targets(), World.BATCH);
        Session session = world.session()) {
      double zeros = session.evaluate(List.of(input, target)).loss();
      x.asFloatBuffer().put(World.inputs());
      assertNotEquals(zeros, session.evaluate(List.of(input, target)).loss());
      assertEquals(x.asFloatBuffer().get(0), input.toFloats()[0]);
      input.buffer().putFloat(0, 7);
      assertEquals(7, x.getFloat(0));
    }
  }

  @Test
  void onlyAPartOfABufferIsBorrowed() {
    ByteBuffer memory = ByteBuffer.allocateDirect(32).order(ByteOrder.nativeOrder());
    for (int i = 0; i < 8; ++i) memory.putFloat(4 * i, i);
    try (Tensor part = engine.borrowTensor(DataType.F32, memory.position(8).limit(16), 2)) {
      assertArrayEquals(new float[] {2, 3}, part.toFloats());
    }
    try (Tensor part = engine.borrowTensor(DataType.F32, memory.asReadOnlyBuffer().order(ByteOrder.nativeOrder()), 2)) {
      assertTrue(part.buffer().isReadOnly());
    }
  }

  @Test
  void buffersThatWouldBeReadWronglyAreRefused() {
    ByteBuffer big = ByteBuffer.allocateDirect(16).order(ByteOrder.BIG_ENDIAN);
    assertThrows(IllegalArgumentException.class, () -> engine.borrowTensor(DataType.F32, big, 4));
    assertThrows(IllegalArgumentException.class, () -> engine.borrowTensor(DataType.F32, ByteBuffer.allocate(16), 4));
    assertThrows(IllegalArgumentException.class, () -> engine.tensorOf(new float[3], 2, 2));
    EplException wrong = assertThrows(EplException.class,
        () -> engine.borrowTensor(DataType.F32, ByteBuffer.allocateDirect(12).order(ByteOrder.nativeOrder()), 4));
    assertEquals(ErrorCode.INVALID_ARGUMENT, wrong.code());
  }

  @Test
  void arraysComeBackAsTheyWere() {
    try (Tensor longs = engine.tensorOf(new long[] {Long.MIN_VALUE, 1}, 2);
        Tensor ints = engine.tensorOf(new int[] {3, -4}, 2);
        Tensor doubles = engine.tensorOf(new double[] {0.1}, 1);
        Tensor bytes = engine.copyTensor(DataType.U8, ByteBuffer.wrap(new byte[] {1, 2, 3}, 1, 2), 2)) {
      assertArrayEquals(new long[] {Long.MIN_VALUE, 1}, longs.toLongs());
      assertArrayEquals(new int[] {3, -4}, ints.toInts());
      assertArrayEquals(new double[] {0.1}, doubles.toDoubles());
      assertEquals(2, bytes.buffer().get(0));
      assertEquals(DataType.U8, bytes.type());
      assertThrows(IllegalStateException.class, ints::toFloats);
    }
    System.gc(); // the view of `bytes`
    for (int i = 0; i < 100 && Engine.liveHandles() > world.before + 1; ++i) {
      System.gc();
      sleep(20);
    }
  }

  @Test
  void goesOnFromACheckpointWithTheSameWeights() throws Exception {
    Path checkpoint = world.folder.resolve("checkpoint");
    List<Tensor> batch = world.batch();
    long whole;
    try (Session session = world.session()) {
      for (int i = 0; i < 10; ++i) session.step(batch);
      session.save(checkpoint);
      for (int i = 0; i < 10; ++i) session.step(batch);
      whole = session.hash();
    }
    try (Session session = world.session()) {
      assertNotEquals(whole, session.hash());
      session.load(checkpoint);
      assertEquals(10, session.steps());
      for (int i = 0; i < 10; ++i) session.step(batch);
      assertEquals(whole, session.hash());
      assertTrue(engine.describeCheckpoint(checkpoint).contains("\"step\""));
      assertEquals("[]", session.compare(checkpoint, null).strip());
      session.exportOnnx(world.folder.resolve("trained.onnx"));
    }
    engine.removeCheckpoint(checkpoint);
    assertTrue(Files.notExists(checkpoint));
    byte[] trained = Files.readAllBytes(world.folder.resolve("trained.onnx"));
    try (Model model = engine.loadModel(trained); Trainer trainer = world.trainer(World.BATCH);
        Plan plan = model.plan(trainer); Session session = plan.newSession()) {
      assertEquals(whole, session.hash());
    }
    World.close(batch);
  }

  @Test
  void statesAreReadAndSetByName() {
    try (Session session = world.session()) {
      TensorInfo first = session.states(StateKind.PARAMETER).get(0);
      try (Tensor value = session.get(first.name());
          Tensor ones = engine.newTensor(first.type(), first.dims())) {
        long before = session.hash();
        session.set(first.name(), ones);
        assertNotEquals(before, session.hash());
        session.set(first.name(), value);
        assertEquals(before, session.hash());
      }
      session.setNumber("learning_rate_scale", 0.5);
      assertEquals(0.5, session.number("learning_rate_scale"));
    }
  }

  @Test
  void aDatasetGivesBatchesAndAnEvaluationMeasuresThem() throws Exception {
    StringBuilder rows = new StringBuilder("a,b,c,d,target\n");
    float[] x = World.inputs();
    for (int i = 0; i < World.BATCH * 3; ++i) {
      int at = i % World.BATCH * 4;
      rows.append(x[at] + "," + x[at + 1] + "," + x[at + 2] + "," + x[at + 3] + "," + i % 2 + "\n");
    }
    Path file = world.folder.resolve("données.csv");
    Files.writeString(file, rows);
    String options = "{\"batch\": 8, \"prefetch\": 2, \"target\": \"target\"}";
    try (Plan plan = world.plan(World.BATCH); Session session = plan.newSession();
        Dataset data = engine.openDataset(file, options).bind(plan, Entry.TRAIN)) {
      assertEquals(24, data.samples());
      assertEquals(3, data.batches());
      List<Tensor> first = data.next();
      session.step(first);
      for (int i = 0; i < 60; ++i) session.step(data.next());
      assertEquals(61, data.position());
      assertThrows(IllegalStateException.class, () -> session.step(first));
      try (Evaluation evaluation = plan.newEvaluation("accuracy")) {
        evaluation.add(session, data, 0, CallOptions.NONE);
        assertEquals(24, evaluation.samples());
        assertEquals(1.0, evaluation.result("accuracy"));
        assertTrue(evaluation.describe().contains("accuracy"));
      }
    }
  }

  @Test
  void anEpochEndsWithABatchOfAnotherShape() throws Exception {
    Path table = world.folder.resolve("table.csv");
    Files.writeString(table, "a,b,c,d,target\n" + "1,2,0,0,0\n3,1,0,0,1\n".repeat(5));
    try (Model model = engine.loadModel(world.model); Trainer trainer = world.trainer(4)) {
      trainer.addShape("{\"symbols\": {\"batch\": 2}}");
      try (Plan plan = model.plan(trainer); Session session = plan.newSession();
          Dataset data = engine.openDataset(table, "{\"batch\": 4, \"partial\": true}").bind(plan, Entry.TRAIN)) {
        for (Entry entry : List.of(Entry.TRAIN, Entry.EVALUATE, Entry.PREDICT)) {
          assertEquals(List.of(4L, 4L), plan.inputs(entry).get(0).shape());
          assertEquals(List.of(2L, 4L), plan.inputs(entry.shape(1)).get(0).shape());
          assertEquals(List.of(), plan.inputs(entry.shape(2)));
        }
        for (int i = 0; i < 3; ++i) session.step(data.next());
        assertEquals(3, session.steps());
        Entry none = Entry.TRAIN.shape(2);
        assertEquals(ErrorCode.NOT_FOUND, assertThrows(EplException.class, () -> data.bind(plan, none)).code());
        assertEquals(Entry.TRAIN.shape(2), none);
        assertNotEquals(Entry.EVALUATE.shape(2), none);
        assertEquals("[train@2, predict]", List.of(none, Entry.PREDICT).toString());
      }
    }
  }

  @Test
  void aPlanSaysWhatItTakes() throws Exception {
    try (Model model = engine.loadModel(world.model); Trainer trainer = world.trainer(World.BATCH);
        Strategy strategy = engine.newStrategy()) {
      assertEquals("batch", model.symbol(0, 0));
      assertEquals(List.of(-1L, 4L), model.inputs().get(0).shape());
      strategy.setDefault(Strategy.Kind.REPLICATE, 2);
      try (Plan plan = model.plan(trainer, strategy, new PlanOptions().ranks(2), CallOptions.NONE)) {
        assertEquals(2, plan.ranks());
        assertEquals(List.of(8L, 4L), plan.inputs(Entry.TRAIN).get(0).shape());
        assertEquals(0, plan.input(Entry.TRAIN, plan.inputs(Entry.TRAIN).get(0).name()));
        assertEquals(-1, plan.input(Entry.TRAIN, "😀"));
        assertEquals(new Plan.Slice(4, 4), plan.slice(Entry.TRAIN, 0, 1, 1));
        assertTrue(plan.peakBytes(0) > 0);
        assertTrue(plan.describe("overview").startsWith("{"));
        Path file = world.folder.resolve("plan");
        plan.save(file);
        try (Plan again = model.loadPlan(trainer, null, new PlanOptions(), file)) {
          assertEquals(2, again.ranks());
        }
        assertEquals("", engine.comparePlans(file, file));
        List<Tensor> batch = world.batch();
        try (Session session = plan.newSession()) {
          session.step(batch);
        }
        World.close(batch);
      }
    }
  }

  @Test
  void errorsHaveCodeAndPlace() {
    Path nowhere = world.folder.resolve("没有.onnx");
    EplException missing = assertThrows(EplException.class, () -> engine.loadModel(nowhere));
    assertEquals(ErrorCode.NOT_FOUND, missing.code());
    assertTrue((missing.getMessage() + missing.where()).contains("没有"), missing.getMessage());
    assertEquals(-1, missing.rank());
    assertEquals(ErrorCode.INVALID_MODEL,
        assertThrows(EplException.class, () -> engine.loadModel(new byte[] {1, 2, 3})).code());
    try (Trainer trainer = engine.newTrainer()) {
      EplException unknown = assertThrows(EplException.class, () -> trainer.set("optimiser", "adam"));
      assertTrue(unknown.getMessage().contains("optimizer"), unknown.getMessage());
    }
    try (Session session = world.session(); Tensor wrong = engine.newTensor(DataType.F32, 1)) {
      assertThrows(EplException.class, () -> session.step(Arrays.asList(wrong, null)));
      assertEquals(0, session.steps());
    }
    assertThrows(EplException.class, () -> engine.parseStrategy("{"));
  }

  @Test
  void theEngineDescribesItself() {
    assertTrue(engine.describe().contains("\"adamw\""));
    assertTrue(Engine.version() >= 1000);
  }

  static void sleep(long milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }
}
