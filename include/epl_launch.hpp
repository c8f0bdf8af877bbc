// What `epl launch` says in the environment of a process that it has started, for C++20. The library reads no
// environment; this does, for a program that asks.
#ifndef EPL_LAUNCH_HPP
#define EPL_LAUNCH_HPP

#include <epl.hpp>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

namespace epl {

// Of processes that have one rank each; that of a program that was started alone is 0 of 1.
struct launch {
  std::int64_t rank = 0, ranks = 1;
  std::string rendezvous, secret;
  std::string wrong;  // what is wrong with the variables; empty: nothing

  static launch from_environment() {
    launch out;
    if (std::getenv("EPL_RANK") == nullptr) return out;
    std::int64_t descriptor = -1;
    const bool numbers = number("EPL_RANK", out.rank, out.wrong) && number("EPL_WORLD_SIZE", out.ranks, out.wrong);
    if (const char* text = std::getenv("EPL_RENDEZVOUS")) out.rendezvous = text;
    if (!numbers || std::getenv("EPL_SECRET_FD") == nullptr || !number("EPL_SECRET_FD", descriptor, out.wrong))
      return out;
    char bytes[256];
    const ssize_t length = ::pread(static_cast<int>(descriptor), bytes, sizeof bytes, 0);
    if (length < 0) out.wrong = "the secret of EPL_SECRET_FD cannot be read";
    if (length > 0) out.secret.assign(bytes, static_cast<std::size_t>(length));
    return out;
  }
  epl::plan_options plan_options() const {
    epl::plan_options options;
    options.ranks = ranks;
    options.local_ranks = 1;
    return options;
  }
  // Its texts are those of this object, which must outlive the call.
  epl::session_options session_options() const {
    epl::session_options options;
    if (ranks == 1) return options;
    options.first_rank = rank;
    options.ranks = 1;
    options.set_rendezvous(rendezvous);
    if (!secret.empty()) options.set_secret(secret);
    return options;
  }

 private:
  static bool number(const char* name, std::int64_t& value, std::string& wrong) {
    const char* text = std::getenv(name);
    const std::string_view digits = text == nullptr ? "" : text;
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool fine = failure == std::errc() && end == digits.data() + digits.size() && value >= 0;
    if (!fine) wrong = std::string(name) + " is \"" + std::string(digits) + "\", which is no number";
    return fine;
  }
};

}  // namespace epl

#endif  // EPL_LAUNCH_HPP
