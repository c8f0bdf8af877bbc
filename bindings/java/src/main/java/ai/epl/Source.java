package ai.epl;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.List;

/** Bytes that can be read at any position and do not change: of an object store, say. */
public interface Source {
  long size() throws IOException;

  /** Fills `target` with the bytes from `offset` on, which are there. Several threads may read at once. */
  void read(long offset, ByteBuffer target) throws IOException;

  /** What lies beside it: a relative path without "..", which the tensors of a model name. */
  default Source open(String location) throws IOException {
    throw new FileNotFoundException(location + ": nothing lies beside this source");
  }

  /** For messages. */
  default String name() {
    return "";
  }

  /** The library has done with it. Not called where the call that was given it fails, or only reads during the call. */
  default void close() throws IOException {}

  static Source of(byte[] bytes) {
    return of(List.of(bytes), bytes.length);
  }

  /** A file that somebody else has opened, and keeps open. */
  static Source of(FileChannel file) {
    return new Source() {
      @Override
      public long size() throws IOException {
        return file.size();
      }

      @Override
      public void read(long offset, ByteBuffer target) throws IOException {
        for (long at = offset; target.hasRemaining();) {
          int got = file.read(target, at);
          if (got < 0) throw new EOFException("the file has become shorter");
          at += got;
        }
      }
    };
  }

  /** Reads the stream to its end, into memory, and does not close it. */
  static Source of(InputStream stream) throws IOException {
    int most = 1 << 24; // of an array; the stream may have more than an array can hold
    List<byte[]> pieces = new ArrayList<>();
    long size = 0;
    byte[] piece;
    do {
      piece = stream.readNBytes(most);
      pieces.add(piece);
      size += piece.length;
    } while (piece.length == most);
    return of(pieces, size);
  }

  /** All pieces but the last are of one size. */
  private static Source of(List<byte[]> pieces, long size) {
    int piece = Math.max(1, pieces.get(0).length);
    return new Source() {
      @Override
      public long size() {
        return size;
      }

      @Override
      public void read(long offset, ByteBuffer target) {
        for (long at = offset; target.hasRemaining();) {
          byte[] bytes = pieces.get((int) (at / piece));
          int from = (int) (at % piece);
          int count = Math.min(target.remaining(), bytes.length - from);
          target.put(bytes, from, count);
          at += count;
        }
      }
    };
  }
}
