import ai.epl.raw.Raw;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import sun.misc.Unsafe;

/** What the library calls. */
final class Hook implements Raw.AllocateFn, Raw.ReleaseFn, Raw.LogFn, Raw.DestroyFn, Raw.WriteFn, Raw.ReadFn, Raw.OpenFn,
    Raw.OpShapeFn, Raw.OpRunFn, Raw.OpGradientFn, Raw.SamplesFn, Raw.PutFn, Raw.GetFn, Raw.EventFn {
  // Where the block of an aligned address begins.
  private static final Map<Long, Long> BLOCKS = new ConcurrentHashMap<>();
  private static final Unsafe UNSAFE = unsafe();
  private final Names names;
  private final String kind;
  private final String parameter;

  private final boolean releases;

  /** `releases`: it is called for memory alone; others hear by it that the library is done with them. */
  Hook(Names names, String word, boolean releases) {
    this.names = names;
    this.releases = releases;
    String[] parts = word.substring(1).split(":", 2);
    kind = parts[0];
    parameter = parts.length > 1 ? parts[1] : "";
  }

  private static Unsafe unsafe() {
    try {
      java.lang.reflect.Field field = Unsafe.class.getDeclaredField("theUnsafe");
      field.setAccessible(true);
      return (Unsafe) field.get(null);
    } catch (ReflectiveOperationException none) {
      throw new IllegalStateException(none);
    }
  }

  private void answer() {
    if (kind.equals("fail")) {
      throw new Failure(Integer.parseInt(parameter), "the host fails");
    }
    if (kind.equals("count")) {
      names.count(parameter);
    }
  }

  @Override
  public long allocate(long bytes, long alignment) {
    if (kind.equals("fail")) {
      return 0;
    }
    long block = UNSAFE.allocateMemory(bytes + alignment);
    long aligned = (block + alignment - 1) / alignment * alignment;
    BLOCKS.put(aligned, block);
    return aligned;
  }

  @Override
  public void release(long memory, long bytes, long alignment) {
    UNSAFE.freeMemory(BLOCKS.remove(memory));
  }

  @Override
  public void log(int level, byte[] message) {
    names.count(parameter);
  }

  @Override
  public void destroy() {
    names.count(releases ? parameter : parameter + ".gone");
  }

  @Override
  public void event() {
    names.count(parameter);
  }

  @Override
  public void write(ByteBuffer data) {
    if (kind.equals("collect")) {
      byte[] bytes = new byte[data.remaining()];
      data.get(bytes);
      names.append(parameter, bytes);
    }
    answer();
  }

  @Override
  public void read(long offset, ByteBuffer target) {
    if (kind.equals("bytes")) {
      byte[] from = names.buffer(parameter);
      if (offset + target.remaining() > from.length) {
        throw new Failure(Raw.EPL_ERROR_IO, "the buffer ends before");
      }
      target.put(from, (int) offset, target.remaining());
    }
    answer();
  }

  @Override
  public void open(byte[] location, ByteBuffer source) {
    answer();
    String name = new String(location, StandardCharsets.UTF_8);
    if (!names.has(name)) {
      throw new Failure(Raw.EPL_ERROR_NOT_FOUND, "no such buffer");
    }
    new Raw.Source(source, 0).bytes(names.buffer(name).length).callbacks(new Hook(names, "@bytes:" + name, false));
  }

  @Override
  public void opShape(byte[] attributes, ByteBuffer inputs, ByteBuffer outputs) {
    Raw.OpTensor from = new Raw.OpTensor(inputs, 0);
    Raw.OpTensor to = new Raw.OpTensor(outputs, 0);
    to.dtype(from.dtype()).ndim(from.ndim());
    for (int i = 0; i < Raw.EPL_MAX_NDIM; ++i) {
      to.dims(i, from.dims(i));
    }
    answer();
  }

  private static ByteBuffer memory(ByteBuffer operands) {
    Raw.OpTensor first = new Raw.OpTensor(operands, 0);
    return Raw.buffer(first.data(), first.bytes()).order(ByteOrder.nativeOrder());
  }

  private static void twice(ByteBuffer from, ByteBuffer to) {
    for (ByteBuffer in = memory(from), all = memory(to); all.hasRemaining();) {
      all.putFloat(2 * in.getFloat());
    }
  }

  @Override
  public void opRun(byte[] attributes, ByteBuffer inputs, ByteBuffer outputs) throws InterruptedException {
    if (kind.equals("wait")) {
      names.await(parameter, 1);
    }
    twice(inputs, outputs);
    answer();
  }

  @Override
  public void opGradient(byte[] attributes, ByteBuffer inputs, ByteBuffer outputs, ByteBuffer upstream,
      ByteBuffer gradients) {
    twice(upstream, gradients);
    answer();
  }

  @Override
  public void samples(int field, long[] samples, ByteBuffer target) {
    target.order(ByteOrder.nativeOrder());
    int each = target.remaining() / 4 / samples.length;
    for (long sample : samples) {
      for (int i = 0; i < each; ++i) {
        target.putFloat(field == 0 ? sample : 0);
      }
    }
    answer();
  }

  @Override
  public void put(byte[] key, ByteBuffer value) {
    answer();
  }

  @Override
  public void get(byte[] key, long timeoutNanoseconds, ByteBuffer value, long[] bytes) {
    bytes[0] = 0;
    answer();
    throw new Failure(Raw.EPL_ERROR_DEADLINE_EXCEEDED, "nobody has put it");
  }
}
