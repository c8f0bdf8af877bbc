import ai.epl.CallOptions;
import ai.epl.Dataset;
import ai.epl.Engine;
import ai.epl.EngineOptions;
import ai.epl.Entry;
import ai.epl.EplException;
import ai.epl.FolderLock;
import ai.epl.Model;
import ai.epl.Plan;
import ai.epl.PlanOptions;
import ai.epl.Strategy;
import ai.epl.Trainer;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** The jobs of one folder, under one memory budget. The folder has `uploads` and `jobs`. */
final class Manager implements AutoCloseable {
  static final System.Logger LOG = System.getLogger("training");
  private static final SecureRandom RANDOM = new SecureRandom();

  final Path folder;
  final Engine engine;
  final Uploads uploads;
  final Board board = new Board();
  private final FolderLock owner; // no other process trains the same jobs
  private final long budget;
  private final Map<String, Job> jobs = new HashMap<>();
  private final Map<String, Spec> coming = new HashMap<>(); // of jobs that are not let in yet; `jobs` guards it
  private final Object making = new Object(); // a job after the other is let in
  private long last; // when the last one was created
  private volatile boolean ended;

  /** Takes up a folder with what is in it: jobs that ran go on from their last checkpoint. */
  Manager(Path given, Uploads.Limits limits, int threads) throws IOException {
    Files.createDirectories(given);
    folder = given.toRealPath();
    budget = limits.budget();
    engine = Engine.create(new EngineOptions().threads(threads));
    FolderLock lock = null;
    try {
      lock = owner = engine.lockFolder(folder);
      // Where folders of deleted jobs are until all of their files are removed. No job has this name.
      Note.remove(deleted());
      for (Path one : List.of(folder.resolve("uploads"), deleted())) Files.createDirectories(one);
      uploads = new Uploads(folder.resolve("uploads"), limits);
      for (Path one : Note.list(folder.resolve("jobs"))) takeUp(one);
    } catch (IOException | RuntimeException error) {
      if (lock != null) lock.close();
      engine.close();
      throw error;
    }
  }

  static String newId() {
    byte[] bytes = new byte[8];
    RANDOM.nextBytes(bytes);
    return HexFormat.of().formatHex(bytes);
  }

  private Path deleted() {
    return folder.resolve("jobs").resolve("deleted");
  }

  boolean ends() {
    return ended;
  }

  /** What a client hears of an error: paths of this machine are cut down to what the client knows. */
  String told(Throwable error) {
    String text = Failure.of(error).getMessage();
    return text.replace(folder.resolve("uploads") + "/", "").replace(folder + "/", "");
  }

  private void takeUp(Path of) throws IOException {
    if (Files.notExists(of.resolve("job.json"))) return;
    String id = of.getFileName().toString();
    Status status = null;
    Spec spec = null;
    try {
      Map<String, Object> note = Spec.object(Json.parse(Files.readString(of.resolve("job.json"))), "a note");
      status = Status.of(Spec.object(note.get("status"), "status"));
      last = Math.max(last, status.created());
      spec = Spec.of(note.get("spec"));
      if (!status.phase().equals(Status.FAILED)) {
        begin(spec, Status.begin(id, status.phase(), spec.steps(), status.created()));
        return;
      }
    } catch (RuntimeException error) { // its note keeps its phase: at the next start there may be what it lacks
      LOG.log(Level.ERROR, "job " + id + " cannot go on", error);
      if (spec == null || status == null) return;
      status = status.failed(told(error));
    }
    jobs.put(id, new Job(this, spec, status).asRecord());
  }

  Dataset open(Spec spec) {
    return engine.openDataset(uploads.find(spec.data()), Json.write(spec.dataset()));
  }

  /** Plans a job, which bounds its memory before anything is allocated, and takes it on if the budget allows. */
  Job create(Spec spec) throws IOException {
    String id = newId();
    synchronized (making) { // no upload is being deleted
      synchronized (jobs) {
        coming.put(id, spec);
      }
    }
    try {
      uploads.find(spec.model());
      uploads.find(spec.data());
      return begin(spec, Status.begin(id, Status.WAITING, spec.steps(), moment()));
    } finally {
      synchronized (jobs) {
        coming.remove(id);
      }
    }
  }

