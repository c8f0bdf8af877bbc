package ai.epl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.ResourceBundle;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class CallbackTest {
  /** Keeps what is logged, and throws afterwards if it is told to. */
  private static final class Log implements System.Logger {
    final ConcurrentLinkedQueue<String> messages = new ConcurrentLinkedQueue<>();
    volatile boolean throwing;

    @Override
    public String getName() {
      return "test";
    }

    @Override
    public boolean isLoggable(Level level) {
      return true;
    }

    @Override
    public void log(Level level, ResourceBundle bundle, String message, Throwable thrown) {
      messages.add(level + " " + message);
      if (throwing) throw new IllegalStateException("the log is full");
    }

    @Override
    public void log(Level level, ResourceBundle bundle, String format, Object... parameters) {
      log(level, bundle, format, (Throwable) null);
    }
  }

  @Test
  void theLogGoesToALoggerAndAnExceptionOfItChangesNothing() throws Exception {
    Log log = new Log();
    EngineOptions options = new EngineOptions().threads(2).logger(log).logLevel(System.Logger.Level.DEBUG);
    try (World world = new World(options, "[4, 16, 2]"); Session session = world.session()) {
      List<Tensor> batch = world.batch();
      session.step(batch);
      assertTrue(log.messages.stream().anyMatch(line -> line.startsWith("DEBUG")), log.messages.toString());
      assertTrue(log.messages.stream().anyMatch(line -> line.contains("😀")), log.messages.toString());
      log.throwing = true;
      int before = log.messages.size();
      assertEquals(2, session.step(batch).step());
      assertTrue(log.messages.size() > before);
      World.close(batch);
    }
  }

  /** What a host's own store may be. */
  private static class Memory implements KeyValueStore {
    private final Map<String, byte[]> values = new ConcurrentHashMap<>();

    @Override
    public void put(String key, byte[] value) {
      values.put(key, value);
    }

    @Override
    public byte[] get(String key, Duration timeout) throws Exception {
      long end = System.nanoTime() + timeout.toNanos();
      while (System.nanoTime() < end) {
        byte[] found = values.get(key);
        if (found != null) return found;
        Thread.sleep(1);
      }
      throw new TimeoutException(key);
    }
  }

  private static Plan plan(World world) {
    try (Model model = world.engine.loadModel(world.model); Trainer trainer = world.trainer(World.BATCH);
        Strategy strategy = world.engine.newStrategy()) {
      strategy.setDefault(Strategy.Kind.REPLICATE, 2);
      return model.plan(trainer, strategy, new PlanOptions().ranks(2).localRanks(1), CallOptions.NONE);
    }
  }

  private static long train(World world, SessionOptions options) {
    List<Tensor> batch = world.batch();
    try (Plan plan = plan(world); Session session = plan.newSession(options)) {
      for (int i = 0; i < 5; ++i) session.step(batch);
      return session.hash();
    } finally {
      World.close(batch);
    }
  }

  @Test
  void ranksFindEachOtherOverAStoreOfTheHost() throws Exception {
    try (World world = new World()) {
      Memory memory = new Memory();
      CompletableFuture<Long> other = CompletableFuture.supplyAsync(
          () -> train(world, new SessionOptions().firstRank(1).ranks(1).store(memory)));
      long hash = train(world, new SessionOptions().firstRank(0).ranks(1).store(memory));
      assertEquals(hash, other.get());
      List<Tensor> batch = world.batch();
      try (Session alone = world.session()) {
        for (int i = 0; i < 5; ++i) alone.step(batch);
        assertEquals(alone.hash(), hash);
      }
      World.close(batch);
    }
  }

  @Test
  void ranksFindEachOtherOverAStoreOfTheEngine() throws Exception {
    try (World world = new World(); Store store = world.engine.newStore(new StoreOptions())) {
      assertTrue(store.address().startsWith("127.0.0.1:"));
      String id = store.id();
      CompletableFuture<Long> other = CompletableFuture.supplyAsync(
          () -> train(world, new SessionOptions().firstRank(1).ranks(1).rendezvous(id)));
      assertEquals(train(world, new SessionOptions().ranks(1).rendezvous(id)), other.get());
    }
  }

  @Test
  void ranksFindEachOtherInAFolderAndAtAnAddress() throws Exception {
    try (World world = new World(); Store store = world.engine.newStore(new StoreOptions().secret("geheim-😀"))) {
      String folder = java.nio.file.Files.createDirectory(world.folder.resolve("Treffpunkt-会-😀")).toString();
      for (String door : List.of("file://" + folder, "tcp://" + store.address())) {
        CompletableFuture<Long> other = CompletableFuture.supplyAsync(() -> train(world,
            new SessionOptions().firstRank(1).ranks(1).rendezvous(door).secret("geheim-😀")));
        assertEquals(train(world, new SessionOptions().ranks(1).rendezvous(door).secret("geheim-😀")), other.get());
      }
      try (Plan plan = plan(world)) {
        assertThrows(EplException.class, () -> plan.newSession(new SessionOptions().ranks(1).secret("falsch")
            .rendezvous("tcp://" + store.address()).joinTimeout(Duration.ofSeconds(5))));
      }
    }
  }

  /** Memory of Java's, counted, and no more than a limit. */
  private static final class Counted implements NativeMemory {
    private final Map<Long, ByteBuffer> given = new ConcurrentHashMap<>();
    private final AtomicLong bytes = new AtomicLong();
    private volatile long limit = Long.MAX_VALUE;

    @Override
    public long allocate(long wanted, long alignment) {
      if (bytes.addAndGet(wanted) > limit) {
        bytes.addAndGet(-wanted);
        return 0;
      }
      ByteBuffer memory = ByteBuffer.allocateDirect(Math.toIntExact(wanted + alignment))
          .alignedSlice((int) alignment);
      long address = ai.epl.raw.Raw.address(memory);
      given.put(address, memory);
      return address;
    }

    @Override
    public void release(long address, long was, long alignment) {
      assertTrue(given.remove(address) != null);
      bytes.addAndGet(-was);
    }
  }

  @Test
  void memoryComesFromTheHost() throws Exception {
    Counted memory = new Counted();
    try (World world = new World(new EngineOptions().threads(1).memory(memory), "[4, 16, 2]"); World same = new World();
        Session session = world.session(); Session other = same.session()) {
      List<Tensor> batch = world.batch();
      for (int i = 0; i < 3; ++i) {
        session.step(batch);
        other.step(batch);
      }
      assertEquals(other.hash(), session.hash());
      assertTrue(memory.bytes.get() > 0);
      memory.limit = 0;
      EplException none = assertThrows(EplException.class, () -> world.engine.newTensor(DataType.F32, 1000));
      assertEquals(ErrorCode.OUT_OF_MEMORY, none.code());
      assertTrue(none.isRetryable());
      World.close(batch);
    }
    assertEquals(0, memory.bytes.get());
    assertEquals(0, memory.given.size());
  }

  @Test
  void devicesAreNamed() throws Exception {
    try (Engine engine = Engine.create(new EngineOptions().threads(1))) {
      assertEquals(List.of("cpu", "cuda", "sim"), engine.devices().stream().map(Device::name).toList());
      assertTrue(engine.devices().get(2).simulated() && engine.devices().get(0).threads() == 1);
    }
  }

  @Test
  void anExceptionOfAStoreIsTheErrorOfTheSession() throws Exception {
    try (World world = new World(); Plan plan = plan(world)) {
      KeyValueStore broken = new Memory() {
        @Override
        public void put(String key, byte[] value) {
          throw new IllegalStateException("kaputt 😀");
        }

        @Override
        public byte[] get(String key, Duration timeout) {
          throw new IllegalStateException("kaputt 😀");
        }
      };
      EplException error = assertThrows(EplException.class, () -> plan.newSession(
          new SessionOptions().ranks(1).store(broken).joinTimeout(Duration.ofSeconds(5))));
      assertTrue(error.getMessage().contains("kaputt 😀"), error.getMessage());
    }
  }
}
