package ai.epl;

import ai.epl.raw.Raw;

/** What a plan can do: a step, an evaluation or a prediction, of batches of one shape. */
public final class Entry {
  public static final Entry TRAIN = new Entry(Raw.EPL_ENTRY_TRAIN);
  public static final Entry EVALUATE = new Entry(Raw.EPL_ENTRY_EVALUATE);
  public static final Entry PREDICT = new Entry(Raw.EPL_ENTRY_PREDICT);

  final int number;

  private Entry(int number) {
    this.number = number;
  }

  /**
   * The same for batches of the n-th shape that {@link Trainer#addShape} has added, counted from 1; 0: of the
   * shape that the trainer binds.
   */
  public Entry shape(int n) {
    return new Entry(Math.addExact(number, Math.multiplyExact(n, Raw.EPL_ENTRY_SHAPE)));
  }

  int shapeNumber() {
    return number / Raw.EPL_ENTRY_SHAPE;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Entry entry && entry.number == number;
  }

  @Override
  public int hashCode() {
    return number;
  }

  @Override
  public String toString() {
    String kind = switch (number % Raw.EPL_ENTRY_SHAPE) {
      case Raw.EPL_ENTRY_TRAIN -> "train";
      case Raw.EPL_ENTRY_EVALUATE -> "evaluate";
      default -> "predict";
    };
    int shape = shapeNumber();
    return shape == 0 ? kind : kind + "@" + shape;
  }
}
