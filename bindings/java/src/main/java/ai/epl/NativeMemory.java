package ai.epl;

/** Memory for tensors and sessions, which the host counts or limits. Any threads may call it at once. */
public interface NativeMemory {
  /** The address of so many bytes, a multiple of `alignment`; 0 where there are none: the call is OUT_OF_MEMORY then. */
  long allocate(long bytes, long alignment);

  /** Gives them back. */
  void release(long address, long bytes, long alignment);
}
