// Runs a fuzz target over a corpus without libFuzzer: `fuzz_NAME FOLDER [MUTATIONS]`. Every file is tried as it is, cut
// short, and under so many seeded mutations (default 200), so that the ordinary suite looks a little further than the
// corpus and does the same each time. A crash, a sanitizer's report or an exception that gets out is the failure.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

uint64_t next_random(uint64_t& state) {  // xorshift64* (Vigna 2016)
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545f4914f6cdd1dull;
}

// A few bytes changed, a run removed, doubled or taken from another file, or a size field made huge.
void mutate(Bytes& bytes, const Bytes& other, uint64_t& random) {
  for (int edits = 1 + static_cast<int>(next_random(random) % 4); edits > 0 && !bytes.empty(); --edits) {
    const size_t at = next_random(random) % bytes.size();
    const size_t run = std::min<size_t>(1 + next_random(random) % 16, bytes.size() - at);
    switch (next_random(random) % 6) {
      case 0:
        bytes[at] ^= static_cast<uint8_t>(1u << (next_random(random) % 8));
        break;
      case 1:
        bytes[at] = static_cast<uint8_t>(next_random(random));
        break;
      case 2:
        bytes.erase(bytes.begin() + static_cast<long>(at), bytes.begin() + static_cast<long>(at + run));
        break;
      case 3: {
        const Bytes copy(bytes.begin() + static_cast<long>(at), bytes.begin() + static_cast<long>(at + run));
        bytes.insert(bytes.begin() + static_cast<long>(at), copy.begin(), copy.end());
        break;
      }
      case 4:
        if (!other.empty()) {
          const size_t from = next_random(random) % other.size(), length = std::min<size_t>(run, other.size() - from);
          bytes.insert(bytes.begin() + static_cast<long>(at), other.begin() + static_cast<long>(from),
                       other.begin() + static_cast<long>(from + length));
        }
        break;
      case 5:
        for (size_t i = at; i < at + std::min<size_t>(run, 8); ++i) bytes[i] = 0xff;
        break;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [MUTATIONS]\n", argv[0]);
    return 2;
  }
  const long mutations = argc > 2 ? std::atol(argv[2]) : 200;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s holds no file\n", argv[1]);
    return 1;
  }
  long runs = 0;
  LLVMFuzzerTestOneInput(nullptr, 0);
  for (size_t i = 0; i < corpus.size(); ++i) {
    const Bytes& seed = corpus[i];
    LLVMFuzzerTestOneInput(seed.data(), seed.size());
    const size_t step = seed.size() / 64 + 1;
    for (size_t length = 0; length < seed.size(); length += step, ++runs) {
      const Bytes cut(seed.begin(), seed.begin() + static_cast<long>(length));
      LLVMFuzzerTestOneInput(cut.data(), cut.size());
    }
    uint64_t random = 0x9e3779b97f4a7c15ull * (i + 1);
    for (long k = 0; k < mutations; ++k, ++runs) {
      Bytes bytes = seed;
      mutate(bytes, corpus[next_random(random) % corpus.size()], random);
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
  }
  std::printf("%zu files, %ld variants\n", corpus.size(), runs);
  return 0;
}
