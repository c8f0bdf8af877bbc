package ai.epl;

import ai.epl.raw.Raw;

/** Options of {@link Engine#newStore}. */
public final class StoreOptions {
  private String address;
  private String secret;

  /** All defaults. */
  public StoreOptions() {}

  /** "HOST:PORT" of this process, as the others reach it; port 0: any that is free. "127.0.0.1:0" if it is not set. */
  public StoreOptions address(String address) {
    this.address = address;
    return this;
  }

  /** Which others must know; drawn if it is not set, and part of {@link Store#id}. */
  public StoreOptions secret(String secret) {
    this.secret = secret;
    return this;
  }

  Raw.StoreOptions raw() {
    Raw.StoreOptions raw = new Raw.StoreOptions();
    if (address != null) raw.address(Text.utf8(address));
    if (secret != null) raw.secret(Text.utf8(secret));
    return raw;
  }
}
