package ai.epl;

import ai.epl.raw.Raw;
import java.util.Map;

/** Loss, optimizer, schedule, and what is bound: keys and values of docs/training.md. One caller at a time. */
public final class Trainer extends Handle {
  Trainer(Engine engine, long address) {
    super(engine, address);
  }

  public Trainer set(String key, String value) {
    run(trainer -> Raw.epl_trainer_set(trainer, Text.utf8(key), Text.utf8(value)));
    return this;
  }

  public Trainer set(String key, double value) {
    run(trainer -> Raw.epl_trainer_set_number(trainer, Text.utf8(key), value));
    return this;
  }

  /** The key has its default again. */
  public Trainer unset(String key) {
    run(trainer -> Raw.epl_trainer_unset(trainer, Text.utf8(key)));
    return this;
  }

  /** Parameters whose names match a glob and which have options of their own; the first group that matches counts. */
  public Group addGroup(String pattern) {
    return new Group(use(trainer -> Raw.epl_trainer_add_group(trainer, Text.utf8(pattern))));
  }

  /** A group of parameters of this trainer. */
  public final class Group {
    private final long number;

    private Group(long number) {
      this.number = number;
    }

    public Group add(String pattern) {
      run(trainer -> Raw.epl_trainer_group_add(trainer, number, Text.utf8(pattern)));
      return this;
    }

    /** frozen, lr, weight_decay, ... */
    public Group set(String key, String value) {
      run(trainer -> Raw.epl_trainer_group_set(trainer, number, Text.utf8(key), Text.utf8(value)));
      return this;
    }
  }

  /**
   * One more shape that batches may have: {@code Map.of("symbols", Map.of("length", 64))} for a bucket of shorter texts,
   * {@code Map.of("symbols", Map.of("batch", 3))} for what an epoch leaves over. {@link Entry#shape} asks a plan about
   * it; steps, evaluations and predictions find it by what they are given.
   */
  public Trainer addShape(Map<String, ?> shape) {
    return addShape(Json.of(shape));
  }

  /** The same as JSON. */
  public Trainer addShape(String shape) {
    run(trainer -> Raw.epl_trainer_add_shape(trainer, Text.utf8(shape)));
    return this;
  }

  /** Trains what matches this or another such pattern, and freezes all else. */
  public Trainer trainOnly(String pattern) {
    run(trainer -> Raw.epl_trainer_train_only(trainer, Text.utf8(pattern)));
    return this;
  }

  /** Low-rank adapters beside the layers that match; 0 for the defaults of rank (8) and alpha (16). */
  public Trainer addAdapter(String pattern, long rank, double alpha, double dropout) {
    Raw.AdapterOptions options = new Raw.AdapterOptions().rank(rank).alpha(alpha).dropout(dropout);
    run(trainer -> Raw.epl_trainer_add_adapter(trainer, Text.utf8(pattern), options));
    return this;
  }

  /** Gives a symbolic dimension of the model its size. */
  public Trainer bindSymbol(String symbol, long size) {
    run(trainer -> Raw.epl_trainer_bind_symbol(trainer, Text.utf8(symbol), size));
    return this;
  }

  /** The shape of an input, or type and shape of the loss's target by the name "target". */
  public Trainer bindInput(String input, DataType type, long... dims) {
    run(trainer -> Raw.epl_trainer_bind_input(trainer, Text.utf8(input), type.number, dims));
    return this;
  }

  /** Binds the inputs of a model, and the target where it is a class, as batches of a dataset have them. */
  public Trainer bindDataset(Model model, Dataset dataset) {
    run(trainer -> model.run(address -> dataset.run(data -> Raw.epl_trainer_bind_dataset(trainer, address, data))));
    return this;
  }

  /** Which dimension of an input counts samples, -1 for none. */
  public Trainer bindBatchDim(String input, int dim) {
    run(trainer -> Raw.epl_trainer_bind_batch_dim(trainer, Text.utf8(input), dim));
    return this;
  }

  /** Makes an input a constant. The value is copied. */
  public Trainer bindValue(String input, Tensor value) {
    run(trainer -> value.run(tensor -> Raw.epl_trainer_bind_value(trainer, Text.utf8(input), tensor)));
    return this;
  }

  /** All that was set, as JSON. */
  public String describe() {
    return Text.of(use(Raw::epl_trainer_describe));
  }

  @Override
  void destroy() {
    Raw.epl_trainer_destroy(address);
  }
}
