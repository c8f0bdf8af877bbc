package ai.epl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;

/** Jobs: the loop around steps, that it goes on to the bit, and inputs by name. */
class JobTest {
  /** A session that has made no step, data from its start, and a file that both come from. */
  private static final class Fitting implements AutoCloseable {
    final Session session;
    final Dataset data;
    final Dataset heldOut;

    Fitting(World world, Plan plan) throws Exception {
      Path table = rows(world);
      session = plan.newSession();
      String options = "{\"batch\": 8, \"classes\": true, \"held_out\": 0.2, ";
      data = world.engine.openDataset(table, options + "\"split\": \"train\", \"order\": \"shuffled\"}");
      heldOut = world.engine.openDataset(table, options + "\"split\": \"held_out\", \"partial\": true}");
    }

    JobEvent fit(Map<String, ?> settings, Predicate<JobEvent> progress) {
      return Job.fit(session, data, heldOut, settings, progress);
    }

    @Override
    public void close() {
      session.close();
      data.close();
      heldOut.close();
    }
  }

  private static Path rows(World world) throws Exception {
    StringBuilder rows = new StringBuilder("a,b,c,d,y\n");
    for (int i = 0; i < 80; ++i)
      rows.append(i % 2 == 0 ? 1 : -1).append(",0,").append(i % 3).append(",1,").append(i % 2).append('\n');
    return Files.writeString(world.folder.resolve("rows.csv"), rows);
  }

  @Test
  void fitsAndGoesOnToTheBit() throws Exception {
    long before = Engine.liveHandles();
    try (World world = new World(); Model model = world.engine.loadModel(world.model);
        Trainer trainer = world.engine.newTrainer().set("optimizer", "adam")) {
      try (Plan first = world.plan(World.BATCH); Fitting any = new Fitting(world, first)) {
        trainer.bindDataset(model, any.data);
      }
      try (Plan plan = model.plan(trainer)) {
        List<JobEvent> events = new ArrayList<>();
        long hash;
        try (Fitting whole = new Fitting(world, plan)) {
          JobEvent last = whole.fit(Map.of("epochs", 2, "metrics", "accuracy"), events::add);
          assertEquals(JobEvent.End.STEPS, last.ended());
          assertEquals(16, last.step());
          hash = whole.session.hash();
        }
        assertEquals(16, events.stream().filter(e -> e.kind() == JobEvent.Kind.STEP).count());
        List<JobEvent> measured = events.stream().filter(e -> e.kind() == JobEvent.Kind.MEASURED).toList();
        assertEquals(List.of(8L, 16L), measured.stream().map(JobEvent::step).toList());
        assertTrue(measured.get(0).text().contains("\"accuracy\":"), measured.get(0).text());

        Map<String, Object> settings = new HashMap<>(Map.of("steps", 16, "resume", "auto"));
        settings.put("folder", world.folder.resolve("run 😀"));
        try (Fitting part = new Fitting(world, plan)) {
          assertEquals(5, part.fit(settings, e -> e.step() < 5).step());
        }
        // What the listener throws ends the job as well, and is thrown.
        try (Fitting part = new Fitting(world, plan)) {
          assertThrows(ArithmeticException.class, () -> part.fit(settings, e -> {
            if (e.step() == 9) throw new ArithmeticException();
            return true;
          }));
          assertEquals(9, part.session.steps());
        }
        try (Fitting part = new Fitting(world, plan)) {
          Thread.currentThread().interrupt();
          EplException stopped = assertThrows(EplException.class, () -> part.fit(settings, e -> true));
          assertEquals(ErrorCode.CANCELLED, stopped.code());
          assertTrue(Thread.interrupted());
        }
        try (Fitting rest = new Fitting(world, plan)) {
          rest.fit(settings, e -> true);
          assertEquals(hash, rest.session.hash());
        }
        Path run = world.folder.resolve("run 😀");
        assertEquals(run.resolve("checkpoint"), world.engine.findCheckpoint(run));
      }
    }
    assertEquals(before, Engine.liveHandles());
  }

  @Test
  void thePageSaysSo() throws Exception {
    try (World world = new World(); Model model = world.engine.loadModel(world.model)) {
      Engine engine = world.engine;
      Path table = rows(world), run = world.folder.resolve("run");
      String options = "{\"batch\": 8, \"classes\": true, \"held_out\": 0.2, ";
      try (Dataset data = engine.openDataset(table, options + "\"split\": \"train\", \"order\": \"shuffled\"}");
          Dataset heldOut = engine.openDataset(table, options + "\"split\": \"held_out\", \"partial\": true}");
          Trainer trainer = engine.newTrainer().set("optimizer", "adamw").bindDataset(model, data);
          Plan plan = model.plan(trainer);
          Session session = plan.newSession()) {
        JobSettings settings = new JobSettings().epochs(10).folder(run.toString()).resume("auto").patience(3)
            .metrics("accuracy");
        JobEvent last = Job.fit(session, data, heldOut, settings, event -> {
          if (event.kind() == JobEvent.Kind.MEASURED) System.out.println(event.step() + ": " + event.text());
          return true;  // false ends the job
        });
        System.out.println("ended by " + last.ended() + " after " + last.step() + " steps");
      }
      assertTrue(Files.exists(run.resolve("best")));
    }
  }

