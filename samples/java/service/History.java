import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What a page shows of a job's past: a point for each `stride` steps, with their mean loss and the learning rate of the
 * last of them. When it is full, two points become one.
 */
final class History {
  private static final int MOST_POINTS = 1024;

  private record Point(long step, double loss, double rate) {
    Map<String, Object> json() {
      Map<String, Object> out = new LinkedHashMap<>();
      out.put("step", step);
      out.put("loss", loss);
      out.put("learning_rate", rate);
      return out;
    }
  }

  private List<Point> points = new ArrayList<>();
  private long stride = 1;
  private double sum;
  private long count;

  synchronized void add(long step, double loss, double rate) {
    sum += loss;
    ++count;
    if (step % stride != 0) return;
    points.add(new Point(step, sum / count, rate));
    sum = 0;
    count = 0;
    if (points.size() < MOST_POINTS) return;
    stride *= 2;
    List<Point> kept = new ArrayList<>();
    Point before = null;
    for (Point one : points) {
      if (one.step % stride != 0) {
        before = one;
        continue;
      }
      kept.add(before == null ? one : new Point(one.step, (one.loss + before.loss) / 2, one.rate));
      before = null;
    }
    points = kept;
  }

  synchronized Map<String, Object> json() {
    return Map.of("stride", stride, "points", points.stream().map(Point::json).toList());
  }

  /** Keeps it beside a checkpoint. */
  void save(Path file) throws IOException {
    Note.write(file, Json.write(json()));
  }

  /** Takes up what was before a checkpoint of this step. Steps after it are made again. */
  synchronized void load(Path file, long step) throws IOException {
    if (Files.notExists(file)) return;
    Map<String, Object> kept = Spec.object(Json.parse(Files.readString(file)), "history");
    stride = ((Number) kept.get("stride")).longValue();
    points = new ArrayList<>();
    for (Object one : (List<?>) kept.get("points")) {
      Map<String, Object> point = Spec.object(one, "point");
      long at = ((Number) point.get("step")).longValue();
      if (at <= step) points.add(new Point(at, real(point.get("loss")), real(point.get("learning_rate"))));
    }
  }

  private static double real(Object value) {
    return value instanceof Number number ? number.doubleValue() : Double.NaN;
  }
}
