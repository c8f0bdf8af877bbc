package ai.epl;

import ai.epl.raw.Raw;
import java.util.ArrayList;
import java.util.Arrays;
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

  public static TensorInfo of(String name, DataType type, long... dims) {
    return new TensorInfo(name, type, Arrays.stream(dims).boxed().toList());
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

  static Raw.TensorInfo[] raw(List<TensorInfo> infos) {
    return infos.stream().map(TensorInfo::raw).toArray(Raw.TensorInfo[]::new);
  }

  private Raw.TensorInfo raw() {
    if (shape.size() > Raw.EPL_MAX_NDIM) {
      throw new IllegalArgumentException(name + " has more than " + Raw.EPL_MAX_NDIM + " dimensions");
    }
    Raw.TensorInfo raw = new Raw.TensorInfo().name(Text.utf8(name)).dtype(type.number).ndim(shape.size());
    for (int dim = 0; dim < shape.size(); ++dim) raw.dims(dim, shape.get(dim));
    return raw;
  }
}
