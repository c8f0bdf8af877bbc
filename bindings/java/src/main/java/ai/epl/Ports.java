package ai.epl;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The names of what calls take and give, in their order. */
record Ports(List<String> inputs, List<String> outputs) {
  static Ports of(Plan plan, Entry entry) {
    return new Ports(names(plan.inputs(entry)), names(plan.outputs(entry)));
  }

  static List<String> names(List<TensorInfo> ports) {
    return ports.stream().map(TensorInfo::name).toList();
  }

  /** Inputs by name in their order; an exception names what is missing, or is no input. */
  List<Tensor> ordered(Map<String, Tensor> given) {
    return ordered("input", inputs, given, true);
  }

  /** Tensors for outputs by name in their order; null for one that is not wanted. */
  List<Tensor> into(Map<String, Tensor> wanted) {
    return ordered("output", outputs, wanted, false);
  }

  /** Outputs by name, of all of them in their order. */
  Map<String, Tensor> named(List<Tensor> all) {
    Map<String, Tensor> named = new LinkedHashMap<>();
    for (int i = 0; i < all.size(); ++i) named.put(outputs.get(i), all.get(i));
    return named;
  }

  static List<Tensor> ordered(String what, List<String> names, Map<String, Tensor> given, boolean all) {
    for (String name : given.keySet()) {
      if (names.contains(name)) continue;
      throw new IllegalArgumentException(
          "there is no " + what + " " + name + "; there are " + String.join(", ", names));
    }
    List<String> missing = names.stream().filter(name -> all && !given.containsKey(name)).toList();
    if (!missing.isEmpty()) {
      throw new IllegalArgumentException("nothing is given for " + String.join(", ", missing));
    }
    List<Tensor> ordered = new ArrayList<>();
    for (String name : names) ordered.add(given.get(name));
    return ordered;
  }
}
