package ai.epl;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Closes, at its end, the tensors that its thread has made in it: results of predictions, values of the state, inputs.
 * What another thread makes is none of its concern, nor are batches of a {@link Dataset}, which own their tensors.
 *
 * <pre>{@code
 * try (Scope scope = Scope.open()) {
 *   float[] scores = session.predict(List.of(engine.tensorOf(values, 1, 4))).get(0).toFloats();
 * }
 * }</pre>
 *
 * <p>Scopes nest, and the innermost one counts. In a loop a scope is opened for each round.
 */
public final class Scope implements AutoCloseable {
  private static final ThreadLocal<Scope> CURRENT = new ThreadLocal<>();

  private final Scope outer = CURRENT.get();
  private final Set<Tensor> open = ConcurrentHashMap.newKeySet();
  private volatile boolean closed;

  private Scope() {
    CURRENT.set(this);
  }

  /** One of this thread, which also closes it. */
  public static Scope open() {
    return new Scope();
  }

  /** The scope of a tensor that is made now; null where there is none. */
  static Scope take(Tensor made) {
    Scope scope = CURRENT.get();
    if (scope != null) scope.open.add(made);
    return scope;
  }

  /** A tensor that was closed before. */
  void forget(Tensor tensor) {
    open.remove(tensor);
  }

  /** The tensor outlives this scope: the one around it closes the tensor, or else the caller does. */
  public Tensor keep(Tensor tensor) {
    if (!open.remove(tensor)) return tensor;
    tensor.scope = outer;
    if (outer != null) outer.open.add(tensor);
    return tensor;
  }

  /**
   * Closes its tensors; a second time it does nothing.
   *
   * @throws IllegalStateException in another thread, and where a scope in this one is open
   */
  @Override
  public void close() {
    if (closed) return;
    if (CURRENT.get() != this) throw new IllegalStateException("this Scope is not the innermost one of this thread");
    if (outer == null) CURRENT.remove();
    else CURRENT.set(outer);
    closed = true;
    for (Tensor tensor : open) tensor.close();
  }
}
