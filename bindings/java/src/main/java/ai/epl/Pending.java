package ai.epl;

import ai.epl.raw.Raw;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Work of a session that goes on after its call: a future over an event of the library. */
final class Pending extends CompletableFuture<Metrics> {
  /** Gives the event. */
  interface Begin {
    long begin(long session, long[] inputs, long[] outputs, Raw.CallOptions call);
  }

  private final Session session;
  private final CallOptions options;
  private final Tensors inputs;
  private final Tensors outputs;
  private final Begin begin;
  /** Of the library, which {@link #cancel} triggers where the options bring none; 0 before and after the work. */
  private long token;
  private long event;

  Pending(Session session, CallOptions options, List<Tensor> inputs, List<Tensor> outputs, Begin begin) {
    this.session = session;
    this.options = options;
    this.begin = begin;
    this.inputs = new Tensors(inputs);
    try {
      this.outputs = new Tensors(outputs);
    } catch (RuntimeException error) {
      this.inputs.close();
      throw error;
    }
  }

  /** Begins the work, and says whether it goes on: {@link Session#done} follows then. */
  boolean start() {
    boolean entered = false;
    try {
      if (!isDone()) { // else it was cancelled while it waited
        long address = session.enter();
        entered = true;
        Raw.CallOptions call = new Raw.CallOptions().timeoutNanoseconds(options.nanoseconds())
            .samples(options.samples()).stream(options.stream()).cancel(enterToken());
        event = begin.begin(address, inputs.addresses, outputs.addresses, call);
      }
    } catch (Throwable refused) {
      end();
      if (entered) session.leave();
      completeExceptionally(refused);
      return false;
    }
    if (event == 0) {
      end();
      return false;
    }
    try {
      Raw.epl_event_on_ready(event, this::ready);
    } catch (RuntimeException noMemory) {
      ready();
    }
    return true;
  }

  /** By the session's thread; the session is free by now. */
  private void ready() {
    Metrics metrics = null;
    Throwable failure = null;
    try {
      Raw.Metrics raw = new Raw.Metrics();
      Raw.epl_event_wait(event, null, raw);
      metrics = Metrics.of(raw);
    } catch (Throwable error) {
      failure = error;
    }
    end();
    session.leave();
    if (failure == null) {
      complete(metrics);
    } else {
      completeExceptionally(failure);
    }
    session.done();
  }

  private synchronized long enterToken() {
    if (options.cancel() != null) return token = options.cancel().enter();
    return token = Raw.epl_cancel_create(session.engine.address);
  }

  private synchronized void end() {
    inputs.close();
    outputs.close();
    if (event != 0) Raw.epl_event_destroy(event);
    if (token != 0 && options.cancel() != null) {
      options.cancel().leave();
    } else if (token != 0) {
      Raw.epl_cancel_destroy(token);
    }
    token = 0;
  }

  @Override
  public boolean cancel(boolean mayInterrupt) {
    boolean cancelled = super.cancel(mayInterrupt);
    synchronized (this) {
      if (cancelled && token != 0) Raw.epl_cancel_trigger(token);
    }
    return cancelled;
  }
}
