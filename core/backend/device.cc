#include "core/backend/device.h"

#include <charconv>
#include <mutex>
#include <utility>

#include "core/base/check.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"

namespace epl {
namespace {

struct Added {
  std::mutex mutex;
  BackendTable table;
};
Added& added() {
  static Added all;
  return all;
}

// "0,2"; a sheet's name begins with a letter or is that of a file.
bool is_numbers(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789,") == std::string_view::npos;
}

Result<std::vector<int>> numbers_of(std::string_view text) {
  std::vector<int> numbers;
  for (const char *at = text.data(), *const end = at + text.size();; ++at) {
    int number = 0;
    const auto [behind, code] = std::from_chars(at, end, number);
    if (code != std::errc()) return invalid("devices ", shown(text), ": numbers with commas between them, like 0,2");
    numbers.push_back(number);
    at = behind;
    if (at == end) return numbers;
  }
}

Result<std::shared_ptr<Device>> open_numbered(const BackendRow& row, std::string_view text, const Host& host,
                                              DeviceOptions options) {
  if (!row.numbered) return invalid("device ", row.name, " is one alone, so that its name stands alone: ", row.name);
  EPL_ASSIGN(options.numbers, numbers_of(text));
  return row.open(host, options);
}

Result<std::shared_ptr<Device>> plan_for(const BackendRow& row, DeviceSheet sheet, const Host& host,
                                         const DeviceOptions& options) {
  if (options.machine) sheet.machine = *options.machine;
  return row.plan_for(host, sheet);
}

Result<std::shared_ptr<Device>> open_sheet(const BackendRow& row, std::string_view name, const Host& host,
                                           const DeviceOptions& options) {
  std::vector<std::string> known;
  for (const DeviceSheet& sheet : row.sheets) known.push_back(sheet.name);
  if (known.empty())
    return invalid("device ", row.name, " has no sheets to plan by, so that its name stands alone: ", row.name);
  for (const DeviceSheet& sheet : row.sheets) {
    if (sheet.name == name) return plan_for(row, sheet, host, options);
  }
  if (!name.ends_with(".json"))
    return error(Code::not_found, "device ", row.name, " has no sheet ", shown(name), ", and FILE.json is one",
                 row.numbered ? cat("; devices of this machine have numbers, as in ", row.name, ":0,2") : "",
                 choices(name, known));
  EPL_ASSIGN(DeviceSheet own, read_device_sheet(std::string(name)));
  return plan_for(row, std::move(own), host, options);
}

}  // namespace

void add_backend(BackendRow row) {
  std::lock_guard lock(added().mutex);
  added().table.rows.push_back(std::move(row));
}

Result<std::shared_ptr<Device>> open_device(std::string_view name, const Host& host, const DeviceOptions& options) {
  // Names of backends and sheets have no such sign.
  if (const size_t at = name.find('@'); at != std::string_view::npos) {
    const std::string table(name.substr(at + 1));
    if (table.empty()) return invalid("device ", shown(name), " names no file of a table behind its @");
    EPL_ASSIGN(Machine machine, read_machine_table(table));
    DeviceOptions by_table = options;
    by_table.machine = std::make_shared<const Machine>(std::move(machine));
    return open_device(name.substr(0, at), host, by_table);
  }
  BackendTable known;
  {
    std::lock_guard lock(added().mutex);
    known = added().table;
  }
  for (const BackendRow& row : backend_table().rows) known.rows.push_back(row);
  const size_t colon = name.find(':');
  EPL_ASSIGN(const BackendRow* row, find_named(known, name.substr(0, colon), "device"));
  if (colon == std::string_view::npos) return row->open(host, options);
  const std::string_view which = name.substr(colon + 1);
  return is_numbers(which) ? open_numbered(*row, which, host, options) : open_sheet(*row, which, host, options);
}

void Stream::guard(const int64_t* verdict) {
  EPL_CHECK(verdict == nullptr, "a stream of a device that guards nothing");
}

void Stream::fetch(void*, const void*, int64_t) { EPL_CHECK(false, "a stream of a device that has one memory"); }
void Stream::evict(void*, const void*, int64_t) { EPL_CHECK(false, "a stream of a device that has one memory"); }

Result<std::unique_ptr<Buffer>> Device::allocate_in(MemoryKind kind, int64_t bytes) {
  if (kind == MemoryKind::device) return allocate(bytes);
  return unsupported("memory of the kind ", memory_kind_name(kind), " for ", description());
}

Result<Buffers> allocate_each(Device& device, const MemoryBytes& bytes) {
  Buffers out;
  for (const MemoryKind kind : memory_kinds) {
    if (kind != MemoryKind::device && bytes[kind] == 0) continue;
    EPL_ASSIGN(out[kind], device.allocate_in(kind, bytes[kind]));
  }
  return out;
}

Result<std::unique_ptr<Communicator>> Device::join(const Joining& joining, Rendezvous&) {
  return unsupported("group ", joining.group, ": the ranks of this device (", description(), ") are of one process");
}

}  // namespace epl
