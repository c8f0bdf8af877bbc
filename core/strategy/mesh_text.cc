#include "core/strategy/mesh_text.h"

#include <algorithm>

namespace epl {
namespace {

constexpr std::string_view axis_kinds[] = {"rank", "time", "unit"};

}  // namespace

std::string axis_lines(const Mesh& mesh) {
  std::string out;
  for (const MeshAxis& axis : mesh.axes) {
    out += cat("axis ", axis.name, " ", axis.size, " ", axis_kinds[static_cast<size_t>(axis.kind)], "\n");
  }
  return out;
}

std::string batch_line(const Mesh& mesh, const BatchLayout& batch) {
  if (batch.empty() || batch == BatchLayout::over_all_axes(mesh)) return "";
  return cat("batch ", cuts_text(mesh, {batch.cuts()}), "\n");
}

bool parse_batch(TextReader& reader, const Mesh& mesh, BatchLayout& batch) {
  std::vector<Cuts> all;
  if (!batch.empty() || !parse_cuts(reader, mesh, all) || all.size() != 1 || all[0].empty()) return false;
  batch = BatchLayout(all[0]);
  return true;
}

bool parse_axis(TextReader& reader, Mesh& mesh) {
  MeshAxis axis;
  std::string kind;
  if (!reader.name(axis.name) || !reader.integer(axis.size) || !reader.name(kind)) return false;
  const auto known = std::ranges::find(axis_kinds, kind);
  if (known == std::end(axis_kinds) || axis.size < 1 || axis.size > INT32_MAX) return false;
  axis.kind = static_cast<MeshAxis::Kind>(known - std::begin(axis_kinds));
  mesh.axes.push_back(std::move(axis));
  return true;
}

std::string axis_names(const Mesh& mesh, const std::vector<int>& axes) {
  std::vector<std::string> names;
  for (int axis : axes) names.push_back(mesh.axes[axis].name);
  return join(names, ".");
}

bool parse_axis_names(std::string_view text, const Mesh& mesh, std::vector<int>& axes) {
  while (!text.empty()) {
    const size_t dot = std::min(text.find('.'), text.size());
    const int axis = mesh.find(text.substr(0, dot));
    if (axis < 0) return false;
    axes.push_back(axis);
    text.remove_prefix(std::min(dot + 1, text.size()));
  }
  return true;
}

std::string cuts_text(const Mesh& mesh, const std::vector<Cuts>& all) {
  std::vector<std::string> texts;
  for (const Cuts& cuts : all) {
    std::vector<std::string> parts;
    for (const AxisCut& cut : cuts)
      parts.push_back(cat(axis_names(mesh, cut.axes), cut.outer == 1 ? "" : cat(" outer ", cut.outer),
                          cut.of == 0 ? "" : cat(" of ", cut.of)));
    texts.push_back(parts.empty() ? "-" : join(parts, " and "));
  }
  return cat("[", join(texts, ", "), "]");
}

bool parse_cuts(TextReader& reader, const Mesh& mesh, std::vector<Cuts>& out) {
  if (!reader.take("[")) return false;
  for (bool first = true; !reader.take("]"); first = false) {
    if (!first && !reader.take(",")) return false;
    Cuts& cuts = out.emplace_back();
    if (reader.take("-")) continue;
    do {
      AxisCut& cut = cuts.emplace_back();
      std::string names;
      if (!reader.name(names) || !parse_axis_names(names, mesh, cut.axes)) return false;
      if (reader.take("outer") && (!reader.integer(cut.outer) || cut.outer < 1)) return false;
      if (reader.take("of") && (!reader.integer(cut.of) || cut.of < 1)) return false;
    } while (reader.take("and"));
  }
  return true;
}

std::string rank_local_text(const Mesh& mesh, const RankLocal& rank_local, std::string_view representative) {
  return rank_local ? cat(" rank_local ", rank_local.shard, " of ", axis_names(mesh, rank_local.axes), " like ",
                          name_text(representative))
                    : "";
}

bool parse_rank_local(TextReader& reader, const Mesh& mesh, RankLocal& rank_local, std::string& representative) {
  std::string names;
  if (!reader.take("rank_local")) return true;
  return reader.integer(rank_local.shard) && rank_local.shard >= 0 && reader.take("of") && reader.name(names) &&
         parse_axis_names(names, mesh, rank_local.axes) && reader.take("like") && reader.name(representative);
}

std::string port_sharding_text(const Mesh& mesh, const Sharding& sharding) {
  const int dim = sharding.cut_dim(batch_axis);
  std::string out = cat("dim ", dim);
  if (dim < 0) return out;
  for (const AxisCut& cut : sharding.dims[dim])
    out += cat(cut.outer == 1 ? "" : cat(" outer ", cut.outer), " over ", axis_names(mesh, cut.axes));
  return out;
}

bool parse_port_sharding(TextReader& reader, const Mesh& mesh, const TensorType& type, Sharding& sharding) {
  int64_t dim = 0;
  if (!reader.take("dim") || !reader.integer(dim) || dim < -1 || dim >= type.ndim()) return false;
  sharding.dims.resize(type.shape.size());
  AxisCut cut;
  std::string names;
  while (dim >= 0 && (reader.take("outer") ? reader.integer(cut.outer) && reader.take("over") : reader.take("over"))) {
    if (cut.outer < 1 || !reader.name(names) || !parse_axis_names(names, mesh, cut.axes)) return false;
    sharding.dims[dim].push_back(std::move(cut));
    cut = {};
  }
  return cut.outer == 1 && sharding.cut_dim(batch_axis) == dim;
}

}  // namespace epl
