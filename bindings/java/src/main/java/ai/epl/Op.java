package ai.epl;

import java.util.List;

/**
 * An operator of the host's own: {@link Engine#addOp}. Any threads may call its methods at once. The same operands must
 * always have the same answer. What a method throws ends the call that it serves: a plan is not made, a step changes
 * nothing.
 */
public interface Op {
  /** Of the operator in a model's file; not the standard's. */
  String domain();

  /** Its op type. */
  String name();

  /** How many outputs it has. */
  default int outputs() {
    return 1;
  }

  /**
   * How dimensions of inputs and outputs correspond, a letter for each: "n k, k -> n k" lets a batch be cut at n, and
   * "... k -> ... k" in any dimension in front. "| unshardable k" behind it says what must stay uncut. Null: nothing is
   * cut.
   */
  default String sharding() {
    return null;
  }

  /**
   * The types of the outputs for inputs of such types, of the full batch and of a rank's part of it.
   *
   * @param attributes of the node, a JSON object
   * @return {@link Operand#of} each
   */
  List<Operand> shape(String attributes, List<Operand> inputs) throws Exception;

  /** Writes the outputs. */
  void run(String attributes, List<Operand> inputs, List<Operand> outputs) throws Exception;

  /** An operator that can be trained through. */
  interface WithGradient extends Op {
    /**
     * Writes the gradients of the inputs, of which there are as many as inputs.
     *
     * @param upstream the gradients of the outputs; one through which nothing flows back is absent
     * @param gradients those that nobody wants are absent
     */
    void gradient(String attributes, List<Operand> inputs, List<Operand> outputs, List<Operand> upstream,
        List<Operand> gradients) throws Exception;
  }
}
