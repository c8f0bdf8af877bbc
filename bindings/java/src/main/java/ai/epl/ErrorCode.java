package ai.epl;

/** What kind of error it is. A code that this version does not know is {@link #INTERNAL}. */
public enum ErrorCode {
  /** The caller passed something wrong. */
  INVALID_ARGUMENT(1),
  /** A model file is damaged or contradicts itself. */
  INVALID_MODEL(2),
  /** Known, but not built or not possible here. */
  UNSUPPORTED(3),
  /** A file, key or name that does not exist. */
  NOT_FOUND(4),
  /** The operating system refused a read or a write. */
  IO(5),
  OUT_OF_MEMORY(6),
  /** The thread was interrupted, the future or the token cancelled. */
  CANCELLED(7),
  DEADLINE_EXCEEDED(8),
  /** Another rank died or returned an error. */
  PEER_FAILED(9),
  /** Calls in an order or on threads that the rules forbid. */
  MISUSE(10),
  /** NaN or infinity where the step had to stop. */
  NOT_FINITE(11),
  /** A fault of the library. */
  INTERNAL(12),
  /** A checkpoint or plan file is damaged. */
  DATA_LOSS(13),
  /** Another thread is inside a call with this object: try again. */
  BUSY(14),
  /** The state of this session is no longer that of one step: load a checkpoint. */
  STATE_LOST(15),
  /** No thread, descriptor or space on the disk. */
  EXHAUSTED(16);

  final int number;

  ErrorCode(int number) {
    this.number = number;
  }

  static ErrorCode of(int number) {
    for (ErrorCode code : values()) {
      if (code.number == number) return code;
    }
    return INTERNAL;
  }
}
