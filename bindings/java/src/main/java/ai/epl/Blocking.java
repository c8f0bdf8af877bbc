package ai.epl;

import ai.epl.raw.Raw;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.spi.AbstractInterruptibleChannel;

/**
 * What a blocking call takes along: its options, and a token that an interrupt of its thread triggers. No bytes go
 * through this channel: it is one because Java tells channels alone, at once, that a thread was interrupted. It is used
 * again, by one call after the other, until it was triggered.
 */
final class Blocking extends AbstractInterruptibleChannel {
  final Raw.CallOptions options = new Raw.CallOptions();
  final Raw.Metrics metrics = new Raw.Metrics();
  private final long token;
  private Cancel cancel;

  Blocking(long token) {
    this.token = token;
  }

  @Override
  protected void implCloseChannel() {
    Raw.epl_cancel_trigger(token);
  }

  void enter(CallOptions call) {
    cancel = call.cancel();
    options.timeoutNanoseconds(call.nanoseconds()).samples(call.samples()).stream(call.stream());
    options.cancel(cancel == null ? token : cancel.enter());
    if (cancel == null) begin();
  }

  void leave() {
    if (cancel != null) {
      cancel.leave();
      cancel = null;
      return;
    }
    try {
      end(true);
    } catch (AsynchronousCloseException interrupted) {
      // The thread is still interrupted. What the call has to say about it, it has said.
    }
  }

  void destroy() {
    Raw.epl_cancel_destroy(token);
  }
}
