// Trains the MLP and cancels a step, from Java through JNI (train_mlp_jni.c).
public final class TrainMlp {
  static native long engineCreate();
  // Texts cross as UTF-8 bytes: JNI's own strings are of another encoding, which has no emoji.
  static native long sessionCreate(long engine, byte[] path);
  static native double step(long engine, long session, java.nio.ByteBuffer x, java.nio.ByteBuffer target, long cancel);
  static native long cancelCreate(long engine);
  static native void cancelTrigger(long cancel);
  static native void destroy(long engine, long session, long cancel);
  static native long liveHandles();

  // What the native side throws; it gives the code of epl.h and the message as UTF-8.
  static RuntimeException exception(int code, byte[] message) {
    String text = new String(message, java.nio.charset.StandardCharsets.UTF_8);
    final int cancelled = 7;
    return code == cancelled ? new java.util.concurrent.CancellationException(text) : new IllegalStateException(text);
  }

  private static java.nio.ByteBuffer direct(int bytes) {
    return java.nio.ByteBuffer.allocateDirect(bytes).order(java.nio.ByteOrder.nativeOrder());
  }

  public static void main(String[] arguments) {
    System.load(arguments[0]);
    long engine = engineCreate();
    long session = sessionCreate(engine, (arguments[1] + "/java.onnx").getBytes(java.nio.charset.StandardCharsets.UTF_8));
    java.nio.ByteBuffer x = direct(64), target = direct(32);
    for (int i = 0; i < 4; ++i) {
      x.putFloat(20 * i, 1);
      target.putLong(8 * i, i % 2);
    }
    double loss = 0;
    for (int i = 0; i < 40; ++i) loss = step(engine, session, x, target, 0);
    System.out.printf("java: loss %.4f after 40 steps%n", loss);

    long cancel = cancelCreate(engine);
    cancelTrigger(cancel);
    boolean cancelled = false;
    try {
      step(engine, session, x, target, cancel);
    } catch (java.util.concurrent.CancellationException expected) {
      cancelled = true;
    }
    destroy(engine, session, cancel);
    if (loss > 0.1 || !cancelled || liveHandles() != 0) {
      System.err.println("java: did not learn, did not cancel, or left handles: " + cancelled + " " + liveHandles());
      System.exit(1);
    }
  }
}
