// What must hold of a descriptor when it is finalized, as the manual has it.
#include <algorithm>
#include <numeric>

#include "tests/cuda/machine/dnn/objects.h"

namespace epl::cuda_dnn {
namespace {

constexpr int kFloat32 = 0, kFloat16 = 2, kBrain16 = 9;
int64_t element_bytes(int type) { return type == kFloat32 ? 4 : 2; }

std::string text(const std::vector<int64_t>& values) {
  std::string all;
  for (const int64_t one : values) all += (all.empty() ? "" : ",") + std::to_string(one);
  return "[" + all + "]";
}

Tensor tensor_of(const Object& of) {
  return {.type = of.get<int>(901),
          .id = of.get<int64_t>(906),
          .alignment = of.get<int64_t>(900),
          .sizes = of.all<int64_t>(902),
          .strides = of.all<int64_t>(903)};
}

void check_tensor(const Tensor& t) {
  require(t.type == kFloat32 || t.type == kFloat16 || t.type == kBrain16, kNoType,
          "only float32 and types of 16 bits are known to this machine");
  require(t.sizes.size() == t.strides.size(), kBadParameter,
          "a tensor has sizes " + text(t.sizes) + " and strides " + text(t.strides));
  for (const auto* list : {&t.sizes, &t.strides})
    require(std::ranges::all_of(*list, [](int64_t one) { return one > 0; }), kBadParameter,
            "sizes or strides of a tensor are not positive");
  require(t.alignment > 0 && t.alignment % element_bytes(t.type) == 0, kBadParameter,
          "the alignment of a tensor is not divisible by the size of its type");
  // Dense, in any order of the dimensions.
  std::vector<size_t> order;
  for (size_t d = 0; d < t.sizes.size(); ++d)
    if (t.sizes[d] > 1) order.push_back(d);
  std::ranges::sort(order, {}, [&](size_t d) { return t.strides[d]; });
  int64_t next = 1;
  for (const size_t d : order) {
    require(t.strides[d] == next, kNoLayout,
            "sizes " + text(t.sizes) + " with strides " + text(t.strides) +
                " are no dense tensor, and others are not known to this machine");
    next *= t.sizes[d];
  }
}

void check_convolution(const Object& of) {
  require(of.get<int>(100) == kFloat32, kNoType, "sums that are not float32 are not known to this machine");
  require(of.get<int>(101) == 1, kNotSupported, "a convolution that is no cross-correlation");
  const auto dimensions = static_cast<size_t>(of.get<int64_t>(106));
  require(dimensions == 2 || dimensions == 3, kNotSupported, "a convolution of other than 2 or 3 dimensions");
  for (const int list : {102, 103, 104, 105}) {
    const std::vector<int64_t> values = of.all<int64_t>(list);
    require(values.size() == dimensions, kBadParameter,
            std::to_string(values.size()) + " numbers for " + std::to_string(dimensions) + " dimensions");
    const int64_t least = list <= 103 ? 1 : 0;
    require(std::ranges::all_of(values, [&](int64_t one) { return one >= least; }), kBadParameter,
            "a dilation, a stride or a padding is too small");
  }
}

const Object& part(const Objects& objects, const Object& of, int attribute, Kind kind, const char* what) {
  return objects.at(of.get<const void*>(attribute), kind, what);
}

void check_shapes(const Convolution& c, const std::vector<int64_t>& pads_behind) {
  const size_t dimensions = c.strides.size();
  for (const Tensor* one : {&c.x, &c.w, &c.y})
    require(one->sizes.size() == dimensions + 2, kShapes,
            "a tensor " + text(one->sizes) + " in a convolution of " + std::to_string(dimensions) + " dimensions");
  const std::string sizes = "x " + text(c.x.sizes) + ", w " + text(c.w.sizes) + ", y " + text(c.y.sizes);
  require(c.x.sizes[0] == c.y.sizes[0], kShapes, sizes + ": other batches");
  require(c.x.sizes[1] % c.w.sizes[1] == 0 && c.w.sizes[0] % c.groups() == 0 && c.y.sizes[1] == c.w.sizes[0], kShapes,
          sizes + ": channels that do not fit");
  for (size_t d = 0; d < dimensions; ++d) {
    const int64_t room = c.x.sizes[d + 2] + c.pads[d] + pads_behind[d] - c.dilations[d] * (c.w.sizes[d + 2] - 1) - 1;
    require(room >= 0 && room / c.strides[d] + 1 == c.y.sizes[d + 2], kShapes,
            sizes + ": dimension " + std::to_string(d) + " of y should be " + std::to_string(room / c.strides[d] + 1));
  }
}

void check_graph(const Objects& objects, const Object& of) {
  objects.at(of.get<const void*>(800), kHandle, "the handle of a graph");
  const Object& operation = objects.at(of.get<const void*>(801), "the operation of a graph");
  require(operation.finalized, kNotFinalized, "the operation of a graph is not finalized");
  static_cast<void>(convolution_of(objects, operation));
}

void check_plan(const Objects& objects, const Object& of) {
  objects.at(of.get<const void*>(400), kHandle, "the handle of a plan");
  const Object& config = part(objects, of, 401, kConfig, "the configuration of a plan");
  require(config.graph != nullptr && objects.at(config.graph, kGraph, "the graph of a configuration").has(801),
          kBadParameter, "a configuration without a graph");
  require(config.engine != 3, kNoSharedMemory, "the engine has no room on this device");
}

void check_pack(const Object& of) {
  std::vector<int64_t> ids = of.all<int64_t>(1000);
  require(ids.size() == of.values.at(1001).size(), kBadParameter,
          std::to_string(ids.size()) + " identifiers and " + std::to_string(of.values.at(1001).size()) + " pointers");
  std::ranges::sort(ids);
  require(std::ranges::adjacent_find(ids) == ids.end(), kDuplicates, "an identifier is there twice in a pack");
}

}  // namespace

int64_t Tensor::bytes() const {
  return std::accumulate(sizes.begin(), sizes.end(), element_bytes(type), std::multiplies<>());
}

Convolution convolution_of(const Objects& objects, const Object& operation) {
  int first = 0;  // the attribute alpha; then come beta, the convolution, w, x, y
  switch (operation.kind) {
    case kForward:
      first = 700;
      break;
    case kGradInput:
      first = 706;
      break;
    case kGradWeight:
      first = 712;
      break;
    default:
      throw Refused(kNotSupported, "an operation that is not known to this machine");
  }
  const Object& how = part(objects, operation, first + 2, kConvolution, "the convolution of an operation");
  Convolution c{.what = operation.kind,
                .x = tensor_of(part(objects, operation, first + 4, kTensor, "the tensor x")),
                .w = tensor_of(part(objects, operation, first + 3, kTensor, "the tensor w")),
                .y = tensor_of(part(objects, operation, first + 5, kTensor, "the tensor y")),
                .strides = how.all<int64_t>(103),
                .dilations = how.all<int64_t>(102),
                .pads = how.all<int64_t>(105),
                .alpha = operation.get<float>(first),
                .beta = operation.get<float>(first + 1)};
  check_shapes(c, how.all<int64_t>(104));
  require(c.x.id != c.w.id && c.x.id != c.y.id && c.w.id != c.y.id, kDuplicates, "two tensors have one identifier");
  require(c.result().type == kFloat32, kNoType, "a result that is not float32 is not known to this machine");
  for (const Tensor* one : {&c.x, &c.w, &c.y})
    require(one == &c.result() || one->type == c.operand_type(), kNoType, "operands of different types");
  return c;
}

void check_descriptor(const Objects& objects, const Object& object) {
  for (const AttributeRow& row : attribute_rows())
    require(row.kind != object.kind || !row.required || object.has(row.number), kBadParameter,
            std::string("attribute ") + row.name + " is not set");
  switch (object.kind) {
    case kTensor:
      return check_tensor(tensor_of(object));
    case kConvolution:
      return check_convolution(object);
    case kForward:
    case kGradInput:
    case kGradWeight:
      return static_cast<void>(convolution_of(objects, object));
    case kGraph:
      return check_graph(objects, object);
    case kSuggestion: {
      part(objects, object, 201, kGraph, "the graph that engines are suggested for");
      const int mode = object.get<int>(200);
      return require(mode == 2 || mode == 3, kNotSupported, "a way to suggest engines that this machine does not know");
    }
    case kPlan:
      return check_plan(objects, object);
    case kPack:
      return check_pack(object);
    default:
      throw Refused(kNotSupported, "descriptors of this kind are not finalized by hand on this machine");
  }
}

}  // namespace epl::cuda_dnn
