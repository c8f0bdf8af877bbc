package ai.epl;

/** What a plan can do: a step, an evaluation, a prediction. */
public enum Entry {
  TRAIN(0),
  EVALUATE(1),
  PREDICT(2);

  final int number;

  Entry(int number) {
    this.number = number;
  }
}
