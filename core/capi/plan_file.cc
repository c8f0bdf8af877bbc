// Plans as files: decisions that are kept, used again and compared.
#include "core/base/file.h"
#include "core/base/shown.h"
#include "core/base/stop_hook.h"
#include "core/capi/objects.h"
#include "core/capi/plan.h"
#include "core/capi/streams.h"
#include "core/compile/plan_decisions.h"

namespace epl::capi {
namespace {

constexpr uint64_t max_plan_file_bytes = uint64_t{1} << 30;

std::string version_text() { return cat(EPL_VERSION_MAJOR, ".", EPL_VERSION_MINOR, ".", EPL_VERSION_PATCH); }

Result<PlanFile> read_plan_file(const std::string& path) {
  EPL_ASSIGN(const auto reader, FileReader::open(path));
  if (reader->size() > max_plan_file_bytes) return invalid(shown_path(path), " is too large for a plan file").at(path);
  std::string text(static_cast<size_t>(reader->size()), '\0');
  EPL_TRY(reader->read(0, text.data(), text.size()));
  auto file = parse_plan_file(text);
  if (!file.ok()) return file.status().with_context(path);
  return file;
}

Result<std::unique_ptr<epl_plan>> plan_of_decisions(const epl_model& model, const epl_strategy* strategy,
                                                    PlanWish& wish, Result<PlanFile> file) {
  EPL_TRY(file.status());
  EPL_TRY(take_decisions(*file, version_text(), strategy != nullptr, wish.options));
  wish.options.decisions = std::make_shared<const PlanFile>(*std::move(file));
  return made_plan(model, wish);
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_plan_save(const epl_plan* plan, const char* path, size_t path_length, const epl_call_options* call) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(plan);
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(const Call begun, begin_call(*plan->engine, call));
    const std::string text = print_plan_file(decisions_of(*plan->plan, version_text()));
    return write_file_atomically(
        std::string(path_text), [&](FileWriter& writer) { return writer.write(text.data(), text.size()); },
        stop_hook(begun.stop));
  });
}

epl_error* epl_plan_save_to(const epl_plan* plan, epl_write_fn write, void* userdata, const epl_call_options* call) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(plan);
    if (write == nullptr) return invalid("write is missing");
    EPL_ASSIGN(const Call begun, begin_call(*plan->engine, call));
    const std::string text = print_plan_file(decisions_of(*plan->plan, version_text()));
    HostWriter writer(write, userdata, begun.stop);
    EPL_TRY(writer.write(text.data(), text.size()));
    return writer.finish();
  });
}

epl_error* epl_plan_load(const epl_model* model, const epl_trainer* trainer, const epl_strategy* strategy,
                         const epl_plan_options* options, const char* path, size_t path_length,
                         const epl_call_options* call, epl_plan** plan) {
  return giving(plan, "plan", [&]() -> Result<std::unique_ptr<epl_plan>> {
    EPL_REQUIRE(model);
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(const Call begun, begin_call(*model->engine, call));
    EPL_ASSIGN(PlanWish wish, plan_wish(*model, trainer, strategy, options));
    wish.options.stop = begun.stop;
    return plan_of_decisions(*model, strategy, wish, read_plan_file(std::string(path_text)));
  });
}

epl_error* epl_plan_load_bytes(const epl_model* model, const epl_trainer* trainer, const epl_strategy* strategy,
                               const epl_plan_options* options, const void* data, size_t bytes,
                               const epl_call_options* call, epl_plan** plan) {
  return giving(plan, "plan", [&]() -> Result<std::unique_ptr<epl_plan>> {
    EPL_REQUIRE(model);
    EPL_REQUIRE(data);
    EPL_ASSIGN(const Call begun, begin_call(*model->engine, call));
    EPL_ASSIGN(PlanWish wish, plan_wish(*model, trainer, strategy, options));
    wish.options.stop = begun.stop;
    return plan_of_decisions(*model, strategy, wish, parse_plan_file({static_cast<const char*>(data), bytes}));
  });
}

epl_error* epl_plan_compare(const epl_engine* engine, const char* path, size_t path_length, const char* other,
                            size_t other_length, const epl_call_options* call, epl_text** text) {
  return giving_text(text, "text", [&]() -> Result<std::string> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(path);
    EPL_TEXT_ARGUMENT(other);
    EPL_ASSIGN(const Call begun, begin_call(*engine->engine, call));
    EPL_ASSIGN(const PlanFile one, read_plan_file(std::string(path_text)));
    EPL_ASSIGN(const PlanFile two, read_plan_file(std::string(other_text)));
    std::string out;
    for (const std::string& sentence : compare_plan_files(one, two)) out += sentence + "\n";
    return out;
  });
}
