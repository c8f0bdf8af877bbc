#include "tools/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

namespace epl::tools {
namespace {

// A chart's box in pixels: the plot lies inside the margins.
constexpr double kWidth = 900, kHeight = 360, kLeft = 70, kRight = 20, kTop = 16, kBottom = 40;
constexpr const char* kColours[] = {"#1f6feb", "#d1570b", "#2da44e", "#8250df", "#bf3989", "#57606a"};

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", v);
  return text;
}

// Pixels, to a tenth: more digits would be most of the file.
std::string px(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", v);
  return text;
}

std::string escape(std::string_view text) {
  std::string out;
  for (unsigned char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\n': case '\t': out += static_cast<char>(c); break;
      default:
        // Sample text is bytes of a model: what is not ASCII might not be UTF-8 either.
        if (c < 0x20 || c >= 0x7f) {
          char code[8];
          std::snprintf(code, sizeof code, "\\x%02x", c);
          out += code;
        } else {
          out += static_cast<char>(c);
        }
    }
  }
  return out;
}

// A step of 1, 2 or 5 times a power of ten that gives about `wanted` marks over `range`.
double tick_step(double range, int wanted) {
  if (!(range > 0)) return 1;
  const double raw = range / wanted, power = std::pow(10, std::floor(std::log10(raw)));
  for (double m : {1.0, 2.0, 5.0}) {
    if (raw <= m * power) return m * power;
  }
  return 10 * power;
}

// Where an axis has its marks. Counted, not added up: next to a large number a small step changes nothing, and a loop that waited for the
// end would never see it.
std::vector<double> ticks(double from, double to, int wanted) {
  const double step = tick_step(to - from, wanted), first = std::ceil(from / step);
  std::vector<double> out;
  for (int i = 0; i <= 2 * wanted + 2; ++i) {
    const double v = (first + i) * step;
    if (!(v <= to + step * 1e-9)) break;
    if (out.empty() || v != out.back()) out.push_back(v);
  }
  return out;
}

// Maps data to pixels and draws the frame.
struct Axes {
  double x0, x1, y0, y1;
  double x(double v) const { return kLeft + (v - x0) / (x1 - x0) * (kWidth - kLeft - kRight); }
  double y(double v) const { return kHeight - kBottom - (v - y0) / (y1 - y0) * (kHeight - kTop - kBottom); }
};

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return "<line x1=\"" + px(x1) + "\" y1=\"" + px(y1) + "\" x2=\"" + px(x2) + "\" y2=\"" + px(y2) + "\" " + style + "/>\n";
}

std::string label(double x, double y, const char* anchor, std::string_view text) {
  return "<text x=\"" + px(x) + "\" y=\"" + px(y) + "\" text-anchor=\"" + anchor + "\">" + escape(text) + "</text>\n";
}

std::string open_svg(std::string_view about) {
  return "<svg viewBox=\"0 0 " + number(kWidth) + " " + number(kHeight) + "\" role=\"img\" aria-label=\"" + escape(about) +
         "\" xmlns=\"http://www.w3.org/2000/svg\">\n";
}

std::string frame(const Axes& axes, std::string_view x_name) {
  std::string out = line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "class=\"axis\"");
  for (double v : ticks(axes.x0, axes.x1, 8)) {
    out += line(axes.x(v), kHeight - kBottom, axes.x(v), kHeight - kBottom + 4, "class=\"axis\"");
    out += label(axes.x(v), kHeight - kBottom + 17, "middle", number(v));
  }
  return out + label((kLeft + kWidth - kRight) / 2, kHeight - 6, "middle", x_name);
}

const char* colour_of_kind(std::string_view kind) {
  static constexpr std::pair<std::string_view, const char*> kinds[] = {
      {"parameter", "#1f6feb"}, {"state", "#8250df"},   {"buffer", "#57606a"}, {"input", "#2da44e"},
      {"gradient", "#d1570b"},  {"scratch", "#bf8700"}, {"constant", "#6e7781"}};
  for (const auto& [name, colour] : kinds) {
    if (kind == name) return colour;
  }
  return "#54aeff";
}

