// A folder in which the processes of a job on one host meet, where their launcher gives them no place: of this user
// alone, under a name that follows from what all of them know. Each holds a lock of it while it lives. So whatever an
// earlier job of that name has left is known to be nobody's, and goes, however that job ended.
#pragma once

#include <string>

#include "tools/secret.h"

namespace epl::tools {

class RendezvousFolder {
 public:
  // Folders beside it that begin with `kin` and that nobody holds go as well.
  RendezvousFolder(std::string path, const std::string& kin);
  RendezvousFolder(const RendezvousFolder&) = delete;
  ~RendezvousFolder();  // the last one removes it
  // A secret that is drawn for the job: process 0 leaves it here, and the others wait for it so long.
  SecretText secret(bool leads, double seconds) const;

 private:
  const std::string path_;
  int lock_ = -1;
};

}  // namespace epl::tools
