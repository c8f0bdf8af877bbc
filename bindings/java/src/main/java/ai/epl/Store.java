package ai.epl;

import ai.epl.raw.Raw;

/** The place where the processes of a job meet, served by one of them until their sessions are closed. */
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
