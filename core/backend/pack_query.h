// A node as a pack reads it (core/base/pack_abi.h), and what the pack answers.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "core/backend/kernel.h"
#include "core/base/pack_abi.h"

namespace epl {

// The parts of a query live here, or in what it was made of.
class PackQuery {
 public:
  // `device`: the pack's handle of the one that it is prepared for, or null.
  PackQuery(const KernelQuery& q, void* device);
  PackQuery(const PackQuery&) = delete;
  PackQuery& operator=(const PackQuery&) = delete;
  const epl_pack_query* get() const { return &query_; }

 private:
  void add(const Attributes::Entry& entry);

  std::vector<epl_pack_type> inputs_, outputs_;
  std::vector<epl_pack_attribute> attributes_;
  std::deque<std::vector<int64_t>> integers_;
  std::deque<std::vector<double>> numbers_;
  epl_pack_query query_;
};

// Where a pack writes why it refuses or fails.
struct PackReason {
  char text[1024] = "";
  epl_pack_reason to{text, sizeof text};
};

// What `kernel` answers about a node. `keeps`: what the prepared kernel needs until it is destroyed, or null.
Result<Prepared> prepare_in_pack(const epl_pack_kernel& kernel, const KernelQuery& q, void* device,
                                 std::shared_ptr<const void> keeps);
// A launch as a pack reads it, without threads and stream.
epl_pack_call pack_call_of(const KernelCall& call, const PackReason& reason);
// The row of a kernel, but for how it is prepared and launched.
KernelRow named_row(const epl_pack_kernel& kernel);

}  // namespace epl
