package ai.epl;

import ai.epl.raw.Raw;

/** The rendezvous of the processes of a job, served by one of them until their sessions are closed. */
public final class Store extends Handle {
  Store(Engine engine, long address) {
    super(engine, address);
  }

  /** "HOST:PORT". */
  public String address() {
    return Text.of(use(Raw::epl_store_address));
  }

  /** Address and secret, for {@link SessionOptions#rendezvous} of all processes. Nobody else may see it. */
  public String id() {
    return Text.of(use(Raw::epl_store_id));
  }

  @Override
  void destroy() {
    Raw.epl_store_destroy(address);
  }
}
