// Time of init and of finalize as PE 0 sees it.
#include "perftest/common/bench.h"

int main(int argc, char** argv) {
  perftest::Options options;
  int exit_code = 0;
  if (!perftest::parse_options(argc, argv, "init_time", &options, &exit_code)) return exit_code;
  const double start = perftest::now_us();
  pgas::init();
  const double init_us = perftest::now_us() - start;
  perftest::Report report("init_time", pgas::fabric(), pgas::n_pes(), perftest::Figure::kLatency, "", false,
                          pgas::my_pe() != 0);
  // Written twice, because not every library survives its finalize.
  report.add({"init", 0, init_us});
  bool good = report.write_json(options.json);
  const double end = perftest::now_us();
  pgas::finalize();
  report.add({"finalize", 0, perftest::now_us() - end});
  good = report.write_json(options.json) && good;
  return good ? 0 : 1;
}
