import java.util.LinkedHashMap;
import java.util.Map;

/** What watchers see. Its JSON is the service's promise. */
record Status(String id, String phase, long step, long steps, double loss, double rate, double seconds, long memory,
    long checkpoint, long created, String error, String log) {
  static final String WAITING = "waiting"; // created, not started
  static final String RUNNING = "running";
  static final String PAUSED = "paused";
  static final String DONE = "done";
  static final String FAILED = "failed"; // its record is all that is left
  static final String DELETED = "deleted"; // what its watchers hear last

  static Status begin(String id, String phase, long steps, long created) {
    return new Status(id, phase, 0, steps, Double.NaN, Double.NaN, Double.NaN, 0, 0, created, null, null);
  }

  boolean isOver() {
    return phase.equals(DONE) || phase.equals(FAILED) || phase.equals(DELETED);
  }

  Status in(String now) {
    return new Status(id, now, step, steps, loss, rate, seconds, memory, checkpoint, created, error, now);
  }

  Status at(long now, double loss, double rate, double seconds) {
    return new Status(id, phase, now, steps, loss, rate, seconds, memory, checkpoint, created, error, log);
  }

  Status with(long memory) {
    return new Status(id, phase, step, steps, loss, rate, seconds, memory, checkpoint, created, error, log);
  }

  Status saved(long now, String line) {
    return new Status(id, phase, now, steps, loss, rate, seconds, memory, now, created, error, line);
  }

  Status failed(String why) {
    return new Status(id, FAILED, step, steps, loss, rate, seconds, 0, checkpoint, created, why, null);
  }

  Status saying(String line) {
    return new Status(id, phase, step, steps, loss, rate, seconds, memory, checkpoint, created, error, line);
  }

  Map<String, Object> json() {
    Map<String, Object> out = new LinkedHashMap<>();
    out.put("id", id);
    out.put("phase", phase);
    out.put("step", step);
    out.put("steps", steps);
    out.put("loss", loss);
    out.put("learning_rate", rate);
    out.put("seconds_per_step", seconds);
    out.put("memory_bytes", memory);
    out.put("checkpoint_step", checkpoint);
    out.put("created", created);
    if (error != null) out.put("error", error);
    if (log != null) out.put("log", log);
    return out;
  }

  /** As a job's note has it. */
  static Status of(Map<String, Object> json) {
    return new Status((String) json.get("id"), (String) json.get("phase"), integer(json, "step"),
        integer(json, "steps"), real(json, "loss"), real(json, "learning_rate"), real(json, "seconds_per_step"), 0,
        integer(json, "checkpoint_step"), integer(json, "created"), (String) json.get("error"), null);
  }

  private static long integer(Map<String, Object> json, String name) {
    return ((Number) json.get(name)).longValue();
  }

  private static double real(Map<String, Object> json, String name) {
    return json.get(name) instanceof Number number ? number.doubleValue() : Double.NaN;
  }
}
