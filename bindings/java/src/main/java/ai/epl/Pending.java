package ai.epl;

import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/** A call that another thread makes. Cancelling it interrupts that thread, which ends the call. */
final class Pending<T> extends CompletableFuture<T> implements Runnable {
  private final Supplier<T> body;
  private final Cancel token;
  private Thread runner;

  /** `token`: that of the call's options, which does not look at interrupts then; or null. */
  Pending(Cancel token, Supplier<T> body) {
    this.token = token;
    this.body = body;
  }

  @Override
  public void run() {
    synchronized (this) {
      runner = Thread.currentThread();
      if (isDone()) runner.interrupt(); // cancelled before it began
    }
    try {
      complete(body.get());
    } catch (Throwable thrown) {
      completeExceptionally(thrown);
    } finally {
      synchronized (this) {
        runner = null;
        Thread.interrupted(); // what was meant for this call is not the next one's
      }
    }
  }

  @Override
  public boolean cancel(boolean mayInterrupt) {
    boolean cancelled = super.cancel(mayInterrupt);
    synchronized (this) {
      if (cancelled && runner != null) runner.interrupt();
      if (cancelled && token != null && !token.isClosed()) token.trigger();
    }
    return cancelled;
  }
}
