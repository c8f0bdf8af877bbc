package ai.epl;

import ai.epl.raw.Raw;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Flow;

/**
 * Batches that the host pushes, which its {@link #dataset} gives. Any threads may push. A feed that is closed before it
 * was finished is an error to who waits for a batch.
 */
public final class Feed extends Handle {
  private final List<String> fields;

  Feed(Engine engine, long address, List<TensorInfo> fields) {
    super(engine, address);
    this.fields = Ports.names(fields);
  }

  /** Where its batches come out; a feed has one. Close it. */
  public Dataset dataset() {
    return use(feed -> new Dataset(engine, Raw.epl_dataset_of_feed(feed)));
  }

  public void push(List<Tensor> batch) {
    push(batch, CallOptions.NONE);
  }

  /**
   * Copies a batch, a tensor for each field, and waits while there is no room: that is the back-pressure. A deadline, a
   * token or an interrupt ends the wait, and nothing was pushed.
   */
  public void push(List<Tensor> batch, CallOptions options) {
    try (Tensors tensors = new Tensors(batch)) {
      run(feed -> engine.block(options, call -> {
        Raw.epl_feed_push(feed, tensors.addresses, call.options);
        return null;
      }));
    }
  }

  /** The same by the names of the fields. */
  public void push(Map<String, Tensor> batch, CallOptions options) {
    push(Ports.ordered("field", fields, batch, true), options);
  }

  /** No batch follows: when those that wait have been taken, the dataset gives NOT_FOUND, and its epoch ends. */
  public void finish() {
    run(Raw::epl_feed_finish);
  }

  /**
   * Pushes what a publisher gives, a batch at a time: it is asked for the next one when there was room for the last.
   * The tensors are closed when they are pushed. When the publisher completes, the feed is finished; when it fails, the
   * feed is closed. A batch that cannot be pushed ends the subscription.
   */
  public Flow.Subscriber<List<Tensor>> subscriber() {
    return new Flow.Subscriber<>() {
      private Flow.Subscription subscription;

      @Override
      public void onSubscribe(Flow.Subscription given) {
        subscription = given;
        given.request(1);
      }

      @Override
      public void onNext(List<Tensor> batch) {
        try {
          push(batch);
        } catch (RuntimeException refused) {
          subscription.cancel();
          close();
          return;
        } finally {
          batch.forEach(Tensor::close);
        }
        subscription.request(1);
      }

      @Override
      public void onError(Throwable failure) {
        close();
      }

      @Override
      public void onComplete() {
        if (!isClosed()) finish();
      }
    };
  }

  @Override
  void destroy() {
    Raw.epl_feed_destroy(address);
  }
}
