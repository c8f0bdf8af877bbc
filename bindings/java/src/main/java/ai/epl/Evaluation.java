package ai.epl;

import ai.epl.raw.Raw;
import java.util.List;
import java.util.Map;

/** Loss and metrics over any number of batches. One caller at a time. */
public final class Evaluation extends Handle {
  Evaluation(Engine engine, long address) {
    super(engine, address);
  }

  /** One forward pass over a batch, inputs in the order of {@link Entry#EVALUATE}, or over fewer samples. */
  public Evaluation add(Session session, List<Tensor> inputs, CallOptions options) {
    run(evaluation -> session.run(address -> engine.block(options, call -> {
      try (Tensors tensors = new Tensors(inputs)) {
        Raw.epl_evaluation_add(evaluation, address, tensors.addresses, call.options);
      }
      return null;
    })));
    return this;
  }

  /** The same by name. */
  public Evaluation add(Session session, Map<String, Tensor> inputs, CallOptions options) {
    return add(session, session.ordered(Entry.EVALUATE, inputs), options);
  }

  /** The next batches of a dataset that is bound to EVALUATE or TRAIN; 0: an epoch from its start. */
  public Evaluation add(Session session, Dataset dataset, long batches, CallOptions options) {
    run(evaluation -> session.run(address -> dataset.run(data -> engine.block(options, call -> {
      Raw.epl_evaluation_add_dataset(evaluation, address, data, batches, call.options);
      return null;
    }))));
    return this;
  }

  /** What another one, of an equal plan with the same metrics, has seen. */
  public Evaluation merge(Evaluation other) {
    run(evaluation -> other.run(seen -> Raw.epl_evaluation_merge(evaluation, seen)));
    return this;
  }

  public void reset() {
    run(Raw::epl_evaluation_reset);
  }

  public long samples() {
    return use(Raw::epl_evaluation_samples);
  }

  /** "loss", or a metric by its name; NaN where nothing counted. */
  public double result(String name) {
    return use(evaluation -> Raw.epl_evaluation_result(evaluation, Text.utf8(name)));
  }

  /** All of it as JSON. */
  public String describe() {
    return Text.of(use(Raw::epl_evaluation_describe));
  }

  @Override
  void destroy() {
    Raw.epl_evaluation_destroy(address);
  }
}
