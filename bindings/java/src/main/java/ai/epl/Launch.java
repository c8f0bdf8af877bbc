package ai.epl;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/**
 * What {@code epl launch} says in the environment of a process that it has started, each of which has one rank. The
 * library reads no environment; this does, for a program that asks.
 */
public final class Launch {
  private final long rank;
  private final long ranks;
  private final String rendezvous;
  private final String secret;

  private Launch(long rank, long ranks, String rendezvous, String secret) {
    this.rank = rank;
    this.ranks = ranks;
    this.rendezvous = rendezvous;
    this.secret = secret;
  }

  /** Reads the variables (docs/processes.md). Without them it is of a program that was started alone. */
  public static Launch fromEnvironment() {
    return from(System.getenv());
  }

  static Launch from(Map<String, String> environment) {
    if (!environment.containsKey("EPL_RANK")) return new Launch(0, 1, "", "");
    String secret = "";
    if (environment.containsKey("EPL_SECRET_FD")) {
      // Opened anew, from its start: the descriptor itself is not Java's.
      Path file = Path.of("/proc/self/fd/" + number(environment, "EPL_SECRET_FD"));
      try (InputStream in = Files.newInputStream(file)) {
        secret = new String(in.readNBytes(256), StandardCharsets.UTF_8);
      } catch (IOException failure) {
        throw new java.io.UncheckedIOException("the secret of EPL_SECRET_FD cannot be read", failure);
      }
    }
    return new Launch(number(environment, "EPL_RANK"), number(environment, "EPL_WORLD_SIZE"),
        environment.getOrDefault("EPL_RENDEZVOUS", ""), secret);
  }

  private static long number(Map<String, String> environment, String name) {
    String text = environment.get(name);
    try {
      long value = Long.parseLong(String.valueOf(text));
      if (value >= 0) return value;
    } catch (NumberFormatException none) {
      // said below
    }
    throw new IllegalArgumentException(name + " is " + text + ", which is no number");
  }

  public long rank() {
    return rank;
  }

  public long ranks() {
    return ranks;
  }

  /** Of a job in which each process has one rank. */
  public PlanOptions planOptions() {
    return new PlanOptions().ranks(ranks).localRanks(1);
  }

  /** Which rank this process has, and where the others are. */
  public SessionOptions sessionOptions() {
    SessionOptions options = new SessionOptions();
    if (ranks == 1) return options;
    options.firstRank(rank).ranks(1).rendezvous(rendezvous);
    if (!secret.isEmpty()) options.secret(secret);
    return options;
  }
}
