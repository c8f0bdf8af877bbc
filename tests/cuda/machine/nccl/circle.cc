#include "tests/cuda/machine/nccl/circle.h"

#include <algorithm>
#include <cstring>

#include "tests/cuda/machine/control.h"

extern "C" {
int cuCtxPushCurrent_v2(void* context);
int cuCtxPopCurrent_v2(void** context);
int cuEventRecord(void* event, void* stream);
int cuStreamWaitEvent(void* stream, void* event, unsigned flags);
}

namespace epl::cuda_nccl {
namespace {

struct TypeRow {
  int number;
  size_t bytes;
  const char* name;
};
constexpr TypeRow kTypes[] = {{0, 1, "i8"},  {1, 1, "u8"},  {2, 4, "i32"}, {3, 4, "u32"}, {4, 8, "i64"},
                              {5, 8, "u64"}, {6, 2, "f16"}, {7, 4, "f32"}, {8, 8, "f64"}, {9, 2, "bf16"}};

const TypeRow* row_of(int type) {
  for (const TypeRow& row : kTypes)
    if (row.number == type) return &row;
  return nullptr;
}

struct Bfloat {
  uint16_t bits;
  explicit operator float() const {
    const uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  Bfloat() = default;
  explicit Bfloat(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    bits = static_cast<uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
  }
};

// Begins at another rank for each element, as rings do: not the order of any tree.
template <class T, class Wide>
void add_up(const std::vector<const char*>& sources, size_t first, size_t count, char* target) {
  const size_t ranks = sources.size();
  for (size_t i = 0; i < count; ++i) {
    Wide sum{};
    for (size_t k = 0; k < ranks; ++k) {
      T value;
      std::memcpy(&value, sources[(i + k) % ranks] + (first + i) * sizeof(T), sizeof value);
      sum = k == 0 ? static_cast<Wide>(value) : static_cast<Wide>(sum + static_cast<Wide>(value));
    }
    const T rounded = static_cast<T>(sum);
    std::memcpy(target + i * sizeof(T), &rounded, sizeof rounded);
  }
}

void add_up(int type, const std::vector<const char*>& sources, size_t first, size_t count, char* target) {
  switch (type) {
    case 4:
      return add_up<int64_t, uint64_t>(sources, first, count, target);
    case 6:
      return add_up<_Float16, float>(sources, first, count, target);
    case 7:
      return add_up<float, float>(sources, first, count, target);
    case 8:
      return add_up<double, double>(sources, first, count, target);
    case 9:
      return add_up<Bfloat, float>(sources, first, count, target);
    default:
      break;
  }
}

}  // namespace

Sizes sizes_of(const Call& call, size_t ranks) {
  const size_t bytes = call.count * element_bytes(call.type);
  return {call.kind == Kind::reduce_scatter ? ranks * bytes : bytes,
          call.kind == Kind::all_gather ? ranks * bytes : bytes};
}

void finish(const Call& call, const std::vector<const char*>& sources, size_t rank, char* target) {
  const size_t bytes = call.count * element_bytes(call.type);
  switch (call.kind) {
    case Kind::all_reduce:
      return add_up(call.type, sources, 0, call.count, target);
    case Kind::reduce_scatter:
      return add_up(call.type, sources, rank * call.count, call.count, target);
    case Kind::all_gather:
      for (size_t r = 0; r < sources.size(); ++r) std::memcpy(target + r * bytes, sources[r], bytes);
      return;
    case Kind::broadcast:
      std::memcpy(target, sources[static_cast<size_t>(call.root)], bytes);
      return;
  }
}

namespace {

// What all ranks of a call share; it goes with the last command.
struct Shared {
  Call call;
  std::vector<std::vector<char>> sources;  // by rank, when its stream has come to the call
  std::vector<const char*> pointers() const {
    std::vector<const char*> all;
    for (const std::vector<char>& source : sources) all.push_back(source.data());
    return all;
  }
};
struct Turn {
  std::shared_ptr<Shared> shared;
  size_t rank;
};

int read(void* context, char* const* places) {
  const Turn& turn = *static_cast<Turn*>(context);
  std::vector<char>& to = turn.shared->sources[turn.rank];
  std::memcpy(to.data(), places[0], to.size());
  return 0;
}

int write(void* context, char* const* places) {
  const Turn& turn = *static_cast<Turn*>(context);
  finish(turn.shared->call, turn.shared->pointers(), turn.rank, places[0]);
  return 0;
}

void drop(void* context) { delete static_cast<Turn*>(context); }

void driver(int code, const char* what) {
  require(code == 0, kCudaFailed, std::string(what) + " gave " + std::to_string(code));
}

class Current {
 public:
  explicit Current(const End& end) { driver(cuCtxPushCurrent_v2(end.context), "the context"); }
  ~Current() {
    void* popped = nullptr;
    cuCtxPopCurrent_v2(&popped);
  }
  Current(const Current&) = delete;
};

void issue(const std::shared_ptr<Shared>& shared, size_t rank, const Call& call, const void* memory, size_t bytes,
           bool writes) {
  const epl_test_machine_rows rows = {reinterpret_cast<uint64_t>(memory), static_cast<int64_t>(bytes), 1,
                                      static_cast<int64_t>(bytes), writes ? 1 : 0};
  driver(epl_test_machine_issue(call.stream, call.text().c_str(), &rows, 1, writes ? write : read, drop,
                                new Turn{shared, rank}),
         call.text().c_str());
}

}  // namespace

std::string Call::text() const {
  const char* const names[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast"};
  const TypeRow* row = row_of(type);
  std::string out = std::string(names[static_cast<int>(kind)]) + " of " + std::to_string(count) + " x " +
                    (row == nullptr ? "nothing" : row->name);
  if (kind == Kind::broadcast) out += " from rank " + std::to_string(root);
  return out;
}

bool agree(const Call& a, const Call& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.how == b.how && a.root == b.root;
}

size_t element_bytes(int type) {
  const TypeRow* row = row_of(type);
  return row == nullptr ? 0 : row->bytes;
}

bool Circle::at_work() const {
  return std::ranges::any_of(calls, [](const std::weak_ptr<void>& call) { return !call.expired(); });
}

// First the sources are read, each when its stream comes to the call. Who writes waits for all of them.
void carry_out(Circle& circle, const std::vector<Call>& calls) {
  const size_t ranks = calls.size(), bytes = calls[0].count * element_bytes(calls[0].type);
  if (bytes == 0) return;
  const Kind kind = calls[0].kind;
  const auto [given, taken] = sizes_of(calls[0], ranks);
  auto shared = std::make_shared<Shared>();
  shared->call = calls[0];
  shared->sources.resize(ranks);
  std::erase_if(circle.calls, [](const std::weak_ptr<void>& call) { return call.expired(); });
  circle.calls.push_back(shared);
  for (size_t r = 0; r < ranks; ++r) {
    const Current current(*circle.ends[r]);
    if (kind != Kind::broadcast || static_cast<int>(r) == calls[0].root) {
      shared->sources[r].resize(given);
      issue(shared, r, calls[r], calls[r].source, given, false);
    }
    driver(cuEventRecord(circle.ends[r]->event, calls[r].stream), "an event");
  }
  for (size_t r = 0; r < ranks; ++r) {
    const Current current(*circle.ends[r]);
    for (size_t p = 0; p < ranks; ++p)
      if (p != r) driver(cuStreamWaitEvent(calls[r].stream, circle.ends[p]->event, 0), "waiting for an event");
    issue(shared, r, calls[r], calls[r].target, taken, true);
  }
}

}  // namespace epl::cuda_nccl
