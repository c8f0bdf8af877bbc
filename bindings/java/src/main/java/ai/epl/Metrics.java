package ai.epl;

import ai.epl.raw.Raw;
import java.time.Duration;

/**
 * What a step or an evaluation measured.
 *
 * @param step steps done, this one included
 * @param loss before the update
 * @param gradientNorm global, before clipping; -1 when it is not computed
 * @param learningRate of the parameters without a group at this step; 0 for evaluate
 * @param time of this call
 */
public record Metrics(long step, double loss, double gradientNorm, double learningRate, Duration time) {
  static Metrics of(Raw.Metrics raw) {
    return new Metrics(raw.step(), raw.loss(), raw.gradientNorm(), raw.learningRate(),
        Duration.ofNanos(raw.nanoseconds()));
  }
}
