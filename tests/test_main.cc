// The one file that holds Catch2's runner, for every test binary; it ends the output with the line that CI reads.
#define CATCH_CONFIG_RUNNER
#include "catch.h"

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
