// What the functions of the stand-in for cuDNN hand out, and how they refuse. Every descriptor is known, so that one
// that was destroyed, that is not finalized, or that is of another kind is found.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace epl::cuda_dnn {

enum Status : int {
  kSuccess = 0,
  kNotInitialized = 1001,
  kBadParameter = 2000,
  kNullPointer = 2002,
  kMisaligned = 2003,
  kNotFinalized = 2004,
  kShapes = 2008,
  kDuplicates = 2009,
  kAttributeType = 2010,
  kNotSupported = 3000,
  kNoType = 3003,
  kNoLayout = 3004,
  kNoSharedMemory = 3010,
  kExecutionFailed = 5000,
};

struct Refused : std::runtime_error {
  Refused(Status which, const std::string& why) : std::runtime_error("cuDNN: " + why), code(which) {}
  Status code;
};
inline void require(bool condition, Status code, const std::string& why) {
  if (!condition) throw Refused(code, why);
}

// Kinds of descriptors, types of attributes and attributes, by the numbers that the manual gives them.
enum Kind : int {
  kHandle = -1,
  kConvolution = 1,
  kEngine = 2,
  kConfig = 3,
  kSuggestion = 4,
  kPlan = 5,
  kForward = 10,
  kGradWeight = 11,
  kGradInput = 12,
  kGraph = 15,
  kPack = 16,
  kTensor = 17
};
enum AttributeType : int {
  kAsHandle = 0,
  kAsType = 1,
  kAsInteger = 3,
  kAsFloat = 4,
  kAsPointer = 6,
  kAsConvolutionMode = 7,
  kAsSuggestionMode = 8,
  kAsNote = 11,
  kAsDescriptor = 15
};

// An attribute of a kind: how many values it takes, and whether it must be there when the descriptor is finalized.
struct AttributeRow {
  int kind, number;
  AttributeType type;
  int64_t most;
  bool required;
  const char* name;
};
inline constexpr int64_t kMostDimensions = 8;
std::span<const AttributeRow> attribute_rows();

struct Object {
  Kind kind = kHandle;
  bool finalized = false;
  int device = 0;                               // of a handle
  void* stream = nullptr;                       // of a handle
  int engine = -1;                              // of an engine and of a configuration
  const Object* graph = nullptr;                // of a configuration
  std::map<int, std::vector<uint64_t>> values;  // by attribute, each value in the first bytes

  bool has(int attribute) const { return values.contains(attribute); }
  template <class T> std::vector<T> all(int attribute) const {
    std::vector<T> out;
    const auto found = values.find(attribute);
    if (found == values.end()) return out;
    for (const uint64_t bits : found->second) std::memcpy(&out.emplace_back(), &bits, sizeof(T));
    return out;
  }
  template <class T> T get(int attribute) const { return all<T>(attribute).at(0); }
};

class Objects {
 public:
  static Objects& get();
  Object* make(Kind kind);
  Object& at(const void* object, const char* what) const;
  // One that is finalized.
  const Object& at(const void* object, Kind kind, const char* what) const;
  void destroy(void* object);
  std::mutex mutex;

 private:
  // None is freed: its address would become another one's, and who still has it would not be found.
  std::vector<std::unique_ptr<Object>> all_;
  std::set<Object*> alive_;
};

const AttributeRow& attribute_row(const Object& object, int attribute, int type);
size_t bytes_of(AttributeType type);

// Checks a descriptor by itself and with those that it stands on.
void check_descriptor(const Objects& objects, const Object& object);

// What an operation computes, with sizes of three spatial dimensions, of which ones lead.
struct Tensor {
  int type = 0;
  int64_t id = 0, alignment = 1;
  std::vector<int64_t> sizes, strides;
  int64_t bytes() const;  // of all
  bool operator==(const Tensor&) const = default;
};
struct Convolution {
  Kind what = kForward;
  Tensor x, w, y;
  std::vector<int64_t> strides, dilations, pads;
  float alpha = 1, beta = 0;
  int64_t groups() const { return x.sizes[1] / w.sizes[1]; }
  const Tensor& result() const { return what == kForward ? y : what == kGradInput ? x : w; }
  int operand_type() const { return what == kForward ? x.type : what == kGradInput ? w.type : x.type; }
};
Convolution convolution_of(const Objects& objects, const Object& operation);

// Engines: their numbers are those of `engine_rows`.
struct Engine {
  const char* what;
  std::vector<int> notes;
  int64_t workspace;
};
Engine engine_of(const Convolution& convolution, int number);
// Those that are suggested, best first.
std::vector<int> suggested(const Convolution& convolution, int mode);

// Checks what is given beside the plan, and issues the command.
void execute(const Objects& objects, const Object& handle, const Object& plan, const Object& pack);

}  // namespace epl::cuda_dnn
