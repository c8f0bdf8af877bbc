// The page that a training run leaves behind: loss curve and memory plan as SVG in one self-contained HTML file.
//
// Pure functions: data in, text out; nothing is read, timed or printed here. Everything that comes from a file (names,
// sample text) is escaped. No script, no font and no address is fetched: the page opens from a disk without a network.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace epl::tools {

// One curve over steps; values in the unit of the chart's axis.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (step, value), steps ascending
};

// A level to compare with, drawn as a dashed line: the loss of a unigram model, say.
struct Level {
  std::string name;
  double value = 0;
};

// A range of the arena: bytes [offset, offset + bytes) hold `name` while instructions [first, last] run.
struct MemoryRange {
  std::string name;
  std::string kind;  // parameter, state, input, activation, gradient, scratch, ...: decides the colour
  int64_t offset = 0, bytes = 0;
  int64_t first = 0, last = 0;
};

struct Report {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // shown as a table, in this order
  std::string loss_unit;                                   // "nats per byte"
  std::vector<Curve> curves;
  std::vector<Level> levels;
  int64_t arena_bytes = 0;
  int64_t instruction_count = 0;
  std::vector<MemoryRange> memory;
  std::string sample;  // text that the trained model wrote; may be empty
};

// The SVG of the curves and levels alone; an empty chart says so in words.
std::string render_curves(const std::vector<Curve>& curves, const std::vector<Level>& levels, std::string_view unit);

// The SVG of the memory plan: instructions from left to right, addresses from bottom to top. Ranges too thin to see
// (below a third of a pixel) are merged into one rectangle per kind and pixel, so that the page stays small for any model.
std::string render_memory(const std::vector<MemoryRange>& memory, int64_t arena_bytes, int64_t instruction_count);

// The whole page.
std::string render_report(const Report& report);

// "1,234,567" and "12.3 MiB", as the page and the command line write them.
std::string with_thousands(int64_t n);
std::string readable_bytes(int64_t bytes);

}  // namespace epl::tools
