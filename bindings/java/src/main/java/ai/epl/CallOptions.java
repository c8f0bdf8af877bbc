package ai.epl;

import java.time.Duration;

/**
 * For how long a call may take, and by what it is ended. Immutable.
 *
 * <p>Without a token of its own, a call ends when its thread is interrupted: {@link EplException} with
 * {@link ErrorCode#CANCELLED}, and the thread stays interrupted.
 *
 * @param timeout null: it takes as long as it takes. Looked at between pieces of work; a large product has many
 * @param cancel null: the call looks at interrupts instead
 * @param samples in evaluate and predict of a session that takes slices: how many samples of the full batch count, its
 *     first ones; 0: all
 * @param stream of tensors of a GPU: the stream of the program behind whose work they may be read and written, as
 *     DLPack numbers it. 0 and 1: the legacy default stream; -1: none, the program has waited itself; else the handle of
 *     a stream of that GPU
 */
public record CallOptions(Duration timeout, Cancel cancel, long samples, long stream) {
  public static final CallOptions NONE = new CallOptions(null, null, 0);

  public CallOptions(Duration timeout, Cancel cancel, long samples) {
    this(timeout, cancel, samples, 0);
  }

  public static CallOptions within(Duration timeout) {
    return NONE.withTimeout(timeout);
  }

  public CallOptions withTimeout(Duration timeout) {
    return new CallOptions(timeout, cancel, samples, stream);
  }

  public CallOptions withCancel(Cancel cancel) {
    return new CallOptions(timeout, cancel, samples, stream);
  }

  public CallOptions withSamples(long samples) {
    return new CallOptions(timeout, cancel, samples, stream);
  }

  public CallOptions withStream(long stream) {
    return new CallOptions(timeout, cancel, samples, stream);
  }

  /** The same with what is left of the timeout after so much of it. */
  CallOptions left(long nanoseconds) {
    return timeout == null ? this : withTimeout(timeout.minusNanos(nanoseconds));
  }

  /** 0 is no deadline to the library, so one that has passed is a nanosecond. */
  long nanoseconds() {
    return timeout == null ? 0 : nanoseconds(timeout);
  }

  static long nanoseconds(Duration duration) {
    try {
      return Math.max(1, duration.toNanos());
    } catch (ArithmeticException longerThanACentury) {
      return duration.isNegative() ? 1 : Long.MAX_VALUE;
    }
  }
}
