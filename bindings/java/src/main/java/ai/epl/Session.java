package ai.epl;

import ai.epl.raw.Raw;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * A running job. One caller at a time, from any thread: a second one gets {@link ErrorCode#BUSY}. {@link #steps},
 * {@link #peakBytes} and {@link #states} may be called beside a step.
 */
public final class Session extends Handle {
  private final int outputs;
  private ThreadPoolExecutor worker;

  Session(Plan plan, long address) {
    super(plan.engine, address);
    outputs = plan.outputs(Entry.PREDICT).size();
  }

  // --- Calls

  /** One optimizer step over the whole batch, inputs in the plan's order. It happens or does not. */
  public Metrics step(List<Tensor> inputs) {
    return step(inputs, CallOptions.NONE);
  }

  public Metrics step(List<Tensor> inputs, CallOptions options) {
    try (Tensors tensors = new Tensors(inputs)) {
      return step(tensors, options);
    }
  }

  private Metrics step(Tensors tensors, CallOptions options) {
    return use(session -> engine.block(options, call -> {
      Raw.epl_session_step(session, tensors.addresses, call.options, call.metrics);
      return metrics(call.metrics);
    }));
  }

  /**
   * A step that a thread of this session makes, after those that were asked for before it. Cancelling the future ends
   * the step where it can still be ended; {@link #steps} says whether it happened. The tensors may be closed at once;
   * what borrowed memory holds must stay as it is until the future is done.
   */
  public CompletableFuture<Metrics> stepAsync(List<Tensor> inputs) {
    return stepAsync(inputs, CallOptions.NONE);
  }

  public CompletableFuture<Metrics> stepAsync(List<Tensor> inputs, CallOptions options) {
    Tensors tensors = new Tensors(inputs);
    return later(options, () -> {
      try (tensors) {
        return step(tensors, options);
      }
    });
  }

  /** The loss without an update, of a whole batch or of fewer samples. */
  public Metrics evaluate(List<Tensor> inputs) {
    return evaluate(inputs, CallOptions.NONE);
  }

  public Metrics evaluate(List<Tensor> inputs, CallOptions options) {
    try (Tensors tensors = new Tensors(inputs)) {
      return use(session -> engine.block(options, call -> {
        Raw.epl_session_evaluate(session, tensors.addresses, call.options, call.metrics);
        return metrics(call.metrics);
      }));
    }
  }

  /** The outputs of the model, in the plan's order, of a whole batch or of fewer samples. Close each. */
  public List<Tensor> predict(List<Tensor> inputs) {
    return predict(inputs, CallOptions.NONE);
  }

  public List<Tensor> predict(List<Tensor> inputs, CallOptions options) {
    try (Tensors tensors = new Tensors(inputs)) {
      long[] made = new long[outputs];
      run(session -> engine.block(options, call -> {
        Raw.epl_session_predict(session, tensors.addresses, call.options, made);
        return null;
      }));
      return Arrays.stream(made).mapToObj(address -> new Tensor(engine, address)).toList();
    }
  }

  /** A process of several that cannot make a call which the others make says so, and they go on. */
  public void giveUp(String reason) {
    run(session -> engine.block(CallOptions.NONE, call -> {
      Raw.epl_session_give_up(session, Text.utf8(reason), call.options);
      return null;
    }));
  }

  // --- What it knows

  public long steps() {
    return use(Raw::epl_session_steps);
  }

  /** Bytes that a rank has used at its fullest so far. */
  public long peakBytes(long rank) {
    return use(session -> Raw.epl_session_memory_bytes_peak(session, rank));
  }

  /** Equal weights, equal hash. */
  public long hash() {
    return use(session -> engine.block(CallOptions.NONE, call -> Raw.epl_session_hash(session, call.options)));
  }

  /** An output of the last step or evaluation by its name. */
  public Tensor output(Entry entry, String name) {
    return use(session -> new Tensor(engine, Raw.epl_session_output(session, entry.number, Text.utf8(name))));
  }

  /** A scalar output of the last step by its name. */
  public double metric(String name) {
    return use(session -> Raw.epl_session_metric(session, Text.utf8(name)));
  }

  /** A number that decides how training goes on: "learning_rate_scale". */
  public double number(String name) {
    return use(session -> Raw.epl_session_get_number(session, Text.utf8(name)));
  }

  public void setNumber(String name, double value) {
    run(session -> Raw.epl_session_set_number(session, Text.utf8(name), value));
  }

  /** Tells the schedule "plateau" what was measured. */
  public void observe(double value, boolean higherIsBetter) {
    run(session -> Raw.epl_session_observe(session, value, higherIsBetter ? 1 : 0));
  }

  /** What the next steps do is recorded; 0: nothing is. */
  public void record(long steps) {
    run(session -> Raw.epl_session_record(session, steps));
  }

  /** What was recorded, for Chrome and Perfetto. */
  public String trace() {
    return Text.of(use(Raw::epl_session_trace));
  }

  public List<TensorInfo> states(StateKind kind) {
    return use(session -> TensorInfo.all(Raw.epl_session_state_count(session, kind.number),
        (i, info) -> Raw.epl_session_state_port(session, kind.number, i, info)));
  }

  /** A copy of a parameter, buffer or optimizer state. Close it. */
  public Tensor get(String name) {
    return use(session -> engine.block(CallOptions.NONE, call ->
        new Tensor(engine, Raw.epl_session_get(session, Text.utf8(name), call.options))));
  }

  public void set(String name, Tensor value) {
    run(session -> value.run(tensor -> engine.block(CallOptions.NONE, call -> {
      Raw.epl_session_set(session, Text.utf8(name), tensor, call.options);
      return null;
    })));
  }

  // --- Files

  /** A checkpoint, by which the last complete one is replaced as a whole. */
  public void save(Path folder) {
    save(folder, null, CallOptions.NONE);
  }

  /** The same with the position of a dataset, which may be null. */
  public void save(Path folder, Dataset dataset, CallOptions options) {
    run(session -> use(dataset, data -> engine.block(options, call -> {
      Raw.epl_session_save(session, Text.utf8(folder), data, call.options);
      return null;
    })));
  }

  public void load(Path folder) {
    load(folder, null, CallOptions.NONE);
  }

  public void load(Path folder, Dataset dataset, CallOptions options) {
    run(session -> use(dataset, data -> engine.block(options, call -> {
      Raw.epl_session_load(session, Text.utf8(folder), data, call.options);
      return null;
    })));
  }

  /** In what this session differs from the run that saved a checkpoint, as JSON. */
  public String compare(Path folder, Dataset dataset) {
    return Text.of(use(session -> use(dataset, data -> engine.block(CallOptions.NONE, call ->
        Raw.epl_session_compare(session, Text.utf8(folder), data, call.options)))));
  }

  /** The model with its trained weights, ready for inference. */
  public void exportOnnx(Path path) {
    export(path, Raw::epl_session_export_onnx);
  }

  /** The same, but to train on. */
  public void exportOnnxForTraining(Path path) {
    export(path, Raw::epl_session_export_onnx_for_training);
  }

  /** Low-rank adapters, as Hugging Face PEFT loads them. */
  public void exportAdapters(Path folder) {
    export(folder, Raw::epl_session_export_adapters);
  }

  public void exportSafetensors(Path path) {
    export(path, Raw::epl_session_export_safetensors);
  }

  private interface Export {
    void write(long session, byte[] path, Raw.CallOptions call);
  }

  private void export(Path path, Export format) {
    run(session -> engine.block(CallOptions.NONE, call -> {
      format.write(session, Text.utf8(path), call.options);
      return null;
    }));
  }

  // --- Within the package

  private static Metrics metrics(Raw.Metrics raw) {
    return new Metrics(raw.step(), raw.loss(), raw.gradientNorm(), raw.learningRate(),
        Duration.ofNanos(raw.nanoseconds()));
  }

  /** The session's own thread, which ends when it has had nothing to do for a while. */
  private synchronized <T> CompletableFuture<T> later(CallOptions options, Supplier<T> body) {
    if (worker == null) {
      worker = new ThreadPoolExecutor(1, 1, 5, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), task -> {
        Thread thread = new Thread(task, "epl-session");
        thread.setDaemon(true);
        return thread;
      });
      worker.allowCoreThreadTimeOut(true);
    }
    Pending<T> pending = new Pending<>(options.cancel(), body);
    worker.execute(pending);
    return pending;
  }

  @Override
  void destroy() {
    Raw.epl_session_destroy(address);
  }
}
