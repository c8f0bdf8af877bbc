package ai.epl;

import ai.epl.raw.Raw;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;

/**
 * Batches from files, from the host's functions or from a {@link Feed}. One caller at a time; a batch may be used by
 * other threads until the next one is asked for.
 */
public final class Dataset extends Handle {
  private Batch given = new Batch();
  private int count;

  Dataset(Engine engine, long address) {
    super(engine, address);
    count = (int) (long) use(Raw::epl_dataset_field_count);
  }

  /** What {@link #next} gave: its tensors can be used until the next one takes their memory. */
  final class Batch {
    private int users;
    private boolean gone;

    synchronized void enter() {
      if (gone) throw new IllegalStateException("this batch is gone: its dataset has gone on");
      Dataset.this.enter();
      ++users;
    }

    synchronized void leave() {
      --users;
      Dataset.this.leave();
    }

    synchronized void end() {
      if (users > 0) throw new IllegalStateException("a call still uses the last batch of this dataset");
      gone = true;
    }
  }

  /** A job takes the next batch: that of the last {@link #next} is gone. */
  void endBatch() {
    given.end();
  }

  public List<TensorInfo> fields() {
    return use(dataset -> TensorInfo.all(Raw.epl_dataset_field_count(dataset),
        (i, info) -> Raw.epl_dataset_field(dataset, i, info)));
  }

  /** -1 where nobody knows. */
  public long samples() {
    return use(Raw::epl_dataset_samples);
  }

  /** Batches of an epoch; -1 where nobody knows. */
  public long batches() {
    return use(Raw::epl_dataset_batches);
  }

  /** What was read and how, as JSON. */
  public String describe() {
    return Text.of(use(Raw::epl_dataset_describe));
  }

  /** From now on batches have what an entry of the plan takes, in its order. */
  public Dataset bind(Plan plan, Entry entry) {
    return bound(plan, entry, (dataset, address) -> Raw.epl_dataset_bind(dataset, address, entry.number));
  }

  /** The same for a session that takes slices: the samples alone that these ranks read. */
  public Dataset bindSlice(Plan plan, Entry entry, long firstRank, long ranks) {
    return bound(plan, entry, (dataset, address) ->
        Raw.epl_dataset_bind_slice(dataset, address, entry.number, firstRank, ranks));
  }

  private interface Bind {
    void bind(long dataset, long plan);
  }

  private Dataset bound(Plan plan, Entry entry, Bind bind) {
    run(dataset -> plan.run(address -> {
      given.end();
      bind.bind(dataset, address);
      count = plan.inputs(entry).size();
    }));
    return this;
  }

  /** Reads every sample once and looks for integers that the model cannot take. */
  public void check(Plan plan, Entry entry, CallOptions options) {
    run(dataset -> plan.run(address -> engine.block(options, call -> {
      Raw.epl_dataset_check(dataset, address, entry.number, call.options);
      return null;
    })));
  }

  public List<Tensor> next() {
    return next(CallOptions.NONE);
  }

  /**
   * The next batch, whose memory the next call of this method overwrites. After the last batch of an epoch the next
   * epoch begins. A null stands for an input that no rank of this process reads.
   */
  public List<Tensor> next(CallOptions options) {
    long[] addresses = new long[count];
    given.end();
    run(dataset -> engine.block(options, call -> {
      Raw.epl_dataset_next(dataset, call.options, addresses);
      return null;
    }));
    Batch batch = new Batch();
    given = batch;
    Tensor[] tensors = new Tensor[count];
    for (int i = 0; i < count; ++i) {
      if (addresses[i] != 0) tensors[i] = new Tensor(engine, addresses[i], batch);
    }
    return Arrays.asList(tensors);
  }

  /**
   * The batches of an epoch, or what is left of it, as {@link #next} gives them; of a feed those until it is finished.
   * The loop's body uses each before it asks for the next one.
   */
  public Iterable<List<Tensor>> epoch() {
    return () -> new Iterator<>() {
      private final long batches = batches();
      private boolean ended = batches == 0;
      private boolean begun;
      private List<Tensor> next;

      @Override
      public boolean hasNext() {
        if (next != null) return true;
        if (begun && batches > 0 && position() % batches == 0) ended = true;
        if (ended) return false;
        begun = true;
        try {
          next = Dataset.this.next();
        } catch (EplException error) {
          // Where nobody knows how many there are, the end is found.
          if (batches >= 0 || error.code() != ErrorCode.NOT_FOUND) throw error;
          ended = true;
        }
        return next != null;
      }

      @Override
      public List<Tensor> next() {
        if (!hasNext()) throw new NoSuchElementException();
        List<Tensor> batch = next;
        next = null;
        return batch;
      }
    };
  }

  /** Batches given so far. */
  public long position() {
    return use(Raw::epl_dataset_position);
  }

  public void seek(long position) {
    run(dataset -> Raw.epl_dataset_seek(dataset, position));
  }

  @Override
  void destroy() {
    Raw.epl_dataset_destroy(address);
  }
}
