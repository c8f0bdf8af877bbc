package ai.epl;

/**
 * An error of the library: what was wrong and what to do is the message. Callbacks of the host throw one to say which
 * code the call that they serve has; what else they throw is an INTERNAL error, and an IOException an IO error.
 */
public final class EplException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final ErrorCode code;
  private final String where;
  private final long rank;
  private final boolean retryable;

  /** An error of the host's own, thrown by its callbacks. */
  public EplException(ErrorCode code, String message) {
    this(code, message, "", -1, false);
  }

  EplException(ErrorCode code, String message, String where, long rank, boolean retryable) {
    super(message);
    this.code = code;
    this.where = where;
    this.rank = rank;
    this.retryable = retryable;
  }

  public ErrorCode code() {
    return code;
  }

  /** The node, file or object it concerns; empty when there is none. */
  public String where() {
    return where;
  }

  /** The rank of the job that it concerns; -1 when there is none. */
  public long rank() {
    return rank;
  }

  /** Whether the same call may succeed later. */
  public boolean isRetryable() {
    return retryable;
  }
}
