// Ranks that are threads of one process: they read each other's memory.
//
// A call, or several that are made together, has two barriers. At the first, every rank has said where its operands
// are. Then each computes its share and writes it to all ranks. At the second, all shares are written. An `abort` ends
// only the first barrier: a rank that has passed it finishes, because its peers may be writing to its memory, and
// nothing in between can wait. A send is posted to its stream, and its receiver copies from the sender's memory.
// Neither needs memory of its own.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/device.h"

namespace epl::cpu {

inline constexpr int max_thread_ranks = 1024;

// What a rank that waits does: it sleeps at once where there are more ranks than processors, or spins before it does,
// for long where nobody else wants the processor.
enum class ThreadWait : uint8_t { sleeps, brief, patient };

// A group of `ranks` threads: a communicator for each. A rank whose communicator is destroyed has left: calls of the
// others end with Code::peer_failed, which names it.
Result<std::vector<std::unique_ptr<Communicator>>> create_thread_group(const std::string& name, int ranks,
                                                                       ThreadWait wait);

}  // namespace epl::cpu
