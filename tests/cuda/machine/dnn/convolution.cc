// Engines of the stand-in, and convolutions by loops. Engine 0 takes everything. Number 1 multiplies matrices, for
// which it brings operands to a layout of its own, and float32 to TF32. Number 2 adds up in another order each time.
// Number 3 has no room on the device, which is found when its plan is finalized. Number 4 wants more workspace than
// anybody has.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "tests/cuda/machine/control.h"
#include "tests/cuda/machine/dnn/objects.h"

namespace epl::cuda_dnn {
namespace {

constexpr int kFloat32 = 0, kFloat16 = 2, kBrain16 = 9;
constexpr int kTensorCore = 0, kNarrowed = 1, kFourier = 3, kNotDeterministic = 4;
constexpr uint64_t kWorkspaceAlignment = 256;

using Sizes = std::array<int64_t, 3>;  // of spatial dimensions
Sizes led(const std::vector<int64_t>& values, size_t first, int64_t otherwise) {
  Sizes all{otherwise, otherwise, otherwise};
  std::copy(values.begin() + static_cast<std::ptrdiff_t>(first), values.end(),
            all.end() - static_cast<std::ptrdiff_t>(values.size() - first));
  return all;
}

// A tensor with its elements in the host's memory.
struct View {
  int type = kFloat32;
  Sizes sizes{}, strides{};
  int64_t first = 0, second = 0;  // strides of the dimensions in front

