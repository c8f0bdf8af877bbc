package ai.epl;

import ai.epl.raw.Raw;

/** How to spread the work: config keys and scopes, as docs/strategy.md has them. One caller at a time. */
public final class Strategy extends Handle {
  Strategy(Engine engine, long address) {
    super(engine, address);
  }

  /** What the devices of a scope do with its nodes. */
  public enum Kind {
    /** A copy of these nodes takes the devices, which share its batch. */
    REPLICATE(Raw.EPL_SCOPE_REPLICATE),
    /** Their weights are cut over the devices. */
    SPLIT(Raw.EPL_SCOPE_SPLIT),
    /** Their experts are. */
    EXPERT(Raw.EPL_SCOPE_EXPERT);

    final int number;

    Kind(int number) {
      this.number = number;
    }
  }

  public Strategy set(String key, String value) {
    run(strategy -> Raw.epl_strategy_set(strategy, Text.utf8(key), Text.utf8(value)));
    return this;
  }

  /** A scope beside those that are there: siblings are stages of a pipeline. Without a match it has every node. */
  public Scope addScope(Kind kind, long devices, String name) {
    return add(Raw.EPL_SCOPE_TOP, kind, devices, name);
  }

  /** The scope of every node that no other matches. */
  public Scope setDefault(Kind kind, long devices) {
    return add(Raw.EPL_SCOPE_DEFAULT, kind, devices, null);
  }

  private Scope add(long outer, Kind kind, long devices, String name) {
    byte[] text = Text.utf8(name);
    return new Scope(use(strategy -> Raw.epl_strategy_add_scope(strategy, outer, kind.number, devices, text)));
  }

  /** A scope of this strategy. */
  public final class Scope {
    private final long number;

    private Scope(long number) {
      this.number = number;
    }

    public Scope addScope(Kind kind, long devices, String name) {
      return add(number, kind, devices, name);
    }

    /** A glob over names of nodes, "node:NAME", "op:MatMul" or "param:embed*". */
    public Scope match(String pattern) {
      run(strategy -> Raw.epl_strategy_add_match(strategy, number, Text.utf8(pattern)));
      return this;
    }

    /** The dimension in which a weight, or the result of a node, is cut. */
    public Scope pinDim(String value, int dim) {
      run(strategy -> Raw.epl_strategy_pin_dim(strategy, number, Text.utf8(value), dim));
      return this;
    }
  }

  public String describe() {
    return Text.of(use(Raw::epl_strategy_describe));
  }

  @Override
  void destroy() {
    Raw.epl_strategy_destroy(address);
  }
}