std::string empty_chart(std::string_view why) {
  return open_svg(why) + label(kWidth / 2, kHeight / 2, "middle", why) + "</svg>\n";
}

}  // namespace

std::string with_thousands(int64_t n) {
  std::string digits = std::to_string(n);
  for (int i = static_cast<int>(digits.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3) digits.insert(static_cast<size_t>(i), 1, ',');
  return digits;
}

std::string readable_bytes(int64_t bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", value, units[unit]);
  return text;
}

std::string render_curves(const std::vector<Curve>& curves, const std::vector<Level>& levels, std::string_view unit) {
  Axes axes{0, 0, 0, 0};
  bool any = false;
  for (const Curve& curve : curves) {
    for (const auto& [step, value] : curve.points) {
      if (!std::isfinite(value)) continue;
      axes = any ? Axes{std::min(axes.x0, step), std::max(axes.x1, step), std::min(axes.y0, value), std::max(axes.y1, value)}
                 : Axes{step, step, value, value};
      any = true;
    }
  }
  if (!any) return empty_chart("no step was recorded");
  for (const Level& level : levels) {
    axes.y0 = std::min(axes.y0, level.value);
    axes.y1 = std::max(axes.y1, level.value);
  }
  if (axes.x1 == axes.x0) axes.x1 = axes.x0 + 1;
  if (axes.x1 == axes.x0) axes.x1 = std::nextafter(axes.x0, std::numeric_limits<double>::infinity());
  // A curve without range lies in the middle; the room around it is as large as its values can be told apart.
  const double pad = axes.y1 > axes.y0 ? 0.05 * (axes.y1 - axes.y0) : std::max(0.5, std::abs(axes.y0) * 1e-6);
  axes.y0 -= pad;
  axes.y1 += pad;

  std::string out = open_svg("loss over steps") + frame(axes, "step");
  for (double v : ticks(axes.y0, axes.y1, 6)) {
    out += line(kLeft, axes.y(v), kWidth - kRight, axes.y(v), "class=\"grid\"") + label(kLeft - 6, axes.y(v) + 4, "end", number(v));
  }
  out += label(kLeft, kTop - 4, "start", unit);
  for (const Level& level : levels) {
    out += line(kLeft, axes.y(level.value), kWidth - kRight, axes.y(level.value), "class=\"level\"");
    out += label(kWidth - kRight, axes.y(level.value) - 4, "end", level.name + " " + number(level.value));
  }
  size_t index = 0;
  for (const Curve& curve : curves) {
    const char* colour = kColours[index % std::size(kColours)];
    out += std::string("<polyline fill=\"none\" stroke=\"") + colour + "\" stroke-width=\"1.5\" points=\"";
    double last_x = -1e9;
    for (const auto& [at, value] : curve.points) {
      if (!std::isfinite(value)) continue;
      const double x = axes.x(at);
      if (x - last_x < 0.3 && &curve.points.back().first != &at) continue;  // several steps on one pixel
      out += px(x) + "," + px(axes.y(value)) + " ";
      last_x = x;
    }
    out += "\"/>\n";
    out += std::string("<g fill=\"") + colour + "\">" + label(kLeft + 12, kTop + 16 + 16 * static_cast<double>(index), "start", curve.name) + "</g>\n";
    ++index;
  }
  return out + "</svg>\n";
}

std::string render_memory(const std::vector<MemoryRange>& memory, int64_t arena_bytes, int64_t instruction_count) {
  if (memory.empty() || arena_bytes <= 0 || instruction_count <= 0) return empty_chart("the plan has no memory to show");
  const Axes axes{0, static_cast<double>(instruction_count), 0, static_cast<double>(arena_bytes)};
  std::string out = open_svg("memory plan: addresses over instructions") + frame(axes, "instruction");
  out += label(kLeft, kTop - 4, "start", readable_bytes(arena_bytes));
  std::map<std::string, int64_t> bytes_by_kind;
  std::map<std::pair<std::string, int>, std::pair<double, double>> thin;  // (kind, pixel row) -> x range
  for (const MemoryRange& range : memory) {
    bytes_by_kind[range.kind] += range.bytes;
    const double x = axes.x(static_cast<double>(range.first)), x_end = axes.x(static_cast<double>(range.last + 1));
    const double y = axes.y(static_cast<double>(range.offset + range.bytes)), height = axes.y(static_cast<double>(range.offset)) - y;
    if (height < 0.34) {
      auto [at, fresh] = thin.try_emplace({range.kind, static_cast<int>(y)}, x, x_end);
      if (!fresh) at->second = {std::min(at->second.first, x), std::max(at->second.second, x_end)};
      continue;
    }
    out += "<rect x=\"" + px(x) + "\" y=\"" + px(y) + "\" width=\"" + px(std::max(0.3, x_end - x)) + "\" height=\"" + px(height) +
           "\" fill=\"" + colour_of_kind(range.kind) + "\"><title>" + escape(range.name) + ": " + escape(range.kind) + ", " +
           with_thousands(range.bytes) + " bytes at " + with_thousands(range.offset) + ", instructions " + std::to_string(range.first) +
           " to " + std::to_string(range.last) + "</title></rect>\n";
  }
  for (const auto& [key, x] : thin) {
    out += "<rect x=\"" + px(x.first) + "\" y=\"" + px(key.second) + "\" width=\"" + px(std::max(0.3, x.second - x.first)) +
           "\" height=\"1\" fill=\"" + colour_of_kind(key.first) + "\"><title>several small ranges: " + escape(key.first) + "</title></rect>\n";
  }
  double x = kLeft + 90;
  for (const auto& [kind, bytes] : bytes_by_kind) {
    out += "<rect x=\"" + px(x) + "\" y=\"2\" width=\"10\" height=\"10\" fill=\"" + colour_of_kind(kind) + "\"/>" + label(x + 14, 11, "start", kind);
    x += 30 + 7.0 * static_cast<double>(kind.size());
  }
  return out + "</svg>\n";
}

std::string render_report(const Report& report) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + escape(report.title) +
      "</title>\n<style>\nbody { font: 15px/1.45 system-ui, sans-serif; max-width: 960px; margin: 2em auto; padding: 0 1em; color: #1f2328; }\n"
      "svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: #1f2328; }\n"
      ".axis { stroke: #57606a; } .grid { stroke: #d8dee4; } .level { stroke: #57606a; stroke-dasharray: 5 4; }\n"
      "svg rect { stroke: #fff; stroke-width: 0.2; }\n"
      "td { padding: 0.15em 1em 0.15em 0; } td:first-child { color: #57606a; }\n"
      "pre { background: #f6f8fa; padding: 1em; white-space: pre-wrap; }\n</style></head><body>\n<h1>" +
      escape(report.title) + "</h1>\n<table>\n";
  for (const auto& [name, value] : report.facts) {
    out += "<tr><td>" + escape(name) + "</td><td>" + escape(value) + "</td></tr>\n";
  }
  out += "</table>\n<h2>Loss</h2>\n" + render_curves(report.curves, report.levels, report.loss_unit);
  out += "<h2>Memory plan</h2>\n<p>Every byte of a step, fixed before the first: addresses from bottom to top, instructions from left to right. " +
         with_thousands(report.arena_bytes) + " bytes in " + with_thousands(static_cast<int64_t>(report.memory.size())) +
         " ranges. Point at a rectangle to see what it holds.</p>\n" +
         render_memory(report.memory, report.arena_bytes, report.instruction_count);
  if (!report.sample.empty()) out += "<h2>Text written by the trained model</h2>\n<pre>" + escape(report.sample) + "</pre>\n";
  return out + "</body></html>\n";
}

}  // namespace epl::tools
