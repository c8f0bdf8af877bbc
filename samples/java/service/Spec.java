import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/** What a client asks for. It is kept beside the job, so that a service that starts again goes on with it. */
record Spec(String model, String data, Map<String, Object> dataset, Map<String, Object> trainer,
    Map<String, Object> strategy, long ranks, long steps, long checkpoint, double checkpointSeconds) {
  private static final Set<String> FIELDS = Set.of("model", "data", "dataset", "trainer", "strategy", "ranks", "steps",
      "checkpoint", "checkpoint_seconds");
  /**
   * Options of a dataset that a client may set (docs/readers.md). A file that one of them names lies among the uploads:
   * the library sees to that.
   */
  private static final Set<String> DATASET = new TreeSet<>(List.of("batch", "channels", "classes", "context", "fields",
      "fit", "header", "height", "held_out", "ignore", "input", "inputs", "layout", "mean", "missing", "order", "partial",
      "prefetch", "reader", "seed", "separator", "split", "split_seed", "std", "stride", "target", "target_column",
      "width"));
  private static final long MOST_STEPS = 1L << 40;
  private static final long MOST_RANKS = 64;
  private static final long MOST_AHEAD = 16; // batches, which are memory beside the budget

  static Spec of(Object json) {
    Map<String, Object> given = object(json, "the job");
    for (String name : given.keySet()) {
      if (!FIELDS.contains(name)) throw new Failure(400, "there is no field \"" + Failure.excerpt(name) + "\"");
    }
    Spec spec = new Spec(text(given, "model"), text(given, "data"), object(given.get("dataset"), "dataset"),
        object(given.get("trainer"), "trainer"), object(given.get("strategy"), "strategy"),
        integer(given, "ranks", 0, MOST_RANKS, 0), integer(given, "steps", 1, MOST_STEPS, 0),
        integer(given, "checkpoint", 0, MOST_STEPS, 0), seconds(given));
    for (Map.Entry<String, Object> one : spec.dataset.entrySet()) {
      if (!DATASET.contains(one.getKey())) {
        throw new Failure(400, "a client cannot set the dataset's option \"" + Failure.excerpt(one.getKey())
            + "\"; there are: " + String.join(", ", DATASET));
      }
      if (one.getKey().equals("prefetch") && one.getValue() instanceof Number ahead && ahead.doubleValue() > MOST_AHEAD) {
        throw new Failure(400, "prefetch is " + ahead + "; this service reads at most " + MOST_AHEAD + " batches ahead");
      }
    }
    return spec;
  }

  Map<String, Object> json() {
    return Map.of("model", model, "data", data, "dataset", dataset, "trainer", trainer, "strategy", strategy, "ranks",
        ranks, "steps", steps, "checkpoint", checkpoint, "checkpoint_seconds", checkpointSeconds);
  }

  /**
   * Whether it needs an upload: as its model, as its data, or as a file that an option names, with a "./" before it for
   * example.
   */
  boolean uses(String upload) {
    return upload.equals(model) || upload.equals(data)
        || dataset.get("target") instanceof String target && upload.equals(target.substring(target.lastIndexOf('/') + 1));
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> object(Object value, String name) {
    if (value == null && !name.equals("the job")) return Map.of();
    if (value instanceof Map<?, ?> map) return (Map<String, Object>) map;
    throw new Failure(400, name + " is an object of JSON");
  }

  private static String text(Map<String, Object> given, String name) {
    Object value = given.get(name);
    if (value == null) return "";
    if (value instanceof String text) return text;
    throw new Failure(400, name + " is the id of an upload");
  }

  private static long integer(Map<String, Object> given, String name, long least, long most, long otherwise) {
    Object value = given.get(name);
    long number = value instanceof Long integer ? integer : value == null ? otherwise : Long.MIN_VALUE;
    if (number < least || number > most)
      throw new Failure(400, name + " is " + Failure.excerpt(Json.write(value)) + "; an integer from " + least + " to "
          + most + " is expected");
    return number;
  }

  private static double seconds(Map<String, Object> given) {
    Object value = given.get("checkpoint_seconds");
    double number = value instanceof Number seconds ? seconds.doubleValue() : value == null ? 0 : -1;
    if (!(number >= 0 && number < 1e9)) throw new Failure(400, "checkpoint_seconds is a number that is not negative");
    return number == 0 ? 60 : number;
  }
}
