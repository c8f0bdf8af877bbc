import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/** Buffers and counters, which callbacks change from any thread. */
final class Names {
  private final Map<String, byte[]> buffers = new HashMap<>();
  private final Map<String, Long> counters = new HashMap<>();

  synchronized byte[] buffer(String name) {
    byte[] found = buffers.get(name);
    if (found == null) {
      throw new IllegalArgumentException(name + " is no memory");
    }
    return found;
  }

  synchronized boolean has(String name) {
    return buffers.containsKey(name);
  }

  synchronized void set(String name, byte[] data) {
    buffers.put(name, data);
  }

  synchronized void append(String name, byte[] data) {
    byte[] old = buffers.getOrDefault(name, new byte[0]);
    byte[] all = Arrays.copyOf(old, old.length + data.length);
    System.arraycopy(data, 0, all, old.length, data.length);
    buffers.put(name, all);
  }

  synchronized void count(String name) {
    counters.merge(name, 1L, Long::sum);
    notifyAll();
  }

  synchronized long await(String name, long wanted) throws InterruptedException {
    for (int i = 0; i < 100 && counters.getOrDefault(name, 0L) < wanted; ++i) {
      wait(100);
    }
    return counters.getOrDefault(name, 0L);
  }
}
