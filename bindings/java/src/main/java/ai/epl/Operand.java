package ai.epl;

import ai.epl.raw.Raw;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A tensor that an {@link Op} reads or writes, dense and row-major, or the type of one. Valid during the call. */
public final class Operand {
  private final DataType type;
  private final long[] dims;
  private final ByteBuffer data;

  private Operand(DataType type, long[] dims, ByteBuffer data) {
    this.type = type;
    this.dims = dims;
    this.data = data;
  }

  /** A type alone. */
  public static Operand of(DataType type, long... dims) {
    return new Operand(type, dims.clone(), null);
  }

  public DataType type() {
    return type;
  }

  public long[] dims() {
    return dims.clone();
  }

  /** An input that the node leaves out, or a gradient that is not wanted or not there. */
  public boolean isAbsent() {
    return type == DataType.NONE;
  }

  /** Its elements, in the machine's order of bytes. */
  public ByteBuffer buffer() {
    if (data == null) throw new IllegalStateException("there is no data: the operand is absent, or a type alone");
    return data.slice().order(ByteOrder.nativeOrder());
  }

  static List<Operand> all(ByteBuffer structs, boolean readOnly) {
    List<Operand> all = new ArrayList<>();
    for (int i = 0; structs != null && i < structs.capacity() / Raw.OpTensor.SIZE; ++i) {
      Raw.OpTensor raw = new Raw.OpTensor(structs, i);
      long[] dims = new long[raw.ndim()];
      for (int dim = 0; dim < dims.length; ++dim) dims[dim] = raw.dims(dim);
      ByteBuffer data = raw.data() == 0 ? null : Raw.buffer(raw.data(), raw.bytes());
      all.add(new Operand(DataType.of(raw.dtype()), dims, readOnly && data != null ? data.asReadOnlyBuffer() : data));
    }
    return all;
  }

  /** Fills types in. */
  static void fill(List<Operand> types, ByteBuffer structs) {
    int count = structs.capacity() / Raw.OpTensor.SIZE;
    if (types.size() != count) {
      throw new IllegalArgumentException("shape gave the types of " + types.size() + " outputs, the operator has "
          + count);
    }
    for (int i = 0; i < count; ++i) {
      Operand type = types.get(i);
      if (type.dims.length > Raw.EPL_MAX_NDIM) {
        throw new IllegalArgumentException(Arrays.toString(type.dims) + " has more than " + Raw.EPL_MAX_NDIM
            + " dimensions");
      }
      Raw.OpTensor raw = new Raw.OpTensor(structs, i).dtype(type.type.number).ndim(type.dims.length);
      for (int dim = 0; dim < type.dims.length; ++dim) raw.dims(dim, type.dims[dim]);
    }
  }
}
