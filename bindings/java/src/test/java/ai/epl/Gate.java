package ai.epl;

import java.util.ResourceBundle;
import java.util.concurrent.CountDownLatch;

/** A logger that can hold a step inside its call: it says nothing, and does not return. */
final class Gate implements System.Logger {
  private volatile CountDownLatch reached = new CountDownLatch(0);
  private volatile CountDownLatch opened = new CountDownLatch(0);

  /** The next step stays inside its call until {@link #open}. */
  void close() {
    opened = new CountDownLatch(1);
    reached = new CountDownLatch(1);
  }

  void awaitStep() throws InterruptedException {
    reached.await();
  }

  void open() {
    opened.countDown();
  }

  @Override
  public String getName() {
    return "gate";
  }

  @Override
  public boolean isLoggable(Level level) {
    return true;
  }

  @Override
  public void log(Level level, ResourceBundle bundle, String message, Throwable thrown) {
    reached.countDown();
    try {
      opened.await();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public void log(Level level, ResourceBundle bundle, String format, Object... parameters) {
    log(level, bundle, format, (Throwable) null);
  }
}
