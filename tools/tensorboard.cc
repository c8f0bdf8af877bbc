#include "tools/tensorboard.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <protozero/pbf_writer.hpp>

#include "tools/api.h"
#include "tools/clock.h"

namespace epl::tools {
namespace {

// Fields of tensorboard.Event, Summary and Summary.Value (event.proto, summary.proto of TensorBoard).
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5;
constexpr int kValue = 1;
constexpr int kTag = 1, kSimpleValue = 2;

std::string little_endian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

// The masked checksum of TensorFlow's record format: rotated and shifted, because checksums of data that holds
// checksums are weak.
std::string masked(std::string_view bytes) {
  const uint32_t sum = crc32c(bytes);
  return little_endian(((sum >> 15) | (sum << 17)) + 0xa282ead8u, 4);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t rest = i;
      for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) ? 0x82f63b78u : 0);
      out[i] = rest;
    }
    return out;
  }();
  uint32_t sum = ~0u;
  for (unsigned char byte : bytes) sum = table[(sum ^ byte) & 0xff] ^ (sum >> 8);
  return ~sum;
}

TensorBoard::TensorBoard(const std::string& folder, HostLog& log) : log_(log) {
  path_ = folder + "/events.out.tfevents." + std::to_string(static_cast<int64_t>(unix_seconds())) + "." +
          std::to_string(::getpid()) + ".epl";
  ::mkdir(folder.c_str(), 0777);
  file_ = std::fopen(path_.c_str(), "wb");
  if (file_ == nullptr) throw ApiError(EPL_ERROR_IO, "cannot write " + path_ + ": " + std::strerror(errno), path_);
  std::string event;
  protozero::pbf_writer writer(event);
  writer.add_double(kWallTime, unix_seconds());
  writer.add_string(kFileVersion, "brain.Event:2");
  record(event);
}

TensorBoard::~TensorBoard() {
  if (file_ != nullptr) std::fclose(file_);
}

void TensorBoard::record(const std::string& event) {
  const std::string length = little_endian(event.size(), 8), record = length + masked(length) + event + masked(event);
  if (file_ == nullptr) return;
  const bool written = std::fwrite(record.data(), 1, record.size(), file_) == record.size();
  const bool due = unix_seconds() - flushed_ > 1;  // TensorBoard reads while we write
  if (written && (!due || std::fflush(file_) == 0)) {
    if (due) flushed_ = unix_seconds();
    return;
  }
  give_up();
}

// A missing curve must not end a training: it is reported once, and readers stop at the last complete record.
void TensorBoard::give_up() {
  log_.add(path_ + ": " + std::strerror(errno) + "; it is not written any further");
  std::fclose(file_);
  file_ = nullptr;
}

void TensorBoard::scalar(int64_t step, const std::string& tag, double value) {
  std::string event;
  {
    protozero::pbf_writer writer(event);
    writer.add_double(kWallTime, unix_seconds());
    writer.add_int64(kStep, step);
    protozero::pbf_writer summary(writer, kSummary), one(summary, kValue);
    one.add_string(kTag, tag);
    one.add_float(kSimpleValue, static_cast<float>(value));
  }
  record(event);
}

void TensorBoard::step(const StepDone& e) {
  scalar(e.step, "train/loss", e.loss);
  scalar(e.step, "train/learning_rate", e.learning_rate);
  if (e.gradient_norm >= 0) scalar(e.step, "train/gradient_norm", e.gradient_norm);
  scalar(e.step, "train/epoch", e.epoch);
  if (!e.scales()) return;
  scalar(e.step, "train/loss_scale", e.loss_scale);
  scalar(e.step, "train/skipped_steps", static_cast<double>(e.skipped_steps));
}

void TensorBoard::evaluated(const Evaluated& e) {
  for (const auto& [name, value] : e.metrics) scalar(e.step, "validation/" + name, value);
}

void TensorBoard::done(const JobDone&) {
  if (file_ != nullptr && std::fflush(file_) != 0) give_up();
}

}  // namespace epl::tools
