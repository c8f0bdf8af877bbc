package ai.epl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.SubmissionPublisher;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Data that the host gives when it is asked, and data that it pushes. */
class HostDataTest {
  private static final List<TensorInfo> SAMPLE =
      List.of(TensorInfo.of("x", DataType.F32, 4), TensorInfo.of("target", DataType.I64));
  private static final List<TensorInfo> BATCH =
      List.of(TensorInfo.of("x", DataType.F32, World.BATCH, 4), TensorInfo.of("target", DataType.I64, World.BATCH));

  private static Dataset dataset(World world, SampleReader reader, String options) {
    return world.engine.newDataset(SAMPLE, 16, reader, options);
  }

  private static final SampleReader READER = (field, samples, target) -> {
    for (long sample : samples) {
      int n = (int) sample % World.BATCH;
      if (field == 1) target.putLong(World.targets()[n]);
      for (int i = 0; field == 0 && i < 4; ++i) target.putFloat(World.inputs()[4 * n + i]);
    }
  };

  @Test
  void samplesOfTheHostTrainAsTensorsDo() throws Exception {
    for (String options : List.of("{\"batch\": 8}", "{\"batch\": 8, \"prefetch\": 2}")) {
      long before = Engine.liveHandles();
      try (World world = new World(); Plan plan = world.plan(World.BATCH); Session session = plan.newSession();
          Session same = plan.newSession(); Dataset dataset = dataset(world, READER, options)) {
        assertEquals(16, dataset.samples());
        assertEquals(List.of("x", "target"), dataset.fields().stream().map(TensorInfo::name).toList());
        dataset.bind(plan, Entry.TRAIN);
        List<Tensor> batch = world.batch();
        int steps = 0;
        for (int epoch = 0; epoch < 2; ++epoch) {
          for (List<Tensor> next : dataset.epoch()) {
            session.step(next);
            same.step(batch);
            ++steps;
          }
        }
        assertEquals(4, steps);
        assertEquals(4, dataset.position());
        assertEquals(same.hash(), session.hash());
        World.close(batch);
      }
      assertEquals(before, Engine.liveHandles());
    }
  }

  @Test
  void whatAReaderThrowsIsTheErrorOfTheBatch() throws Exception {
    boolean[] broken = {true};
    try (World world = new World(); Dataset dataset = dataset(world, (field, samples, target) -> {
      if (broken[0]) throw new EplException(ErrorCode.DATA_LOSS, "row " + samples[0] + " is damaged 😀");
      READER.read(field, samples, target);
    }, "{\"batch\": 4}")) {
      EplException error = assertThrows(EplException.class, dataset::next);
      assertEquals(ErrorCode.DATA_LOSS, error.code());
      assertTrue(error.getMessage().contains("row 0 is damaged 😀"), error.getMessage());
      broken[0] = false;
      assertEquals(16, dataset.next().get(0).toFloats().length);
    }
  }

  @Test
  void whereNobodyKnowsHowManyThereAreTheEndIsFound() throws Exception {
    try (World world = new World(); Dataset dataset = world.engine.newDataset(SAMPLE, -1, (field, samples, target) -> {
      for (long sample : samples) {
        if (sample >= 24) throw new EplException(ErrorCode.NOT_FOUND, "no more");
      }
      READER.read(field, samples, target);
    }, "{\"batch\": 8}")) {
      int batches = 0;
      for (List<Tensor> next : dataset.epoch()) batches += next.size() / 2;
      assertEquals(3, batches);
    }
  }

  @Test
  void aFeedHoldsBackWhoPushes() throws Exception {
    long before = Engine.liveHandles();
    try (World world = new World(); Feed feed = world.engine.newFeed(BATCH, 2); Dataset dataset = feed.dataset()) {
      List<Tensor> batch = world.batch();
      feed.push(batch);
      feed.push(batch);
      EplException full = assertThrows(EplException.class,
          () -> feed.push(batch, CallOptions.within(Duration.ofMillis(20))));
      assertEquals(ErrorCode.DEADLINE_EXCEEDED, full.code());
      CompletableFuture<Void> third = CompletableFuture.runAsync(() -> feed.push(batch));
      TrainingTest.sleep(20);
      assertFalse(third.isDone());
      assertArrayEquals(World.inputs(), dataset.next().get(0).toFloats());
      third.get(10, TimeUnit.SECONDS);

      // An interrupt ends the wait as well.
      Thread[] waiting = new Thread[1];
      CompletableFuture<ErrorCode> interrupted = new CompletableFuture<>();
      waiting[0] = new Thread(() -> {
        try {
          feed.push(batch);
        } catch (EplException error) {
          interrupted.complete(error.code());
        }
      });
      waiting[0].start();
      TrainingTest.sleep(20);
      waiting[0].interrupt();
      assertEquals(ErrorCode.CANCELLED, interrupted.get(10, TimeUnit.SECONDS));

      feed.finish();
      int left = 0;
      for (List<Tensor> next : dataset.epoch()) left += next.size() / 2;
      assertEquals(2, left);
      assertEquals(ErrorCode.NOT_FOUND, assertThrows(EplException.class, dataset::next).code());
      assertEquals(-1, dataset.batches());
      World.close(batch);
    }
    assertEquals(before, Engine.liveHandles());
  }

  @Test
  void aPublisherIsAskedForNoMoreThanIsTaken() throws Exception {
    long before = Engine.liveHandles();
    try (World world = new World(); Plan plan = world.plan(World.BATCH); Session session = plan.newSession();
        Feed feed = world.engine.newFeed(BATCH, 1); Dataset dataset = feed.dataset()) {
      SubmissionPublisher<List<Tensor>> publisher = new SubmissionPublisher<>(Runnable::run, 1);
      dataset.bind(plan, Entry.TRAIN);
      publisher.subscribe(feed.subscriber());
      CompletableFuture<Void> publishing = CompletableFuture.runAsync(() -> {
        try (publisher) {
          for (int i = 0; i < 200; ++i) publisher.submit(world.batch());
        }
      });
      List<Double> losses = new ArrayList<>();
      for (List<Tensor> batch : dataset.epoch()) {
        garbage = new byte[1 << 18];
        losses.add(session.step(batch).loss());
      }
      publishing.get(10, TimeUnit.SECONDS);
      assertEquals(200, losses.size());
      assertTrue(losses.get(199) < losses.get(0));
    }
    assertEquals(before, Engine.liveHandles());
  }

  private static volatile Object garbage;

  @Test
  void aPublisherThatFailsIsAnErrorToWhoWaits() throws Exception {
    try (World world = new World(); Feed feed = world.engine.newFeed(BATCH, 1); Dataset dataset = feed.dataset();
        SubmissionPublisher<List<Tensor>> publisher = new SubmissionPublisher<>(Runnable::run, 1)) {
      publisher.subscribe(feed.subscriber());
      CompletableFuture<List<Tensor>> waiting = CompletableFuture.supplyAsync(dataset::next);
      publisher.closeExceptionally(new IllegalStateException("gone"));
      Exception error = assertThrows(Exception.class, () -> waiting.get(10, TimeUnit.SECONDS));
      assertTrue(error.getCause() instanceof EplException, error.toString());
      assertTrue(feed.isClosed());
    }
  }
}
