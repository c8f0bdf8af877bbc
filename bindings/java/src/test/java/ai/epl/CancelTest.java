package ai.epl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class CancelTest {
  private final Gate gate = new Gate();
  private World world;
  private Session session;
  private List<Tensor> batch;

  @BeforeEach
  void open() throws Exception {
    world = World.slow(gate);
    session = world.slowSession();
    batch = world.slowBatch();
  }

  @AfterEach
  void close() throws Exception {
    World.close(batch);
    session.close();
    world.close();
    for (int i = 0; i < 500 && Engine.liveHandles() > world.before; ++i) Thread.sleep(10);
    assertEquals(world.before, Engine.liveHandles());
  }

  @Test
  void aDeadlineEndsAStep() {
    EplException late = assertThrows(EplException.class,
        () -> session.step(batch, CallOptions.within(Duration.ofMillis(1))));
    assertEquals(ErrorCode.DEADLINE_EXCEEDED, late.code());
    assertTrue(late.isRetryable());
    assertEquals(0, session.steps());
    session.step(batch, CallOptions.within(Duration.ofDays(300_000)));
    assertEquals(1, session.steps());
  }

  @Test
  void aTokenEndsAStep() {
    try (Cancel cancel = world.engine.newCancel()) {
      assertFalse(cancel.isTriggered());
      cancel.trigger();
      CallOptions options = CallOptions.NONE.withCancel(cancel);
      assertEquals(ErrorCode.CANCELLED, assertThrows(EplException.class, () -> session.step(batch, options)).code());
      session.step(batch);
    }
  }

  @Test
  void anInterruptEndsAStepAndTheThreadStaysInterrupted() throws Exception {
    AtomicReference<ErrorCode> code = new AtomicReference<>();
    AtomicReference<Boolean> interrupted = new AtomicReference<>();
    Thread thread = new Thread(() -> {
      try {
        for (;;) session.step(batch);
      } catch (EplException error) {
        code.set(error.code());
        interrupted.set(Thread.currentThread().isInterrupted());
      }
    });
    thread.start();
    while (session.steps() == 0) Thread.sleep(1);
    thread.interrupt();
    thread.join(60_000);
    assertEquals(ErrorCode.CANCELLED, code.get());
    assertTrue(interrupted.get());
    session.step(batch); // by this thread, which nobody has interrupted
  }

  @Test
  void aThreadThatIsInterruptedAlreadyMakesNoStep() {
    Thread.currentThread().interrupt();
    try {
      assertEquals(ErrorCode.CANCELLED, assertThrows(EplException.class, () -> session.step(batch)).code());
    } finally {
      assertTrue(Thread.interrupted());
    }
    assertEquals(0, session.steps());
  }

  @Test
  void futuresComeInTheirOrder() throws Exception {
    List<CompletableFuture<Metrics>> steps = new ArrayList<>();
    for (int i = 0; i < 4; ++i) steps.add(session.stepAsync(batch));
    for (int i = 0; i < 4; ++i) assertEquals(i + 1, steps.get(i).get(60, TimeUnit.SECONDS).step());
  }

  @Test
  void aFutureThatIsCancelledEndsItsStepAndNoOther() throws Exception {
    gate.close();
    CompletableFuture<Metrics> running = session.stepAsync(batch);
    CompletableFuture<Metrics> waiting = session.stepAsync(batch);
    CompletableFuture<Metrics> last = session.stepAsync(batch);
    gate.awaitStep();
    assertTrue(waiting.cancel(true));
    gate.open();
    assertThrows(CancellationException.class, waiting::get);
    assertEquals(1, running.get().step());
    assertEquals(2, last.get().step());
    CompletableFuture<Metrics> ended = session.stepAsync(batch);
    TrainingTest.sleep(5);
    ended.cancel(true);
    CompletableFuture<Metrics> next = session.stepAsync(batch);
    assertTrue(next.get().step() <= 4);
  }

  @Test
  void aFutureHasTheExceptionOfItsStep() {
    CompletableFuture<Metrics> late = session.stepAsync(batch, CallOptions.within(Duration.ofMillis(1)));
    ExecutionException thrown = assertThrows(ExecutionException.class, late::get);
    assertEquals(ErrorCode.DEADLINE_EXCEEDED, ((EplException) thrown.getCause()).code());
  }

  @Test
  void aSecondCallerIsToldToTryAgain() throws Exception {
    gate.close();
    CompletableFuture<Metrics> running = session.stepAsync(batch);
    gate.awaitStep();
    EplException busy = assertThrows(EplException.class, session::hash);
    assertEquals(ErrorCode.BUSY, busy.code());
    assertTrue(busy.isRetryable());
    assertTrue(session.steps() <= 1);
    gate.open();
    running.get();
  }

  @Test
  void closingASessionLetsItsStepEnd() throws Exception {
    gate.close();
    CompletableFuture<Metrics> running = session.stepAsync(batch);
    CompletableFuture<Metrics> after = session.stepAsync(batch);
    gate.awaitStep();
    session.close();
    assertThrows(IllegalStateException.class, () -> session.step(batch));
    gate.open();
    Throwable never = assertThrows(ExecutionException.class, after::get).getCause();
    assertTrue(never instanceof IllegalStateException, never.toString());
    assertEquals(1, running.get().step());
  }
}
