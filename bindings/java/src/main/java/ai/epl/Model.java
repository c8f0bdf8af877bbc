package ai.epl;

import ai.epl.raw.Raw;
import java.nio.file.Path;
import java.util.List;

/** A model file that was read. Any threads may use it. */
public final class Model extends Handle {
  Model(Engine engine, long address) {
    super(engine, address);
  }

  public List<TensorInfo> inputs() {
    return ports(Raw.EPL_PORT_INPUT);
  }

  public List<TensorInfo> outputs() {
    return ports(Raw.EPL_PORT_OUTPUT);
  }

  public List<TensorInfo> initializers() {
    return ports(Raw.EPL_PORT_INITIALIZER);
  }

  private List<TensorInfo> ports(int kind) {
    return use(model -> TensorInfo.all(Raw.epl_model_port_count(model, kind),
        (i, info) -> Raw.epl_model_port(model, kind, i, info)));
  }

  /** The name of a symbolic dimension of an input, "batch"; empty where it has none. */
  public String symbol(int input, int dim) {
    return Text.of(use(model -> Raw.epl_model_dim_symbol(model, Raw.EPL_PORT_INPUT, input, dim)));
  }

  /** What its owner should know before training it, as JSON. */
  public String findings() {
    return Text.of(use(Raw::epl_model_findings));
  }

  /** All that is known about the file, as JSON. */
  public String describe() {
    return Text.of(use(Raw::epl_model_describe));
  }

  /** What the file itself asks for on that many ranks; NOT_FOUND where it asks for nothing. */
  public Strategy strategy(long ranks) {
    return use(model -> new Strategy(engine, Raw.epl_strategy_of_model(model, ranks)));
  }

  /** A plan of one rank, or of those that the file asks for. */
  public Plan plan(Trainer trainer) {
    return plan(trainer, null, new PlanOptions(), CallOptions.NONE);
  }

  /**
   * Decides everything and allocates nothing.
   *
   * @param trainer null: a plan to predict with
   * @param strategy null: all defaults
   */
  public Plan plan(Trainer trainer, Strategy strategy, PlanOptions options, CallOptions callOptions) {
    return use(model -> use(trainer, made -> use(strategy, spread -> engine.block(callOptions, call ->
        new Plan(engine, Raw.epl_plan_create(model, made, spread, options.raw(), call.options))))));
  }

  /** The same with the decisions of a file, which are refused where what they rest on differs. */
  public Plan loadPlan(Trainer trainer, Strategy strategy, PlanOptions options, Path path) {
    return loadPlan(trainer, strategy, options, path, CallOptions.NONE);
  }

  public Plan loadPlan(Trainer trainer, Strategy strategy, PlanOptions options, Path path, CallOptions callOptions) {
    return use(model -> use(trainer, made -> use(strategy, spread -> engine.block(callOptions, call ->
        new Plan(engine, Raw.epl_plan_load(model, made, spread, options.raw(), Text.utf8(path), call.options))))));
  }

  /** The same from what {@link Plan#save(java.io.OutputStream, CallOptions)} wrote. */
  public Plan loadPlan(Trainer trainer, Strategy strategy, PlanOptions options, byte[] bytes) {
    return loadPlan(trainer, strategy, options, bytes, CallOptions.NONE);
  }

  public Plan loadPlan(Trainer trainer, Strategy strategy, PlanOptions options, byte[] bytes, CallOptions callOptions) {
    return use(model -> use(trainer, made -> use(strategy, spread -> engine.block(callOptions, call ->
        new Plan(engine, Raw.epl_plan_load_bytes(model, made, spread, options.raw(), Engine.direct(bytes),
            call.options))))));
  }

  @Override
  void destroy() {
    Raw.epl_model_destroy(address);
  }
}
