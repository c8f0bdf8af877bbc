import ai.epl.CallOptions;
import ai.epl.Dataset;
import ai.epl.Engine;
import ai.epl.Entry;
import ai.epl.EplException;
import ai.epl.Metrics;
import ai.epl.Plan;
import ai.epl.Predictor;
import ai.epl.Session;
import ai.epl.Tensor;
import ai.epl.TensorInfo;
import java.io.IOException;
import java.io.InputStream;
import java.lang.System.Logger.Level;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.UnaryOperator;

/**
 * Trains one model. One thread has the session; others ask it for something between two steps. Predictions go beside the
 * steps: who holds `predicting` has the predictor.
 */
final class Job {
  /** What is done between two steps. */
  interface Task<T> {
    T run(Session session, Dataset data) throws Exception;
  }

  private record Request(Task<?> task, CompletableFuture<Object> answer) {}

  final Spec spec;
  final Path folder;
  final History history = new History();
  private final Manager manager;
  private final Board board;
  private final LinkedBlockingQueue<Request> asked = new LinkedBlockingQueue<>();
  private final Object predicting = new Object();
  private Plan plan;
  private List<TensorInfo> inputs = List.of();
  private List<TensorInfo> outputs = List.of();
  private Session session;
  private Predictor predictor;
  private Thread thread;
  private Status status;
  private volatile boolean deleted;
  private volatile boolean over; // nothing but its record is left
  private long savedAt = System.nanoTime();

  /** One that has nothing yet. */
  Job(Manager manager, Spec spec, Status status) {
    this.manager = manager;
    this.board = manager.board;
    this.spec = spec;
    this.status = status;
    folder = manager.folder.resolve("jobs").resolve(status.id());
  }

  /** The record of one that has failed. */
  Job asRecord() {
    over = true;
    return this;
  }

  /** Makes what it trains with: before its thread is there. */
  void open(Plan plan) {
    this.plan = plan;
    outputs = plan.outputs(Entry.PREDICT);
    session = plan.newSession();
    if (outputs.isEmpty()) return;
    try {
      inputs = plan.inputs(Entry.PREDICT);
      predictor = session.newPredictor();
    } catch (RuntimeException error) {
      session.close();
      throw error;
    }
  }

  void start() {
    thread = new Thread(this::run, "job " + status.id());
    thread.start();
  }

  synchronized Status status() {
    return status;
  }

  /** Updates the status and tells the watchers. */
  void change(UnaryOperator<Status> change) {
    synchronized (this) {
      Status told = change.apply(status);
      status = told.saying(null);
      board.send(told);
    }
  }

  /** Why a job answers no more. */
  private Failure gone() {
    if (deleted) return Failure.unknown();
    if (manager.ends()) return new Failure(503, "the service ends");
    return new Failure(409, "the job has failed, and only its record is left");
  }

  /** Runs a task in the job's thread, between two steps. */
  <T> T ask(Task<T> task) throws Exception {
    CompletableFuture<Object> answer = new CompletableFuture<>();
    synchronized (asked) {
      if (over) throw gone();
      asked.add(new Request(task, answer));
    }
    try {
      @SuppressWarnings("unchecked")
      T result = (T) answer.get();
      return result;
    } catch (ExecutionException error) {
      if (error.getCause() instanceof Exception cause) throw cause;
      throw error;
    }
  }

  /** Starts, pauses and resumes. A pause is saved. */
  Status setPhase(String phase) throws Exception {
    return ask((session, data) -> {
      String now = status().phase();
      if (now.equals(Status.DONE) || now.equals(Status.FAILED)) throw new Failure(400, "the job is " + now);
      change(s -> s.in(phase));
      writeNote();
      if (phase.equals(Status.PAUSED)) save(session, data);
      return status();
    });
  }

  Status saveNow() throws Exception {
    return ask((session, data) -> {
      save(session, data);
      return status();
    });
  }

  /**
   * A file with the weights as they are between two steps, and its size. It has no name any more: closed, it is gone. So a
   * client that is slow to take it holds up no step.
   */
  record Export(InputStream stream, long bytes) {}

  Export export() throws Exception {
    return ask((session, data) -> {
      Path path = folder.resolve(Manager.newId() + ".onnx");
      try {
        session.exportOnnx(path);
        return new Export(Files.newInputStream(path), Files.size(path));
      } finally {
        Files.deleteIfExists(path);
      }
    });
  }

  /** What a step is, and why. */
  String explain() {
    synchronized (predicting) {
      if (over) throw gone();
      return plan.print("explain");
    }
  }

