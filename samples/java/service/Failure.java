import ai.epl.EplException;

/** What a client hears, and its HTTP status. */
final class Failure extends RuntimeException {
  private static final long serialVersionUID = 1;
  final int status;

  Failure(int status, String message) {
    super(message);
    this.status = status;
  }

  static Failure unknown() {
    return new Failure(404, "there is no such job or upload");
  }

  /** What the library, the disk or we have thrown. */
  static Failure of(Throwable error) {
    if (error instanceof Failure ours) return ours;
    String message = error.getMessage() == null ? error.toString() : error.getMessage();
    if (error instanceof EplException library) {
      int status = switch (library.code()) {
        case BUSY -> 409;
        case INTERNAL, IO, OUT_OF_MEMORY -> 500;
        default -> 400;
      };
      return new Failure(status, message);
    }
    return new Failure(500, message);
  }

  /** What is not worth more room in a message. */
  static String excerpt(String text) {
    return text.length() > 100 ? text.substring(0, 100) + "..." : text;
  }
}
