import ai.epl.raw.Raw;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** A training through the raw layer, with what it has of callbacks: the log, and the release of borrowed memory. */
public final class RawTest {
  private static byte[] text(String value) {
    return value.getBytes(StandardCharsets.UTF_8);
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Raw.load(arguments[0]);
    byte[] path = text(arguments[1] + "/mlp.onnx");
    List<String> log = new ArrayList<>();
    Raw.EngineOptions options = new Raw.EngineOptions().threads(1).logLevel(Raw.EPL_LOG_DEBUG);
    options.log((Raw.LogFn) (level, message) -> {
      synchronized (log) {
        log.add(new String(message, StandardCharsets.UTF_8));
      }
    });
    long engine = Raw.epl_engine_create(options);
    Raw.epl_x_template_write(engine, text("mlp"), text("{\"sizes\":[4,8,2],\"seed\":1}"), path, null);
    long model = Raw.epl_model_load(engine, path, null, null);
    long trainer = Raw.epl_trainer_create(engine);
    Raw.epl_trainer_set_number(trainer, text("optimizer.lr"), 0.5);
    Raw.epl_trainer_bind_symbol(trainer, text("batch"), 2);
    long plan = Raw.epl_plan_create(model, trainer, 0, null, null);
    Raw.TensorInfo info = new Raw.TensorInfo();
    Raw.epl_plan_port(plan, Raw.EPL_ENTRY_TRAIN, Raw.EPL_PORT_INPUT, 0, info);
    check(info.ndim() == 2 && info.dims(0) == 2 && info.dims(1) == 4 && info.name().length > 0, "the input's type");
    long session = Raw.epl_session_create(plan, null, null);

    ByteBuffer x = ByteBuffer.allocateDirect(32).order(ByteOrder.nativeOrder());
    x.asFloatBuffer().put(new float[] {1, 2, 3, 4, 4, 3, 2, 1});
    ByteBuffer target = ByteBuffer.allocateDirect(16).order(ByteOrder.nativeOrder());
    target.asLongBuffer().put(new long[] {0, 1});
    int[] released = {0};
    long xTensor = Raw.epl_tensor_create_borrow(engine, Raw.EPL_DTYPE_F32, new long[] {2, 4}, x, 0, () -> released[0]++);
    long targetTensor = Raw.epl_tensor_create_copy(engine, Raw.EPL_DTYPE_I64, new long[] {2}, target);
    Raw.Metrics metrics = new Raw.Metrics();
    for (int step = 1; step <= 10; ++step) {
      Raw.epl_session_step(session, new long[] {xTensor, targetTensor}, null, metrics);
      check(metrics.step() == step, "the number of a step");
    }
    check(metrics.loss() < 0.5, "the loss is " + metrics.loss());
    long[] outputs = new long[1];
    Raw.epl_session_predict(session, new long[] {xTensor}, null, outputs);
    check(Raw.epl_tensor_bytes(outputs[0]) == 16, "the scores");
    check(Raw.epl_plan_print(plan, text("explain"), null).length > 0, "a text");

    try {
      Raw.epl_model_load(engine, text("/no/such/\uD83D\uDE00.onnx"), null, null);
      check(false, "a missing file is an error");
    } catch (Raw.RawException error) {
      check(error.code == Raw.EPL_ERROR_NOT_FOUND && error.getMessage().contains("\uD83D\uDE00"), error.getMessage());
    }
    try {
      Raw.epl_tensor_create_copy(engine, Raw.EPL_DTYPE_I64, new long[] {2}, ByteBuffer.allocate(16));
      check(false, "memory of the heap is an error");
    } catch (IllegalArgumentException expected) {
      check(expected.getMessage().contains("direct"), expected.getMessage());
    }
    // A call that fails gives the callbacks of its options back.
    Raw.EngineOptions wrong = new Raw.EngineOptions().threads(-1);
    wrong.log((Raw.LogFn) (level, message) -> { });
    try {
      Raw.epl_engine_create(wrong);
      check(false, "no engine has -1 threads");
    } catch (Raw.RawException error) {
      check(error.code == Raw.EPL_ERROR_INVALID_ARGUMENT, error.getMessage());
    }

    Raw.epl_tensor_destroy(outputs[0]);
    Raw.epl_tensor_destroy(targetTensor);
    Raw.epl_tensor_destroy(xTensor);
    check(released[0] == 1, "borrowed memory is released once");
    Raw.epl_session_destroy(session);
    Raw.epl_plan_destroy(plan);
    Raw.epl_trainer_destroy(trainer);
    Raw.epl_model_destroy(model);
    Raw.epl_engine_destroy(engine);
    check(Raw.epl_live_handles() == 0, "handles are alive");
    check(!log.isEmpty(), "nothing was logged");
    System.out.println("trained; " + log.size() + " lines of log");
  }
}
