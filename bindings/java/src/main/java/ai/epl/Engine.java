package ai.epl;

import ai.epl.raw.Raw;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Function;
import java.util.stream.LongStream;

/** Where everything begins: devices, threads, the log. Several may live in one process; any threads may use one. */
public final class Engine extends Handle {
  private final ConcurrentLinkedQueue<Blocking> idle = new ConcurrentLinkedQueue<>();

  private Engine(long address) {
    super(null, address);
  }

  public static Engine create() {
    return create(new EngineOptions());
  }

  public static Engine create(EngineOptions options) {
    NativeLibrary.load();
    return new Engine(Raw.epl_engine_create(options.raw()));
  }

  /** Of the library in use: major * 1000000 + minor * 1000 + patch. */
  public static int version() {
    NativeLibrary.load();
    return Raw.epl_version();
  }

  /** Objects of the library alive in this process; zero when all are closed. For leak tests. */
  public static long liveHandles() {
    NativeLibrary.load();
    return Raw.epl_live_handles();
  }

  /** By whose names plans are made: {@link PlanOptions#device}. */
  public List<Device> devices() {
    return use(engine -> LongStream.range(0, Raw.epl_engine_device_count(engine)).mapToObj(i -> {
      Raw.DeviceInfo info = new Raw.DeviceInfo();
      Raw.epl_engine_device(engine, i, info);
      return new Device(Text.of(info.name()), info.kind() == Raw.EPL_DEVICE_SIM, info.threads(), info.memoryBytes());
    }).toList());
  }

  /** Bytes that its tensors, sessions and predictors have now. */
  public long memoryBytes() {
    return use(Raw::epl_engine_memory_bytes);
  }

  /** What this build and this machine have, as JSON: devices, losses, optimizers, metrics, readers, strategy keys. */
  public String describe() {
    return Text.of(use(Raw::epl_engine_describe));
  }

  public Cancel newCancel() {
    return use(engine -> new Cancel(this, Raw.epl_cancel_create(engine)));
  }

  // --- Models, trainers, strategies

  public Model loadModel(Path path) {
    return loadModel(path, CallOptions.NONE);
  }

  /** Large weights stay in the file and are read where they are needed. */
  public Model loadModel(Path path, CallOptions options) {
    return loadModel(path, ModelOptions.DEFAULT, options);
  }

  public Model loadModel(Path path, ModelOptions model, CallOptions options) {
    return use(engine -> block(options, call ->
        new Model(this, Raw.epl_model_load(engine, Text.utf8(path), model.raw(), call.options))));
  }

  /** The bytes of a model's file. */
  public Model loadModel(byte[] model) {
    return loadModel(direct(model), ModelOptions.DEFAULT, CallOptions.NONE);
  }

  /** The same from a direct buffer, between its position and its limit. */
  public Model loadModel(ByteBuffer bytes, CallOptions options) {
    return loadModel(bytes, ModelOptions.DEFAULT, options);
  }

  public Model loadModel(ByteBuffer bytes, ModelOptions model, CallOptions options) {
    return use(engine -> block(options, call ->
        new Model(this, Raw.epl_model_load_bytes(engine, bytes.slice(), model.raw(), call.options))));
  }

  /**
   * From where the host has it, an object store say. Large weights stay there, and are read when a plan or a session is
   * made and when the model is exported; what its tensors name beside it is opened by {@link Source#open}.
   */
  public Model loadModel(Source source, CallOptions options) {
    return loadModel(source, ModelOptions.DEFAULT, options);
  }

  public Model loadModel(Source source, ModelOptions model, CallOptions options) {
    return use(engine -> Streams.read(this, source, options, (from, call) ->
        new Model(this, Raw.epl_model_load_from(engine, from, model.raw(), call))));
  }

  /** From now on models that are loaded with this engine may have this operator, which is called by any threads. */
  public void addOp(Op op) {
    run(engine -> Raw.epl_engine_add_op(engine, Ops.raw(op)));
  }

  /** Writes a model of a known family with weights drawn from a seed: "mlp", {"sizes": [4, 16, 2], "seed": 1}. */
  public void writeTemplate(String family, String json, Path path) {
    writeTemplate(family, json, path, CallOptions.NONE);
  }

  public void writeTemplate(String family, Map<String, ?> settings, Path path) {
    writeTemplate(family, Json.of(settings), path, CallOptions.NONE);
  }

  public void writeTemplate(String family, String json, Path path, CallOptions options) {
    run(engine -> block(options, call -> {
      Raw.epl_x_template_write(engine, Text.utf8(family), Text.utf8(json), Text.utf8(path), call.options);
      return null;
    }));
  }

  public Trainer newTrainer() {
    return use(engine -> new Trainer(this, Raw.epl_trainer_create(engine)));
  }

  public Trainer parseTrainer(TrainerSettings settings) {
    return parseTrainer(settings.toString());
  }

  /** With the keys of docs/training.md: Map.of("optimizer", "adamw", "symbols", Map.of("batch", 8)). */
  public Trainer parseTrainer(Map<String, ?> settings) {
    return parseTrainer(Json.of(settings));
  }

