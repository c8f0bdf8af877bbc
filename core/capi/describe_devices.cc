// The devices of an engine's description: what the build has, and what the machine has of a device that is a pack.
#include <string>

#include "core/backend/device.h"
#include "core/backend/pack_device.h"
#include "core/base/json.h"
#include "core/base/pack.h"
#include "core/base/pack_abi.h"
#include "core/capi/describe.h"

namespace epl::capi {
namespace {

// 90 as "9.0", 13000 as "13.0".
std::string capability_text(int capability) { return cat(capability / 10, ".", capability % 10); }
std::string cuda_version(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

Json gpu_json(const epl_pack_device_facts& facts, int64_t ordinal) {
  Json out = {{"ordinal", ordinal},
              {"name", facts.name},
              {"address", facts.address},
              {"capability", capability_text(facts.capability)},
              {"processors", facts.processors},
              {"memory_bytes", facts.memory_bytes},
              {"driver_serves", cuda_version(facts.driver)}};
  if (facts.free_bytes > 0) out["free_bytes"] = facts.free_bytes;
  if (facts.links >= 0) out["links"] = facts.links;
  if (facts.driver_name[0] != '\0') out["driver"] = facts.driver_name;
  return out;
}

Json library_json(const epl_pack_library& one) {
  const char* state = one.state == 0 ? "found" : one.state == EPL_PACK_MISSING ? "missing" : "unusable";
  Json out = {{"file", one.file}, {"what", one.what}, {"state", state}, {"needed", one.needed != 0}};
  if (one.version > 0) out["version"] = cuda_version(one.version);
  if (one.wanted > 0) out["wanted"] = cuda_version(one.wanted);
  out["looked"] = one.looked;
  if (one.path[0] != '\0') out["path"] = one.path;
  if (one.reason[0] != '\0') out["reason"] = one.reason;
  out["packages"] = {{"debian", one.debian}, {"pypi", one.wheel}, {"nvidia", one.repository}};
  return out;
}

void add_found(const PackDevices& found, Json& to) {
  Json gpus = Json::array(), joined = Json::array(), libraries = Json::array();
  for (const epl_pack_device_facts& facts : found.devices)
    gpus.push_back(gpu_json(facts, static_cast<int64_t>(gpus.size())));
  for (const PackDevices::Joined& one : found.joined)
    joined.push_back({{"one", one.one}, {"other", one.other}, {"by", one.by}});
  for (const epl_pack_library& one : found.libraries) libraries.push_back(library_json(one));
  to["gpus"] = gpus;
  to["joined"] = joined;
  to["libraries"] = libraries;
  if (!found.missing.empty()) to["missing"] = found.missing;
}

}  // namespace

Json describe_devices(const Host& host) {
  Json out = Json::array();
  for (const BackendRow& row : backend_table().rows) {
    Json one = {{"name", row.name}, {"doc", row.doc}};
    Json sheets = Json::array();
    for (const DeviceSheet& sheet : row.sheets) {
      sheets.push_back({{"name", cat(row.name, ":", sheet.name)},
                        {"product", sheet.product},
                        {"capability", capability_text(sheet.capability)},
                        {"memory_bytes", sheet.memory_bytes}});
    }
    if (!sheets.empty()) one["sheets"] = sheets;
    if (pack_table().find(row.name) != nullptr) add_found(look_for_pack_devices(row.name, host), one);
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace epl::capi
