package ai.epl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.FloatBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;

class LifetimeTest {
  /** What waits for the collector. */
  private static void collect(java.util.function.BooleanSupplier done) {
    for (int i = 0; i < 500 && !done.getAsBoolean(); ++i) {
      System.gc();
      TrainingTest.sleep(10);
    }
    assertTrue(done.getAsBoolean());
  }

  @Test
  void parentsMayGoFirst() throws Exception {
    World world = new World();
    Plan plan = world.plan(World.BATCH);
    Session session = plan.newSession();
    List<Tensor> batch = world.batch();
    plan.close();
    world.close();
    assertThrows(IllegalStateException.class, () -> world.engine.newTrainer());
    assertEquals(1, session.step(batch).step());
    World.close(batch);
    session.close();
    session.close();
    assertThrows(IllegalStateException.class, session::steps);
    assertEquals(world.before, Engine.liveHandles());
  }

  @Test
  void aViewKeepsTheMemoryOfAClosedTensor() throws Exception {
    long before = Engine.liveHandles();
    try (World world = new World()) {
      long without = Engine.liveHandles();
      FloatBuffer view;
      try (Tensor tensor = world.engine.tensorOf(new float[] {1, 2, 3}, 3)) {
        view = tensor.buffer().slice().order(java.nio.ByteOrder.nativeOrder()).asFloatBuffer();
      }
      System.gc();
      byte[][] pressure = new byte[64][];
      for (int i = 0; i < 64; ++i) pressure[i] = new byte[1 << 16];
      TrainingTest.sleep(50);
      assertEquals(2, view.get(1));
      assertTrue(Engine.liveHandles() == without + 1 && pressure.length == 64);
      view = null;
      collect(() -> Engine.liveHandles() == without);
    }
    assertEquals(before, Engine.liveHandles());
  }

  @Test
  void whatIsNotClosedIsReportedAndNotDestroyed() throws Exception {
    long live;
    long leaked = Handle.leaked();
    try (World world = new World()) {
      live = Engine.liveHandles();
      world.engine.newTensor(DataType.F32, 1);
      collect(() -> Handle.leaked() == leaked + 1);
      assertEquals(live + 1, Engine.liveHandles());
    }
    // The tensor, and the engine that it was made with.
    assertTrue(Engine.liveHandles() >= 2);
  }
}
