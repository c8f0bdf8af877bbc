package ai.epl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.FloatBuffer;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Operators of the host's own. */
class OpTest {
  /** y = x * w * scale, w being a row: the gradient of w is a sum over samples. */
  private static class Gate implements Op.WithGradient {
    final AtomicInteger runs = new AtomicInteger();
    final AtomicInteger gradients = new AtomicInteger();
    volatile RuntimeException failure;

    @Override
    public String domain() {
      return "test.epl";
    }

    @Override
    public String name() {
      return "Gate";
    }

    @Override
    public String sharding() {
      return "n k, k -> n k";
    }

    @Override
    public List<Operand> shape(String attributes, List<Operand> inputs) {
      return List.of(Operand.of(inputs.get(0).type(), inputs.get(0).dims()));
    }

    private static float scale(String attributes) {
      assertTrue(attributes.startsWith("{\"scale\":"), attributes);
      return Float.parseFloat(attributes.substring(9, attributes.length() - 1));
    }

    private static FloatBuffer floats(Operand operand) {
      return operand.buffer().asFloatBuffer();
    }

    @Override
    public void run(String attributes, List<Operand> inputs, List<Operand> outputs) {
      runs.incrementAndGet();
      if (failure != null) throw failure;
      FloatBuffer x = floats(inputs.get(0));
      FloatBuffer w = floats(inputs.get(1));
      FloatBuffer y = floats(outputs.get(0));
      float scale = scale(attributes);
      for (int i = 0; i < y.limit(); ++i) y.put(i, x.get(i) * w.get(i % w.limit()) * scale);
    }

    @Override
    public void gradient(String attributes, List<Operand> inputs, List<Operand> outputs, List<Operand> upstream,
        List<Operand> wanted) {
      gradients.incrementAndGet();
      FloatBuffer x = floats(inputs.get(0));
      FloatBuffer w = floats(inputs.get(1));
      FloatBuffer d = floats(upstream.get(0));
      float scale = scale(attributes);
      if (!wanted.get(0).isAbsent()) {
        FloatBuffer dx = floats(wanted.get(0));
        for (int i = 0; i < dx.limit(); ++i) dx.put(i, d.get(i) * w.get(i % w.limit()) * scale);
      }
      if (!wanted.get(1).isAbsent()) {
        FloatBuffer dw = floats(wanted.get(1));
        for (int k = 0; k < dw.limit(); ++k) {
          float sum = 0;
          for (int i = k; i < x.limit(); i += dw.limit()) sum += d.get(i) * x.get(i) * scale;
          dw.put(k, sum);
        }
      }
    }
  }

  private static Plan plan(Engine engine, int ranks) {
    try (Model model = engine.loadModel(OnnxFile.withGate(0.5f)); Strategy strategy = engine.newStrategy();
        Trainer trainer = engine.newTrainer().set("loss", "softmax_cross_entropy").set("optimizer", "sgd")
            .set("optimizer.lr", 0.5)) {
      if (ranks > 1) strategy.setDefault(Strategy.Kind.REPLICATE, ranks);
      return model.plan(trainer, strategy, new PlanOptions().ranks(ranks), CallOptions.NONE);
    }
  }

  private static double[] train(World world, int ranks) {
    List<Tensor> batch = world.batch();
    try (Plan plan = plan(world.engine, ranks); Session session = plan.newSession()) {
      double first = session.step(batch).loss();
      for (int i = 0; i < 100; ++i) session.step(batch);
      try (Tensor gate = session.get("gate.weight")) {
        return new double[] {first, session.progress().loss(), gate.toFloats()[0]};
      }
    } finally {
      World.close(batch);
    }
  }

  @Test
  void anOperatorOfTheHostIsTrainedThrough() throws Exception {
    try (World world = new World()) {
      Gate gate = new Gate();
      world.engine.addOp(gate);
      double[] one = train(world, 1);
      assertTrue(one[1] < 0.5 * one[0], one[0] + " to " + one[1]);
      assertTrue(gate.runs.get() >= 101 && gate.gradients.get() >= 101);
      assertTrue(one[2] != 1);
      assertArrayEquals(one, train(world, 2), 1e-5);
    }
  }

  @Test
  void whatAnOperatorThrowsEndsTheStepWhichHasNotHappened() throws Exception {
    long before = Engine.liveHandles();
    try (World world = new World()) {
      Gate gate = new Gate();
      world.engine.addOp(gate);
      List<Tensor> batch = world.batch();
      try (Plan plan = plan(world.engine, 1); Session session = plan.newSession()) {
        long hash = session.hash();
        gate.failure = new EplException(ErrorCode.NOT_FINITE, "the gate is stuck 😀");
        EplException error = assertThrows(EplException.class, () -> session.step(batch));
        assertEquals(ErrorCode.NOT_FINITE, error.code());
        assertTrue(error.getMessage().contains("the gate is stuck 😀"), error.getMessage());
        assertEquals(hash, session.hash());
        gate.failure = new IllegalStateException("any other");
        assertEquals(ErrorCode.INTERNAL, assertThrows(EplException.class, () -> session.step(batch)).code());
        gate.failure = null;
        assertEquals(1, session.step(batch).step());
      }
      World.close(batch);
    }
    assertEquals(before, Engine.liveHandles());
  }

  @Test
  void anOperatorMayHaveNoGradientAndWrongShapesAreTold() throws Exception {
    try (World world = new World()) {
      world.engine.addOp(new Op() {
        @Override
        public String domain() {
          return "test.epl";
        }

        @Override
        public String name() {
          return "Gate";
        }

        @Override
        public List<Operand> shape(String attributes, List<Operand> inputs) {
          return List.of(inputs.get(0));
        }

        @Override
        public void run(String attributes, List<Operand> inputs, List<Operand> outputs) {}
      });
      EplException none = assertThrows(EplException.class, () -> plan(world.engine, 1));
      assertTrue(none.getMessage().contains("gradient"), none.getMessage());
      assertThrows(EplException.class, () -> world.engine.addOp(new Gate())); // there is one of that name
    }
    try (World world = new World()) {
      world.engine.addOp(new Gate() {
        @Override
        public List<Operand> shape(String attributes, List<Operand> inputs) {
          return List.of();
        }
      });
      EplException shapes = assertThrows(EplException.class, () -> plan(world.engine, 1));
      assertTrue(shapes.getMessage().contains("0 outputs"), shapes.getMessage());
    }
  }
}
