package ai.epl;

/** What a session holds by name. */
public enum StateKind {
  /** Trained. */
  PARAMETER(0),
  /** A parameter that is not trained. */
  FROZEN(1),
  /** Running statistics. */
  BUFFER(2),
  OPTIMIZER(3);

  final int number;

  StateKind(int number) {
    this.number = number;
  }
}
