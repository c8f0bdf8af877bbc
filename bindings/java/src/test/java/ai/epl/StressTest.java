package ai.epl;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayOutputStream;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.ArrayList;
import org.junit.jupiter.api.Test;

/** Thousands of objects from several threads while the collector is kept busy; the weights are always the same ones. */
class StressTest {
  private static final int SESSIONS = 2000;
  private static volatile Object garbage;

  @Test
  void thousandsOfSessionsAndTensorsUnderTheCollector() throws Exception {
    long live = Engine.liveHandles();
    ExecutorService threads = Executors.newFixedThreadPool(4);
    try (World world = new World(); Plan plan = world.plan(World.BATCH)) {
      List<Future<Long>> hashes = new ArrayList<>();
      for (int i = 0; i < SESSIONS; ++i) hashes.add(threads.submit(() -> train(world, plan)));
      long first = hashes.get(0).get();
      for (Future<Long> hash : hashes) assertEquals(first, hash.get());
    } finally {
      threads.shutdown();
    }
    garbage = null;
    for (int i = 0; i < 500 && Engine.liveHandles() > live; ++i) {
      System.gc(); // views
      Thread.sleep(10);
    }
    assertEquals(live, Engine.liveHandles());
  }

  /** What calls back into Java and goes on after its call, from several threads. */
  @Test
  void streamsHostDataPredictorsAndFuturesUnderTheCollector() throws Exception {
    long live = Engine.liveHandles();
    ExecutorService threads = Executors.newFixedThreadPool(4);
    try (World world = new World(); Plan plan = world.plan(World.BATCH)) {
      List<Future<Long>> hashes = new ArrayList<>();
      for (int i = 0; i < 300; ++i) hashes.add(threads.submit(() -> callBack(world, plan)));
      long first = hashes.get(0).get();
      for (Future<Long> hash : hashes) assertEquals(first, hash.get());
    } finally {
      threads.shutdown();
    }
    assertEquals(live, Engine.liveHandles());
  }

  private static long callBack(World world, Plan plan) throws Exception {
    SampleReader reader = (field, samples, target) -> {
      garbage = new byte[1 << 16];
      if (field == 0) target.asFloatBuffer().put(World.inputs());
      if (field == 1) target.asLongBuffer().put(World.targets());
    };
    List<TensorInfo> fields = List.of(TensorInfo.of("x", DataType.F32, 4), TensorInfo.of("target", DataType.I64));
    ByteArrayOutputStream stream = new ByteArrayOutputStream();
    List<Tensor> batch = world.batch();
    try (Session session = plan.newSession(); Session other = plan.newSession();
        Predictor predictor = session.newPredictor();
        Dataset dataset = world.engine.newDataset(fields, 16, reader, "{\"batch\": 8, \"prefetch\": 1}")) {
      dataset.bind(plan, Entry.TRAIN);
      for (List<Tensor> next : dataset.epoch()) session.step(next);
      Future<Metrics> third = session.stepAsync(batch);
      Future<Metrics> fourth = session.stepAsync(batch);
      World.close(predictor.predict(batch.subList(0, 1)));
      assertEquals(3, third.get().step());
      assertEquals(4, fourth.get().step());
      session.save(stream, dataset, CallOptions.NONE);
      garbage = new byte[1 << 20];
      other.load(Source.of(stream.toByteArray()), null, CallOptions.NONE);
      assertEquals(session.hash(), other.hash());
      return other.hash();
    } finally {
      World.close(batch);
    }
  }

  private static long train(World world, Plan plan) {
    Session session = plan.newSession();
    List<Tensor> batch = world.batch();
    for (int i = 0; i < 4; ++i) {
      garbage = new byte[1 << 18];
      // A view that outlives its tensor, and the tensors of a step.
      try (Tensor copy = world.engine.copyTensor(DataType.F32, batch.get(0).buffer(), World.BATCH, 4)) {
        session.step(List.of(copy, batch.get(1)));
        garbage = copy.buffer();
      }
      if (i % 2 == 0) World.close(session.predict(batch.subList(0, 1)));
    }
    World.close(batch);
    try {
      return session.hash();
    } finally {
      session.close();
    }
  }
}
