package ai.epl;

import java.time.Duration;
import java.util.concurrent.TimeoutException;

/** A store of the host's own, over which the processes of a job find each other. Several threads call it at once. */
public interface KeyValueStore {
  /** Is seen by all processes. A key is put once. */
  void put(String key, byte[] value) throws Exception;

  /**
   * Waits until somebody has put the key.
   *
   * @throws TimeoutException after that time
   */
  byte[] get(String key, Duration timeout) throws Exception;
}
