package ai.epl;

import ai.epl.raw.Raw;
import java.nio.file.Path;

/** Options of {@link Engine#create(EngineOptions)}. */
public final class EngineOptions {
  private int threads;
  private System.Logger logger = System.getLogger("ai.epl");
  private System.Logger.Level level = System.Logger.Level.WARNING;
  private Path packs;
  private Path kernelCache;
  private long memoryBytes;
  private NativeMemory memory;

  /** All defaults. */
  public EngineOptions() {}

  /** For the sessions of the engine, their callers among them; 0: one for each processor. */
  public EngineOptions threads(int threads) {
    this.threads = threads;
    return this;
  }

  /** Where messages go; {@code System.getLogger("ai.epl")} if it is not set, null for nowhere. */
  public EngineOptions logger(System.Logger logger) {
    this.logger = logger;
    return this;
  }

  /** The least that is logged: WARNING if it is not set. INFO tells what is made and saved, DEBUG every step. */
  public EngineOptions logLevel(System.Logger.Level level) {
    this.level = level;
    return this;
  }

  /** The folder of the optional packs, libepl_NAME.so. */
  public EngineOptions packs(Path folder) {
    packs = folder;
    return this;
  }

  /** A folder in which what is compiled for a GPU stays for later processes, which share it; null: nowhere. */
  public EngineOptions kernelCache(Path folder) {
    kernelCache = folder;
    return this;
  }

  /** Where the memory of tensors and sessions comes from: the library's own allocator if it is not set. */
  public EngineOptions memory(NativeMemory memory) {
    this.memory = memory;
    return this;
  }

  /** Bytes that tensors, sessions and predictors may have together; 0: no bound. */
  public EngineOptions memoryBytes(long bytes) {
    memoryBytes = bytes;
    return this;
  }

  Raw.EngineOptions raw() {
    Raw.EngineOptions raw = new Raw.EngineOptions().threads(threads).memoryBytes(memoryBytes);
    if (memory != null) raw.allocator(new Allocator(memory));
    if (packs != null) raw.packs(Text.utf8(packs));
    if (kernelCache != null) raw.kernelCache(Text.utf8(kernelCache));
    if (logger == null || level == System.Logger.Level.OFF) return raw;
    System.Logger target = logger;
    raw.logLevel(number(level));
    return raw.log((number, message) -> target.log(level(number), Text.of(message)));
  }

  private record Allocator(NativeMemory memory) implements Raw.AllocateFn, Raw.ReleaseFn {
    @Override
    public long allocate(long bytes, long alignment) {
      return memory.allocate(bytes, alignment);
    }

    @Override
    public void release(long address, long bytes, long alignment) {
      memory.release(address, bytes, alignment);
    }
  }

  private static int number(System.Logger.Level level) {
    return switch (level) {
      case ALL, TRACE, DEBUG -> Raw.EPL_LOG_DEBUG;
      case INFO -> Raw.EPL_LOG_INFO;
      case WARNING -> Raw.EPL_LOG_WARNING;
      case ERROR, OFF -> Raw.EPL_LOG_ERROR;
    };
  }

  private static System.Logger.Level level(int number) {
    return switch (number) {
      case Raw.EPL_LOG_DEBUG -> System.Logger.Level.DEBUG;
      case Raw.EPL_LOG_INFO -> System.Logger.Level.INFO;
      case Raw.EPL_LOG_WARNING -> System.Logger.Level.WARNING;
      default -> System.Logger.Level.ERROR;
    };
  }
}
