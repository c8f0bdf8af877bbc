// Linear layers: a product with a matrix and a bias, into which transposes of the matrix are merged.
#include "core/rewrite/patterns.h"

namespace epl {
using namespace rewrite;

EPL_REWRITE(linear) {
  return {.doc = "matmul(x, w[k,n]) + bias[n], in either order, is linear(x, w, bias).",
          .root_op = "add",
          .after = {"gelu_erf", "gelu_tanh", "silu", "mish", "log_sigmoid"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            for (int which : {0, 1}) {
              const auto [product, bias] = operands(m.root(), which);
              const Node* matmul = m.producer(product, "matmul");
              if (!matmul || !m.used_once(product) || matmul->attributes.flag("transpose_a")) continue;
              const TensorType &x = m.type(matmul->inputs[0]), &w = m.type(matmul->inputs[1]), &shift = m.type(bias);
              if (x.ndim() < 2 || w.ndim() != 2 || shift.shape != Shape{m.type(product).dim(-1)}) continue;
              return {b.emit("linear", {b.var(now[matmul->inputs[0]]), b.var(now[matmul->inputs[1]]), b.var(now[bias])},
                             {{"transpose_w", matmul->attributes.flag("transpose_b")}})};
            }
            return {};
          }};
}

EPL_REWRITE(linear_bias) {
  return {.doc = "linear(x, w) + bias[n] is linear(x, w, bias).",
          .root_op = "add",
          .after = {"gelu_erf", "gelu_tanh", "silu", "mish", "log_sigmoid"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            for (int which : {0, 1}) {
              const auto [product, bias] = operands(m.root(), which);
              const Node* linear = m.producer(product, "linear");
              if (!linear || !m.used_once(product) || (linear->inputs.size() > 2 && linear->inputs[2])) continue;
              if (m.type(bias).shape != Shape{m.type(product).dim(-1)}) continue;
              return {b.emit("linear", {b.var(now[linear->inputs[0]]), b.var(now[linear->inputs[1]]), b.var(now[bias])},
                             linear->attributes)};
            }
            return {};
          }};
}

EPL_REWRITE(linear_transposed) {
  return {.doc = "linear(x, transpose(w)) reads w the other way round.",
          .root_op = "linear",
          .after = {"linear", "linear_bias"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const Node* transpose = m.producer(m.root().inputs[1], "transpose");
            if (!transpose || !swaps_last_two(transpose->attributes.ints("perm"))) return {};
            std::vector<Var> inputs;
            for (Value input : m.root().inputs) inputs.push_back(input ? b.var(now[input]) : Var());
            inputs[1] = b.var(now[transpose->inputs[0]]);
            return {b.emit("linear", inputs, {{"transpose_w", !m.root().attributes.flag("transpose_w")}})};
          }};
}

EPL_REWRITE(matmul_transposed) {
  return {.doc = "matmul of an operand whose last two dimensions were exchanged reads it the other way round.",
          .root_op = "matmul",
          .after = {"linear", "linear_bias"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const char* const flags[] = {"transpose_a", "transpose_b"};
            Attributes attributes = m.root().attributes;
            std::vector<Var> inputs;
            bool found = false;
            for (int i : {0, 1}) {
              Value operand = m.root().inputs[i];
              const Node* transpose = m.producer(operand, "transpose");
              if (transpose && swaps_last_two(transpose->attributes.ints("perm"))) {
                operand = transpose->inputs[0];
                attributes.set(flags[i], !attributes.flag(flags[i]));
                found = true;
              }
              inputs.push_back(b.var(now[operand]));
            }
            if (!found) return {};
            return {b.emit("matmul", inputs, std::move(attributes))};
          }};
}

// Frameworks without a product of more than two dimensions flatten the leading ones around it.
EPL_REWRITE(linear_flattened) {
  return {
      .doc =
          "reshape(linear(reshape(x, [rows, k]), ...), [..., n]) with the leading dimensions of x is linear(x, ...).",
      .root_op = "reshape",
      .after = {"linear_transposed", "matmul_transposed"},
      .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
        const Node* linear = m.producer(m.root().inputs[0], "linear");
        const Node* flat =
            linear && m.used_once(m.root().inputs[0]) ? m.producer(linear->inputs[0], "reshape") : nullptr;
        if (!flat || m.type(linear->inputs[0]).ndim() != 2) return {};
        const TensorType &x = m.type(flat->inputs[0]), &y = m.type(m.root().outputs[0]);
        if (x.ndim() < 2 || x.dim(-1) != m.type(linear->inputs[0]).dim(1)) return {};
        Shape shape = x.shape;
        shape.back() = m.type(m.root().inputs[0]).dim(1);
        if (y.shape != shape) return {};
        std::vector<Var> inputs;
        for (Value input : linear->inputs) inputs.push_back(input ? b.var(now[input]) : Var());
        inputs[0] = b.var(now[flat->inputs[0]]);
        return {b.emit("linear", inputs, linear->attributes)};
      }};
}

// Exporters of a mixture of experts gather the matrix of each row, which then stand side by side, and multiply them
// all.
EPL_REWRITE(picked_linear) {
  return {.doc = "A batched product of vectors with the matrices gather(w[e,...], indices[s]) is picked_linear.",
          .root_op = "matmul",
          .after = {"linear", "linear_bias"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const char* const flags[] = {"transpose_a", "transpose_b"};
            for (const int which : {0, 1}) {
              const auto [matrices, vectors] = operands(m.root(), which);
              const Node* gather = m.producer(matrices, "gather");
              if (!gather || !m.used_once(matrices)) continue;
              const TensorType &w = m.type(gather->inputs[0]), &x = m.type(vectors);
              if (w.ndim() != 3 || m.type(gather->inputs[1]).ndim() != 1 || x.ndim() != 3) continue;
              if (const int64_t axis = gather->attributes.integer("axis"); axis != 0 && axis != -3) continue;
              const int64_t rows = m.type(matrices).dim(0);
              // Vectors are the columns on the right, or the rows on the left.
              const bool crossed = m.root().attributes.flag(flags[1 - which]);
              const int one = (which == 0) == crossed ? 1 : 2;
              if (x.dim(0) != rows || x.dim(one) != 1 || !is_float(x.dtype)) continue;
              const bool transposed = m.root().attributes.flag(flags[which]);
              const Var y = b.emit("picked_linear",
                                   {b.reshape(b.var(now[vectors]), {rows, x.dim(3 - one)}),
                                    b.var(now[gather->inputs[0]]), b.var(now[gather->inputs[1]])},
                                   {{"transpose_w", (which == 0) != transposed}});
              return {b.reshape(y, m.type(m.root().outputs[0]).shape)};
            }
            return {};
          }};
}

}  // namespace epl
