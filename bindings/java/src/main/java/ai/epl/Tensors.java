package ai.epl;

import ai.epl.raw.Raw;
import java.util.Arrays;
import java.util.List;

/** The handles of a call's inputs, alive until it ends. A null stands for an input that this process does not read. */
final class Tensors implements AutoCloseable {
  final long[] addresses;
  private final List<Tensor> tensors;
  private int entered;

  Tensors(List<Tensor> tensors) {
    this.tensors = tensors;
    addresses = new long[tensors.size()];
    try {
      for (; entered < addresses.length; ++entered) {
        Tensor tensor = tensors.get(entered);
        addresses[entered] = tensor == null ? 0 : tensor.enter();
      }
    } catch (RuntimeException error) {
      close();
      throw error;
    }
  }

  /** A prediction of a session or a predictor. */
  interface Predict {
    void predict(long[] inputs, Raw.CallOptions call, long[] outputs);
  }

  /** Into so many new tensors. */
  static List<Tensor> predict(Engine engine, List<Tensor> inputs, int outputs, CallOptions options, Predict predict) {
    try (Tensors in = new Tensors(inputs)) {
      long[] made = new long[outputs];
      engine.block(options, call -> {
        predict.predict(in.addresses, call.options, made);
        return null;
      });
      return Arrays.stream(made).mapToObj(address -> new Tensor(engine, address)).toList();
    }
  }

  static void predictInto(Engine engine, List<Tensor> inputs, List<Tensor> outputs, CallOptions options,
      Predict predict) {
    try (Tensors in = new Tensors(inputs); Tensors out = new Tensors(outputs)) {
      engine.block(options, call -> {
        predict.predict(in.addresses, call.options, out.addresses);
        return null;
      });
    }
  }

  @Override
  public void close() {
    while (entered > 0) {
      Tensor tensor = tensors.get(--entered);
      if (tensor != null) tensor.leave();
    }
  }
}
