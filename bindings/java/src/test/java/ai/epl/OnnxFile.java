package ai.epl;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** Writes small models by hand: x [8, 4] times w [4, 2] is the scores, or that through an operator of "test.epl". */
final class OnnxFile {
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

  private OnnxFile varint(long value) {
    for (; (value & ~0x7FL) != 0; value >>>= 7) bytes.write((int) (value & 0x7F | 0x80));
    bytes.write((int) value);
    return this;
  }

  private OnnxFile number(int field, long value) {
    return varint(field << 3).varint(value);
  }

  private OnnxFile real(int field, float value) {
    return varint(field << 3 | 5).raw(little(value));
  }

  private OnnxFile raw(byte[] value) {
    bytes.writeBytes(value);
    return this;
  }

  private OnnxFile field(int field, byte[] value) {
    return varint(field << 3 | 2).varint(value.length).raw(value);
  }

  private OnnxFile text(int field, String value) {
    return field(field, value.getBytes(StandardCharsets.UTF_8));
  }

  private OnnxFile message(int field, OnnxFile value) {
    return field(field, value.bytes.toByteArray());
  }

  private static byte[] little(float... values) {
    ByteBuffer memory = ByteBuffer.allocate(4 * values.length).order(ByteOrder.LITTLE_ENDIAN);
    memory.asFloatBuffer().put(values);
    return memory.array();
  }

  private static OnnxFile port(String name, long... dims) {
    OnnxFile shape = new OnnxFile();
    for (long dim : dims) shape.message(1, new OnnxFile().number(1, dim));
    return new OnnxFile().text(1, name)
        .message(2, new OnnxFile().message(1, new OnnxFile().number(1, 1).message(2, shape)));
  }

  private static OnnxFile tensor(String name, long... dims) {
    OnnxFile tensor = new OnnxFile();
    for (long dim : dims) tensor.number(1, dim);
    return tensor.number(2, 1).text(8, name);
  }

  static byte[] weights() {
    return little(0.1f, -0.2f, 0.3f, 0.1f, -0.1f, 0.2f, 0.05f, -0.3f);
  }

  private static byte[] model(OnnxFile graph) {
    graph.message(11, port("x", 8, 4)).message(12, port("scores", 8, 2)).text(2, "graph");
    return new OnnxFile().number(1, 8).message(7, graph).message(8, new OnnxFile().text(1, "").number(2, 17))
        .message(8, new OnnxFile().text(1, "test.epl").number(2, 1)).bytes.toByteArray();
  }

  private static OnnxFile product(String result) {
    return new OnnxFile().message(1, new OnnxFile().text(1, "x").text(1, "w").text(2, result).text(4, "MatMul"));
  }

  /** Its weights lie beside it. */
  static byte[] withWeightsAt(String location) {
    OnnxFile weight = tensor("w", 4, 2).number(14, 1)
        .message(13, new OnnxFile().text(1, "location").text(2, location));
    return model(product("scores").message(5, weight));
  }

  /** Behind the product is "Gate" with a weight for each column and an attribute. */
  static byte[] withGate(float scale) {
    OnnxFile attribute = new OnnxFile().text(1, "scale").real(2, scale).number(20, 1);
    return model(product("y")
        .message(1, new OnnxFile().text(1, "y").text(1, "gate.weight").text(2, "scores").text(3, "gate").text(4, "Gate")
            .message(5, attribute).text(7, "test.epl"))
        .message(5, tensor("w", 4, 2).field(9, weights()))
        .message(5, tensor("gate.weight", 2).field(9, little(1, 1.5f))));
  }
}