  explicit View(const Tensor& of)
      : type(of.type),
        sizes(led(of.sizes, 2, 1)),
        strides(led(of.strides, 2, 0)),
        first(of.strides[0]),
        second(of.strides[1]) {}
  int64_t at(int64_t a, int64_t b, const Sizes& place) const {
    return a * first + b * second + place[0] * strides[0] + place[1] * strides[1] + place[2] * strides[2];
  }
};

double element(int type, const char* data, int64_t i) {
  if (type == kFloat32) {
    float value = 0;
    std::memcpy(&value, data + 4 * i, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, data + 2 * i, sizeof bits);
  if (type == kBrain16) {
    const uint32_t wide = uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

// As TF32 has it: ten bits of a fraction.
double narrowed(double value) {
  const auto single = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &single, sizeof bits);
  bits = (bits + 0x1000) & 0xffffe000;
  float out = 0;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

template <class F> void for_each(const Sizes& sizes, const F& f) {
  for (int64_t i = 0; i < sizes[0]; ++i)
    for (int64_t j = 0; j < sizes[1]; ++j)
      for (int64_t k = 0; k < sizes[2]; ++k) f(Sizes{i, j, k});
}

struct Command {
  Convolution of;
  int engine = 0;
  int64_t block = 0;  // terms that are added exactly before the sum is rounded; 0: all
  int64_t workspace = 0;

  void run(char* const* places) const;
};

// f(x, w, y): the elements of each product.
template <class F> void each_product(const Convolution& c, const F& f) {
  const View x(c.x), w(c.w), y(c.y);
  const Sizes strides = led(c.strides, 0, 1), dilations = led(c.dilations, 0, 1), pads = led(c.pads, 0, 0);
  const int64_t groups = c.groups(), inputs = c.w.sizes[1], outputs = c.w.sizes[0] / groups;
  for (int64_t n = 0; n < c.x.sizes[0]; ++n) {
    for (int64_t o = 0; o < groups * outputs; ++o) {
      for_each(y.sizes, [&](const Sizes& position) {
        for_each(w.sizes, [&](const Sizes& tap) {
          Sizes pixel{};
          for (size_t d = 0; d < 3; ++d) {
            pixel[d] = position[d] * strides[d] + tap[d] * dilations[d] - pads[d];
            if (pixel[d] < 0 || pixel[d] >= x.sizes[d]) return;
          }
          for (int64_t i = 0; i < inputs; ++i)
            f(x.at(n, o / outputs * inputs + i, pixel), w.at(o, i, tap), y.at(n, o, position));
        });
      });
    }
  }
}

void Command::run(char* const* places) const {
  const char *x = places[0], *w = places[1], *y = places[2];
  auto* result = reinterpret_cast<float*>(of.what == kForward ? places[2] : places[of.what == kGradInput ? 0 : 1]);
  const auto elements = static_cast<size_t>(of.result().bytes() / 4);
  std::vector<double> parts(elements);
  std::vector<float> rounded(elements);
  std::vector<int64_t> terms(elements);
  const bool narrows = engine == 1 && of.operand_type() == kFloat32;
  each_product(of, [&](int64_t at_x, int64_t at_w, int64_t at_y) {
    const int64_t at = of.what == kForward ? at_y : of.what == kGradInput ? at_x : at_w;
    double a = of.what == kGradInput ? element(of.y.type, y, at_y) : element(of.x.type, x, at_x);
    double b = of.what == kGradWeight ? element(of.y.type, y, at_y) : element(of.w.type, w, at_w);
    if (narrows) a = narrowed(a), b = narrowed(b);
    const auto i = static_cast<size_t>(at);
    parts[i] += a * b;
    if (block == 0 || ++terms[i] % block != 0) return;
    rounded[i] += static_cast<float>(parts[i]);
    parts[i] = 0;
  });
  for (size_t i = 0; i < elements; ++i) {
    double value = double{of.alpha} * (double{rounded[i]} + parts[i]);
    if (of.beta != 0) value += double{of.beta} * double{result[i]};
    result[i] = static_cast<float>(value);
  }
  if (workspace > 0) std::memset(places[3], 0x5a, static_cast<size_t>(workspace));
}

uint64_t place_of(const Object& pack, const Tensor& tensor, const char* name) {
  const std::vector<int64_t> ids = pack.all<int64_t>(1000);
  const auto found = std::ranges::find(ids, tensor.id);
  require(found != ids.end(), kBadParameter, std::string("the pack has no pointer of ") + name);
  const uint64_t address = pack.values.at(1001)[static_cast<size_t>(found - ids.begin())];
  require(address != 0, kNullPointer, std::string("the pointer of ") + name + " is null");
  require(address % static_cast<uint64_t>(tensor.alignment) == 0, kMisaligned,
          std::string(name) + " is not aligned to " + std::to_string(tensor.alignment) + " bytes, as its tensor says");
  return address;
}

}  // namespace

Engine engine_of(const Convolution& c, int number) {
  const bool is_float32 = c.operand_type() == kFloat32;
  switch (number) {
    case 1:
      return {"matrices", is_float32 ? std::vector<int>{kTensorCore, kNarrowed} : std::vector<int>{kTensorCore},
              c.x.bytes() + c.w.bytes() + c.y.bytes()};
    case 2:
      return {"another order each time", {kNotDeterministic}, 0};
    case 3:
      return {"no room on the device", {}, 0};
    case 4:
      return {"the most workspace", {kFourier}, int64_t{1} << 40};
    default:
      return {"everything", {}, 0};
  }
}

std::vector<int> suggested(const Convolution& c, int mode) {
  if (mode == 2) return {0};
  std::vector<int> all;
  if (c.what == kGradWeight) all.push_back(2);
  if (c.operand_type() == kFloat32) all.push_back(1);
  all.insert(all.end(), {4, 3});
  if (c.operand_type() != kFloat32) all.push_back(1);
  return all;
}

void execute(const Objects& objects, const Object& handle, const Object& plan, const Object& pack) {
  const Object& config = objects.at(plan.get<const void*>(401), kConfig, "the configuration of the plan");
  const Object& graph = objects.at(config.graph, kGraph, "the graph of the plan");
  const Object& made_with = objects.at(plan.get<const void*>(400), kHandle, "the handle of the plan");
  require(made_with.device == handle.device, kBadParameter, "the plan was made for another device");
  const Object& operation = objects.at(graph.get<const void*>(801), "the operation of the graph");
  auto command = std::make_unique<Command>();
  command->of = convolution_of(objects, operation);
  command->engine = config.engine;
  const Convolution& c = command->of;
  require(pack.all<int64_t>(1000).size() == 3, kBadParameter, "the pack has other tensors than the graph");
  command->workspace = engine_of(c, config.engine).workspace;
  const auto workspace = pack.get<uint64_t>(1003);
  require(command->workspace == 0 || workspace != 0, kNullPointer, "the plan needs a workspace and is given none");
  require(workspace % kWorkspaceAlignment == 0, kMisaligned, "a workspace that is not aligned to 256 bytes");
  const bool reads = c.beta != 0;
  std::vector<epl_test_machine_rows> rows;
  for (const auto& [tensor, name] : {std::pair{&c.x, "x"}, {&c.w, "w"}, {&c.y, "y"}}) {
    const bool writes = tensor == &c.result();
    rows.push_back({place_of(pack, *tensor, name), tensor->bytes(), 1, tensor->bytes(), writes ? 1 : 0});
  }
  if (command->workspace > 0) rows.push_back({workspace, command->workspace, 1, command->workspace, 1});
  if (reads) {
    const size_t at = c.what == kForward ? 2 : c.what == kGradInput ? 0 : 1;
    epl_test_machine_rows before = rows[at];
    before.writes = 0;
    rows.push_back(before);
  }
  // As real engines have it: the order of a sum follows from the engine and from all sizes.
  static std::atomic<int64_t> executed{0};
  if (epl_test_machine_count("orders") != 0)
    command->block = 1 + (c.x.bytes() + 7 * c.y.bytes() + 31 * c.w.bytes() + config.engine) % 29;
  if (config.engine == 2) command->block = 1 + ++executed % 5;
  const int code = epl_test_machine_issue(
      handle.stream, "a convolution of cuDNN", rows.data(), static_cast<int>(rows.size()),
      [](void* context, char* const* places) {
        static_cast<const Command*>(context)->run(places);
        return 0;
      },
      [](void* context) { delete static_cast<Command*>(context); }, command.release());
  if (code != 0) throw code;  // the driver has said why
}

}  // namespace epl::cuda_dnn
