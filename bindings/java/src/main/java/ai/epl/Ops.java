package ai.epl;

import ai.epl.raw.Raw;
import java.nio.ByteBuffer;

/** Operators of the host's own behind callbacks of the library. */
final class Ops {
  private Ops() {}

  static Raw.OpOptions raw(Op op) {
    Raw.OpOptions raw = new Raw.OpOptions().domain(Text.utf8(op.domain())).name(Text.utf8(op.name()))
        .outputCount(op.outputs())
        .callbacks(op instanceof Op.WithGradient both ? new Backward(both) : new Forward(op));
    return op.sharding() == null ? raw : raw.sharding(Text.utf8(op.sharding()));
  }

  private static class Forward implements Raw.OpShapeFn, Raw.OpRunFn {
    private final Op op;

    Forward(Op op) {
      this.op = op;
    }

    @Override
    public void opShape(byte[] attributes, ByteBuffer inputs, ByteBuffer outputs) throws Exception {
      Operand.fill(op.shape(Text.of(attributes), Operand.all(inputs, true)), outputs);
    }

    @Override
    public void opRun(byte[] attributes, ByteBuffer inputs, ByteBuffer outputs) throws Exception {
      op.run(Text.of(attributes), Operand.all(inputs, true), Operand.all(outputs, false));
    }
  }

  private static final class Backward extends Forward implements Raw.OpGradientFn {
    private final Op.WithGradient op;

    Backward(Op.WithGradient op) {
      super(op);
      this.op = op;
    }

    @Override
    public void opGradient(byte[] attributes, ByteBuffer inputs, ByteBuffer outputs, ByteBuffer upstream,
        ByteBuffer gradients) throws Exception {
      op.gradient(Text.of(attributes), Operand.all(inputs, true), Operand.all(outputs, true),
          Operand.all(upstream, true), Operand.all(gradients, false));
    }
  }
}
