// What launchers say in the environment, and what of epl launch is computed from words alone.
#include "tools/processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "tools/launch.h"
#include "tools/launch_output.h"

namespace epl::tools::processes_test {
namespace {

using Variables = std::map<std::string, std::string>;

Processes found(const Variables& variables, const std::string& host_name = "node") {
  Surroundings around;
  around.environment = [&](const char* name) -> const char* {
    const auto one = variables.find(name);
    return one == variables.end() ? nullptr : one->second.c_str();
  };
  around.host_name = host_name;
  around.temporary = "/scratch";
  around.user = 7;
  around.parent = 99;
  around.read_file = [](const std::string& path) { return "of " + path + "\n"; };
  around.read_descriptor = [](int descriptor) { return "of " + std::to_string(descriptor); };
  return find_processes(around);
}

std::string refusal(const Variables& variables) {
  try {
    static_cast<void>(found(variables));
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

#define EXPECT_WORDS(text, word) EXPECT_NE((text).find(word), std::string::npos) << (text)

TEST(Processes, without_a_launcher_a_process_is_alone) {
  for (const Variables& alone :
       {Variables{}, Variables{{"RANK", "0"}}, Variables{{"WORLD_SIZE", "2"}},
        Variables{{"RANK", "0"}, {"WORLD_SIZE", "2"}},            // nowhere to meet
        Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}},  // a batch script, not a step of it
        Variables{{"JOB_COMPLETION_INDEX", "3"}},                 // pods that do not train together
        Variables{{"EPL_RANK", "0"}, {"EPL_WORLD_SIZE", "1"}, {"EPL_RENDEZVOUS", "tcp://a:1"}}}) {
    const Processes out = found(alone);
    EXPECT_FALSE(out.several());
    EXPECT_TRUE(out.leads());
    EXPECT_EQ(out.rendezvous, "");
  }
}

TEST(Processes, epl_launch_says_all) {
  const Processes out = found({{"EPL_RANK", "3"},
                               {"EPL_WORLD_SIZE", "4"},
                               {"EPL_LOCAL_WORLD_SIZE", "2"},
                               {"EPL_RENDEZVOUS", "tcp://node1:5"},
                               {"EPL_SECRET_FD", "8"},
                               {"EPL_SECRET", "less private"},
                               {"RANK", "0"},
                               {"WORLD_SIZE", "9"},
                               {"MASTER_ADDR", "x"}});
  EXPECT_EQ(out.launcher, "epl launch");
  EXPECT_EQ(out.rank, 3);
  EXPECT_EQ(out.count, 4);
  EXPECT_EQ(out.local_count, 2);
  EXPECT_EQ(out.rendezvous, "tcp://node1:5");
  EXPECT_EQ(out.secret.view(), "of 8");
  EXPECT_FALSE(out.serves);
  EXPECT_FALSE(found({{"EPL_RANK", "0"}, {"EPL_WORLD_SIZE", "4"}, {"EPL_RENDEZVOUS", "tcp://127.0.0.1:5"}}).serves);
}

TEST(Processes, torchrun) {
  Variables variables = {{"RANK", "0"},           {"WORLD_SIZE", "4"},     {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "head"}, {"MASTER_PORT", "1234"}, {"EPL_SECRET", "s"}};
  EXPECT_EQ(found(variables).rendezvous, "tcp://head:1234");
  EXPECT_TRUE(found(variables).serves);
  EXPECT_EQ(found(variables).local_count, 2);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(found(variables).rendezvous, "tcp://head:1235") << "torchrun itself listens at the port";
  variables["RANK"] = "3";
  EXPECT_FALSE(found(variables).serves);
  EXPECT_EQ(found(variables).launcher, "torchrun");
}

TEST(Processes, open_mpi_and_mpich) {
  Variables variables = {{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "12.1@x/../y"}};
  EXPECT_EQ(found(variables).rendezvous, "file:///scratch/epl-7-12-1-x----y");
  EXPECT_EQ(found(variables).folder, "/scratch/epl-7-12-1-x----y");
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_WORDS(refusal(variables), "EPL_RENDEZVOUS=tcp://HOST:PORT");
  variables["EPL_RENDEZVOUS"] = "tcp://head:5";
  EXPECT_WORDS(refusal(variables), "EPL_SECRET_FILE");
  variables["EPL_SECRET_FILE"] = "job.secret";
  EXPECT_EQ(found(variables).secret.view(), "of job.secret");
  EXPECT_FALSE(found(variables).serves);
  variables["OMPI_COMM_WORLD_RANK"] = "0";
  EXPECT_TRUE(found(variables).serves);
  const Processes mpich = found({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}});
  EXPECT_EQ(mpich.rank, 2);
  EXPECT_EQ(mpich.rendezvous, "file:///scratch/epl-7-99");
}

TEST(Processes, slurm) {
  Variables variables = {{"SLURM_PROCID", "5"},    {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_JOB_ID", "1000"}, {"SLURM_STEP_ID", "2"},        {"EPL_SECRET", "s"}};
  for (const auto& [list, host] : Variables{{"a[3-5,7],b", "a3"},
                                            {"gpu-[012,014-020]", "gpu-012"},
                                            {"a,b", "a"},
                                            {"a", "a"},
                                            {"a[07-09].site", "a07.site"}}) {
    variables["SLURM_STEP_NODELIST"] = list;
    EXPECT_EQ(found(variables).rendezvous, "tcp://" + host + ":27002");
  }
  EXPECT_EQ(found(variables).local_count, 4);
  variables["SLURM_STEP_NODELIST"] = "[";
  EXPECT_WORDS(refusal(variables), "SLURM_STEP_NODELIST=[");
  variables["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_EQ(found(variables).rendezvous, "tcp://127.0.0.1:27002");
}

TEST(Processes, kubernetes) {
  Variables variables = {{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"EPL_SECRET", "s"}};
  EXPECT_WORDS(refusal(variables), "EPL_SERVICE");
  variables["EPL_SERVICE"] = "train";
  EXPECT_EQ(found(variables, "job-x-2").rendezvous, "tcp://job-x-0.train:29511");
  variables["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_EQ(found(variables).rendezvous, "tcp://10.0.0.1:29511");
}

TEST(Processes, what_makes_no_sense_is_refused) {
  const Variables well = {{"EPL_RANK", "0"}, {"EPL_WORLD_SIZE", "2"}, {"EPL_RENDEZVOUS", "tcp://127.0.0.1:5"}};
  EXPECT_TRUE(found(well).several());
  const auto with = [&](const char* name, const char* value) {
    Variables changed = well;
    changed[name] = value;
    return refusal(changed);
  };
  EXPECT_WORDS(with("EPL_RANK", "x"), "EPL_RANK=x, which is not a number");
  EXPECT_WORDS(with("EPL_RANK", "-1"), "EPL_RANK=-1, which is not a number");
  EXPECT_WORDS(with("EPL_RANK", "2"), "process 2 of 2");
  EXPECT_WORDS(with("EPL_WORLD_SIZE", "0"), "of 0");
  EXPECT_WORDS(with("EPL_WORLD_SIZE", "1000000"), "of 1000000");
  EXPECT_WORDS(with("EPL_RENDEZVOUS", "tcp://10.0.0.1:5"), "need a secret");
}

TEST(Launch, hosts) {
  const auto hosts = launch_hosts({"a:4", "b.site", "c:2"});
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_EQ(hosts[2].first, 5);
  EXPECT_EQ(own_host(hosts, "b"), 1u);
  EXPECT_EQ(own_host(hosts, "a.site"), 0u);
  EXPECT_THROW(static_cast<void>(own_host(hosts, "d")), UsageError);
  EXPECT_THROW(static_cast<void>(own_host(launch_hosts({"a.x", "a.y"}), "a")), UsageError);
  EXPECT_EQ(own_host(launch_hosts({"a.x", "a.y"}), "a.y"), 1u);
  for (const char* bad : {"a:", "a:0", "a:x", ":4", "a:99999"})
    EXPECT_THROW(static_cast<void>(launch_hosts({bad})), UsageError) << bad;
  EXPECT_THROW(static_cast<void>(launch_hosts({"a:1", "a:2"})), UsageError);
}

TEST(Launch, lines_are_passed_on_whole) {
  PrefixedLines lines("[3] ");
  EXPECT_EQ(lines.take("one\ntw"), "[3] one\n");
  EXPECT_EQ(lines.idle(), "") << "half a line waits for its end";
  EXPECT_EQ(lines.take("o\n\nend"), "[3] two\n[3] \n");
  EXPECT_EQ(lines.end(), "[3] end\n");
  EXPECT_EQ(lines.end(), "");
}

TEST(Launch, progress_that_writes_over_itself_passes_through) {
  PrefixedLines behind("[3] "), before("[3] ");
  EXPECT_EQ(behind.take("step 1\rstep 2\r"), "[3] step 1\r[3] step 2\r");
  EXPECT_EQ(behind.take("\nend\r"), "\n[3] end\r");
  EXPECT_EQ(behind.take("\n"), "\n") << "one line end";
  EXPECT_EQ(before.take("\rstep 1"), "\r");
  EXPECT_EQ(before.idle(), "[3] step 1");
  EXPECT_EQ(before.take("\rstep 2\n"), "\r[3] step 2\n");
  EXPECT_EQ(before.end(), "");
}

TEST(Launch, a_line_without_an_end_goes_on_in_pieces) {
  PrefixedLines lines("[3] ");
  std::string all;
  const std::string piece(1000, 'x');
  for (int i = 0; i < 1000; ++i) all += lines.take(piece);
  EXPECT_GT(all.size(), 900'000u) << "it is not kept";
  all += lines.end();
  EXPECT_EQ(all.size(), 4 + 1'000'000u + 1);
  EXPECT_EQ(all.substr(0, 8), "[3] xxxx");
}

// A reader who takes nothing: nobody waits, and what has found room is there for him in its order.
TEST(Launch, output_waits_for_nobody) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  {
    LaunchOutput output(ends[1], wake);
    for (int i = 0; !output.full(); ++i) output.write(std::to_string(i) + std::string(100'000, ' ') + "\n");
    output.be_lossy();
    EXPECT_FALSE(output.full()) << "its producers go on";
    for (int i = 0; i < 1000; ++i) output.write(std::string(100'000, 'x'));
    EXPECT_FALSE(output.drain(1));
    ASSERT_EQ(::fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    std::string read(size_t{64} << 20, '\0');
    size_t at = 0;
    while (!output.drain(0)) {
      const ssize_t got = ::read(ends[0], read.data() + at, read.size() - at);
      if (got < 0 && errno == EAGAIN) continue;
      ASSERT_GT(got, 0);
      at += static_cast<size_t>(got);
    }
    EXPECT_EQ(read.substr(0, 2), "0 ");
    EXPECT_LT(at, size_t{8} << 20) << "the rest is left out";
  }
  ::close(ends[0]), ::close(ends[1]), ::close(wake);
}

}  // namespace
}  // namespace epl::tools::processes_test
