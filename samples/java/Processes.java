import ai.epl.*;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/**
 * A training in several processes, started by {@code epl launch -n 2 -- java -cp epl.jar Processes.java}. Each gets the
 * full batch, and works on its part.
 */
public class Processes {
  public static void main(String[] arguments) {
    Launch launch = Launch.fromEnvironment(); // what epl launch says; another launcher has other means
    try (Engine engine = Engine.create(new EngineOptions().threads(1))) {
      Path file = Path.of("model-" + launch.rank() + ".onnx");
      engine.writeTemplate("mlp", Map.of("sizes", List.of(4, 16, 2), "seed", 1), file);
      try (Model model = engine.loadModel(file);
          Trainer trainer = engine.parseTrainer(
              new TrainerSettings().optimizer(new Optimizers.AdamW().lr(0.05)).symbol("batch", 8))) {
        train(engine, model, trainer, launch);
      }
    }
  }

  private static void train(Engine engine, Model model, Trainer trainer, Launch launch) {
    Plan plan = model.plan(trainer, null, launch.planOptions(), CallOptions.NONE);
    Session session = plan.newSession(launch.sessionOptions());

    float[] values = new float[32];
    long[] classes = new long[8];
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 4; ++j) values[4 * i + j] = (i * 7 + j * j * 3) % 5 - 2;
      classes[i] = values[4 * i] < values[4 * i + 3] ? 1 : 0;
    }
    try (plan; session; Tensor x = engine.tensorOf(values, 8, 4); Tensor target = engine.tensorOf(classes, 8)) {
      Metrics metrics = null;
      for (int step = 0; step < 50; ++step) metrics = session.step(Map.of("x", x, "target", target));
      System.out.printf("loss %.4f  weights %016x%n", metrics.loss(), session.hash());
    }
  }
}
