package ai.epl;

import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;

/**
 * An object of the library. Whoever makes it closes it, in any order; what was made from it lives on.
 *
 * <p>{@link #close} may be called at any time, also beside a call of another thread, which then ends as if nothing had
 * happened: the object goes with the last call. A call that begins afterwards throws {@link IllegalStateException}. An
 * object that is collected without having been closed stays in memory and is reported to the logger "ai.epl", with the
 * place where it was made if the system property {@code ai.epl.leaks} is {@code true}.
 */
public abstract class Handle implements AutoCloseable {
  static final Cleaner CLEANER = Cleaner.create();
  private static final AtomicLong LEAKED = new AtomicLong();
  private static final boolean TRACED = Boolean.getBoolean("ai.epl.leaks");

  /** What the leak reporter sees: all of the handle but the handle. */
  private static final class State implements Runnable {
    final String type;
    final Throwable made;
    final AtomicBoolean closed = new AtomicBoolean();

    State(String type) {
      this.type = type;
      made = TRACED ? new Throwable("made here") : null;
    }

    @Override
    public void run() {
      if (closed.get()) return;
      LEAKED.incrementAndGet();
      System.getLogger("ai.epl").log(System.Logger.Level.WARNING, type + " was collected and not closed", made);
    }
  }

  /** What it was made with: alive as long as this object, whoever closes it. Null for the engine itself. */
  final Engine engine;
  final long address;
  private final State state = new State(getClass().getSimpleName());
  private final Cleaner.Cleanable cleanable;
  /** The open handle is one user, each call one more, and of an engine each object that was made with it. */
  private final AtomicInteger users = new AtomicInteger(1);

  Handle(Engine engine, long address) {
    this(engine, address, true);
  }

  /** `owned` is false for what another object gives back. */
  Handle(Engine engine, long address, boolean owned) {
    this.engine = engine;
    this.address = address;
    cleanable = owned ? CLEANER.register(this, state) : null;
    if (engine != null && owned) ((Handle) engine).users.incrementAndGet();
  }

  /** The library's destroy function of this type. */
  abstract void destroy();

  /** Keeps the object alive until {@link #leave}, for a call. */
  long enter() {
    for (;;) {
      int n = users.get();
      if (n == 0 || state.closed.get()) throw new IllegalStateException("this " + state.type + " is closed");
      if (users.compareAndSet(n, n + 1)) return address;
    }
  }

  void leave() {
    if (users.decrementAndGet() > 0) return;
    destroy();
    if (engine != null) ((Handle) engine).leave();
  }

  final <T> T use(LongFunction<T> call) {
    long alive = enter();
    try {
      return call.apply(alive);
    } finally {
      leave();
    }
  }

  final void run(LongConsumer call) {
    long alive = enter();
    try {
      call.accept(alive);
    } finally {
      leave();
    }
  }

  /** The same for an argument that may be null. */
  static <T> T use(Handle handle, LongFunction<T> call) {
    return handle == null ? call.apply(0) : handle.use(call);
  }

  public final boolean isClosed() {
    return state.closed.get();
  }

  @Override
  public void close() {
    if (!state.closed.compareAndSet(false, true)) return;
    cleanable.clean();
    leave();
  }

  /** Objects that were collected without having been closed, so far in this process. */
  public static long leaked() {
    return LEAKED.get();
  }

  @Override
  public String toString() {
    return state.type + (isClosed() ? " (closed)" : "");
  }
}
