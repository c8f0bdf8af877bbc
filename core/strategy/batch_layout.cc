#include "core/strategy/batch_layout.h"

#include <algorithm>

#include "core/strategy/weight_shards.h"

namespace epl {

BatchLayout BatchLayout::over_all_axes(const Mesh& mesh) {
  AxisCut all;
  for (const std::string_view name : {data_axis, micro_batch_axis, unit_axis}) {
    if (const int axis = mesh.find(name); axis >= 0) all.axes.push_back(axis);
  }
  return BatchLayout(Cuts{all});
}

Cuts BatchLayout::cuts_inside(int64_t outer) const {
  Cuts inside = cuts_;
  for (AxisCut& cut : inside) cut.outer *= outer;
  return inside;
}

std::vector<int> BatchLayout::rank_axes(const Mesh& mesh) const {
  std::vector<int> found;
  for (const AxisCut& cut : cuts_) {
    for (int axis : cut.axes) {
      const MeshAxis& known = mesh.axes[axis];
      if (known.kind == MeshAxis::Kind::rank && known.size > 1) found.push_back(axis);
    }
  }
  return found;
}

void BatchLayout::leave_out(int axis) {
  for (AxisCut& cut : cuts_) std::erase(cut.axes, axis);
}

int64_t BatchLayout::units(const Mesh& mesh) const {
  const AxisCut& last = cuts_.back();
  int64_t units = last.outer;
  for (int axis : last.axes) units *= mesh.axes[axis].size;
  return units;
}

BatchLayout::Gap BatchLayout::gap(const Mesh& mesh) const {
  Gap found{.behind = units(mesh)};
  int64_t before = 1;  // what the cuts so far make of it
  for (const AxisCut& cut : cuts_) {
    if (cut.outer > before) found = {cut.outer / before, units(mesh) / cut.outer};
    before = cut.outer;
    for (int axis : cut.axes) before *= mesh.axes[axis].size;
  }
  return found;
}

int64_t BatchLayout::runs(const Mesh& mesh) const {
  const Gap found = gap(mesh);
  const AxisCut& last = cuts_.back();
  // Without a loop, what others cut right before the units lies side by side.
  const bool side_by_side = mesh.shards(last.axes) == 1 && found.behind * last.outer == units(mesh);
  return side_by_side && power_of_two(found.runs) ? 1 : found.runs;
}

int64_t BatchLayout::units_of_run(const Mesh& mesh) const { return units(mesh) / mesh.shards(cuts_) / runs(mesh); }

int64_t BatchLayout::run_stride(const Mesh& mesh) const { return gap(mesh).behind; }

int64_t BatchLayout::first_unit(const Mesh& mesh, const MeshCoordinates& coordinates) const {
  int64_t first = 0;
  const int64_t all = units(mesh);
  for (const AxisCut& cut : cuts_) {
    int64_t run = all / cut.outer;
    for (int axis : cut.axes) {
      run /= mesh.axes[axis].size;
      first += coordinates.at[axis] * run;
    }
  }
  return first;
}

std::vector<int> BatchLayout::order_of_sums() const {
  std::vector<int> axes;
  for (const AxisCut& cut : cuts_) axes.insert(axes.end(), cut.axes.begin(), cut.axes.end());
  std::ranges::reverse(axes);
  return axes;
}

bool BatchLayout::time_first(const Mesh& mesh) const {
  const std::vector<int>& first = cuts_.front().axes;
  return !first.empty() && mesh.axes[first.front()].kind == MeshAxis::Kind::time;
}

bool BatchLayout::loops_in_runs(const Mesh& mesh) const {
  return std::ranges::any_of(cuts_.back().axes, [&](int axis) {
    return mesh.axes[axis].kind == MeshAxis::Kind::time && mesh.axes[axis].size > 1;
  });
}

Result<BatchOrder> batch_order(const Strategy& strategy) {
  const bool asked = strategy.config.find("batch.order") != nullptr;
  const bool micro_batches = strategy.text("batch.order") == "micro_batches";
  if (asked && !micro_batches && shards_gradients(strategy))
    return invalid(R"("zero.level" = ")", strategy.text("zero.level"),
                   R"(" keeps gradients in shards, to which all ranks add in each micro-batch, and "batch.order" = )",
                   R"("ranks" gives each rank micro-batches of its own; leave one of the two out)");
  return micro_batches || shards_gradients(strategy) ? BatchOrder::micro_batches : BatchOrder::ranks;
}

}  // namespace epl
