// Catch2 of either major version.
#pragma once
#if defined(HEDDLE_CATCH2_V3)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
