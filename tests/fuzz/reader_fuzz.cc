// Every reader, over whatever bytes: an error, or samples of the types that its fields say. The first line names the
// reader and its options, `csv {classes=true}`; the rest is the file.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/ir/text.h"

namespace {

using namespace epl;

// The row's options; those of the first line that it has, of the type it has them in, take the place of the defaults.
Attributes options_of(const ReaderRow& row, TextReader& line) {
  Attributes out;
  auto given = line.attributes();
  for (const Option& option : row.options) {
    const Attribute* own = given.ok() ? given->find(option.name) : nullptr;
    out.set(option.name, own && own->index() == option.value.index() ? *own : option.value);
  }
  return out;
}

void read_samples(const Reader& reader) {
  const int64_t samples = reader.samples();
  for (int64_t i = 0; i < samples; i = i < 8 ? i + 1 : std::max(i + 1, samples - 1)) {
    for (size_t field = 0; field < reader.fields().size(); ++field) {
      std::vector<std::byte> target(static_cast<size_t>(reader.fields()[field].second.bytes()));
      if (!reader.read(i, static_cast<int>(field), target.data()).ok()) return;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint8_t* end = std::find(data, data + size, '\n');
  if (end == data + size) return 0;
  TextReader line(std::string_view(reinterpret_cast<const char*>(data), static_cast<size_t>(end - data)));
  std::string name;
  if (!line.next_line() || !line.name(name)) return 0;
  auto row = find_reader(name, "");
  if (name.empty() || !row.ok()) return 0;
  const int file = memfd_create("fuzz", 0);
  const ssize_t bytes = data + size - (end + 1);
  if (file < 0 || write(file, end + 1, static_cast<size_t>(bytes)) != bytes) std::abort();
  auto reader = (*row)->open({"/proc/self/fd/" + std::to_string(file), options_of(**row, line), EPL_PACK_FOLDER});
  if (reader.ok()) read_samples(**reader);
  close(file);
  return 0;
}