  @Test
  void aLastSaveThatFailsLosesNothing() throws Exception {
    try (World world = new World(); Plan plan = world.plan(World.BATCH); Fitting whole = new Fitting(world, plan);
        Fitting part = new Fitting(world, plan)) {
      whole.fit(Map.of("steps", 4), event -> true);
      Path run = world.folder.resolve("run"), checkpoints = run.resolve("checkpoints");
      Map<String, Object> settings = Map.of("steps", 4, "folder", run);
      assertThrows(EplException.class, () -> Job.fit(part.session, part.data, null, settings, event -> {
        if (event.step() < 4) return true;
        try {
          Files.delete(checkpoints);
          Files.createFile(checkpoints);
        } catch (IOException failure) {
          throw new UncheckedIOException(failure);
        }
        return true;
      }));
      assertEquals(4, part.session.steps());
      assertEquals(whole.session.hash(), part.session.hash());
      part.session.save(world.folder.resolve("elsewhere"));
    }
  }

  @Test
  void aTimeoutIsThatOfTheWholeJob() throws Exception {
    try (World world = new World(); Plan plan = world.plan(World.BATCH); Fitting all = new Fitting(world, plan)) {
      EplException late = assertThrows(EplException.class, () -> Job.fit(all.session, all.data, null,
          Map.of("steps", 1_000_000_000), event -> true, CallOptions.within(Duration.ofMillis(200))));
      assertEquals(ErrorCode.DEADLINE_EXCEEDED, late.code());
      assertTrue(all.session.steps() > 0);
    }
  }

  @Test
  void saysWhatCannotBe() throws Exception {
    try (World world = new World()) {
      EplException unknown = assertThrows(EplException.class, () -> world.engine.newJob(Map.of("stps", 3)));
      assertTrue(unknown.getMessage().contains("did you mean steps"), unknown.getMessage());
      Path run = world.folder.resolve("run");
      try (Job one = world.engine.newJob(Map.of("folder", run)); Job other = world.engine.newJob(Map.of("folder", run))) {
        one.set("steps", 3).takeFolder();
        assertEquals(ErrorCode.BUSY, assertThrows(EplException.class, other::takeFolder).code());
        assertTrue(one.describe().contains("\"steps\": 3"));
      }
    }
  }

  @Test
  void inputsHaveNames() throws Exception {
    try (World world = new World(); Plan plan = world.plan(World.BATCH); Session one = plan.newSession();
        Session other = plan.newSession()) {
      List<Tensor> batch = world.batch();
      Map<String, Tensor> named = Map.of("target", batch.get(1), "x", batch.get(0));
      assertEquals(one.step(batch).loss(), other.step(named).loss());
      assertEquals(one.evaluate(batch).loss(), other.evaluate(named, CallOptions.NONE).loss());
      Map<String, Tensor> found = other.predict(Map.of("x", batch.get(0)));
      assertEquals(1, found.size());
      found.values().forEach(Tensor::close);
      namesInEveryCall(world, plan, one, named);
      String missing = assertThrows(IllegalArgumentException.class, () -> one.step(Map.of("x", batch.get(0)))).getMessage();
      assertEquals("nothing is given for target", missing);
      assertThrows(IllegalArgumentException.class, () -> one.predict(Map.of("y", batch.get(0))));
      World.close(batch);
    }
  }

  /** What is given by name does what the same tensors in their order do. */
  private static void namesInEveryCall(World world, Plan plan, Session session, Map<String, Tensor> named)
      throws Exception {
    CallOptions none = CallOptions.NONE;
    Tensor x = named.get("x");
    List<Tensor> batch = List.of(x, named.get("target"));
    Map<String, Tensor> alone = Map.of("x", x);
    try (Evaluation one = plan.newEvaluation("none");
        Evaluation other = plan.newEvaluation("none"); Predictor predictor = session.newPredictor();
        Tensor scores = world.engine.newTensor(DataType.F32, World.BATCH, 2)) {
      assertEquals(batch, plan.ordered(Entry.TRAIN, named));
      assertEquals(batch, session.ordered(Entry.TRAIN, named));
      assertEquals(batch, session.ordered(Entry.EVALUATE.shape(1), named));
      assertThrows(IllegalArgumentException.class, () -> plan.ordered(Entry.PREDICT, named));
      assertEquals(one.add(session, batch, none).result("loss"), other.add(session, named, none).result("loss"));
      assertEquals(session.evaluate(batch).loss(), session.evaluateAsync(named, none).get().loss());
      String output = plan.outputs(Entry.PREDICT).get(0).name();
      Tensor found = predictor.predict(alone).get(output);
      float[] want = found.toFloats();
      found.close();
      predictor.predictInto(alone, Map.of(output, scores), none);
      assertArrayEquals(want, scores.toFloats());
      session.predictInto(alone, Map.of(output, scores), none);
      assertArrayEquals(want, scores.toFloats());
      session.predictAsync(alone, Map.of(output, scores), none).get();
      assertArrayEquals(want, scores.toFloats());
      assertThrows(IllegalArgumentException.class, () -> session.predictInto(alone, Map.of("y", scores), none));
      // It is refused, for want of keep_gradients, after the names were looked at.
      assertThrows(EplException.class, () -> session.gradients(named, none));
      assertThrows(IllegalArgumentException.class, () -> session.gradients(alone, none));
      assertEquals(session.steps() + 1, session.stepAsync(named, none).get().step());
      try (Feed feed = world.engine.newFeed(plan.inputs(Entry.TRAIN), 1); Dataset data = feed.dataset()) {
        feed.push(named, none);
        assertArrayEquals(x.toFloats(), data.next().get(0).toFloats());
        assertThrows(IllegalArgumentException.class, () -> feed.push(alone, none));
      }
    }
  }

