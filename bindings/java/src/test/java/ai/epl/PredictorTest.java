package ai.epl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Predictions beside steps, progress, and calls that return at once. */
class PredictorTest {
  private static volatile Object garbage;

  private static float[] predict(Predictor predictor, List<Tensor> batch) {
    List<Tensor> made = predictor.predict(batch.subList(0, 1));
    try {
      return made.get(0).toFloats();
    } finally {
      World.close(made);
    }
  }

  @Test
  void itPredictsWhileItsSessionTrainsAndOutlivesIt() throws Exception {
    long before = Engine.liveHandles();
    try (World world = new World()) {
      List<Tensor> batch = world.batch();
      Session session = world.session();
      assertTrue(Double.isNaN(session.progress().loss()));
      Predictor predictor = session.newPredictor();
      float[] first = predict(predictor, batch);
      List<CompletableFuture<Metrics>> steps = new ArrayList<>();
      for (int i = 0; i < 300; ++i) steps.add(session.stepAsync(batch));
      while (!steps.get(299).isDone()) {
        garbage = new byte[1 << 18];
        assertArrayEquals(first, predict(predictor, batch)); // of one step, whatever the session does
        Metrics progress = session.progress();
        assertTrue(progress.step() >= 0 && progress.step() <= 300);
      }
      for (int i = 0; i < 300; ++i) assertEquals(i + 1, steps.get(i).get().step());
      assertEquals(steps.get(299).get(), session.progress());
      assertEquals(0, predictor.steps());
      predictor.refresh();
      assertEquals(300, predictor.steps());
      List<Tensor> own = session.predict(batch.subList(0, 1));
      assertArrayEquals(own.get(0).toFloats(), predict(predictor, batch));
      World.close(own);
      assertTrue(predictor.bytes() > 0);
      session.close();
      assertEquals(ErrorCode.MISUSE, assertThrows(EplException.class, predictor::refresh).code());
      assertEquals(16, predict(predictor, batch).length);
      predictor.close();
      assertThrows(IllegalStateException.class, predictor::steps);
      World.close(batch);
    }
    assertEquals(before, Engine.liveHandles());
  }

  @Test
  void itTakesOtherShapesAndTheHostsMemory() throws Exception {
    try (World world = new World(); Session session = world.session(); Plan small = world.plan(2);
        Predictor predictor = session.newPredictor(small, CallOptions.NONE);
        Tensor two = world.engine.tensorOf(Arrays.copyOf(World.inputs(), 8), 2, 4)) {
      List<Tensor> batch = world.batch();
      List<Tensor> all = session.predict(batch.subList(0, 1));
      ByteBuffer memory = ByteBuffer.allocateDirect(16).order(ByteOrder.nativeOrder());
      try (Tensor into = world.engine.borrowTensor(DataType.F32, memory, 2, 2)) {
        predictor.predictInto(List.of(two), List.of(into), CallOptions.NONE);
      }
      float[] scores = new float[4];
      memory.asFloatBuffer().get(scores);
      assertArrayEquals(Arrays.copyOf(all.get(0).toFloats(), 4), scores);

      ByteBuffer whole = ByteBuffer.allocateDirect(64).order(ByteOrder.nativeOrder());
      try (Tensor into = world.engine.borrowTensor(DataType.F32, whole, 8, 2)) {
        session.predictInto(batch.subList(0, 1), List.of(into), CallOptions.NONE);
        assertArrayEquals(all.get(0).toFloats(), into.toFloats());
        whole.clear().put(new byte[64]);
        session.predictAsync(batch.subList(0, 1), List.of(into), CallOptions.NONE).get();
        assertArrayEquals(all.get(0).toFloats(), into.toFloats());
      }
      Metrics now = session.evaluate(batch);
      assertEquals(now.loss(), session.evaluateAsync(batch, CallOptions.NONE).get().loss());
      World.close(all);
      World.close(batch);
    }
  }

  @Test
  void whatFollowsAFutureMayGoOnWithTheSession() throws Exception {
    try (World world = new World(); Session session = world.session(); Session same = world.session()) {
      List<Tensor> batch = world.batch();
      CompletableFuture<Metrics> last = session.stepAsync(batch);
      for (int i = 0; i < 9; ++i) last = last.thenCompose(metrics -> session.stepAsync(batch));
      assertEquals(10, last.get().step());
      // Inside it the session is free: a call that waits is made by its own thread.
      assertEquals(11, session.stepAsync(batch).thenApply(metrics -> session.step(batch)).get().step() - 1);
      for (int i = 0; i < 12; ++i) same.step(batch);
      assertEquals(same.hash(), session.hash());
      World.close(batch);
    }
  }

  /** Asked for at the moment in which the one before it is done. */
  @Test
  void thousandsOfFuturesOneByOne() throws Exception {
    try (World world = new World(); Session session = world.session()) {
      List<Tensor> batch = world.batch();
      for (int i = 1; i <= 20_000; ++i) assertEquals(i, session.stepAsync(batch).get(60, TimeUnit.SECONDS).step());
      World.close(batch);
    }
  }

  @Test
  void thousandsOfFuturesThatAreRefusedEndWithoutAWord() throws Exception {
    try (World world = new World()) {
      Session session = world.session();
      List<Tensor> wrong = List.of(world.engine.newTensor(DataType.F32, 1));
      List<CompletableFuture<Metrics>> steps = new ArrayList<>();
      for (int i = 0; i < 5000; ++i) steps.add(session.stepAsync(wrong));
      session.close();
      for (CompletableFuture<Metrics> step : steps) assertThrows(Exception.class, step::get);
      World.close(wrong);
    }
  }
}
