package ai.epl;

import ai.epl.raw.Raw;
import java.util.ArrayList;
import java.util.List;

/**
 * Name and type of an input, an output, a parameter or a field.
 *
 * @param shape -1 where a size is not known before a plan binds it
 */
public record TensorInfo(String name, DataType type, List<Long> shape) {
  /** Asks for one of many. */
  interface Read {
    void read(long index, Raw.TensorInfo info);
  }

  public TensorInfo {
    shape = List.copyOf(shape);
  }

  public long[] dims() {
    return shape.stream().mapToLong(Long::longValue).toArray();
  }

  static List<TensorInfo> all(long count, Read read) {
    List<TensorInfo> found = new ArrayList<>();
    for (long i = 0; i < count; ++i) {
      Raw.TensorInfo info = new Raw.TensorInfo();
      read.read(i, info);
      List<Long> shape = new ArrayList<>();
      for (int dim = 0; dim < info.ndim(); ++dim) shape.add(info.dims(dim));
      found.add(new TensorInfo(Text.of(info.name()), DataType.of(info.dtype()), shape));
    }
    return List.copyOf(found);
  }
}
