package ai.epl;

import ai.epl.raw.Raw;

/** A token that any thread may trigger, once and for all: calls that were given it end with CANCELLED. */
public final class Cancel extends Handle {
  Cancel(Engine engine, long address) {
    super(engine, address);
  }

  public void trigger() {
    run(Raw::epl_cancel_trigger);
  }

  public boolean isTriggered() {
    return use(Raw::epl_cancel_triggered) != 0;
  }

  @Override
  void destroy() {
    Raw.epl_cancel_destroy(address);
  }
}
