package ai.epl;

import java.nio.ByteBuffer;

/** Gives the samples of a dataset of the host's: {@link Engine#newDataset}. One call at a time, from any thread. */
@FunctionalInterface
public interface SampleReader {
  /**
   * Writes a field of these samples to `target`, one behind the other, all of it. The buffer has the machine's order of
   * bytes and is valid during the call. What this throws ends the call that takes the batch.
   */
  void read(int field, long[] samples, ByteBuffer target) throws Exception;
}