  /** From the JSON form, which {@link Trainer#describe} gives. */
  public Trainer parseTrainer(String json) {
    return use(engine -> new Trainer(this, Raw.epl_trainer_parse(engine, Text.utf8(json))));
  }

  public Strategy newStrategy() {
    return use(engine -> new Strategy(this, Raw.epl_strategy_create(engine)));
  }

  /** With the keys of docs/strategy.md: Map.of("pipeline.num_stages", 2). */
  public Strategy parseStrategy(Map<String, ?> settings) {
    return parseStrategy(Json.of(settings));
  }

  /** From the JSON form, which {@link Strategy#describe} gives. */
  public Strategy parseStrategy(String json) {
    return use(engine -> new Strategy(this, Raw.epl_strategy_parse(engine, Text.utf8(json))));
  }

  /** What two plan files decide differently, a sentence a line. */
  public String comparePlans(Path plan, Path other) {
    return comparePlans(plan, other, CallOptions.NONE);
  }

  public String comparePlans(Path plan, Path other, CallOptions options) {
    return Text.of(use(engine -> block(options, call ->
        Raw.epl_plan_compare(engine, Text.utf8(plan), Text.utf8(other), call.options))));
  }

  // --- Data, processes, checkpoints

  /** The loop around steps, with settings of docs/training.md: Map.of("epochs", 10, "folder", "run"). */
  public Job newJob(Map<String, ?> settings) {
    return newJob(Json.of(settings));
  }

  public Job newJob(JobSettings settings) {
    return newJob(settings.toString());
  }

  /** The same, as a JSON object. */
  public Job newJob(String settings) {
    return use(engine -> new Job(this, Raw.epl_job_create(engine, Text.utf8(settings))));
  }

  /** The checkpoint that a path means: it, or the newest of a job's folder. A path that is neither stays as it is. */
  public Path findCheckpoint(Path path) {
    return Path.of(Text.of(use(engine -> Raw.epl_checkpoint_find(engine, Text.utf8(path)))));
  }

  /** A file, a folder, or files by * and ?; the options are a JSON object: {"batch": 32, "order": "shuffled"}. */
  public Dataset openDataset(Path path, String options) {
    return openDataset(path, options, CallOptions.NONE);
  }

  /** The same with options as a map: Map.of("batch", 32, "order", "shuffled"). */
  public Dataset openDataset(Path path, Map<String, ?> options) {
    return openDataset(path, Json.of(options), CallOptions.NONE);
  }

  public Dataset openDataset(Path path, Map<String, ?> options, CallOptions callOptions) {
    return openDataset(path, Json.of(options), callOptions);
  }

  public Dataset openDataset(Path path, String options, CallOptions callOptions) {
    return use(engine -> block(callOptions, call ->
        new Dataset(this, Raw.epl_dataset_open(engine, Text.utf8(path), Text.utf8(options), call.options))));
  }

  /**
   * The same where files that the options name may lie anywhere in {@code folder}, and not only in the folder of the
   * data. {@code Path.of("/")} is for options that are your own, and not a client's.
   */
  public Dataset openDatasetWithin(Path path, Path folder, String options, CallOptions callOptions) {
    return use(engine -> block(callOptions, call -> new Dataset(this, Raw.epl_dataset_open_within(engine,
        Text.utf8(path), Text.utf8(folder), Text.utf8(options), call.options))));
  }

  public Dataset openDatasetWithin(Path path, Path folder, Map<String, ?> options, CallOptions callOptions) {
    return openDatasetWithin(path, folder, Json.of(options), callOptions);
  }

  public Dataset newDataset(List<TensorInfo> fields, long samples, SampleReader reader, Map<String, ?> options) {
    return newDataset(fields, samples, reader, Json.of(options));
  }

  /**
   * Samples that the host gives when it is asked for them.
   *
   * @param fields of a sample; of a full batch where the option "batch" is 0
   * @param samples how many there are; -1: nobody knows, and `reader` throws NOT_FOUND for one that is not there
   * @param options a JSON object, as of {@link #openDataset} without what readers declare; may be empty
   */
  public Dataset newDataset(List<TensorInfo> fields, long samples, SampleReader reader, String options) {
    Raw.SamplesFn read = (field, numbers, target) ->
        reader.read(field, numbers, target.order(ByteOrder.nativeOrder()));
    return use(engine -> new Dataset(this,
        Raw.epl_dataset_create(engine, TensorInfo.raw(fields), samples, read, Text.utf8(options))));
  }

  /** Batches that the host pushes; `fields` are those of a batch, and `capacity` batches wait at most. */
  public Feed newFeed(List<TensorInfo> fields, long capacity) {
    return use(engine -> new Feed(this, Raw.epl_feed_create(engine, TensorInfo.raw(fields), capacity), fields));
  }

