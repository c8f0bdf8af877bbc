package ai.epl;

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

  @Override
  public void close() {
    while (entered > 0) {
      Tensor tensor = tensors.get(--entered);
      if (tensor != null) tensor.leave();
    }
  }
}
