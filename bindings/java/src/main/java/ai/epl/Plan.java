package ai.epl;

import ai.epl.raw.Raw;
import java.io.OutputStream;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/** What will run: everything is decided, nothing allocated. Any threads may use it. */
public final class Plan extends Handle {
  Plan(Engine engine, long address) {
    super(engine, address);
  }

  /**
   * The samples [first, first + samples) of a batch.
   *
   * @param samples 0: none
   */
  public record Slice(long first, long samples) {}

  /** In the order in which calls take them. */
  public List<TensorInfo> inputs(Entry entry) {
    return ports(entry, Raw.EPL_PORT_INPUT);
  }

  public List<TensorInfo> outputs(Entry entry) {
    return ports(entry, Raw.EPL_PORT_OUTPUT);
  }

  /**
   * Inputs by name in the order in which calls take them: {@code plan.ordered(Entry.TRAIN, Map.of("x", x, "target",
   * target))}. An exception names what is missing, or is no input.
   */
  public List<Tensor> ordered(Entry entry, Map<String, Tensor> inputs) {
    return Ports.of(this, entry).ordered(inputs);
  }

  private List<TensorInfo> ports(Entry entry, int kind) {
    return use(plan -> TensorInfo.all(Raw.epl_plan_port_count(plan, entry.number, kind),
        (i, info) -> Raw.epl_plan_port(plan, entry.number, kind, i, info)));
  }

  /** The position of an input by its name; -1 where there is none. */
  public int input(Entry entry, String name) {
    return use(plan -> (int) Raw.epl_plan_find_port(plan, entry.number, Raw.EPL_PORT_INPUT, Text.utf8(name)));
  }

  /** What the ranks [firstRank, firstRank + ranks) read of an input: {@link SessionOptions#slices}. */
  public Slice slice(Entry entry, int input, long firstRank, long ranks) {
    long[] first = new long[1];
    long[] samples = new long[1];
    run(plan -> Raw.epl_plan_slice(plan, entry.number, input, firstRank, ranks, first, samples));
    return new Slice(first[0], samples[0]);
  }

  public long ranks() {
    return use(Raw::epl_plan_ranks);
  }

  /** Bytes that a rank will have at its peak, exact; -1 for a rank that is not there. */
  public long peakBytes(long rank) {
    return use(plan -> Raw.epl_plan_memory_bytes_peak(plan, rank));
  }

  /** A text for people: "explain", "graph", "plan", "local", "program", "kernels". */
  public String print(String stage) {
    return print(stage, CallOptions.NONE);
  }

  public String print(String stage, CallOptions options) {
    return Text.of(use(plan -> engine.block(options, call ->
        Raw.epl_plan_print(plan, Text.utf8(stage), call.options))));
  }

  /** JSON for programs: "overview", "memory", "parameters", "notes". */
  public String describe(String document) {
    return describe(document, CallOptions.NONE);
  }

  public String describe(String document, CallOptions options) {
    return Text.of(use(plan -> engine.block(options, call ->
        Raw.epl_plan_describe(plan, Text.utf8(document), call.options))));
  }

  public void save(Path path) {
    save(path, CallOptions.NONE);
  }

  public void save(Path path, CallOptions options) {
    run(plan -> engine.block(options, call -> {
      Raw.epl_plan_save(plan, Text.utf8(path), call.options);
      return null;
    }));
  }

  /** The same to a stream, which is not closed. */
  public void save(OutputStream stream, CallOptions options) {
    run(plan -> Streams.write(engine, stream, options, (writer, call) -> Raw.epl_plan_save_to(plan, writer, call)));
  }

  /** The model's file again, with the plan in it as other tools read it. */
  public void exportOnnx(Path path) {
    exportOnnx(path, CallOptions.NONE);
  }

  public void exportOnnx(Path path, CallOptions options) {
    run(plan -> engine.block(options, call -> {
      Raw.epl_plan_export_onnx(plan, Text.utf8(path), call.options);
      return null;
    }));
  }

  /** A session whose ranks are threads of this process. */
  public Session newSession() {
    return newSession(new SessionOptions(), CallOptions.NONE);
  }

  public Session newSession(SessionOptions options) {
    return newSession(options, CallOptions.NONE);
  }

  public Session newSession(SessionOptions options, CallOptions callOptions) {
    return use(plan -> engine.block(callOptions, call ->
        new Session(this, Raw.epl_session_create(plan, options.raw(), call.options))));
  }

  /** `metrics`: "accuracy, top_k(k=5)"; empty: those of the loss; "none": the loss alone. */
  public Evaluation newEvaluation(String metrics) {
    return use(plan -> new Evaluation(engine, Raw.epl_evaluation_create(plan, Text.utf8(metrics))));
  }

  @Override
  void destroy() {
    Raw.epl_plan_destroy(address);
  }
}
