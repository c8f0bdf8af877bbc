// RNN, GRU and LSTM, unrolled: the number of steps is known when a model is bound. What the inputs contribute is one
// product for all steps.
#include <algorithm>

#include "core/base/shown.h"
#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

constexpr int64_t max_steps = 1 << 14;

// Operands as the standard numbers them: X, W, R, B, lengths, h0, then c0 and peepholes of an LSTM.
class Recurrent {
 public:
  Recurrent(Import& i, int64_t gates) : i_(i), b_(i.b), gates_(gates) {}

  // step(x_t, h) -> h', with x_t [batch, gates * hidden] the contribution of the input and of the input's bias.
  template <class Step> void run(bool cell, Step&& step) {
    if (!prepare(cell)) return;
    std::vector<Var> all, last, last_cells;
    for (int64_t d = 0; d < directions_; ++d) {
      begin(d);
      bool backward = direction_ == "reverse" || d == 1;
      Var w = b_.reshape(b_.slice(i_.in(1), {0}, {d}, {d + 1}), {gates_ * hidden_, i_.type(1).dim(2)});
      Var x = b_.matmul(x_, w, false, true);
      if (wb_) x = x + wb_;
      std::vector<Var> outputs(steps_);
      for (int64_t t = 0; t < steps_; ++t) {
        int64_t at = backward ? steps_ - 1 - t : t;
        Var now = b_.reshape(b_.slice(x, {0}, {at}, {at + 1}), {batch_, gates_ * hidden_});
        Var h = h_, c = c_, next = step(*this, now);
        if (lengths_) {  // beyond the end of a sample, on whichever side it is met, the state stays and the output is
                         // zero
          Var runs = b_.reshape(lengths_, {batch_, 1}) > static_cast<double>(at);
          outputs[at] = b_.select(runs, next, b_.like(next, 0));
          next = b_.select(runs, next, h);
          if (cell) c_ = b_.select(runs, c_, c);
        } else {
          outputs[at] = next;
        }
        h_ = next;
      }
      for (Var& y : outputs) y = b_.reshape(y, {1, 1, batch_, hidden_});
      all.push_back(b_.concat(outputs, 0));
      last.push_back(b_.reshape(h_, {1, batch_, hidden_}));
      if (cell) last_cells.push_back(b_.reshape(c_, {1, batch_, hidden_}));
    }
    finish(all, last, last_cells);
  }

  // The part of a [.., gates * hidden] value that belongs to one gate.
  Var gate(const Var& x, int64_t g) { return b_.slice(x, {x.ndim() - 1}, {g * hidden_}, {(g + 1) * hidden_}); }
  Var activate(int64_t which, const Var& x) {
    if (clip_ > 0) return activation(which, b_.emit("clip", {x, b_.like(x, -clip_), b_.like(x, clip_)}));
    return activation(which, x);
  }
  Var recur(const Var& h) { return b_.matmul(h, r_, false, true); }
  int64_t hidden() const { return hidden_; }
  Builder& b() { return b_; }

  Var h_, c_, r_, rb_, peep_;

 private:
  bool prepare(bool cell) {
    direction_ = i_.choice("direction", {"forward", "reverse", "bidirectional"});
    directions_ = direction_ == "bidirectional" ? 2 : 1;
    swapped_ = i_.integer("layout", 0) != 0;
    x_ = i_.in(0);
    if (!b_.status().ok() || x_.ndim() != 3 || i_.type(1).ndim() != 3 || i_.type(2).ndim() != 3)
      return refuse("operands need three dimensions");
    if (swapped_) x_ = b_.transpose(x_, {1, 0, 2});
    steps_ = x_.dim(0);
    batch_ = x_.dim(1);
    hidden_ = i_.type(2).dim(2);
    if (steps_ < 1 || steps_ > max_steps) return refuse(cat(steps_, " steps; 1 to ", max_steps, " are unrolled"));
    if (i_.type(1).shape != Shape{directions_, gates_ * hidden_, x_.dim(2)} ||
        i_.type(2).shape != Shape{directions_, gates_ * hidden_, hidden_}) {
      return refuse("weights and input do not fit");
    }
    clip_ = i_.number("clip", 0);
    activations_ = i_.strings("activations");
    if (activations_.empty()) {
      for (int64_t d = 0; d < directions_; ++d) {
        if (gates_ == 1) activations_.insert(activations_.end(), {"Tanh"});
        if (gates_ == 3) activations_.insert(activations_.end(), {"Sigmoid", "Tanh"});
        if (gates_ == 4) activations_.insert(activations_.end(), {"Sigmoid", "Tanh", "Tanh"});
      }
    }
    if (i_.has(4)) lengths_ = b_.cast(i_.in(4), DType::i64);
    if (cell && i_.integer("input_forget", 0) != 0)
      i_.fail(unsupported(
          "its forget gate is coupled with its input gate (input_forget), which is not supported; export the "
          "layer as single operators"));
    return b_.status().ok();
  }

  bool refuse(std::string why) {
    i_.fail(std::move(why));
    return false;
  }

