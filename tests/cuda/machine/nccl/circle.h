// What the stand-in for NCCL hands out: circles of devices of one process, and their ends. Every end is known, so that
// one that was destroyed is found.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace epl::cuda_nccl {

enum Code : int {
  kSuccess = 0,
  kCudaFailed = 1,
  kSystemFailed = 2,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kInProgress = 7
};

struct Refused : std::runtime_error {
  Refused(Code which, const std::string& why) : std::runtime_error("NCCL: " + why), code(which) {}
  Code code;
};
inline void require(bool condition, Code code, const std::string& why) {
  if (!condition) throw Refused(code, why);
}

enum class Kind : uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };

// One call of one end.
struct Call {
  Kind kind = Kind::all_reduce;
  const void* source = nullptr;
  void* target = nullptr;
  size_t count = 0;
  int type = 0, how = 0, root = 0;
  void* stream = nullptr;
  std::string text() const;  // "ncclAllReduce of 8 x f32"
};
bool agree(const Call& a, const Call& b);
// Bytes of an element; 0: no such type.
size_t element_bytes(int type);

struct Circle;
struct End {
  Circle* circle = nullptr;
  int rank = 0, device = 0;
  void* context = nullptr;  // retained
  void* event = nullptr;
};
class Meeting;  // tests/cuda/machine/nccl/meeting.h
struct Circle {
  std::vector<std::unique_ptr<End>> ends;  // null once it is gone
  std::vector<std::weak_ptr<void>> calls;  // gone when a call is done on all ranks
  // Where the only end is one of several processes'.
  std::shared_ptr<Meeting> meeting;
  bool at_work() const;
};

// What a call gives to a rank, of the sources of all.
void finish(const Call& call, const std::vector<const char*>& sources, size_t rank, char* target);
struct Sizes {
  size_t given, taken;  // bytes of the source and of the target
};
Sizes sizes_of(const Call& call, size_t ranks);

// What calls of a circle do: `calls` by rank. Throws what the driver refuses.
void carry_out(Circle& circle, const std::vector<Call>& calls);

}  // namespace epl::cuda_nccl
