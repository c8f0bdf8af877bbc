// Clean-ups of reshapes and transposes, so that the patterns of other rows see through what exporters put in between.
#include "core/rewrite/patterns.h"

namespace epl {
using namespace rewrite;

EPL_REWRITE(identity) {
  return {.doc = "identity(x) is x.",
          .root_op = "identity",
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            return {b.var(now[m.root().inputs[0]])};
          }};
}

EPL_REWRITE(cast_to_same) {
  return {.doc = "A cast to the type that is there is none.",
          .root_op = "cast",
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const Value x = m.root().inputs[0];
            if (m.type(x).dtype != m.root().attributes.dtype("to")) return {};
            return {b.var(now[x])};
          }};
}

EPL_REWRITE(reshape_chain) {
  return {.doc = "A reshape of a reshape is one; a reshape to the shape that is there is none.",
          .root_op = "reshape",
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const Value x = m.root().inputs[0];
            const Shape& shape = m.type(m.root().outputs[0]).shape;
            if (m.type(x).shape == shape) return {b.var(now[x])};
            const Node* inner = m.producer(x, "reshape");
            if (!inner) return {};
            return {b.reshape(b.var(now[inner->inputs[0]]), shape)};
          }};
}

EPL_REWRITE(transpose_chain) {
  return {.doc = "A transpose of a transpose is one; a transpose that moves nothing is none.",
          .root_op = "transpose",
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const Value x = m.root().inputs[0];
            const Ints& outer = m.root().attributes.ints("perm");
            bool moves = false;
            for (size_t i = 0; i < outer.size(); ++i) moves = moves || outer[i] != static_cast<int64_t>(i);
            if (!moves) return {b.var(now[x])};
            const Node* inner = m.producer(x, "transpose");
            if (!inner) return {};
            Ints both;
            for (int64_t axis : outer) both.push_back(inner->attributes.ints("perm")[axis]);
            return {b.transpose(b.var(now[inner->inputs[0]]), std::move(both))};
          }};
}

// Exporters take a mask apart into rows that they count one by one, of all samples.
EPL_REWRITE(gather_in_order) {
  return {.doc = "A gather of all elements along an axis, each once and in their order, is a reshape.",
          .root_op = "gather",
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const std::vector<Value>& in = m.root().inputs;
            const ValueInfo& indices = m.graph().value(in[1]);
            const auto axis = static_cast<int>(m.root().attributes.integer("axis"));
            if (indices.kind != ValueKind::constant || indices.type.elements() != m.type(in[0]).dim(axis)) return {};
            for (int64_t i = 0; i < indices.data.elements(); ++i) {
              if (indices.data.get_int(i) != i) return {};
            }
            return {b.reshape(b.var(now[in[0]]), m.type(m.root().outputs[0]).shape)};
          }};
}

// Exporters write the transposed keys of an attention as matrices [batch * heads, t, d].
EPL_REWRITE(batched_transpose) {
  return {
      .doc =
          "reshape(transpose(reshape(x, [l, t, d]), [0, 2, 1]), [..., d, t]) is reshape(x, [..., t, d]) with the last "
          "two dimensions exchanged.",
      .root_op = "reshape",
      .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
        const Value moved = m.root().inputs[0];
        const Node* transpose = m.producer(moved, "transpose");
        if (!transpose || !m.used_once(moved) || transpose->attributes.ints("perm") != Ints{0, 2, 1}) return {};
        const Node* flat = m.producer(transpose->inputs[0], "reshape");
        if (!flat) return {};
        const TensorType &x = m.type(flat->inputs[0]), &matrices = m.type(transpose->inputs[0]);
        Shape shape = m.type(m.root().outputs[0]).shape;
        const bool same_matrices = x.ndim() > 3 && x.dim(-2) == matrices.dim(1) && x.dim(-1) == matrices.dim(2) &&
                                   shape.size() > 3 && shape[shape.size() - 2] == matrices.dim(2) &&
                                   shape.back() == matrices.dim(1);
        if (!same_matrices) return {};
        Ints permutation;
        for (size_t d = 0; d < shape.size(); ++d) permutation.push_back(static_cast<int64_t>(d));
        std::swap(permutation[shape.size() - 2], permutation.back());
        std::swap(shape[shape.size() - 2], shape.back());
        const std::string name = b.scope();
        b.set_scope(cat(name, ".matrices"));
        Var matrix = b.reshape(b.var(now[flat->inputs[0]]), std::move(shape));
        b.set_scope(name);
        return {b.transpose(matrix, std::move(permutation))};
      }};
}

}  // namespace epl
