package ai.epl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** Scopes of tensors, settings as maps, and what an IDE sees. */
class ScopeTest {
  @Test
  void aScopeClosesWhatItsThreadHasMadeInIt() throws Exception {
    try (World world = new World(); Session session = world.session()) {
      long before = Engine.liveHandles();
      Tensor kept, early, elsewhere;
      try (Scope scope = Scope.open()) {
        List<Tensor> batch = world.batch();
        Tensor output = session.predict(batch.subList(0, 1)).get(0);
        Map<String, Tensor> named = session.predict(Map.of("x", batch.get(0)));
        assertEquals(output.toFloats().length, named.values().iterator().next().toFloats().length);
        early = session.get("net.0.bias");
        early.close();
        kept = scope.keep(session.get("net.0.bias"));
        elsewhere = CompletableFuture.supplyAsync(() -> session.get("net.0.bias")).get();
        Scope inner = Scope.open();
        try {
          Tensor handedOut = inner.keep(session.get("net.0.bias"));
          Tensor gone = session.get("net.0.bias");
          assertThrows(IllegalStateException.class, scope::close);
          assertEquals(IllegalStateException.class, CompletableFuture.supplyAsync(() -> {
            return assertThrows(IllegalStateException.class, inner::close).getClass();
          }).get());
          inner.close();
          inner.close();
          assertTrue(gone.isClosed());
          assertFalse(handedOut.isClosed());
        } finally {
          inner.close(); // a third time
        }
        assertEquals(before + 7, Engine.liveHandles()); // two inputs, two outputs, what was handed out, kept, elsewhere
      }
      assertFalse(kept.isClosed());
      assertFalse(elsewhere.isClosed());
      kept.close();
      elsewhere.close();
      assertEquals(before, Engine.liveHandles());
    }
  }

  @Test
  void settingsAreMaps() throws Exception {
    Path folder = Files.createTempDirectory("epl-maps-");
    Path file = folder.resolve("model.onnx"), table = folder.resolve("table.csv");
    Files.writeString(table, "a,b,target\n" + "1,2,0\n3,1,1\n".repeat(8));
    try (Engine engine = Engine.create()) {
      engine.writeTemplate("mlp", Map.of("sizes", List.of(2, 16, 2), "seed", 1), file);
      try (Model model = engine.loadModel(file);
          Dataset data = engine.openDataset(table, Map.of("batch", 4, "order", "shuffled"));
          Trainer trainer = engine.parseTrainer(Map.of("optimizer", "adamw", "symbols", Map.of("batch", 4)));
          Strategy strategy = engine.parseStrategy(Map.of("pipeline.num_micro_batch", 2));
          Plan plan = model.plan(trainer.addShape(Map.of("symbols", Map.of("batch", 2))), strategy,
              new PlanOptions(), CallOptions.NONE);
          Session session = plan.newSession()) {
        data.bind(plan, Entry.TRAIN);
        for (List<Tensor> batch : data.epoch()) session.step(batch);
        assertEquals(4, session.steps());
        assertTrue(trainer.describe().contains("adamw"));
      }
    }
  }

  @Test
  void parametersHaveTheirNames() throws Exception {
    assertEquals("inputs", Session.class.getMethod("step", List.class).getParameters()[0].getName());
  }

  @Test
  void noTextShowsASecret() {
    assertFalse(new SessionOptions().secret("hush").toString().contains("hush"));
    assertFalse(new StoreOptions().secret("hush").toString().contains("hush"));
  }
}
