package ai.epl;

import static org.junit.jupiter.api.Assertions.assertEquals;

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
