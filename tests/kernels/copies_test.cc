// Ops that move elements, against index arithmetic written out.
#include <functional>

#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::copies_test {
namespace {

const DType types[] = {DType::u8, DType::bf16, DType::f32, DType::i64};

Tensor counted(DType type, const Shape& shape) {
  Tensor t(TensorType{type, shape});
  for (int64_t i = 0; i < t.elements(); ++i) t.set(i, static_cast<double>(i % 120));
  return t;
}

// Checks every element of the result: `source` names the element of input 0 it is, or -1 for `otherwise`.
void check(Launch launch, const std::function<int64_t(const Shape&)>& source, double otherwise = 0) {
  Tensor y = launch_everywhere(launch)[0];
  Shape index(y.shape().size(), 0);
  for (int64_t e = 0; e < y.elements(); ++e) {
    int64_t rest = e;
    for (int d = static_cast<int>(index.size()) - 1; d >= 0; --d) {
      index[d] = rest % y.shape()[d];
      rest /= y.shape()[d];
    }
    int64_t from = source(index);
    ASSERT_EQ(y.get(e), from < 0 ? otherwise : launch.inputs[0].get(from))
        << launch.op << " of " << cat(launch.inputs[0].shape()) << " element " << e;
  }
}

int64_t linear(const Shape& index, const Shape& shape) {
  int64_t at = 0;
  for (size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + index[d];
  return at;
}

TEST(Copies, Transpose) {
  const std::vector<std::pair<Shape, Ints>> cases = {{{3, 5}, {1, 0}},
                                                     {{100, 70}, {1, 0}},
                                                     {{2, 3, 4}, {2, 0, 1}},
                                                     {{2, 3, 4}, {0, 2, 1}},
                                                     {{4, 16, 3, 8}, {0, 2, 1, 3}},
                                                     {{5, 33, 40}, {0, 2, 1}},
                                                     {{3, 1, 7}, {2, 1, 0}},
                                                     {{2, 3, 4, 5}, {3, 2, 1, 0}},
                                                     {{700, 300}, {1, 0}},
                                                     {{6}, {0}},
                                                     {{2, 0, 3}, {1, 2, 0}},
                                                     {{2, 40, 3, 50}, {3, 1, 0, 2}}};
  for (DType type : types) {
    for (const auto& [shape, perm] : cases) {
      Shape out;
      for (int64_t p : perm) out.push_back(shape[p]);
      check({.op = "transpose",
             .attributes = {{"perm", perm}},
             .inputs = {counted(type, shape)},
             .outputs = {TensorType{type, out}}},
            [&](const Shape& index) {
              Shape at(shape.size());
              for (size_t d = 0; d < perm.size(); ++d) at[perm[d]] = index[d];
              return linear(at, shape);
            });
    }
  }
}

TEST(Copies, BroadcastTo) {
  const std::vector<std::pair<Shape, Shape>> cases = {{{3, 1}, {3, 5}},         {{5}, {3, 5}},          {{}, {4, 4}},
                                                      {{1, 4, 1}, {3, 4, 500}}, {{2, 1, 3}, {2, 7, 3}}, {{1}, {100000}},
                                                      {{3, 1}, {3, 0}}};
  for (DType type : types) {
    for (const auto& [from, to] : cases) {
      check({.op = "broadcast_to",
             .attributes = {{"shape", to}},
             .inputs = {counted(type, from)},
             .outputs = {TensorType{type, to}}},
            [&](const Shape& index) {
              Shape at(index.end() - from.size(), index.end());
              for (size_t d = 0; d < from.size(); ++d) at[d] = from[d] == 1 ? 0 : at[d];
              return linear(at, from);
            });
    }
  }
}

struct SliceCase {
  Shape shape;
  Ints axes, starts, ends, steps;
};

TEST(Copies, SliceAndItsAdjoint) {
  const std::vector<SliceCase> cases = {{{10, 7}, {0}, {2}, {9}, {}},
                                        {{10, 7}, {1}, {6}, {-1}, {-1}},
                                        {{10, 7}, {0, 1}, {9, 1}, {-1, 7}, {-3, 2}},
                                        {{4, 5, 6}, {1}, {0}, {5}, {1}},
                                        {{4, 5, 600}, {2}, {100}, {400}, {1}},
                                        {{4, 5}, {1}, {2}, {2}, {1}},
                                        {{300, 1000}, {-1}, {1}, {1000}, {2}}};
  for (DType type : types) {
    for (const SliceCase& c : cases) {
      Shape out = c.shape, start(c.shape.size(), 0), step(c.shape.size(), 1);
      for (size_t i = 0; i < c.axes.size(); ++i) {
        size_t d = c.axes[i] < 0 ? c.axes[i] + c.shape.size() : c.axes[i];
        start[d] = c.starts[i];
        step[d] = c.steps.empty() ? 1 : c.steps[i];
        int64_t reach = c.ends[i] - c.starts[i];
        out[d] = (reach + step[d] - (step[d] > 0 ? 1 : -1)) / step[d];
      }
      Attributes attributes = {{"axes", c.axes}, {"starts", c.starts}, {"ends", c.ends}, {"steps", c.steps}};
      auto place = [&](const Shape& index) {
        Shape at = index;
        for (size_t d = 0; d < at.size(); ++d) at[d] = start[d] + index[d] * step[d];
        return linear(at, c.shape);
      };
      check({.op = "slice",
             .attributes = attributes,
             .inputs = {counted(type, c.shape)},
             .outputs = {TensorType{type, out}}},
            place);
      attributes.set("shape", c.shape);
      std::vector<int64_t> back(element_count(c.shape), -1);
      for (int64_t e = 0; e < element_count(out); ++e) {
        Shape index(out.size());
        int64_t rest = e;
        for (int d = static_cast<int>(out.size()) - 1; d >= 0; --d) index[d] = rest % out[d], rest /= out[d];
        back[place(index)] = e;
      }
      check({.op = "slice_grad",
             .attributes = attributes,
             .inputs = {counted(type, out)},
             .outputs = {TensorType{type, c.shape}}},
            [&](const Shape& index) { return back[linear(index, c.shape)]; });
    }
  }
}

TEST(Copies, Concat) {
  for (DType type : types) {
    for (int64_t axis : {0, 1, -1}) {
      std::vector<Tensor> parts;
      Shape out = {3, 4, 5};
      size_t d = axis < 0 ? 2 : axis;
      out[d] = 0;
      for (int64_t n : {2, 0, 7, 300}) {
        Shape shape = {3, 4, 5};
        shape[d] = n;
        parts.push_back(counted(type, shape));
        out[d] += n;
      }
      Tensor y = launch_everywhere(
          {.op = "concat", .attributes = {{"axis", axis}}, .inputs = parts, .outputs = {TensorType{type, out}}})[0];
      Shape strides = row_major_strides(out);
      for (int64_t e = 0; e < y.elements(); ++e) {
        Shape index = {e / strides[0], e / strides[1] % out[1], e % out[2]};
        size_t part = 0;
        while (index[d] >= parts[part].shape()[d]) index[d] -= parts[part++].shape()[d];
        ASSERT_EQ(y.get(e), parts[part].get(linear(index, parts[part].shape())));
      }
    }
  }
}

TEST(Copies, Tile) {
  for (DType type : types) {
    for (const Ints& repeats : {Ints{2, 3}, Ints{1, 40}, Ints{40, 1}, Ints{1, 1}, Ints{0, 2}}) {
      Shape shape = {3, 50}, out = {3 * repeats[0], 50 * repeats[1]};
      check({.op = "tile",
             .attributes = {{"repeats", repeats}},
             .inputs = {counted(type, shape)},
             .outputs = {TensorType{type, out}}},
            [&](const Shape& index) { return linear({index[0] % 3, index[1] % 50}, shape); });
    }
  }
}

TEST(Copies, Padding) {
  for (DType type : types) {
    for (const auto& [begin, end] : std::vector<std::pair<Ints, Ints>>{
             {{1, 2}, {3, 0}}, {{0, 0}, {0, 0}}, {{-1, 2}, {2, -3}}, {{-3, 0}, {-3, 0}}}) {
      Shape shape = {6, 40}, out = {6 + begin[0] + end[0], 40 + begin[1] + end[1]};
      Attributes attributes = {{"mode", std::string("constant")}, {"begin", begin}, {"end", end}};
      Tensor value(TensorType{type, {}});
      value.set(0, 9);
      auto inside = [&](const Shape& index) {
        int64_t a = index[0] - begin[0], b = index[1] - begin[1];
        return a >= 0 && a < 6 && b >= 0 && b < 40 ? a * 40 + b : -1;
      };
      check({.op = "pad",
             .attributes = attributes,
             .inputs = {counted(type, shape), value},
             .outputs = {TensorType{type, out}}},
            inside, 9);
      check(
          {.op = "pad", .attributes = attributes, .inputs = {counted(type, shape)}, .outputs = {TensorType{type, out}}},
          inside);
      check({.op = "pad_grad",
             .attributes = attributes,
             .inputs = {counted(type, out)},
             .outputs = {TensorType{type, shape}}},
            [&](const Shape& index) {
              int64_t a = index[0] + begin[0], b = index[1] + begin[1];
              return a >= 0 && a < out[0] && b >= 0 && b < out[1] ? a * out[1] + b : -1;
            });
    }
  }
  Launch reflect = {.op = "pad",
                    .attributes = {{"mode", std::string("reflect")}, {"begin", Ints{1}}, {"end", Ints{0}}},
                    .inputs = {counted(DType::f32, {4})},
                    .outputs = {f32_type({5})}};
  EXPECT_EQ(kernel_table().choose(query_of(reflect)).row, nullptr);
}

TEST(Copies, SameBytes) {
  for (const char* op : {"reshape", "identity", "stop_gradient"}) {
    Tensor x = random_f32({300, 700}, 1);
    Launch launch = {
        .op = op, .attributes = {{"shape", Ints{700, 300}}}, .inputs = {x}, .outputs = {f32_type({700, 300})}};
    EXPECT_EQ(0, std::memcmp(launch_everywhere(launch)[0].data(), x.data(), x.bytes()));
    launch.aliases = {{0, 0}};
    EXPECT_EQ(0, std::memcmp(launch_everywhere(launch)[0].data(), x.data(), x.bytes()));
  }
}

}  // namespace
}  // namespace epl::cpu::copies_test
