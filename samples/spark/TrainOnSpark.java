// Trains an ONNX model on Apache Spark: every task of a barrier stage is a rank of EPL. See README.md.
import ai.epl.CallOptions;
import ai.epl.Engine;
import ai.epl.Entry;
import ai.epl.Model;
import ai.epl.Plan;
import ai.epl.PlanOptions;
import ai.epl.Strategy;
import ai.epl.Trainer;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.Partitioner;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.runtime.AbstractFunction1;

public final class TrainOnSpark {
  private TrainOnSpark() {}

  /** What the tasks are told. The checkpoint is a folder that all of them see. */
  record Job(byte[] model, String trainer, String strategy, int ranks, int batch, long steps, String checkpoint,
      long checkpointEvery) implements Serializable {
    Trainer trainer(Engine engine) {
      return engine.parseTrainer(trainer).bindSymbol("batch", batch);
    }

    /** Nothing is allocated for a plan, so the driver can make it too and see who needs which samples. */
    Plan plan(Engine engine) {
      try (Model source = engine.loadModel(model);
          Trainer trainer = trainer(engine);
          Strategy scopes = engine.parseStrategy(strategy)) {
        return source.plan(trainer, scopes, new PlanOptions().ranks(ranks).localRanks(1), CallOptions.NONE);
      }
    }
  }

  /** The samples of a batch that a rank reads of an input. */
  record Slice(long first, long samples) implements Serializable {
    static Slice of(Plan plan, int input, int rank) {
      Plan.Slice slice = plan.slice(Entry.TRAIN, input, rank, 1);
      return new Slice(slice.first(), slice.samples());
    }
  }

  /** What a rank has to say at the end. */
  record Result(int rank, int attempt, long resumedAt, long steps, double loss, long hash, byte[] model)
      implements Serializable {}

  /** Partition r holds what rank r reads. */
  static final class ByRank extends Partitioner {
    private final int ranks;

    ByRank(int ranks) {
      this.ranks = ranks;
    }

    @Override
    public int numPartitions() {
      return ranks;
    }

    @Override
    public int getPartition(Object key) {
      return ((Place) key).rank();
    }
  }

  /** Where a row goes: a rank, and its number among all rows. */
  record Place(int rank, long row) implements Comparable<Place>, Serializable {
    @Override
    public int compareTo(Place other) {
      return Long.compare(row, other.row);
    }
  }

  /** The rows of full batches, each with every rank that reads it. A rank has them in the order of the DataFrame. */
  static JavaPairRDD<Place, Row> spread(JavaRDD<Row> rows, long count, int batch, List<List<Slice>> slices) {
    final long used = count / batch * batch;
    return rows.zipWithIndex()
        .flatMapToPair(row -> {
          List<Tuple2<Place, Row>> places = new ArrayList<>();
          long position = row._2() % batch;
          for (int rank = 0; rank < slices.size() && row._2() < used; ++rank) {
            for (Slice slice : slices.get(rank)) {
              if (position < slice.first() || position >= slice.first() + slice.samples()) continue;
              places.add(new Tuple2<>(new Place(rank, row._2()), row._1()));
              break;
            }
          }
          return places.iterator();
        })
        .repartitionAndSortWithinPartitions(new ByRank(slices.size()));
  }

  /** The barrier stage: Spark starts all tasks at once, and all of them again when one fails. */
  static final class Stage extends AbstractFunction1<scala.collection.Iterator<Tuple2<Place, Row>>,
      scala.collection.Iterator<Result>> implements Serializable {
    private final Job job;

    Stage(Job job) {
      this.job = job;
    }

    @Override
    public scala.collection.Iterator<Result> apply(scala.collection.Iterator<Tuple2<Place, Row>> rows) {
      Iterator<Tuple2<Place, Row>> mine = CollectionConverters.asJava(rows);
      return CollectionConverters.asScala(List.of(new Rank(job).train(mine)).iterator());
    }
  }

  private static Map<String, String> options(String[] arguments) {
    Map<String, String> options = new TreeMap<>(Map.of("--ranks", "2", "--batch", "32", "--steps", "100",
        "--checkpoint-every", "20", "--trainer", "{}", "--strategy", "{}"));
    for (int i = 0; i + 1 < arguments.length; i += 2) options.put(arguments[i], arguments[i + 1]);
    for (String needed : List.of("--model", "--data", "--checkpoint", "--out")) {
      if (!options.containsKey(needed)) throw new IllegalArgumentException("say " + needed + "; see README.md");
    }
    return options;
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, String> options = options(arguments);
    Job job = new Job(Files.readAllBytes(Path.of(options.get("--model"))), options.get("--trainer"),
        options.get("--strategy"), Integer.parseInt(options.get("--ranks")), Integer.parseInt(options.get("--batch")),
        Long.parseLong(options.get("--steps")), options.get("--checkpoint"),
        Long.parseLong(options.get("--checkpoint-every")));

    List<List<Slice>> slices = new ArrayList<>();
    try (Engine engine = Engine.create(); Plan plan = job.plan(engine)) {
      for (int rank = 0; rank < job.ranks(); ++rank) {
        List<Slice> inputs = new ArrayList<>();
        for (int i = 0; i < plan.inputs(Entry.TRAIN).size(); ++i) inputs.add(Slice.of(plan, i, rank));
        slices.add(inputs);
      }
    }

    try (SparkSession spark = SparkSession.builder().appName("EPL").getOrCreate()) {
      Dataset<Row> data = spark.read().option("header", true).option("inferSchema", true).csv(options.get("--data"));
      JavaPairRDD<Place, Row> spread = spread(data.javaRDD(), data.count(), job.batch(), slices);
      ClassTag<Result> tag = scala.reflect.ClassTag$.MODULE$.apply(Result.class);
      JavaRDD<Result> trained = new JavaRDD<>(spread.rdd().barrier().mapPartitions(new Stage(job), false, tag), tag);
      // Spark gives up a barrier stage that fails if it is the last stage of its job, and retries one whose results are
      // shuffled: hence the repartition.
      List<Result> results = trained.repartition(1).collect();
      for (Result result : results) {
        System.out.printf("rank %d: attempt %d, resumed at step %d, %d steps, loss %.9g, weights %016x%n",
            result.rank(), result.attempt(), result.resumedAt(), result.steps(), result.loss(), result.hash());
        if (result.rank() == 0) Files.write(Path.of(options.get("--out")), result.model());
      }
    }
  }
}
