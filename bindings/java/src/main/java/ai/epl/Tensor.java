package ai.epl;

import ai.epl.raw.Raw;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Data of one type and shape, row-major. */
public final class Tensor extends Handle {
  /** A batch's tensor belongs to its dataset. */
  private final Dataset.Batch batch;
  /** What has the memory: a buffer that was borrowed stays alive with the tensor. */
  private final ByteBuffer borrowed;
  /** What closes it; null: whoever has it. */
  volatile Scope scope;

  Tensor(Engine engine, long address) {
    this(engine, address, (ByteBuffer) null);
  }

  Tensor(Engine engine, long address, ByteBuffer borrowed) {
    super(engine, address);
    this.borrowed = borrowed;
    batch = null;
    scope = Scope.take(this);
  }

  Tensor(Engine engine, long address, Dataset.Batch batch) {
    super(engine, address, false);
    this.batch = batch;
    borrowed = null;
  }

  public DataType type() {
    return DataType.of(use(Raw::epl_tensor_dtype));
  }

  public long[] dims() {
    return use(tensor -> {
      long[] dims = new long[Raw.epl_tensor_ndim(tensor)];
      for (int i = 0; i < dims.length; ++i) dims[i] = Raw.epl_tensor_dim(tensor, i);
      return dims;
    });
  }

  public long bytes() {
    return use(Raw::epl_tensor_bytes);
  }

  /**
   * Its memory, which is not copied: the tensor's memory stays, even if the tensor is closed, until this buffer and all
   * buffers made from it are collected. Of a tensor of a {@link Dataset}, whose memory the next batch overwrites, it is
   * a copy.
   */
  public ByteBuffer buffer() {
    if (borrowed != null) {
      enter();
      leave();
      return borrowed.slice().order(ByteOrder.nativeOrder());
    }
    if (batch != null) return use(tensor -> direct(memory(tensor)));
    long tensor = enter();
    ByteBuffer root;
    try {
      root = memory(tensor);
    } catch (RuntimeException error) {
      leave();
      throw error;
    }
    // Buffers made from it refer to it, so it is collected after them.
    CLEANER.register(root, new Held(this));
    ByteBuffer view = Raw.epl_tensor_is_read_only(tensor) == 1 ? root.asReadOnlyBuffer() : root.duplicate();
    return view.order(ByteOrder.nativeOrder());
  }

  /** A view is one user of the tensor. */
  private record Held(Tensor tensor) implements Runnable {
    @Override
    public void run() {
      tensor.leave();
    }
  }

  /**
   * The address of a DLManagedTensorVersioned, by which a library that knows DLPack takes the data without a copy. It
   * keeps the data alive, and whoever receives it calls its deleter.
   */
  public long toDlpack() {
    return use(Raw::epl_tensor_to_dlpack);
  }

  /** A copy, of a tensor of type F32. */
  public float[] toFloats() {
    return use(tensor -> {
      float[] values = new float[elements(tensor, DataType.F32)];
      memory(tensor).asFloatBuffer().get(values);
      return values;
    });
  }

  /** A copy, of a tensor of type F64. */
  public double[] toDoubles() {
    return use(tensor -> {
      double[] values = new double[elements(tensor, DataType.F64)];
      memory(tensor).asDoubleBuffer().get(values);
      return values;
    });
  }

  /** A copy, of a tensor of type I64. */
  public long[] toLongs() {
    return use(tensor -> {
      long[] values = new long[elements(tensor, DataType.I64)];
      memory(tensor).asLongBuffer().get(values);
      return values;
    });
  }

  /** A copy, of a tensor of type I32. */
  public int[] toInts() {
    return use(tensor -> {
      int[] values = new int[elements(tensor, DataType.I32)];
      memory(tensor).asIntBuffer().get(values);
      return values;
    });
  }

  private static int elements(long tensor, DataType type) {
    DataType actual = DataType.of(Raw.epl_tensor_dtype(tensor));
    if (actual != type) throw new IllegalStateException("the tensor is of type " + actual + ", not " + type);
    return Math.toIntExact(Raw.epl_tensor_bytes(tensor) / type.bytes);
  }

  /** Valid as long as the tensor. A buffer has at most 2 GiB. */
  static ByteBuffer memory(long tensor) {
    if (Raw.epl_tensor_device(tensor) != Raw.EPL_DEVICE_CPU)
      throw new IllegalStateException("the tensor lies on a GPU, where the host cannot read it");
    long bytes = Raw.epl_tensor_bytes(tensor);
    long data = Raw.epl_tensor_data(tensor);
    if (bytes > Integer.MAX_VALUE) throw new IllegalStateException(bytes + " bytes do not fit into a ByteBuffer");
    if (bytes == 0 || data == 0) return ByteBuffer.allocateDirect(0).order(ByteOrder.nativeOrder());
    return Raw.buffer(data, bytes).order(ByteOrder.nativeOrder());
  }

  private static ByteBuffer direct(ByteBuffer data) {
    ByteBuffer copy = ByteBuffer.allocateDirect(data.remaining()).order(ByteOrder.nativeOrder());
    return copy.put(data).flip();
  }

  @Override
  long enter() {
    if (batch == null) return super.enter();
    batch.enter();
    return address;
  }

  @Override
  void leave() {
    if (batch == null) {
      super.leave();
    } else {
      batch.leave();
    }
  }

  /** Of a batch's tensor nothing: it belongs to its dataset. */
  @Override
  public void close() {
    if (batch != null) return;
    Scope of = scope;
    if (of != null) of.forget(this);
    super.close();
  }

  @Override
  void destroy() {
    Raw.epl_tensor_destroy(address);
  }
}
