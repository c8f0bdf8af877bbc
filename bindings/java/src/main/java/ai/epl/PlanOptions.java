package ai.epl;

import ai.epl.raw.Raw;

/** Options of {@link Model#plan}. */
public final class PlanOptions {
  private long ranks;
  private long localRanks;
  private long seed;
  private String device;

  /** All defaults. */
  public PlanOptions() {}

  /** Of the job, in this and other processes; 1 if it is not set. */
  public PlanOptions ranks(long ranks) {
    this.ranks = ranks;
    return this;
  }

  /** Of this process, which share its threads; all if it is not set. */
  public PlanOptions localRanks(long ranks) {
    localRanks = ranks;
    return this;
  }

  /** Of dropout and of new adapters. */
  public PlanOptions seed(long seed) {
    this.seed = seed;
    return this;
  }

  /**
   * "cpu", "cuda", or "sim" with virtual time and no numbers. "cuda:h100" is planned for alone, and
   * that GPU need not be there.
   */
  public PlanOptions device(String device) {
    this.device = device;
    return this;
  }

  Raw.PlanOptions raw() {
    Raw.PlanOptions raw = new Raw.PlanOptions().ranks(ranks).localRanks(localRanks).seed(seed);
    return device == null ? raw : raw.device(Text.utf8(device));
  }
}
