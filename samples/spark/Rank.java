import ai.epl.CallOptions;
import ai.epl.DataType;
import ai.epl.Engine;
import ai.epl.Entry;
import ai.epl.Metrics;
import ai.epl.Plan;
import ai.epl.Session;
import ai.epl.SessionOptions;
import ai.epl.Store;
import ai.epl.StoreOptions;
import ai.epl.Tensor;
import ai.epl.TensorInfo;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.sql.Row;
import scala.Tuple2;

/** A task of the barrier stage as a rank of the job. */
final class Rank {
  private final TrainOnSpark.Job job;
  private final BarrierTaskContext task = BarrierTaskContext.get();
  private final int rank = task.partitionId();

  Rank(TrainOnSpark.Job job) {
    this.job = job;
  }

  TrainOnSpark.Result train(Iterator<Tuple2<TrainOnSpark.Place, Row>> rows) {
    try (Engine engine = Engine.create(); Plan plan = job.plan(engine); Store store = rank == 0 ? open(engine) : null) {
      // Task 0 serves the rendezvous of the ranks; Spark's own barrier message carries its id to the others.
      String id = task.allGather(store == null ? "" : store.id())[0];
      SessionOptions where = new SessionOptions().firstRank(rank).ranks(1).rendezvous(id).slices(true)
          .address(host(rank)).joinTimeout(Duration.ofMinutes(2));
      try (Session session = plan.newSession(where)) {
        return train(engine, plan, session, rows);
      }
    }
  }

  private TrainOnSpark.Result train(Engine engine, Plan plan, Session session,
      Iterator<Tuple2<TrainOnSpark.Place, Row>> rows) {
    List<Input> inputs = new ArrayList<>();
    List<TensorInfo> types = plan.inputs(Entry.TRAIN);
    for (int i = 0; i < types.size(); ++i) {
      inputs.add(new Input(types.get(i), TrainOnSpark.Slice.of(plan, i, rank), job.batch()));
    }
    while (rows.hasNext()) {
      Tuple2<TrainOnSpark.Place, Row> row = rows.next();
      for (Input input : inputs) input.add(row._1().row() % job.batch(), row._2());
    }
    Path checkpoint = Path.of(job.checkpoint());
    // All ranks see the same folder, and none has begun to write: allGather was a barrier.
    if (Files.exists(checkpoint)) session.load(checkpoint);
    long resumedAt = session.steps();
    double loss = Double.NaN;
    while (session.steps() < job.steps()) {
      List<Tensor> batch = new ArrayList<>();
      for (Input input : inputs) batch.add(input.batch(engine, session.steps()));
      try {
        Metrics metrics = session.step(batch);
        loss = metrics.loss();
      } finally {
        for (Tensor tensor : batch) if (tensor != null) tensor.close();
      }
      if (session.steps() % job.checkpointEvery() == 0) session.save(checkpoint);
    }
    return new TrainOnSpark.Result(rank, task.stageAttemptNumber(), resumedAt, session.steps(), loss, session.hash(),
        export(session));
  }

  /** All ranks make the call; rank 0 sends the file to the driver. */
  private byte[] export(Session session) {
    try {
      Path file = Files.createTempFile("trained", ".onnx");
      try {
        session.exportOnnx(file);
        return rank == 0 ? Files.readAllBytes(file) : new byte[0];
      } finally {
        Files.deleteIfExists(file);
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private Store open(Engine engine) {
    return engine.newStore(new StoreOptions().address(host(0) + ":0"));
  }

  private String host(int rank) {
    String address = task.getTaskInfos()[rank].address();
    return address.substring(0, address.lastIndexOf(':'));
  }

  /** The samples of one input that this rank reads, batch after batch. */
  private static final class Input {
    private final TensorInfo type;
    private final TrainOnSpark.Slice slice;
    private final int sampleBytes;
    private final List<ByteBuffer> batches = new ArrayList<>();

    /** Columns of the DataFrame are those of the input "x", one for each of its numbers, and the last is the target. */
    Input(TensorInfo type, TrainOnSpark.Slice slice, int batch) {
      this.type = type;
      this.slice = slice;
      long elements = 1;
      for (long size : type.dims()) elements *= size;
      sampleBytes = Math.toIntExact(elements / batch * type.type().bytes());
    }

    void add(long position, Row row) {
      if (position < slice.first() || position >= slice.first() + slice.samples()) return;
      if (position == slice.first()) {
        batches.add(ByteBuffer.allocateDirect((int) slice.samples() * sampleBytes).order(ByteOrder.nativeOrder()));
      }
      ByteBuffer batch = batches.get(batches.size() - 1);
      if (type.type() == DataType.I64) {
        batch.putLong(((Number) row.get(row.size() - 1)).longValue());
      } else {
        for (int column = 0; column < sampleBytes / Float.BYTES; ++column) {
          batch.putFloat(((Number) row.get(column)).floatValue());
        }
      }
    }

    /** The batch of a step without copying it; null where this rank reads none of it. */
    Tensor batch(Engine engine, long step) {
      if (slice.samples() == 0) return null;
      long[] dims = type.dims();
      dims[0] = slice.samples();
      return engine.borrowTensor(type.type(), batches.get((int) (step % batches.size())).rewind(), dims);
    }
  }
}
