package ai.epl;

/** The type of a tensor's elements. */
public enum DataType {
  /** Of the model, where a type is optional. */
  NONE(0, 0),
  F32(1, 4),
  F64(2, 8),
  F16(3, 2),
  BF16(4, 2),
  I8(5, 1),
  I16(6, 2),
  I32(7, 4),
  I64(8, 8),
  U8(9, 1),
  U16(10, 2),
  U32(11, 4),
  U64(12, 8),
  BOOL(13, 1),
  /** One that this version does not know. */
  UNKNOWN(-1, 0);

  final int number;
  final int bytes;

  DataType(int number, int bytes) {
    this.number = number;
    this.bytes = bytes;
  }

  /** Bytes of an element; 0 for NONE and UNKNOWN. */
  public int bytes() {
    return bytes;
  }

  static DataType of(int number) {
    for (DataType type : values()) {
      if (type.number == number) return type;
    }
    return UNKNOWN;
  }
}
