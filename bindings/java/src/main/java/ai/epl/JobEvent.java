package ai.epl;

import ai.epl.raw.Raw;
import java.time.Duration;

/**
 * What a {@link Job} tells: numbers as they stand after the event, NaN where there is none yet.
 *
 * @param kind what has happened
 * @param ended of {@link Kind#DONE}: why the job has ended
 * @param step steps done, those of earlier runs included
 * @param steps that are wanted in all; 0: until the data ends
 * @param epoch times through the data
 * @param samples seen; of {@link Kind#MEASURED} those that were measured
 * @param loss of the last step, as are the next two
 * @param learningRate of the parameters without a group
 * @param gradientNorm global, before clipping; -1 when it is not computed
 * @param heldOutLoss as measured last
 * @param monitored the number that says which weights are best, as measured last
 * @param bestValue the best of it
 * @param bestStep of which step the best weights are; -1 where there are none
 * @param best of MEASURED and SAVED: the best so far
 * @param elapsed training so far, earlier runs included
 * @param left about; null where nobody knows
 * @param samplesPerSecond of this run
 * @param memoryBytes that a rank has used at its fullest
 * @param text the path that was saved to, a warning, the numbers measured as JSON, or why the job has ended
 */
public record JobEvent(Kind kind, End ended, long step, long steps, double epoch, long samples, double loss,
    double learningRate, double gradientNorm, double heldOutLoss, double monitored, double bestValue, long bestStep,
    boolean best, Duration elapsed, Duration left, double samplesPerSecond, long memoryBytes, String text) {

  /** What has happened. */
  public enum Kind { UNKNOWN, STEP, MEASURED, SAVED, WARNING, DONE }

  /** Why a job has ended. */
  public enum End { RUNNING, STEPS, STOPPED, PATIENCE, CANCELLED, FAILED, DATA, UNKNOWN }

  private static <T> T at(T[] all, int index, T unknown) {
    return index >= 0 && index < all.length ? all[index] : unknown;
  }

  private static Duration duration(double seconds) {
    return Double.isNaN(seconds) ? null : Duration.ofNanos(Math.round(seconds * 1e9));
  }

  static JobEvent of(Raw.JobEvent e) {
    return new JobEvent(at(Kind.values(), e.kind(), Kind.UNKNOWN), at(End.values(), e.ended(), End.UNKNOWN), e.step(),
        e.steps(), e.epoch(), e.samples(), e.loss(), e.learningRate(), e.gradientNorm(), e.heldOutLoss(), e.monitored(),
        e.bestValue(), e.bestStep(), e.best() != 0, duration(e.seconds()), duration(e.secondsLeft()),
        e.samplesPerSecond(), e.memoryBytes(), Text.of(e.text()));
  }
}
