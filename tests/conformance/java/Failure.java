import ai.epl.raw.Raw;
import java.nio.charset.StandardCharsets;

/** An error of the library, or of a callback. */
final class Failure extends RuntimeException {
  private static final long serialVersionUID = 1;
  final int code;
  final transient byte[] message;
  final transient byte[] where;
  final long rank;
  final boolean retryable;

  Failure(int code, byte[] message, byte[] where, long rank, boolean retryable) {
    this.code = code;
    this.message = message;
    this.where = where;
    this.rank = rank;
    this.retryable = retryable;
  }

  Failure(int code, String message) {
    this(code, message.getBytes(StandardCharsets.UTF_8), new byte[0], -1, false);
  }

  static final class Maker implements Raw.Failures {
    @Override
    public RuntimeException make(int code, byte[] message, byte[] where, long rank, boolean retryable) {
      return new Failure(code, message, where, rank, retryable);
    }

    @Override
    public int codeOf(Throwable thrown) {
      return thrown instanceof Failure failure ? failure.code : Raw.EPL_ERROR_INTERNAL;
    }

    @Override
    public byte[] messageOf(Throwable thrown) {
      return thrown instanceof Failure failure ? failure.message
          : thrown.toString().getBytes(StandardCharsets.UTF_8);
    }
  }
}
