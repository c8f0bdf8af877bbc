package ai.epl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** What the sections of docs/java.md show. */
class PageTest {
  @Test
  void itsSectionsRun() throws Exception {
    long before = Engine.liveHandles();
    Path folder = Files.createTempDirectory("epl-page-");
    Path file = folder.resolve("model.onnx"), table = folder.resolve("table.csv");
    Files.writeString(table, "a,b,target\n" + "1,2,0\n3,1,1\n".repeat(5));
    try (Engine engine = Engine.create()) {
      engine.writeTemplate("mlp", "{\"sizes\": [2, 16, 2], \"seed\": 1}", file);
      try (Model model = engine.loadModel(file); Trainer trainer = typed(engine, model); Plan plan = model.plan(trainer);
          Session session = plan.newSession()) {
        ownData(engine, plan, session);
        assertEquals(3, session.steps());
        try (Tensor x = engine.tensorOf(new float[] {1, 2}, 1, 2)) {
          scope(session, x);
        }
        shapes(engine, model, trainer, table);
      }
    }
    assertEquals(before, Engine.liveHandles());
  }

  private static Trainer typed(Engine engine, Model model) {
    // --- Settings with types
    TrainerSettings settings = new TrainerSettings()
        .optimizer(new Optimizers.AdamW().lr(0.05).weightDecay(0))
        .schedule(new Schedules.Cosine().totalSteps(200)).scheduleWarmupSteps(10)
        .loss(new Losses.SoftmaxCrossEntropy().labelSmoothing(0.1))
        .clipNorm(1).symbol("batch", 4);
    Trainer trainer = engine.parseTrainer(settings);
    // ---
    for (String want : List.of("\"optimizer.lr\": 0.05", "\"schedule.warmup_steps\": 10", "\"clip_norm\": 1",
        "\"loss.label_smoothing\": 0.1", "\"batch\": 4")) {
      assertTrue(trainer.describe().contains(want), trainer.describe());
    }
    return trainer;
  }

  private static void ownData(Engine engine, Plan plan, Session session) {
    // --- Data of your own
    List<TensorInfo> fields = List.of(TensorInfo.of("x", DataType.F32, 2), TensorInfo.of("target", DataType.I64));
    SampleReader rows = (field, samples, target) -> { // field by field, one sample behind the other
      for (long sample : samples) {
        if (field == 0) target.putFloat(sample % 3).putFloat(1);
        if (field == 1) target.putLong(sample % 2);
      }
    };
    try (Dataset data = engine.newDataset(fields, 12, rows, Map.of("batch", 4, "order", "shuffled", "prefetch", 2))) {
      data.bind(plan, Entry.TRAIN);
      for (List<Tensor> batch : data.epoch()) System.out.println("step " + session.step(batch).step());
    }
  }

  private static void scope(Session session, Tensor x) {
    // --- Closing
    Tensor weight;
    try (Scope scope = Scope.open()) {
      float[] scores = session.predict(List.of(x)).get(0).toFloats(); // of a tensor that the scope closes
      weight = scope.keep(session.get("net.0.weight")); // which is yours again
      System.out.println(scores.length + " scores");
    }
    // ---
    assertEquals(32, weight.toFloats().length);
    weight.close();
  }

  private static void shapes(Engine engine, Model model, Trainer trainer, Path table) {
    // --- Batches of several shapes
    trainer.addShape(Map.of("symbols", Map.of("batch", 2)));
    try (Plan plan = model.plan(trainer);
        Session session = plan.newSession();
        Dataset data = engine.openDataset(table, Map.of("batch", 4, "partial", true))) {
      for (int shape = 0; shape < 2; ++shape) {
        System.out.println("shape " + shape + " has " + plan.inputs(Entry.TRAIN.shape(shape)).get(0).shape());
      }
      data.bind(plan, Entry.TRAIN); // names and types, which all shapes share
      for (int i = 0; i < 3; ++i) session.step(data.next());
    }
  }
}
