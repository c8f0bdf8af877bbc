#include "frontends/onnx/model_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "core/base/memory.h"
#include "core/base/shown.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {

namespace {

constexpr size_t large_tensor = size_t{64} << 10;  // less raw data than this is read with what stands around it
constexpr size_t window = size_t{64} << 10;

// The messages on the way to raw data. Whatever is not listed is read as it comes.
enum class Message : uint8_t { none, model, graph, function, node, attribute, tensor };
struct Step {
  Message in;
  uint32_t field;
  Message to;
};
constexpr Step steps[] = {{Message::model, schema::ModelProto::graph, Message::graph},
                          {Message::model, schema::ModelProto::functions, Message::function},
                          {Message::graph, schema::GraphProto::initializer, Message::tensor},
                          {Message::graph, schema::GraphProto::node, Message::node},
                          {Message::function, schema::FunctionProto::node, Message::node},
                          {Message::node, schema::NodeProto::attribute, Message::attribute},
                          {Message::attribute, schema::AttributeProto::t, Message::tensor},
                          {Message::attribute, schema::AttributeProto::g, Message::graph}};

Message step(Message in, uint64_t field) {
  const auto* found = std::ranges::find_if(steps, [&](const Step& one) { return one.in == in && one.field == field; });
  return found == std::end(steps) ? Message::none : found->to;
}

}  // namespace

// Walks over the fields of a file (https://protobuf.dev/programming-guides/encoding) from beginning to end, and reads
// all but large raw data on the way. If it does not understand something, it reads the rest and stops; the parser then
// reports what is wrong.
class Scanner {
 public:
  Scanner(ModelBytes& target, const FileReader& file, const Stop& stop) : target_(target), file_(file), stop_(stop) {}

  Status run() {
    bool fine = true;
    EPL_TRY(message(Message::model, target_.size_, 0, fine));
    return read_to(target_.size_);
  }

 private:
  static constexpr int max_depth = 16;  // graphs inside graphs beyond that are read completely

  Status read_to(size_t end) {
    if (end <= read_) return {};
    EPL_TRY(stop_.check());
    const size_t wanted = std::min(std::max(end, read_ + window), target_.size_);
    EPL_TRY(file_.read(read_, target_.data_ + read_, wanted - read_));
    read_ = wanted;
    return {};
  }

  // `fine` becomes false if the bytes are not fields.
  Status message(Message kind, size_t end, int depth, bool& fine) {
    while (fine && at_ < end) {
      uint64_t key = 0, length = 0;
      EPL_TRY(varint(end, key, fine));
      if (!fine) return {};
      switch (key & 7) {
        case 0:
          EPL_TRY(varint(end, length, fine));
          continue;
        case 1:
          fine = skip(8, end);
          continue;
        case 5:
          fine = skip(4, end);
          continue;
        case 2:
          break;
        default:
          fine = false;
          continue;
      }
      EPL_TRY(varint(end, length, fine));
      if (!fine || length > end - at_) {
        fine = false;
        return {};
      }
      const Message inner = step(kind, key >> 3);
      if (kind == Message::tensor && key >> 3 == schema::TensorProto::raw_data && length >= large_tensor) {
        leave_out(at_, at_ + length);
      } else if (inner != Message::none && depth < max_depth) {
        EPL_TRY(message(inner, at_ + length, depth + 1, fine));
        continue;
      }
      at_ += length;
    }
    return {};
  }

  Status varint(size_t end, uint64_t& out, bool& fine) {
    out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ >= end) break;
      EPL_TRY(read_to(at_ + 1));
      const auto byte = static_cast<uint64_t>(target_.data_[at_++]);
      out |= (byte & 0x7f) << shift;
      if (byte < 0x80) return {};
    }
    fine = false;
    return {};
  }

  bool skip(size_t bytes, size_t end) {
    if (bytes > end - at_) return false;
    at_ += bytes;
    return true;
  }

  void leave_out(size_t begin, size_t end) {
    begin = std::max(begin, read_);  // the window that holds its tag may reach into it, but does not end before it
    if (begin >= end) return;
    target_.left_out_.push_back({begin, end});
    read_ = end;
  }

  ModelBytes& target_;
  const FileReader& file_;
  const Stop& stop_;
  size_t at_ = 0;    // the next field
  size_t read_ = 0;  // everything before it has been read or left out
};

