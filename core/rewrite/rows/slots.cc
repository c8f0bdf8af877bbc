// Tokens that go to slots by index and come back, as a mixture of experts with a capacity is exported. One row more
// than there are slots stands for those that find none: it is cut off before the experts, and zeros stand there behind
// them.
#include "core/rewrite/patterns.h"

namespace epl {
using namespace rewrite;

namespace {

bool all_zero(const Match& m, Value v) {
  double number = 1;
  return v && m.constant(v, &number) && number == 0;
}

// Indices into `rows` rows, where the last of them are gone: what named these, or no row, is out of range of the
// `left`.
Var into_the_first(Builder& b, const Var& indices, int64_t rows, int64_t left) {
  const Var first = b.select(indices < 0.0, indices + static_cast<double>(rows), indices);
  return b.select(first < 0.0, b.like(first, static_cast<double>(left)), first);
}

// The indices i[s] of which each stands for all elements of its row in v[s,r...]; none if v is not of that kind.
std::optional<Value> indices_of_rows(const Match& m, Value v) {
  const Node* repeated = m.producer(v, "broadcast_to");
  const TensorType& all = m.type(v);
  if (all.elements() == all.dim(0)) return v;
  if (!repeated) return std::nullopt;
  const TensorType& once = m.type(repeated->inputs[0]);
  if (once.ndim() != all.ndim() || once.dim(0) != all.dim(0) || once.elements() != all.dim(0)) return std::nullopt;
  return repeated->inputs[0];
}

// Of what stands behind the rows of x, [n + more, r...], if it is zeros.
struct Extended {
  Value x;
  int64_t rows = 0;  // with the zeros
};
std::optional<Extended> with_zeros(const Match& m, Value v) {
  const int64_t rows = m.type(v).ndim() > 0 ? m.type(v).dim(0) : 0;
  if (const Node* pad = m.producer(v, "pad")) {
    const Ints &begin = pad->attributes.ints("begin"), &end = pad->attributes.ints("end");
    const bool behind = std::ranges::all_of(begin, [](int64_t n) { return n == 0; }) && !end.empty() && end[0] >= 0 &&
                        std::all_of(end.begin() + 1, end.end(), [](int64_t n) { return n == 0; });
    const bool zero = pad->inputs.size() < 2 || !pad->inputs[1] || all_zero(m, pad->inputs[1]);
    if (behind && zero && pad->attributes.text("mode") == "constant") return Extended{pad->inputs[0], rows};
  }
  const Node* joined = m.producer(v, "concat");
  if (!joined || joined->inputs.size() != 2 || !all_zero(m, joined->inputs[1])) return std::nullopt;
  const int64_t axis = joined->attributes.integer("axis");
  if (axis != 0 && axis != -m.type(v).ndim()) return std::nullopt;
  return Extended{joined->inputs[0], rows};
}

}  // namespace

EPL_REWRITE(put_rows) {
  return {.doc = "scatter_elements of rows into zeros, one index for all elements of a row, is put_rows.",
          .root_op = "scatter_elements",
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const std::vector<Value>& in = m.root().inputs;
            const TensorType &y = m.type(m.root().outputs[0]), &x = m.type(in[2]);
            const int64_t axis = m.root().attributes.integer("axis");
            if (x.ndim() < 2 || (axis != 0 && axis != -x.ndim()) || !all_zero(m, in[0])) return {};
            if (m.root().attributes.text("reduction") != "none") return {};
            if (!std::equal(x.shape.begin() + 1, x.shape.end(), y.shape.begin() + 1)) return {};
            const auto indices = indices_of_rows(m, in[1]);
            if (!indices) return {};
            return {b.emit("put_rows", {b.var(now[in[2]]), b.reshape(b.var(now[*indices]), {x.dim(0)})},
                           {{"size", y.dim(0)}})};
          }};
}

EPL_REWRITE(put_rows_by_tuples) {
  return {.doc = "scatter_nd of rows into zeros, by tuples of one index, is put_rows.",
          .root_op = "scatter_nd",
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const std::vector<Value>& in = m.root().inputs;
            const TensorType &y = m.type(m.root().outputs[0]), &indices = m.type(in[1]);
            if (m.root().attributes.text("reduction") != "none" || !all_zero(m, in[0])) return {};
            if (y.ndim() < 2 || indices.ndim() < 2 || indices.dim(indices.ndim() - 1) != 1) return {};
            Shape rows = y.shape;
            rows[0] = indices.elements();
            return {b.emit("put_rows", {b.reshape(b.var(now[in[2]]), rows), b.reshape(b.var(now[in[1]]), {rows[0]})},
                           {{"size", y.dim(0)}})};
          }};
}

EPL_REWRITE(fewer_rows) {
  return {.doc = "The first rows of put_rows are put_rows with fewer of them.",
          .root_op = "slice",
          .after = {"put_rows", "put_rows_by_tuples"},
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const Node* put = m.producer(m.root().inputs[0], "put_rows");
            if (!put || !m.used_once(m.root().inputs[0])) return {};
            const TensorType &all = m.type(m.root().inputs[0]), &left = m.type(m.root().outputs[0]);
            const Attributes& cut = m.root().attributes;
            if (cut.ints("axes") != Ints{0} || cut.ints("starts") != Ints{0}) return {};
            if (const Ints& steps = cut.ints("steps"); !steps.empty() && steps != Ints{1}) return {};
            const Var indices = into_the_first(b, b.var(now[put->inputs[1]]), all.dim(0), left.dim(0));
            return {b.emit("put_rows", {b.var(now[put->inputs[0]]), indices}, {{"size", left.dim(0)}})};
          }};
}

EPL_REWRITE(take_rows) {
  return {.doc = "gather from rows with zeros behind them, pad(x) or concat(x, 0), is take_rows.",
          .root_op = "gather",
          .apply = [](const Match& m, Builder& b, const GraphRewriter& now) -> std::vector<Var> {
            const Value from = m.root().inputs[0];
            const int64_t axis = m.root().attributes.integer("axis");
            const auto found = with_zeros(m, from);
            if (!found || (axis != 0 && axis != -m.type(from).ndim()) || !m.used_once(from)) return {};
            const Var given = b.var(now[m.root().inputs[1]]);
            const Var flat = b.reshape(given, {m.type(m.root().inputs[1]).elements()});
            const Var indices = into_the_first(b, flat, found->rows, m.type(found->x).dim(0));
            return {b.reshape(b.emit("take_rows", {b.var(now[found->x]), indices}), m.type(m.root().outputs[0]).shape)};
          }};
}

}  // namespace epl
