import ai.epl.DataType;
import ai.epl.Engine;
import ai.epl.Tensor;
import ai.epl.TensorInfo;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.DoubleStream;
import java.util.stream.LongStream;

/** Tensors as clients write them: {"dims": [2, 4], "values": [...]}, row by row. A null is NaN. */
final class Values {
  private static final long MOST = 16 << 20;

  private Values() {}

  /** The inputs of a prediction, in the plan's order. Close each. */
  static List<Tensor> tensors(Engine engine, List<TensorInfo> inputs, Map<String, Object> given) {
    for (String name : given.keySet()) {
      if (inputs.stream().noneMatch(info -> info.name().equals(name)))
        throw new Failure(400, "the model has no input \"" + Failure.excerpt(name) + "\"");
    }
    List<Tensor> all = new ArrayList<>();
    try {
      for (TensorInfo info : inputs) {
        if (!given.containsKey(info.name())) throw new Failure(400, "input \"" + info.name() + "\" is missing");
        all.add(tensor(engine, info, Spec.object(given.get(info.name()), "input \"" + info.name() + "\"")));
      }
      return all;
    } catch (RuntimeException error) {
      all.forEach(Tensor::close);
      throw error;
    }
  }

  private static Tensor tensor(Engine engine, TensorInfo info, Map<String, Object> given) {
    String input = "input \"" + info.name() + "\": ";
    for (String name : given.keySet()) {
      if (!name.equals("dims") && !name.equals("values"))
        throw new Failure(400, input + "there is no field \"" + Failure.excerpt(name) + "\"");
    }
    if (!(given.get("dims") instanceof List<?> dims && given.get("values") instanceof List<?> values))
      throw new Failure(400, input + "it has lists of dims and of values");
    long elements = 1;
    long[] sizes = new long[dims.size()];
    for (int i = 0; i < sizes.length; ++i) {
      if (!(dims.get(i) instanceof Long size) || size < 0 || size > MOST)
        throw new Failure(400, input + "there are no dims " + Failure.excerpt(Json.write(dims)));
      sizes[i] = size;
      elements = Math.min(elements * size, MOST);
    }
    if (elements != values.size())
      throw new Failure(400, input + "dims " + Failure.excerpt(Json.write(dims)) + " have " + elements
          + " elements, and there are " + values.size() + " values");
    double[] numbers = new double[values.size()];
    for (int i = 0; i < numbers.length; ++i) {
      Object one = values.get(i);
      if (one != null && !(one instanceof Number)) throw new Failure(400, input + "a value is not a number");
      numbers[i] = one == null ? Double.NaN : ((Number) one).doubleValue();
    }
    return of(engine, info.type(), numbers, sizes);
  }

  private static Tensor of(Engine engine, DataType type, double[] numbers, long[] sizes) {
    switch (type) {
      case F64:
        return engine.tensorOf(numbers, sizes);
      case F32:
        float[] floats = new float[numbers.length];
        for (int i = 0; i < floats.length; ++i) floats[i] = (float) numbers[i];
        return engine.tensorOf(floats, sizes);
      case I64:
        return engine.tensorOf(DoubleStream.of(numbers).mapToLong(one -> (long) one).toArray(), sizes);
      case I32:
        return engine.tensorOf(DoubleStream.of(numbers).mapToInt(one -> (int) one).toArray(), sizes);
      default:
        throw new Failure(400, "inputs of type " + type + " cannot be given as numbers");
    }
  }

  static Map<String, Object> json(List<TensorInfo> infos, List<Tensor> tensors) {
    Map<String, Object> all = new LinkedHashMap<>();
    for (int i = 0; i < infos.size(); ++i) {
      Map<String, Object> one = new LinkedHashMap<>();
      one.put("dims", LongStream.of(tensors.get(i).dims()).boxed().toList());
      one.put("values", numbers(tensors.get(i)));
      all.put(infos.get(i).name(), one);
    }
    return all;
  }

  private static List<Object> numbers(Tensor tensor) {
    List<Object> all = new ArrayList<>();
    switch (tensor.type()) {
      case F64:
        for (double one : tensor.toDoubles()) all.add(one);
        break;
      case F32:
        for (float one : tensor.toFloats()) all.add((double) one);
        break;
      case I64:
        for (long one : tensor.toLongs()) all.add(one);
        break;
      default:
        throw new Failure(400, "outputs of type " + tensor.type() + " cannot be given as numbers");
    }
    return all;
  }
}