ModelBytes::~ModelBytes() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<std::shared_ptr<const ModelBytes>> ModelBytes::open(const ModelSource& source) {
  std::shared_ptr<ModelBytes> out(new ModelBytes());
  out->source_ = source;
  out->source_.stop = {};
  EPL_TRY(out->read(source.stop));
  return std::shared_ptr<const ModelBytes>(std::move(out));
}

Status ModelBytes::read(const Stop& stop) {
  const FileReader& file = *source_.file;
  // Those of the file system are limited by it. A host may say anything.
  constexpr uint64_t most = uint64_t{1} << 46;
  size_ = file.size();
  if (size_ == 0) return {};
  void* memory =
      size_ > most ? MAP_FAILED
                   : ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return Status(Code::out_of_memory, cat("there is no room for the ", size_, " bytes of ", shown_path(file.path())),
                  file.path());
  data_ = static_cast<std::byte*>(memory);
  EPL_TRY(Scanner(*this, file, stop).run());
  if (left_out_.empty()) source_.file.reset();
  return {};
}

std::shared_ptr<const ModelBytes> ModelBytes::copy(std::span<const std::byte> bytes, const ModelSource& source) {
  std::shared_ptr<ModelBytes> out(new ModelBytes());
  out->source_.beside = source.beside;
  if (bytes.empty()) return out;
  void* memory = ::mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw OutOfMemory(bytes.size());
  out->data_ = static_cast<std::byte*>(memory);
  out->size_ = bytes.size();
  std::memcpy(memory, bytes.data(), bytes.size());
  return out;
}

std::span<const ModelBytes::Range> ModelBytes::left_out(size_t begin, size_t end) const {
  const auto first = std::ranges::upper_bound(left_out_, begin, {}, &Range::end);
  const auto last = std::ranges::lower_bound(first, left_out_.end(), end, {}, &Range::begin);
  return {first, last};
}

Result<epl::Tensor> ModelBytes::tensor(const std::shared_ptr<const ModelBytes>& bytes, TensorType type,
                                       std::string_view part) {
  const auto* start = reinterpret_cast<const std::byte*>(part.data());
  if (bytes && !part.empty()) {
    const auto begin = static_cast<size_t>(start - bytes->data_);
    if (!bytes->left_out(begin, begin + part.size()).empty())
      return file_tensor(bytes->source_.file, std::move(type), begin);
  }
  epl::Tensor borrowed(type, bytes, start);
  return reinterpret_cast<uintptr_t>(start) % dtype_bytes(type.dtype) == 0 ? borrowed : borrowed.clone();
}

Status ModelBytes::append(std::string& out, std::string_view part) const {
  const size_t begin = static_cast<size_t>(reinterpret_cast<const std::byte*>(part.data()) - data_), at = out.size();
  out += part;
  for (const Range& range : left_out(begin, begin + part.size())) {
    const size_t from = std::max(range.begin, begin), to = std::min(range.end, begin + part.size());
    EPL_TRY(source_.file->read(from, out.data() + at + (from - begin), to - from));
  }
  return {};
}

Result<std::shared_ptr<const FileReader>> ModelBytes::beside(const std::string& location) const {
  {
    std::lock_guard lock(mutex_);
    if (const auto known = beside_.find(location); known != beside_.end()) return known->second;
  }
  if (!source_.beside)
    return Status(Code::invalid_model, cat("its external data ", shown(location, 200),
                                           " cannot be found: the model was loaded "
                                           "from memory, without a way to what lies beside it"));
  EPL_ASSIGN(std::shared_ptr<const FileReader> file, source_.beside(location));  // no lock: it may be the host's
  std::lock_guard lock(mutex_);
  return beside_.emplace(location, std::move(file)).first->second;
}

}  // namespace epl::onnx