  /** The outputs beside the steps, with the weights of the last one that is done. */
  Map<String, Object> predict(Map<String, Object> given) {
    if (outputs.isEmpty() && !over) throw new Failure(400, "the model of this job has no outputs");
    List<Tensor> tensors = Values.tensors(manager.engine, inputs, given);
    try {
      synchronized (predicting) {
        if (over) throw gone();
        if (predictor.steps() != status().step()) predictor.refresh();
        List<Tensor> found = predictor.predict(tensors);
        try {
          return Map.of("step", predictor.steps(), "outputs", Values.json(outputs, found));
        } finally {
          found.forEach(Tensor::close);
        }
      }
    } finally {
      tensors.forEach(Tensor::close);
    }
  }

  /** Its folder goes by one rename, so that a kill leaves the whole job or nothing of it. */
  void moveTo(Path aside) throws Exception {
    Task<Void> move = (session, data) -> {
      if (deleted) throw Failure.unknown(); // another client was first
      if (Files.exists(folder)) Files.move(folder, aside);
      deleted = true;
      return null;
    };
    boolean record;
    synchronized (asked) {
      record = over && !deleted && !manager.ends();
    }
    if (record) { // it has failed: nobody writes to its folder any more
      synchronized (asked) {
        move.run(null, null);
      }
      return;
    }
    ask(move);
    thread.join();
  }

  /** Waits until its thread has ended. */
  void join() throws InterruptedException {
    if (thread != null) thread.join();
  }

  /** The job's thread: until the service ends, which lets the step under way end, and saves, or until it is deleted. */
  private void run() {
    Throwable failure = null;
    try {
      train();
    } catch (Exception | Error error) {
      failure = error;
    }
    synchronized (predicting) { // a prediction under way ends first
      over = true;
      if (predictor != null) predictor.close();
      session.close();
      plan.close();
    }
    if (failure != null) {
      // Who hears that it has failed finds its part of the budget free.
      Throwable cause = failure;
      Manager.LOG.log(Level.ERROR, "job " + status().id(), cause);
      change(s -> s.failed(manager.told(cause)));
    }
    try {
      if (!deleted) writeNote();
    } catch (IOException error) {
      Manager.LOG.log(Level.ERROR, "job " + status().id(), error);
    }
    synchronized (asked) {
      for (Request one : asked) one.answer.completeExceptionally(gone());
      asked.clear();
    }
  }

  private Path checkpoint() {
    return folder.resolve("checkpoint");
  }

  private Path historyFile() {
    return folder.resolve("history.json");
  }

  private void train() throws Exception {
    try (Dataset data = manager.open(spec)) {
      data.bind(plan, Entry.TRAIN);
      if (Files.exists(checkpoint())) {
        session.load(checkpoint(), data, CallOptions.NONE);
        long steps = session.steps();
        history.load(historyFile(), steps);
        change(s -> s.saved(steps, "goes on after step " + steps));
      }
      while (!deleted) {
        if (manager.ends()) {
          save(session, data);
          return;
        }
        boolean running = status().phase().equals(Status.RUNNING);
        if (running && session.steps() >= spec.steps()) {
          save(session, data);
          change(s -> s.in(Status.DONE));
          continue;
        }
        Request request = running ? asked.poll() : asked.take();
        if (request != null) {
          answer(request, data);
        } else {
          step(data);
        }
      }
    }
  }

  /** Ends a wait for requests. */
  void wake() {
    synchronized (asked) {
      asked.add(new Request((session, data) -> null, new CompletableFuture<>()));
    }
  }

  private void answer(Request request, Dataset data) {
    try {
      request.answer.complete(request.task.run(session, data));
    } catch (Exception error) {
      request.answer.completeExceptionally(error);
    }
  }

  private void step(Dataset data) throws Exception {
    Metrics metrics = session.step(data.next());
    change(s -> s.at(metrics.step(), metrics.loss(), metrics.learningRate(), metrics.time().toNanos() * 1e-9));
    history.add(metrics.step(), metrics.loss(), metrics.learningRate());
    boolean due = spec.checkpoint() > 0
        ? metrics.step() % spec.checkpoint() == 0
        : (System.nanoTime() - savedAt) * 1e-9 >= spec.checkpointSeconds();
    if (due) save(session, data);
  }

  /** Writes a checkpoint, if there are steps that none has. */
  private void save(Session session, Dataset data) throws IOException {
    long steps = session.steps();
    savedAt = System.nanoTime();
    if (steps == status().checkpoint()) return;
    session.save(checkpoint(), data, CallOptions.NONE);
    change(s -> s.saved(steps, "checkpoint at step " + steps));
    history.save(historyFile());
  }

  /** Kept in the job's folder: the spec, whether it was to run, and the record of a job that has failed. */
  void writeNote() throws IOException {
    Note.write(folder.resolve("job.json"), Json.write(Map.of("spec", spec.json(), "status", status().json())));
  }
}
