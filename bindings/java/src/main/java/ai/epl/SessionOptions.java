package ai.epl;

import ai.epl.raw.Raw;
import java.nio.ByteBuffer;
import java.time.Duration;

/**
 * Options of {@link Plan#newSession}. Without any, all ranks are threads of this process. Several processes find each
 * other through {@link #rendezvous} or {@link #store}; all make the same plan and the same calls.
 */
public final class SessionOptions {
  private long firstRank;
  private long ranks;
  private String rendezvous;
  private KeyValueStore store;
  private String secret;
  private String address;
  private Duration joinTimeout = Duration.ZERO;
  private Duration silenceTimeout = Duration.ZERO;
  private String transport;
  private boolean slices;
  private boolean takeWeights;
  private long compareEvery;
  private String integrity;

  /** All defaults. */
  public SessionOptions() {}

  /** This process has the ranks from this one on. */
  public SessionOptions firstRank(long rank) {
    firstRank = rank;
    return this;
  }

  /** So many. */
  public SessionOptions ranks(long ranks) {
    this.ranks = ranks;
    return this;
  }

  /** {@link Store#id}, "tcp://HOST:PORT", or "file:///FOLDER", a folder that is new for each run. */
  public SessionOptions rendezvous(String rendezvous) {
    this.rendezvous = rendezvous;
    return this;
  }

  public SessionOptions store(KeyValueStore store) {
    this.store = store;
    return this;
  }

  /** What all processes know and nobody else; an id brings its own. */
  public SessionOptions secret(String secret) {
    this.secret = secret;
    return this;
  }

  /** Of this host, under which the other processes reach it. */
  public SessionOptions address(String address) {
    this.address = address;
    return this;
  }

  /** For all processes to come; a minute if it is not set. */
  public SessionOptions joinTimeout(Duration timeout) {
    joinTimeout = timeout;
    return this;
  }

  /** For a process that says nothing within a call; ten minutes if it is not set. */
  public SessionOptions silenceTimeout(Duration timeout) {
    silenceTimeout = timeout;
    return this;
  }

  /** "sockets", "gloo", "mpi", each also behind "shared,"; the same in all processes. */
  public SessionOptions transport(String transport) {
    this.transport = transport;
    return this;
  }

  /** Calls take the samples of this process's ranks alone: {@link Plan#slice}, {@link Dataset#bindSlice}. */
  public SessionOptions slices(boolean slices) {
    this.slices = slices;
    return this;
  }

  /** Weights of rank 0 are taken where the model file of this process has others; otherwise they are an error. */
  public SessionOptions takeWeights(boolean take) {
    takeWeights = take;
    return this;
  }

  /** Steps between comparisons of the copies of weights; 0: 100; -1: with checkpoints alone. */
  public SessionOptions compareEvery(long steps) {
    compareEvery = steps;
    return this;
  }

  /** "hmac" signs what goes over connections between processes, by the secret; "none" if it is not set. */
  public SessionOptions integrity(String integrity) {
    this.integrity = integrity;
    return this;
  }

  Raw.SessionOptions raw() {
    Raw.SessionOptions raw = new Raw.SessionOptions().firstRank(firstRank).ranks(ranks).slices(slices ? 1 : 0);
    raw.takeWeights(takeWeights ? 1 : 0).compareEvery(compareEvery);
    if (integrity != null) raw.integrity(Text.utf8(integrity));
    if (!joinTimeout.isZero()) raw.joinTimeoutNanoseconds(CallOptions.nanoseconds(joinTimeout));
    if (!silenceTimeout.isZero()) raw.silenceTimeoutNanoseconds(CallOptions.nanoseconds(silenceTimeout));
    if (rendezvous != null) raw.rendezvous(Text.utf8(rendezvous));
    if (secret != null) raw.secret(Text.utf8(secret));
    if (address != null) raw.address(Text.utf8(address));
    if (transport != null) raw.transport(Text.utf8(transport));
    if (store != null) raw.callbacks(new Door(store));
    return raw;
  }

  /** The callbacks of the library over the host's store. Buffers are valid during the call. */
  private record Door(KeyValueStore store) implements Raw.PutFn, Raw.GetFn {
    @Override
    public void put(byte[] key, ByteBuffer value) throws Exception {
      byte[] copy = new byte[value.remaining()];
      value.get(copy);
      store.put(Text.of(key), copy);
    }

    @Override
    public void get(byte[] key, long nanoseconds, ByteBuffer value, long[] bytes) throws Exception {
      byte[] found = store.get(Text.of(key), Duration.ofNanos(nanoseconds));
      bytes[0] = found.length;
      if (value != null && value.capacity() >= found.length) value.put(found);
    }
  }
}
