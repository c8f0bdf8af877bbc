package ai.epl;

import ai.epl.raw.Raw;

/**
 * Options of {@link Engine#loadModel}.
 *
 * @param rewrites false: attention, layer norm and the like stay as the file writes them
 */
public record ModelOptions(boolean rewrites) {
  public static final ModelOptions DEFAULT = new ModelOptions(true);

  Raw.ModelOptions raw() {
    return new Raw.ModelOptions().noRewrites(rewrites ? 0 : 1);
  }
}
