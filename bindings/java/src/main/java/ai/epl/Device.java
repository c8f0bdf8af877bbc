package ai.epl;

/**
 * What an engine can run plans on.
 *
 * @param name for {@link PlanOptions#device}
 * @param simulated it has virtual time and no numbers
 * @param threads that the engine's options allow
 * @param memoryBytes 0: not known
 */
public record Device(String name, boolean simulated, int threads, long memoryBytes) {}
