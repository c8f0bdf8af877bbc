package ai.epl;

import ai.epl.raw.Raw;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.function.Supplier;

/** The host's streams behind callbacks of the library. What they throw is the cause of what the call throws. */
final class Streams {
  private Streams() {}

  interface Write {
    void write(Raw.WriteFn writer, Raw.CallOptions call);
  }

  interface Read<T> {
    T read(Raw.Source source, Raw.CallOptions call);
  }

  /** A call that writes; `stream` may be null where another process has it. */
  static Void write(Engine engine, OutputStream stream, CallOptions options, Write body) {
    Writer writer = new Writer(stream);
    return explain(writer.thrown, () -> engine.block(options, call -> {
      body.write(stream == null ? null : writer, call.options);
      return null;
    }));
  }

  static <T> T read(Engine engine, Source source, CallOptions options, Read<T> body) {
    Reader reader = new Reader(source);
    return explain(reader.thrown, () -> engine.block(options, call -> {
      Raw.Source raw = new Raw.Source();
      try {
        reader.fill(raw);
      } catch (IOException error) {
        throw new EplException(ErrorCode.IO, error.getMessage());
      }
      return body.read(raw, call.options);
    }));
  }

  private static <T> T explain(Throwable[] thrown, Supplier<T> call) {
    try {
      return call.get();
    } catch (EplException error) {
      if (thrown[0] != null && error.getCause() == null) error.initCause(thrown[0]);
      throw error;
    }
  }

  private static final class Writer implements Raw.WriteFn {
    final Throwable[] thrown = new Throwable[1];
    private final OutputStream stream;
    private byte[] chunk;

    Writer(OutputStream stream) {
      this.stream = stream;
    }

    @Override
    public void write(ByteBuffer data) throws IOException {
      try {
        if (chunk == null) chunk = new byte[1 << 16];
        while (data.hasRemaining()) {
          int count = Math.min(data.remaining(), chunk.length);
          data.get(chunk, 0, count);
          stream.write(chunk, 0, count);
        }
      } catch (IOException | RuntimeException error) {
        thrown[0] = error;
        throw error;
      }
    }
  }

  private static final class Reader implements Raw.ReadFn, Raw.OpenFn, Raw.DestroyFn {
    final Throwable[] thrown = new Throwable[1];
    private final Source source;

    Reader(Source source) {
      this.source = source;
    }

    void fill(Raw.Source raw) throws IOException {
      raw.bytes(source.size()).name(Text.utf8(source.name())).callbacks(this);
    }

    @Override
    public void read(long offset, ByteBuffer target) throws IOException {
      try {
        source.read(offset, target);
        if (target.hasRemaining()) throw new IOException(target.remaining() + " bytes were not read");
      } catch (IOException | RuntimeException error) {
        thrown[0] = error;
        throw error;
      }
    }

    @Override
    public void open(byte[] location, ByteBuffer raw) throws IOException {
      try {
        Source beside = source.open(Text.of(location));
        new Raw.Source(raw, 0).bytes(beside.size()).callbacks(new Reader(beside));
      } catch (IOException | RuntimeException error) {
        thrown[0] = error;
        throw error;
      }
    }

    @Override
    public void destroy() {
      try {
        source.close();
      } catch (IOException | RuntimeException error) {
        System.getLogger("ai.epl").log(System.Logger.Level.WARNING, "a source cannot be closed", error);
      }
    }
  }
}
