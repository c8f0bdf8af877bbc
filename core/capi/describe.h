// JSON for people and tools: what the epl_..._describe functions return.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/capi/handle.h"

namespace epl {
struct BudgetTrial;
class CompiledPlan;
struct Host;
struct LinkSeconds;
struct Machine;
struct Overview;
struct Peak;
struct StageRoofline;
class Model;
}  // namespace epl

namespace epl::capi {

std::string describe_engine(const Engine& engine);
// Opens the packs that are devices, and the libraries that they open.
Json describe_devices(const Host& host);
std::string describe_model(const Model& model, bool rewrites);
Json describe_findings(const Model& model);
// Which initialisers can be trained, why others cannot, and the nodes that let no gradient through; or why the model
// could not be bound to find out.
Json describe_training(const Model& model);
// Bytes by purpose, and when each range of the train step's arena is alive.
std::string describe_memory(const CompiledPlan& plan);
// The plan as a page shows it: meshes, tensors, a step in virtual time.
std::string describe_overview(const CompiledPlan& plan, const Overview& overview);
Json describe_roofline(const StageRoofline& one);
Json describe_links(const Machine& machine, const Overview& overview);
Json describe_link_seconds(const Machine& machine, const LinkSeconds& calls);
Json describe_peak(const Peak& peak);
Json describe_trials(const std::vector<BudgetTrial>& tried);
// Where the device's memory is known: how much it is, and whether the plan fits.
void add_fit(const CompiledPlan& plan, Json& to);
std::string describe_parameters(const CompiledPlan& plan);
std::string describe_notes(const CompiledPlan& plan);

}  // namespace epl::capi
