package ai.epl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** What follows the first training, each a few lines. docs/java.md explains them. */
class SecondDayTest {
  @Test
  void itRuns() throws Exception {
    long before = Engine.liveHandles();
    Engine engine = Engine.create();
    Path folder = Files.createTempDirectory("epl-second-day-");
    // --- A table, and a model for it
    Path file = folder.resolve("model.onnx"), table = folder.resolve("table.csv"), saved = folder.resolve("best");
    Files.writeString(table, "a,b,target\n" + "1,2,0\n3,1,1\n".repeat(20));
    engine.writeTemplate("mlp", "{\"sizes\": [2, 16, 2], \"seed\": 1}", file);
    Dataset data = engine.openDataset(table, "{\"batch\": 8, \"order\": \"shuffled\", \"split\": \"train\"}");
    Dataset heldOut = engine.openDataset(table, "{\"batch\": 8, \"split\": \"held_out\"}");
    Model model = engine.loadModel(file);
    Trainer trainer = engine.newTrainer().set("optimizer", "adamw").set("optimizer.lr", 0.05).bindDataset(model, data);
    Plan plan = model.plan(trainer);
    Session session = plan.newSession(); // each is to be closed, in any order
    // ---
    try (engine; data; heldOut; model; trainer; plan; session) {
      assertEquals(1, train(plan, session, data, heldOut, saved));
      goOn(plan, data, saved);
      predict(engine, session);
      predictBeside(engine, session, data);
      keepInMemory(session, data);
      adapt(model, trainer, data, folder);
    }
    assertEquals(before, Engine.liveHandles());
  }

  private static double train(Plan plan, Session session, Dataset data, Dataset heldOut, Path saved) {
    // --- Train, validate, keep the best
    double best = -1;
    data.bind(plan, Entry.TRAIN);
    heldOut.bind(plan, Entry.EVALUATE);
    try (Evaluation evaluation = plan.newEvaluation("accuracy")) {
      for (int epoch = 0; epoch < 10; ++epoch) {
        for (List<Tensor> batch : data.epoch()) session.step(batch);
        evaluation.reset();
        evaluation.add(session, heldOut, 0, CallOptions.NONE);
        double accuracy = evaluation.result("accuracy");
        if (accuracy > best) {
          best = accuracy;
          session.save(saved, data, CallOptions.NONE); // with the position in the data
        }
      }
    }
    System.out.printf("held out: %.0f %% right%n", 100 * best);
    // ---
    return best;
  }

  private static void goOn(Plan plan, Dataset data, Path saved) {
    // --- Go on later, to the bit
    try (Session later = plan.newSession()) {
      later.load(saved, data, CallOptions.NONE);
      System.out.println("goes on after step " + later.steps());
    }
  }

  private static void predict(Engine engine, Session session) {
    // --- Predict, and read the numbers
    float[] scores;
    try (Tensor x = engine.tensorOf(new float[] {1, 2, 3, 1}, 2, 2); // a batch may have fewer samples than the plan's
        Tensor output = session.predict(List.of(x)).get(0);
        Tensor weight = session.get("net.0.weight")) {
      scores = output.toFloats(); // one row behind the other
      for (int row = 0; row < 2; ++row) System.out.println("class " + (scores[2 * row] < scores[2 * row + 1] ? 1 : 0));
      System.out.println(weight.toFloats().length + " weights");
    }
    // ---
    assertTrue(scores[0] > scores[1] && scores[2] < scores[3]);
  }

  private static void predictBeside(Engine engine, Session session, Dataset data) throws Exception {
    // --- Predict while it trains
    try (Predictor predictor = session.newPredictor(); // has the weights of one step until it is refreshed
        Tensor x = engine.tensorOf(new float[] {1, 2}, 1, 2)) {
      CompletableFuture<Metrics> step = session.stepAsync(data.next());
      try (Tensor scores = predictor.predict(List.of(x)).get(0)) { // with the weights before that step
        System.out.println("step " + step.get().step() + " beside " + scores.toFloats()[0]);
      }
      predictor.refresh();
    }
  }

  private static void keepInMemory(Session session, Dataset data) throws Exception {
    // --- Into memory, a socket, an object store
    ByteArrayOutputStream kept = new ByteArrayOutputStream();
    session.save(kept, data, CallOptions.NONE);
    session.load(Source.of(kept.toByteArray()), data, CallOptions.NONE);
  }

  private static void adapt(Model model, Trainer trainer, Dataset data, Path folder) {
    // --- Adapters beside frozen weights
    trainer.addAdapter("*", 8, 8, 0);
    try (Plan adapted = model.plan(trainer); Session tuned = adapted.newSession()) {
      data.bind(adapted, Entry.TRAIN);
      tuned.step(data.next());
      tuned.exportAdapters(folder.resolve("adapters"));
      tuned.exportOnnx(folder.resolve("tuned.onnx")); // the adapters are in its weights
    }
  }
}