  /**
   * Makes a folder this process's own. A second owner, in this process or in another one, gets {@link ErrorCode#BUSY}
   * and a message that names the first. It holds against those alone who lock the folder as well.
   * {@link ErrorCode#UNSUPPORTED}: the file system has no locks.
   */
  public FolderLock lockFolder(Path path) {
    return use(engine -> new FolderLock(this, Raw.epl_folder_lock_create(engine, Text.utf8(path))));
  }

  /** Serves the rendezvous of the processes of a job. */
  public Store newStore(StoreOptions options) {
    return use(engine -> new Store(this, Raw.epl_store_create(engine, options.raw())));
  }

  /** What a checkpoint holds, as JSON. */
  public String describeCheckpoint(Path path) {
    return describeCheckpoint(path, CallOptions.NONE);
  }

  public String describeCheckpoint(Path path, CallOptions options) {
    return Text.of(use(engine -> block(options, call ->
        Raw.epl_checkpoint_describe(engine, Text.utf8(path), call.options))));
  }

  public void removeCheckpoint(Path path) {
    run(engine -> Raw.epl_checkpoint_remove(engine, Text.utf8(path)));
  }

  // --- Tensors

  /** Zeros. */
  public Tensor newTensor(DataType type, long... dims) {
    return use(engine -> new Tensor(this, Raw.epl_tensor_create(engine, type.number, dims)));
  }

  /** A copy of the array, row-major. */
  public Tensor tensorOf(float[] values, long... dims) {
    return filled(DataType.F32, values.length, dims, memory -> memory.asFloatBuffer().put(values));
  }

  public Tensor tensorOf(double[] values, long... dims) {
    return filled(DataType.F64, values.length, dims, memory -> memory.asDoubleBuffer().put(values));
  }

  public Tensor tensorOf(long[] values, long... dims) {
    return filled(DataType.I64, values.length, dims, memory -> memory.asLongBuffer().put(values));
  }

  public Tensor tensorOf(int[] values, long... dims) {
    return filled(DataType.I32, values.length, dims, memory -> memory.asIntBuffer().put(values));
  }

  /** A copy of the bytes of a buffer of any kind, between its position and its limit. */
  public Tensor copyTensor(DataType type, ByteBuffer data, long... dims) {
    return filled(type, data.remaining() / Math.max(1, type.bytes), dims, memory -> memory.put(data.duplicate()));
  }

  /**
   * The memory of a direct buffer between its position and its limit, which is not copied: what is written into the
   * buffer between two calls is what the second one sees. The tensor keeps the buffer alive.
   *
   * @throws IllegalArgumentException if the buffer is not direct, or not of the machine's order of bytes, in which the
   *     library reads it; set {@link ByteBuffer#order(ByteOrder)} before filling it
   */
  public Tensor borrowTensor(DataType type, ByteBuffer data, long... dims) {
    if (!data.isDirect()) throw new IllegalArgumentException("the buffer is not direct: copyTensor takes it");
    if (data.order() != ByteOrder.nativeOrder() && type.bytes > 1) {
      throw new IllegalArgumentException("the buffer is " + data.order() + "; set order(ByteOrder.nativeOrder())");
    }
    int flags = data.isReadOnly() ? Raw.EPL_TENSOR_READ_ONLY : 0;
    return use(engine -> new Tensor(this,
        Raw.epl_tensor_create_borrow(engine, type.number, dims, data.slice(), flags, null), data));
  }

  /**
   * A DLManagedTensorVersioned at this address, which this takes over whatever happens. One of an NVIDIA GPU is for
   * sessions on that GPU ({@link CallOptions#withStream}).
   */
  public Tensor tensorOfDlpack(long address) {
    return use(engine -> new Tensor(this, Raw.epl_tensor_from_dlpack(engine, address)));
  }

  private Tensor filled(DataType type, long elements, long[] dims, Function<ByteBuffer, ?> fill) {
    long needed = Arrays.stream(dims).reduce(1, (a, b) -> a * b);
    if (elements != needed) {
      throw new IllegalArgumentException("shape " + Arrays.toString(dims) + " has " + needed + " elements, the data "
          + elements);
    }
    Tensor tensor = newTensor(type, dims);
    tensor.run(address -> {
      if (elements > 0) fill.apply(Tensor.memory(address));
    });
    return tensor;
  }

  // --- Within the package

  static ByteBuffer direct(byte[] bytes) {
    return ByteBuffer.allocateDirect(bytes.length).put(bytes).flip();
  }

  /** A call that takes options: it ends by its deadline, its token or an interrupt of this thread. */
  <T> T block(CallOptions options, Function<Blocking, T> body) {
    Blocking call = idle.poll();
    if (call == null) call = new Blocking(Raw.epl_cancel_create(address));
    try {
      call.enter(options);
      try {
        return body.apply(call);
      } finally {
        call.leave();
      }
    } finally {
      if (call.isOpen()) {
        idle.add(call);
      } else {
        call.destroy();
      }
    }
  }

  @Override
  void destroy() {
    for (Blocking call = idle.poll(); call != null; call = idle.poll()) call.destroy();
    Raw.epl_engine_destroy(address);
  }
}
