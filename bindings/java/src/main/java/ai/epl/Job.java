package ai.epl;

import ai.epl.raw.Raw;
import java.util.Map;
import java.util.function.Predicate;

/**
 * The loop around steps: it trains a session on a dataset, measures it on data that it does not train on, saves
 * checkpoints, keeps the best weights, ends early, and goes on with an earlier run to the bit (docs/training.md). One
 * caller at a time.
 *
 * <p>A job is asked for one {@link JobEvent} after the other; between two of them the session is the caller's.
 */
public final class Job extends Handle {
  private Dataset data;
  private Dataset heldOut;

  Job(Engine engine, long address) {
    super(engine, address);
  }

  /** Sets one setting, before the job starts. */
  public Job set(String key, Object value) {
    run(job -> Raw.epl_job_set(job, Text.utf8(key), Text.utf8(value.toString())));
    return this;
  }

  /** Takes the job's folder now, which {@link #start} does otherwise. */
  public Job takeFolder() {
    run(Raw::epl_job_take_folder);
    return this;
  }

  public Job start(Session session, Dataset data, Dataset heldOut) {
    return start(session, data, heldOut, CallOptions.NONE);
  }

  /**
   * Refuses what would fail later, and loads the checkpoint that the job goes on from. Datasets that are not bound to
   * the session's plan are bound to it.
   *
   * @param heldOut data that is measured on and not trained on; null: none
   */
  public Job start(Session session, Dataset data, Dataset heldOut, CallOptions options) {
    endBatches(data, heldOut);
    run(job -> session.run(address -> data.run(trained -> use(heldOut, measured -> engine.block(options, call -> {
      Raw.epl_job_start(job, address, trained, measured, call.options);
      return null;
    })))));
    this.data = data;
    this.heldOut = heldOut;
    return this;
  }

  private static void endBatches(Dataset... all) {
    for (Dataset one : all) {
      if (one != null) one.endBatch();
    }
  }

  public JobEvent next() {
    return next(CallOptions.NONE);
  }

  /** Works until there is an event. An exception changes nothing: the same call again does the same work. */
  public JobEvent next(CallOptions options) {
    endBatches(data, heldOut);
    return use(job -> engine.block(options, call -> {
      Raw.JobEvent event = new Raw.JobEvent();
      Raw.epl_job_next(job, call.options, event);
      return JobEvent.of(event);
    }));
  }

  /** No step follows the one that runs; events go on until the last checkpoint is written. Any thread may call it. */
  public void end(String reason) {
    end(JobEvent.End.STOPPED, reason);
  }

  private void end(JobEvent.End how, String reason) {
    run(job -> Raw.epl_job_end(job, how.ordinal(), Text.utf8(reason)));
  }

  /**
   * Asks for all events that are left, and gives the last one. A call that fails, is cancelled or interrupted ends the
   * job: its last checkpoint is written all the same. A timeout is that of all events together.
   *
   * @param progress is given every event but the last; false ends the job
   */
  public JobEvent run(Predicate<JobEvent> progress, CallOptions options) {
    long began = System.nanoTime();
    for (;;) {
      JobEvent event;
      try {
        event = next(options.left(System.nanoTime() - began));
        if (event.kind() == JobEvent.Kind.DONE) return event;
        if (!progress.test(event)) end("the host has ended it");
      } catch (RuntimeException failure) {
        finish(failure);
        throw failure;
      }
    }
  }

  private void finish(RuntimeException failure) {
    boolean stopped = failure instanceof EplException of
        && (of.code() == ErrorCode.CANCELLED || of.code() == ErrorCode.DEADLINE_EXCEEDED);
    boolean interrupted = Thread.interrupted();  // it must not keep the last checkpoint from being written
    try {
      end(stopped ? JobEvent.End.CANCELLED : JobEvent.End.FAILED, String.valueOf(failure.getMessage()));
      while (next().kind() != JobEvent.Kind.DONE) {}
    } catch (RuntimeException second) {
      failure.addSuppressed(second);
    } finally {
      if (interrupted) Thread.currentThread().interrupt();
    }
  }

  /** Settings, paths, numbers and the history of the job and of those that it goes on with, as JSON. */
  public String describe() {
    return Text.of(use(Raw::epl_job_describe));
  }

  /**
   * A job from its start to its end; gives its last event.
   *
   * @param settings of docs/training.md: Map.of("epochs", 10, "folder", "run", "patience", 3)
   */
  public static JobEvent fit(Session session, Dataset data, Dataset heldOut, Map<String, ?> settings,
      Predicate<JobEvent> progress, CallOptions options) {
    return session.engine.newJob(settings).fit(session, data, heldOut, progress, options);
  }

  /** The same with settings that have types: {@code new JobSettings().epochs(10).folder("run").patience(3)}. */
  public static JobEvent fit(Session session, Dataset data, Dataset heldOut, JobSettings settings,
      Predicate<JobEvent> progress, CallOptions options) {
    return session.engine.newJob(settings).fit(session, data, heldOut, progress, options);
  }

  public static JobEvent fit(Session session, Dataset data, Dataset heldOut, JobSettings settings,
      Predicate<JobEvent> progress) {
    return fit(session, data, heldOut, settings, progress, CallOptions.NONE);
  }

  private JobEvent fit(Session session, Dataset data, Dataset heldOut, Predicate<JobEvent> progress,
      CallOptions options) {
    try (Job job = this) {
      return job.start(session, data, heldOut, options).run(progress, options);
    }
  }

  public static JobEvent fit(Session session, Dataset data, Dataset heldOut, Map<String, ?> settings,
      Predicate<JobEvent> progress) {
    return fit(session, data, heldOut, settings, progress, CallOptions.NONE);
  }

  @Override
  void destroy() {
    Raw.epl_job_destroy(address);
  }
}