  @Test
  void settingsHaveTypes() throws Exception {
    TrainerSettings settings = new TrainerSettings()
        .optimizer(new Optimizers.AdamW().lr(0.05).betas(0.8, 0.99).weightDecay(0))
        .loss(new Losses.SoftmaxCrossEntropy().ignoreIndex(-1))
        .schedule(new Schedules.Step().stepSize(5)).clipNorm(1).symbol("batch", 8);
    assertThrows(IllegalArgumentException.class, () -> new TrainerSettings().loss(new Optimizers.SGD()));
    try (World world = new World(); Model model = world.engine.loadModel(world.model);
        Trainer trainer = world.engine.parseTrainer(settings);
        Job job = world.engine.newJob(new JobSettings().epochs(2).keep(3).check(false))) {
      model.plan(trainer).close();
      for (String want : List.of("\"optimizer\": \"adamw\"", "\"optimizer.lr\": 0.05", "\"loss.ignore_index\": -1",
          "\"schedule.step_size\": 5")) {
        assertTrue(trainer.describe().contains(want), trainer.describe());
      }
      for (String want : List.of("\"epochs\": 2.0", "\"keep\": 3", "\"check\": false")) {
        assertTrue(job.describe().contains(want), job.describe());
      }
    }
  }

  /** Each setter of settings, before the rows and after them. */
  @Test
  void noOrderLosesASetting() throws Exception {
    for (int order = 0; order < 3; ++order) {
      TrainerSettings settings = new TrainerSettings();
      Set<String> rows = Set.of("loss", "optimizer", "schedule", "symbol");
      if (order > 0) withRows(settings);
      int keys = setAll(settings, rows);
      if (order != 1) withRows(settings);
      assertEquals(keys + 3, settings.map().size(), settings.toString());
    }
    JobSettings job = new JobSettings();
    assertEquals(setAll(job, Set.of()), job.map().size());
    // What another row has declared goes with it.
    TrainerSettings other = new TrainerSettings().optimizer(new Optimizers.Momentum().momentum(0.5)).lossTarget("y");
    assertEquals(Set.of("optimizer", "loss.target"), other.optimizer(new Optimizers.SGD()).map().keySet());
  }

  private static void withRows(TrainerSettings settings) {
    settings.loss(new Losses.MSE()).optimizer(new Optimizers.SGD()).schedule(new Schedules.Constant());
  }

  private static int setAll(Settings settings, Set<String> but) throws Exception {
    Map<Class<?>, Object> values = Map.of(boolean.class, true, long.class, 1L, double.class, 0.5, String.class, "a",
        String[].class, new String[] {"a"}, Map.class, Map.of(), List.class, List.of());
    int keys = 0;
    for (Method setter : settings.getClass().getDeclaredMethods()) {
      if (!Modifier.isPublic(setter.getModifiers()) || but.contains(setter.getName())) continue;
      setter.invoke(settings, values.get(setter.getParameterTypes()[0]));
      ++keys;
    }
    assertTrue(keys > 10);
    return keys;
  }

  @Test
  void aLaunchIsReadFromTheEnvironment() throws Exception {
    assertEquals(1, Launch.from(Map.of()).ranks());
    Launch launch = Launch.from(Map.of("EPL_RANK", "1", "EPL_WORLD_SIZE", "2", "EPL_RENDEZVOUS", "tcp://a:1"));
    assertEquals(1, launch.rank());
    assertEquals(2, launch.ranks());
    assertThrows(IllegalArgumentException.class, () -> Launch.from(Map.of("EPL_RANK", "x")));
    assertThrows(IllegalArgumentException.class, () -> Launch.from(Map.of("EPL_RANK", "1")));
  }

  @Test
  void settingsAreJson() {
    assertEquals("{\"a\":[1,2.5,true,null,\"x\\\"\\\\\\u000a\"]}",
        Json.of(Map.of("a", java.util.Arrays.asList(1, 2.5, true, null, "x\"\\\n"))));
    assertThrows(IllegalArgumentException.class, () -> Json.of(Double.NaN));
    assertFalse(Json.of(Map.of()).isBlank());
  }
}
