package ai.epl;

import ai.epl.raw.Raw;
import java.util.List;
import java.util.Map;

/**
 * Predicts beside the steps of a session, with a copy of the weights of one step, and threads and memory of its own. It
 * outlives its session. One caller at a time; a session may have several predictors.
 */
public final class Predictor extends Handle {
  private final Ports ports;

  Predictor(Engine engine, long address, Ports ports) {
    super(engine, address);
    this.ports = ports;
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
    return ports.named(predict(ports.ordered(inputs), options));
  }

  public List<Tensor> predict(List<Tensor> inputs, CallOptions options) {
    return use(predictor -> Tensors.predict(engine, inputs, ports.outputs().size(), options, (in, call, made) ->
        Raw.epl_predictor_predict(predictor, in, call, made)));
  }

  /** As {@link Session#predictInto}. */
  public void predictInto(List<Tensor> inputs, List<Tensor> outputs, CallOptions options) {
    run(predictor -> Tensors.predictInto(engine, inputs, outputs, options, (in, call, into) ->
        Raw.epl_predictor_predict_into(predictor, in, call, into)));
  }

  /** The same by name; an output that is not named is not wanted. */
  public void predictInto(Map<String, Tensor> inputs, Map<String, Tensor> outputs, CallOptions options) {
    predictInto(ports.ordered(inputs), ports.into(outputs), options);
  }

  public void refresh() {
    refresh(CallOptions.NONE);
  }

  /** Takes the weights of the session's last step, all at once. The session must not be closed. */
  public void refresh(CallOptions options) {
    run(predictor -> engine.block(options, call -> {
      Raw.epl_predictor_refresh(predictor, call.options);
      return null;
    }));
  }

  /** Steps that the session had done when these were its weights. */
  public long steps() {
    return use(Raw::epl_predictor_steps);
  }

  /** What it has allocated for weights and work. */
  public long bytes() {
    return use(Raw::epl_predictor_memory_bytes);
  }

  @Override
  void destroy() {
    Raw.epl_predictor_destroy(address);
  }
}