  private Job begin(Spec spec, Status status) throws IOException {
    Plan plan = plan(spec);
    Job job = new Job(this, spec, status);
    boolean begun = false;
    try {
      if (status.phase().equals(Status.WAITING)) { // what cannot run is not taken on
        try (Dataset data = open(spec)) {
          data.bind(plan, Entry.TRAIN).check(plan, Entry.TRAIN, CallOptions.NONE);
        }
      }
      synchronized (making) {
        admit(job, plan);
        begun = true;
      }
    } finally {
      if (!begun) plan.close();
      if (!begun && status.phase().equals(Status.WAITING)) Note.remove(job.folder);
    }
    return job;
  }

  /** When a job is created: in milliseconds, and no two at once. */
  private synchronized long moment() {
    last = Math.max(System.currentTimeMillis(), last + 1);
    return last;
  }

  /** Lets a job begin, if the budget has room for its session and its predictor, before either is made. */
  private void admit(Job job, Plan plan) throws IOException {
    if (ended) throw new Failure(503, "the service ends");
    long bytes = bytesOf(plan);
    long free = budget - list().stream().mapToLong(Status::memory).sum();
    if (budget > 0 && bytes > free) {
      throw new Failure(507, "the job needs " + bytes + " bytes, with those to predict while it trains, and the budget has "
          + free + " left: " + (bytes - free) + " too few; a smaller batch or more micro-batches need less");
    }
    Files.createDirectories(job.folder);
    job.change(s -> s.with(bytes));
    job.writeNote();
    job.open(plan);
    synchronized (jobs) {
      jobs.put(job.status().id(), job);
    }
    job.start();
  }

  /** What a session of a plan and its predictor, if the model has outputs, will take: to the byte. */
  private static long bytesOf(Plan plan) {
    long bytes = 0;
    for (long rank = 0; rank < plan.ranks(); ++rank) bytes += plan.peakBytes(rank);
    if (plan.outputs(Entry.PREDICT).isEmpty()) return bytes;
    Map<String, Object> memory = Spec.object(Json.parse(plan.describe("memory")), "memory");
    return bytes + ((Number) memory.get("predictor_bytes")).longValue();
  }

  private Plan plan(Spec spec) {
    try (Model model = engine.loadModel(uploads.find(spec.model()));
        Trainer trainer = engine.parseTrainer(Json.write(spec.trainer()));
        Strategy strategy = engine.parseStrategy(Json.write(spec.strategy()))) {
      PlanOptions options = spec.ranks() == 0 ? new PlanOptions() : new PlanOptions().ranks(spec.ranks());
      return model.plan(trainer, strategy, options, CallOptions.NONE);
    }
  }

  Job job(String id) {
    synchronized (jobs) {
      Job job = jobs.get(id);
      if (job == null) throw Failure.unknown();
      return job;
    }
  }

  List<Status> list() {
    synchronized (jobs) {
      return jobs.values().stream().map(Job::status).sorted(Board.BY_TIME).toList();
    }
  }

  /** The jobs that need an upload. */
  List<String> users(String upload) {
    synchronized (jobs) {
      Map<String, Spec> all = new TreeMap<>(coming);
      for (Job one : jobs.values()) all.put(one.status().id(), one.spec);
      return all.keySet().stream().filter(id -> all.get(id).uses(upload)).toList();
    }
  }

  /** Removes an upload that no job uses. Jobs are not let in meanwhile. */
  Map<String, Object> deleteUpload(String id) throws IOException {
    synchronized (making) {
      return uploads.remove(id, this::users);
    }
  }

  /** Ends a job between two steps, without a checkpoint, and removes it with its files. */
  Status delete(Job job) throws Exception {
    String id = job.status().id();
    Path aside = deleted().resolve(id);
    job.moveTo(aside);
    synchronized (jobs) {
      jobs.remove(id);
    }
    Note.remove(aside);
    job.change(s -> s.with(0).in(Status.DELETED));
    return job.status();
  }

  /** Lets every job end the step it is in, and saves them all. No step is lost. */
  @Override
  public void close() {
    List<Job> all;
    synchronized (making) {
      ended = true;
      board.end();
      synchronized (jobs) {
        all = List.copyOf(jobs.values());
      }
    }
    for (Job one : all) one.wake();
    try {
      for (Job one : all) one.join();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
    owner.close();
    engine.close();
  }
}
