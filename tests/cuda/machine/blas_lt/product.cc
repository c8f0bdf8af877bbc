// A product as its descriptors say it, checked against the manual, and its elements by loops.
#include <algorithm>
#include <cmath>
#include <memory>

#include "tests/cuda/machine/blas_lt/objects.h"
#include "tests/cuda/machine/control.h"

namespace epl::cuda_blas {
namespace {

constexpr int kComputeFloat32 = 68, kComputePedantic = 69;
constexpr uint32_t kNoEpilogue = 1, kAddBias = 4;

Product::Matrix matrix_of(const Object& layout, const std::string& name, int32_t* batch) {
  const auto type = layout.get<uint32_t>(kType);
  require(type == kFloat32 || type == kFloat16 || type == kBrain16, kNotSupported,
          name + ": only float32 and types of 16 bits are known to this machine");
  require(layout.get<int32_t>(kOrder) == 0, kNotSupported, name + ": only column-major order is known to this machine");
  require(layout.get<int64_t>(kPlane) == 0 && layout.get<uint32_t>(kBatchMode) == 0, kNotSupported,
          name + ": planes and arrays of pointers are not known to this machine");
  const auto rows = layout.get<uint64_t>(kRows), columns = layout.get<uint64_t>(kColumns);
  require(rows > 0 && columns > 0 && rows <= INT32_MAX && columns <= INT32_MAX, kInvalidValue,
          name + " has a size that is zero, or is no int32_t");
  const Product::Matrix matrix{static_cast<int64_t>(rows), static_cast<int64_t>(columns), layout.get<int64_t>(kLeading),
                               layout.get<int64_t>(kBatchStride), static_cast<Type>(type)};
  require(matrix.leading >= matrix.rows, kInvalidValue,
          name + " has " + std::to_string(matrix.rows) + " rows and a leading dimension of " +
              std::to_string(matrix.leading));
  *batch = layout.get<int32_t>(kBatch, 1);
  require(*batch >= 1, kInvalidValue, name + " has a batch of nothing");
  return matrix;
}

bool transposed(const Object& operation, int attribute) {
  const auto value = operation.get<int32_t>(attribute);
  require(value == 0 || value == 1, kNotSupported, "an operation that is neither N nor T");
  return value == 1;
}

void check_operation(const Object& operation) {
  const auto compute = operation.get<int32_t>(kComputeType), scale = operation.get<int32_t>(kScaleType);
  require(compute == kComputeFloat32 || compute == kComputePedantic, kNotSupported,
          "compute type " + std::to_string(compute) + ": only that of float32, without TF32, is known to this machine");
  require(scale == int32_t{kFloat32}, kNotSupported, "alpha and beta that are not float32");
  require(operation.get<int32_t>(kPointerMode) == 0, kNotSupported, "alpha and beta that are not the host's");
  require(operation.get<int32_t>(kTransposeC) == 0, kNotSupported, "a transposed C");
  require(operation.get<int32_t>(kFillMode, 2) == 2, kNotSupported, "a part of the result");
}

// The bytes of `matrix` in each product of the batch.
void add_rows(std::vector<epl_test_machine_rows>& rows, const Product::Matrix& matrix, int64_t batch, uint64_t address,
              bool writes) {
  const int64_t distinct = matrix.stride == 0 ? 1 : batch, bytes = matrix.bytes();
  for (int64_t i = 0; i < distinct; ++i)
    rows.push_back({address + static_cast<uint64_t>(bytes * i * matrix.stride), bytes * matrix.rows, matrix.columns,
                    bytes * matrix.leading, writes ? 1 : 0});
}

// Element `i` of an operand, as the manual says what its bits are worth.
double element(Type type, const char* data, int64_t i) {
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

struct Command {
  Product product;
  Algorithm algorithm;
  float alpha = 1, beta = 0;
  bool orders = false;
  size_t at_b = 0, at_c = 0, at_bias = 0, at_d = 0, at_workspace = 0;
  uint64_t workspace_bytes = 0;

  // How many terms are added exactly, before the sum is rounded: all, or as many as the algorithm and their number say.
  // An element's bits do not follow from how many others there are, as those of real kernels that do not split sums.
  int64_t block() const {
    const Product& p = product;
    if (!orders) return p.k;
    uint64_t hash = 1469598103934665603u;
    const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
    mix(static_cast<uint64_t>(p.k));
    for (const uint64_t part : {uint64_t(algorithm.id), uint64_t(algorithm.tile), uint64_t(algorithm.splits),
                                uint64_t(algorithm.stages), uint64_t(algorithm.reduction)})
      mix(part);
    return 1 + static_cast<int64_t>(hash % 29);
  }
  void run(char* const* places) const;
};

void Command::run(char* const* places) const {
  const Product& p = product;
  const auto place = [&](size_t first, const Product::Matrix& matrix, int64_t i) -> const char* {
    return places[first + static_cast<size_t>(matrix.stride == 0 ? 0 : i)];
  };
  const int64_t together = block();
  const int64_t a_row = p.transpose_a ? p.a.leading : 1, a_k = p.transpose_a ? 1 : p.a.leading;
  const int64_t b_k = p.transpose_b ? p.b.leading : 1, b_column = p.transpose_b ? 1 : p.b.leading;
  for (int64_t i = 0; i < p.batch; ++i) {
    const char *a = place(0, p.a, i), *b = place(at_b, p.b, i);
    const char* c = beta == 0 ? nullptr : place(at_c, p.c, i);
    const float* bias =
        p.has_bias ? reinterpret_cast<const float*>(places[at_bias + static_cast<size_t>(p.bias_stride == 0 ? 0 : i)])
                   : nullptr;
    auto* d = reinterpret_cast<float*>(places[at_d + static_cast<size_t>(p.d.stride == 0 ? 0 : i)]);
    for (int64_t column = 0; column < p.n; ++column) {
      for (int64_t row = 0; row < p.m; ++row) {
        float rounded = 0;
        double sum = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          sum += element(p.a.type, a, row * a_row + k * a_k) * element(p.b.type, b, k * b_k + column * b_column);
          if ((k + 1) % together != 0 && k + 1 < p.k) continue;
          if (together < p.k) {
            rounded += static_cast<float>(sum);
            sum = k + 1 < p.k ? 0 : double{rounded};
          }
        }
        double value = double{alpha} * sum;
        if (c != nullptr) value += double{beta} * element(p.c.type, c, column * p.c.leading + row);
        if (bias != nullptr) value = orders ? double{static_cast<float>(value)} + bias[row] : value + bias[row];
        d[column * p.d.leading + row] = static_cast<float>(value);
      }
    }
  }
  if (workspace_bytes > 0) std::memset(places[at_workspace], 0x5a, workspace_bytes);
}

}  // namespace

bool are_multiplied(Type a, Type b, Type c, Type d) { return a == b && c == kFloat32 && d == kFloat32; }

Product product_of(const Object& operation, const Object& a, const Object& b, const Object& c, const Object& d) {
  check_operation(operation);
  Product p;
  int32_t batch_a = 1, batch_b = 1, batch_c = 1, batch_d = 1;
  p.a = matrix_of(a, "A", &batch_a);
  p.b = matrix_of(b, "B", &batch_b);
  p.c = matrix_of(c, "C", &batch_c);
  p.d = matrix_of(d, "D", &batch_d);
  require(are_multiplied(p.a.type, p.b.type, p.c.type, p.d.type), kNotSupported,
          "A and B of different types, or C and D that are not float32");
  p.transpose_a = transposed(operation, kTransposeA);
  p.transpose_b = transposed(operation, kTransposeB);
  p.m = p.transpose_a ? p.a.columns : p.a.rows;
  p.k = p.transpose_a ? p.a.rows : p.a.columns;
  p.n = p.transpose_b ? p.b.rows : p.b.columns;
  const int64_t k_of_b = p.transpose_b ? p.b.columns : p.b.rows;
  require(p.k == k_of_b, kInvalidValue,
          "A has " + std::to_string(p.k) + " to sum over and B " + std::to_string(k_of_b));
  require(p.d.rows == p.m && p.d.columns == p.n, kInvalidValue,
          "the result is " + std::to_string(p.m) + " x " + std::to_string(p.n) + " and D " + std::to_string(p.d.rows) +
              " x " + std::to_string(p.d.columns));
  require(p.c.rows == p.d.rows && p.c.columns == p.d.columns, kInvalidValue, "C has other sizes than D");
  require(batch_a == batch_d && batch_b == batch_d && batch_c == batch_d, kInvalidValue,
          "the operands have batches of different lengths");
  p.batch = batch_d;
  for (const Product::Matrix* matrix : {&p.a, &p.b, &p.c, &p.d})
    require(p.batch == 1 || matrix->stride >= 0, kNotSupported, "a batch that goes backwards");
  require(p.batch == 1 || p.d.stride >= p.d.elements(), kInvalidValue,
          "the results of a batch lie over each other: each has " + std::to_string(p.d.elements()) +
              " elements, and they are " + std::to_string(p.d.stride) + " apart");
  const auto epilogue = operation.get<uint32_t>(kEpilogue, kNoEpilogue);
  require(epilogue == kNoEpilogue || epilogue == kAddBias, kNotSupported,
          "epilogue " + std::to_string(epilogue) + " is not known to this machine");
  p.has_bias = epilogue == kAddBias;
  p.bias = operation.get<uint64_t>(kBias);
  p.bias_stride = p.batch == 1 ? 0 : operation.get<int64_t>(kBiasStride);
  require(operation.get<int32_t>(kBiasType, -1) <= 0, kNotSupported, "a bias that is not float32");
  require(p.bias_stride == 0 || p.bias_stride >= p.m, kInvalidValue, "biases of a batch lie over each other");
  return p;
}

void multiply(const Product& p, const Algorithm& algorithm, const Pointers& at) {
  require(at.alpha != nullptr && at.beta != nullptr, kInvalidValue, "no alpha, or no beta");
  for (const void* scalar : {static_cast<const void*>(at.alpha), static_cast<const void*>(at.beta)})
    require(epl_test_machine_of_device(scalar) == 0, kInvalidValue, "alpha or beta is an address of a device");
  const Choice needs = check(algorithm, p);
  require(at.workspace_bytes >= needs.workspace, kInvalidValue,
          "the algorithm needs a workspace of " + std::to_string(needs.workspace) + " bytes and is given " +
              std::to_string(at.workspace_bytes));
  require(needs.workspace == 0 || (at.workspace != 0 && at.workspace % 256 == 0), kInvalidValue,
          "a workspace that is not aligned to 256 bytes");
  auto command = std::make_unique<Command>();
  *command = {.product = p, .algorithm = algorithm, .alpha = *at.alpha, .beta = *at.beta};
  const bool reads_c = command->beta != 0;
  require(!reads_c || at.c != at.d || (p.c.leading == p.d.leading && p.c.stride == p.d.stride), kInvalidValue,
          "C is D and lies otherwise");
  struct At {
    const char* name;
    const Product::Matrix& matrix;
    uint64_t address;
  };
  for (const At& one : {At{"A", p.a, at.a}, {"B", p.b, at.b}, {"C", p.c, reads_c ? at.c : at.d}, {"D", p.d, at.d}}) {
    const auto align = std::max<uint64_t>(algorithm.align, static_cast<uint64_t>(one.matrix.bytes()));
    require(one.address != 0 && one.address % align == 0, kInvalidValue,
            std::string(one.name) + " is not aligned to " + std::to_string(align) + " bytes, as the algorithm wants");
  }
  require(!p.has_bias || (p.bias != 0 && p.bias % 4 == 0), kInvalidValue, "an epilogue with a bias and no bias");
  std::vector<epl_test_machine_rows> rows;
  add_rows(rows, p.a, p.batch, at.a, false);
  command->at_b = rows.size();
  add_rows(rows, p.b, p.batch, at.b, false);
  command->at_c = rows.size();
  if (reads_c) add_rows(rows, p.c, p.batch, at.c, false);
  command->at_bias = rows.size();
  if (p.has_bias) add_rows(rows, {p.m, 1, p.m, p.bias_stride}, p.batch, p.bias, false);
  command->at_d = rows.size();
  add_rows(rows, p.d, p.batch, at.d, true);
  command->at_workspace = rows.size();
  command->workspace_bytes = needs.workspace;
  if (needs.workspace > 0)
    rows.push_back({at.workspace, static_cast<int64_t>(needs.workspace), 1, static_cast<int64_t>(needs.workspace), 1});
  command->orders = epl_test_machine_count("orders") != 0;
  const int code = epl_test_machine_issue(
      at.stream, "a product of cuBLASLt", rows.data(), static_cast<int>(rows.size()),
      [](void* context, char* const* places) {
        static_cast<const Command*>(context)->run(places);
        return 0;
      },
      [](void* context) { delete static_cast<Command*>(context); }, command.release());
  if (code != 0) throw code;  // the driver has said why
}

}  // namespace epl::cuda_blas
