package ai.epl;

import ai.epl.raw.Raw;
import java.io.OutputStream;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * A running job. One caller at a time, from any thread: a second one gets {@link ErrorCode#BUSY}. {@link #steps},
 * {@link #progress}, {@link #peakBytes}, {@link #states} and {@link #newPredictor} may be called beside a step.
 */
public final class Session extends Handle {
  private final Map<Entry, Ports> ports = new HashMap<>();
  /** What was asked for by calls that return at once; the first of it is at work. */
  private final ArrayDeque<Pending> pending = new ArrayDeque<>();

  Session(Plan plan, long address) {
    super(plan.engine, address);
    for (Entry entry : List.of(Entry.TRAIN, Entry.EVALUATE, Entry.PREDICT)) ports.put(entry, Ports.of(plan, entry));
  }

  /** As {@link Plan#ordered}. */
  public List<Tensor> ordered(Entry entry, Map<String, Tensor> inputs) {
    return ports.get(entry.shape(-entry.shapeNumber())).ordered(inputs);
  }

  // --- Calls

  /** One optimizer step over the full batch, inputs in the plan's order. It happens or does not. */
  public Metrics step(List<Tensor> inputs) {
    return step(inputs, CallOptions.NONE);
  }

  /** The same by name: {@code session.step(Map.of("x", x, "target", target))}. */
  public Metrics step(Map<String, Tensor> inputs) {
    return step(inputs, CallOptions.NONE);
  }

  public Metrics step(Map<String, Tensor> inputs, CallOptions options) {
    return step(ordered(Entry.TRAIN, inputs), options);
  }

  public Metrics step(List<Tensor> inputs, CallOptions options) {
    try (Tensors tensors = new Tensors(inputs)) {
      return use(session -> engine.block(options, call -> {
        Raw.epl_session_step(session, tensors.addresses, call.options, call.metrics);
        return Metrics.of(call.metrics);
      }));
    }
  }

  /**
   * The gradients of a batch without an update, for a trainer with {@code keep_gradients}: {@link #get} and {@link #set}
   * read and change them as {@code <parameter>.gradient}.
   */
  public Metrics gradients(List<Tensor> inputs, CallOptions options) {
    try (Tensors tensors = new Tensors(inputs)) {
      return use(session -> engine.block(options, call -> {
        Raw.epl_session_gradients(session, tensors.addresses, call.options, call.metrics);
        return Metrics.of(call.metrics);
      }));
    }
  }

  /** The same by name. */
  public Metrics gradients(Map<String, Tensor> inputs, CallOptions options) {
    return gradients(ordered(Entry.TRAIN, inputs), options);
  }

  /** The update of a step, by the gradients that the session has. */
  public Metrics apply(CallOptions options) {
    return use(session -> engine.block(options, call -> {
      Raw.epl_session_apply(session, call.options, call.metrics);
      return Metrics.of(call.metrics);
    }));
  }

  /**
   * A step that a thread of this session makes, after what was asked for before it. The deadline counts from when it
   * begins. Cancelling the future ends the step where it can still be ended; {@link #steps} says whether it happened.
   * The tensors may be closed at once; what borrowed memory holds must stay as it is until the future is done.
   *
   * <p>What follows the future runs on that thread, when the session is free again, and holds up what was asked for
   * next: it may use the session, but not wait for another future of it. Where it takes a while use thenApplyAsync and
   * its like.
   */
  public CompletableFuture<Metrics> stepAsync(List<Tensor> inputs) {
    return stepAsync(inputs, CallOptions.NONE);
  }

  public CompletableFuture<Metrics> stepAsync(List<Tensor> inputs, CallOptions options) {
    return later(options, inputs, List.of(), (session, in, out, call) ->
        Raw.epl_session_step_async(session, in, call));
  }

  /** The same by name. */
  public CompletableFuture<Metrics> stepAsync(Map<String, Tensor> inputs, CallOptions options) {
    return stepAsync(ordered(Entry.TRAIN, inputs), options);
  }

  /** The same for {@link #evaluate}. */
  public CompletableFuture<Metrics> evaluateAsync(List<Tensor> inputs, CallOptions options) {
    return later(options, inputs, List.of(), (session, in, out, call) ->
        Raw.epl_session_evaluate_async(session, in, call));
  }

  /** The same by name. */
  public CompletableFuture<Metrics> evaluateAsync(Map<String, Tensor> inputs, CallOptions options) {
    return evaluateAsync(ordered(Entry.EVALUATE, inputs), options);
  }

  /** The same for {@link #predictInto}. Of the metrics, step and time say something. */
  public CompletableFuture<Metrics> predictAsync(List<Tensor> inputs, List<Tensor> outputs, CallOptions options) {
    return later(options, inputs, outputs, (session, in, out, call) ->
        Raw.epl_session_predict_async(session, in, call, out));
  }

  /** The same by name; an output that is not named is not wanted. */
  public CompletableFuture<Metrics> predictAsync(Map<String, Tensor> inputs, Map<String, Tensor> outputs,
      CallOptions options) {
    return predictAsync(ordered(Entry.PREDICT, inputs), ports.get(Entry.PREDICT).into(outputs), options);
  }

  /** The loss without an update, of a full batch or of fewer samples. */
  public Metrics evaluate(List<Tensor> inputs) {
    return evaluate(inputs, CallOptions.NONE);
  }

  /** The same by name. */
  public Metrics evaluate(Map<String, Tensor> inputs, CallOptions options) {
    return evaluate(ordered(Entry.EVALUATE, inputs), options);
  }

  public Metrics evaluate(List<Tensor> inputs, CallOptions options) {
    try (Tensors tensors = new Tensors(inputs)) {
      return use(session -> engine.block(options, call -> {
        Raw.epl_session_evaluate(session, tensors.addresses, call.options, call.metrics);
        return Metrics.of(call.metrics);
      }));
    }
  }

  /** The outputs of the model, in the plan's order, of a full batch or of fewer samples. Close each. */
  public List<Tensor> predict(List<Tensor> inputs) {
    return predict(inputs, CallOptions.NONE);
  }

  /** The same with inputs and outputs by name. */
  public Map<String, Tensor> predict(Map<String, Tensor> inputs) {
    return predict(inputs, CallOptions.NONE);
  }

  public Map<String, Tensor> predict(Map<String, Tensor> inputs, CallOptions options) {
    return ports.get(Entry.PREDICT).named(predict(ordered(Entry.PREDICT, inputs), options));
  }

  public List<Tensor> predict(List<Tensor> inputs, CallOptions options) {
    int outputs = ports.get(Entry.PREDICT).outputs().size();
    return use(session -> Tensors.predict(engine, inputs, outputs, options, (in, call, made) ->
        Raw.epl_session_predict(session, in, call, made)));
  }

  /**
   * The same into tensors that are there, of the types and sizes of the outputs of so many samples; null for one that
   * is not wanted. They share no memory with the inputs. After an error they hold anything.
   */
  public void predictInto(List<Tensor> inputs, List<Tensor> outputs, CallOptions options) {
    run(session -> Tensors.predictInto(engine, inputs, outputs, options, (in, call, into) ->
        Raw.epl_session_predict_into(session, in, call, into)));
  }

  /** The same by name; an output that is not named is not wanted. */
  public void predictInto(Map<String, Tensor> inputs, Map<String, Tensor> outputs, CallOptions options) {
    predictInto(ordered(Entry.PREDICT, inputs), ports.get(Entry.PREDICT).into(outputs), options);
  }

  /** What predicts beside the steps of this session, with the weights that it has now. */
  public Predictor newPredictor() {
    return newPredictor(null, CallOptions.NONE);
  }

  /** `shapes`: another plan of the same model and trainer, for batches of another size; null: the session's own. */
  public Predictor newPredictor(Plan shapes, CallOptions options) {
    return use(session -> use(shapes, plan -> engine.block(options, call ->
        new Predictor(engine, Raw.epl_predictor_create(session, plan, call.options),
            shapes == null ? ports.get(Entry.PREDICT) : Ports.of(shapes, Entry.PREDICT)))));
  }

  /** A process of several that cannot make a call which the others make says so, and they go on. */
  public void giveUp(String reason) {
    giveUp(reason, CallOptions.NONE);
  }

  public void giveUp(String reason, CallOptions options) {
    run(session -> engine.block(options, call -> {
      Raw.epl_session_give_up(session, Text.utf8(reason), call.options);
      return null;
    }));
  }

  /**
   * Compares with the other processes of a job what all must have in common: `facts`, a JSON object of the caller's own,
   * and the data, null for none. What differs is an error in all of them that names it.
   */
  public void agree(String facts, Dataset dataset) {
    agree(facts, dataset, CallOptions.NONE);
  }

  public void agree(String facts, Dataset dataset, CallOptions options) {
    run(session -> use(dataset, data -> engine.block(options, call -> {
      Raw.epl_session_agree(session, Text.utf8(facts), data, call.options);
      return null;
    })));
  }

  // --- What it knows

  public long steps() {
    return use(Raw::epl_session_steps);
  }

  /**
   * What the last step that was done measured, from any thread, while others run. Before the first step, and after a
   * checkpoint was loaded, the loss is NaN.
   */
  public Metrics progress() {
    return use(session -> {
      Raw.Metrics metrics = new Raw.Metrics();
      Raw.epl_session_progress(session, metrics);
      return Metrics.of(metrics);
    });
  }

  /** Bytes that a rank has used at its fullest so far. */
  public long peakBytes(long rank) {
    return use(session -> Raw.epl_session_memory_bytes_peak(session, rank));
  }

  /** Equal weights, equal hash. */
  public long hash() {
    return hash(CallOptions.NONE);
  }

  public long hash(CallOptions options) {
    return use(session -> engine.block(options, call -> Raw.epl_session_hash(session, call.options)));
  }

  /** An output of the last step or evaluation by its name. */
  public Tensor output(Entry entry, String name) {
    return use(session -> new Tensor(engine, Raw.epl_session_output(session, entry.number, Text.utf8(name))));
  }

  /** A scalar output of the last step by its name. */
  public double metric(String name) {
    return use(session -> Raw.epl_session_metric(session, Text.utf8(name)));
  }

  /** A number that decides how training goes on: "learning_rate", "learning_rate:GROUP", "learning_rate_scale", "frozen:PATTERN". */
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
    return get(name, CallOptions.NONE);
  }

  public Tensor get(String name, CallOptions options) {
    return use(session -> engine.block(options, call ->
        new Tensor(engine, Raw.epl_session_get(session, Text.utf8(name), call.options))));
  }

  public void set(String name, Tensor value) {
    set(name, value, CallOptions.NONE);
  }

  public void set(String name, Tensor value, CallOptions options) {
    run(session -> value.run(tensor -> engine.block(options, call -> {
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

  /**
   * The same as one stream, which is written from its first byte to its last and is not closed: a zip archive of what
   * the folder holds. Over processes that of rank 0 is written to, and the others may pass null. What the stream throws is
   * the cause of this call's exception.
   */
  public void save(OutputStream stream, Dataset dataset, CallOptions options) {
    run(session -> use(dataset, data -> Streams.write(engine, stream, options, (writer, call) ->
        Raw.epl_session_save_to(session, writer, data, call))));
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

  /**
   * From such a stream. It is read twice: to check it before anything changes, and to take its values. An error on the
   * second way means {@link ErrorCode#STATE_LOST} until a checkpoint is loaded. Over processes each has one of the same
   * bytes.
   */
  public void load(Source source, Dataset dataset, CallOptions options) {
    run(session -> use(dataset, data -> Streams.read(engine, source, options, (from, call) -> {
      Raw.epl_session_load_from(session, from, data, call);
      return null;
    })));
  }

  /** In what this session differs from the run that saved a checkpoint, as JSON. */
  public String compare(Path folder, Dataset dataset) {
    return compare(folder, dataset, CallOptions.NONE);
  }

  public String compare(Path folder, Dataset dataset, CallOptions options) {
    return Text.of(use(session -> use(dataset, data -> engine.block(options, call ->
        Raw.epl_session_compare(session, Text.utf8(folder), data, call.options)))));
  }

  /** The model with its trained weights, ready for inference. */
  public void exportOnnx(Path path) {
    exportOnnx(path, CallOptions.NONE);
  }

  public void exportOnnx(Path path, CallOptions options) {
    export(path, Raw::epl_session_export_onnx, options);
  }

  /** The same, but to train on. */
  public void exportOnnxForTraining(Path path) {
    exportOnnxForTraining(path, CallOptions.NONE);
  }

  public void exportOnnxForTraining(Path path, CallOptions options) {
    export(path, Raw::epl_session_export_onnx_for_training, options);
  }

  /** Low-rank adapters, as Hugging Face PEFT loads them. */
  public void exportAdapters(Path folder) {
    exportAdapters(folder, CallOptions.NONE);
  }

  public void exportAdapters(Path folder, CallOptions options) {
    export(folder, Raw::epl_session_export_adapters, options);
  }

  public void exportSafetensors(Path path) {
    exportSafetensors(path, CallOptions.NONE);
  }

  public void exportSafetensors(Path path, CallOptions options) {
    export(path, Raw::epl_session_export_safetensors, options);
  }

  /** A format of {@link #export}. */
  public enum Format {
    /** As {@link #exportOnnx}, as one file below 2 GiB. */
    ONNX("onnx"),
    /** As {@link #exportOnnxForTraining}, as one file below 2 GiB. */
    ONNX_FOR_TRAINING("onnx_for_training"),
    SAFETENSORS("safetensors");

    final String text;

    Format(String text) {
      this.text = text;
    }
  }

  /** An export to a stream, which is not closed. Over processes that of rank 0, and the others may pass null. */
  public void export(Format format, OutputStream stream, CallOptions options) {
    run(session -> Streams.write(engine, stream, options, (writer, call) ->
        Raw.epl_session_export_to(session, Text.utf8(format.text), writer, call)));
  }

  private interface Export {
    void write(long session, byte[] path, Raw.CallOptions call);
  }

  private void export(Path path, Export format, CallOptions options) {
    run(session -> engine.block(options, call -> {
      format.write(session, Text.utf8(path), call.options);
      return null;
    }));
  }

  // --- Within the package

  private CompletableFuture<Metrics> later(CallOptions options, List<Tensor> inputs, List<Tensor> outputs,
      Pending.Begin begin) {
    Pending next = new Pending(this, options, inputs, outputs, begin);
    synchronized (pending) {
      pending.add(next);
      if (pending.size() > 1) return next; // who is done with the one before it begins it
    }
    begin(next);
    return next;
  }

  /** Begins one, and where that cannot begin the one behind it. */
  private void begin(Pending first) {
    for (Pending next = first; next != null && !next.start();) next = following();
  }

  /** The first one is done. What is asked for from here on, where nothing waits, begins with who asks for it. */
  private Pending following() {
    synchronized (pending) {
      pending.remove();
      return pending.peek();
    }
  }

  void done() {
    begin(following());
  }

  @Override
  void destroy() {
    Raw.epl_session_destroy(address);
  }
}