  // Weights, biases and first states of direction d.
  void begin(int64_t d) {
    direction_index_ = d;
    auto of = [&](int input, Shape shape) {
      return b_.reshape(b_.slice(i_.in(input), {0}, {d}, {d + 1}), std::move(shape));
    };
    r_ = of(2, {gates_ * hidden_, hidden_});
    wb_ = rb_ = peep_ = Var();
    if (i_.has(3)) {
      Var both = of(3, {2 * gates_ * hidden_});
      wb_ = b_.slice(both, {0}, {0}, {gates_ * hidden_});
      rb_ = b_.slice(both, {0}, {gates_ * hidden_}, {2 * gates_ * hidden_});
    }
    auto state = [&](int input) {
      if (!i_.has(input)) return b_.broadcast_to(b_.scalar(x_.dtype(), 0), {batch_, hidden_});
      Var first = i_.in(input);
      if (swapped_ && first.ndim() == 3) first = b_.transpose(first, {1, 0, 2});
      if (first.shape() != Shape{directions_, batch_, hidden_}) {
        i_.fail(cat("the state at the start, input ", input, ", is ", i_.type(input).text(), ", and the sequence has ",
                    batch_, " samples, which take ", Shape{directions_, batch_, hidden_},
                    "; where the file fixes the state's samples, the batch must be as large"));
        return Var();
      }
      return b_.reshape(b_.slice(first, {0}, {d}, {d + 1}), {batch_, hidden_});
    };
    h_ = state(5);
    if (gates_ == 4) c_ = state(6);
    if (gates_ == 4 && i_.has(7)) peep_ = of(7, {3 * hidden_});
  }

  Var activation(int64_t which, const Var& x) {
    size_t at = static_cast<size_t>(direction_index_ * static_cast<int64_t>(activations_.size()) / directions_ + which);
    std::string name = at < activations_.size() ? activations_[at] : "";
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    for (const char* known : {"sigmoid", "tanh", "relu", "softsign", "softplus"}) {
      if (name == known) return b_.unary(known, x);
    }
    i_.fail(unsupported("activation ", shown(name, 200),
                        " is not supported; there are sigmoid, tanh, relu, softsign and softplus"));
    return {};
  }

  void finish(const std::vector<Var>& all, const std::vector<Var>& last, const std::vector<Var>& cells) {
    Var y = b_.concat(all, 1),
        h = b_.concat(last, 0);  // [steps, directions, batch, hidden], [directions, batch, hidden]
    if (i_.wants(0)) i_.set(0, swapped_ ? b_.transpose(y, {2, 0, 1, 3}) : y);
    if (i_.wants(1)) i_.set(1, swapped_ ? b_.transpose(h, {1, 0, 2}) : h);
    if (i_.wants(2) && !cells.empty()) {
      Var c = b_.concat(cells, 0);
      i_.set(2, swapped_ ? b_.transpose(c, {1, 0, 2}) : c);
    }
  }

  Import& i_;
  Builder& b_;
  int64_t gates_, directions_ = 1, direction_index_ = 0, steps_ = 0, batch_ = 0, hidden_ = 0;
  bool swapped_ = false;
  double clip_ = 0;
  std::string direction_;
  std::vector<std::string> activations_;
  Var x_, wb_, lengths_;
};

}  // namespace

EPL_ONNX_OP(RNN) {
  return {.weights = {1, 2, 3}, .run = [](Import& i) {
            Recurrent(i, 1).run(false, [](Recurrent& r, const Var& x) {
              Var sum = x + r.recur(r.h_);
              return r.activate(0, r.rb_ ? sum + r.rb_ : sum);
            });
          }};
}

// Gates z (update), r (reset) and h, in this order.
EPL_ONNX_OP(GRU) {
  return {.weights = {1, 2, 3}, .run = [](Import& i) {
            bool after = i.integer("linear_before_reset", 0) != 0;
            Recurrent(i, 3).run(false, [after](Recurrent& r, const Var& x) {
              Builder& b = r.b();
              auto weights = [&](int64_t g) { return b.slice(r.r_, {0}, {g * r.hidden()}, {(g + 1) * r.hidden()}); };
              Var past = r.recur(r.h_);
              auto with_bias = [&](const Var& v, int64_t g) { return r.rb_ ? v + r.gate(r.rb_, g) : v; };
              Var z = r.activate(0, r.gate(x, 0) + with_bias(r.gate(past, 0), 0));
              Var reset = r.activate(0, r.gate(x, 1) + with_bias(r.gate(past, 1), 1));
              Var inner = after ? reset * with_bias(r.gate(past, 2), 2)
                                : with_bias(b.matmul(reset * r.h_, weights(2), false, true), 2);
              Var h = r.activate(1, r.gate(x, 2) + inner);
              return (1.0 - z) * h + z * r.h_;
            });
          }};
}

// Gates i, o, f and c, in this order; peepholes look at the cell through i, o and f.
EPL_ONNX_OP(LSTM) {
  return {.weights = {1, 2, 3}, .run = [](Import& i) {
            Recurrent(i, 4).run(true, [](Recurrent& r, const Var& x) {
              Var sum = x + r.recur(r.h_);
              if (r.rb_) sum = sum + r.rb_;
              auto peeping = [&](const Var& v, int64_t g, const Var& cell) {
                return r.peep_ ? v + r.gate(r.peep_, g) * cell : v;
              };
              Var in = r.activate(0, peeping(r.gate(sum, 0), 0, r.c_)),
                  forget = r.activate(0, peeping(r.gate(sum, 2), 2, r.c_));
              Var cell = forget * r.c_ + in * r.activate(1, r.gate(sum, 3));
              Var out = r.activate(0, peeping(r.gate(sum, 1), 1, cell));
              r.c_ = cell;
              return out * r.activate(2, cell);
            });
          }};
}

}  // namespace epl::onnx
