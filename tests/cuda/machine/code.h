// A function of PTX made ready to run: a flat list of instructions, each with the C++ function that carries it out and
// with its operands as places of registers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/machine/memory.h"
#include "tests/cuda/machine/ptx.h"

namespace epl::cuda_machine {

constexpr int kLanes = 32;

// Where the spaces lie among the generic addresses. Device memory is at its own addresses.
constexpr uint64_t kSharedWindow = uint64_t{1} << 56;
constexpr uint64_t kLocalWindow = uint64_t{2} << 56;
constexpr uint64_t kParameterWindow = uint64_t{3} << 56;
constexpr uint64_t kWindowSize = uint64_t{1} << 40;

enum class Space : uint8_t { generic, global, shared, local, parameter, frame };

// What the loop over instructions does itself.
enum class Flow : uint8_t { plain, branch, table, call, leave, exit, barrier, warp };

class Warp;
struct Code;
struct Instr;
using Run = void (*)(Warp&, const Instr&);

// Bytes that a call copies from one frame into another.
struct Pass {
  uint32_t to = 0, from = 0, bytes = 0;
};

// Operands: a register's number, or ~ of a constant's.
struct Instr {
  Run run = nullptr;
  int32_t d = 0, d2 = -1, a = 0, b = 0, c = 0, e = 0;
  int32_t more[8] = {};  // the registers of a vector
  int64_t offset = 0;    // of an address
  int32_t guard = -1;
  bool guard_not = false;
  Flow flow = Flow::plain;
  Space space = Space::generic;
  uint8_t bytes = 0;  // of one element
  uint8_t count = 1;  // of elements
  uint8_t mode = 0;   // what the instruction's function wants to know besides
  bool strong = false;
  bool read_only = false;  // through the cache that does not see what the kernel writes
  uint32_t target = 0;
  uint32_t where = 0;
  const Code* callee = nullptr;
  std::vector<uint32_t> targets;       // of a table
  std::vector<Pass> passed;            // to a callee
  std::vector<Pass> given;             // and back
  mutable Allocation* last = nullptr;  // where it found its memory last
};

struct Parameter {
  uint32_t at = 0, bytes = 0;
};

struct Code {
  std::string name;
  bool entry = false;
  std::vector<Instr> instructions;
  std::vector<uint64_t> constants;  // each 32 times
  uint32_t registers = 0;
  uint32_t frame = 0;                 // bytes of local memory and of parameters, for each thread
  std::vector<Parameter> parameters;  // of a kernel: in its buffer; of a function: in its frame
  std::vector<Parameter> results;     // in its frame
  std::vector<Parameter> shared;      // the variables, with gaps between them
  uint32_t shared_bytes = 0;          // with the gaps
  uint32_t shared_wanted = 0;         // as the driver counts
  bool dynamic_shared = false;        // behind shared_bytes
  int64_t threads[3] = {0, 0, 0};
  std::vector<const Code*> callees;
};

// A place in a source, for messages.
struct Site {
  std::string file;
  uint32_t line = 0;
  std::string text;
  std::string words() const;
};

// All places of all modules. Number 0 is none.
class Sites {
 public:
  uint32_t add(Site site) {
    sites_.push_back(std::move(site));
    return static_cast<uint32_t>(sites_.size());
  }
  const Site& operator[](uint32_t number) const { return sites_.at(number - 1); }

 private:
  std::vector<Site> sites_;
};

struct Module {
  int target = 0;  // 90: sm_90
  std::map<std::string, std::unique_ptr<Code>> codes;
  std::map<std::string, Allocation*> variables;
};

// Parses and decodes. Variables are allocated; their memory is the module's.
std::unique_ptr<Module> load(std::string_view text, DeviceMemory& memory, int device, bool races, Sites& sites);

}  // namespace epl::cuda_machine
