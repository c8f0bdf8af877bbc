import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Gives every watcher the newest status of each job that it watches. A watcher that is slow misses what came between,
 * never the newest, and never holds up a training.
 */
final class Board {
  /** As jobs were created. */
  static final Comparator<Status> BY_TIME = Comparator.comparingLong(Status::created).thenComparing(Status::id);

  /** The newest status of each job that was not read yet, by its id. */
  final class Watcher implements AutoCloseable {
    private final String job; // null: all
    private final Map<String, Status> news = new LinkedHashMap<>();

    private Watcher(String job) {
      this.job = job;
    }

    synchronized void put(Status status) {
      if (job != null && !job.equals(status.id())) return;
      Status old = news.get(status.id());
      // A line that was not read yet is not lost to a mere number.
      news.put(status.id(), status.log() == null && old != null ? status.saying(old.log()) : status);
      notifyAll();
    }

    /** What is new, in the order of the jobs; nothing if there is none for so long. */
    synchronized List<Status> take(long milliseconds) throws InterruptedException {
      if (news.isEmpty() && !ended) wait(milliseconds);
      List<Status> all = news.values().stream().sorted(BY_TIME).toList();
      news.clear();
      return all;
    }

    @Override
    public void close() {
      watchers.remove(this);
    }
  }

  private final Set<Watcher> watchers = ConcurrentHashMap.newKeySet();
  private volatile boolean ended;

  Watcher watch(String job) {
    Watcher watcher = new Watcher(job);
    watchers.add(watcher);
    return watcher;
  }

  void send(Status status) {
    for (Watcher one : watchers) one.put(status);
  }

  boolean isEnded() {
    return ended;
  }

  void end() {
    ended = true;
    for (Watcher one : watchers) {
      synchronized (one) {
        one.notifyAll();
      }
    }
  }
}
